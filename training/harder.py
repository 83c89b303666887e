"""Candidates that an encoder itself takes for answers: what its vectors find nearest in the whole document.

False claims are set beside what is nearest to them as well, as the application judges a sentence."""

from __future__ import annotations

import itertools

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from training.claims import KINDS
from training.encoder_rows import Data, Group, groups_of
from training.mpnet import Encoder

NEAREST, BEYOND = 24, 0.06  # so many by vectors; so much nearer than the right one: likely right too, left out
MOST = 48_000  # pieces at once
CLAIMS, BESIDE = 160, 6  # false claims of a document; passages nearest to one, two of which are drawn
NOT_SUPPORTED = 3  # the label


class _Documents(Dataset):
    """For each document its questions, its false claims, and the rows of its passages, of the questions and of the
    claims, one after the other."""

    def __init__(self, data: Data) -> None:
        self._data = data
        unseen, document, checks = data.held["held"], data.held["document"], data.held["checks"]
        false = np.array([any(kind == f"{by} {one}" for by in ("check", "hand") for one in KINDS)
                          for kind in data.kinds])[checks[:, 4]] & (checks[:, 3] != 0)
        self._asked = [(number, np.flatnonzero((document == number) & ~unseen),
                        np.flatnonzero((checks[:, 5] == number) & false)) for number in data.held["passages_of"]]

    def __len__(self) -> int:
        return len(self._asked)

    def __getitem__(self, place: int) -> tuple[int, np.ndarray, np.ndarray, list[Group]]:
        number, asked, claims = self._asked[place]
        if not len(asked):
            return number, asked, claims, []
        claims = np.random.default_rng(number).permutation(claims)[:CLAIMS]
        data = self._data
        rows = [data.row([], at) for at in data.held["passages_of"][number]]
        rows += [data.alone(data.question(one)) for one in asked]
        rows += [data.alone(data.text(one)[:96]) for one in data.held["checks"][claims, 0]]
        return number, asked, claims, groups_of(rows, MOST)


@torch.inference_mode()
def harder(data: Data, net: Encoder, device: str, workers: int) -> None:
    """Put the nearest passages of its document among each question's candidates, in turns with those by words, and
    false claims beside passages that are near them."""
    flat, ends = data.held["others"]
    others = [flat[start:end] for start, end in itertools.pairwise(ends)]
    beaten = 0
    beside: list[np.ndarray] = []
    data.kinds.append("check beside")
    for number, asked, claims, groups in DataLoader(_Documents(data), batch_size=None, num_workers=workers):
        if not len(asked):
            continue
        vectors: list[Tensor] = [net.read(group.ids.to(device).long()).means() for group in groups]
        order = torch.cat([group.rows for group in groups]).argsort().to(device)
        own = data.held["passages_of"][number]
        near = torch.cat(vectors)[order]
        near = (near[len(own) :] @ near[: len(own)].T).float().cpu().numpy()
        known = {int(at): text for text, at in zip((_words(data, at) for at in own), own, strict=True)}
        for one, likeness in zip(asked, near, strict=False):
            right = set(data.column("right", one).tolist())
            texts = {known[at] for at in right if at in known}
            best = max(likeness[np.isin(own, list(right))], default=2.0)
            nearest = [at for at in np.argsort(-likeness).tolist()[: 2 * NEAREST] if likeness[at] < best + BEYOND
                       and int(own[at]) not in right and known[int(own[at])] not in texts]
            beaten += bool(nearest) and bool(likeness[nearest[0]] > best)
            found = [int(own[at]) for at in nearest[:NEAREST]]
            mixed = itertools.chain(*itertools.zip_longest(found, others[one].tolist()))
            others[one] = np.array(list(dict.fromkeys(at for at in mixed if at is not None)), np.uint32)
        beside += _beside(data, claims, own, near[len(asked) :])
    print(f"{beaten} questions have a wrong passage nearer than the right one, {len(beside)} more claims", flush=True)
    data.held["others"] = (np.concatenate(others), np.cumsum([0, *map(len, others)]).astype(np.uint32))
    data.held["checks"] = np.concatenate((data.held["checks"], np.array(beside, np.int32)))


def _beside(data: Data, claims: np.ndarray, own: np.ndarray, likeness: np.ndarray) -> list[np.ndarray]:
    """Rows of claims, each with two of the passages nearest to it, which support it no more than its own."""
    chance = np.random.default_rng(len(claims))
    rows = []
    for claim, near in zip(data.held["checks"][claims], likeness, strict=True):
        nearest = np.argsort(-near)[:BESIDE]
        for at in chance.permutation(nearest)[:2]:
            row = claim.copy()
            row[2:5] = own[at], NOT_SUPPORTED, len(data.kinds) - 1
            rows.append(row)
    return rows


def _words(data: Data, number: int) -> bytes:
    """A passage without its headings."""
    return b"".join(sentence.tobytes() for sentence in data.passage(int(number))[1])
