"""A tiny random pair, target and draft, for engines that are really run."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from engine.tiny import write_model


@pytest.fixture(scope="session")
def folders(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    torch.set_num_threads(1)
    root = tmp_path_factory.mktemp("pair")
    return (write_model(root / "target", layers=2, heads=2, seed=1),
            write_model(root / "draft", layers=1, heads=1, seed=2))
