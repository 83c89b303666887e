"""Hard-wrapped lines -> one line per paragraph, a blank line between; headings, lists, verse, tables keep their lines.

Works on text alone. A line is taken as wrapped when the next word would not have fitted into the usual line width."""

from __future__ import annotations

import re
from collections.abc import Sequence

_FULL = 0.8  # proportional type: a full line may have that share of the usual characters ...
_FULL_SENTENCE = 0.95  # ... and, where it ends a sentence and the next begins one, this share
_NARROWEST = 28  # no paragraph is set narrower: below it, lines are a list or a table
_ITEM = re.compile(r"(?:[•◦▪‣●○*·–—-]|\(?(?:\d{1,3}|[a-zA-Z]|[ivx]{1,5})[.)])\s")
_END = re.compile(r"[.!?:;][\"'”’)\]]*\Z")
_HYPHEN = re.compile(r"[^\W\d_]-\Z")


def usual_width(lines: Sequence[str]) -> int:
    """Characters of a full line: the 80th percentile of the lines longer than a heading word."""
    lengths = sorted(len(line) for line in lines if len(line) > 15)
    return lengths[int(len(lengths) * 0.8)] if lengths else 0


def reflow(lines: Sequence[str], document_width: int = 0) -> str:
    """The text of one page. document_width stands in where the page has too few lines to tell its own."""
    own = [line for line in lines if line.strip()]
    width = usual_width(own) if len(own) >= 8 else max(document_width, usual_width(own))
    found: list[list[str]] = []  # of each paragraph its pieces: a text grown line by line takes quadratic time
    wrapped: list[bool] = []  # was this paragraph joined from several lines?
    blank_before: list[bool] = []
    blank = True
    last = ""
    for line in lines:
        line = line.strip()
        if not line:
            blank = True
            continue
        if found and not blank and _continues(last, line, width):
            _join(found[-1], line)
            wrapped[-1] = True
        else:
            found.append([line])
            wrapped.append(False)
            blank_before.append(blank)
        blank, last = False, line
    text = []
    paragraphs = ["".join(pieces) for pieces in found]
    for at, paragraph in enumerate(paragraphs):
        if at:
            said = _END.search(paragraphs[at - 1]) is not None and paragraph[0] in "\"“‘'"
            apart = blank_before[at] or wrapped[at] or wrapped[at - 1] or said
            text.append("\n\n" if apart else "\n")
        text.append(paragraph)
    return "".join(text)


def _continues(last: str, line: str, width: int) -> bool:
    """Whether a paragraph whose last line is ``last`` goes on with ``line``."""
    if width < _NARROWEST or _ITEM.match(line):
        return False
    if _HYPHEN.search(last) and line[0].islower():
        return True
    share = _FULL_SENTENCE if _END.search(last) and not line[0].islower() else _FULL
    if len(last) + 1 + len(line.split(None, 1)[0]) > share * width:
        return True
    return line[0].islower() and not _END.search(last) and len(last) > width // 2


def _join(pieces: list[str], line: str) -> None:
    end = "".join(pieces[-3:])  # two characters or more
    if _HYPHEN.search(end) and line[0].islower():
        pieces[-1] = pieces[-1][:-1]
    elif not end.endswith(("—", "--")):
        pieces.append(" ")
    pieces.append(line)
