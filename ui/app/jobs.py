"""Jobs for the engine as values, the order in which they are done, and how long they take.

A document may be deleted, its pages chosen anew and settings turned while a job waits: it is done as it was asked for.
"""

from __future__ import annotations

import dataclasses
import enum
import time
from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

from triforce_core import (
    Document,
    DocumentFit,
    DocumentOpened,
    EngineConfig,
    PrefillProgress,
    SamplingParams,
    SpeculationConfig,
    Turn,
    merge_ranges,
)

from .library import Ranges
from .runs import Run

UNEXPECTED = "Something inside went wrong ({kind}). The app is still running; try again, or see the log."
READING_CANCELLED = "Reading was cancelled."

SHORT = 8_000  # characters: some 2,000 tokens, which a machine without a GPU reads in a second
SLACK = 64  # tokens: where a page ends is not where the context does
LETTERS_A_TOKEN = 4.0  # where nobody counted the tokens
PAUSE_SECONDS = 1.0  # that a reading takes to make way
FRONT = 200  # tokens, at most, that stand before the first page
FRAME = 16  # tokens around a question and its answer
LONGEST_ANSWER = 1_000_000  # tokens of one that may go on to its end
SHORT_ANSWER = 256  # tokens of an answer for which there must be room
USUAL_ANSWER = 1024  # tokens of an answer that are kept back for it
LAST = 8  # answers of which the mean is taken
PAUSABLE = ("waiting", "loading", "tokenize", "read", "served")  # stages of a reading: behind them little is left

JobKind = Literal["engine", "prefill", "answer", "race"]


@dataclass(frozen=True, eq=False)
class Selection:
    """A document's text and the pages of it that are meant.

    key: its id in the library, or one of its own where it is ephemeral. ranges: pages by their places in the file."""

    key: str
    document: Document
    ranges: Ranges
    ephemeral: bool = False

    @classmethod
    def of_ephemeral(cls, document: Document, ranges: Ranges = ()) -> Selection:
        """Return a selection of a document outside the library. ranges: () for all pages."""
        made = cls("", document, ranges or ((1, len(document.pages)),), True)
        return cls(made.chosen.id, document, made.ranges, True)

    @cached_property
    def chosen(self) -> Document:
        """Return the pages alone, as the engine opens them. Raises PageRangeError."""
        return self.document if self.ranges == ((1, len(self.document.pages)),) else self.document.pick(self.ranges)

    @cached_property
    def text(self) -> str:
        """Return the name of the pages' words: a document may have been read from its file in another way since."""
        return self.chosen.id

    @cached_property
    def is_short(self) -> bool:
        """Return whether it is read about as soon as it is asked for."""
        return self.chosen.characters <= SHORT

    def same(self, other: Selection | None) -> bool:
        """Return whether the same words stand in the cache for both, under the same name."""
        return other is not None and (self.key, self.ranges) == (other.key, other.ranges) and (
            self.document is other.document or self.text == other.text)


@dataclass(frozen=True, eq=False)
class Request:
    """Everything that an answer follows from.

    selection: None while its document's text is taken out. lanes: name and configuration of each answer: one, or those
    of a race. system: instructions for it. alone: the selection is a blank, nothing is looked for in it."""

    selection: Selection | None
    question: str
    sampling: SamplingParams
    lanes: tuple[tuple[str, SpeculationConfig], ...]
    history: tuple[Turn, ...] = ()
    system: str = ""
    alone: bool = False

    @property
    def unlimited(self) -> bool:
        """Return whether the answer goes on until it ends itself."""
        return self.sampling.max_new_tokens >= LONGEST_ANSWER

    def run(self, conversation: str = "", document: str = "", *, race: bool = False,
            heard: Callable[[], None] = lambda: None) -> Run:
        """Return the run that shows what becomes of it. document: its id, where no pages are chosen."""
        return Run(self.selection.key if self.selection else document, self.question, conversation,
                   ranges=self.selection.ranges if self.selection else (), race=race, lanes=self.lanes,
                   system=self.system, heard=heard,
                   longest=USUAL_ANSWER if self.unlimited else self.sampling.max_new_tokens)


class Fate(enum.IntEnum):
    """The wishes for a job that is under way, the strongest last."""

    GO_ON = 0
    PAUSE = 1  # it gives way to another one, and is gone on with
    STOP = 2  # a person cancelled it
    DROP = 3  # nobody needs it any more: other pages are wanted, or the document is deleted


@dataclass(eq=False)
class Job:
    """One thing for the engine, the same object from when it is asked for to its end.

    document: its id, "" where the engine is started; config: for that, None for the same as before. selection: None
    while an answer waits for its document's text. stage: waiting, loading, its progress's while the
    document is put into the cache, "" once it stands there. number: the queue's, in order of asking. part: pages to
    answer from instead, once its reading was paused."""

    kind: JobKind
    document: str = ""
    selection: Selection | None = None
    request: Request | None = None
    run: Run | None = None
    config: EngineConfig | None = None
    fate: Fate = Fate.GO_ON
    stage: str = "waiting"
    progress: PrefillProgress | None = None
    number: int = 0
    part: Selection | None = None

    @property
    def cancelled(self) -> bool:
        """Return whether it is to end and not to be gone on with."""
        return self.fate >= Fate.STOP

    @property
    def held(self) -> bool:
        """Return whether it is a question that waits for its document's text."""
        return self.run is not None and self.selection is None

    @property
    def opening(self) -> bool:
        """Return whether its document is being put into the cache."""
        return self.stage not in ("waiting", "")

    @property
    def is_short(self) -> bool:
        return self.selection is not None and self.selection.is_short


def in_order(waiting: Sequence[Job], front: Collection[str]) -> list[Job]:
    """Return the jobs that wait for the engine in the order in which they will be done.

    Questions, and readings of documents in ``front`` (somebody looks at them), go as they were asked for, short
    documents first; behind them come other readings. No job passes a restart of the engine."""
    restarts = [job.number for job in waiting if job.kind == "engine"]
    return sorted((job for job in waiting if not job.held), key=lambda job: (
        job.kind == "prefill" and job.document not in front,
        sum(number <= job.number for number in restarts), job.kind != "engine",
        not job.is_short, job.number))


@dataclass(frozen=True)
class Ahead:
    """The jobs before one that waits.

    doing: the engine's present work, on the document with this title; more: jobs between that and this one. seconds:
    until all of it is done, None where that is not known."""

    doing: Literal["engine", "prefill", "answer", "race", "pause"]
    title: str
    more: int
    seconds: float | None


class Estimates:
    """Times of jobs, by what earlier ones took. Written by the engine's thread, read by any."""

    def __init__(self, fits: Mapping[str, DocumentFit], usual: Callable[[], float] = lambda: 0.0) -> None:
        """fits: the counted tokens of each document. usual: tokens per second that this machine has read with
        this model before; 0 where it has not."""
        self._fits, self._usual = fits, usual
        self.forget()

    def forget(self) -> None:
        """Begin anew: another engine takes its own time."""
        self._rate = 0.0  # tokens per second of the last prefill
        self._again: dict[str, float] = {}  # text -> seconds of bringing it back
        self._answers: deque[float] = deque(maxlen=LAST)  # seconds of each, without waiting and opening

    def opened(self, selection: Selection, opened: DocumentOpened) -> None:
        if opened.restored:
            self._again[selection.text] = opened.seconds
        elif opened.seconds:
            self._rate = (opened.tokens - opened.reused) / opened.seconds

    def answered(self, seconds: float) -> None:
        self._answers.append(seconds)

    def ahead(self, jobs: Sequence[Job], opened: Selection | None) -> Ahead | None:
        """Return what ``jobs``, the first of which is being done, amount to. opened: what is in the cache now."""
        if not jobs:
            return None
        first, seconds = jobs[0], list[float | None]()
        for job in jobs:
            seconds.append(self._seconds(job, opened, job is first))
            opened = job.selection or opened
        title = first.selection.document.title if first.selection else ""
        doing = "pause" if first.fate is Fate.PAUSE else "prefill" if first.opening else first.kind
        return Ahead(doing, title, len(jobs) - 1, _total(*seconds))

    def pages_read(self, job: Job, reading: Job) -> Ranges:
        """Return the pages of a question that are read by now, while a reading that can make way goes on."""
        fit = self._fits.get(job.document)
        if fit is None or job.selection is None or reading.progress is None or reading.stage != "read" or reading.fate:
            return ()
        return read_by(reading.progress.tokens_done, fit.page_tokens, job.selection.ranges)

    @property
    def _mean(self) -> float | None:
        return sum(self._answers) / len(self._answers) if self._answers else None

    def _seconds(self, job: Job, opened: Selection | None, is_done: bool) -> float | None:
        """Return the seconds that a job takes, or still takes where it is being done."""
        here: float | None = None
        if is_done and job.fate is Fate.PAUSE:
            return PAUSE_SECONDS
        if is_done and not job.opening:
            return self._writing(job.run) if job.run else None
        if job.selection is None:
            return None
        if not is_done and job.selection.same(opened):
            here = 0.0
        elif job.progress is not None:  # by its own report; behind the tokens it has yet to begin
            here = _total(job.progress.eta_seconds,
                          self.reading(job.selection) if job.progress.stage == "tokenize" else 0.0)
        elif not is_done:
            here = self.reading(job.selection)
        if job.kind == "prefill":
            return here
        return _total(here, None if self._mean is None or job.run is None else self._mean * max(1, len(job.run.lanes)))

    def reading(self, selection: Selection) -> float | None:
        """Return the seconds that bringing these pages into the cache takes; None where that is not known."""
        if selection.text in self._again:
            return self._again[selection.text]
        fit = self._fits.get(selection.key)
        tokens = (sum(sum(fit.page_tokens[first - 1 : last]) for first, last in selection.ranges)
                  if fit and len(fit.page_tokens) == len(selection.document.pages)
                  else selection.chosen.characters / LETTERS_A_TOKEN)
        return self._at_rate(tokens)

    def of_letters(self, count: int) -> float | None:
        """Return the seconds that reading so many characters takes; None where that is not known."""
        return self._at_rate(count / LETTERS_A_TOKEN)

    def _at_rate(self, tokens: float) -> float | None:
        rate = self._rate or self._usual()
        return tokens / rate if rate else None

    def _writing(self, run: Run) -> float | None:
        """Return the seconds left of an answer: by earlier ones, or else until it is as long as it may be."""
        others, mean = max(0, len(run.lanes) - len(run.accumulators)), self._mean or 0.0
        left = mean - (time.time() - run.began_at)
        if left > 0:
            return left + others * mean
        figures = run.accumulator.figures()
        if not figures.tokens_per_second:
            return None
        return (max(0, run.longest - figures.tokens) + others * run.longest) / figures.tokens_per_second


def read_by(tokens: int, page_tokens: Sequence[int], ranges: Ranges) -> Ranges:
    """Return the pages of these ranges that are surely read when so many tokens are; () once all are.

    page_tokens: of every page of the document."""
    left, whole = tokens - FRONT, list[int]()
    for first, last in ranges:
        for page in range(first, last + 1):
            left -= page_tokens[page - 1]
            if left < 0:
                return merge_ranges((page, page) for page in whole)
            whole.append(page)
    return ()


def room_for_pages(fit: DocumentFit, context: int, request: Request) -> int:
    """Return the tokens of pages to answer from where not all fit: what is kept back for the conversation grows with
    it, and leaves pages a quarter of their room. context: the model's, 0 where that is not known."""
    longest = min(request.sampling.max_new_tokens, USUAL_ANSWER, context // 4)
    said = _said(request, LETTERS_A_TOKEN / 2)  # other languages have fewer letters a token
    left = context - FRONT - said - longest if context else fit.max_tokens
    return min(fit.max_tokens, max(left, fit.max_tokens // 4)) - SLACK


def fit_of(fit: DocumentFit | None, ranges: Ranges) -> DocumentFit | None:
    """Return how pages of a document fit, from how all do."""
    if fit is None:
        return None
    tokens = tuple(fit.page_tokens[page - 1] for first, last in ranges for page in range(first, last + 1))
    return dataclasses.replace(fit, tokens=sum(tokens), page_tokens=tokens)


def outgrown(fit: DocumentFit, context: int, request: Request) -> bool:
    """Return whether a conversation has grown until pages that fit leave no room for a short answer. context: the
    model's, 0 where that is not known."""
    needed = fit.tokens + FRONT + _said(request, LETTERS_A_TOKEN) + SHORT_ANSWER
    return bool(context and request.history) and needed > context


def _said(request: Request, letters_a_token: float) -> int:
    """Return about how many tokens a conversation, its instructions and the question take."""
    letters = len(request.system) + len(request.question) + sum(
        len(turn.question) + len("" if turn.answer_token_ids else turn.answer) for turn in request.history)
    return round(sum(FRAME + len(turn.answer_token_ids) for turn in request.history) + letters / letters_a_token)


def _total(*seconds: float | None) -> float | None:
    known = [each for each in seconds if each is not None]
    return sum(known) if len(known) == len(seconds) else None
