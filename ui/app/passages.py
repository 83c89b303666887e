"""Passages that answer a question, found beside whatever the engine does, and before it has a model.

Each question is searched for in a thread of its own, as its first order is shown while the final one is made.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Protocol

from triforce_core import Document, Passages, Script, TriForceError, Turn, merge_ranges, metrics

from .jobs import UNEXPECTED, Selection
from .library import Ranges
from .runs import Run

NOT_AMONG_THEM = "The passages stand on pages that the model has not read yet, so none is spelled"
NOT_AMONG_THEM_REMEDY = "Ask again when all is read."

log = logging.getLogger(__name__)


class Evidence(Protocol):
    """The verbs that the page needs of ``triforce_core.EvidenceClient``."""

    def index(self, document: Document) -> None: ...
    def forget(self, documents: Collection[str]) -> None: ...
    def find(self, document: Document, question: str, before: str = "", said: str = "") -> Iterator[Passages]: ...


class PassageSearch:
    """Finds the passages of runs. came: called when a run has passages, or will have none."""

    def __init__(self, evidence: Evidence, came: Callable[[Run], None]) -> None:
        self._evidence, self._came = evidence, came

    def index(self, selection: Selection) -> None:
        """Have the pages ready to be searched."""
        try:
            self._evidence.index(selection.chosen)
        except Exception:
            log.exception("the evidence process cannot be started")

    def forget(self, documents: Collection[str]) -> None:
        """Delete what is kept of documents, or choices of their pages, by ``Document.id``."""
        self._evidence.forget(documents)

    def begin(self, run: Run, selection: Selection, history: Sequence[Turn]) -> None:
        """Search for a run's question; of other pages, if that was done. history: the exchanges before it."""
        if not selection.same(run.searching):
            run.searching = selection
            run.searched.clear()
            last = history[-1] if history else Turn("", ())
            threading.Thread(target=self._search, args=(run, selection, last.question, last.answer), daemon=True,
                             name="passages").start()

    def find(self, document: Document, question: str) -> Passages:
        """Return the final passages of a question that nobody asked. Raises TriForceError."""
        *_, final = self._evidence.find(document, question)
        return final

    def _search(self, run: Run, selection: Selection, before: str, said: str) -> None:
        problem = ""
        try:
            for found in self._evidence.find(selection.chosen, run.question, before, said):
                if run.searching is not selection:
                    return
                run.passages = metrics.passages_in_file(found, selection.ranges)
                if not found.final:
                    self._came(run)
        except Exception as error:
            problem = str(error) if isinstance(error, TriForceError) else UNEXPECTED.format(kind=type(error).__name__)
            log.exception("no passages were found")
        if run.searching is selection:
            run.search_problem = problem
            run.searched.set()
            self._came(run)


def fitting_pages(found: Passages | None, pages: Sequence[int], page_tokens: Sequence[int], most: int) -> Ranges:
    """Return the pages to answer from where not all fit: those on which the passages stand, the best first, then those
    beside them, as many as fit whole; without passages as many from the start as fit.

    pages: those of the file that were to be read, with page_tokens [pages]; most: tokens that fit."""
    index = {page: at for at, page in enumerate(pages)}
    there = [index[place.page] for one in (found.passages if found else ()) for place in one.places
             if place.page in index]
    wished = [*there, *(at + by for at in there for by in (1, -1))] or range(len(pages))
    chosen, left = set[int](), most
    for at in dict.fromkeys(wished):
        if 0 <= at < len(pages) and page_tokens[at] <= left:
            chosen.add(at)
            left -= page_tokens[at]
        elif not there:
            break
    return merge_ranges((pages[at], pages[at]) for at in sorted(chosen))


def script(run: Run, ranges: Ranges) -> Script:
    """Return what a model that only quotes says of a run's passages. ranges: the pages that it has read. Raises
    TriForceError where it can say nothing of them."""
    found = run.passages
    if found is None:
        raise TriForceError(run.search_problem)
    read = metrics.passages_opened(found, ranges)
    if found.passages and not read.passages:
        raise TriForceError(NOT_AMONG_THEM, remedy=NOT_AMONG_THEM_REMEDY)
    return read.script
