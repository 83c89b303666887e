"""Training rows: a document made of corpus text and paragraphs, cut into pages, then questions answered by quoting."""

from __future__ import annotations

import json
import pickle
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

import numpy as np

from training.paragraphs import AskedText, Paragraph
from training.questions import FOLLOW_UPS, ask, needle, vary
from training.text import Encoder

QUOTE_START = (6.0, 4.0, 3.0, 2.0, 2.0)
QUOTE_REST, TEXT, PARAGRAPH, WRITTEN_QUESTION, MADE_QUESTION = 0.7, 1.0, 0.2, 0.1, 0.02
ANSWER_START, ANSWER_REST = 4.0, 2.0
SOURCE_SHARES = {"books": 0.42, "prose": 0.2, "reports": 0.2, "reference": 0.18}


@dataclass(frozen=True)
class RowKind:
    """What the rows of one stage are like.

    length: tokens; batch: rows a step and GPU; turns: share of the tokens in questions and answers; cut: share of the
    quotations that stop after a few tokens, so that more look-ups fit in a row; written: share of questions that people
    wrote; several: share of rows with several documents; plain: share of rows that only go on with a text;
    reach: positions sometimes skip ahead up to this one; natural: share of documents that people asked about while
    reading them.
    """

    length: int
    batch: int
    turns: float
    cut: float
    written: float
    several: float = 0.0
    plain: float = 0.1
    reach: int = 0
    natural: float = 0.0


@dataclass
class Document:
    """A document under construction."""

    ids: list[np.ndarray] = field(default_factory=list)
    weights: list[np.ndarray] = field(default_factory=list)
    sentences: list[np.ndarray] = field(default_factory=list)
    asked: list[tuple[str, int, int, str | None]] = field(default_factory=list)
    size: int = 0

    def add(self, ids: np.ndarray, weight: float, sentences: np.ndarray) -> None:
        """Appends tokens whose sentences are given in their own coordinates."""
        self.ids.append(np.asarray(ids, np.uint16))
        self.weights.append(np.full(len(ids), weight, np.float32))
        self.sentences.append(np.asarray(sentences, np.int64).reshape(-1, 2) + self.size)
        self.size += len(ids)


@dataclass(frozen=True)
class Laid:
    """A finished document: tokens, loss weights, sentences that can be quoted, and written questions."""

    ids: np.ndarray
    weights: np.ndarray
    sentences: np.ndarray
    asked: list[tuple[str, int, int, str | None]]


class RowMaker:
    """Makes rows from the prepared corpus."""

    def __init__(self, folder: Path, tokenizer: str, seed: int, paragraphs: str = "qa-train") -> None:
        self.chance = Random(seed)
        self.encoder = Encoder(tokenizer)
        self.text = np.load(folder / "text.npy", mmap_mode="r")
        self.spans = np.load(folder / "sentences.npy", mmap_mode="r")
        self.starts = np.ascontiguousarray(self.spans[:, 0])
        with (folder / f"{paragraphs}.pkl").open("rb") as file:
            self.paragraphs: list[Paragraph] = pickle.load(file)
        articles: dict[str, list[int]] = {}
        for index, paragraph in enumerate(self.paragraphs):
            articles.setdefault(paragraph.article, []).append(index)
        self.articles = [members for members in articles.values() if len(members) > 3]
        places: dict[str, tuple[int, int]] = json.loads((folder / "sources.json").read_text())
        self.sources = list(places.values())
        self.shares = [SOURCE_SHARES[name] for name in places]
        with (folder / "natural.pkl").open("rb") as file:
            self.natural: list[AskedText] = pickle.load(file)
        self.natural_shares = [len(text.asked) for text in self.natural]

    # Documents

    def add_text(self, document: Document, size: int) -> None:
        """Appends `size` tokens of a book or a report, from the start of a sentence."""
        first, end = self.chance.choices(self.sources, self.shares)[0]
        at = int(np.searchsorted(self.starts, self.chance.randrange(first, max(first + 1, end - size - 4000))))
        start = int(self.starts[at])
        last = int(np.searchsorted(self.starts, start + size))
        spans = np.asarray(self.spans[at:last]) - start
        document.add(self.text[start : start + size], TEXT, spans[spans[:, 1] <= size])
        self.end_line(document)

    def end_line(self, document: Document) -> None:
        """Ends the line, sometimes with a blank one."""
        if document.size and document.ids[-1][-1] != self.encoder.newline:
            document.add(np.array([self.encoder.newline]), 0.1, np.empty((0, 2)))

    def add_paragraph(self, document: Document, index: int, budget: int, blank: bool) -> bool:
        """Appends a paragraph with its questions, in one of its variants, if it fits."""
        variants = self.paragraphs[index].variants
        variant = variants[0] if self.chance.random() < 0.3 else self.chance.choice(variants)
        if document.size + len(variant.ids) + 2 > budget:
            return False
        offset = document.size
        document.add(variant.ids, PARAGRAPH, variant.sentences)
        if blank:
            document.add(np.array([self.encoder.newline]), 0.1, np.empty((0, 2)))
        document.asked += [(a.question, a.first + offset, a.end + offset, a.answer) for a in variant.asked]
        return True

    def add_needle(self, document: Document) -> None:
        """Appends an invented fact with its question."""
        sentence, question, value = needle(self.chance)
        ids = self.encoder.encode(sentence)
        document.asked.append((question, document.size, document.size + len(ids), value))
        document.add(np.array(ids), 0.0, np.empty((0, 2)))
        self.end_line(document)

    def paragraph_document(self, budget: int) -> Document:
        """Paragraphs of a few articles, or of many."""
        chance, document = self.chance, Document()
        pool: list[int] = []
        wanted = 4 + budget // 80
        if chance.random() < 0.5:
            while len(pool) < wanted:
                pool += chance.choice(self.articles)
            if chance.random() < 0.5:
                chance.shuffle(pool)
        used: set[int] = set()
        blank, misses = chance.random() < 0.5, 0
        while misses < 3 and len(used) < len(self.paragraphs):
            index = pool.pop() if pool else chance.randrange(len(self.paragraphs))
            if index not in used:
                used.add(index)
                misses += not self.add_paragraph(document, index, budget, blank)
        return document

    def text_document(self, budget: int) -> Document:
        """Book text from one place or several, often with paragraphs between."""
        chance, document = self.chance, Document()
        piece = chance.choice((100, 200, 400, 1500)) if chance.random() < 0.4 else budget
        between = chance.random() < 0.6
        spot = chance.random()
        while document.size < budget - 60:
            room = budget - document.size
            if between and piece == budget and spot > 0:
                first = max(60, int(room * spot))
                self.add_text(document, min(first, room))
                spot = 0.0
            else:
                self.add_text(document, min(piece, room))
            if chance.random() < 0.1:
                self.add_needle(document)
            if between:
                for _ in range(chance.randint(1, 3)):
                    self.add_paragraph(document, chance.randrange(len(self.paragraphs)), budget, False)
        return document

    def natural_document(self, budget: int) -> Document:
        """A stretch of a document that people asked about, around one of their questions; other text fills it up."""
        chance, document = self.chance, Document()
        text = chance.choices(self.natural, self.natural_shares)[0]
        anchor = chance.choice(text.asked)
        size = min(budget, len(text.ids))
        first = max(0, min(anchor.first - chance.randrange(max(1, size - 150)), len(text.ids) - size))
        at = int(np.searchsorted(text.sentences[:, 0], first))
        first = int(text.sentences[min(at, len(text.sentences) - 1), 0])
        end = min(first + size, len(text.ids))
        before = chance.randrange(budget - (end - first) + 1)
        if before > 150:
            self.add_text(document, before)
        if document.size + end - first > budget:
            end = first + budget - document.size
        spans = text.sentences[(text.sentences[:, 0] >= first) & (text.sentences[:, 1] <= end)] - first
        offset = document.size - first
        document.add(text.ids[first:end], PARAGRAPH, spans)
        document.asked += [
            (a.question, a.first + offset, a.end + offset, a.answer)
            for a in text.asked
            if a.first >= first and a.end <= end
        ]
        self.end_line(document)
        if budget - document.size > 150:
            self.add_text(document, budget - document.size - 2)
        return document

    def lay_out(self, document: Document) -> Laid:
        """Document mark, page marks and tokens; sentences that a page mark breaks are no longer quoted."""
        chance, encoder = self.chance, self.encoder
        ids, weights = np.concatenate(document.ids), np.concatenate(document.weights)
        sentences = np.concatenate(document.sentences)
        cuts, marks = [0], [np.array([encoder.doc], np.uint16)]
        if chance.random() < 0.75:
            number = chance.choice((1, 1, 1, chance.randint(1, 40), chance.randint(1, 900)))
            marks[0] = np.array([encoder.doc, *encoder.page_mark(str(number))], np.uint16)
            shortest = chance.choice((150, 150, 250, 450))
            for cut in self.page_cuts(ids, sentences, shortest):
                number += 1
                mark = encoder.page_mark(str(number))
                cuts.append(cut)
                marks.append(np.array(mark if ids[cut - 1] == encoder.newline else [encoder.newline, *mark], np.uint16))
        edges = np.array(cuts)
        parts = [part for pair in zip(marks, np.split(ids, cuts[1:]), strict=True) for part in pair]
        loss = [
            part
            for mark, piece in zip(marks, np.split(weights, cuts[1:]), strict=True)
            for part in (np.zeros(len(mark), np.float32), piece)
        ]
        added = np.cumsum([len(mark) for mark in marks])

        def moved(first: np.ndarray, end: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
            """New places of token spans, and which of them no page mark breaks."""
            page = np.searchsorted(edges, first, side="right") - 1
            whole = page == np.searchsorted(edges, end, side="left") - 1
            return np.stack((first + added[page], end + added[page]), -1), whole

        spans, whole = moved(sentences[:, 0], sentences[:, 1])
        asked = []
        if document.asked:
            places = np.array([one[1:3] for one in document.asked])
            new, kept = moved(places[:, 0], places[:, 1])
            asked = [
                (one[0], int(n[0]), int(n[1]), one[3]) for one, n, k in zip(document.asked, new, kept, strict=True) if k
            ]
        return Laid(np.concatenate(parts), np.concatenate(loss), spans[whole], asked)

    def page_cuts(self, ids: np.ndarray, sentences: np.ndarray, shortest: int) -> list[int]:
        """Where pages start: at a line, at a sentence, or in the middle of one."""
        chance, at = self.chance, 0
        cuts: list[int] = []
        while True:
            at += chance.randint(shortest, shortest + 250)
            if at + 20 > len(ids):
                return cuts
            how, window = chance.random(), slice(at - 60, at + 1)
            if how < 0.4:
                found = np.flatnonzero(ids[window] == self.encoder.newline)
                cut = at - 60 + int(found[-1]) + 1 if len(found) else at
            elif how < 0.7 and len(sentences):
                cut = int(sentences[min(len(sentences) - 1, int(np.searchsorted(sentences[:, 0], at))), 0])
            else:
                cut = at
            while cut < len(ids) and not self.encoder.starts_word[ids[cut]] and ids[cut - 1] != self.encoder.newline:
                cut += 1
            at = max(cut, at)
            if cut + 20 < len(ids) and (not cuts or cut > cuts[-1] + 20):
                cuts.append(cut)

    # Turns

    def turn(self, question: str, quote: np.ndarray, answer: str | None, written: bool, cut: bool) -> tuple[list, list]:
        """One question with its answer; a cut quotation has no loss where it stops."""
        encoder = self.encoder
        asked = encoder.question(question)
        ids = [*asked, encoder.open_quote]
        weights = [WRITTEN_QUESTION if written else MADE_QUESTION] * len(asked) + [0.3]
        weights[0] = 0.0
        size = self.chance.randint(6, 12) if cut and len(quote) > 12 else len(quote)
        ids += quote[:size].tolist()
        weights += [*QUOTE_START, *[QUOTE_REST] * size][:size]
        if size == len(quote):
            ids.append(encoder.close_quote)
            weights.append(1.0)
            if answer:
                short = encoder.encode(answer)
                ids += short
                weights += [ANSWER_START, *[ANSWER_REST] * (len(short) - 1)]
            ids.append(encoder.newline)
            weights.append(1.0)
        return ids, weights

    def turns(self, laid: Laid, kind: RowKind, room: int) -> tuple[list, list]:
        """Questions and answers until the room is filled."""
        chance = self.chance
        ids: list[int] = []
        weights: list[float] = []
        asked = list(laid.asked)
        chance.shuffle(asked)
        lengths = laid.sentences[:, 1] - laid.sentences[:, 0]
        order = np.flatnonzero((lengths >= 7) & (lengths <= 110)).tolist()
        chance.shuffle(order)
        done: set[tuple] = set()
        while len(ids) < room and (order or asked):
            follow = -1
            if asked and (not order or chance.random() < kind.written):
                question, first, end, answer = asked.pop()
                written, question = True, vary(question, chance)
            else:
                at = order.pop()
                first, end = laid.sentences[at]
                made = ask(self.encoder.decode(laid.ids[first:end].tolist()), chance)
                if made is None:
                    continue
                (question, answer), written, follow = made, False, at + 1
            quote = laid.ids[first:end]
            key = tuple(quote[:16].tolist())
            if key in done and (not written or chance.random() < 0.7):
                continue
            done.add(key)
            cut = chance.random() < kind.cut
            parts = [self.turn(question, quote, answer, written, cut)]
            follows = 0 < follow < len(laid.sentences) and laid.sentences[follow][0] == end
            if not cut and follows and chance.random() < 0.06:
                after = laid.ids[slice(*laid.sentences[follow])]
                parts.append(self.turn(chance.choice(FOLLOW_UPS), after, None, False, chance.random() < kind.cut))
            for more, loss in parts:
                ids += more
                weights += loss
        return ids[:room], weights[:room]

    # Rows

    def document(self, kind: RowKind, budget: int) -> Document:
        """A document of one of the three sorts."""
        if self.natural and self.chance.random() < kind.natural:
            return self.natural_document(budget)
        return (self.paragraph_document if self.chance.random() < 0.4 else self.text_document)(budget)

    def conversation(self, size: int, kind: RowKind) -> tuple[np.ndarray, np.ndarray]:
        """One document with questions, or without."""
        plain = self.chance.random() < kind.plain
        share = 0.0 if plain else kind.turns * self.chance.uniform(0.7, 1.2)
        budget = int((size - int(size * share)) * (1.0 if plain else 0.965)) - (0 if plain else 4)
        if plain:
            document = Document()
            self.add_text(document, budget)
        else:
            document = self.document(kind, budget)
        if not document.size:
            self.add_text(document, budget)
        laid = self.lay_out(document)
        if plain:
            return laid.ids[:size], laid.weights[:size]
        ids, weights = self.turns(laid, kind, size - len(laid.ids) - 1)
        ended = np.array([self.encoder.end_doc, *ids], np.uint16)
        loss = np.array([0.0, *weights], np.float32)
        return np.concatenate((laid.ids, ended))[:size], np.concatenate((laid.weights, loss))[:size]

    def row(self, kind: RowKind) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """length + 1 tokens, their loss weights, and positions."""
        chance, size = self.chance, kind.length + 1
        ids, weights, total = [], [], 0
        several = chance.random() < kind.several
        while total < size - 64:
            room = size - total
            part = min(room, int(kind.length * chance.choice((0.125, 0.25, 0.25, 0.5)))) if several else room
            if room - part < 300:
                part = room
            if part < 300 and total:
                break
            made = self.conversation(part, kind)
            ids.append(made[0])
            weights.append(made[1])
            total += len(made[0])
        if total < size:
            filler = Document()
            self.add_text(filler, size - total)
            ids.append(np.concatenate(filler.ids)[: size - total])
            weights.append(np.concatenate(filler.weights)[: size - total])
        positions = np.arange(size, dtype=np.int64)
        if kind.reach > kind.length and chance.random() < 0.5:
            for _ in range(chance.randint(1, 3)):
                positions[chance.randrange(size) :] += chance.randrange((kind.reach - int(positions[-1])) // 2 + 1)
        return np.concatenate(ids)[:size], np.concatenate(weights)[:size], positions[:-1].astype(np.uint32)

    def batch(self, kind: RowKind) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """A batch of rows."""
        rows = [self.row(kind) for _ in range(kind.batch)]
        ids, weights, positions = (np.stack(part) for part in zip(*rows, strict=True))
        return ids.astype(np.uint16), weights.astype(np.float16), positions
