"""Where PDFium's lines stand on the page: a wider gap or an indent begins a paragraph, which the text alone hides."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from statistics import median
from typing import Any

_WIDER = 1.3  # a gap of that many usual gaps
_INDENT, _LARGEST_INDENT = 0.5, 6.0  # in line heights
_ITEM = re.compile(r"(?:[•◦▪‣●○·–—*-]|\(?\d{1,3}[.)])\s")
_ENDS = (".", "!", "?", ":", '"', "”", "'", "’", ")")


def with_paragraph_gaps(text: str, text_page: Any) -> str:
    """PDFium's text with a blank line before each line that begins a paragraph by its place."""
    lines = text.split("\r\n")
    if len(lines) < 3 or text_page.count_chars() != len(text):
        return text  # characters and places cannot be matched
    boxes: list[tuple[float, float, float] | None] = []
    at = 0
    for line in lines:
        first = at + len(line) - len(line.lstrip())
        boxes.append(_box(text_page, first) if line.strip() else None)
        at += len(line) + 2
    starts = _paragraph_starts([line.strip() for line in lines], boxes)
    return "\r\n".join("\r\n" + line if number in starts else line for number, line in enumerate(lines))


def _box(text_page: Any, index: int) -> tuple[float, float, float]:
    """Left, bottom and height of a character's cell."""
    left, bottom, _, top = text_page.get_charbox(index, loose=True)
    return left, bottom, top - bottom


def _paragraph_starts(lines: Sequence[str], boxes: Sequence[tuple[float, float, float] | None]) -> set[int]:
    filled = [(number, box) for number, box in enumerate(boxes) if box is not None]
    pairs = list(pairwise(filled))
    gaps = [upper[1] - lower[1] for (_, upper), (_, lower) in pairs if upper[1] > lower[1]]
    if len(gaps) < 2:
        return set()
    usual = median(gaps)
    margin = Counter(round(box[0]) for _, box in filled).most_common(1)[0][0]
    starts = set()
    for at, ((above, upper), (number, lower)) in enumerate(pairs):
        height = max(lower[2], 1.0)
        gap = upper[1] - lower[1]
        indent, before = (lower[0] - margin) / height, (upper[0] - margin) / height
        indented = _INDENT < indent < _LARGEST_INDENT and before < _INDENT / 2 and gap > 0
        below = filled[at + 2][1][0] if at + 2 < len(filled) else margin
        item = _ITEM.match(lines[above]) is not None
        hanging = item or (abs(below - lower[0]) < 1.5 and not lines[above].endswith(_ENDS))
        if gap > _WIDER * max(usual, 1.0) or (indented and not hanging):
            starts.add(number)
    return starts
