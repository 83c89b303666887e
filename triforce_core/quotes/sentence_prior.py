"""How well the sentences of a document match the words of a question: BM25 (Robertson and Zaragoza 2009, section 3.2).

A small model that quotes chooses among a thousand sentences by meaning and overlooks rare words; a table of words does
the reverse. ``verbatim.QuoteState.prior`` brings the two together. Pure counting: no weights, nothing learnt.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Sequence

import numpy as np

_WORD = re.compile(r"\w+")
_ENDINGS = ("ing", "ers", "ed", "es", "er", "ly", "s", "e")
_SATURATION, _LENGTH = 1.2, 0.5  # k1 and b
_LEADERS = re.compile(r"(?:\.\s?){5}")  # of a table of contents: its lines name a subject and say nothing of it
_SAYS_NOTHING = -30.0  # their score: quoted only where nothing else can be
# These speak of the request, not of its subject: "What happens next?" must not favour sentences that say "next".
_REQUEST = frozenset(
    """a about according after also an and answer any are as at be book by can chapter come comes continue describe did
    do document does else exactly explain find follow follows for from give go had happen happened happens has have
    how i in is it mention mentioned mentions me more next of on or page paragraph passage please quote quoted say
    said says sentence tell text that the them then there these they this those to was were what when where which
    who whom whose why will with word words would write written you your""".split()
)


def _stem(word: str) -> str:
    """Without its English ending, crudely: both sides are cut alike, so a wrong cut costs little."""
    if len(word) > 4 and word.endswith(("ies", "ied")):
        return word[:-3] + "y"
    for ending in _ENDINGS:
        if word.endswith(ending) and len(word) - len(ending) >= 3:
            return word[: -len(ending)]
    return word


class WordIndex:
    """Which words stand in which sentences. Built once per document."""

    def __init__(self, sentences: Sequence[str]) -> None:
        self._idle = np.array([_LEADERS.search(sentence) is not None for sentence in sentences], bool)
        counts = [Counter(map(_stem, _WORD.findall("" if idle else sentence.lower())))
                  for sentence, idle in zip(sentences, self._idle, strict=True)]
        lengths = np.array([sum(count.values()) for count in counts], np.float64)
        self._size = len(counts)
        self._damping = _SATURATION * (1 - _LENGTH + _LENGTH * lengths / max(1.0, lengths.mean() if counts else 1.0))
        postings: dict[str, list[tuple[int, int]]] = {}
        for number, count in enumerate(counts):
            for word, times in count.items():
                postings.setdefault(word, []).append((number, times))
        self._postings = {word: np.array(found, np.int64) for word, found in postings.items()}

    def scores(self, question: str) -> np.ndarray:
        """BM25 of every sentence, float64 [sentences]; 0 where no word of the question's subject stands. Lines of a
        table of contents have a score far below."""
        total = np.where(self._idle, _SAYS_NOTHING, 0.0)
        asked = [word for word in _WORD.findall(question.lower()) if word not in _REQUEST]
        for word in dict.fromkeys(map(_stem, asked)):  # in order: a set's, and so the sum's last bit, varies by process
            found = self._postings.get(word)
            if found is None:
                continue
            rarity = math.log(1 + (self._size - len(found) + 0.5) / (len(found) + 0.5))
            numbers, times = found.T
            total[numbers] += rarity * times * (_SATURATION + 1) / (times + self._damping[numbers])
        return total
