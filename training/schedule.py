"""What is trained, in which order, for which share of the time."""

from __future__ import annotations

from dataclasses import dataclass, replace

from training.rows import RowKind

REACH = 262_144
LONG = 65_536

FULL_KINDS = {
    "1k": RowKind(1024, 64, turns=0.45, cut=0.6, written=0.35, plain=0.1, natural=0.25),
    "4k": RowKind(4096, 16, turns=0.4, cut=0.5, written=0.4, several=0.4, plain=0.12, reach=REACH, natural=0.25),
    "64k": RowKind(LONG, 1, turns=0.25, cut=0.4, written=0.4, several=0.2, plain=0.1, reach=REACH, natural=0.2),
}
FULL_KINDS |= {
    "1k-late": replace(FULL_KINDS["1k"], turns=0.35, cut=0.3, written=0.5, plain=0.25),
    "4k-late": replace(FULL_KINDS["4k"], turns=0.33, cut=0.3, written=0.5, plain=0.2),
    "64k-late": replace(FULL_KINDS["64k"], cut=0.35, several=0.1, written=0.5),
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
    Phase(("1k",), 0.34),
    Phase(("4k",), 0.24),
    Phase(("64k",), 0.24),
    Phase(("4k-late", "64k-late", "1k-late"), 0.18),
)
SMALL_PHASES = (Phase(("1k",), 0.5), Phase(("4k", "1k"), 0.5))

# What the draft reads whole, and what it sees parts of: see `training.distil`.
DRAFT_KINDS = {
    "whole": RowKind(1024, 64, turns=0.3, cut=0.2, written=0.4, plain=0.45, natural=0.15),
    "parts": RowKind(4096, 24, turns=0.2, cut=0.2, written=0.4, several=0.3, plain=0.25, natural=0.2),
}
SMALL_DRAFT_KINDS = {
    "whole": RowKind(256, 4, turns=0.3, cut=0.2, written=0.4, plain=0.45),
    "parts": RowKind(1024, 2, turns=0.3, cut=0.2, written=0.4, plain=0.25),
}


def rate_factor(fraction: float, step: int, warm_up: int = 80, flat: float = 0.45) -> float:
    """Learning rate against its maximum: a short rise, flat, then linear to a fiftieth."""
    rise = min(1.0, (step + 1) / warm_up)
    return rise * (1.0 if fraction < flat else max(0.02, 1 - (fraction - flat) / (1 - flat)))
