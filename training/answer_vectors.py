"""Answer vectors: a second vector for each word, so that the sum over a sentence lies near those of the questions it
answers, also where the two share no word.

Contrastive: a question, turned by one matrix, against the sentence that answers it, other sentences of its document
(half of them its neighbours), and all sentences of the other questions of the batch. Pairs that cost nothing keep the
rest of the vocabulary in shape: a heading and the line below it, a sentence and the next one.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from random import Random

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from training.question_sets import RULES, AskedDocument, report
from triforce_core.quotes.line_roles import Role, line_roles
from triforce_core.quotes.question_words import WORD, points_back
from triforce_core.quotes.word_vectors import Stems, WordVectors

LONGEST, LONGEST_WEAK = 60, 50  # words of a sentence that count
WEAK_TEXT = 60_000  # characters of a document that weak pairs are drawn from
BATCH, WEAK_BATCH, OTHERS = 128, 192, 12  # questions, weak pairs, and other sentences for each question
NEAR = 6  # sentences before and after an answer that are its neighbours
DROPPED = 0.25  # of the words, at random, so that no pair hangs on one
PARAPHRASE, WEAK = 1.5, 0.3  # weights of pairs; all others 1

Bag = list[int]  # the numbers of words


@dataclass(frozen=True)
class Answers:
    """answer: [words, dimensions], a word's weight is its vector's length; to_answer: [dimensions, dimensions]."""

    answer: np.ndarray
    to_answer: np.ndarray


@dataclass(frozen=True)
class Bagged:
    """A document as bags of words. queries: (question, the sentences that answer it, kind)."""

    name: str
    sentences: list[Bag]
    queries: list[tuple[Bag, tuple[int, ...], str]]


class BagOfWords:
    """Texts as the numbers of their known words."""

    def __init__(self, vectors: WordVectors) -> None:
        self._number, self._stem = vectors.number, Stems().of

    def __call__(self, text: str, longest: int = LONGEST) -> Bag:
        stems = (self._stem(word) for word in WORD.findall(text.lower())[:longest])
        return [self._number[stem] for stem in stems if stem in self._number]


def bagged(document: AskedDocument, vectors: WordVectors) -> Bagged:
    """The document and those of its questions that have an answer, a question that points back with the one before."""
    bag = BagOfWords(vectors)
    sentences = [bag(sentence) or [0] for sentence in document.sentences]
    asked = [(bag(f"{query.text} {query.before if points_back(query.text) else ''}"), query.golds, query.kind)
             for query in document.queries if query.golds]
    return Bagged(document.name, sentences, [query for query in asked if query[0]])


def unlabelled_pairs(texts: Iterable[str], vectors: WordVectors, seed: int) -> list[tuple[Bag, Bag]]:
    """Headings with the first line below them, and sentences with the next one of their line."""
    bag, chance = BagOfWords(vectors), Random(seed)
    pairs = []
    for text in texts:
        lines = [line.strip() for line in text[:WEAK_TEXT].split("\n") if line.strip()]
        roles = line_roles(lines)
        for at in range(len(lines) - 1):
            if roles[at] is Role.HEADING and roles[at + 1] is Role.PROSE and chance.random() < 0.9:
                heading, below = bag(lines[at]), bag(lines[at + 1][:400], LONGEST_WEAK)
                if 1 <= len(heading) < 10 and len(below) > 6:
                    pairs.append((heading, below))
            elif roles[at] is Role.PROSE and chance.random() < 0.25:
                spans = list(RULES.spans(lines[at]))
                if len(spans) > 2:
                    first = chance.randrange(len(spans) - 1)
                    one, other = (bag(lines[at][slice(*spans[place])]) for place in (first, first + 1))
                    if min(len(one), len(other)) > 4:
                        pairs.append((one, other))
    return pairs


class Encoder(nn.Module):
    """A bag of words as a unit vector: the sum of its words' vectors times their weights; questions then turned."""

    def __init__(self, vectors: WordVectors) -> None:
        super().__init__()
        self.words = nn.Parameter(torch.from_numpy(vectors.vectors.copy()))
        self.weights = nn.Parameter(torch.from_numpy(vectors.rarity.copy()) / 8)
        self.turn = nn.Parameter(torch.eye(vectors.vectors.shape[1]))
        self.scale = nn.Parameter(torch.tensor(12.0))

    def forward(self, bags: Sequence[Bag], asked: bool) -> Tensor:
        """[bags, dimensions]"""
        words = torch.tensor([word for bag in bags for word in bag])
        starts = torch.tensor([0, *(len(bag) for bag in bags[:-1])]).cumsum(0)
        weights = F.softplus(self.weights)[words]
        summed = F.embedding_bag(words, self.words, starts, mode="sum", per_sample_weights=weights)
        return F.normalize(summed @ self.turn if asked else summed, dim=-1)

    def answers(self) -> Answers:
        """What the application needs of it."""
        with torch.no_grad():
            return Answers((self.words * F.softplus(self.weights)[:, None]).numpy(), self.turn.numpy().copy())


def candidates(document: Bagged, golds: Sequence[int], chance: Random) -> list[Bag]:
    """One answer, first, and sentences of the same document that do not answer."""
    size, gold = len(document.sentences), chance.choice(golds)
    drawn = [gold]
    for _ in range(OTHERS):
        near = min(max(gold + chance.randint(-NEAR, NEAR), 0), size - 1)
        other = chance.randrange(size) if chance.random() < 0.5 else near
        if other not in golds:
            drawn.append(other)
    return [document.sentences[number] for number in drawn]


def batch_loss(encoder: Encoder, part: Sequence[tuple[Bagged, tuple[Bag, tuple[int, ...], str]]],
               weak: Sequence[tuple[Bag, Bag]], chance: Random) -> Tensor:
    """Cross entropy of each question's own answer among all sentences of the batch."""
    def thinned(bag: Bag) -> Bag:
        return [word for word in bag if chance.random() > DROPPED] or bag[:1]

    others: list[Bag] = []
    own: list[int] = []
    for document, (_, golds, _) in part:
        own.append(len(others))
        others += candidates(document, golds, chance)
    own += range(len(others), len(others) + len(weak))
    questions = encoder([thinned(query[0]) for _, query in part] + [thinned(one) for one, _ in weak], True)
    sentences = encoder([thinned(bag) for bag in others] + [thinned(other) for _, other in weak], False)
    weights = torch.tensor([PARAPHRASE if query[2] == "paraphrase" else 1.0 for _, query in part] + [WEAK] * len(weak))
    losses = F.cross_entropy(encoder.scale * (questions @ sentences.T), torch.tensor(own), reduction="none")
    return (losses * weights).sum() / weights.sum()


@torch.no_grad()
def measure(encoder: Encoder, unseen: Sequence[Bagged], title: str) -> None:
    """Prints how often the nearest sentence, and one of the ten nearest, answers an unseen question."""
    ranks, kinds = [], []
    for document in unseen:
        if not document.queries:
            continue
        near = encoder([bag for bag, _, _ in document.queries], True) @ encoder(document.sentences, False).T
        best = near.topk(min(10, near.shape[1])).indices.tolist()
        for found, (_, golds, kind) in zip(best, document.queries, strict=True):
            ranks.append((found[0] in golds, bool(set(found) & set(golds))))
            kinds.append(kind)
    if ranks:
        report(title, kinds, ranks.__getitem__)


def fit(learnt: Sequence[Bagged], unseen: Sequence[Bagged], weak: Sequence[tuple[Bag, Bag]], vectors: WordVectors,
        epochs: int, seed: int) -> Answers:
    """Answer vectors from the questions of `learnt`; what they find of `unseen` is printed after each epoch."""
    torch.manual_seed(seed)
    chance = Random(seed)
    encoder = Encoder(vectors)
    optimiser = torch.optim.Adam([
        {"params": [encoder.words], "lr": 1e-3}, {"params": [encoder.weights, encoder.turn], "lr": 2e-3},
        {"params": [encoder.scale], "lr": 0.05},
    ])  # fmt: skip
    pairs, weak = [(document, query) for document in learnt for query in document.queries], list(weak)
    measure(encoder, unseen, "  held out, right first / in ten, before")
    for epoch in range(epochs):
        started, losses = time.time(), []
        chance.shuffle(pairs)
        chance.shuffle(weak)
        for step, start in enumerate(range(0, max(1, len(pairs) - BATCH + 1), BATCH)):
            at = step * WEAK_BATCH % max(1, len(weak) - WEAK_BATCH)
            loss = batch_loss(encoder, pairs[start : start + BATCH], weak[at : at + WEAK_BATCH], chance)
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            losses.append(float(loss.detach()))
        print(f"  epoch {epoch + 1}: loss {np.mean(losses):.3f}, {time.time() - started:.0f} s", flush=True)
        measure(encoder, unseen, "  held out, right first / in ten")
    return encoder.answers()
