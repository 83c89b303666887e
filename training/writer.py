"""Trains the built-in writer: `torchrun --nproc-per-node N -m training.writer STAGE --help`.

STAGE `heal` begins with SmolLM2-135M-Instruct, drops layers and learns to be the whole model again; `long` reads rows
of up to 65,536 tokens; `tune` answers questions about passages. Each takes what the one before wrote.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from random import Random

import numpy as np
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

from training.optimiser import Optimiser
from training.place import Place
from training.schedule import rate_factor
from training.writer_model import Writer, block, fewer, from_gguf, load, save
from training.writer_rows import Kind, RowMaker

STARTED = time.time()
THETA, LAYERS = 5_000_000.0, 20
LIKE_TEACHER = 0.6  # of the loss: divergence from the whole model, beside the text itself
STEP, SMALL = 65_536, 16_384
TEXT = (("text", 1.0),)
TURNS = (("words", 0.3), ("span", 0.45), ("summary", 0.05), ("quote", 0.2))
LATE = (("words", 0.72), ("span", 0.12), ("summary", 0.1), ("quote", 0.06))
# Kinds of steps in turn.
STAGES = {
    "heal": (Kind(STEP, 4096, TEXT),) * 6 + (Kind(STEP, 4096, TURNS, document=0.5, least=512),),
    "long": (Kind(STEP, 65_536, (("text", 0.3), ("quote", 0.7)), reach=0.3),
             Kind(STEP, 32_768, (("text", 0.2), ("quote", 0.4), ("span", 0.4)), document=1.0, least=8192, reach=0.3),
             Kind(STEP, 65_536, (("text", 0.5), ("quote", 0.5)), reach=0.3),
             Kind(STEP, 4096, (("text", 0.5), ("span", 0.4), ("quote", 0.1)), document=0.5, reach=0.3)),
    "tune": (Kind(SMALL, 4096, LATE, document=0.3, least=512),
             Kind(SMALL, 4096, TEXT),
             Kind(SMALL, 4096, LATE, document=0.0),
             Kind(SMALL, 16_384, LATE, document=0.6, least=2048, reach=0.3)),
}

CHECKED = {
    "words": Kind(SMALL, 4096, (("words", 1.0),)),
    "with document": Kind(SMALL, 8192, (("words", 1.0),), document=1.0, least=2048),
    "summary": Kind(SMALL, 4096, (("summary", 1.0),)),
    "quote 4k": Kind(SMALL, 4096, (("quote", 1.0),)),
    "quote 16k": Kind(SMALL, 16_384, (("quote", 1.0),)),
    "quote 64k": Kind(STEP, 65_536, (("quote", 1.0),)),
}


def log(*words: object) -> None:
    """A line with the time since the start."""
    print(f"[{time.time() - STARTED:6.0f}]", *words, flush=True)


class Steps(IterableDataset):
    """Steps of one kind without end, by a row maker for each process."""

    def __init__(self, maker: RowMaker, kind: Kind, seed: int) -> None:
        self.maker, self.kind, self.seed = maker, kind, seed

    def __iter__(self) -> Iterator[tuple]:
        worker = get_worker_info()
        self.maker.chance = Random(self.seed * 1000 + (worker.id if worker else 0))
        while True:
            yield self.maker.step(self.kind)


@dataclass
class Step:
    """On the device: what is read, where rows end, and what counts."""

    ids: Tensor
    positions: Tensor
    ends: Tensor
    chosen: Tensor  # places whose next token counts
    wanted: Tensor
    weights: Tensor
    part: int  # of the chosen, whose loss is computed at once


def on_device(made: tuple, kind: Kind, device: torch.device) -> Step:
    """A step as tensors of fixed sizes, but for the number of tokens that count, which is a multiple of 2,048."""
    ids, weights, positions, ends = map(np.asarray, made)
    ends = ends[:-1][: kind.size // 64]
    ends = np.concatenate(([0], ends, [kind.size] * (kind.size // 64 + 1 - len(ends))))
    chosen = np.flatnonzero(weights[1:])
    part = 8192 if len(chosen) > kind.size // 2 else 2048
    filled = np.zeros(-(-max(1, len(chosen)) // part) * part, np.int64)
    filled[: len(chosen)] = chosen
    counted = np.where(np.arange(len(filled)) < len(chosen), weights[filled + 1], 0)

    def moved(values: np.ndarray, kind: str) -> Tensor:
        return torch.from_numpy(values.astype(kind)).to(device, non_blocking=True)

    return Step(moved(ids, "int64"), moved(positions, "int64"), moved(ends, "int32"), moved(filled, "int64"),
                moved(ids[filled + 1], "int64"), moved(counted, "float32"), part)


def part_loss(x: Tensor, embedding: Tensor, wanted: Tensor, weights: Tensor, taught: Tensor | None) -> Tensor:
    """(loss, cross-entropy) summed over some tokens. taught: the whole model's last output, or nothing."""
    logits = F.linear(x, embedding).float()
    plain = F.cross_entropy(logits, wanted, reduction="none")
    loss = plain
    if taught is not None:
        told = F.linear(taught, embedding).float().log_softmax(-1)
        away = (told.exp() * (told - logits.log_softmax(-1))).sum(-1)
        loss = LIKE_TEACHER * away + (1 - LIKE_TEACHER) * plain
    return torch.stack(((loss * weights).sum(), (plain * weights).sum()))


def losses(model: Writer, step: Step, longest: int, teacher: Writer | None, part: object) -> tuple[Tensor, Tensor]:
    """(loss, cross-entropy) in the mean of the tokens that count."""
    x = model.read(step.ids, step.positions, step.ends, longest)
    taught = None
    if teacher is not None:
        with torch.no_grad():
            taught = teacher.read(step.ids, step.positions, step.ends, longest)
    total = torch.zeros(2, device=x.device)
    for start in range(0, len(step.chosen), step.part):
        own = slice(start, start + step.part)
        at = step.chosen[own]
        total = total + checkpoint(part, x[at], model.embedding, step.wanted[own], step.weights[own],
                                   taught[at] if taught is not None else None, use_reentrant=False)
    total = total / step.weights.sum().clamp(min=1)
    return total[0], total[1].detach()


@torch.no_grad()
def kept_layers(model: Writer, step: Step, longest: int, count: int) -> list[int]:
    """The layers that change their input most (arXiv 2403.03853), the first two and the last two among them, never two
    dropped side by side but where too few would go otherwise."""
    away = [1 - float(F.cosine_similarity(before.float(), x.float(), dim=-1).mean())
            for before, x in pairwise(model.stream(step.ids, step.positions, step.ends, longest))]
    log("change by layer", " ".join(f"{one:.3f}" for one in away))
    dropped: set[int] = set()
    for apart in (True, False):
        for number in sorted(range(2, model.shape.layers - 2), key=lambda one: away[one]):
            beside = apart and {number - 1, number + 1} & dropped
            if len(dropped) < model.shape.layers - count and number not in dropped and not beside:
                dropped.add(number)
    return [number for number in range(model.shape.layers) if number not in dropped]


@torch.no_grad()
def check(model: Writer, data: Path, held: RowMaker, device: torch.device, part: object) -> str:
    """Losses on what no training saw: answers, look-ups, and books in nats a byte."""
    told = []
    for name, kind in CHECKED.items():
        held.chance = Random(11)
        steps = [on_device(held.step(kind), kind, device) for _ in range(6 if name == "words" else 3)]
        told.append(f"{name} {np.mean([float(losses(model, step, kind.row, None, part)[1]) for step in steps]):.3f}")
    with np.load(data / "unread.npz") as unread:
        books, size = unread["ids"].astype(np.int64), float(unread["bytes"].sum())
    for length in (2048, 16_384):
        flat, found = books.reshape(-1, length), 0.0
        rows = STEP // length
        for start in range(0, len(flat) // rows * rows, rows):
            ids = flat[start : start + rows].ravel()
            kind = Kind(STEP, length, TEXT)
            starts = np.tile(np.arange(length) > 0, rows).astype(np.float32)
            made = ids, starts, np.tile(np.arange(length), rows), np.arange(1, rows + 1) * length
            step = on_device(made, kind, device)
            found += float(losses(model, step, length, None, part)[1]) * float(step.weights.sum())
        share = len(flat) // rows * rows * length / books.size
        told.append(f"books {length}: {found / size / share:.4f} nats a byte")
    return ", ".join(told)


# large: one training run, in order
def train(options: argparse.Namespace) -> None:
    """One stage."""
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    kinds, rank = STAGES[options.stage], int(os.environ.get("RANK", 0))
    maker = RowMaker(options.data, str(options.tokenizer), options.seed)
    held = RowMaker(options.data, str(options.tokenizer), 7, held=True)
    own = list(dict.fromkeys(kinds))
    feeds = {kind: iter(DataLoader(Steps(maker, kind, options.seed * 100 + rank * 10 + number), batch_size=None,
                                   num_workers=max(1, options.workers // len(own)), prefetch_factor=4,
                                   multiprocessing_context="fork"))
             for number, kind in enumerate(own)}
    place = Place.find()
    torch.manual_seed(0)
    base_shape, base = from_gguf(options.base)
    compiled = place.device.type == "cuda"
    layer = torch.compile(block, dynamic=False) if compiled else block
    part = torch.compile(part_loss, dynamic=False) if compiled else part_loss
    torch._dynamo.config.recompile_limit = 64
    teacher = None
    if options.stage == "heal":
        teacher = Writer(base_shape, base).to(place.device)
        teacher.working(four_bits=False, train=False)
        teacher.layer = layer
        if place.rank == 0 and options.check_base:
            log("base:", check(teacher, options.data, held, place.device, part))
        first = on_device(RowMaker(options.data, str(options.tokenizer), 3).step(own[0]), own[0], place.device)
        shape, weights = fewer(base_shape, base, kept_layers(teacher, first, own[0].row, options.layers), THETA)
    else:
        shape, weights = load(options.source, base["embedding"]) if options.source else (base_shape, base)
    model = Writer(shape, weights).to(place.device)
    model.layer = layer
    parameters = list(model.parameters())
    optimiser = Optimiser(model, options.decay)
    log(f"{sum(one.numel() for one in parameters) / 1e6:.1f} M weights beside the embedding, {place.world} x "
        f"{place.device.type}")
    for kind in own:  # compilation, outside the clock
        model.working(options.four_bits, train=True)
        step = on_device(next(feeds[kind]), kind, place.device)
        losses(model, step, kind.row, teacher if kind.asks == TEXT else None, part)[0].backward()
    log("compiled")
    begun, count, tokens, seen, waited, fraction = time.time(), 0, 0, {}, 0.0, 0.0
    while fraction < 1:
        kind = kinds[count % len(kinds)]
        asked = time.time()
        step = on_device(next(feeds[kind]), kind, place.device)
        waited += time.time() - asked
        model.working(options.four_bits, train=True)
        loss, plain = losses(model, step, kind.row, teacher if kind.asks == TEXT else None, part)
        loss.backward()
        model.collect()
        place.average(parameters)
        nn.utils.clip_grad_norm_(parameters, 1.0, error_if_nonfinite=True)
        optimiser.step(options.rate * rate_factor(fraction, count, warm_up=40, flat=options.flat))
        seen.setdefault(kind, []).append(plain)
        tokens, count = tokens + kind.size * place.world, count + 1
        if count % 5 == 0:
            fraction = place.from_first((time.time() - begun) / options.seconds)
        if count % options.every == 0 and place.rank == 0:
            means = " | ".join(f"{kind.row} {kind.asks[0][0]} {float(torch.stack(own).mean()):.3f}"
                               for kind, own in seen.items())
            log(f"step {count} {means} | {tokens / (time.time() - begun) / 1e3:.0f}k tok/s, waited "
                f"{waited / (time.time() - begun):.0%}, at {fraction:.2f}")
            seen = {}
    if place.rank == 0:
        save(options.out, shape, model.weights())
        model.working(options.four_bits, train=False)
        log(f"{count} steps, {tokens / 1e6:.0f} M tokens;", check(model, options.data, held, place.device, part))
    if place.world > 1:
        dist.barrier()
        dist.destroy_process_group()


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("stage", choices=sorted(STAGES))
    parser.add_argument("--data", type=Path, required=True, help="what training.writer_data and writer_ranks wrote")
    parser.add_argument("--tokenizer", type=Path, required=True)
    parser.add_argument("--base", type=Path, required=True, help="SmolLM2-135M-Instruct as a GGUF file")
    parser.add_argument("--from", dest="source", type=Path, help="what the stage before wrote")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--layers", type=int, default=LAYERS)
    parser.add_argument("--seconds", type=float, required=True, help="spent in steps, without compilation")
    parser.add_argument("--rate", type=float, default=1e-3)
    parser.add_argument("--flat", type=float, default=0.4, help="share of the time before the rate falls")
    parser.add_argument("--decay", type=float, default=0.05)
    parser.add_argument("--four-bits", action="store_true", help="round the matrices in every step")
    parser.add_argument("--check-base", action="store_true")
    parser.add_argument("--workers", type=int, default=14, help="row makers of each process")
    parser.add_argument("--every", type=int, default=50, help="steps between lines of the log")
    parser.add_argument("--seed", type=int, default=1)
    train(parser.parse_args())


if __name__ == "__main__":
    main()
