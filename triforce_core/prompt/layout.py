"""How a model family wants documents and turns written: the contract, and the marks of a page's tokens."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

import numpy as np

from ..documents.sentences import SentenceRules
from ..sampling.quote_matcher import Mark
from ..tokenizer import Tokenizer


class Layout(ABC):
    """How one model family wants documents and turns written."""

    head: list[int]  # before the first page; belongs to its span
    tail: list[int]  # after the last page; belongs to its span

    @abstractmethod
    def pages(self, labels: Sequence[str], texts: Sequence[str]) -> list[tuple[list[int], np.ndarray]]:
        """Ids and marks of every page, marker first."""

    @abstractmethod
    def instructed_tail(self, text: str) -> list[int]:
        """Ids that stand in ``tail``'s place where a conversation has a system text. It comes behind the document, so
        that one reading of the document serves every text. Raises ConfigError for a model that follows none."""

    @abstractmethod
    def question(self, text: str, first: bool) -> list[int]:
        """Ids from the end of what came before up to where the answer starts."""

    @abstractmethod
    def after_answer(self, answer_ids: Sequence[int]) -> list[int]:
        """Ids that must stand between an answer as it was generated and the next question."""


def mark_page(
    ids: Sequence[int],
    marker: int,
    lines: Sequence[str],
    gaps: Sequence[int],
    rules: SentenceRules,
    tokenizer: Tokenizer,
) -> np.ndarray:
    """Marks of one page's tokens: ``marker`` ids without text, then lines of text. [len(ids)] uint8.

    lines[i] is a line exactly as encoded, gaps[i] the bytes of line break after it. Token borders are found by adding
    up token bytes; a sentence border inside a token is no border. A tokenizer whose pieces do not add up to the text
    (a lossy normaliser) gets no marks, and so no quotations from this page.
    """
    marks = np.zeros(len(ids), np.uint8)
    tokens = np.fromiter(ids, np.int64, len(ids))[marker:]
    borders, starts, stops, size = _borders(lines, gaps, rules)
    ends = np.cumsum(tokenizer.byte_lengths[tokens], dtype=np.int64)
    if not borders or not len(ends) or int(ends[-1]) != size:
        return marks
    begins = np.concatenate((np.zeros(1, np.int64), ends[:-1]))
    line_begins, line_ends = np.array(borders).T
    line = np.searchsorted(line_begins, begins, side="right") - 1
    inside = (line >= 0) & (ends <= line_ends[line])
    spaced = tokenizer.starts_word[tokens]
    view = marks[marker:]
    view[inside] |= np.uint8(Mark.TEXT)
    view[inside & spaced] |= np.uint8(Mark.WORD_START)
    # A sentence starts with the token that holds the space before it, or at its first character where none does.
    tight, exact = _at(begins, np.array(starts))
    loose, before = _at(begins, np.array(starts) - 1)
    before &= spaced[loose] & inside[loose]
    first = np.where(before, loose, tight)[before | exact]
    view[first[inside[first]]] |= np.uint8(Mark.SENTENCE_START)
    last, exact = _at(ends, np.array(stops))
    last = last[exact]
    view[last[inside[last]]] |= np.uint8(Mark.SENTENCE_END)
    keep_going = np.append(inside[1:] & (line[1:] == line[:-1]), False)
    view[inside & ~keep_going] |= np.uint8(Mark.LINE_END)
    return marks


def _borders(
    lines: Sequence[str], gaps: Sequence[int], rules: SentenceRules
) -> tuple[list[tuple[int, int]], list[int], list[int], int]:
    """In bytes from the page's text: (start, end) of each line, starts and ends of sentences, the whole size."""
    borders: list[tuple[int, int]] = []
    starts: list[int] = []
    stops: list[int] = []
    at = 0
    for line, gap in zip(lines, gaps, strict=True):
        plain = line.isascii()
        size = len(line) if plain else len(line.encode())
        if line:
            borders.append((at, at + size))
        for start, stop in rules.spans(line):
            while line[start].isspace():
                start += 1
            starts.append(at + (start if plain else len(line[:start].encode())))
            stops.append(at + (stop if plain else len(line[:stop].encode())))
        at += size + gap
    return borders, starts, stops, at


def _at(sorted_values: np.ndarray, wanted: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Where each wanted value stands (clipped into range), and whether it is really there."""
    found = np.minimum(np.searchsorted(sorted_values, wanted), len(sorted_values) - 1)
    return found, sorted_values[found] == wanted
