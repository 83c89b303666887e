"""Hard-wrapped lines -> one line per paragraph, a blank line between; headings, lists, verse, tables keep their lines.

Works on text alone. A line is taken as wrapped when the next word would not have fitted into the usual line width."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

_FULL = 0.8  # proportional type: a full line may have that share of the usual characters ...
_FULL_SENTENCE = 0.95  # ... and, where it ends a sentence and the next begins one, this share
NARROWEST = 28  # no paragraph is set narrower: below it, lines are a list or a table
ITEM = re.compile(r"(?:[•◦▪‣●○*+·–—-]|o(?=  )|\(?(?:\d{1,3}|[a-zA-Z]|[ivx]{1,5})[.)])\s")
_END = re.compile(r"[.!?:;][\"'”’)\]]*\Z")
_HYPHEN = re.compile(r"[^\W\d_]-\Z")
_DIVIDED = re.compile(r"(?<![^\W\d_])([^\W\d_]+)-\n[ \t]*([^\W\d_]+)")
_WORD = re.compile(r"[^\W\d_]+(?:-[^\W\d_]+)*")
_FIRST = re.compile(r"[^\W\d_]+")
_LAST = re.compile(r"(?<![^\W\d_])[^\W\d_]++-\Z")
_LONGEST_WORD = 80
_SUSPENDED = frozenset("and or to nor und oder bis et ou y o".split())  # "first- and second-class"


@dataclass(frozen=True)
class Vocabulary:
    """counts: of each word of a text, in lower case, words with hyphens as a whole. divides: its line ends divide
    words, and not only at hyphens that stand there anyway."""

    counts: Mapping[str, int]
    divides: bool


def usual_width(lines: Sequence[str]) -> int:
    """Characters of a full line: the 80th percentile of the lines longer than a heading word."""
    lengths = sorted(len(line) for line in lines if len(line) > 15)
    return lengths[int(len(lengths) * 0.8)] if lengths else 0


def vocabulary(lines: Iterable[str], divides: bool = False) -> Vocabulary:
    """divides: what is taken to be so where the text does not show it."""
    text = "\n".join(line.rstrip() for line in lines).lower()
    if "-\n" not in text:
        return Vocabulary({}, divides)
    counts = Counter(_WORD.findall(_DIVIDED.sub(" ", text)))  # the halves of a divided word are no words
    pairs = _DIVIDED.findall(text)
    joined = sum(first + second in counts for first, second in pairs)
    hyphenated = sum(f"{first}-{second}" in counts for first, second in pairs)
    return Vocabulary(counts, joined > hyphenated if joined != hyphenated else divides)


def reflow(lines: Sequence[str], document_width: int = 0, words: Vocabulary | None = None) -> str:
    """The text of one page. document_width stands in where the page has too few lines to tell its own; words: of
    the document, by default the page's."""
    own = [line for line in lines if line.strip()]
    width = usual_width(own) if len(own) >= 8 else max(document_width, usual_width(own))
    words = vocabulary(lines, divides=True) if words is None else words
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
        if found and not blank and continues(last, line, width):
            join(found[-1], line, words)
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


def continues(last: str, line: str, width: int) -> bool:
    """Whether a paragraph whose last line is ``last`` goes on with ``line``."""
    return width >= NARROWEST and ITEM.match(line) is None and fills(last, line, width)


def fills(last: str, line: str, width: int) -> bool:
    """Whether ``last`` ends where it does because the first word of ``line`` had no room there."""
    if _HYPHEN.search(last) and line[0].islower():
        return True
    share = _FULL_SENTENCE if _END.search(last) and not line[0].islower() else _FULL
    if len(last) + 1 + len(line.split(None, 1)[0]) > share * width:
        return True
    return line[0].islower() and not _END.search(last) and len(last) > width // 2


def join(pieces: list[str], line: str, words: Vocabulary) -> None:
    """Add a line to a paragraph. words: see ``vocabulary``."""
    end = "".join(pieces[-3:])[-_LONGEST_WORD:]
    if not _HYPHEN.search(end):
        if not end.endswith(("—", "--")):
            pieces.append(" ")
    elif line[0].islower() and _FIRST.match(line):
        second = _FIRST.match(line)[0]  # type: ignore[index]  # it matches
        if second in _SUSPENDED:
            pieces.append(" ")
        elif not _keeps_hyphen(_LAST.search(end)[0][:-1].lower(), second, words):  # type: ignore[index]
            pieces[-1] = pieces[-1][:-1]
    elif not line[0].isupper():
        pieces.append(" ")
    pieces.append(line)


def _keeps_hyphen(first: str, second: str, words: Vocabulary) -> bool:
    """Whether "first-" and "second" are two words with a hyphen, as the document has them elsewhere. Where it has
    neither spelling: whether both halves are words of their own, or, in a text that divides no words, one of them."""
    counts = words.counts
    whole, hyphenated = counts.get(first + second, 0), counts.get(f"{first}-{second}", 0)
    if whole or hyphenated:
        return hyphenated >= whole
    known = (first in counts) + (second in counts)
    return known == 2 or (known == 1 and not words.divides)
