"""Both ways to decide by chance."""

from __future__ import annotations

import pytest
import torch
from speculation.probs import OnTensors

from triforce_core.speculation import verifier


@pytest.fixture(params=["one by one", "at once"])
def rejection(request, monkeypatch) -> None:
    """On the host, and all at once where the odds are."""
    if request.param == "at once":
        monkeypatch.setattr(verifier, "reject", lambda draft, target, chance: verifier.reject_at_once(
            draft, torch.stack([target[row] for row in range(len(draft.token_ids) + 1)]), OnTensors(chance)))
