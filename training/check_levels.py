"""Fit when a sentence is called supported and when contradicted: `python -m training.check_levels TOLD FILE`.

TOLD is what `python -m triforce_core.bench.checks FOLDER --out TOLD` wrote of documents that no training saw. Two
logistic regressions over the encoder's nats and the facts that differ say how likely a passage supports or denies a
sentence; the best of a sentence's passages counts. The edges: so that 6 % of the true statements written by hand are
called not found, and that "contradicted" is right in 85 % of its uses in answers of which one sentence in five is
false. Prints what that does to documents that were not fitted, and writes FILE.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from training.encoder_levels import FOLDS, fitted
from triforce_core.bench.checks import table
from triforce_core.evidence.support import chances, verdict_of

FALSELY, SURE = 0.06, 0.85  # share of the true sentences called not found; of the denied ones that are false
NEVER = 1.01  # an edge that no chance reaches
ROUNDS = 4  # of choosing each sentence's best passage and fitting
TRUE_TO_FALSE = 4  # true sentences for each false one in an answer, for which "contradicted" is to be right
SUPPORTED, DENIED, FACTS = 1, 2, 3  # the columns of the encoder's nats, and the first of the facts


def regression(rows: Sequence[np.ndarray], labels: np.ndarray, column: int, sign: float) -> np.ndarray:
    """Weights of `features`, of the facts only those that are of this sign: a fact that differs speaks for nothing."""
    weights = np.zeros(rows[0].shape[1])
    weights[column] = 1.0
    kept = np.ones(len(weights), bool)
    for _ in range(ROUNDS):
        best = np.stack([own[int((own @ weights).argmax())] for own in rows])
        weights = np.zeros(len(kept))
        weights[kept] = fitted(best[:, kept], labels)
        kept[FACTS:] &= weights[FACTS:] * sign >= 0
    weights[~kept] = 0.0
    return weights


def edges(supported: np.ndarray, denied: np.ndarray, labels: np.ndarray, whole: np.ndarray) -> np.ndarray:
    """fp32 [2], from the chances of sentences. whole: those that stand by themselves, as a chat model's do."""
    first = float(np.quantile(supported[(labels == 0) & whole], FALSELY))
    missed = supported < first
    counted = np.where(labels == 0, TRUE_TO_FALSE * (labels > 0).sum() / (labels == 0).sum(), 1.0)[missed]
    order = np.argsort(-denied[missed])
    right = np.cumsum((counted * (labels[missed] >= 2))[order]) / np.cumsum(counted[order])
    enough = np.flatnonzero(right >= SURE)
    second = float(denied[missed][order][enough[-1]]) if len(enough) else NEVER
    return np.array([first, second], np.float32)


def fit(told: Sequence[dict]) -> tuple[np.ndarray, np.ndarray]:
    """(weights [2, features], edges [2]) of these sentences."""
    rows = [np.array(one["features"]) for one in told]
    labels = np.array([one["label"] for one in told])
    weights = np.stack([regression(rows, labels == 0, SUPPORTED, -1.0), regression(rows, labels >= 2, DENIED, 1.0)])
    made = np.array([chances(own, weights).max(1) for own in rows])
    whole = np.array([one["kind"] == "hand true" for one in told])
    return weights.astype(np.float32), edges(made[:, 0], made[:, 1], labels, whole)


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("told", type=Path, nargs="+")
    parser.add_argument("file", type=Path)
    options = parser.parse_args()
    told = [json.loads(line) for file in options.told for line in file.read_text(encoding="utf-8").splitlines()]
    documents = sorted({one["doc"] for one in told})
    for fold in range(FOLDS):
        unseen = set(documents[fold::FOLDS])
        weights, found = fit([one for one in told if one["doc"] not in unseen])
        for one in told:
            if one["doc"] in unseen:
                one["verdict"], one["chance"], _ = verdict_of(np.array(one["features"]), weights, found)
    print(table(told))
    weights, found = fit(told)
    np.savez(options.file, weights=weights, edges=found)
    print({"weights": weights.round(2).tolist(), "edges": found.round(3).tolist()})


if __name__ == "__main__":
    main()
