"""Writes questions about texts that nobody asked about: `python -m training.question_writer --corpus DIR --corpus2 DIR
--questions DIR --base FOLDER --work DIR --out FILE`.

FOLDER holds SmolLM2-135M-Instruct (a GGUF file, or a Hugging Face folder). It is fine-tuned on the natural questions,
from a sentence and what stands around it to the question, and then asked about sentences of other texts: of some 60
lines of each, most of its questions in other words than the sentence's. FILE has a JSON object a line: name, sentences,
lines (the number of the line on which each sentence stands) and questions ([question, the number of its sentence,
kind]).

WORK/writing.pickle, what is learnt and what is asked about, stays. A tenth of the documents with natural questions is
not learnt from, and no text is used that a test set or a natural question is about.
"""

from __future__ import annotations

import argparse
import json
import re
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random

import torch
import torch.nn.functional as F
from torch import Tensor
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedModel, PreTrainedTokenizerBase

from training.question_sets import AskedDocument, held_out, kept, left_out, natural_documents, split
from training.text import each_record
from triforce_core.prompt.typography import ascii_typography
from triforce_core.quotes.question_words import REQUEST, WORD

PARAPHRASE, PLAIN = "paraphrase", "plain"
MANNERS = {PARAPHRASE: "Question in other words:", PLAIN: "Question:"}
WITHOUT = ("unanswerable", "followup", "follow-up", "keyword")  # kinds of natural questions that are not learnt from
TEXTS = {"reports": 450, "reference": 450, "prose": 300, "books": 100}  # asked about
LINES, SENTENCES, FEWEST = 60, 150, 20  # of a text, at most; its sentences, at least
ASKED, IN_OTHER_WORDS = 32, 0.7  # sentences of each text; share of the questions that are wanted as paraphrases
WORDS, LETTERS = (8, 60), 0.75  # of a sentence that is asked about; share of its characters that are letters or spaces
BEFORE, AFTER = 3, 1  # sentences around it that are shown
BATCH, TRIAL_BATCH, RATE, WARM_UP, EPOCHS = 32, 2, 2e-4, 30, 3
AT_ONCE, BLOCK = 1024, 8192  # questions written at once; those that are sorted by length together
TEMPERATURE, LIKELIEST, LONGEST = 0.8, 50, 36  # of sampling; tokens to draw from; tokens of a question
QUESTION_WORDS = (4, 30)
COPIED_ALL, COPIED_FEW, COPIED_ROW = 0.8, 0.34, 6  # shares of the words that bear meaning; words in a row


@dataclass(frozen=True)
class Excerpt:
    """Lines of a text that are asked about. asked: (number of a sentence, manner)."""

    name: str
    sentences: list[str]
    lines: list[int]
    asked: list[tuple[int, str]]


def prompt(sentences: Sequence[str], at: int, manner: str, count: int = 1) -> str:
    """Asks for a question that these ``count`` sentences answer."""
    answer = " ".join(sentences[at : at + count])
    around = " ".join(sentences[max(0, at - BEFORE) : at + count + AFTER])
    return f"Text: {around}\nAnswer: {answer}\n{MANNERS[manner]}"


def lessons(document: AskedDocument) -> list[tuple[str, str]]:
    """(prompt, question) of each natural question that can be put without another."""
    made = []
    for query in document.queries:
        if query.golds and query.kind not in WITHOUT:
            first = query.golds[0]
            manner = PARAPHRASE if query.kind == PARAPHRASE else PLAIN
            made.append((prompt(document.sentences, first, manner, 1 + (first + 1 in query.golds)), query.text))
    return made


def is_prose(sentence: str) -> bool:
    """Whether a question can be asked about it: no heading, list, formula or table."""
    letters = sum(letter.isalpha() or letter == " " for letter in sentence)
    return (WORDS[0] <= len(sentence.split()) <= WORDS[1] and letters >= LETTERS * len(sentence)
            and re.search(r"[.!?][\"')]*$", sentence) is not None)


def excerpt(name: str, text: str, chance: Random) -> Excerpt | None:
    """Some lines in a row of a text; nothing where there are too few sentences."""
    stated = [line for line in ascii_typography(text).split("\n") if line.strip()]
    start = chance.randrange(max(1, len(stated) - LINES))
    sentences, lines, _ = split("\n".join(stated[start : start + LINES]))
    sentences, lines = sentences[:SENTENCES], lines[:SENTENCES]
    fit = [at for at, sentence in enumerate(sentences) if is_prose(sentence)]
    if len(fit) < FEWEST:
        return None
    drawn = sorted(chance.sample(fit, min(len(fit), ASKED)))
    return Excerpt(name, sentences, lines, [(at, PARAPHRASE if chance.random() < IN_OTHER_WORDS else PLAIN)
                                            for at in drawn])


def excerpts(options: argparse.Namespace, without: set[str]) -> list[Excerpt]:
    """Of texts drawn from each file but those left out."""
    chance, made = Random(options.seed), []
    for kind, count in TEXTS.items():
        folder = options.corpus if kind in ("prose", "books") else options.corpus2
        records = [(record["id"], record["text"]) for record in each_record(folder / f"{kind}-train.jsonl.zst")
                   if record["id"] not in without]
        chance.shuffle(records)
        found = (excerpt(name, text, chance) for name, text in records)
        some = [one for one, _ in zip(filter(None, found), range(options.limit or count), strict=False)]
        print(f"  {kind}: {len(some)} texts", flush=True)
        made += some
    chance.shuffle(made)
    return made


def material(options: argparse.Namespace) -> tuple[list[tuple[str, str]], list[tuple[str, str]], list[Excerpt]]:
    """(lessons, lessons held out, excerpts)"""
    documents = natural_documents(options.corpus, options.questions, left_out(options.left_out), None)
    unseen = held_out(one.name for one in documents)
    learnt = [lesson for one in documents if one.name not in unseen for lesson in lessons(one)]
    others = [lesson for one in documents if one.name in unseen for lesson in lessons(one)]
    asked = {json.loads(line)["doc_id"] for line in (options.questions / "questions-train.jsonl").open(encoding="utf8")}
    return learnt, others, excerpts(options, asked | left_out(options.left_out))


def load(folder: Path) -> tuple[PreTrainedTokenizerBase, PreTrainedModel]:
    """Tokenizer and model, fp32."""
    packed = next((file.name for file in folder.glob("*.gguf")), None)
    tokenizer = AutoTokenizer.from_pretrained(folder, gguf_file=packed)
    return tokenizer, AutoModelForCausalLM.from_pretrained(folder, gguf_file=packed, dtype=torch.float32)


def loss_of(net: PreTrainedModel, rows: Sequence[tuple[list[int], list[int]]]) -> Tensor:
    """Mean nats of the tokens of the questions, of rows (prompt, question)."""
    longest = max(len(before) + len(question) for before, question in rows)
    ids = torch.zeros((len(rows), longest), dtype=torch.long)
    wanted = torch.full_like(ids, -100)
    for row, (before, question) in enumerate(rows):
        ids[row, : len(before) + len(question)] = torch.tensor(before + question)
        wanted[row, len(before) : len(before) + len(question)] = torch.tensor(question)
    # What fills up comes last, and nothing before it attends to it.
    ids, told = ids.to(net.device), wanted[:, 1:].to(net.device)
    with torch.autocast(net.device.type, torch.bfloat16, enabled=net.device.type == "cuda"):
        read = net.model(input_ids=ids).last_hidden_state[:, :-1]
        scores = net.lm_head(read[told >= 0])  # the text's own tokens would take gigabytes
    return F.cross_entropy(scores.float(), told[told >= 0])


def teach(net: PreTrainedModel, learnt: Sequence[tuple[list[int], list[int]]],
          others: Sequence[tuple[list[int], list[int]]], seconds: float, size: int, chance: Random) -> None:
    """Fine-tunes it for so long, or EPOCHS; prints what it then makes of the others."""
    optimiser = torch.optim.AdamW(net.parameters(), lr=RATE, betas=(0.9, 0.98), weight_decay=0.01)
    started, step, share = time.time(), 0, 0.0
    steps = EPOCHS * len(learnt) / size
    net.train()
    while share < 1:
        for group in optimiser.param_groups:
            group["lr"] = RATE * min(1.0, (step + 1) / WARM_UP) * (1 - share)
        loss = loss_of(net, chance.sample(learnt, size))
        optimiser.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        optimiser.step()
        step, share = step + 1, max((time.time() - started) / seconds, (step + 1) / steps)
        if step % 50 == 0 or share >= 1:
            print(f"  step {step}: loss {float(loss.detach()):.3f}, {time.time() - started:.0f} s", flush=True)
    net.eval()
    with torch.inference_mode():
        told = [float(loss_of(net, others[at : at + size])) for at in range(0, len(others), size)]
    print(f"  held out: {sum(told) / max(1, len(told)):.3f} nats a token of {len(others)} questions", flush=True)


@torch.inference_mode()
def write(net: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, prompts: Sequence[str],
          seconds: float) -> Iterator[tuple[int, str]]:
    """(number of a prompt, what it writes), for so long."""
    started = time.time()
    for block in range(0, len(prompts), BLOCK):
        order = sorted(range(block, min(block + BLOCK, len(prompts))), key=lambda at: len(prompts[at]))
        for start in range(0, len(order), AT_ONCE):
            if time.time() - started > seconds:
                return
            some = order[start : start + AT_ONCE]
            asked = tokenizer([prompts[at] for at in some], return_tensors="pt", padding=True).to(net.device)
            rows = net.generate(input_ids=asked["input_ids"], attention_mask=asked["attention_mask"], do_sample=True,
                                temperature=TEMPERATURE, top_k=LIKELIEST, top_p=1.0, max_new_tokens=LONGEST,
                                eos_token_id=tokenizer.eos_token_id, pad_token_id=tokenizer.pad_token_id)
            texts = tokenizer.batch_decode(rows[:, asked["input_ids"].shape[1] :], skip_special_tokens=True)
            yield from zip(some, texts, strict=True)
        print(f"  {block + len(order)} of {len(prompts)} asked about, {time.time() - started:.0f} s", flush=True)


def kind_of(question: str, sentence: str) -> str | None:
    """PARAPHRASE where it shares few words with the sentence; nothing if it has no sense or is a copy."""
    words, stated = WORD.findall(question.lower()), WORD.findall(sentence.lower())
    telling = [word for word in words if word not in REQUEST]
    if not question.endswith("?") or not QUESTION_WORDS[0] <= len(words) <= QUESTION_WORDS[1] or not telling:
        return None
    rows = {tuple(stated[at : at + COPIED_ROW]) for at in range(len(stated) - COPIED_ROW + 1)}
    if any(tuple(words[at : at + COPIED_ROW]) in rows for at in range(len(words))):
        return None
    copied = sum(word in set(stated) for word in telling) / len(telling)
    if copied > COPIED_ALL:
        return None
    return PARAPHRASE if copied <= COPIED_FEW else PLAIN


def save(out: Path, texts: Sequence[Excerpt], wanted: Sequence[tuple[int, int]], told: dict[int, str]) -> None:
    """wanted: of each prompt the text and the sentence. told: what was written, by the number of the prompt."""
    questions: list[dict[str, tuple[int, str]]] = [{} for _ in texts]  # the same question once in a text
    for number, written in sorted(told.items()):
        text, at = wanted[number]
        question = ascii_typography(written).strip().split("\n")[0].strip()
        kind = kind_of(question, texts[text].sentences[at])
        if kind:
            questions[text].setdefault(question, (at, kind))
    with out.open("w", encoding="utf8") as file:
        for one, asked in zip(texts, questions, strict=True):
            if asked:
                rows = [[question, at, kind] for question, (at, kind) in asked.items()]
                file.write(json.dumps({"name": one.name, "sentences": one.sentences, "lines": one.lines,
                                       "questions": rows}) + "\n")
    kinds = [kind for asked in questions for _, kind in asked.values()]
    print(f"{out}: {len(kinds)} of {len(told)} questions kept, {kinds.count(PARAPHRASE)} of them paraphrases, about "
          f"{sum(map(bool, questions))} texts", flush=True)


def make(options: argparse.Namespace) -> None:
    """All steps."""
    started = time.time()
    options.work.mkdir(parents=True, exist_ok=True)
    learnt, others, texts = kept(options.work / "writing.pickle", lambda: material(options))
    if options.limit:
        others, texts = others[: options.limit], texts[: len(TEXTS) * options.limit]
    print(f"{len(learnt)} questions to learn from, {len(others)} held out, {len(texts)} texts", flush=True)
    torch.manual_seed(options.seed)
    tokenizer, net = load(options.base)
    net = net.to(options.device)
    tokenizer.padding_side = "left"

    def encoded(pairs: Sequence[tuple[str, str]]) -> list[tuple[list[int], list[int]]]:
        befores = tokenizer([before for before, _ in pairs])["input_ids"]
        questions = tokenizer([" " + question for _, question in pairs])["input_ids"]
        return [(before, [*question, tokenizer.eos_token_id])
                for before, question in zip(befores, questions, strict=True)]

    print(f"  loaded, {time.time() - started:.0f} s", flush=True)
    teach(net, encoded(learnt), encoded(others), options.seconds,
          TRIAL_BATCH if options.limit else BATCH, Random(options.seed))
    wanted = [(number, at, manner) for number, one in enumerate(texts) for at, manner in one.asked[: options.limit]]
    prompts = [prompt(texts[number].sentences, at, manner) for number, at, manner in wanted]
    net = net.to(torch.bfloat16) if net.device.type == "cuda" else net
    told = dict(write(net, tokenizer, prompts, options.write_seconds))
    save(options.out, texts, [(number, at) for number, at, _ in wanted], told)
    print(f"{time.time() - started:.0f} s", flush=True)


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--corpus", type=Path, required=True)
    parser.add_argument("--corpus2", type=Path, required=True)
    parser.add_argument("--questions", type=Path, required=True, help="folder of the natural questions")
    parser.add_argument("--left-out", type=Path, help="docs.json of a test set that names documents not to use")
    parser.add_argument("--base", type=Path, required=True, help="folder of SmolLM2-135M-Instruct")
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seconds", type=float, default=60, help="of fine-tuning")
    parser.add_argument("--write-seconds", type=float, default=80)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--limit", type=int, help="texts of each kind, for a trial")
    make(parser.parse_args())


if __name__ == "__main__":
    main()
