"""Running headers, footers and page numbers: lines that stand at the same edge of most pages.

Only what repeats is taken: at least three pages, on more than 60 % of them (or of the left or right pages, which often
differ). A line that stands in the middle of a page is never touched."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

SHARE = 0.6
_FEWEST = 3
_ROUNDS = 3  # a header may have several lines
_NUMBER = re.compile(r"\d+")
_ROMAN = re.compile(r"[ivxlc]{1,7}", re.IGNORECASE)
_LONGEST = 120


def strip_running_lines(pages: Sequence[Sequence[str]]) -> list[list[str]]:
    """Pages as lists of lines, without their running lines. Empty lines at the edges go with them."""
    result = [_trimmed(page) for page in pages]
    for edge in (0, -1):
        for _ in range(_ROUNDS):
            if not _strip_once(result, edge):
                break
    return result


def _strip_once(pages: list[list[str]], edge: int) -> bool:
    """Take the outermost line away where its pattern repeats; says whether any was."""
    filled = [number for number, page in enumerate(pages) if page]
    keys = {number: _pattern(pages[number][edge]) for number in filled}
    repeated: set[tuple[str, int]] = set()
    for side in (0, 1):  # left and right pages
        here = [number for number in filled if number % 2 == side]
        for group, size in ((filled, len(filled)), (here, len(here))):
            if size < _FEWEST:
                continue
            for key, count in Counter(keys[number] for number in group).items():
                if key and count > SHARE * size and count >= _FEWEST:
                    repeated.add((key, side))
    found = False
    for number in filled:
        if (keys[number], number % 2) in repeated and len(pages[number]) > 1:
            line = 0 if edge == 0 else len(pages[number]) - 1
            pages[number] = _trimmed(pages[number][:line] + pages[number][line + 1 :])
            found = True
    return found


def _pattern(line: str) -> str:
    """What two running lines have in common: their words, any number counting as the same."""
    line = line.strip().casefold()
    if len(line) > _LONGEST:
        return ""
    bare = line.strip("-–—|[]() .")
    return "#" if _ROMAN.fullmatch(bare) else _NUMBER.sub("#", bare)


def _trimmed(lines: Sequence[str]) -> list[str]:
    """Without empty lines at either end."""
    first, last = 0, len(lines)
    while first < last and not lines[first].strip():
        first += 1
    while last > first and not lines[last - 1].strip():
        last -= 1
    return list(lines[first:last])
