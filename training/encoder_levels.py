"""Fits when a passage is called found, and writes it into an encoder's file:
`python -m training.encoder_levels TOLD FILE`.

TOLD is what `training.encoder_report --told` wrote about documents that no training saw. What counts is said in
`triforce_core.evidence.levels`. The shares printed are of documents that a fit did not see, a fifth at a time.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import numpy as np

from triforce_core.evidence.levels import features

FOLDS, STEPS, PENALTY = 5, 50, 1e-2
WRONG_FOUND = 0.05  # share of the answerable questions with a wrong passage called found, at most
FALSELY_NONE = 0.05  # share of the answerable ones called not found though one of the first three answers, at most


def chances(weights: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """Of each row."""
    return 1 / (1 + np.exp(-rows @ weights))


def fitted(rows: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Weights of a logistic regression, by Newton's method."""
    weights = np.zeros(rows.shape[1])
    for _ in range(STEPS):
        chance = chances(weights, rows)
        slope = rows.T @ (chance - labels) + PENALTY * weights
        curve = (rows * (chance * (1 - chance))[:, None]).T @ rows + PENALTY * np.eye(len(weights))
        weights -= np.linalg.solve(curve, slope)
    return weights


def unseen(rows: np.ndarray, labels: np.ndarray, documents: np.ndarray) -> np.ndarray:
    """The chance of each row by a fit without its document."""
    found = np.zeros(len(rows))
    for fold in range(FOLDS):
        own = documents % FOLDS == fold
        found[own] = chances(fitted(rows[~own], labels[~own]), rows[own])
    return found


def lowest(values: np.ndarray, bad: np.ndarray, most: float) -> float:
    """The lowest edge at or above which at most so many bad ones are."""
    high = np.sort(values[bad])[::-1]
    return float(np.nextafter(high[int(most)], 2)) if len(high) > int(most) else 0.0


def levels(questions: list[dict]) -> np.ndarray:
    """fp32 [2, 7]: weights of `features` and an edge. Not found: below the second row's edge; otherwise found at or
    above the first's. Prints what that does to questions about documents that were not fitted."""
    rows = np.array([features(one["scores"], one["near"]) for one in questions])
    documents = np.array([one["document"] for one in questions])
    answers = np.array([one["answers"] for one in questions])
    first = np.array([bool(one["right"][0]) for one in questions])
    three = np.array([any(one["right"][:3]) for one in questions])
    made, told = [], []
    for labels in (first, answers):
        told.append(unseen(rows, labels, documents))
        made.append(fitted(rows, labels))
    none = float(np.quantile(told[1][three], FALSELY_NONE * answers.sum() / three.sum()))
    missing = told[1] < none
    found = lowest(told[0], answers & ~first & ~missing, WRONG_FOUND * answers.sum())
    sure = (told[0] >= found) & ~missing
    print(f"{answers.sum()} answerable: found {sure[answers].mean():.3f}, wrong and found "
          f"{(sure & ~first)[answers].mean():.3f}, called not found {missing[answers].mean():.3f}, "
          f"{(missing & three)[answers].mean():.3f} though one of three answers; {(~answers).sum()} unanswerable: "
          f"not found {missing[~answers].mean():.3f}, found {sure[~answers].mean():.3f}")
    for low, high in zip(np.arange(0, 1, 0.2), np.arange(0.2, 1.2, 0.2), strict=True):
        own = (told[0] >= low) & (told[0] < high)
        print(f"  chance {low:.1f} to {high:.1f}: {own.sum()}, right {first[own].mean() if own.any() else 0:.2f}")
    return np.array([[*made[0], found], [*made[1], none]], np.float32)


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("told", type=Path)
    parser.add_argument("file", type=Path)
    options = parser.parse_args()
    told = json.loads(options.told.read_text(encoding="utf-8"))
    made = {"levels": levels([one for one in told["questions"] if not one["kind"].startswith("table")])}
    with np.load(options.file) as stored:
        np.savez(options.file, **{**stored, **made})
    print({name: values.round(4).tolist() for name, values in made.items()})


if __name__ == "__main__":
    main()
