"""The network that tells whether a document answers a question at all.

It learns from natural questions that nothing in their document answers; from questions whose answer is hidden, the
whole line of it taken for not there; from excerpts of documents, with questions whose answer they hold and others whose
answer stood elsewhere; and from questions about other documents. It sees the sentence network's scores as the
application does.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from training.networks import Layers, descend, standard
from training.question_sets import AskedDocument, Query, report
from training.sentence_network import before_of, index_of
from triforce_core.quotes.answering import THRESHOLD
from triforce_core.quotes.sentence_index import SentenceIndex
from triforce_core.quotes.sentence_prior import Network, SentencePrior, answer_features

ANSWERED, UNANSWERABLE, HIDDEN_ANSWER = "answered", "unanswerable", "answer hidden"
IN_EXCERPT, ELSEWHERE = "answered in an excerpt", "answered outside the excerpt"
FOREIGN, OF_OTHERS = "about another document", 20  # questions for each document
SHORTEST_ARTICLE, MOST_OF_ARTICLE = 150, 40  # sentences; questions
FEWEST_LEFT = 5  # sentences that must stay when an answer is hidden
EXCERPT_LINES, SHORTEST_EXCERPT, OF_EXCERPT = (6, 70), 8, 8  # lines; sentences; questions of either sort
EXCERPTS_NATURAL, EXCERPTS_ARTICLE = 3, 1  # of each document
WEIGHTS = {ANSWERED: 1.0, UNANSWERABLE: 4.0, HIDDEN_ANSWER: 0.5, IN_EXCERPT: 0.6, ELSEWHERE: 0.6, FOREIGN: 0.3}
ARTICLE_WEIGHT = 0.3  # times that, where the question is about a whole article
HIDDEN, DROPPED, BATCH, EPOCHS, RATE = (48, 24), 0.2, 256, 15, 3e-3


@dataclass(frozen=True, eq=False)
class Example:
    """right: whether the best sentence, and one of the best three, answers."""

    features: np.ndarray
    case: str
    kind: str
    weight: float
    right: tuple[bool, bool] = (False, False)


def rows(document: AskedDocument, work: Path, sentence: Network) -> dict[str, np.ndarray]:
    """Its examples: features [n, features], cases, kinds, names and weights [n], right bool [n, 2]."""
    prior = SentencePrior(sentence, sentence, sentence)  # only its scores are asked for
    chance, excerpts = document.chance(), EXCERPTS_NATURAL if document.natural else EXCERPTS_ARTICLE
    found = whole(document, work, prior, chance)
    for _ in range(excerpts):
        found += excerpt(document, work, prior, chance)
    return _stacked(found, document.name)


def foreign(document: AskedDocument, work: Path, sentence: Network, pool: Sequence[Query]) -> dict[str, np.ndarray]:
    """``rows`` of questions about other documents. pool: of all documents, those that need no question before them."""
    if not document.natural:
        return {}
    prior, index, own = SentencePrior(sentence, sentence, sentence), index_of(document, work), set(document.queries)
    drawn = [query for query in document.chance().sample(pool, min(len(pool), OF_OTHERS)) if query not in own]
    return _stacked([Example(plain_features(index, prior, query), FOREIGN, query.kind, WEIGHTS[FOREIGN])
                     for query in drawn], document.name)


def _stacked(found: Sequence[Example], name: str) -> dict[str, np.ndarray]:
    if not found:
        return {}
    return {"features": np.stack([one.features for one in found]), "cases": np.array([one.case for one in found]),
            "kinds": np.array([one.kind for one in found]), "right": np.array([one.right for one in found]),
            "names": np.full(len(found), name), "weights": np.array([one.weight for one in found], np.float32)}


def whole(document: AskedDocument, work: Path, prior: SentencePrior, chance: Random) -> list[Example]:
    """Its questions as they are, and half of them once more with a hidden answer. Of articles only long ones."""
    natural, queries = document.natural, document.queries
    if not natural:
        if len(document.sentences) < SHORTEST_ARTICLE:
            return []
        queries = chance.sample(queries, min(len(queries), MOST_OF_ARTICLE))
    index, share = index_of(document, work), 1.0 if natural else ARTICLE_WEIGHT
    found = []
    for query in queries:
        before, golds = before_of(query), np.array(query.golds, int)
        scores = prior.scores(index, query.text, before)
        best = np.argsort(-scores, kind="stable")[:3]
        right = (bool(np.isin(best[0], golds)), bool(np.isin(best, golds).any()))
        if natural or chance.random() < 0.5:
            case = ANSWERED if query.golds else UNANSWERABLE
            features = answer_features(index, query.text, scores, before)
            found.append(Example(features, case, query.kind, share * WEIGHTS[case], right))
        hidden = np.isin(index.line_of, index.line_of[golds])
        if query.golds and chance.random() < 0.5 and hidden.sum() < index.size - FEWEST_LEFT:
            features = answer_features(index, query.text, scores, before, hidden)
            found.append(Example(features, HIDDEN_ANSWER, query.kind, share * WEIGHTS[HIDDEN_ANSWER]))
    return found


def excerpt(document: AskedDocument, work: Path, prior: SentencePrior, chance: Random) -> list[Example]:
    """Questions about some lines in a row as if they were all: those they answer, and others of the document."""
    lines = sorted(set(document.lines))
    count = chance.randint(*EXCERPT_LINES)
    start = chance.randrange(max(1, len(lines) - count))
    kept = set(lines[start : start + count])
    numbers = [number for number, line in enumerate(document.lines) if line in kept]
    if len(numbers) < SHORTEST_EXCERPT:
        return []
    here = set(numbers)
    answered = [query for query in document.queries if query.golds and here.issuperset(query.golds)]
    others = [query for query in document.queries if query.golds and here.isdisjoint(query.golds)]
    part = AskedDocument(document.name, [document.sentences[number] for number in numbers],
                         [document.lines[number] for number in numbers], document.queries)
    index = index_of(part, work)

    def examples(queries: list[Query], case: str) -> list[Example]:
        drawn = chance.sample(queries, min(len(queries), OF_EXCERPT))
        return [Example(plain_features(index, prior, query), case, query.kind, WEIGHTS[case]) for query in drawn]

    return examples(answered, IN_EXCERPT) + examples(others, ELSEWHERE)


def plain_features(index: SentenceIndex, prior: SentencePrior, query: Query) -> np.ndarray:
    """Those of a question asked without another before it."""
    return answer_features(index, query.text, prior.scores(index, query.text))


def fit(data: dict[str, np.ndarray], unseen: set[str], seed: int) -> Network:
    """The log odds that nothing answers. Prints what both networks do with the questions of unseen documents."""
    learnt = ~np.isin(data["names"], sorted(unseen))
    torch.manual_seed(seed)
    features, weights = torch.from_numpy(data["features"][learnt]), torch.from_numpy(data["weights"][learnt])
    nothing = torch.from_numpy((~np.isin(data["cases"][learnt], (ANSWERED, IN_EXCERPT))).astype(np.float32))
    net = Layers(*standard(data["features"][learnt]), HIDDEN, DROPPED)

    def loss(numbers: Tensor) -> Tensor:
        each = F.binary_cross_entropy_with_logits(net(features[numbers]), nothing[numbers], reduction="none")
        return (each * weights[numbers]).sum() / weights[numbers].sum()

    optimiser = torch.optim.AdamW(net.parameters(), lr=RATE, weight_decay=3e-3)
    last = descend(net, len(features), BATCH, EPOCHS, loss, optimiser)
    print(f"  confidence: loss {last:.3f}", flush=True)
    network = net.network()
    measure(network, {name: array[~learnt] for name, array in data.items()})
    return network


def measure(network: Network, data: dict[str, np.ndarray]) -> None:
    """Prints the sentence network's right answers, and how well answered questions and others are told apart."""
    answered = data["cases"] == ANSWERED
    if not answered.any():
        return
    right = data["right"][answered]
    report("  held out, right first / in three, of the whole document", data["kinds"][answered].tolist(),
           right.__getitem__)
    odds = network(data["features"])
    refused = 1 / (1 + np.exp(odds)) < THRESHOLD
    tenth = np.quantile(odds[answered], 0.9)
    print(f"  held out, called unanswered (confidence below {THRESHOLD}): {refused[answered].mean():.3f} answered "
          f"({answered.sum()})", flush=True)
    for case in (IN_EXCERPT, UNANSWERABLE, HIDDEN_ANSWER, ELSEWHERE, FOREIGN):
        rows = data["cases"] == case
        if rows.any():
            print(f"    {refused[rows].mean():.3f} {case} ({rows.sum()}); {(odds[rows] > tenth).mean():.3f} where a "
                  f"tenth of the answered is; AUC against them {area(odds[answered], odds[rows]):.3f}", flush=True)


def area(low: np.ndarray, high: np.ndarray) -> float:
    """The chance that one of `high` is above one of `low`, ties counting half (the area under the ROC curve)."""
    return float(((high[:, None] > low[None]) + 0.5 * (high[:, None] == low[None])).mean())
