"""Recognise the pages of a file that are pictures, several at once, and hand over the first ones meanwhile."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ..cleanup import FEW_LETTERS, readable
from .pdf_pages import page_texts
from .source import Heading, Raw, RawPage, Source, Unread

if TYPE_CHECKING:
    from concurrent.futures import Future

    from ..ocr import Recognised
    from .pdf_spans import Line

_BETTER = 1.25  # of the readable letters of a garbled layer: what has more takes its place
_FIRST_PART = 4  # pages; the next part has twice as many, so that all parts cost no more than the whole


class Scans:
    """The pages of one file that wait for their words. unread: counts what is left out of their text."""

    def __init__(self, source: Source, unread: Unread) -> None:
        self._source, self._unread = source, unread
        self._awaited: deque[tuple[RawPage, Future[Recognised]]] = deque()
        self._next_part = _FIRST_PART

    def add(self, page: RawPage, picture: Any, points: float) -> None:
        """Have a page recognised whose picture is so many points wide; wait while as many are that can be at once."""
        assert self._source.recognisers is not None
        self._awaited.append((page, self._source.recognisers.page(picture, points)))

    def hand_over(self, pages: Sequence[RawPage], raw: Callable[[list[RawPage], Counter[str]], Raw]) -> None:
        """Give the first pages away once enough of them are whole. raw: makes of them what a reader returns."""
        self._settle()
        waiting = self._awaited[0][0] if self._awaited else None
        whole = next((at for at, page in enumerate(pages) if page is waiting), len(pages))
        if self._source.recognisers is not None and whole >= self._next_part:
            self._next_part = 2 * whole
            first = [replace(page, lines=list(map(copy, page.lines))) for page in pages[:whole]]
            self._source.hand_over(raw(first, Counter()))  # the whole counts its running lines

    def finish(self) -> None:
        """Wait for all pages. Raises MemoryError."""
        while self._awaited:
            self._awaited[0][1].exception()
            self._settle()

    def _settle(self) -> None:
        while self._awaited and self._awaited[0][1].done():
            page, reading = self._awaited.popleft()
            if (problem := reading.exception()) is not None:
                if isinstance(problem, MemoryError):
                    raise problem
                page.failed, page.kept, page.garbled = not page.garbled, page.garbled, False  # others may be read
                continue
            found = reading.result()
            self._unread.unclear += found.unclear
            self._unread.picture_pages += page.picture and not found.words
            page.kept = page.garbled and _readable(found.lines) < _BETTER * _readable(page.lines) + FEW_LETTERS
            if found.words and not page.kept:
                page.lines, page.words = found.lines, found.words
            page.picture = page.garbled = False


def _readable(lines: Sequence[Line]) -> int:
    return readable("\n".join(line.text for line in lines))


def laid_out(pages: Sequence[RawPage], running: Counter[str]) -> list[Heading]:
    """Make the texts of pages from their lines, and return their headings. running: counts the lines left out."""
    texts, headings = page_texts([page.lines for page in pages], running)
    for page, text in zip(pages, texts, strict=True):
        page.text = text
    return headings
