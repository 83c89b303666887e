"""Makes the reranker: `python -m training.reranker --corpus DIR --questions DIR --base FOLDER --work DIR --out FILE`.

FOLDER is a Hugging Face folder of all-MiniLM-L6-v2. Its vocabulary is cut (`training.reranker_base`), and it is
fine-tuned to tell the sentence that answers from others of the same document (`training.reranker_data`), both by
reading it with the question and by vectors of the two, as four bits a weight will make of it. FILE is what
`triforce_core.evidence.reranker` reads. The prior's `sentence` network in PRIOR chooses what is learnt from, and its
`answered` (`training.answered`) is fitted anew and written there.

WORK/examples.pickle stays; delete it when the prior or the features change. A trial (`--limit`) has a folder of its own
there. The rate follows the clock, not a count of steps, so another machine gives another, similar model. A tenth of the
documents with natural questions is in no training and is reported.
"""

from __future__ import annotations

import argparse
import itertools
import time
from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils import parametrize
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn
from transformers import BertModel

from training import answered
from training.four_bits import four_bits, is_rounded, packed
from training.prior import replace_networks
from training.question_sets import add_sources, article_documents, held_out, left_out, natural_documents
from training.reranker_base import base_encoder, frequent_pieces
from training.reranker_data import (
    ANSWERED,
    ELSEWHERE,
    EXCERPT,
    FOREIGN,
    HIDDEN,
    UNANSWERABLE,
    Example,
    ReadArticle,
    ReadDocument,
    article,
    read_documents,
)
from triforce_core.evidence.ranking import NEAR_COUNTS, READ, Network, Pairs, batch

CANDIDATES, MOST_RIGHT = 16, 2  # sentences for each question in a step; of them right ones
EASIER = 10.0  # places in the order by words: so much further down, a wrong sentence is drawn e times less often
NEAR, NEAR_SHARE = 9, 0.6  # sentences from an article's answer; the share of others that are drawn from there
ARTICLE_HIDDEN = 0.12  # share of the questions about articles whose answer is not among the sentences
WEIGHTS = {ANSWERED: 1.0, EXCERPT: 0.6, UNANSWERABLE: 2.0, HIDDEN: 0.6, FOREIGN: 0.4, ELSEWHERE: 0.6}
ARTICLE_WEIGHT = 0.5
SHARPNESS, VECTORS_COUNT = 20.0, 0.5  # nats of a cosine; what the vectors' loss counts beside that of reading
BATCH, TRIAL_BATCH = 56, 2  # questions a step
RATE, HEAD_RATE, DECAY, WARM_UP, LONGEST_STEP = 1.2e-4, 1e-3, 0.01, 60, 1.0
AVERAGED_FROM, AVERAGED_EVERY, KEPT = 0.5, 4, 0.995  # the moving average of the weights: share of the time; steps
NOTHING = -1.0  # nats: what every sentence is given before any training
AT_ONCE = 448  # rows that are read at once


class Rounded(nn.Module):
    """What four bits make of a matrix. Gradients pass as if it were not rounded (arXiv 1308.3432)."""

    def forward(self, matrix: Tensor) -> Tensor:
        steps, scale = four_bits(matrix.detach())
        return matrix + ((steps * scale).flatten(1) - matrix.detach())


class Encoder(nn.Module):
    """`triforce_core.evidence.ranking.Reranker` as it is trained."""

    def __init__(self, net: BertModel) -> None:
        super().__init__()
        self.net, self.head = net, nn.Linear(net.config.hidden_size, 1)
        nn.init.zeros_(self.head.weight)
        nn.init.constant_(self.head.bias, NOTHING)
        for module in list(net.modules()):
            if isinstance(module, nn.Linear | nn.Embedding) and is_rounded(module.weight):
                parametrize.register_parametrization(module, "weight", Rounded())

    def forward(self, rows: Sequence[tuple[Sequence[int], Sequence[int]]]) -> Tensor:
        """fp32 [rows]: how well each passage answers its question."""
        return torch.cat([self.head(read[:, 0])[:, 0] for read, _ in self._parts(rows)])[self._back(rows)]

    def vectors(self, texts: Sequence[Sequence[int]]) -> Tensor:
        """fp32 [texts, width], each of length 1."""
        rows = [(text, ()) for text in texts]
        means = [(read * here[..., None]).sum(1) for read, here in self._parts(rows)]
        return F.normalize(torch.cat(means), dim=-1)[self._back(rows)]

    def _parts(self, rows: Sequence[tuple[Sequence[int], Sequence[int]]]) -> Iterator[tuple[Tensor, Tensor]]:
        """(fp32 [some, longest, width], whether a piece stands there), shortest rows first: little to fill up."""
        device, order = self.head.weight.device, by_length(rows)
        for start in range(0, len(order), AT_ONCE):
            ids, segments, here = (tensor.to(device, non_blocking=True)
                                   for tensor in batch([rows[row] for row in order[start : start + AT_ONCE]]))
            with torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda"):
                read = self.net(input_ids=ids, token_type_ids=segments,
                                attention_mask=here.long()).last_hidden_state
            yield read.float(), here

    def _back(self, rows: Sequence[tuple[Sequence[int], Sequence[int]]]) -> Tensor:
        """Where each row is among those in order of length."""
        return torch.tensor(by_length(rows), device=self.head.weight.device).argsort()

    def weights(self) -> dict[str, Tensor]:
        """By the names that `Reranker` knows, on the CPU and not rounded yet."""
        named = {name.replace(".parametrizations.weight.original", ".weight"): tensor
                 for name, tensor in self.net.named_parameters()}
        named |= {f"head.{name}": tensor for name, tensor in self.head.named_parameters()}
        return {name: tensor.detach().cpu().float() for name, tensor in named.items()}


def by_length(rows: Sequence[tuple[Sequence[int], Sequence[int]]]) -> list[int]:
    return sorted(range(len(rows)), key=lambda row: sum(map(len, rows[row])))


@dataclass(frozen=True, eq=False)
class Task:
    """A question and all sentences of its document, in pieces; weight: in the loss."""

    question: list[int]
    passages: list[array[int]]
    weight: float

    def draw(self, chance: np.random.Generator) -> tuple[list[int], int]:
        """(numbers of passages, right ones first; how many are right). None is right where nothing answers."""
        raise NotImplementedError


@dataclass(frozen=True, eq=False)
class NaturalTask(Task):
    """One that draws from an example."""

    example: Example

    def draw(self, chance: np.random.Generator) -> tuple[list[int], int]:
        one = self.example
        golds, wrong = np.flatnonzero(one.golds), np.flatnonzero(~one.golds[: one.found])
        right = chance.permutation(golds)[:MOST_RIGHT].tolist()
        odds, count = np.exp(-np.arange(len(wrong)) / EASIER), min(CANDIDATES - len(right), len(wrong))
        others = chance.choice(wrong, count, replace=False, p=odds / odds.sum()).tolist() if count else []
        return [one.sentences[at] for at in (*right, *others)], len(right)


@dataclass(frozen=True, eq=False)
class ArticleTask(Task):
    """One that draws from an article. gold: the sentence that answers."""

    gold: int

    def draw(self, chance: np.random.Generator) -> tuple[list[int], int]:
        drawn, size = {self.gold: None}, len(self.passages)
        for _ in range(4 * CANDIDATES):
            near = chance.random() < NEAR_SHARE
            at = self.gold + int(chance.integers(-NEAR, NEAR + 1)) if near else int(chance.integers(size))
            if 0 <= at < size and len(drawn) < CANDIDATES:
                drawn[at] = None
        if chance.random() < ARTICLE_HIDDEN and size > 1:
            del drawn[self.gold]
            return list(drawn), 0
        return list(drawn), 1


def tasks_of(document: ReadDocument, pairs: Pairs) -> list[NaturalTask]:
    """One for each of its examples."""
    passages = [array("H", row) for row in pairs.passages(document.passages)]
    questions = pairs.questions([one.question for one in document.examples])
    return [NaturalTask(question, passages, WEIGHTS[one.case], one)
            for question, one in zip(questions, document.examples, strict=True)]


def tasks_of_article(document: ReadArticle, pairs: Pairs) -> list[ArticleTask]:
    """One for each of its questions."""
    passages = [array("H", row) for row in pairs.passages(document.passages)]
    questions = pairs.questions([question for question, _ in document.queries])
    return [ArticleTask(question, passages, ARTICLE_WEIGHT, gold)
            for question, (_, gold) in zip(questions, document.queries, strict=True)]


def steps(natural: Sequence[Task], articles: Sequence[Task], size: int,
          chance: np.random.Generator) -> Iterator[list[Task]]:
    """Round after round, in each all natural questions and as many about articles."""
    while True:
        count = min(len(natural), len(articles))
        drawn = [*natural, *(articles[at] for at in chance.permutation(len(articles))[:count])]
        order = chance.permutation(len(drawn)).tolist()
        for start in range(0, len(order), size):
            yield [drawn[at] for at in order[start : start + size]]


def loss_of(net: Encoder, tasks: Sequence[Task], chance: np.random.Generator) -> Tensor:
    """Listwise: of each question the share of its right sentences against the others and "nothing", which is at 0.
    Beside it the loss of the vectors."""
    drawn = [task.draw(chance) for task in tasks]
    rows = [(task.question, task.passages[at]) for task, (numbers, _) in zip(tasks, drawn, strict=True)
            for at in numbers]
    scores = net(rows).split([len(numbers) for numbers, _ in drawn])
    nats = []
    for own, (_, right) in zip(scores, drawn, strict=True):
        with_nothing = torch.cat((own, own.new_zeros(1)))
        nats.append(with_nothing.logsumexp(0) - (own[:right].logsumexp(0) if right else 0.0))
    weights = torch.tensor([task.weight for task in tasks], device=net.head.weight.device)
    reading = (torch.stack(nats) * weights).sum() / weights.sum()
    return reading + VECTORS_COUNT * loss_of_vectors(net, tasks, drawn, weights)


def loss_of_vectors(net: Encoder, tasks: Sequence[Task], drawn: Sequence[tuple[list[int], int]],
                    weights: Tensor) -> Tensor:
    """Of each question that has right sentences their share against all sentences of the step (arXiv 1908.10084,
    in-batch negatives)."""
    sentences = [alone(task.question, task.passages[at]) for task, (numbers, _) in zip(tasks, drawn, strict=True)
                 for at in numbers]
    near = SHARPNESS * net.vectors([task.question for task in tasks]) @ net.vectors(sentences).T
    starts = np.cumsum([0, *(len(numbers) for numbers, _ in drawn)])
    nats = [own.logsumexp(0) - own[start : start + right].logsumexp(0) if right else own.new_zeros(())
            for own, start, (_, right) in zip(near, starts.tolist(), drawn, strict=False)]
    counted = weights * torch.tensor([right > 0 for _, right in drawn], device=weights.device)
    return (torch.stack(nats) * counted).sum() / counted.sum().clamp_min(1e-6)


def alone(question: Sequence[int], passage: Sequence[int]) -> list[int]:
    """A passage's sentence as `Pairs.sentences` has it. A question begins and ends with the marks that it needs."""
    return [question[0], *itertools.takewhile(lambda piece: piece != question[-1], passage), question[-1]]


def train(net: Encoder, natural: Sequence[Task], articles: Sequence[Task], seconds: float, size: int,
          chance: np.random.Generator) -> Encoder:
    """Trains it for so long, one step at least; returns the average of its weights."""
    matrices = [weights for weights in net.net.parameters() if weights.ndim > 1]
    others = [weights for weights in net.net.parameters() if weights.ndim < 2]
    optimiser = torch.optim.AdamW([{"params": matrices, "weight_decay": DECAY}, {"params": others},
                                   {"params": net.head.parameters(), "lr": HEAD_RATE}],
                                  lr=RATE, betas=(0.9, 0.98), weight_decay=0.0)
    rates = [group["lr"] for group in optimiser.param_groups]
    averaged = AveragedModel(net, multi_avg_fn=get_ema_multi_avg_fn(KEPT))
    started, step, share = time.time(), 0, 0.0
    net.train()
    for tasks in steps(natural, articles, size, chance):
        for group, rate in zip(optimiser.param_groups, rates, strict=True):
            group["lr"] = rate * min(1.0, (step + 1) / WARM_UP) * (1 - share)
        loss = loss_of(net, tasks, chance)
        optimiser.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(net.parameters(), LONGEST_STEP)
        optimiser.step()
        step, share = step + 1, (time.time() - started) / seconds
        if share >= 1 or (share > AVERAGED_FROM and step % AVERAGED_EVERY == 0):
            averaged.update_parameters(net)
        if step % 100 == 0 or share >= 1:
            print(f"  step {step}: loss {float(loss.detach()):.3f}, {time.time() - started:.0f} s", flush=True)
        if share >= 1:
            break
    return averaged.module.eval()


@torch.inference_mode()
def read(net: Encoder, tasks: Sequence[NaturalTask]) -> list[np.ndarray]:
    """Of each task's example the nats of those sentences that the application would read, float32 [READ or fewer]."""
    found = [task.example.sentences[: min(READ, task.example.found)] for task in tasks]
    rows = [(task.question, task.passages[at]) for task, numbers in zip(tasks, found, strict=True) for at in numbers]
    with parametrize.cached():
        scores = net(rows).cpu().numpy()
    return np.split(scores, np.cumsum([len(numbers) for numbers in found])[:-1])


@torch.inference_mode()
def compared(net: Encoder, tasks: Sequence[NaturalTask]) -> list[NaturalTask]:
    """With examples in the order in which the application reads their sentences, by words and vectors; ``by_words``
    says how well they fit by both."""
    again = []
    with parametrize.cached():
        for task in tasks:
            one = task.example
            found = one.sentences[: one.found]
            near = (net.vectors([alone(task.question, task.passages[at]) for at in found])
                    @ net.vectors([task.question])[0]).cpu().numpy()
            seen = one.by_words.copy()
            seen[: one.found] += NEAR_COUNTS * near
            order = [*np.argsort(-seen[: one.found], kind="stable").tolist(), *range(one.found, len(seen))]
            again.append(replace(task, example=replace(
                one, sentences=[one.sentences[at] for at in order], by_words=seen[order], golds=one.golds[order],
                strange=one.strange[order])))
    return again


def save(out: Path, net: Encoder, pieces: Sequence[str]) -> None:
    """Writes what `Reranker.load` reads."""
    unfinished = out.with_suffix(".part.npz")
    np.savez_compressed(unfinished, **packed(net.weights()), heads=np.array(net.net.config.num_attention_heads),
                        pieces=np.frombuffer("\n".join(pieces).encode(), np.uint8))
    unfinished.rename(out)


def make(options: argparse.Namespace) -> None:
    """All steps."""
    started, chance = time.time(), np.random.default_rng(options.seed)
    work = options.work / f"limit-{options.limit}" if options.limit else options.work
    work.mkdir(parents=True, exist_ok=True)
    without = left_out(options.left_out)
    natural = natural_documents(options.corpus, options.questions, without, options.limit)
    articles = [article(one) for one in article_documents(options.corpus, without, options.limit)]
    with np.load(options.prior) as kept:
        sentence = Network.from_stored({name: kept[name].astype(np.float32) for name in kept.files}, "sentence")
    documents = read_documents(work / "examples.pickle", natural, options.vectors, sentence, options.workers)
    pieces = frequent_pieces(options.base, options.corpus, options.limit)
    pairs, unseen = Pairs(pieces), held_out(one.name for one in documents)
    learnt = [task for one in documents if one.name not in unseen for task in tasks_of(one, pairs)]
    left = [task for one in documents if one.name in unseen for task in tasks_of(one, pairs)]
    written = [task for one in articles for task in tasks_of_article(one, pairs)]
    print(f"{len(learnt)} examples, {len(left)} held out, {len(written)} of articles, {time.time() - started:.0f} s",
          flush=True)
    if not (learnt and left and written):
        raise SystemExit("Too few documents to learn from and to measure on: give a --limit of 2 or more.")

    torch.manual_seed(options.seed)
    net = Encoder(base_encoder(options.base, pieces)).to(options.device)
    net = train(net, learnt, written, options.seconds, TRIAL_BATCH if options.limit else BATCH, chance)
    save(options.out, net, pieces)
    left = compared(net, left)
    examples, nats = [task.example for task in left], read(net, left)
    answered.measure(examples, nats)
    replace_networks(options.prior, {"answered": answered.fit(examples, nats)})
    print(f"{options.out}: {options.out.stat().st_size / 1e6:.1f} MB, {time.time() - started:.0f} s", flush=True)


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_sources(parser)
    parser.add_argument("--base", type=Path, required=True, help="Hugging Face folder of all-MiniLM-L6-v2")
    parser.add_argument("--out", type=Path, required=True, help="assets/words/reranker.npz ships")
    parser.add_argument("--prior", type=Path, required=True, help="read and written; assets/words/prior.npz ships")
    parser.add_argument("--seconds", type=float, default=150, help="of fine-tuning")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    make(parser.parse_args())


if __name__ == "__main__":
    main()
