"""Sentences of answers in free words, compared with the document. What was made of a document for that is kept once."""

from __future__ import annotations

import logging
from typing import Any

from triforce_core import SupportFinder, metrics

from .jobs import Selection

log = logging.getLogger(__name__)


class Supports:
    """For one thread: the one that writes answers."""

    def __init__(self) -> None:
        self._known: tuple[str, SupportFinder] | None = None  # of the last document, by its text

    def of(self, selection: Selection, answer: str) -> list[dict[str, Any]] | None:
        """Each sentence that can be judged, as ``metrics.support_as_json`` has it. None where that failed: an answer is
        never lost for it."""
        try:
            if self._known is None or self._known[0] != selection.text:
                self._known = None  # one is large enough
                self._known = selection.text, SupportFinder(selection.chosen)
            return metrics.support_as_json(self._known[1].support(answer), selection.ranges)
        except Exception:
            log.exception("an answer could not be compared with its document")
            return None
