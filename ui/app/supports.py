"""Sentences of answers in free words, compared with the document by the evidence process."""

from __future__ import annotations

import logging
from typing import Any

from triforce_core import EvidenceClient, metrics

from .jobs import Selection

log = logging.getLogger(__name__)


class Supports:
    """Checks one answer after another; see ``EvidenceClient``."""

    def __init__(self) -> None:
        self._evidence = EvidenceClient()

    def expect(self, selection: Selection) -> None:
        """Have the pages indexed while the engine works, so that no answer waits for that."""
        try:
            self._evidence.index(selection.chosen)
        except Exception:
            log.exception("the evidence process cannot be started")

    def of(self, selection: Selection, answer: str) -> list[dict[str, Any]] | None:
        """Return each sentence that can be judged, as ``metrics.support_as_json`` has it. None where that failed: an
        answer is never lost for it."""
        try:
            return metrics.support_as_json(self._evidence.check(selection.chosen, answer), selection.ranges)
        except Exception:
            log.exception("an answer could not be compared with its document")
            return None

    def close(self) -> None:
        """End the evidence process."""
        self._evidence.close()
