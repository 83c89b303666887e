"""Running headers, footers and page numbers: lines that stand at the same edge of most pages.

Only what repeats is taken: on at least three pages and on more than 60 % of them (or of the left or right pages, which
often differ), word for word or with a number that counts up with the pages. The middle of a page is never touched."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence

SHARE = 0.6
_FEWEST = 3
_ROUNDS = 3  # a header may have several lines
Key = tuple[str, int | None]
_BARE = "#"
_NUMBER = re.compile(r"[0-9]{1,6}")
_ROMAN = re.compile(r"[ivxlc]{1,7}", re.IGNORECASE)
_LONGEST = 120


def strip_running_lines(pages: Sequence[Sequence[str]]) -> list[list[str]]:
    """Pages as lists of lines, without their running lines. Empty lines at the edges go with them."""
    return [list(page[first:end]) for page, (first, end) in zip(pages, between_running_lines(pages), strict=True)]


def between_running_lines(pages: Sequence[Sequence[str]]) -> list[tuple[int, int]]:
    """Return, for each page, the first line that stays and the one behind the last."""
    kept = [_trimmed(page, 0, len(page)) for page in pages]
    for edge in (0, -1):
        for _ in range(_ROUNDS):
            if not _strip_once(pages, kept, edge):
                break
    return kept


def _strip_once(pages: Sequence[Sequence[str]], kept: list[tuple[int, int]], edge: int) -> bool:
    """Take the outermost line away where it repeats; says whether any was."""
    keys = {number: _keys(pages[number][first if edge == 0 else end - 1], number)
            for number, (first, end) in enumerate(kept) if first < end}
    repeated = _repeated(keys)
    numbered = any(key[0] == _BARE and key[1] is not None for key, _ in repeated)
    found = False
    for number, own in keys.items():
        first, end = kept[number]
        running = any((key, number % 2) in repeated and key != (_BARE, None) for key in own)
        if (running or (numbered and (_BARE, None) in own)) and end - first > 1:
            kept[number] = _trimmed(pages[number], first + (edge == 0), end - (edge != 0))
            found = True
    return found


def _repeated(keys: Mapping[int, set[Key]]) -> set[tuple[Key, int]]:
    """Keys that come often enough, on the left (0) or the right (1) pages or on all. keys: by page."""
    repeated: set[tuple[Key, int]] = set()
    for side in (0, 1):
        for group in (list(keys), [number for number in keys if number % 2 == side]):
            counts = Counter(key for number in group for key in keys[number])
            repeated |= {(key, side) for key, count in counts.items()
                         if count >= _FEWEST and count > SHARE * len(group)}
    return repeated


def _keys(line: str, page: int) -> set[Key]:
    """Return what this line may share with its like on other pages: its words, or its words with a number that counts
    pages.

    A bare number also has the key (_BARE, None), so that roman front matter goes where arabic numbers do."""
    line = " ".join(line.split()).casefold()
    if not line or len(line) > _LONGEST:
        return set()
    bare = line.strip("-–—|[]() .")
    if _ROMAN.fullmatch(bare):
        return {(_BARE, None)}
    pattern = _NUMBER.sub(_BARE, bare)
    keys: set[Key] = {(pattern, None)} if pattern == _BARE else {(line, None)}
    numbers = [int(digits) for digits in _NUMBER.findall(bare)]
    return keys | {(pattern, value - page) for value in numbers[:1] + numbers[-1:]}


def _trimmed(lines: Sequence[str], first: int, end: int) -> tuple[int, int]:
    """Without empty lines at either end."""
    while first < end and not lines[first].strip():
        first += 1
    while end > first and not lines[end - 1].strip():
        end -= 1
    return first, end
