"""Documents cut into passages: one to three sentences of a line with the headings above them and the lead-in of a list.

What the encoder of `training.encoder` reads. BM25 over them, for candidates and for comparison.
"""

from __future__ import annotations

import math
import re
from collections import Counter, defaultdict
from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np
import snowballstemmer

from triforce_core.evidence.line_roles import Role, line_roles

MOST_WORDS, LIST_WORDS = 80, 110  # words of a passage; of a list
K1, B = 1.2, 0.75  # of BM25
_WORD = re.compile(r"[a-z0-9]+")
_LEVEL = re.compile(r"(\d{1,2}(?:\.\d{1,3})*)\.?\s")
_STOP = frozenset(
    "a an the of to in on at by for from with and or is are was were be been it its this that these "
    "those as do does did i you he she we they my your what which who whom when where why how can "
    "could may might will would should shall must have has had not no if than then so there any some "
    "about into ".split()
)


@dataclass(frozen=True)
class Passage:
    """sentences: numbers of the document's, in order; path: the headings above them, the outermost first."""

    path: tuple[str, ...]
    sentences: tuple[int, ...]


class Headings:
    """The headings that hold at a line, by their numbers ("2.3"); one without a number replaces the last."""

    def __init__(self, title: str) -> None:
        self._title, self._path = title, list[tuple[int, str]]()

    def add(self, heading: str) -> None:
        """A heading below those that are not as deep."""
        numbered = _LEVEL.match(heading)
        level = numbered[1].count(".") + 1 if numbered else 9
        self._path = [one for one in self._path if one[0] < level] + [(level, heading)]

    def path(self, lead: str) -> tuple[str, ...]:
        """All of them, the title first, a list's lead-in last."""
        return tuple(text for text in (self._title, *(text for _, text in self._path[-3:]), lead) if text)


def passages_of(title: str, sentences: Sequence[str], lines: Sequence[int], most: int = 3) -> list[Passage]:
    """Cut a document. lines: the number of each sentence's line; most: sentences of a passage."""
    by_line: dict[int, list[int]] = defaultdict(list)
    for number, line in enumerate(lines):
        by_line[line].append(number)
    roles = line_roles([" ".join(sentences[number] for number in numbers) for numbers in by_line.values()])
    headings, found, lead, last = Headings(title), list[Passage](), "", -2
    for (line, numbers), role in zip(by_line.items(), roles, strict=True):
        if role is Role.HEADING:
            headings.add(" ".join(sentences[number] for number in numbers))
            lead, last = "", -2
            continue
        if role is not Role.ITEM and line != last + 1:
            lead = ""
        path = headings.path(lead)
        size = sum(len(sentences[number].split()) for number in numbers)
        joined = role is Role.ITEM and line == last + 1 and found and found[-1].path == path
        if joined and most > 1 and _words(sentences, found[-1].sentences) + size <= LIST_WORDS:
            found[-1] = Passage(path, (*found[-1].sentences, *numbers))
        else:
            found += [Passage(path, part) for part in _parts(sentences, numbers, most)]
        last = line
        if sentences[numbers[-1]].endswith(":"):
            lead, last = sentences[numbers[-1]], line + 1 if line + 1 not in by_line else line
    return found


def _words(sentences: Sequence[str], numbers: Sequence[int]) -> int:
    return sum(len(sentences[number].split()) for number in numbers)


def _parts(sentences: Sequence[str], numbers: Sequence[int], most: int) -> list[tuple[int, ...]]:
    """Sentences of a line in runs of `most`, the runs about alike in length; a long sentence stands alone."""
    count = max(1, math.ceil(len(numbers) / most))
    even = math.ceil(len(numbers) / count)
    parts: list[tuple[int, ...]] = []
    open_part: list[int] = []
    for number in numbers:
        if open_part and (len(open_part) >= even or _words(sentences, [*open_part, number]) > MOST_WORDS):
            parts.append(tuple(open_part))
            open_part = []
        open_part.append(number)
    return [*parts, tuple(open_part)]


class Words:
    """Stems of texts; stop words are left out."""

    def __init__(self) -> None:
        self._stemmer, self._known = snowballstemmer.stemmer("english"), dict[str, str]()

    def of(self, text: str) -> list[str]:
        """In order."""
        found = []
        for word in _WORD.findall(text.lower()):
            if word not in _STOP:
                if word not in self._known:
                    self._known[word] = self._stemmer.stemWord(word)
                found.append(self._known[word])
        return found


class BM25:
    """Over the texts of a document's passages."""

    def __init__(self, texts: Sequence[str], words: Words) -> None:
        self._words, self._size = words, len(texts)
        lengths = np.zeros(len(texts), np.float32)
        postings: dict[str, list[tuple[int, int]]] = defaultdict(list)
        for number, text in enumerate(texts):
            counts = Counter(words.of(text))
            lengths[number] = counts.total()
            for word, count in counts.items():
                postings[word].append((number, count))
        norm = K1 * (1 - B + B * lengths / max(1.0, float(lengths.mean())))
        self._weights: dict[str, tuple[np.ndarray, np.ndarray]] = {}
        for word, places in postings.items():
            at, count = (np.array(column) for column in zip(*places, strict=True))
            rare = math.log(1 + (len(texts) - len(places) + 0.5) / (len(places) + 0.5))
            self._weights[word] = (at, rare * count * (K1 + 1) / (count + norm[at]))

    def scores(self, query: str) -> np.ndarray:
        """fp32 [passages]."""
        scores = np.zeros(self._size, np.float32)
        for word in set(self._words.of(query)):
            if word in self._weights:
                at, weights = self._weights[word]
                scores[at] += weights
        return scores

    def best(self, query: str, count: int, without: Collection[int] = ()) -> list[int]:
        """Numbers of the passages that fit best, best first; those that share no word are left out."""
        scores = self.scores(query)
        order = np.argsort(-scores, kind="stable")[: count + len(without)].tolist()
        return [at for at in order if scores[at] > 0 and at not in without][:count]


def text_of(passage: Passage, sentences: Sequence[str]) -> str:
    """What words are counted in: its headings but the title, and its sentences."""
    return " ".join((*passage.path[1:], *(sentences[number] for number in passage.sentences)))
