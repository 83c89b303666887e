"""What stands before a job that waits, and how long that will take, by what earlier jobs took."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from triforce_core import DocumentFit, DocumentOpened, merge_ranges

from .jobs import Fate, Job, Selection
from .library import Ranges
from .runs import Run

LETTERS_A_TOKEN = 4.0  # where nobody counted the tokens
PAUSE = 1.0  # seconds that a reading takes to make way
FRONT = 200  # tokens, at most, that stand before the first page
LAST = 8  # answers of which the mean is taken


@dataclass(frozen=True)
class Ahead:
    """What a job waits for. doing: what the engine is at, with which document (its title); more: jobs between that and
    this one. seconds: until all of it is done, None where that is not known."""

    doing: Literal["engine", "prefill", "answer", "race", "trial", "pause"]  # nobody waits for a trial
    title: str
    more: int
    seconds: float | None


class Estimates:
    """How long jobs take. Written by the engine's thread, asked by any."""

    def __init__(self, fits: Mapping[str, DocumentFit]) -> None:
        """fits: what was counted of each document."""
        self._fits = fits
        self._rate = 0.0  # tokens per second of the last prefill
        self._again: dict[str, float] = {}  # text -> seconds of bringing it back
        self._answers: deque[float] = deque(maxlen=LAST)

    def opened(self, selection: Selection, opened: DocumentOpened) -> None:
        if opened.restored:
            self._again[selection.text] = opened.seconds
        elif opened.seconds:
            self._rate = (opened.tokens - opened.reused) / opened.seconds

    def answered(self, seconds: float) -> None:
        """Without what came before: waiting, and opening its document."""
        self._answers.append(seconds)

    def forget(self) -> None:
        """Another engine takes its own time."""
        self._rate = 0.0
        self._again.clear()
        self._answers.clear()

    def ahead(self, jobs: Sequence[Job], opened: Selection | None) -> Ahead | None:
        """jobs: before the one that waits, the first of them being done. opened: what is in the cache now."""
        if not jobs:
            return None
        first, total = jobs[0], 0.0
        known = True
        for job in jobs:
            left = self._left(job, opened) if job is first else self._whole(job, opened)
            known, total = known and left is not None, total + (left or 0.0)
            opened = job.selection or opened
        title = first.selection.document.title if first.selection else ""
        doing = "pause" if first.fate is Fate.PAUSE else "prefill" if first.opening else first.kind
        return Ahead(doing, title, len(jobs) - 1, total if known else None)

    def pages_read(self, job: Job, reading: Job) -> Ranges:
        """The pages of a question that are read by now, while a reading that can make way goes on."""
        fit = self._fits.get(job.document)
        if fit is None or job.selection is None or reading.progress is None or reading.stage != "read" or reading.fate:
            return ()
        return read_by(reading.progress.tokens_done, fit.page_tokens, job.selection.ranges)

    def _left(self, job: Job, opened: Selection | None) -> float | None:
        """Of the job that is being done."""
        if job.fate is Fate.PAUSE:
            return PAUSE
        if job.opening:
            return _sum(self._opening(job), self._answer(job))
        return self._writing(job.run) if job.run else None

    def _whole(self, job: Job, opened: Selection | None) -> float | None:
        if job.selection is None:
            return None
        begun = self._opening(job)  # of a reading that was paused
        here = 0.0 if job.selection.same(opened) else begun if begun is not None else self._prefill(job.selection)
        return _sum(here, self._answer(job))

    def _opening(self, job: Job) -> float | None:
        """What is left of a reading, by what it tells itself; behind the tokens it has yet to begin."""
        progress = job.progress
        if progress is None or job.selection is None:
            return None
        return _sum(progress.eta_seconds, self._prefill(job.selection) if progress.stage == "tokenize" else 0.0)

    def _answer(self, job: Job) -> float | None:
        if job.kind == "prefill":
            return 0.0
        mean = sum(self._answers) / len(self._answers) if self._answers else None
        return None if mean is None or job.run is None else mean * max(1, len(job.run.lanes))

    def _prefill(self, selection: Selection) -> float | None:
        if selection.text in self._again:
            return self._again[selection.text]
        fit = self._fits.get(selection.key)
        tokens = (sum(sum(fit.page_tokens[first - 1 : last]) for first, last in selection.ranges)
                  if fit and len(fit.page_tokens) == len(selection.document.pages)
                  else selection.chosen.characters / LETTERS_A_TOKEN)
        return tokens / self._rate if self._rate else None

    def _writing(self, run: Run) -> float | None:
        """Of an answer that is being written: by what earlier ones took, or else until it is as long as it may be."""
        others = max(0, len(run.lanes) - len(run.accumulators))
        mean = sum(self._answers) / len(self._answers) if self._answers else 0.0
        left = mean - (time.time() - run.began_at)
        if left > 0:
            return left + others * mean
        figures = run.accumulator.figures()
        if not figures.tokens_per_second:
            return None
        return (max(0, run.longest - figures.tokens) + others * run.longest) / figures.tokens_per_second


def read_by(tokens: int, page_tokens: Sequence[int], ranges: Ranges) -> Ranges:
    """The pages of these ranges that are surely read when so many tokens are, () for all of them: then there is nothing
    left to wait for. page_tokens: of every page of the document."""
    left, whole = tokens - FRONT, list[int]()
    for first, last in ranges:
        for page in range(first, last + 1):
            left -= page_tokens[page - 1]
            if left < 0:
                return merge_ranges((page, page) for page in whole)
            whole.append(page)
    return ()


def _sum(one: float | None, other: float | None) -> float | None:
    return None if one is None or other is None else one + other
