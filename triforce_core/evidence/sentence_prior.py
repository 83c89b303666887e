"""Rank the sentences of a document as answers to a question, by a small network over the features of
``sentence_index``, then an encoder that compares the best with the question and reads the best of those
(``reranker``); and the chance that none answers. All are fitted on questions that people wrote (``training/prior.py``,
``training/reranker.py``)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from ..assets import WORDS_FOLDER
from .line_roles import Role
from .question import WORD, Asks, asks, names
from .reranker import Passage, Reranker
from .sentence_index import SentenceIndex

_FILE = WORDS_FOLDER / "prior.npz"
COMPARED, READ = 32, 12  # sentences that the encoder compares with the question, and those of them that it reads
NEAR_COUNTS, READ_COUNTS = 8.0, 1.0  # times a cosine and what reading says, in the network's nats
# Nats against a sentence for where it stands: the questions that the weights were fitted on are about running text.
_NEVER, _SELDOM, _LESS = -30.0, -2.0, -0.7
_OF_ROLE = {Role.HEADING: _NEVER, Role.CONTENTS: _NEVER, Role.NOTE: _SELDOM, Role.CODE: _SELDOM, Role.ROW: _LESS}
_ASKED_FOR = {
    Role.CODE: frozenset("code command commands function example pragma option flag grammar rule syntax line snippet "
                         "script config setting".split()),
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
        """Return the network with the arrays ``name.mean``, ``name.std``, ``name.w1``, ``name.b1`` ..."""
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


@dataclass(frozen=True, eq=False, slots=True)
class Ranking:
    """scores: nats [n] for each sentence as an answer, up to a constant; confidence: the chance, in [0, 1], that the
    best one answers the question at all."""

    scores: np.ndarray
    confidence: float


class SentencePrior:
    """sentence: scores sentences by their words; answered: the log odds that the best of those that were read answers;
    summary: scores sentences as part of a digest."""

    def __init__(self, sentence: Network, answered: Network, summary: Network, reranker: Reranker) -> None:
        self._sentence, self._answered, self.summary, self._reranker = sentence, answered, summary, reranker

    @classmethod
    @lru_cache(maxsize=1)
    def shipped(cls) -> SentencePrior:
        """Return the weights in ``assets/words``."""
        with np.load(_FILE) as stored:
            arrays = {key: stored[key].astype(np.float32) for key in stored.files}
        networks = [Network.from_stored(arrays, name) for name in ("sentence", "answered", "summary")]
        return cls(networks[0], networks[1], networks[2], Reranker.shipped())

    def ranking(self, index: SentenceIndex, question: str, before: str = "") -> Ranking:
        """before: the question before, where this one points back to it. The document has a sentence."""
        words = by_words(self._sentence, index, question, before)
        found = np.argsort(-words, kind="stable")[:COMPARED]
        near = (self._reranker.vectors([index.sentences[at] for at in found.tolist()])
                @ self._reranker.question_vector(question, before))
        # What was not compared is no nearer than the farthest that was; likewise below for what was not read.
        scores = words + NEAR_COUNTS * near.min()
        scores[found] = words[found] + NEAR_COUNTS * near
        best = found[np.argsort(-scores[found], kind="stable")[:READ]]
        seen = scores[best]
        read = self._reranker.scores(question, [passage(index, at) for at in best.tolist()], before)
        scores += READ_COUNTS * read.min()
        scores[best] = seen + READ_COUNTS * read
        first = int(best[np.argmax(scores[best])])
        odds = float(self._answered(read_features(seen, read, scores[best],
                                                  strange_names(index, question, [first])[0])[None])[0])
        return Ranking(scores, float(1 / (1 + np.exp(-odds))))


def by_words(sentence: Network, index: SentenceIndex, question: str, before: str = "") -> np.ndarray:
    """Nats [n], up to a constant, by this network alone. before: as in ``SentencePrior.ranking``."""
    scores: np.ndarray = sentence(index.features(question, before)) + _by_role(index, question)
    return scores


def passage(index: SentenceIndex, sentence: int) -> Passage:
    """Return a sentence as the reranker reads it."""
    heading, line = int(index.heading_of[sentence]), index.line_of
    beside = sentence and line[sentence - 1] == line[sentence]
    return Passage(index.sentences[sentence], index.sentences[heading] if heading >= 0 else "",
                   index.sentences[sentence - 1] if beside else "")


def strange_names(index: SentenceIndex, question: str, sentences: Sequence[int]) -> np.ndarray:
    """float32 [sentences, 3]: of a question's names (``question.names``) how many stand nowhere in the document,
    how many not in a sentence, its heading or the sentence before, and how many there are. Who asks about another
    person, year or product than the document's gets a sentence that is about the same otherwise."""
    asked = index.stems(names(question))
    counts = np.zeros((len(sentences), 3), np.float32)
    counts[:, 0], counts[:, 2] = sum(stem not in index.vocabulary for stem in asked), len(asked)
    for row, sentence in enumerate(sentences if asked else ()):
        read = passage(index, sentence)
        known = index.stems(WORD.findall(f"{read.heading} {read.before} {read.sentence}".lower()))
        counts[row, 1] = len(set(asked).difference(known))
    return counts


def read_features(seen: np.ndarray, read: np.ndarray, scores: np.ndarray, strange: np.ndarray) -> np.ndarray:
    """float32 [11]: what tells whether the best sentence answers at all. First [n] each, of the sentences that were
    read: what network and vectors say, what the encoder says that read them, and both. strange: ``strange_names`` of
    the best."""
    order = np.argsort(-scores, kind="stable")
    best, ranked = int(order[0]), np.sort(read)[::-1]
    second = order[min(1, len(order) - 1)]
    together = float(np.logaddexp.reduce(read))
    return np.array([read[best], ranked[0], ranked[1] if len(read) > 1 else -9.0, together,
                     scores[best] - scores[second], seen[best] - seen.max(),
                     np.exp(ranked[0] - np.logaddexp(0.0, together)), np.log(len(read)), *strange], np.float32)


def _by_role(index: SentenceIndex, question: str) -> np.ndarray:
    words = set(question.lower().replace("?", " ").replace(",", " ").split())
    penalties = np.zeros(len(Role), np.float32)
    for role, penalty in _OF_ROLE.items():
        wanted = bool(words & _ASKED_FOR.get(role, frozenset())) or (role is Role.ROW and asks(question) is Asks.NUMBER)
        penalties[role] = 0.0 if wanted else penalty
    return penalties[index.roles]
