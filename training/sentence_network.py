"""The network that scores sentences as answers: listwise, the right sentence against others of its document.

Fitted twice: against sentences that look like an answer by their words, then against those that the first network took
for one."""

from __future__ import annotations

import time
from functools import lru_cache
from pathlib import Path
from random import Random

import numpy as np
import torch
from torch import Tensor

from training.networks import Layers, descend, merged, standard
from training.question_sets import ARTICLE, AskedDocument, Query, report
from triforce_core.evidence.question import points_back
from triforce_core.evidence.ranking import Network
from triforce_core.evidence.sentence_index import SentenceIndex
from triforce_core.evidence.vectors import WordVectors

CANDIDATES, MINED_CANDIDATES = 64, 128  # sentences of a document that stand for all of it
HARD_NATURAL, HARD_ARTICLE = 48, 32  # of them those that look most like an answer; the rest is drawn
MINED = 64  # and those that the first network likes best
MOST_OF_ARTICLE = 120  # questions, so that a long article does not outweigh the others
# Columns of `SentenceIndex.features` that find them, and their weights: how much of the question's words (each by how
# rare it is in the document, then in English) the sentence holds, and its line; how near their mean vectors are; and
# how near what they are about is.
HARD_BY = {4: 1.0, 5: 1.0, 7: 0.5, 20: 1.0, -8: 1.0}
NATURAL_WEIGHT = 3.0  # of a natural question against a written one
HIDDEN, DROPPED, BATCH, EPOCHS = (128, 64), 0.2, 128, 9
HIGHEST_RATE = 5e-3
SEEDS, FIRST_SEEDS = 3, 1  # networks whose mean is the prior, and the one that finds hard sentences for it


@lru_cache(maxsize=1)
def _vectors(file: Path) -> WordVectors:
    return WordVectors.load(file)


def index_of(document: AskedDocument, vectors: Path) -> SentenceIndex:
    """Its index, with the word vectors of that file."""
    return SentenceIndex(document.sentences, document.lines, _vectors(vectors))


def before_of(query: Query) -> str:
    """The question before, where this one needs it, as `Answering` decides."""
    return query.before if points_back(query.text) else ""


def picked(features: np.ndarray, golds: tuple[int, ...], hard: int, most: int, chance: Random,
           first: Network | None) -> list[int]:
    """Up to ``most`` sentences, the golds first."""
    size = len(features)
    alike = sum(weight * features[:, column] for column, weight in HARD_BY.items())
    hardest = np.argsort(-alike, kind="stable")[:hard].tolist()
    mined = [] if first is None else np.argsort(-first(features), kind="stable")[:MINED].tolist()
    drawn = chance.sample(range(size), min(size, most))
    return list(dict.fromkeys([*golds, *mined, *hardest, *drawn]))[:most]


def candidates(document: AskedDocument, vectors: Path, first: Network | None) -> dict[str, np.ndarray]:
    """Of each question with an answer: features [n, candidates, features] float16, golds bool and here bool (whether
    there is such a candidate) [n, candidates], kinds and names [n]. Nothing if there is no such question."""
    chance, natural = document.chance(), document.natural
    queries = [query for query in document.queries if query.golds]
    if not natural:
        queries = chance.sample(queries, min(len(queries), MOST_OF_ARTICLE))
    if not queries:
        return {}
    index = index_of(document, vectors)
    features: list[np.ndarray] = []
    most = CANDIDATES if first is None else MINED_CANDIDATES
    golds, here = np.zeros((2, len(queries), most), bool)
    for row, query in enumerate(queries):
        fits = index.features(query.text, before_of(query))
        kept = picked(fits, query.golds, HARD_NATURAL if natural else HARD_ARTICLE, most, chance, first)
        features.append(np.zeros((most, fits.shape[1]), np.float16))
        features[row][: len(kept)] = fits[kept]
        golds[row, : len(kept)] = np.isin(kept, query.golds)
        here[row, : len(kept)] = True
    return {"features": np.stack(features), "golds": golds, "here": here,
            "kinds": np.array([query.kind for query in queries]), "names": np.full(len(queries), document.name)}


def fit(data: dict[str, np.ndarray], unseen: set[str], seeds: int = SEEDS) -> Network:
    """The mean of networks with different seeds, fitted on all questions but those of unseen documents.
    Prints how often it puts a right sentence of theirs first."""
    learnt = ~np.isin(data["names"], sorted(unseen))
    features, golds, here = (torch.from_numpy(data[name][learnt]) for name in ("features", "golds", "here"))
    weights = torch.from_numpy(np.where(data["kinds"][learnt] == ARTICLE, 1.0, NATURAL_WEIGHT).astype(np.float32))
    mean, std = standard(features[::9][here[::9]].numpy())
    networks = []
    for seed in range(seeds):
        started = time.time()
        torch.manual_seed(seed)
        net = Layers(mean, std, HIDDEN, DROPPED)

        def loss(rows: Tensor, net: Layers = net) -> Tensor:
            shares = net(features[rows].float()).masked_fill(~here[rows], -1e9).log_softmax(-1)
            right = shares.masked_fill(~golds[rows], -1e9).logsumexp(-1)
            return -(right * weights[rows]).sum() / weights[rows].sum()

        optimiser = torch.optim.AdamW(net.parameters(), weight_decay=1e-3)
        rates = torch.optim.lr_scheduler.OneCycleLR(optimiser, HIGHEST_RATE, epochs=EPOCHS,
                                                    steps_per_epoch=-(-len(features) // BATCH))
        last = descend(net, len(features), BATCH, EPOCHS, loss, optimiser, rates)
        networks.append(net.network())
        print(f"  sentence network {seed}: loss {last:.3f}, {time.time() - started:.0f} s", flush=True)
    network = merged(networks)
    _measure(network, {name: data[name][~learnt] for name in ("features", "golds", "here", "kinds")})
    return network


def _measure(network: Network, data: dict[str, np.ndarray]) -> None:
    size, most, width = data["features"].shape
    if not size:
        return
    scores = network(data["features"].reshape(-1, width).astype(np.float32)).reshape(size, most)
    best = np.argsort(-np.where(data["here"], scores, -np.inf), axis=1, kind="stable")[:, :3]
    right = np.take_along_axis(data["golds"], best, 1)
    report(f"  held out, right first / in three, of {most} candidates", data["kinds"].tolist(),
           lambda row: (bool(right[row, 0]), bool(right[row].any())))
