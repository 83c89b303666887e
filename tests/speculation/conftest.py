"""Both ways to decide by chance."""

from __future__ import annotations

import pytest
import torch
from speculation.probs import OnTensors

from triforce_core.research import tree_verifier
from triforce_core.speculation import verifier


def at_once(way, monkeypatch) -> None:
    """Have a verifier, of chains or of trees, decide all at once."""
    monkeypatch.setattr(way, "reject", lambda draft, target, chance: way.reject_at_once(
        draft, torch.stack([target[row] for row in range(len(draft.token_ids) + 1)]), OnTensors(chance)))


@pytest.fixture(params=["one by one", "at once"])
def rejection(request, monkeypatch) -> None:
    """On the host, and all at once where the odds are."""
    if request.param == "at once":
        for way in (verifier, tree_verifier):
            at_once(way, monkeypatch)
        monkeypatch.setattr(verifier, "reject_block", lambda draft, target, chance: verifier.reject_at_once(
            draft, target, OnTensors(chance), whole=True))
