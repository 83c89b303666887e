"""Trains the target: `torchrun --nproc-per-node N -m training.train --data DIR --out FILE --seconds S`.

S is the time spent in steps, without compilation. Phases and rows are in `training.schedule`; the rate of learning
follows the clock of the first process. `--from` continues a checkpoint or an int8 folder, of another vocabulary too
(`training.transfer`); `--small` is a trial on a CPU.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn

from training import schedule
from training.loader import Batch, Loader
from training.model import TARGET, Llama, ModelShape
from training.optimiser import Optimiser
from training.place import Place
from training.quantise import save_checkpoint
from training.rows import QUOTE_REST, QUOTE_START, TEXT, RowMaker
from training.transfer import continue_from

STARTED = time.time()


def log(*words: object) -> None:
    """A line with the time since the start."""
    print(f"[{time.time() - STARTED:6.0f}]", *words, flush=True)


def token_losses(x: Tensor, norm: Tensor, embedding: Tensor, wanted: Tensor, epsilon: float) -> Tensor:
    """Cross-entropy of every token, from the last layer's output."""
    normed = F.rms_norm(x, x.shape[-1:], norm, epsilon)
    return F.cross_entropy(F.linear(normed, embedding).flatten(0, 1).float(), wanted.flatten(), reduction="none")


class Step:
    """The forward pass with its losses, compiled layer by layer on a GPU."""

    def __init__(self, model: Llama, place: Place) -> None:
        self.model, self.place = model, place
        self.losses = token_losses
        if place.device.type == "cuda":
            torch._dynamo.config.recompile_limit = 64
            for layer in model.blocks():
                layer.compile(dynamic=False)
            self.losses = torch.compile(token_losses, dynamic=False)

    def tensors(self, batch: Batch) -> tuple[Tensor, Tensor, Tensor]:
        """A batch on the device."""
        ids, weights, positions = batch

        def moved(part: np.ndarray, kind: str) -> Tensor:
            return torch.from_numpy(part.astype(kind)).to(self.place.device, non_blocking=True)

        return moved(ids, "int64"), moved(weights, "float32"), moved(positions, "int64")

    def __call__(self, batch: Batch) -> tuple[Tensor, Tensor, Tensor]:
        """The weighted loss, all losses and all weights."""
        ids, weights, positions = self.tensors(batch)
        weights = weights[:, 1:].flatten()
        with self.place.autocast():
            x = self.model.hidden(ids[:, :-1].contiguous(), positions)
            trunk = self.model.model
            losses = self.losses(
                x, trunk.norm.weight, trunk.embed_tokens.weight, ids[:, 1:].contiguous(), self.model.shape.epsilon
            )
        return (losses * weights).sum() / weights.sum().clamp(min=1), losses.detach(), weights


def summary(losses: Tensor, weights: Tensor) -> Tensor:
    """Mean loss of text, of the first quoted token, of the second, and of the rest of quotations."""
    values = (TEXT, QUOTE_START[0], QUOTE_START[2], QUOTE_REST)
    chosen = [(weights - value).abs() < 0.01 for value in values]
    return torch.stack([(losses * which).sum() / which.sum().clamp(min=1) for which in chosen])


class Clock:
    """Training time without compilation, and the share of it that is spent."""

    def __init__(self, place: Place, seconds: float) -> None:
        self.place, self.seconds, self.spent, self.since = place, seconds, 0.0, 0.0

    def resume(self) -> None:
        """Starts to count."""
        if self.place.device.type == "cuda":
            torch.cuda.synchronize()
        self.since = time.time()

    def pause(self) -> None:
        """Stops counting."""
        self.spent += time.time() - self.since

    def fraction(self) -> float:
        """The same on every process."""
        return self.place.from_first((self.spent + time.time() - self.since) / self.seconds)


class Checks:
    """Loss on questions about unseen paragraphs, in rows of the trained lengths."""

    def __init__(self, data: Path, tokenizer: str, kinds: dict, rows: int) -> None:
        maker = RowMaker(data, tokenizer, 7, "qa-dev")
        self.batches = {}
        for name, kind in kinds.items():
            same = replace(kind, written=1.0, turns=0.3, plain=0.0, reach=0, several=0.0, cut=1.0, natural=0.0)
            self.batches[name] = [maker.batch(same) for _ in range(rows)]

    @torch.no_grad()
    def __call__(self, step: Step, names: Iterable[str]) -> dict[str, list[float]]:
        """Losses as `summary` gives them."""
        result = {}
        for name in names:
            found = [summary(*step(batch)[1:]) for batch in self.batches[name]]
            result[name] = [round(value, 3) for value in torch.stack(found).mean(0).tolist()]
        return result


# large: one training run, in order
def train(options: argparse.Namespace) -> None:
    """All phases."""
    kinds = schedule.SMALL_KINDS if options.small else schedule.FULL_KINDS
    phases = schedule.SMALL_PHASES if options.small else schedule.TARGET_PHASES
    used = {name: kinds[name] for phase in phases for name in phase.kinds}
    rank, tokenizer = int(os.environ.get("RANK", 0)), str(options.tokenizer)
    loader = Loader(options.data, tokenizer, used, options.seed + rank, options.workers)
    loader.want(phases[0].kinds)
    place = Place.find()
    torch.manual_seed(0)
    torch.set_float32_matmul_precision("high")
    model = Llama(ModelShape(64, 2, 1, 96) if options.small else TARGET)
    if options.source:
        model = continue_from(options.source, options.source_tokenizer, options.tokenizer, model.shape)
    model.to(place.device)
    parameters = list(model.parameters())
    step, optimiser = Step(model, place), Optimiser(model, options.decay)
    checks = Checks(options.data, tokenizer, used, 1) if place.rank == 0 else None
    clock, count, tokens, due = Clock(place, options.seconds), 0, 0, 0.0
    log(f"{sum(p.numel() for p in parameters) / 1e6:.1f} M weights, {place.world} x {place.device.type}")
    for number, phase in enumerate(phases):
        loader.want(phase.kinds)
        due += phase.share
        for name in dict.fromkeys(phase.kinds):  # compilation, outside the clock
            step(loader.get(name))[0].backward()
            model.zero_grad(set_to_none=True)
        if place.world > 1:
            dist.barrier()
        clock.resume()
        seen, begun, waited, before = [], time.time(), 0.0, tokens
        fraction, local = clock.fraction(), 0
        while fraction < due:
            asked = time.time()
            kind = phase.kinds[local % len(phase.kinds)]
            batch = loader.get(kind)
            waited += time.time() - asked
            loss, losses, weights = step(batch)
            loss.backward()
            place.average(parameters)
            nn.utils.clip_grad_norm_(parameters, 1.0)
            optimiser.step(options.rate * schedule.rate_factor(fraction, count, flat=options.flat))
            seen.append(torch.cat((loss.detach()[None], summary(losses, weights))))
            tokens += losses.numel() * place.world
            count, local = count + 1, local + 1
            if local % 5 == 0:
                fraction = clock.fraction()
            if local % options.every == 0 and place.rank == 0:
                mean = " ".join(f"{value:.3f}" for value in torch.stack(seen).mean(0).tolist())
                speed = (tokens - before) / (time.time() - begun) / 1e3
                log(
                    f"phase {number} {'+'.join(phase.kinds)} step {count} loss, text, first, third, rest: {mean} | "
                    f"{speed:.0f}k tok/s {tokens / 1e6:.0f}M waited {waited / (time.time() - begun):.0%} "
                    f"at {fraction:.2f}"
                )
                seen = []
        clock.pause()
        if checks:
            log("check", json.dumps(checks(step, dict.fromkeys(phase.kinds))), f"after phase {number}, {local} steps")
            save_checkpoint(model, options.out)
            log("saved")
    loader.close()
    log(f"done: {count} steps, {tokens / 1e6:.0f} M tokens")
    if place.world > 1:
        dist.destroy_process_group()


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="what training.data wrote")
    parser.add_argument("--tokenizer", type=Path, default=Path("triforce_core/assets/builtin/tokenizer.model"))
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--from", dest="source", type=Path)
    parser.add_argument("--from-tokenizer", dest="source_tokenizer", type=Path, help="its tokenizer, if another one")
    parser.add_argument("--seconds", type=float, required=True)
    parser.add_argument("--rate", type=float, default=3e-3)
    parser.add_argument("--flat", type=float, default=0.45, help="share of the time before the rate falls")
    parser.add_argument("--decay", type=float, default=0.1)
    parser.add_argument("--workers", type=int, default=12, help="row makers for each process")
    parser.add_argument("--every", type=int, default=100, help="steps between log lines")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--small", action="store_true", help="a trial on a CPU")
    train(parser.parse_args())


if __name__ == "__main__":
    main()
