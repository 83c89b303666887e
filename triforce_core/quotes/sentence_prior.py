"""How well each sentence of a document answers a question: a small network over the features of ``sentence_index``,
fitted on questions that people wrote (``training/prior.py``), and the chance that no sentence does."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np

from .line_roles import Role
from .question_words import Asks, asks
from .sentence_index import SentenceIndex

_FILE = Path(__file__).resolve().parents[2] / "assets" / "words" / "prior.npz"
# Nats against a sentence for where it stands: the questions that the weights were fitted on are about running text.
_NEVER, _SELDOM, _LESS = -30.0, -2.0, -0.7
_OF_ROLE = {Role.HEADING: _NEVER, Role.CONTENTS: _NEVER, Role.NOTE: _SELDOM, Role.CODE: _SELDOM, Role.ROW: _LESS}
_ASKED_FOR = {
    Role.CODE: frozenset("code command commands function example pragma option flag grammar rule syntax line "
                         "snippet script "
                         "config setting".split()),
    Role.ROW: frozenset("table row column list according appendix chart figure total number".split()),
    Role.NOTE: frozenset("note notes footnote footnotes endnote reference references source sources cited".split()),
    Role.CONTENTS: frozenset("contents chapter page index".split()),
}  # fmt: skip


@dataclass(frozen=True, eq=False)
class Network:
    """Two hidden layers (ReLU) over standardised features. weights: [out, in]."""

    mean: np.ndarray
    std: np.ndarray
    layers: tuple[tuple[np.ndarray, np.ndarray], ...]

    @classmethod
    def from_stored(cls, stored: dict[str, np.ndarray], name: str) -> Network:
        """The arrays ``name.mean``, ``name.std``, ``name.w1``, ``name.b1`` ..."""
        count = sum(key.startswith(f"{name}.w") for key in stored)
        layers = tuple((stored[f"{name}.w{at}"], stored[f"{name}.b{at}"]) for at in range(1, count + 1))
        return cls(stored[f"{name}.mean"], stored[f"{name}.std"], layers)

    def __call__(self, features: np.ndarray) -> np.ndarray:
        """[n, features] -> [n]."""
        hidden = np.clip((features - self.mean) / self.std, -5, 5)
        for at, (weights, bias) in enumerate(self.layers):
            hidden = hidden @ weights.T + bias
            if at < len(self.layers) - 1:
                hidden = np.maximum(hidden, 0)
        scores: np.ndarray = hidden[:, 0]
        return scores


class SentencePrior:
    """sentence: scores sentences as answers; unanswered: the log odds that none of them is one; summary: as part of a
    digest."""

    def __init__(self, sentence: Network, unanswered: Network, summary: Network) -> None:
        self._sentence, self._unanswered, self.summary = sentence, unanswered, summary

    @classmethod
    @lru_cache(maxsize=1)
    def shipped(cls) -> SentencePrior:
        """The weights in ``assets/words``."""
        with np.load(_FILE) as stored:
            arrays = {key: stored[key].astype(np.float32) for key in stored.files}
        return cls(*(Network.from_stored(arrays, name) for name in ("sentence", "unanswered", "summary")))

    def scores(self, index: SentenceIndex, question: str, before: str = "") -> np.ndarray:
        """Nats [n], up to a constant. before: the question before, where this one points back to it."""
        features = index.features(question, before)
        return self._sentence(features) + _by_role(index, question)

    def confidence(self, index: SentenceIndex, question: str, scores: np.ndarray, before: str = "") -> float:
        """The chance, in [0, 1], that the best sentence answers the question at all."""
        if not index.size:
            return 0.0
        odds = float(self._unanswered(answer_features(index, question, scores, before)[None])[0])
        return float(1 / (1 + np.exp(odds)))


def _by_role(index: SentenceIndex, question: str) -> np.ndarray:
    words = set(question.lower().replace("?", " ").replace(",", " ").split())
    penalties = np.zeros(len(Role), np.float32)
    for role, penalty in _OF_ROLE.items():
        wanted = bool(words & _ASKED_FOR.get(role, frozenset())) or (role is Role.ROW and asks(question) is Asks.NUMBER)
        penalties[role] = 0.0 if wanted else penalty
    return penalties[index.roles]


def answer_features(index: SentenceIndex, question: str, scores: np.ndarray, before: str = "",
                    hidden: np.ndarray | None = None) -> np.ndarray:
    """float32 [features]: what tells whether the best sentences answer at all: how far they stand out, how much of the
    question they hold, and whether its rarest words stand anywhere in the document. hidden: bool [n], sentences to take
    for not there (training hides the answer, to learn how a question looks that has none)."""
    terms = index.terms(question + (" " + before if before else ""))
    if hidden is not None:
        scores = np.where(hidden, -50.0, scores)
    order = np.argsort(-scores, kind="stable")[:10]
    chances = np.exp(scores - scores.max())
    chances /= chances.sum()
    alike, _ = index.matches(terms)
    if hidden is not None:
        alike = np.where(hidden[None, :], 0.0, alike)
    near_answer, like = index.nearness(question, before), index.likeness(question, before)
    likest = like if hidden is None else np.where(hidden, -1.0, like)
    _, rarity = index.rarity_of(terms)
    weights = rarity / max(float(rarity.sum()), 1e-6)
    best = order[0]
    near = index.line_of == index.line_of[best]
    everywhere = alike.max(1)
    rarest = int(np.argmax(rarity)) if len(rarity) else 0
    kind = np.zeros(len(Asks), np.float32)
    kind[asks(question)] = 1.0
    margin = scores[order[0]] - scores[order[min(1, len(order) - 1)]]
    fifth = scores[order[0]] - scores[order[min(4, len(order) - 1)]]
    return np.array([
        scores[best] / 5, np.log(chances[best] + 1e-6), margin, fifth, -(chances * np.log(chances + 1e-9)).sum(),
        weights @ alike[:, best], weights @ (alike[:, best] > 0.99), weights @ alike[:, near].max(1),
        weights @ (alike[:, near].max(1) > 0.99), weights @ everywhere, weights @ (everywhere > 0.99), everywhere.min(),
        alike[:, best].min(), alike[rarest, best], everywhere[rarest], float(everywhere[rarest] > 0.99),
        alike[rarest, near].max(), near_answer[best], near_answer[best] - near_answer.max(),
        like[best], like[best] - likest.max(), like[best] - like.mean(), len(terms) / 8,
        float(np.log1p(index.size)) / 8, *kind, *index.signs[best],
    ], np.float32)  # fmt: skip
