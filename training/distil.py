"""Trains the draft: `torchrun --nproc-per-node N -m training.distil --data DIR --target T --out FILE --seconds S`.

First plain language modelling, then the target's own distribution: Kullback-Leibler divergence plus, growing, the
share of probability that does not overlap, which is the share of draft tokens that speculative decoding rejects.

Every other row is four times as long. Of that the draft sees the end, and of what is before it only chunks, as in the
application where the target says what matters (`triforce_core/kv_cache/retrieval.py`).
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn

from training import schedule
from training.loader import Loader
from training.model import DRAFT, Llama, ModelShape
from training.optimiser import Optimiser
from training.place import Place
from training.quantise import load_model, save_checkpoint
from training.train import Clock, Step, log
from training.transfer import continue_from

CHUNK = 8  # tokens


@dataclass(frozen=True)
class Parts:
    """What the draft sees of a long row, in tokens: chunks of its beginning, and its end, of which `scored` count."""

    chunks: int
    end: int
    scored: int

    @staticmethod
    def of(length: int) -> Parts:
        """For rows of this length: of 4,096, 128 chunks and the last 1,280 tokens."""
        return Parts(length // 32, length * 5 // 16, length // 4)

    def places(self, ids: Tensor) -> Tensor:
        """[rows, tokens seen]: which tokens of ids [rows, length] the draft sees, in order. The chunks are those whose
        pairs of tokens come again among the scored ones, as a target would attend them, and the ones behind those;
        others by chance."""
        rows, length = ids.shape
        start = (length - self.end) // CHUNK * CHUNK
        pairs = ids[:, :-1] * 2**20 + ids[:, 1:]
        wanted = pairs[:, length - self.scored - 1 :].sort(1).values
        early = pairs[:, :start].contiguous()
        at = torch.searchsorted(wanted, early).clamp(max=wanted.shape[1] - 1)
        hits = (wanted.gather(1, at) == early).view(rows, -1, CHUNK).sum(-1).float()
        mass = hits + 0.7 * F.pad(hits, (1, 0))[:, :-1] + 1.5 * torch.rand_like(hits)
        chosen = mass.topk(self.chunks, 1).indices.sort(1).values
        of_chunks = (chosen[:, :, None] * CHUNK + torch.arange(CHUNK, device=ids.device)).flatten(1)
        return torch.cat((of_chunks, torch.arange(start, length, device=ids.device).expand(rows, -1)), 1)


def distances(
    x: Tensor,
    norm: Tensor,
    embedding: Tensor,
    other: Tensor,
    other_norm: Tensor,
    other_embedding: Tensor,
    epsilon: float,
) -> tuple[Tensor, Tensor]:
    """Divergence from the target and probability that does not overlap, token by token."""
    mine = F.linear(F.rms_norm(x, x.shape[-1:], norm, epsilon), embedding).float().log_softmax(-1)
    wanted = F.linear(F.rms_norm(other, other.shape[-1:], other_norm, epsilon), other_embedding).float().log_softmax(-1)
    share = wanted.exp()
    divergence = (share * (wanted - mine)).sum(-1)
    apart = 0.5 * (share - mine.exp()).abs().sum(-1)
    return divergence.flatten(), apart.flatten()


def compared(draft: Llama, target: Llama, measure: Callable[..., tuple[Tensor, Tensor]],
             batch: tuple[Tensor, Tensor, Tensor], place: Place, in_parts: bool) -> tuple[Tensor, Tensor, Tensor]:
    """`distances` of the scored tokens and their weights: of all, or of the end of rows seen in parts."""
    ids, weights, positions = batch
    inputs = ids[:, :-1].contiguous()
    parts = Parts.of(inputs.shape[1])
    scored = parts.scored if in_parts else inputs.shape[1]
    trunk, other = draft.model, target.model
    with place.autocast():
        with torch.no_grad():
            wanted = target.hidden(inputs, positions)[:, -scored:].contiguous()
        if in_parts:
            inputs = inputs.gather(1, parts.places(inputs))
            positions = torch.arange(inputs.shape[1], device=inputs.device)
        mine = draft.hidden(inputs, positions)[:, -scored:].contiguous()
        divergence, missed = measure(mine, trunk.norm.weight, trunk.embed_tokens.weight, wanted, other.norm.weight,
                                     other.embed_tokens.weight, draft.shape.epsilon)
    return divergence, missed, weights[:, -scored:].flatten().clamp(max=1.0)


# large: one training run, in order
def distil(options: argparse.Namespace) -> None:
    """Language modelling for a share of the time, then the target's distribution."""
    kinds = schedule.SMALL_DRAFT_KINDS if options.small else schedule.DRAFT_KINDS
    rank = int(os.environ.get("RANK", 0))
    loader = Loader(options.data, str(options.tokenizer), kinds, 50 + rank, options.workers)
    loader.want(("whole",))
    place = Place.find()
    torch.manual_seed(0)
    torch.set_float32_matmul_precision("high")
    target = load_model(options.target).to(place.device).requires_grad_(False)
    draft = Llama(ModelShape(64, 1, 1, 96) if options.small else DRAFT)
    if options.source:
        draft = continue_from(options.source, options.source_tokenizer, options.tokenizer, draft.shape)
    draft.to(place.device)
    step, optimiser = Step(draft, place), Optimiser(draft, options.decay)
    Step(target, place)
    measure = torch.compile(distances, dynamic=False) if place.device.type == "cuda" else distances
    parameters = list(draft.parameters())
    clock, fraction, count, tokens = Clock(place, options.seconds), 0.0, 0, 0
    compiled: set[str] = set()
    seen: dict[str, list[Tensor]] = {"plain": [], "whole": [], "parts": []}
    begun = time.time()
    clock.resume()
    while fraction < 1:
        kind = "plain" if fraction < options.plain else ("whole", "parts")[count % 2]
        if kind not in compiled:  # the first step of a kind compiles, outside the clock
            clock.pause()
            loader.want(("whole",) if kind == "plain" else tuple(kinds))
        batch = loader.get("parts" if kind == "parts" else "whole")
        if kind == "plain":
            loss, losses, _ = step(batch)
            apart = losses.new_zeros(())
        else:
            divergence, missed, weights = compared(draft, target, measure, step.tensors(batch), place, kind == "parts")
            growing = (fraction - options.plain) / (1 - options.plain)
            losses = (1 - 0.7 * growing) * divergence + 2.0 * growing * missed
            loss = (losses * weights).sum() / weights.sum()
            apart = (missed.detach() * weights).sum() / weights.sum()
        loss.backward()
        place.average(parameters)
        nn.utils.clip_grad_norm_(parameters, 1.0)
        optimiser.step(options.rate * schedule.rate_factor(fraction, count, flat=0.35))
        seen[kind].append(torch.stack((loss.detach(), apart.detach())).float())
        count, tokens = count + 1, tokens + losses.numel() * place.world
        if kind not in compiled:
            compiled.add(kind)
            clock.resume()
        if count % 5 == 0:
            fraction = clock.fraction()
        if count % options.every == 0 and place.rank == 0:
            means = [f"{name} {' '.join(f'{value:.3f}' for value in torch.stack(some).mean(0).tolist())}"
                     for name, some in seen.items() if some]
            log(f"step {count} loss, rejected: {', '.join(means)} | {tokens / (time.time() - begun) / 1e3:.0f}k tok/s "
                f"at {fraction:.2f}")
            seen = {name: [] for name in seen}
    loader.close()
    if place.rank == 0:
        save_checkpoint(draft, options.out)
        log(f"done: {count} steps, {tokens / 1e6:.0f} M tokens")
    if place.world > 1:
        dist.destroy_process_group()


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="what training.data wrote")
    parser.add_argument("--tokenizer", type=Path, default=Path("triforce_core/assets/builtin/tokenizer.model"))
    parser.add_argument("--target", type=Path, required=True, help="checkpoint or int8 folder")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--from", dest="source", type=Path)
    parser.add_argument("--from-tokenizer", dest="source_tokenizer", type=Path, help="its tokenizer, if another one")
    parser.add_argument("--seconds", type=float, required=True)
    parser.add_argument("--plain", type=float, default=0.25, help="share of the time in plain language modelling")
    parser.add_argument("--rate", type=float, default=4e-3)
    parser.add_argument("--decay", type=float, default=0.05)
    parser.add_argument("--workers", type=int, default=12)
    parser.add_argument("--every", type=int, default=100)
    parser.add_argument("--small", action="store_true", help="a trial on a CPU")
    distil(parser.parse_args())


if __name__ == "__main__":
    main()
