"""A second round on the writer's own answers: `torchrun -m training.writer_prefer pairs|train --help`.

`pairs` lets a writer answer questions of its training documents; `train` teaches it to prefer the reference answer to
what it wrote itself (direct preference optimisation, arXiv 2305.18290; against own answers, arXiv 2401.01335).
"""

from __future__ import annotations

import argparse
import os
import pickle
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from random import Random

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from training.optimiser import Optimiser
from training.place import Place
from training.schedule import rate_factor
from training.writer import SMALL, log
from training.writer_answers import answers
from training.writer_model import Writer, answering, block, from_gguf, load, save
from training.writer_rows import START, STOP, Kind, RowMaker

BETA, PLAIN, ALIKE, LONGEST = 0.1, 0.3, 0.75, 1400  # of the loss; F1 of words above which an answer is no other; tokens
OF_ONCE = 192  # questions that are answered together
Pair = tuple[list[int], list[int], list[int]]  # tokens of what is read, the reference answer, its own


def f1(one: str, other: str) -> float:
    """How many words two answers have in common."""
    first, second = Counter(one.lower().split()), Counter(other.lower().split())
    shared = sum((first & second).values())
    return 2 * shared / max(1, first.total() + second.total())


def make_pairs(options: argparse.Namespace) -> None:
    """Own answers beside the references, of this process's share."""
    place = Place.find()
    model = answering(options.source, options.base, place.device.type)
    maker, found = RowMaker(options.data, str(options.tokenizer), 100 + place.rank), list[Pair]()
    begun, kind = time.time(), Kind(LONGEST, LONGEST, (("words", 1.0),))
    while time.time() - begun < options.seconds:
        texts = [maker.encoder.decode(maker.row(kind).ids, skip_special_tokens=False) for _ in range(OF_ONCE)]
        asked = [text.partition(f"{START}assistant\n") for text in texts]
        told = [rest.partition(STOP)[0] for _, _, rest in asked]
        written = answers(model, maker, [f"{read}{mark}" for read, mark, _ in asked], place.device.type)
        for (read, mark, _), reference, (own, _, _) in zip(asked, told, written, strict=True):
            if f1(reference, own) < ALIKE and len(read) < 3.5 * LONGEST:
                found.append((maker.encode(f"{read}{mark}"), maker.encode(f"{reference}{STOP}"),
                              maker.encode(f"{own}{STOP}")))
    options.out.mkdir(parents=True, exist_ok=True)
    (options.out / f"pairs-{place.rank}.pkl").write_bytes(pickle.dumps(found))
    log(f"{len(found)} pairs of process {place.rank}")
    place.leave()


def step_of(pairs: Sequence[Pair], chance: Random, size: int, device: torch.device) -> tuple[Tensor, ...]:
    """(ids, positions, ends, the answer of each token from 0 or -1, how many answers), the reference of a pair before
    its own answer; what is left is filled with a row without an answer."""
    ids, positions, ends, answer, count = list[int](), list[int](), [0], list[int](), 0
    while True:
        read, *both = chance.choice(pairs)
        if len(ids) + 2 * len(read) + sum(map(len, both)) > size:
            break
        for own in both:
            row = [*read, *own]
            ids, positions = ids + row, positions + list(range(len(row)))
            answer += [-1] * len(read) + [count] * len(own)
            ends.append(len(ids))
            count += 1
    rest = size - len(ids)
    ids, answer = ids + [2] * rest, answer + [-1] * rest
    positions, ends = positions + list(range(rest)), (ends + [size] * (size // 2))[: size // 2]
    made = np.array(ids), np.array(positions), np.array(ends, np.int32), np.array(answer)
    return (*(torch.from_numpy(one).to(device) for one in made), torch.tensor(count))


def log_chances(model: Writer, step: tuple[Tensor, ...]) -> Tensor:
    """Nats of each answer, negative: [answers]."""
    ids, positions, ends, answer, count = step
    at = torch.nonzero(answer[1:] >= 0)[:, 0]  # the place before each token of an answer
    x = model.read(ids, positions, ends, LONGEST * 2)[at]
    nats = torch.zeros(int(count), device=ids.device)
    for start in range(0, len(at), 2048):
        own = at[start : start + 2048] + 1
        logits = F.linear(x[start : start + 2048], model.table).float()
        nats = nats.index_add(0, answer[own], -F.cross_entropy(logits, ids[own], reduction="none"))
    return nats


def preference(now: Tensor, before: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
    """(loss, share of pairs that are told apart). now, before: nats [answers] of the model and of what it was."""
    gain = now - before
    apart = BETA * (gain[0::2] - gain[1::2])
    plain = -(now[0::2] / lengths[0::2]).mean()
    return PLAIN * plain - F.logsigmoid(apart).mean(), (apart > 0).float().mean()


def train(options: argparse.Namespace) -> None:
    """The second round."""
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    pairs = [pair for file in sorted(options.pairs.glob("pairs-*.pkl")) for pair in pickle.loads(file.read_bytes())]
    place = Place.find()
    shape, weights = load(options.source, from_gguf(options.base)[1]["embedding"])
    model, before = Writer(shape, weights).to(place.device), Writer(shape, weights).to(place.device)
    before.working(four_bits=True, train=False)
    model.layer = before.layer = torch.compile(block, dynamic=False) if place.device.type == "cuda" else block
    parameters, optimiser = model.trained(), Optimiser(model, 0.0)
    chance, seen = Random(place.rank), list[Tensor]()
    log(f"{len(pairs)} pairs")
    begun, count, fraction = time.time(), 0, 0.0
    while fraction < 1:
        step = step_of(pairs, chance, options.size, place.device)
        lengths = torch.bincount(step[3][step[3] >= 0], minlength=int(step[4]))
        model.working(four_bits=True, train=True)
        with torch.no_grad():
            reference = log_chances(before, step)
        loss, apart = preference(log_chances(model, step), reference, lengths)
        loss.backward()
        model.collect()
        place.average(parameters)
        nn.utils.clip_grad_norm_(parameters, 1.0, error_if_nonfinite=True)
        optimiser.step(options.rate * rate_factor(fraction, count, warm_up=20, flat=0.2))
        seen.append(torch.stack((loss.detach(), apart)))
        count += 1
        if count % 5 == 0:
            fraction = place.from_first((time.time() - begun) / options.seconds)
        if count % 25 == 0 and place.rank == 0:
            said = torch.stack(seen).mean(0).tolist()
            log(f"step {count} loss {said[0]:.3f}, told apart {said[1]:.2f}, at {fraction:.2f}")
            seen = []
    if place.rank == 0:
        save(options.out, shape, model.weights())
    place.leave()


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("pairs", "train"))
    parser.add_argument("--data", type=Path, help="of pairs: what training.writer_data and writer_ranks wrote")
    parser.add_argument("--tokenizer", type=Path)
    parser.add_argument("--base", type=Path, required=True, help="SmolLM2-135M-Instruct as a GGUF file")
    parser.add_argument("--from", dest="source", type=Path, required=True, help="what training.writer wrote")
    parser.add_argument("--pairs", type=Path, help="of train: the folder that pairs wrote")
    parser.add_argument("--out", type=Path, required=True, help="a folder of pairs, or a checkpoint")
    parser.add_argument("--seconds", type=float, required=True)
    parser.add_argument("--rate", type=float, default=3e-5)
    parser.add_argument("--size", type=int, default=SMALL, help="tokens of a step")
    options = parser.parse_args()
    make_pairs(options) if options.what == "pairs" else train(options)


if __name__ == "__main__":
    main()
