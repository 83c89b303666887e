"""How often a page hears of what the engine is doing: decided here and nowhere else, from what it computes on."""

from __future__ import annotations

from dataclasses import dataclass

from ..state.engine_queue import EngineQueue
from ..state.runs import RunStore


@dataclass(frozen=True)
class Pace:
    """Seconds that must lie between two redraws while the engine works: of the words that it writes and of how far a
    prefill is; of what stands beside them (figures, strip, engine). moves: whether signs of life move by themselves."""

    words: float
    aside: float
    moves: bool


BRISK = Pace(0.1, 0.0, True)
# All that a page takes is taken from the answer, a hundredth of a second or two with each update: a CPU's engine
# computes with every core, and what one thread loses all others wait for. What moves by itself takes the most.
SPARING = Pace(0.5, 2.0, False)


def pace(queue: EngineQueue, runs: RunStore) -> Pace:
    """Of now."""
    working = bool(runs.active() or queue.prefills)
    return SPARING if working and queue.model is not None and queue.model.mode == "cpu" else BRISK
