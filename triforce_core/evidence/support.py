"""Which passage of a document comes nearest to a sentence that somebody wrote about it, by its words.

A measure of overlap, not of truth: a passage may hold the words and say the opposite, or say the same in other words.
``python -m triforce_core.bench.support`` measures it.
"""

from __future__ import annotations

import numpy as np

from .question_words import WORD
from .sentence_index import SentenceIndex

# Of sentences that restate a passage one in sixteen lies below, of those about another document nine in ten: see
# docs/measurements.md.
THRESHOLD = 0.42
FEWEST = 4  # telling words of a sentence that is judged: fewer say too little
_TELLING = 7.0  # nats: rarer than such words as "into", "about" and "their"
_NEAR = 0.6  # words whose vectors are less alike than this do not stand for each other
_FULL = 0.9  # what a word counts at most that only resembles one of the sentence's


def support(index: SentenceIndex, sentence: str, but: frozenset[int] = frozenset()) -> tuple[float, int] | None:
    """(score, sentence): the share in [0, 1] of its words that the best passage holds, by the square of their rarity,
    and that passage's middle sentence. A passage is three sentences in a row; a number counts only where it stands
    itself. but: sentences of the document that do not count. None: it says too little to be judged or is not English,
    or the document is empty."""
    terms = index.stems(WORD.findall(sentence.lower().replace("’", "'")))
    rarity = index.rarity_of(terms)[1]
    if np.count_nonzero(rarity > _TELLING) < FEWEST or not index.size or not index.in_english(terms):
        return None
    alike, _ = index.matches(terms)
    weights = rarity**2
    numbers = np.array([term[0].isdigit() for term in terms])
    soft = np.clip((alike - _NEAR) / (1 - _NEAR), 0.0, _FULL)
    held = np.where(alike >= 0.999, 1.0, np.where(numbers[:, None], 0.0, soft))
    held[:, list(but)] = 0.0
    around = held.copy()
    around[:, 1:] = np.maximum(around[:, 1:], held[:, :-1])
    around[:, :-1] = np.maximum(around[:, :-1], held[:, 1:])
    scores = weights @ around / weights.sum()
    best = int(np.argmax(scores + 1e-3 * (weights @ held) / weights.sum()))  # of equal passages, the one it is in
    return float(scores[best]), best
