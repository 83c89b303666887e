"""Questions to begin with: only those that the app has tried itself, while the engine had nothing to do.

A document that was just read and that nobody has asked about is asked, question by question; those that the model is
sure of are kept with the document. Whatever a person wants stops a trial at once (``Queue.try_out``).
"""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Callable, Collection

from triforce_core import SamplingParams, SpeculationConfig, TriForceError

from .conversations import Conversations
from .jobs import Request, Selection
from .library import Entry, Library
from .queue import Queue
from .runs import Run
from .starters import STARTER_WHOLE, starters

log = logging.getLogger(__name__)
MOST = 4  # that are shown
SURE = 0.65  # confidence of an answer that is worth a suggestion
QUOTED = 3  # sentences that a summary quotes; it has no confidence
LONGEST = 96  # tokens of a trial
TICK = 0.5


class Suggestions:
    """One thread of its own. in_front: the documents that somebody looks at."""

    def __init__(self, library: Library, conversations: Conversations, queue: Queue,
                 in_front: Callable[[], Collection[str]], patience: float = 2.0) -> None:
        """patience: seconds that the engine must have had nothing to do."""
        self._library, self._conversations, self._queue = library, conversations, queue
        self._in_front, self.patience = in_front, patience
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="suggestions", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        self._closing.set()

    def of(self, entry: Entry) -> tuple[str, ...]:
        """Those that were found for the chosen pages with the loaded model, the surest first."""
        kept = json.loads(entry.suggested) if entry.suggested else {}
        return tuple(kept["questions"]) if kept.get("of") == self._name(entry) else ()

    def _name(self, entry: Entry) -> list[str]:
        return [self._queue.model.name if self._queue.model else "", entry.chosen, str(entry.characters)]

    def _watch(self) -> None:
        rested = time.monotonic()
        while not self._closing.wait(min(TICK, self.patience)):
            entry = self._next()
            if entry is None or not self._queue.idle:
                rested = time.monotonic()
            elif time.monotonic() - rested >= self.patience:
                try:
                    self._try(entry)
                except TriForceError as error:  # a full disk: it is a convenience
                    log.debug("no suggestions: %s", type(error).__name__)
                rested = time.monotonic()

    def _next(self) -> Entry | None:
        """The document in the cache, if somebody looks at it and no conversation's words stand behind it."""
        model, place = self._queue.model, self._queue.open_key
        entry = self._library.get(place[0]) if place else None
        if entry is None or place is None or entry.ranges != place[1] or entry.id not in self._in_front():
            return None
        if model is None or model.instructions or self._conversations.of(entry.id, 1):
            return None  # a model that answers in its own words tells of no confidence
        kept = json.loads(entry.suggested) if entry.suggested else {}
        return None if kept.get("of") == self._name(entry) else entry

    def _try(self, entry: Entry) -> None:
        document, name = self._library.document(entry.id), self._name(entry)
        if document is None or len(document.pages) != entry.pages:
            return
        sure: list[tuple[float, str]] = []
        estimates = False  # whether this model tells how sure it is
        for question in starters(document.pick(entry.ranges)):
            run = self._ask(Selection(entry.id, document, entry.ranges), question)
            if run is None:
                return  # somebody wants the engine; once more when it rests
            told = run.accumulator.finished
            estimates |= told is not None and told.answerable is not None
            digest = estimates and question == STARTER_WHOLE
            sure += [(worth, question)] if (worth := _worth(run, digest)) else []
        sure.sort(key=lambda one: -one[0])
        if self._library.is_here(entry):
            self._library.update(entry.id, suggested=json.dumps(
                {"of": name, "questions": [question for _, question in sure[:MOST]]}))

    def _ask(self, selection: Selection, question: str) -> Run | None:
        news = threading.Event()
        run = self._queue.try_out(Request(selection, question, SamplingParams(max_new_tokens=LONGEST),
                                          (("", SpeculationConfig()),)), news.set)
        while not run.ended and not self._closing.is_set():
            news.wait(TICK)
            news.clear()
        return run if run.state == "done" else None


def _worth(run: Run, digest: bool) -> float:
    """How sure the answer is, 0 where it is not sure enough. digest: it is to be a summary, of which nobody tells."""
    told = run.accumulator.finished
    quoted = sum(quote["closed"] for quote in run.quotes)
    if told is None or not quoted:
        return 0.0
    if told.answerable is None:
        return SURE if digest and quoted >= QUOTED else 0.0
    return told.confidence if told.answerable and (told.confidence or 0.0) >= SURE else 0.0


__all__ = ["Suggestions"]
