"""Processes that make batches ahead of the training step."""

from __future__ import annotations

import contextlib
import multiprocessing as mp
import queue
import time
import traceback
from collections.abc import Sequence
from multiprocessing.sharedctypes import Synchronized
from pathlib import Path
from random import Random

import numpy as np
import torch

from training.rows import RowKind, RowMaker

Batch = tuple[np.ndarray, np.ndarray, np.ndarray]


def _work(
    folder: Path, tokenizer: str, seed: int, kinds: Sequence[RowKind], queues: Sequence, wanted: Synchronized
) -> None:
    """Fills the queues of the kinds that are wanted: `wanted` is a set of bits."""
    torch.set_num_threads(1)
    maker, chance, mistakes = RowMaker(folder, tokenizer, seed), Random(seed), 0
    while True:
        bits = wanted.value
        if bits == 0:
            return
        index = min((i for i in range(len(kinds)) if bits >> i & 1), key=lambda i: (queues[i].qsize(), chance.random()))
        if queues[index].full():
            time.sleep(0.01)
            continue
        try:
            batch = maker.batch(kinds[index])
        except Exception:
            mistakes += 1
            if mistakes < 4:
                traceback.print_exc()
            continue
        with contextlib.suppress(queue.Full):  # others filled it meanwhile
            queues[index].put(batch, timeout=0.5)


class Loader:
    """Batches by kind."""

    def __init__(self, folder: Path, tokenizer: str, kinds: dict[str, RowKind], seed: int, workers: int) -> None:
        context = mp.get_context("fork")
        self.names = list(kinds)
        self.queues = [context.Queue(12) for _ in kinds]
        self.wanted = context.Value("i", 1)
        shared = (list(kinds.values()), self.queues, self.wanted)
        self.processes = [
            context.Process(target=_work, args=(folder, tokenizer, seed * 1000 + k, *shared), daemon=True)
            for k in range(workers)
        ]
        for process in self.processes:
            process.start()

    def want(self, names: Sequence[str]) -> None:
        """Says which kinds are needed from now on."""
        self.wanted.value = sum(1 << self.names.index(name) for name in set(names))

    def get(self, name: str) -> Batch:
        """The next batch of a kind."""
        return self.queues[self.names.index(name)].get(timeout=180)

    def close(self) -> None:
        """Ends the processes."""
        self.wanted.value = 0
        for process in self.processes:
            process.kill()
