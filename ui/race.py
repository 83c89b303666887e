"""Two legs of a race -> what there is to say about it, as plain JSON. Pure; the replay itself runs in the browser."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from itertools import zip_longest
from typing import Any

from triforce_core import ModelInfo

from . import strings
from .runs import Fold

CONTEXT = 60  # characters shown on either side of the first difference


def compare(legs: Sequence[Fold], model: ModelInfo | None) -> dict[str, Any]:
    """Plain decoding against TriForce: lanes for the replay, speed-up, and whether the words are the same."""
    plain, fast = legs
    figures = [leg.figures() for leg in legs]
    rates = [figure.tokens_per_second for figure in figures]
    same = plain.token_ids == fast.token_ids
    return {
        "lanes": [{"text": leg.text, "marks": thin(leg.marks), "figures": asdict(figure)}
                  for leg, figure in zip(legs, figures, strict=True)],
        "speedup": rates[1] / rates[0] if all(rates) else None,
        "same": same,
        "difference": None if same else difference(plain, fast, model),
        "model": model.name if model else "",
        "dtype": model.dtype if model else "",
        "device": model.device if model else "",
    }


def difference(plain: Fold, fast: Fold, model: ModelInfo | None) -> dict[str, Any]:
    """Where two answers part, and the likeliest reason."""
    token = next(index for index, (a, b) in enumerate(zip_longest(plain.token_ids, fast.token_ids)) if a != b)
    start = next((i for i, (a, b) in enumerate(zip(plain.text, fast.text, strict=False)) if a != b),
                 min(len(plain.text), len(fast.text)))
    exact = model is not None and model.dtype == "float32"
    return {
        "token": token + 1,
        "before": plain.text[max(0, start - CONTEXT) : start],
        "plain": plain.text[start : start + CONTEXT],
        "fast": fast.text[start : start + CONTEXT],
        "why": strings.RACE_DIFFERS_EXACT if exact else strings.RACE_DIFFERS_ROUNDING.format(
            dtype=model.dtype if model else "?"),
    }


def thin(marks: Sequence[tuple[float, int]], most: int = 600) -> list[tuple[float, int]]:
    """At most ``most`` of the (seconds, characters) marks, the last one always among them."""
    step = max(1, -(-len(marks) // most))
    kept = [(round(t, 3), n) for t, n in marks[::step]]
    if marks and kept[-1][1] != marks[-1][1]:
        kept.append((round(marks[-1][0], 3), marks[-1][1]))
    return kept
