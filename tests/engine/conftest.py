"""Fixtures that several of these tests share."""

from __future__ import annotations

import pytest

from triforce_core.engine.pipeline import Pipeline


@pytest.fixture
def chosen_after_the_verdict(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where chunks are copied they are chosen then, and which tokens are the newest is known: another choice than the
    one made while the pass runs, so that rounds can only be compared without that."""
    monkeypatch.setattr(Pipeline, "overlap", lambda self, told: told(self.observer.latest))
