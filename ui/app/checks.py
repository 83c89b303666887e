"""The sentences of an answer in free words, judged by the document while it is written."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from typing import Protocol

from triforce_core import Document, SentenceSupport, TriForceError, metrics

from .jobs import Selection
from .runs import Run

log = logging.getLogger(__name__)
LOOK_EVERY = 0.25  # seconds


class Judge(Protocol):
    """The verb that is needed of ``triforce_core.EvidenceClient``."""

    def check(self, document: Document, answer: str, question: str = "", start: int = 0,
              whole: bool = True) -> Iterator[SentenceSupport]: ...


class SentenceChecks:
    """Judges sentences as soon as they are finished, each answer in a thread of its own. came: called after each of
    them, and when all are judged."""

    def __init__(self, evidence: Judge, came: Callable[[Run], None]) -> None:
        self._evidence, self._came = evidence, came

    def begin(self, run: Run, selection: Selection) -> None:
        """Judge what is written of a run from now on, until it is ended and all is judged."""
        run.support, run.judges = [], True
        threading.Thread(target=self._follow, args=(run, selection), name="sentence-checks", daemon=True).start()

    def _follow(self, run: Run, selection: Selection) -> None:
        seen, whole = "", False
        try:
            while not whole:
                whole = run.written.wait(LOOK_EVERY)  # before the text is looked at: nothing comes after it
                if (text := run.accumulator.text) != seen or whole:
                    seen = text
                    self._judge(run, selection, text, whole)
        except TriForceError as error:  # the app is closing, above all
            log.info("an answer's sentences could not be judged: %s", error)
        except Exception:  # an answer is never lost for it
            log.exception("an answer's sentences could not be judged")
        run.judges = False
        self._came(run)

    def _judge(self, run: Run, selection: Selection, text: str, whole: bool) -> None:
        begins = metrics.reasoning(text)[1]  # what was judged may turn out to be reasoning, at its closing mark
        known = run.support = [one for one in run.support or [] if one["start"] >= begins]
        start = known[-1]["end"] if known else 0
        for one in self._evidence.check(selection.chosen, text, run.question, start, whole):
            known = [*known, *metrics.support_as_json([one], selection.ranges)]
            run.support = known
            self._came(run)
