"""Steps of the training of `training.encoder`: which rows are read together, and what is right about them."""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import IterableDataset, get_worker_info

from training.mpnet import BEGIN, END, PAD

QUESTION, PATH, LONGEST, BEFORE = 40, 36, 224, 24  # pieces: of a question, of the headings, of a row, of the one before
CANDIDATES, MOST_RIGHT, ALONE = 16, 2, 4  # passages of a question; of them right; wrong ones that vectors are made of
CHECKS = 224  # claims in a step
EASIER = 12.0  # places in the order of candidates: so much further down, e times rarer
HIDDEN = 0.12  # share of the questions whose answer is not among the passages
ASKED = 0.6  # share of the claims that are read with their question
ROUND_TO = 16  # rows are filled up to a multiple
HAND = 0.2  # share of the claims that people wrote
LABELS = ((0, 0.45), (1, 0.27), (2, 0.28))  # share of the claims that are supported, absent, contradicted


@dataclass
class Group:
    """ids: int32 [rows, length]; rows: their numbers in the step; marks: int8 [rows, length], -1: not asked."""

    ids: Tensor
    rows: Tensor
    marks: Tensor


@dataclass
class Step:
    """Rows first of questions with passages, then of questions, of passages alone, of claims.

    counts: passages of each question; right: how many come first; alone: passages read alone of each question, right
    ones first; labels: of the claims."""

    groups: list[Group]
    counts: list[int]
    right: list[int]
    alone: list[int]
    alone_right: list[int]
    labels: Tensor


class Data:
    """What `training.encoder_data` wrote."""

    def __init__(self, file: Path) -> None:
        self.held: dict[str, Any] = pickle.loads(file.read_bytes())
        self.pieces: list[str] = self.held["pieces"]
        self._tokens, self._ends = self.held["tokens"], self.held["ends"].astype(np.int64)
        self._flat, self._starts = self.held["passages"]
        self.kinds: list[str] = self.held["kinds"]

    def text(self, number: int) -> np.ndarray:
        return self._tokens[self._ends[number] : self._ends[number + 1]]

    def column(self, name: str, number: int) -> np.ndarray:
        """One of a question's lists."""
        flat, ends = self.held[name]
        return flat[ends[number] : ends[number + 1]]

    def passage(self, number: int) -> tuple[np.ndarray, list[np.ndarray]]:
        """(headings, sentences) in pieces."""
        row = self._flat[self._starts[number] : self._starts[number + 1]]
        return self.text(row[0])[:PATH], [self.text(sentence) for sentence in row[1:]]

    def question(self, number: int) -> np.ndarray:
        """The end of the question before it, then the question."""
        before, own = self.held["before"][number], self.text(self.held["question"][number])[:QUESTION]
        return np.concatenate((self.text(before)[-BEFORE:], own)) if before >= 0 else own

    def row(self, asked: Sequence[np.ndarray], passage: int, mask: int = 0) -> tuple[list[int], list[int]]:
        """As `row_of`, of a passage by its number."""
        return row_of(asked, *self.passage(passage), mask)

    def alone(self, pieces: np.ndarray) -> tuple[list[int], list[int]]:
        """A question by itself."""
        ids = [BEGIN, *pieces.tolist(), END]
        return ids, [-1] * len(ids)


def row_of(asked: Sequence[np.ndarray], path: np.ndarray, sentences: Sequence[np.ndarray],
           mask: int = 0) -> tuple[list[int], list[int]]:
    """<s> asked </s> </s> headings </s> sentences </s>, and which of the sentences' pieces are of those in the mask.

    A passage alone begins with its headings."""
    ids = [BEGIN]
    for part in asked:
        ids += [*part.tolist(), END]
    ids += [END, *path[:PATH].tolist(), END] if asked else [*path[:PATH].tolist(), END]
    marks = [-1] * len(ids)
    for place, sentence in enumerate(sentences):
        ids += sentence.tolist()
        marks += [mask >> place & 1 if mask else -1] * len(sentence)
    ids, marks = ids[: LONGEST - 1], marks[: LONGEST - 1]
    return [*ids, END], [*marks, -1]


def groups_of(rows: Sequence[tuple[list[int], list[int]]], most: int) -> list[Group]:
    """Rows of like length together, at most so many pieces in each group."""
    order = sorted(range(len(rows)), key=lambda row: len(rows[row][0]))
    groups, start = [], 0
    while start < len(order):
        end = start + 1
        while end < len(order) and (end + 1 - start) * len(rows[order[end]][0]) <= most:
            end += 1
        own = order[start:end]
        length = -(-len(rows[own[-1]][0]) // ROUND_TO) * ROUND_TO
        ids, marks = np.full((len(own), length), PAD, np.int32), np.full((len(own), length), -1, np.int8)
        for place, row in enumerate(own):
            ids[place, : len(rows[row][0])], marks[place, : len(rows[row][1])] = rows[row]
        groups.append(Group(torch.from_numpy(ids), torch.tensor(own), torch.from_numpy(marks)))
        start = end
    return groups


class Steps(IterableDataset):
    """Steps without end, each worker its own."""

    def __init__(self, data: Data, size: int, claims: int, most: int, seed: int) -> None:
        self._data, self._most, self._seed = data, most, seed
        self._size, self._claims = size, claims
        held = data.held
        self._train = np.flatnonzero(~held["held"])
        unseen = {number for number, (_, one) in enumerate(held["documents"]) if one}
        checks = held["checks"]
        kept = ~np.isin(checks[:, 5], sorted(unseen)) & ~np.array([data.kinds[one].startswith("held")
                                                                   for one in checks[:, 4]])
        self._checks = checks[kept]
        hand = np.array(["hand" in data.kinds[one] for one in self._checks[:, 4]])
        labels = np.where(self._checks[:, 3] == 3, 1, self._checks[:, 3])
        odds = np.zeros(len(labels))
        for label, share in LABELS:
            for own, part in ((hand, HAND), (~hand, 1 - HAND)):
                odds[(labels == label) & own] = share * part / max(1, ((labels == label) & own).sum())
        self._odds = np.cumsum(odds / odds.sum())

    def __iter__(self) -> Iterator[Step]:
        worker = get_worker_info()
        chance = np.random.default_rng((self._seed, worker.id if worker else 0))
        weights = self._data.held["weight"][self._train]
        while True:
            drawn = chance.choice(self._train, self._size, p=weights / weights.sum())
            yield self.step(drawn, chance)

    def step(self, drawn: np.ndarray, chance: np.random.Generator) -> Step:
        data = self._data
        pairs: list = []
        asked: list = []
        alone: list = []
        counts, rights, alones, alone_right = [], [], [], []
        for number in drawn:
            right, others, marks = (data.column(name, number) for name in ("right", "others", "marks"))
            question = data.question(number)
            order = chance.permutation(len(right))[:MOST_RIGHT]
            hide = len(right) and chance.random() < HIDDEN
            picked = [] if hide else [(right[at], int(marks[at])) for at in order]
            odds = np.exp(-np.arange(len(others)) / EASIER)
            count = min(CANDIDATES - len(picked), len(others))
            wrong = others[chance.choice(len(others), count, False, odds / odds.sum())] if count else []
            pairs += [data.row([question], at, mask) for at, mask in (*picked, *((at, 0) for at in wrong))]
            counts.append(len(picked) + count)
            rights.append(len(picked))
            near = [*(at for at, _ in picked), *wrong[:ALONE]] if picked else []
            alone += [data.row([], at) for at in near]
            alones.append(len(near))
            alone_right.append(len(picked))
            asked.append(data.alone(question))
        places = np.searchsorted(self._odds, chance.random(self._claims))
        claims = self._checks[np.minimum(places, len(self._checks) - 1)]
        checked = [data.row(claim_of(data, claim, chance.random() < ASKED), claim[2]) for claim in claims]
        return Step(groups_of([*pairs, *asked, *alone, *checked], self._most), counts, rights, alones, alone_right,
                    torch.from_numpy(claims[:, 3].astype(np.int64)))


def claim_of(data: Data, claim: np.ndarray, with_question: bool) -> list[np.ndarray]:
    """What stands before the passage: the claim, then its question or nothing, so that two marks follow one another."""
    asked = data.text(claim[1])[:QUESTION] if with_question else np.zeros(0, np.uint16)
    return [data.text(claim[0])[:96], asked]
