"""Work beside the usual queue, and numbers that the host reads later."""

from __future__ import annotations

import pytest
import torch

from triforce_core.device.streams import SideStream, later

GPU = pytest.param("cuda", marks=[pytest.mark.gpu,
                                  pytest.mark.skipif(not torch.cuda.is_available(), reason="torch sees no GPU")])


@pytest.mark.parametrize("kind", ["cpu", GPU])
def test_what_was_made_beside_is_there_once_joined(kind: str) -> None:
    device = torch.device(kind)
    n = 4000 if kind == "cuda" else 40  # so that it takes a while
    ones, beside = torch.ones(n, n, device=device), SideStream(device)
    with beside:
        made = ones
        for _ in range(20):
            made = made @ ones / n
    beside.join()
    assert bool((made == 1.0).all())
    with pytest.raises(RuntimeError, match="in vain"), beside:
        raise RuntimeError("in vain")
    if kind == "cuda":
        assert torch.cuda.current_stream() == torch.cuda.default_stream()


@pytest.mark.parametrize("kind", ["cpu", GPU])
def test_later_reads_numbers_as_they_were(kind: str) -> None:
    numbers = torch.arange(5.0, device=kind)
    waited = later(numbers)
    numbers.zero_()
    assert waited().device.type == "cpu" and waited().tolist() == [0.0, 1.0, 2.0, 3.0, 4.0]
