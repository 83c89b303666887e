"""Fixtures that several of these tests share."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from engine.tiny import write_model

from triforce_core.engine.pipeline import Pipeline


@pytest.fixture
def chosen_after_the_verdict(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where chunks are copied they are chosen then, and which tokens are the newest is known: another choice than the
    one made while the pass runs, so that rounds can only be compared without that."""
    monkeypatch.setattr(Pipeline, "overlap", lambda self: None)


@pytest.fixture(scope="session")
def pair(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Write a tiny random pair, target and draft."""
    torch.set_num_threads(1)
    root = tmp_path_factory.mktemp("pair")
    return (write_model(root / "target", layers=3, heads=4, seed=1),
            write_model(root / "draft", layers=1, heads=2, seed=2))


@pytest.fixture(scope="module")
def folders(pair: tuple[Path, Path], lengths_given: None) -> tuple[Path, Path]:
    """Return the pair for tests that give draft lengths: what a file of tests uses unless it makes another."""
    return pair
