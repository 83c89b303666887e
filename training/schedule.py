"""What is trained, in which order, for which share of the time."""

from __future__ import annotations

from dataclasses import dataclass, replace

from training.rows import RowKind

LONG = 32_768

FULL_KINDS = {
    "1k": RowKind(1024, 64, turns=0.45, cut=0.6, written=0.3, plain=0.08),
    "4k": RowKind(4096, 16, turns=0.4, cut=0.5, written=0.3, several=0.4, plain=0.1, reach=LONG),
    "16k": RowKind(16_384, 4, turns=0.33, cut=0.4, written=0.4, several=0.3, plain=0.08, reach=LONG),
    "32k": RowKind(LONG, 2, turns=0.28, cut=0.4, written=0.4, several=0.25, plain=0.08),
}
FULL_KINDS |= {
    "1k-late": replace(FULL_KINDS["1k"], turns=0.35, cut=0.3, written=0.45, plain=0.2),
    "4k-late": replace(FULL_KINDS["4k"], turns=0.33, cut=0.3, written=0.45, plain=0.15),
    "32k-late": replace(FULL_KINDS["32k"], cut=0.35, several=0.1, written=0.5),
}
SMALL_KINDS = {
    "1k": RowKind(256, 4, turns=0.45, cut=0.6, written=0.3),
    "4k": RowKind(1024, 2, turns=0.4, cut=0.5, written=0.4, several=0.4, reach=4096),
}


@dataclass(frozen=True)
class Phase:
    """Kinds of rows in turn, for a share of the time."""

    kinds: tuple[str, ...]
    share: float


TARGET_PHASES = (
    Phase(("1k",), 0.28),
    Phase(("4k",), 0.22),
    Phase(("16k",), 0.18),
    Phase(("32k",), 0.20),
    Phase(("4k-late", "32k-late", "1k-late"), 0.12),
)
CONTINUE_PHASES = (Phase(("4k-late", "16k", "4k-late", "32k-late", "1k-late"), 1.0),)
SMALL_PHASES = (Phase(("1k",), 0.5), Phase(("4k", "1k"), 0.5))

DRAFT_KINDS = {
    "mixed": RowKind(1024, 64, turns=0.3, cut=0.2, written=0.4, plain=0.45),
}
SMALL_DRAFT_KINDS = {"mixed": RowKind(256, 4, turns=0.3, cut=0.2, written=0.4, plain=0.45)}


def rate_factor(fraction: float, step: int, warm_up: int = 80, flat: float = 0.45) -> float:
    """Learning rate against its maximum: a short rise, flat, then linear to a fiftieth."""
    rise = min(1.0, (step + 1) / warm_up)
    return rise * (1.0 if fraction < flat else max(0.02, 1 - (fraction - flat) / (1 - flat)))
