"""What the engine's process is started with."""

from __future__ import annotations

import pytest

from triforce_core.config import EngineConfig
from triforce_core.worker.child import engine_environment

SPINS = "GOMP_SPINCOUNT"


def test_threads_are_as_many_as_asked_for_and_offline_unless_allowed() -> None:
    assert "OMP_NUM_THREADS" not in engine_environment(EngineConfig())
    found = engine_environment(EngineConfig(threads=3, allow_download=True))
    assert (found["OMP_NUM_THREADS"], found["HF_HUB_OFFLINE"]) == ("3", "0")
    assert engine_environment(EngineConfig())["HF_HUB_OFFLINE"] == "1"


@pytest.mark.parametrize("chosen", [SPINS, "OMP_WAIT_POLICY"])
def test_threads_that_wait_soon_give_up_their_core_unless_told_otherwise(chosen: str,
                                                                        monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (SPINS, "OMP_WAIT_POLICY"):
        monkeypatch.delenv(name, raising=False)
    assert 0 < int(engine_environment(EngineConfig())[SPINS]) < 10_000
    monkeypatch.setenv(chosen, "active")
    assert SPINS not in engine_environment(EngineConfig())
