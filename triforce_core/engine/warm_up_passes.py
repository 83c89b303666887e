"""Passes run ahead of an answer whose rounds may have any width, so that none of them waits for kernels or captures."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from ..drafters.model import ModelOnCache
from ..model.graphs import CAPTURED_WIDTHS
from .attention_report import AttentionMass

_ROWS = (3, 7, 15)  # of full passes with fewer rows than are observed, one for each of the sizes that kernels come in
_ASKED = (3, 8, 16, 24, 48)  # tokens of questions, likewise


def any_width(full: ModelOnCache | None, parts: Sequence[ModelOnCache], chunk_size: int,
              mass_rows: int) -> list[Callable[[], None]]:
    """Steps to be called in order. Where a quotation is held to the document the host leads, and a draft is as long as
    the document forces. Drafting passes are captured in all widths that there are. So are observed full passes, as
    trees, which are filled up: any chain runs as one of these. With fewer rows than are observed nothing fills up:
    such a pass is captured in its own width once that has come often; until then it runs as usual: here once.

    full: None where that takes too long. mass_rows: see ``AttentionMass``."""
    captures: list[Callable[[], None]] = [
        partial(on.model.prepare, on.cache, width)
        for on in parts for width in CAPTURED_WIDTHS]
    if full is None:
        return captures
    observer = AttentionMass(chunk_size, mass_rows)
    captures += [partial(full.model.prepare, full.cache, width, observer, tree=True)
                 for width in CAPTURED_WIDTHS if width >= mass_rows]
    return [*captures, *(partial(_run, full, rows, observer) for rows in _ROWS)]


def questions(on: ModelOnCache, room: int) -> list[Callable[[], None]]:
    """Steps that read questions of several lengths, up to ``room`` tokens, behind what was read, and forget them."""
    return [partial(_run, on, rows, None) for rows in _ASKED if rows < room]


def _run(full: ModelOnCache, rows: int, observer: AttentionMass | None) -> None:
    """A pass over made-up tokens, forgotten; without an observer none of its rows is asked for, as in reading."""
    if rows > full.room:
        return
    before, used = full.length, full.observer
    full.observer = observer
    full.feed([0] * rows, rows if observer is not None else 0)
    full.observer = used
    full.keep(before)
