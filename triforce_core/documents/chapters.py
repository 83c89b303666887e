"""Turn headings into chapters, and choices such as "1-12, 40" or "3, 5-7" of the chapters into pages. Pure.

A file's own headings are not trusted: their number, depth, titles and places are bounded here.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from ..errors import PageRangeError
from .cleanup import one_line
from .document import MOST_CHAPTERS, MOST_LEVELS, Chapter, Document
from .readers.source import Heading

_LONGEST_TITLE = 120
# What may stand before a title that still opens its page: "Chapter XVII", not the last words of the chapter before.
_BEFORE = re.compile(r"(?:chapter|part|section|book|appendix|kapitel|teil|anhang)?(?:\d*|[ivxlcdm]*)")
_RANGE = re.compile(r"\s*(\d{1,7})\s*(?:[-–]\s*(\d{1,7})\s*)?")
_NUMBERS = re.compile(r"\s*(\d{1,4}(?:\.\d{1,4})*)\s*(?:[-–]\s*(\d{1,4}(?:\.\d{1,4})*)\s*)?")

Ranges = tuple[tuple[int, int], ...]  # pages first..last, counted from 1; in order, apart


def chapters_of(headings: Sequence[Heading], texts: Sequence[str]) -> list[Chapter]:
    """Return where each chapter begins and ends. texts: of the pages.

    A chapter whose title does not open its page shares that page with the chapter before. Deeper levels are left off
    until the list is short enough to choose from; a list of one entry, or one that is too long at its first level, is
    none."""
    pages = len(texts)
    named = [(one_line(heading.title, _LONGEST_TITLE), heading) for heading in headings if 0 <= heading.page < pages]
    found = sorted(((title, heading) for title, heading in named if title), key=lambda item: item[1].page)
    levels = {level: number for number, level in enumerate(sorted({heading.level for _, heading in found}), 1)}
    known = [(title, levels[heading.level], heading) for title, heading in found]
    if len(known) > 1 and known[0][1] == 1 and all(level > 1 for _, level, _ in known[1:]):
        known = [(title, level - 1, heading) for title, level, heading in known[1:]]  # the first is the book's title
    depth = MOST_LEVELS
    while depth and sum(level <= depth for _, level, _ in known) > MOST_CHAPTERS:
        depth -= 1
    kept = [item for item in known if item[1] <= depth]
    if len(kept) < 2:
        return []
    chapters = []
    for number, (title, level, heading) in enumerate(kept):
        after = next(((words, later.page) for words, lower, later in kept[number + 1 :] if lower <= level), None)
        last = pages - 1 if after is None else after[1] - _opens(texts[after[1]], after[0])
        chapters.append(Chapter(title, level, heading.page + 1, max(heading.page, last) + 1))
    return chapters


def _opens(text: str, title: str) -> bool:
    """Say whether a page begins with a title, whatever its spacing; the title's number may be written another way."""
    opening, words = solid(text[: 4 * len(title) + 100]), solid(title)
    for part in (words, words.lstrip("0123456789")):
        before, found, _ = opening.partition(part) if part else ("", "", "")
        if found and _BEFORE.fullmatch(before):
            return True
    return False


def solid(text: str) -> str:
    """Return its letters and digits, in lower case."""
    return "".join(filter(str.isalnum, text)).lower()


def merge_ranges(ranges: Iterable[tuple[int, int]]) -> Ranges:
    """Return the same pages, in order and each once."""
    kept: list[tuple[int, int]] = []
    for first, last in sorted(ranges):
        if kept and first <= kept[-1][1] + 1:
            kept[-1] = (kept[-1][0], max(kept[-1][1], last))
        else:
            kept.append((first, last))
    return tuple(kept)


def page_ranges(text: str, pages: int) -> Ranges:
    """Return the pages of "1-12, 40" in a document with so many. Raises PageRangeError."""
    found = []
    for part in text.split(","):
        match = _RANGE.fullmatch(part)
        first, last = (int(match[1]), int(match[2] or match[1])) if match else (0, 0)
        if not 1 <= first <= last <= pages:
            raise PageRangeError(f"Pages {text.strip()[:80]!r} were asked for",
                                 allowed=f"numbers and ranges from 1 to {pages}, such as 1-3, 7")
        found.append((first, last))
    return merge_ranges(found)


def ranges_text(ranges: Ranges) -> str:
    """Return ranges as ``page_ranges`` reads them."""
    return ", ".join(f"{first}-{last}" if first < last else f"{first}" for first, last in ranges)


def numbers(chapters: Sequence[Chapter]) -> list[str]:
    """Return every chapter's number by its place in the outline: "3", "3.1"."""
    counts, found = [0] * MOST_LEVELS, []
    for chapter in chapters:
        counts[chapter.level - 1] += 1
        counts[chapter.level :] = [0] * (MOST_LEVELS - chapter.level)
        found.append(".".join(map(str, counts[: chapter.level])))
    return found


def chapter_ranges(text: str, document: Document) -> Ranges:
    """Return the pages of "3, 5-7", of "3.1", or of the one chapter whose title holds ``text``. Raises
    PageRangeError."""
    by_number = dict(zip(numbers(document.chapters), document.chapters, strict=True))
    listed = list(by_number)
    wanted = " ".join(text.lower().split())
    titled = [chapter for chapter in document.chapters if wanted and wanted in chapter.title.lower()]
    exact = [chapter for chapter in titled if chapter.title.lower() == wanted]
    found: list[Chapter] = []
    for part in text.split(","):
        match = _NUMBERS.fullmatch(part)
        ends = [listed.index(number or match[1]) if (number or match[1]) in by_number else -1
                for number in match.groups()] if match else [-1]
        if not 0 <= ends[0] <= ends[-1]:
            found = exact or titled if len(exact or titled) == 1 else []
            break
        found += document.chapters[ends[0] : ends[-1] + 1]
    if not found:
        raise PageRangeError(
            f"Chapters {text[:80]!r} were asked for", allowed=_listed(by_number),
            remedy="" if by_number else "Choose pages instead.")
    return merge_ranges((chapter.first, chapter.last) for chapter in found)


def _listed(by_number: dict[str, Chapter]) -> str:
    if not by_number:
        return "none: the document has no outline"
    return "; ".join(f"{number} {chapter.title} (pages {chapter.first}-{chapter.last})"
                     for number, chapter in by_number.items() if len(by_number) <= 60 or chapter.level == 1)
