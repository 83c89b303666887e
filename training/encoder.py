"""Trains the encoder that finds and checks evidence: `python -m training.encoder DATA --base FOLDER --out FILE`.

DATA is what `training.encoder_data` wrote, FOLDER a Hugging Face folder of all-mpnet-base-v2 or a file of weights. Four
losses: which passage answers (listwise, "nothing" at 0 nats), which of its sentences, vectors of questions and passages
(in-batch negatives), and whether a passage supports a claim. Matrices are rounded to four bits, a scale for each 64, in
training as in the file. With --teacher the layers of --layers are kept, and what the teacher says is learnt beside what
is right. A tenth of the documents is in no training; `training.encoder_report` measures on it. Under `torchrun` each
GPU reads steps of its own and gradients are averaged.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor
from torch.utils.data import DataLoader

from training.encoder_report import report
from training.encoder_rows import CHECKS, Data, Step, Steps
from training.harder import harder
from training.mpnet import Encoder, base_weights, fewer_layers, load, save, with_heads
from training.place import Place

RATE, HEAD_RATE, DECAY, WARM_UP, LONGEST_STEP = 6e-5, 1e-3, 0.01, 80, 1.0
AVERAGED_FROM, AVERAGED_EVERY, KEPT = 0.5, 4, 0.99
SHARPNESS = 20.0  # nats of a cosine
VECTORS, MARKS, CHECKED = 0.5, 0.5, 1.0  # what these losses count beside that of the passages
TAUGHT = 0.7  # share of the teacher in a pupil's loss
MOST = 48_000  # pieces that are read at once


class Said:
    """What an encoder says of a step's rows, in their order."""

    def __init__(self, net: Encoder, step: Step, device: torch.device) -> None:
        firsts, means, marks, targets, order = [], [], [], [], []
        for group in step.groups:
            ids = group.ids.to(device, non_blocking=True).long()
            read = net.read(ids)
            firsts.append(read.hidden[:, 0])
            means.append(read.means())
            order.append(group.rows)
            target = group.marks.to(device)
            asked = target >= 0
            marks.append(net.head(read.hidden[asked], "mark")[:, 0])
            targets.append(target[asked].float())
        back = torch.cat(order).argsort().to(device)
        first, mean = torch.cat(firsts)[back], torch.cat(means)[back]
        pairs, asked, alone = sum(step.counts), len(step.counts), sum(step.alone)
        self.scores = net.head(first[:pairs], "rank")[:, 0]
        self.questions, self.passages = mean[pairs : pairs + asked], mean[pairs + asked : pairs + asked + alone]
        self.claims = net.head(first[pairs + asked + alone :], "check")
        self.marks, self.targets = torch.cat(marks), torch.cat(targets)


def by_question(said: Said, step: Step) -> Tensor:
    """fp32 [questions, most passages + 1]: scores, "nothing answers" first; where a question has fewer, -inf."""
    counts = torch.tensor(step.counts)
    places = torch.arange(int(counts.max())) < counts[:, None]
    scores = said.scores.new_full(places.shape, -torch.inf)
    scores[places.to(scores.device)] = said.scores
    return F.pad(scores, (1, 0))


def losses(said: Said, step: Step) -> dict[str, Tensor]:
    """Each in nats."""
    scores, device = by_question(said, step), said.scores.device
    right = torch.tensor(step.right)[:, None]
    place = torch.arange(scores.shape[1])[None]
    answers = torch.where(right > 0, (place > 0) & (place <= right), place == 0).to(device)
    passages = scores.logsumexp(-1) - scores.masked_fill(~answers, -torch.inf).logsumexp(-1)
    near = SHARPNESS * said.questions @ said.passages.T
    starts = torch.tensor([0, *step.alone]).cumsum(0)[:-1, None]
    place = torch.arange(near.shape[1])[None]
    answers = ((place >= starts) & (place < starts + torch.tensor(step.alone_right)[:, None])).to(device)
    some = answers.any(-1)
    near, answers = near[some], answers[some]
    vectors = near.logsumexp(-1) - near.masked_fill(~answers, -torch.inf).logsumexp(-1)
    labels = step.labels.to(device)
    judged = said.claims.log_softmax(-1)
    either = judged[:, 1:].logsumexp(-1)  # not supported, in whichever way
    checks = -torch.where(labels == 3, either, judged.gather(1, labels.clamp_max(2)[:, None])[:, 0])
    return {"passages": passages.mean(), "vectors": vectors.mean(),
            "marks": F.binary_cross_entropy_with_logits(said.marks, said.targets), "checks": checks.mean()}


def taught(said: Said, teacher: Said, step: Step) -> dict[str, Tensor]:
    """How far a pupil is from its teacher."""
    own, known = (by_question(one, step).clamp_min(-60).log_softmax(-1) for one in (said, teacher))
    passages = (known.exp() * (known - own)).sum(-1)
    judged, known = said.claims.log_softmax(-1), teacher.claims.log_softmax(-1)
    near, theirs = ((SHARPNESS * one.questions @ one.passages.T).log_softmax(-1) for one in (said, teacher))
    return {"passages": passages.mean(),
            "vectors": (theirs.exp() * (theirs - near)).sum(-1).mean()
            + 2 * (2 - 2 * (said.passages * teacher.passages).sum(-1)).mean(),
            "marks": F.binary_cross_entropy_with_logits(said.marks, teacher.marks.sigmoid()),
            "checks": (known.exp() * (known - judged)).sum(-1).mean()}


def total(parts: dict[str, Tensor]) -> Tensor:
    """One loss."""
    return (parts["passages"] + VECTORS * parts["vectors"] + MARKS * parts["marks"] + CHECKED * parts["checks"])


def train(net: Encoder, teacher: Encoder | None, data: Data, place: Place,
          options: argparse.Namespace) -> dict[str, Tensor]:
    """Train for so long; return the average of the weights of the second half."""
    device, dtype = torch.device(options.device), torch.bfloat16 if options.device == "cuda" else torch.float32
    named = net.weights()
    heads = {"rank", "mark", "check"}
    body = [one for name, one in named.items() if name.split(".")[0] not in heads and one.requires_grad]
    matrices, others = [one for one in body if one.ndim > 1], [one for one in body if one.ndim < 2]
    optimiser = torch.optim.AdamW([{"params": matrices, "weight_decay": DECAY}, {"params": others},
                                   {"params": [one for name, one in named.items() if name.split(".")[0] in heads],
                                    "lr": HEAD_RATE}],
                                  lr=options.rate, betas=(0.9, 0.98), weight_decay=0.0, fused=options.device == "cuda")
    rates = [group["lr"] for group in optimiser.param_groups]
    steps = Steps(data, options.size, options.claims, MOST, options.seed + 1000 * place.rank)
    loader = DataLoader(steps, batch_size=None,
                        num_workers=options.workers, prefetch_factor=4 if options.workers else None)
    average: dict[str, Tensor] = {}
    if teacher:
        teacher.working(dtype, train=False)
    seen: dict[str, float] = {}
    started, share = time.time(), 0.0
    for number, step in enumerate(loader, 1):
        for group, rate in zip(optimiser.param_groups, rates, strict=True):
            group["lr"] = rate * min(1.0, number / WARM_UP) * max(0.02, 1 - share)
        net.working(dtype, train=True)
        said = Said(net, step, device)
        parts = losses(said, step)
        loss = total(parts)
        if teacher:
            with torch.no_grad():
                theirs = Said(teacher, step, device)
            loss = (1 - TAUGHT) * loss + TAUGHT * total(taught(said, theirs, step))
        loss.backward()
        net.collect()
        place.average(net.parameters())
        share = place.from_first((time.time() - started) / options.seconds)
        torch.nn.utils.clip_grad_norm_(net.parameters(), LONGEST_STEP)
        optimiser.step()
        for name, part in parts.items():
            seen[name] = 0.97 * seen.get(name, float(part.detach())) + 0.03 * float(part.detach())
        if share >= 1 or (share > AVERAGED_FROM and number % AVERAGED_EVERY == 0):
            for name, one in net.weights().items():
                average[name] = average[name].lerp_(one.detach(), 1 - KEPT) if name in average else one.detach().clone()
        if number % options.shown == 0 or share >= 1:
            told = ", ".join(f"{name} {value:.3f}" for name, value in seen.items())
            print(f"  step {number}: {told}, {time.time() - started:.0f} s", flush=True)
        if share >= 1:
            return average
    raise AssertionError


def make(options: argparse.Namespace) -> None:
    """All steps."""
    place = Place.find()
    torch.manual_seed(options.seed + 1000 * place.rank)  # of what is dropped
    data = Data(options.data)
    if options.base.is_dir():
        weights = base_weights(options.base, data.held["rows"])
    else:
        weights, _ = load(options.base)
    if "rank.weight" not in weights:
        weights = with_heads(weights, options.seed)
    if options.layers:
        weights = fewer_layers(weights, options.layers)
    net = Encoder(weights).to(options.device)
    if options.harder:
        started = time.time()
        net.working(torch.bfloat16, train=False)
        harder(data, net, options.device, options.workers)
        print(f"harder candidates in {time.time() - started:.0f} s", flush=True)
    teacher = Encoder(load(options.teacher)[0]).to(options.device) if options.teacher else None
    print(f"{sum(one.numel() for one in net.parameters()) / 1e6:.1f} M weights, {net.layers} layers", flush=True)
    average = train(net, teacher, data, place, options)
    if place.world > 1:
        dist.destroy_process_group()
    if place.rank:
        return
    save(options.out, average, data.pieces)
    print(f"{options.out}: {options.out.stat().st_size / 2**20:.1f} MiB", flush=True)
    if options.report:
        del net, teacher
        report(data, Encoder(load(options.out)[0]).to(options.device), options.device, told=options.told)


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--base", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seconds", type=float, default=480)
    parser.add_argument("--size", type=int, default=64, help="questions of a step")
    parser.add_argument("--claims", type=int, default=CHECKS, help="claims of a step")
    parser.add_argument("--rate", type=float, default=RATE)
    parser.add_argument("--layers", type=int, nargs="+", help="those of the base that are kept")
    parser.add_argument("--teacher", type=Path)
    parser.add_argument("--workers", type=int, default=12)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--shown", type=int, default=100)
    parser.add_argument("--harder", action="store_true", help="begin with candidates that the base's vectors find")
    parser.add_argument("--report", action="store_true")
    parser.add_argument("--told", type=Path, help="what the report found, for training.encoder_levels")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    make(parser.parse_args())


if __name__ == "__main__":
    main()
