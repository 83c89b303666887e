"""The weights of digests: which sentences people quoted when asked what a document, or a section of it, is about."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from training.networks import Layers, standard
from training.question_sets import AskedDocument, Places, Query, by_document, held_out, read_lines, split, texts_of
from training.sentence_network import index_of
from triforce_core.evidence.answering import chosen, finished, quotable, scope_of, summary_features
from triforce_core.evidence.ranking import Network
from triforce_core.evidence.sentence_index import SentenceIndex

WHOLE, SECTION = "whole", "section"
KINDS = ("about", "main-points")
LONGEST_TEXT = 250_000  # characters
EVERY = 5  # document is held out: there are few
STEPS, RATE, DECAY = 150, 0.03, 1e-3
QUOTED = 5  # sentences of a digest


@dataclass(frozen=True, eq=False)
class Digest:
    """features [sentences, features]; allowed: bool [sentences], what may be quoted; golds: what people quoted."""

    name: str
    index: SentenceIndex
    features: np.ndarray
    allowed: np.ndarray
    golds: list[int]


def digest_documents(corpus: Path, questions: Path, without: Collection[str], limit: int | None) -> list[AskedDocument]:
    """The documents of `multi-train.jsonl` that were summed up. Of a repeated sentence the first place counts."""
    records = (record for record in read_lines(questions / "multi-train.jsonl") if record["type"] in KINDS)
    asked = by_document(records, without, limit)
    documents = []
    for name, text in texts_of(corpus, asked).items():
        if len(text) > LONGEST_TEXT:
            continue
        sentences, lines, _ = split(text)
        places = Places(sentences)
        queries = []
        for record in asked[name]:
            golds = tuple(found[0] for quoted in record["gold"] for found in places.exact(quoted))
            if len(golds) > 1:
                queries.append(Query(record["question"], "", golds, SECTION if record.get("scope") else WHOLE))
        if queries:
            documents.append(AskedDocument(name, sentences, lines, queries))
    return documents


def digests(document: AskedDocument, vectors: Path) -> list[Digest]:
    """Those whose section, if they are of one, the application finds by the question."""
    index = index_of(document, vectors)
    found = []
    for query in document.queries:
        scope = scope_of(index, query.text) if query.kind == SECTION else np.ones(index.size, bool)
        allowed = quotable(index) & finished(index) & scope
        if query.kind == WHOLE or not scope.all():
            found.append(Digest(document.name, index, summary_features(index, scope), allowed, list(query.golds)))
    return found


def recall(digests: Sequence[Digest], network: Network) -> float:
    """The share of quoted sentences that a digest of QUOTED ones holds."""
    taken = sum(len({*chosen(one.index, network(one.features), one.allowed, QUOTED)} & {*one.golds}) for one in digests)
    return taken / max(1, sum(len(one.golds) for one in digests))


def fit(data: Sequence[Digest], seed: int) -> Network:
    """A linear score, by the likelihood of the quoted sentences among all that may be. Prints the recall."""
    unseen = held_out((one.name for one in data), EVERY)
    learnt = [one for one in data if one.name not in unseen]
    torch.manual_seed(seed)
    net = Layers(*standard(np.concatenate([one.features for one in learnt])), ())
    torch.nn.init.zeros_(net.layers[0].weight)
    torch.nn.init.zeros_(net.layers[0].bias)
    weights = net.layers[0].weight
    optimiser = torch.optim.Adam([weights], lr=RATE)  # a bias would move all sentences alike
    inputs = [(torch.from_numpy(one.features), torch.from_numpy(one.allowed), golds) for one in learnt
              if (golds := [gold for gold in one.golds if one.allowed[gold]])]
    for _ in range(STEPS):
        nats = [-net(features).masked_fill(~allowed, -1e9).log_softmax(0)[golds].mean()
                for features, allowed, golds in inputs]
        loss = torch.stack(nats).mean() + DECAY * (weights**2).sum()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    network = net.network()
    left = [one for one in data if one.name in unseen]
    print(f"  digests: loss {float(loss.detach()):.3f}; quoted sentences found: {recall(learnt, network):.3f} of "
          f"{len(learnt)} digests, {recall(left, network):.3f} of {len(left)} held out", flush=True)
    return network
