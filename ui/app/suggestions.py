"""Questions to begin with: only those that the app has tried itself, while the engine had nothing to do.

A document that was just read and that nobody has asked about is asked, question by question; those that the model is
sure of are kept with the document. Whatever a person wants stops a trial at once (``Queue.try_out``).
"""

from __future__ import annotations

import json
import logging
import re
import threading
import time
from collections import Counter
from collections.abc import Callable, Collection

from triforce_core import Document, SamplingParams, SpeculationConfig, TriForceError

from .conversations import Conversations
from .jobs import Request, Selection
from .library import Entry, Library
from .queue import Queue
from .runs import Run

STARTER_NAME = "What does it say about {name}?"
STARTER_CHAPTER = "What is the point of the part “{chapter}”?"
STARTER_WHOLE = "What are its main points?"

log = logging.getLogger(__name__)
MOST = 4  # that are shown
SURE = 0.65  # confidence of an answer that is worth a suggestion
QUOTED = 3  # sentences that a summary quotes; it has no confidence
LONGEST = 96  # tokens of a trial
TICK = 0.5
LOOKED_AT = 400_000  # characters: names that matter come early and often
LEAST_OFTEN = 3  # times that a name comes up
# A capital inside a sentence is a name's; behind an ending, a quotation mark or a line break it may be any word's.
_NAME = re.compile(r"(?<=[a-z,;] )[A-Z][A-Za-z]{2,}(?: (?:of |the |de |von )?[A-Z][A-Za-z]{2,}){0,2}\b")
_HEADING = re.compile(r"^(?:chapter|part|section)?\s*(?:[\dIVXLC]+(?:\.\d+)*[.:)]?)?\s*(.*)$", re.IGNORECASE)


class Suggestions:
    """Tries questions in a thread of its own. in_front: returns the documents that somebody looks at."""

    def __init__(self, library: Library, conversations: Conversations, queue: Queue,
                 in_front: Callable[[], Collection[str]], patience: float = 2.0) -> None:
        """patience: seconds that the engine must have had nothing to do."""
        self._library, self._conversations, self._queue = library, conversations, queue
        self._in_front, self.patience = in_front, patience
        self._closing = threading.Event()

    def start(self) -> None:
        threading.Thread(target=self._watch, name="suggestions", daemon=True).start()

    def close(self) -> None:
        self._closing.set()

    def of(self, entry: Entry) -> tuple[str, ...]:
        """Return those that were found for the chosen pages with the loaded model, the surest first."""
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
        """Return the document in the cache, if somebody looks at it and no conversation's words stand behind it."""
        model, place = self._queue.model, self._queue.open_key
        entry = self._library.get(place[0]) if place else None
        if entry is None or place is None or entry.ranges != place[1] or entry.id not in self._in_front():
            return None
        if model is None or model.instructions or self._conversations.of(entry.id, 1):
            return None  # a model that answers in its own words has no confidence
        kept = json.loads(entry.suggested) if entry.suggested else {}
        return None if kept.get("of") == self._name(entry) else entry

    def _try(self, entry: Entry) -> None:
        document, name = self._library.document(entry.id), self._name(entry)
        if document is None or len(document.pages) != entry.pages:
            return
        sure: list[tuple[float, str]] = []
        estimates = False  # whether this model estimates its confidence
        for question in starters(document.pick(entry.ranges)):
            run = self._ask(Selection(entry.id, document, entry.ranges), question)
            if run is None:
                return  # somebody wants the engine; once more when it rests
            end = run.accumulator.finished
            estimates |= end is not None and end.answerable is not None
            worth = _worth(run, digest=estimates and question == STARTER_WHOLE)
            sure += [(worth, question)] if worth else []
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
    """Return how sure the answer is, 0 where not enough. digest: it is a summary, which has no confidence."""
    end = run.accumulator.finished
    quoted = sum(quote["closed"] for quote in run.quotes)
    if end is None or not quoted:
        return 0.0
    if end.answerable is None:
        return SURE if digest and quoted >= QUOTED else 0.0
    return end.confidence if end.answerable and (end.confidence or 0.0) >= SURE else 0.0


def starters(document: Document) -> list[str]:
    """Return questions from its headings and most frequent names, the most particular first, one for the whole last."""
    questions = [STARTER_NAME.format(name=name) for name in names(document)[:4]]
    questions += [STARTER_CHAPTER.format(chapter=title) for title in headings(document)[:3]]
    return [*questions, STARTER_WHOLE]


def names(document: Document) -> list[str]:
    """Return names that come up at least LEAST_OFTEN times, the most frequent first; a part of a longer one counts with
    it. A word that is written small too, a third as often or more, is no name."""
    counted: Counter[str] = Counter()
    small: Counter[str] = Counter()
    size = 0
    for page in document.pages:
        text = " ".join(page.text.split())
        counted.update(_NAME.findall(text))
        small.update(re.findall(r"\b[a-z]{3,}", text))
        size += len(page.text)
        if size > LOOKED_AT:
            break
    found: list[str] = []
    for name, count in counted.most_common(40):
        proper = count >= LEAST_OFTEN and 3 * small[name.split()[0].lower()] < count
        if proper and not any(name in other or other in name for other in found):
            found.append(name)
    return found


def headings(document: Document) -> list[str]:
    """Return headings in the middle of the document, numbers left off: lines of a few words that stand alone."""
    found = []
    for page in document.pages[len(document.pages) // 4 :]:
        for line in page.text.split("\n\n")[:3]:
            words = line.strip()
            match = _HEADING.match(words)
            title = match[1].strip() if match else ""
            short = "\n" not in words and 2 <= len(title.split()) <= 7
            if short and title[0].isupper() and title[-1] not in ".,;:?!”\"" and title not in found:
                found.append(title)
        if len(found) >= 3:
            break
    return found
