"""Find the lines of a text on which the chapters of its outline begin, not those of a list of contents."""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Sequence

from ..documents.chapters import solid
from ..documents.document import Chapter

_LONGEST = 400  # characters of a line with a title
_BROKEN = 20  # letters and digits of a title's first line
_MORE = 16  # letters and digits that may stand behind a title on its line
_BEFORE = re.compile(r"(?:[a-z]{4,9})?(?:\d+|[ivxlcdm]{1,7}|[a-z]\d*)?")  # "Chapter XVII"
_NUMBER = re.compile(r"\A\d+")


def title_lines(chapters: Sequence[Chapter], lines: Sequence[str], pages: Sequence[int]) -> dict[int, int]:
    """Return the line with each chapter's title, by the chapter's number; one whose title stands nowhere is left out.

    pages: of each line, from 0, in order. A title is looked for behind the title before, from its page to that on which
    the next chapters begin; then, as a list of contents may have given the page, to the end of the largest around it.
    Lines that are followed by the next title without a text between are a list."""
    texts = [solid(line) if len(line) < _LONGEST else "" for line in lines]
    candidates: list[list[int]] = []
    near: list[int] = []  # of each chapter the line on which what is near its page ends
    for number, chapter in enumerate(chapters):
        wanted, later = solid(chapter.title), chapters[number + 1 :]
        start = bisect_left(pages, chapter.first - 1)
        page = next((other.first for other in later if other.first > chapter.first), len(pages) + 1)
        largest = next((other.first for other in later if other.level == 1 < chapter.level), page)
        ends = bisect_right(pages, page - 1)
        exact = [at for at in range(start, max(ends, bisect_right(pages, largest - 1))) if _same(texts[at], wanted)]
        near.append(ends)
        candidates.append(exact or [at for at in range(start, ends) if _like(texts[at], wanted)])
    listed = _listed(chapters, candidates)
    found: dict[int, int] = {}
    before = -1
    for number, places in enumerate(candidates):
        behind = [at for at in places if at > before]
        there = [at for at in behind if at < near[number]]
        free = [at for at in there or behind if (number, at) not in listed]
        free = free or [at for at in behind if (number, at) not in listed]
        if free or behind:
            before = found[number] = free[0] if free else (there or behind)[-1]
    return found


def _listed(chapters: Sequence[Chapter], candidates: Sequence[Sequence[int]]) -> set[tuple[int, int]]:
    """Return (chapter, line) where the next line is a title of the same level or a larger one, or listed itself; and
    where the line before is listed, for the last of a list."""
    at_line: dict[int, list[int]] = defaultdict(list)
    for number, places in enumerate(candidates):
        for at in places:
            at_line[at].append(number)
    listed: set[tuple[int, int]] = set()
    for at in sorted(at_line, reverse=True):
        for number in at_line[at]:
            if any(later > number and (chapters[later].level <= chapters[number].level or (later, at + 1) in listed)
                   for later in at_line.get(at + 1, ())):
                listed.add((number, at))
    for at in sorted(at_line):
        if any((number, at - 1) in listed for number in at_line.get(at - 1, ())):
            listed.update((number, at) for number in at_line[at])
    return listed


def _same(found: str, wanted: str) -> bool:
    """Return whether a line is a title; one of them may lack the number."""
    bare, title = _NUMBER.sub("", found), _NUMBER.sub("", wanted)
    return found == wanted or (bare == title != "" and (bare == found or title == wanted))


def _like(found: str, wanted: str) -> bool:
    """Return whether a line is a title or most of it: its number may be written another way, a long one be broken."""
    bare = _NUMBER.sub("", found)
    before, inside, behind = found.partition(wanted) if wanted else ("", "", "")
    return bool((inside and len(behind) < _MORE and _BEFORE.fullmatch(before))
                or (found in wanted and 2 * len(found) > len(wanted))
                or (len(bare) >= _BROKEN and wanted.startswith(bare)))
