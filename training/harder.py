"""Candidates that an encoder itself takes for answers: what its vectors find nearest in the whole document."""

from __future__ import annotations

import itertools

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from training.encoder_rows import Data, Group, groups_of
from training.mpnet import Encoder

NEAREST, BEYOND = 24, 0.06  # so many by vectors; so much nearer than the right one: likely right too, left out
MOST = 48_000  # pieces at once


class _Documents(Dataset):
    """For each document its questions, and the rows of its passages followed by those of its questions."""

    def __init__(self, data: Data) -> None:
        self._data = data
        unseen, document = data.held["held"], data.held["document"]
        self._asked = [(number, np.flatnonzero((document == number) & ~unseen)) for number in data.held["passages_of"]]

    def __len__(self) -> int:
        return len(self._asked)

    def __getitem__(self, place: int) -> tuple[int, np.ndarray, list[Group]]:
        number, asked = self._asked[place]
        rows = [self._data.row([], at) for at in self._data.held["passages_of"][number]] if len(asked) else []
        return number, asked, groups_of([*rows, *(self._data.alone(self._data.question(one)) for one in asked)], MOST)


@torch.inference_mode()
def harder(data: Data, net: Encoder, device: str, workers: int) -> None:
    """Put the nearest passages of its document among each question's candidates, in turns with those by words."""
    flat, ends = data.held["others"]
    others = [flat[start:end] for start, end in itertools.pairwise(ends)]
    beaten = 0
    for number, asked, groups in DataLoader(_Documents(data), batch_size=None, num_workers=workers):
        if not len(asked):
            continue
        vectors: list[Tensor] = [net.read(group.ids.to(device).long()).means() for group in groups]
        order = torch.cat([group.rows for group in groups]).argsort().to(device)
        both = torch.cat(vectors)[order]
        own = data.held["passages_of"][number]
        near = (both[len(own) :] @ both[: len(own)].T).float().cpu().numpy()
        known = {int(at): text for text, at in zip((_words(data, at) for at in own), own, strict=True)}
        for one, likeness in zip(asked, near, strict=True):
            right = set(data.column("right", one).tolist())
            texts = {known[at] for at in right if at in known}
            best = max(likeness[np.isin(own, list(right))], default=2.0)
            nearest = [at for at in np.argsort(-likeness).tolist()[: 2 * NEAREST] if likeness[at] < best + BEYOND
                       and int(own[at]) not in right and known[int(own[at])] not in texts]
            beaten += bool(nearest) and bool(likeness[nearest[0]] > best)
            found = [int(own[at]) for at in nearest[:NEAREST]]
            mixed = itertools.chain(*itertools.zip_longest(found, others[one].tolist()))
            others[one] = np.array(list(dict.fromkeys(at for at in mixed if at is not None)), np.uint32)
    print(f"{beaten} questions have a wrong passage nearer than the right one", flush=True)
    data.held["others"] = (np.concatenate(others), np.cumsum([0, *map(len, others)]).astype(np.uint32))


def _words(data: Data, number: int) -> bytes:
    """A passage without its headings."""
    return b"".join(sentence.tobytes() for sentence in data.passage(int(number))[1])
