"""How long a reading still takes, as it is told while it reads."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

import pytest
from tiny import write_model

from triforce_core.engine import prefill as module
from triforce_core.model.config import read_config

CHUNK, TOKENS = 100, 3000


class Reader:
    """A model whose passes take as long as their work, on a clock of its own."""

    observer = None

    def __init__(self, folder: Path, reach: int | None, stalls: Collection[int] = ()) -> None:
        """stalls: tokens read before passes that take a hundred times as long."""
        self.model, self.reach, self.length, self.now, self.stalls = self, reach, 0, 0.0, stalls
        self.config = read_config(folder)

    def feed(self, token_ids: list[int], logits_rows: int) -> None:
        before = self.config.prefill_flops(self.length, self.reach)
        slow = 100 if self.length in self.stalls else 1
        self.length += len(token_ids)
        self.now += slow * (self.config.prefill_flops(self.length, self.reach) - before)

    def commit(self) -> None:
        pass


@pytest.mark.parametrize("reach", [None, 250])
@pytest.mark.parametrize("kept", [0, 1200])
def test_what_is_left_is_told_by_its_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reach: int | None,
                                          kept: int) -> None:
    """kept: tokens from an earlier reading."""
    reader = Reader(write_model(tmp_path / "model", layers=3, heads=2, seed=0), reach)
    reader.length = kept
    monkeypatch.setattr(module, "perf_counter", lambda: reader.now)
    told = [(reader.now, progress.eta_seconds)
            for progress in module.prefill(reader, [0] * (TOKENS - kept), CHUNK, lambda: False, TOKENS, reach)]
    assert len(told) == (TOKENS - kept) // CHUNK and told[-1][1] == 0
    for now, left in told:
        assert now + left == pytest.approx(reader.now)


def test_a_pass_that_was_held_up_does_not_make_the_estimate_swing(tmp_path: Path,
                                                                  monkeypatch: pytest.MonkeyPatch) -> None:
    reader = Reader(write_model(tmp_path / "model", layers=3, heads=2, seed=0), None, stalls=(0, 900, 1000))
    monkeypatch.setattr(module, "perf_counter", lambda: reader.now)
    work = reader.config.prefill_flops
    for progress in module.prefill(reader, [0] * TOKENS, CHUNK, lambda: False):
        if progress.tokens_done > CHUNK:  # the first pass has nothing to be compared with
            assert progress.eta_seconds == pytest.approx(work(TOKENS, None) - work(progress.tokens_done, None))
