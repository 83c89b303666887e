"""Makes the reranker: `python -m training.reranker --corpus DIR --questions DIR --written FILE --teacher FOLDER
--base FOLDER --work DIR --out FILE --prior FILE`.

BASE is a Hugging Face folder of all-MiniLM-L6-v2. Its vocabulary is cut (`training.reranker_base`), and it is
fine-tuned to tell the sentence that answers from others of the same document (`training.reranker_data`), as four bits a
weight will make of it. OUT is what `triforce_core.quotes.reranker` reads. The prior's `sentence` network in PRIOR
chooses what is learnt from, and its `answered` (`training.answered`) is fitted anew and written there.

TEACHER is one of all-mpnet-base-v2: fine-tuned first, on the same questions, it is larger and knows better. Then the
reranker learns what it says of each sentence too, and of WRITTEN (`training.question_writer`) only that: what was
written may be wrong.

WORK/*.pickle stay; delete them when the prior or the features change. A trial (`--limit`) has a folder of its own
there. The rate follows the clock, not a count of steps, so another machine gives another, similar model. A tenth of the
documents with natural questions is in no training and is reported.
"""

from __future__ import annotations

import argparse
import time
from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils import parametrize
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn
from transformers import BertModel, PreTrainedModel

from training import answered
from training.prior import replace_networks
from training.question_sets import (
    AskedDocument,
    add_sources,
    article_documents,
    held_out,
    kept,
    left_out,
    natural_documents,
    written_documents,
)
from training.reranker_base import base_encoder, frequent_pieces, teacher_encoder
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
from triforce_core.quotes.reranker import Pairs, batch, four_bits, is_rounded, packed
from triforce_core.quotes.sentence_prior import READ, Network

CANDIDATES, MOST_RIGHT = 16, 2  # sentences for each question in a step; of them right ones
EASIER = 10.0  # places in the order by words: so much further down, a wrong sentence is drawn e times less often
NEAR, NEAR_SHARE = 9, 0.6  # sentences from an article's answer; the share of others that are drawn from there
ARTICLE_HIDDEN = 0.12  # share of the questions about articles whose answer is not among the sentences
WEIGHTS = {ANSWERED: 1.0, EXCERPT: 0.6, UNANSWERABLE: 2.0, HIDDEN: 0.6, FOREIGN: 0.4, ELSEWHERE: 0.6}
ARTICLE_WEIGHT = 0.5
TAUGHT, WRITTEN_TAUGHT = 0.5, 1.0  # share of what the teacher says in the loss, the rest is what people said
BATCH, TEACHERS_BATCH, TRIAL_BATCH = 56, 28, 2  # questions a step
RATE, TEACHERS_RATE, HEAD_RATE, DECAY, WARM_UP, LONGEST_STEP = 1e-4, 3e-5, 1e-3, 0.01, 60, 1.0
AVERAGED_FROM, AVERAGED_EVERY, KEPT = 0.5, 4, 0.98  # the moving average of the weights: share of the time; steps
NOTHING = -1.0  # nats: what every sentence is given before any training
AT_ONCE = 448  # rows that are read at once
NEVER = -1e9  # nats of a place where no sentence is


def moved(tensor: Tensor, device: torch.device) -> Tensor:
    """There. The next step is made ready while the device still computes: from pinned memory nothing is waited for."""
    return tensor.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else tensor


class Rounded(nn.Module):
    """What four bits make of a matrix. Gradients pass as if it were not rounded (arXiv 1308.3432)."""

    def forward(self, matrix: Tensor) -> Tensor:
        steps, scale = four_bits(matrix.detach())
        return matrix + ((steps * scale).flatten(1) - matrix.detach())


class CrossEncoder(nn.Module):
    """`triforce_core.quotes.reranker.Reranker` as it is trained, or its teacher, which is not rounded."""

    def __init__(self, net: PreTrainedModel, rounded: bool = True) -> None:
        super().__init__()
        self.net, self.head = net, nn.Linear(net.config.hidden_size, 1)
        nn.init.zeros_(self.head.weight)
        nn.init.constant_(self.head.bias, NOTHING)
        for module in list(net.modules()):
            if rounded and isinstance(module, nn.Linear | nn.Embedding) and is_rounded(module.weight):
                parametrize.register_parametrization(module, "weight", Rounded())

    def forward(self, rows: Sequence[tuple[Sequence[int], Sequence[int]]]) -> Tensor:
        """fp32 [rows]"""
        order = sorted(range(len(rows)), key=lambda row: sum(map(len, rows[row])))  # alike in length: little to fill up
        read = [self._read([rows[row] for row in order[start : start + AT_ONCE]])
                for start in range(0, len(order), AT_ONCE)]
        return torch.cat(read)[moved(torch.tensor(order).argsort(), self.head.weight.device)]

    def _read(self, rows: Sequence[tuple[Sequence[int], Sequence[int]]]) -> Tensor:
        device = self.head.weight.device
        ids, segments, here = (moved(tensor, device) for tensor in batch(rows))
        known = {"token_type_ids": segments} if isinstance(self.net, BertModel) else {}
        with torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda"):
            read = self.net(input_ids=ids, attention_mask=here.long(), **known).last_hidden_state
        return self.head(read[:, 0].float())[:, 0]

    def weights(self) -> dict[str, Tensor]:
        """By the names that `Reranker` knows, on the CPU and not rounded yet."""
        named = {name.replace(".parametrizations.weight.original", ".weight"): tensor
                 for name, tensor in self.net.named_parameters()}
        named |= {f"head.{name}": tensor for name, tensor in self.head.named_parameters()}
        return {name: tensor.detach().cpu().float() for name, tensor in named.items()}


@dataclass(frozen=True, eq=False)
class Task:
    """A question and all sentences of its document, in pieces; weight: in the loss; taught: the teacher's share in it;
    twin: the same in the teacher's pieces."""

    question: list[int]
    passages: list[array[int]]
    weight: float
    taught: float = field(default=0.0, kw_only=True)
    twin: Task | None = field(default=None, kw_only=True)

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


def with_twins(tasks: Sequence[Task], twins: Sequence[Task], taught: float) -> list[Task]:
    """Tasks that the teacher has a share in."""
    return [replace(task, taught=taught, twin=twin) for task, twin in zip(tasks, twins, strict=True)]


def steps(natural: Sequence[Task], others: Sequence[Sequence[Task]], size: int,
          chance: np.random.Generator) -> Iterator[list[Task]]:
    """Round after round, in each all natural questions and as many of each of the others."""
    while True:
        drawn = list(natural)
        for some in others:
            drawn += [some[at] for at in chance.permutation(len(some))[: len(natural)]]
        order = chance.permutation(len(drawn)).tolist()
        for start in range(0, len(order), size):
            yield [drawn[at] for at in order[start : start + size]]


def shares(net: CrossEncoder, tasks: Sequence[Task], drawn: Sequence[tuple[list[int], int]]) -> Tensor:
    """[tasks, CANDIDATES + 1]: the log shares of the sentences drawn and, last, of "nothing", whose score is 0."""
    device, width = net.head.weight.device, CANDIDATES + 1
    rows = [(task.question, task.passages[at]) for task, (numbers, _) in zip(tasks, drawn, strict=True)
            for at in numbers]
    places = [row * width + place for row, (numbers, _) in enumerate(drawn) for place in range(len(numbers))]
    scores = torch.full((len(tasks), width), NEVER, device=device)
    scores[:, -1] = 0
    return scores.flatten().index_copy(0, moved(torch.tensor(places), device), net(rows)).view_as(scores).log_softmax(1)


def loss_of(net: CrossEncoder, tasks: Sequence[Task], chance: np.random.Generator,
            teacher: CrossEncoder | None = None) -> Tensor:
    """Listwise: the share of each question's right sentences, or of "nothing", and how far the shares are from the
    teacher's (KL divergence; arXiv 1503.02531)."""
    device, drawn = net.head.weight.device, [task.draw(chance) for task in tasks]
    right = torch.zeros((len(tasks), CANDIDATES + 1), dtype=torch.bool)
    for row, (_, count) in enumerate(drawn):
        right[row, :count] = True
        right[row, -1] = not count
    weights = moved(torch.tensor([task.weight for task in tasks]), device)
    own = shares(net, tasks, drawn)
    nats = -own.masked_fill(~moved(right, device), NEVER).logsumexp(1)
    if teacher is not None:
        with torch.no_grad():
            told = shares(teacher, [task.twin for task in tasks if task.twin], drawn)
        taught = moved(torch.tensor([task.taught for task in tasks]), device)
        nats = (1 - taught) * nats + taught * F.kl_div(own, told, reduction="none", log_target=True).sum(1)
    return (nats * weights).sum() / weights.sum()


def train(net: CrossEncoder, batches: Iterator[list[Task]], seconds: float, chance: np.random.Generator,
          rate: float = RATE, teacher: CrossEncoder | None = None) -> CrossEncoder:
    """Trains it for so long, one step at least; returns the average of its weights."""
    matrices = [weights for weights in net.net.parameters() if weights.ndim > 1]
    others = [weights for weights in net.net.parameters() if weights.ndim < 2]
    optimiser = torch.optim.AdamW([{"params": matrices, "weight_decay": DECAY}, {"params": others},
                                   {"params": net.head.parameters(), "lr": HEAD_RATE}],
                                  lr=rate, betas=(0.9, 0.98), weight_decay=0.0)
    rates = [group["lr"] for group in optimiser.param_groups]
    averaged = AveragedModel(net, multi_avg_fn=get_ema_multi_avg_fn(KEPT))
    started, step, share = time.time(), 0, 0.0
    net.train()
    for tasks in batches:
        for group, highest in zip(optimiser.param_groups, rates, strict=True):
            group["lr"] = highest * min(1.0, (step + 1) / WARM_UP) * (1 - share)
        with parametrize.cached():  # rounded once for all rows of a step
            loss = loss_of(net, tasks, chance, teacher)
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
def read(net: CrossEncoder, tasks: Sequence[NaturalTask]) -> list[np.ndarray]:
    """Of each task's example the nats of those sentences that the application would read, float32 [READ or fewer]."""
    found = [task.example.sentences[: min(READ, task.example.found)] for task in tasks]
    rows = [(task.question, task.passages[at]) for task, numbers in zip(tasks, found, strict=True) for at in numbers]
    with parametrize.cached():
        scores = net(rows).cpu().numpy()
    return np.split(scores, np.cumsum([len(numbers) for numbers in found])[:-1])


def save(out: Path, net: CrossEncoder, pieces: Sequence[str]) -> None:
    """Writes what `Reranker.load` reads."""
    unfinished = out.with_suffix(".part.npz")
    np.savez_compressed(unfinished, **packed(net.weights()), heads=np.array(net.net.config.num_attention_heads),
                        pieces=np.frombuffer("\n".join(pieces).encode(), np.uint8))
    unfinished.rename(out)


@dataclass(frozen=True, eq=False)
class Material:
    """What is learnt from."""

    natural: list[ReadDocument]
    articles: list[ReadArticle]
    written: list[ReadDocument]

    @classmethod
    def of(cls, options: argparse.Namespace, work: Path) -> Material:
        """As the sentence network of `options.prior` chooses."""
        without = left_out(options.left_out)
        with np.load(options.prior) as stored:
            sentence = Network.from_stored({name: stored[name].astype(np.float32) for name in stored.files}, "sentence")

        def documents(asked: list[AskedDocument]) -> list[ReadDocument]:
            return read_documents(asked, options.vectors, sentence, options.workers)

        return cls(kept(work / "examples.pickle", lambda: documents(natural_documents(
                       options.corpus, options.questions, without, options.limit))),
                   kept(work / "articles.pickle", lambda: [
                       article(one) for one in article_documents(options.corpus, without, options.limit)]),
                   kept(work / "written.pickle", lambda: documents(
                       written_documents(options.written)[: options.limit])) if options.written else [])

    def tasks(self, pairs: Pairs) -> Tasks:
        """In these pieces."""
        unseen = held_out(one.name for one in self.natural)
        return Tasks([task for one in self.natural if one.name not in unseen for task in tasks_of(one, pairs)],
                     [task for one in self.natural if one.name in unseen for task in tasks_of(one, pairs)],
                     [task for one in self.articles for task in tasks_of_article(one, pairs)],
                     [task for one in self.written for task in tasks_of(one, pairs)])


@dataclass(frozen=True, eq=False)
class Tasks:
    """What is learnt from, and what is only measured on."""

    learnt: Sequence[Task]
    left: list[NaturalTask]
    articles: Sequence[Task]
    written: Sequence[Task]


def taught(material: Material, tasks: Tasks, options: argparse.Namespace,
           chance: np.random.Generator) -> tuple[CrossEncoder, Tasks]:
    """(the teacher, what it has a share in). Of the written questions it learns nothing."""
    net, pieces = teacher_encoder(options.teacher)
    twins = material.tasks(Pairs(pieces))
    size = TRIAL_BATCH if options.limit else TEACHERS_BATCH
    teacher = train(CrossEncoder(net, rounded=False).to(options.device), steps(
        twins.learnt, [twins.articles], size, chance), options.teachers_seconds, chance, TEACHERS_RATE)
    print("the teacher:", flush=True)
    answered.measure([task.example for task in twins.left], read(teacher, twins.left))
    return teacher, Tasks(with_twins(tasks.learnt, twins.learnt, TAUGHT), tasks.left,
                          with_twins(tasks.articles, twins.articles, TAUGHT),
                          with_twins(tasks.written, twins.written, WRITTEN_TAUGHT))


def make(options: argparse.Namespace) -> None:
    """All steps."""
    started, chance = time.time(), np.random.default_rng(options.seed)
    work = options.work / f"limit-{options.limit}" if options.limit else options.work
    work.mkdir(parents=True, exist_ok=True)
    material = Material.of(options, work)
    pieces = kept(work / "pieces.pickle", lambda: frequent_pieces(options.base, options.corpus, options.limit))
    tasks, teacher, size = material.tasks(Pairs(pieces)), None, TRIAL_BATCH if options.limit else BATCH
    print(f"{len(tasks.learnt)} examples, {len(tasks.left)} held out, {len(tasks.articles)} of articles, "
          f"{len(tasks.written)} of written questions, {time.time() - started:.0f} s", flush=True)
    if not (tasks.learnt and tasks.left and tasks.articles):
        raise SystemExit("Too few documents to learn from and to measure on: give a --limit of 2 or more.")

    torch.manual_seed(options.seed)
    if options.teacher:
        teacher, tasks = taught(material, tasks, options, chance)
    net = CrossEncoder(base_encoder(options.base, pieces)).to(options.device)
    others = [tasks.articles, tasks.written] if tasks.written else [tasks.articles]
    net = train(net, steps(tasks.learnt, others, size, chance), options.seconds, chance, teacher=teacher)
    save(options.out, net, pieces)
    examples, nats = [task.example for task in tasks.left], read(net, tasks.left)
    answered.measure(examples, nats)
    replace_networks(options.prior, {"answered": answered.fit(examples, nats)})
    print(f"{options.out}: {options.out.stat().st_size / 1e6:.1f} MB, {time.time() - started:.0f} s", flush=True)


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_sources(parser)
    parser.add_argument("--base", type=Path, required=True, help="Hugging Face folder of all-MiniLM-L6-v2")
    parser.add_argument("--out", type=Path, required=True, help="assets/words/reranker.npz is the one that ships")
    parser.add_argument("--prior", type=Path, required=True, help="read and written; assets/words/prior.npz ships")
    parser.add_argument("--seconds", type=float, default=150, help="of fine-tuning")
    parser.add_argument("--written", type=Path, help="of training.question_writer; needs --teacher")
    parser.add_argument("--teacher", type=Path, help="Hugging Face folder of all-mpnet-base-v2")
    parser.add_argument("--teachers-seconds", type=float, default=130, help="of its fine-tuning")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    make(parser.parse_args())


if __name__ == "__main__":
    main()
