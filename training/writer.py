"""Trains the built-in writer: `torchrun --nproc-per-node N -m training.writer STAGE --help`.

STAGE `begin` takes SmolLM2-135M-Instruct with another base of the rotation, and reads text and questions; `long` reads
rows of up to 65,536 tokens; `tune` answers questions about passages in its own words; `draft` makes a small model that
foretells the tuned one. Each takes what the one before wrote.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

from training.optimiser import Optimiser
from training.place import Place
from training.schedule import rate_factor
from training.writer_model import DRAFT, Writer, block, from_gguf, load, save, small
from training.writer_rows import Kind, RowMaker

STARTED = time.time()
THETA = 5_000_000.0
STEP, SMALL = 65_536, 16_384
TEXT = (("text", 1.0),)
TURNS = (("brief", 0.4), ("span", 0.2), ("words", 0.15), ("quote", 0.2), ("summary", 0.05))
LATE = (("words", 0.6), ("brief", 0.24), ("summary", 0.08), ("span", 0.04), ("quote", 0.04))
SAID = (("words", 0.5), ("summary", 0.4), ("brief", 0.1))
# Kinds of steps in turn.
STAGES = {
    "begin": (Kind(STEP, 4096, TEXT), Kind(STEP, 4096, TURNS, document=0.3, least=512),
              Kind(STEP, 4096, TEXT), Kind(STEP, 4096, TEXT), Kind(STEP, 4096, TURNS)),
    "long": (Kind(STEP, 65_536, (("text", 0.3), ("quote", 0.7)), reach=0.3),
             Kind(STEP, 32_768, (("text", 0.2), ("quote", 0.4), ("span", 0.4)), document=1.0, least=8192, reach=0.3),
             Kind(STEP, 65_536, (("text", 0.5), ("quote", 0.5)), reach=0.3),
             Kind(STEP, 4096, (("text", 0.4), ("brief", 0.3), ("span", 0.2), ("words", 0.1)), document=0.5, reach=0.3)),
    "tune": (Kind(SMALL, 4096, LATE, document=0.3, least=512),
             Kind(SMALL, 4096, TEXT),
             Kind(SMALL, 4096, LATE, document=0.0),
             Kind(SMALL, 16_384, LATE, document=0.6, least=2048, reach=0.3)),
    "draft": (Kind(STEP, 1280, TEXT), Kind(STEP, 4096, SAID)),
}
# Of the loss: divergence from the target, the share of the target's tokens that it would reject, the text itself.
ALONE, LIKE_TARGET = (0.0, 0.0, 1.0), (0.5, 0.5, 0.1)

CHECKED = {
    "words": Kind(SMALL, 4096, (("words", 1.0),)),
    "with document": Kind(SMALL, 8192, (("words", 1.0),), document=1.0, least=2048),
    "few words": Kind(SMALL, 4096, (("brief", 1.0),)),
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


def part_loss(x: Tensor, table: Tensor, wanted: Tensor, weights: Tensor, taught: tuple[Tensor, Tensor] | None,
              mixed: tuple[float, float, float]) -> Tensor:
    """(loss, cross-entropy, share that the target rejects) summed over some tokens. taught: the target's last output
    and its embedding, or nothing."""
    logits = F.linear(x, table).float()
    plain = F.cross_entropy(logits, wanted, reduction="none")
    loss, rejected = mixed[2] * plain, torch.zeros_like(plain)
    if taught is not None:
        told, own = F.linear(*taught).float().log_softmax(-1), logits.log_softmax(-1)
        rejected = (told.exp() - own.exp()).abs().sum(-1) / 2
        loss = loss + mixed[0] * (told.exp() * (told - own)).sum(-1) + mixed[1] * rejected
    return torch.stack(((loss * weights).sum(), (plain * weights).sum(), (rejected * weights).sum()))


def losses(model: Writer, step: Step, longest: int, target: Writer | None, part: Callable[..., Tensor]) -> Tensor:
    """(loss, cross-entropy, share rejected) in the mean of the tokens that count."""
    x, mixed = model.read(step.ids, step.positions, step.ends, longest), LIKE_TARGET if target else ALONE
    taught = None
    if target is not None:
        with torch.no_grad():
            taught = target.read(step.ids, step.positions, step.ends, longest)
    total = torch.zeros(3, device=x.device)
    for start in range(0, len(step.chosen), step.part):
        own = slice(start, start + step.part)
        at = step.chosen[own]
        told = (taught[at], target.table) if target is not None and taught is not None else None
        total = total + checkpoint(part, x[at], model.table, step.wanted[own], step.weights[own], told, mixed,
                                   use_reentrant=False)
    return total / step.weights.sum().clamp(min=1)


@torch.no_grad()
def check(model: Writer, data: Path, held: RowMaker, target: Writer | None, part: Callable[..., Tensor]) -> str:
    """Losses on what no training saw: answers, look-ups, and books in nats a byte; of a draft the share rejected."""
    told, device, which = [], model.embedding.device, 2 if target else 1
    for name, kind in CHECKED.items():
        if target and kind.row > 4096:
            continue
        held.chance = Random(11)
        steps = [on_device(held.step(kind), kind, device) for _ in range(6 if name == "words" else 3)]
        found = [float(losses(model, step, kind.row, target, part)[which]) for step in steps]
        told.append(f"{name} {np.mean(found):.3f}")
    with np.load(data / "unread.npz") as unread:
        books, size = unread["ids"].astype(np.int64), float(unread["bytes"].sum())
    for length in (1024,) if target else (2048, 16_384):
        flat, nats, counted = books.reshape(-1, length), 0.0, 0.0
        rows = STEP // length
        for start in range(0, len(flat) // rows * rows, rows):
            ids = flat[start : start + rows].ravel()
            kind = Kind(STEP, length, TEXT)
            starts = np.tile(np.arange(length) > 0, rows).astype(np.float32)
            made = ids, starts, np.tile(np.arange(length), rows), np.arange(1, rows + 1) * length
            step = on_device(made, kind, device)
            nats += float(losses(model, step, length, target, part)[which]) * float(step.weights.sum())
            counted += float(step.weights.sum())
        share = len(flat) // rows * rows * length / books.size
        told.append(f"books {length}: " + (f"{nats / counted:.3f}" if target else
                                           f"{nats / size / share:.4f} nats a byte"))
    return ", ".join(told)


def models(options: argparse.Namespace, place: Place) -> tuple[Writer, Writer | None]:
    """(what is trained, the target that a draft learns from)."""
    shape, base = from_gguf(options.base)
    if options.source:
        shape, base = load(options.source, base["embedding"])
    else:
        shape = replace(shape, theta=THETA)
    model = Writer(shape, base).to(place.device)
    if options.stage != "draft":
        return model, None
    model.working(four_bits=True, train=False)
    return Writer(DRAFT, small(base["embedding"].float(), DRAFT), learns=True).to(place.device), model


# large: one training run, in order
def train(options: argparse.Namespace) -> None:
    """One stage."""
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    kinds, rank = STAGES[options.stage], int(os.environ.get("RANK", 0))
    if options.words:
        kinds = tuple(replace(kind, asks=with_words(kind.asks, options.words)) for kind in kinds)
    maker = RowMaker(options.data, str(options.tokenizer), options.seed)
    held = RowMaker(options.data, str(options.tokenizer), 7, held=True)
    own = list(dict.fromkeys(kinds))
    feeds = {kind: iter(DataLoader(Steps(maker, kind, options.seed * 100 + rank * 10 + number), batch_size=None,
                                   num_workers=max(1, options.workers // len(own)), prefetch_factor=4,
                                   multiprocessing_context="fork"))
             for number, kind in enumerate(own)}
    place = Place.find()
    torch.manual_seed(0)
    model, target = models(options, place)
    compiled = place.device.type == "cuda"
    model.layer = torch.compile(block, dynamic=False) if compiled else block
    if target:
        target.layer = model.layer
    part = torch.compile(part_loss, dynamic=False) if compiled else part_loss
    torch._dynamo.config.recompile_limit = 64
    parameters, optimiser = model.trained(), Optimiser(model, options.decay)
    log(f"{sum(one.numel() for one in parameters) / 1e6:.1f} M weights, {place.world} x {place.device.type}")
    for kind in own:  # compilation, outside the clock
        model.working(options.four_bits, train=True)
        step = on_device(next(feeds[kind]), kind, place.device)
        losses(model, step, kind.row, target, part)[0].backward()
    log("compiled")
    begun, count, tokens, waited, fraction = time.time(), 0, 0, 0.0, 0.0
    seen: dict[Kind, list[Tensor]] = {}
    while fraction < 1:
        kind = kinds[count % len(kinds)]
        asked = time.time()
        step = on_device(next(feeds[kind]), kind, place.device)
        waited += time.time() - asked
        model.working(options.four_bits, train=True)
        found = losses(model, step, kind.row, target, part)
        found[0].backward()
        model.collect()
        place.average(parameters)
        nn.utils.clip_grad_norm_(parameters, 1.0, error_if_nonfinite=True)
        optimiser.step(options.rate * rate_factor(fraction, count, warm_up=40, flat=options.flat))
        seen.setdefault(kind, []).append(found.detach())
        tokens, count = tokens + kind.size * place.world, count + 1
        if count % 5 == 0:
            fraction = place.from_first((time.time() - begun) / options.seconds)
        if count % options.every == 0 and place.rank == 0:
            means = " | ".join(f"{kind.row} {kind.asks[0][0]} {float(torch.stack(own)[:, which].mean()):.3f}"
                               for kind, own in seen.items() for which in ((1, 2) if target else (1,)))
            log(f"step {count} {means} | {tokens / (time.time() - begun) / 1e3:.0f}k tok/s, waited "
                f"{waited / (time.time() - begun):.0%}, at {fraction:.2f}")
            seen = {}
    if place.rank == 0:
        save(options.out, model.shape, model.weights(), embedding=model.learns)
        model.working(options.four_bits, train=False)
        log(f"{count} steps, {tokens / 1e6:.0f} M tokens;", check(model, options.data, held, target, part))
    place.leave()


def with_words(asks: tuple[tuple[str, float], ...], words: float) -> tuple[tuple[str, float], ...]:
    """The same kinds of rows with another share of answers in own words, where there are some."""
    others = sum(share for name, share in asks if name != "words")
    if not any(name == "words" for name, _ in asks):
        return asks
    return tuple((name, words if name == "words" else share / others * (1 - words)) for name, share in asks)


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("stage", choices=sorted(STAGES))
    parser.add_argument("--data", type=Path, required=True, help="what training.writer_data and writer_ranks wrote")
    parser.add_argument("--tokenizer", type=Path, required=True)
    parser.add_argument("--base", type=Path, required=True, help="SmolLM2-135M-Instruct as a GGUF file")
    parser.add_argument("--from", dest="source", type=Path, help="what the stage before wrote")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seconds", type=float, required=True, help="spent in steps, without compilation")
    parser.add_argument("--rate", type=float, default=1e-3)
    parser.add_argument("--flat", type=float, default=0.4, help="share of the time before the rate falls")
    parser.add_argument("--decay", type=float, default=0.05)
    parser.add_argument("--four-bits", action="store_true", help="round the matrices in every step")
    parser.add_argument("--words", type=float, help="share of answers in own words, in place of the stage's")
    parser.add_argument("--workers", type=int, default=14, help="row makers of each process")
    parser.add_argument("--every", type=int, default=50, help="steps between lines of the log")
    parser.add_argument("--seed", type=int, default=1)
    train(parser.parse_args())


if __name__ == "__main__":
    main()
