"""Rows of the writer's training: text, documents with questions about them, and conversations about passages.

A row is what the application lets the model read: a document with its page marks as `ChatLayout` writes it, or none;
then turns, each with the passages that the finder ranks first, the question, and the answer with the numbers of its
passages. Rows are packed end to end into steps of one size.
"""

from __future__ import annotations

import pickle
import re
from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random

import numpy as np
from tokenizers import Tokenizer

from training.asked import Asked, Question

START, STOP = "<|im_start|>", "<|im_end|>"
HEAD = ("Below is a document. A line such as [page 85] shows where a page begins. Use nothing but this document to "
        "answer the questions about it, and name the pages that you rely on.\n\n--- document ---\n")
TAIL = "--- end of document ---\n\n"
PASSAGES = "Passages, the likeliest first:\n"
OWN_WORDS, BRIEFLY, COPIED, QUOTED = ("Answer from these passages in your own words: ",
                             "Answer from these passages in a few words: ",
                             "Copy the sentence of these passages that answers: ",
                             "Quote the sentence of the document that answers this.")
NOT_SAID = "Not stated in these passages."
TEXT_WEIGHT, FARTHEST = 0.0, 262_144  # loss of a document's own text in rows with questions; positions
COUNTS = (1, 1, 2, 3, 3, 4)  # passages that are shown, drawn from these
PAGE, CHARACTERS = (1200, 3200), 3.9  # characters of a page; of a token

# The questions that can be asked so: for an answer in own words, the sentence in its passages, the sentence alone.
SUITS: dict[str, Callable[[Question], bool]] = {
    "words": lambda question: bool(question.answer),
    "span": lambda question: bool(question.right) and not question.answer,
    "quote": lambda question: len(question.golds) == 1,
}


@dataclass(frozen=True)
class Kind:
    """size: tokens of a step; row: tokens of a row at most; document: share of the rows with a document, of `least` to
    `row` tokens; asks: "text", "quote", "span", "words" or "summary" with shares; reach: share of the rows in which
    positions skip ahead."""

    size: int
    row: int
    asks: tuple[tuple[str, float], ...]
    document: float = 0.0
    least: int = 1024
    reach: float = 0.0


class Row:
    """Tokens with the weight of their loss."""

    def __init__(self) -> None:
        self.ids: list[int] = []
        self.weights: list[float] = []

    def add(self, ids: Sequence[int], weight: float) -> None:
        self.ids += ids
        self.weights += [weight] * len(ids)


class RowMaker:
    """Makes steps. held: of the documents that are held out.

    counts: numbers of passages that a question may get; as_found: whether they are always those of the finder, right or
    not, as in the application."""

    def __init__(self, data: Path, tokenizer: str, seed: int, held: bool = False) -> None:
        self.chance, self.encoder = Random(seed), Tokenizer.from_file(tokenizer)
        self.counts, self.as_found = COUNTS, False
        self.text, self.ends = np.load(data / "text.npy", mmap_mode="r"), np.load(data / "ends.npy")
        made = pickle.loads((data / "ranked.pkl").read_bytes())
        self.documents: list[Asked] = [one for one in made["documents"] if one.held == held and one.questions]
        self.summaries = [one for one in made["summaries"] if one["held"] == held]
        self.asked = {asks: [(one, question) for one in self.documents for question in one.questions
                             if SUITS[asks](question)] for asks in SUITS}
        self.short = [one for one in pickle.loads((data / "short.pkl").read_bytes()) if one["held"] == held]
        self.shortly = [(one, asked) for one in self.short for asked in one["asked"]]
        self._behind: dict[str, np.ndarray] = {}

    def encode(self, text: str) -> list[int]:
        return self.encoder.encode(text, add_special_tokens=False).ids

    # --- steps

    def step(self, kind: Kind) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """(ids, weights, positions, ends of the rows) of `kind.size` tokens; the last row is cut."""
        ids, weights, positions, ends = [], [], [], []
        left = kind.size
        while left > 0:
            row = self.row(kind)
            while len(row.ids) > kind.row:  # attention reads no further
                row = self.row(kind)
            size = min(len(row.ids), left)
            ids += row.ids[:size]
            weights += [0.0, *row.weights[1:size]]
            at = np.arange(size)
            if kind.reach and self.chance.random() < kind.reach:
                at = self.reaching(at)
            positions.append(at)
            ends.append(kind.size - left + size)
            left -= size
        return np.array(ids, np.int32), np.array(weights, np.float32), np.concatenate(positions), np.array(ends)

    def reaching(self, at: np.ndarray) -> np.ndarray:
        """Positions that skip ahead at a few places, up to FARTHEST."""
        cuts = sorted(self.chance.randrange(1, max(2, len(at))) for _ in range(self.chance.randint(1, 4)))
        room = self.chance.randrange(1, FARTHEST - len(at))
        for cut in cuts:
            at = at + (np.arange(len(at)) >= cut) * (room // len(cuts))
        return at

    def row(self, kind: Kind) -> Row:
        """One row."""
        names, shares = zip(*kind.asks, strict=True)
        asks = self.chance.choices(names, shares)[0]
        if asks == "text":
            return self.text_row(kind.row)
        if asks == "summary":
            return self.summary_row(kind)
        if asks == "quote":
            return self.quote_row(kind)
        if asks == "brief":
            return self.brief_row()
        with_document = self.chance.random() < kind.document
        return self.answer_row(asks, kind, with_document)

    def text_row(self, size: int) -> Row:
        """A stretch of a text, from its beginning in one of four."""
        row, number = Row(), bisect_right(self.ends, self.chance.randrange(len(self.text)))
        start, end = int(self.ends[number - 1]) if number else 0, int(self.ends[number])
        if end - start > size and self.chance.random() < 0.75:
            start = self.chance.randrange(start, end - size + 1)
        row.add(self.text[start : min(end, start + size)].tolist(), 1.0)
        return row

    # --- documents

    def pages(self, one: Asked, first: int, last: int) -> tuple[str, dict[int, int]]:
        """(the text of lines [first, last) with page marks, the page of each line)."""
        parts, page, room, where, before = [], self.chance.choice((1, 1, 1, self.chance.randint(2, 300))), 0, {}, -1
        size = self.chance.randint(*PAGE)
        for sentence, line in zip(one.sentences, one.lines, strict=True):
            if not first <= line < last:
                continue
            if line != before:
                if room <= 0:
                    page += bool(where)
                    parts.append(f"{chr(10) * 2 if where else ''}[page {page}]\n")
                    room = size
                else:
                    parts.append("\n")
                before = line
            else:
                parts.append(" ")
            parts.append(sentence)
            where[line] = page
            room -= len(sentence)
        return "".join(parts) + "\n\n", where

    def behind(self, one: Asked) -> np.ndarray:
        """About how many tokens stand up to the end of each line."""
        if one.name not in self._behind:
            sizes = np.zeros(one.lines[-1] + 1)
            np.add.at(sizes, one.lines, [len(sentence) / CHARACTERS + 1 for sentence in one.sentences])
            self._behind[one.name] = np.cumsum(sizes)
        return self._behind[one.name]

    def numbered(self, one: Asked) -> dict[int, int]:
        """Pages of lines, of a document that the model does not read."""
        size, first = self.chance.randint(*PAGE) / CHARACTERS, self.chance.choice((1, 1, 5))
        return {line: first + int(tokens / size) for line, tokens in enumerate(self.behind(one).tolist())}

    def window(self, one: Asked, tokens: int, line: int) -> tuple[int, int]:
        """Lines of about so many tokens that hold a line, at any place of them."""
        behind = self.behind(one)
        if behind[-1] <= tokens:
            return 0, len(behind)
        before = behind[line - 1] if line else 0.0
        room = max(0.0, tokens - (behind[line] - before))
        start = max(0.0, min(before - self.chance.random() * room, behind[-1] - tokens))
        first = int(np.searchsorted(behind, start, side="right"))
        return first, max(first + 1, int(np.searchsorted(behind, start + tokens)))

    # --- passages

    def passage(self, one: Asked, unit: int, number: int, where: dict[int, int] | None) -> str:
        """A passage as the application gives it to the model."""
        headings, sentences = one.units[unit]
        text = " ".join(one.sentences[at] for at in sentences)
        place = [f"page {where[one.lines[sentences[0]]]}"] if where else []
        if len(headings) > 1:
            place.append(headings[-1][:80])
        return f"[{number}] ({', '.join(place)}) {text}" if place else f"[{number}] {text}"

    def chosen(self, one: Asked, question: Question, inside: set[int] | None) -> tuple[list[int], list[int]]:
        """(passages that are shown, the right ones of them): as they are ranked, one to five, none of which repeats a
        sentence; where none is right, in half of the cases one takes the last place; in a few right ones are hidden."""
        count, taken, said = self.chance.choice(self.counts), [], set[int]()
        hidden = bool(question.right) and not self.as_found and self.chance.random() < 0.06
        order = [] if question.ranked is None else question.ranked.tolist()
        for at in order:
            if (inside is not None and at not in inside) or (hidden and at in question.right):
                continue
            if not said.intersection(one.units[at][1]):
                taken.append(at)
                said.update(one.units[at][1])
            if len(taken) == count:
                break
        missing = [at for at in question.right if at not in taken and (inside is None or at in inside)]
        several = question.source == "multi" or question.kind == "two"
        if missing and not hidden and not self.as_found and (several or len(missing) == len(question.right)):
            if several or self.chance.random() < 0.6:
                for at in missing[:3]:
                    taken.insert(self.chance.randint(0, len(taken)), at)
        return taken[:8], [at for at in taken[:8] if at in question.right]

    def turn(self, question: str, before: str, shown: Sequence[str], ask: str) -> str:
        """What the person's turn holds."""
        earlier = f"The question before: {before}\n" if before else ""
        return f"{earlier}Question: {question}\n\n{PASSAGES}{chr(10).join(shown)}\n\n{ask}{question}"

    def answered(self, one: Asked, question: Question, asks: str, where: dict[int, int] | None,
                 inside: set[int] | None) -> tuple[str, str]:
        """(the person's turn, the answer)."""
        taken, right = self.chosen(one, question, inside)
        shown = [self.passage(one, at, number, where) for number, at in enumerate(taken, 1)]
        numbers = "".join(f"[{number}]" for number, at in enumerate(taken, 1) if at in right)
        if not right:
            answer = NOT_SAID if question.right else f"{NOT_SAID} {question.answer}"
        elif asks == "span":
            answer = " ".join(one.sentences[at] for at in question.golds[:2]) + f" {numbers}"
        else:
            answer = f"{question.answer} {numbers}".strip()
        return self.turn(question.text, question.before, shown, COPIED if asks == "span" else OWN_WORDS), answer

    # --- rows with questions

    def begin(self, row: Row, text: str | None) -> str:
        """Writes the document; returns what stands before the first question."""
        if text is None:
            return f"{START}user\n"
        row.add(self.encode(f"{START}user\n{HEAD}{text}"), TEXT_WEIGHT)
        return TAIL

    def say(self, row: Row, before: str, asked: str, answer: str) -> None:
        """A turn and its answer; the answer counts."""
        row.add(self.encode(f"{before}{asked}{STOP}\n{START}assistant\n"), 0.0)
        row.add(self.encode(f"{answer}{STOP}"), 1.0)
        row.add(self.encode("\n"), 0.0)

    def answer_row(self, asks: str, kind: Kind, with_document: bool) -> Row:
        """A document, or none, and one turn or several."""
        (one, question), row = self.chance.choice(self.asked[asks]), Row()
        inside, where, text = None, None, None
        own = [other for other in one.questions if other is not question and SUITS[asks](other)]
        if with_document:
            gold = one.lines[question.golds[0]] if question.golds else self.chance.choice(one.lines)
            tokens = int(kind.least * (kind.row * 0.8 / kind.least) ** self.chance.random())
            first, last = self.window(one, tokens, gold)
            text, where = self.pages(one, first, last)
            inside = {unit for unit, (_, sentences) in enumerate(one.units) if one.lines[sentences[0]] in where}
            own = [other for other in own if not other.right or set(other.right) & inside]
        elif self.chance.random() < 0.7:
            where = self.numbered(one)
        before = self.begin(row, text)
        turns = [question, *self.chance.sample(own, min(len(own), self._turns(kind, with_document)))]
        for number, asked in enumerate(turns):
            said = self.answered(one, asked, asks, where, inside)
            start = before if not number else f"{START}user\n"
            if number and len(row.ids) + 1200 > kind.row:
                break
            self.say(row, start, *said)
        return row

    def _turns(self, kind: Kind, with_document: bool) -> int:
        """Turns behind the first: more where a long document was read."""
        if not with_document:
            return self.chance.choice((0, 0, 0, 1))
        return self.chance.randint(0, 2 if kind.row <= 8192 else 6)

    def brief_row(self) -> Row:
        """A paragraph among others of its article, mostly the first of them, and what a few words of it answer."""
        (one, (at, question, answer)), row = self.chance.choice(self.shortly), Row()
        others = [other for other in range(max(0, at - 8), min(len(one["paragraphs"]), at + 9)) if other != at]
        shown = self.chance.sample(others, min(len(others), self.chance.choice(self.counts) - 1))
        if not shown or self.chance.random() < 0.9:
            shown.insert(0 if self.chance.random() < 0.7 else self.chance.randint(0, len(shown)), at)
        texts = [f"[{number}] {one['paragraphs'][other]}" for number, other in enumerate(shown, 1)]
        said = f"{answer} [{shown.index(at) + 1}]" if at in shown else NOT_SAID
        self.say(row, self.begin(row, None), self.turn(question, "", texts, BRIEFLY), said)
        return row

    def quote_row(self, kind: Kind) -> Row:
        """Documents one after the other, and sentences that are looked up in them."""
        row, texts, asked, size = Row(), [], [], 0
        while size < kind.row * 0.8 and len(texts) < 24:
            one, question = self.chance.choice(self.asked["quote"])
            first, last = self.window(one, int(kind.row * 0.8 - size), one.lines[question.golds[0]])
            text, where = self.pages(one, first, last)
            size += int(len(text) / CHARACTERS) + 20
            texts.append(text)
            asked += [(other, one.sentences[other.golds[0]], where[one.lines[other.golds[0]]])
                      for other in one.questions
                      if SUITS["quote"](other) and one.lines[other.golds[0]] in where]
        self.chance.shuffle(asked)
        before = self.begin(row, "".join(texts))
        for number, (question, sentence, page) in enumerate(asked[:24]):
            if len(row.ids) + 160 > kind.row:
                break
            self.say(row, f"{START}user\n" if number else before, f"Question: {question.text}\n\n{QUOTED}",
                     f"\"{sentence}\" (page {page})")
        return row

    def summary_row(self, kind: Kind) -> Row:
        """A request for a summary, the stretch as its passages."""
        one, row = self.chance.choice(self.summaries), Row()
        shown, evidence = [], [re.sub(r"\W+", "", part)[:60] for part in one["evidence"]]
        numbers, size = [], 0
        for number, paragraph in enumerate(one["paragraphs"], 1):
            size += len(paragraph)
            if size > 9000:
                break
            shown.append(f"[{number}] {' '.join(paragraph.split())}")
            if any(part and part in re.sub(r"\W+", "", paragraph) for part in evidence):
                numbers.append(f"[{number}]")
        self.say(row, self.begin(row, None), self.turn(one["question"], "", shown, OWN_WORDS),
                 f"{one['answer']} {''.join(numbers[:5])}".strip())
        return row
