"""One thread for torch's small operations, and as many as before afterwards."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from triforce_core.device.streams import single_thread


@pytest.fixture(autouse=True)
def three_threads() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    yield
    torch.set_num_threads(before)


def test_one_thread_on_a_cpu_and_all_again_after_an_error() -> None:
    with pytest.raises(RuntimeError, match="here"), single_thread(torch.device("cpu")):
        assert torch.get_num_threads() == 1
        raise RuntimeError("here")
    assert torch.get_num_threads() == 3


def test_beside_a_gpu_nothing_changes() -> None:
    with single_thread(torch.device("cuda")):
        assert torch.get_num_threads() == 3
