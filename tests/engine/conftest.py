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
    monkeypatch.setattr(Pipeline, "overlap", lambda self, told: told(self.observer.latest))


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory, lengths_given: None) -> tuple[Path, Path]:
    """A tiny random pair, draft lengths given: what a file of tests uses unless it makes another."""
    torch.set_num_threads(1)
    root = tmp_path_factory.mktemp("pair")
    target = write_model(root / "target", layers=3, heads=4, seed=1)
    return target, write_model(root / "draft", layers=1, heads=2, seed=2)
