"""Which row of a table a question asks for that names a table: "According to table 2, how many ships has Hull?".

The words of such a question are spread over a row, the first row and what stands above the table, and a row is no
sentence that an encoder was taught to read. So rows are found by counting words, each by how rare it is.
"""

from __future__ import annotations

import re

import numpy as np

from .line_roles import Role
from .question_words import WORD
from .sentence_index import SentenceIndex

_NAMED = re.compile(r"\b(?:tables?|appendix|rows?|columns?)\b(?! of contents)(?: (?:\d+|[A-Z])\b)?", re.IGNORECASE)
_ABOVE = 0.5  # what a word counts that stands above the row instead of in it
_LEAST = 0.4  # share of the question's words, by how rare they are


def asked_row(index: SentenceIndex, question: str) -> tuple[int, int] | None:
    """The first and the last sentence of the row; None where no table is named, or no row fits."""
    lines = np.flatnonzero(index.line_roles == Role.ROW)
    asked = _NAMED.sub(" ", question)
    if asked == question or not len(lines):
        return None
    terms = index.terms(asked)
    held, _ = index.rarity_of(terms)
    weights = index.inverse(held)
    alike, _ = index.matches(terms)
    here = np.zeros((len(terms), len(index.line_roles)), bool)  # whether each line holds each term
    np.logical_or.at(here.T, index.line_of, (alike > 0.999).T)
    best, found = (_LEAST * float(weights.sum()), 0), -1
    said = set(index.stems(WORD.findall(asked.lower())))
    for line in lines.tolist():
        first = _first_row(index, line)
        if not here[:, line].any() or (line == first and line + 1 in lines):  # the first row only names the columns
            continue
        heading = int(index.heading_of[index.first_sentence(line)])
        above = here[:, [first, max(first - 1, 0), int(index.line_of[max(heading, 0)])]].any(1) & ~here[:, line]
        start, end = index.sentences_of(line)
        text = " ".join(index.sentences[start : end + 1])
        small = len(said.intersection(index.stems(WORD.findall(text.lower()))))  # words like "type" and "total" too
        score = float(weights @ here[:, line] + _ABOVE * (weights @ above)), small
        if score > best:
            best, found = score, line
    return index.sentences_of(found) if found >= 0 else None


def _first_row(index: SentenceIndex, line: int) -> int:
    """Of the table that a row stands in."""
    while line > 0 and index.line_roles[line - 1] == Role.ROW:
        line -= 1
    return line

