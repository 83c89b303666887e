"""The chance that any sentence answers: a logistic function of what the sentence network and the reranker say of those
that the application reads. Fitted on documents that the reranker did not learn from, as it knows its own too well."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
import torch.nn.functional as F

from training.networks import Layers, standard
from training.question_sets import report
from training.reranker_data import ANSWERED, ELSEWHERE, EXCERPT, FOREIGN, HIDDEN, UNANSWERABLE, Example
from triforce_core.evidence.ranking import READ, READ_COUNTS, Network, read_features

WEIGHTS = {ANSWERED: 1.0, UNANSWERABLE: 3.0, HIDDEN: 0.3, FOREIGN: 0.5, ELSEWHERE: 0.5, EXCERPT: 0.6}
DECAY, STEPS = 1e-2, 300
THRESHOLDS = (0.3, 0.35, 0.4, 0.45, 0.5)


def features(examples: Sequence[Example], read: Sequence[np.ndarray]) -> np.ndarray:
    """[examples, features] as in the application. read: what the reranker says of each one's first READ sentences."""
    rows = []
    for one, nats in zip(examples, read, strict=True):
        words = one.by_words[: len(nats)]
        scores = words + READ_COUNTS * nats
        rows.append(read_features(words, nats, scores, one.strange[int(np.argmax(scores))]))
    return np.stack(rows)


def fit(examples: Sequence[Example], read: Sequence[np.ndarray]) -> Network:
    """The log odds that a sentence answers. Prints how it tells the cases apart, at several thresholds."""
    rows, cases = features(examples, read), np.array([one.case for one in examples])
    inputs, weights = torch.from_numpy(rows), torch.tensor([WEIGHTS[case] for case in cases])
    answered = torch.from_numpy(np.isin(cases, (ANSWERED, EXCERPT)).astype(np.float32))
    torch.manual_seed(0)
    net = Layers(*standard(rows), ())
    optimiser = torch.optim.LBFGS(net.parameters(), max_iter=STEPS)

    def loss() -> torch.Tensor:
        optimiser.zero_grad()
        each = F.binary_cross_entropy_with_logits(net(inputs), answered, reduction="none")
        value = (each * weights).sum() / weights.sum() + DECAY * (net.layers[0].weight ** 2).sum()
        value.backward()
        return value

    optimiser.step(loss)
    network = net.network()
    odds = network(rows)
    print("  called unanswered at a confidence below " + ", ".join(map(str, THRESHOLDS)), flush=True)
    for case in WEIGHTS:
        of_case = odds[cases == case]
        if len(of_case):
            shares = " / ".join(f"{(of_case < np.log(one / (1 - one))).mean():.3f}" for one in THRESHOLDS)
            print(f"    {shares} {case} ({len(of_case)})", flush=True)
    return network


def measure(examples: Sequence[Example], read: Sequence[np.ndarray]) -> None:
    """Prints how often a right sentence comes first, and how well the best score tells answered questions."""
    answered = [(one, nats) for one, nats in zip(examples, read, strict=True) if one.case == ANSWERED]
    if not answered:
        return

    def right(row: int) -> tuple[bool, ...]:
        one, nats = answered[row]
        words = one.by_words[: len(nats)]
        return tuple(bool(one.golds[np.argmax(scores)]) for scores in (words, nats, words + READ_COUNTS * nats))

    report(f"  held out, right first of {READ} by words / read / both", [one.kind for one, _ in answered], right)
    high = np.array([nats.max() for _, nats in answered])
    for case in (UNANSWERABLE, HIDDEN, ELSEWHERE, FOREIGN):
        low = np.array([nats.max() for one, nats in zip(examples, read, strict=True) if one.case == case])
        if len(low):
            print(f"    {case} ({len(low)}): AUC {area(low, high):.3f}, {(low < np.quantile(high, 0.1)).mean():.3f} "
                  "where a tenth of the answered is", flush=True)


def area(low: np.ndarray, high: np.ndarray) -> float:
    """The chance that one of `high` is above one of `low`, ties counting half (the area under the ROC curve)."""
    return float(((high[:, None] > low[None]) + 0.5 * (high[:, None] == low[None])).mean())
