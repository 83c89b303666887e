"""The questions and documents of a benchmark: given documents cut to a length (only a benchmark may cut, and says so),
and ones that it makes itself: the same words for the same kind and number, in any length. These stand for kinds of text
that books are not, and are easier to draft than real ones."""

from __future__ import annotations

import json
import random
import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ..assets import HANDBOOK
from ..documents import read_document
from ..documents.document import Document, Page
from ..errors import ConfigError

WORKLOADS = ("continue", "questions", "needle", "summary", "code", "table")
FIVE = ("continue", "questions", "summary", "code", "table")  # what a person would ask
MADE = ("summary", "code", "table")  # for these a run makes its own documents unless it is given some
SUM_UP = "Sum up in your own words what the text says."
_NAME = re.compile(r"(?<=[a-z,;] )[A-Z][a-z]{3,}\b")  # inside a sentence: the first word says nothing
_SENTENCE = re.compile(r"(?<![^.!?])[^.!?]++[.!?]")
_SENTENCE_END = re.compile(r"[.!?][\"')]?(?=\s)")
_LISTINGS = ("code", "table")  # of several workloads, these are asked of documents of their own kind only
_PAGE = 2400  # characters
_PLACES = ("Alderby", "Brackness", "Cawdell", "Dunmere", "Eastholm", "Farrow", "Glenside", "Harrowgate", "Inverleigh")
_THINGS = ("bridge", "harbour wall", "grain store", "school roof", "mill race", "ferry", "town well", "orchard")
_PEOPLE = ("the surveyor", "the council", "a group of farmers", "the harbour master", "two engineers", "the teacher")
_DEEDS = ("inspected", "repaired", "paid for", "measured", "complained about", "closed", "reopened",
          "drew up plans for")
_CAUSES = ("after the spring flood", "because the timber had rotted", "before the first frost", "without asking anyone",
           "when the money from the fair came in", "although the work had been put off for years")
_ENDS = ("The cost came to {n} crowns.", "It took {n} days.", "Some {n} people came to see it.",
         "A report of {n} pages was written.", "Nothing more was heard of it for {n} weeks.")
_VERBS = ("load", "merge", "count", "filter", "sort", "check", "write", "split")
_NOUNS = ("orders", "ledgers", "readings", "parcels", "voters", "invoices", "tickets", "samples")
_FIELDS = ("weight", "price", "height", "delay", "score", "volume")


@dataclass(frozen=True, slots=True)
class Job:
    """A workload and one document for it. number: of the document among the workload's."""

    workload: str
    document: Document
    number: int


@dataclass(frozen=True, slots=True)
class Asked:
    """The workloads of a run. paths: given documents; made: documents that workloads make for themselves; context:
    tokens that documents are cut to; per_document: questions that are made of each unless ``questions`` are given."""

    workloads: tuple[str, ...]
    paths: Sequence[Path]
    made: int
    context: int
    per_document: int
    questions: Sequence[str] = ()

    def jobs(self) -> list[Job]:
        """Return jobs so ordered that workloads about the same document follow each other: it is read once for them.
        Raises DocumentError kinds."""
        given = [workload for workload in self.workloads if not self._makes(workload)]
        read = [read_document(path) for path in self.paths or [HANDBOOK]] if given else []
        jobs = [Job(workload, document, number) for number, document in enumerate(read) for workload in given]
        # Enough for any tokenizer: what is too long is cut.
        return jobs + [Job(workload, made_document(workload, 8 * self.context, number), number)
                       for workload in self.workloads if self._makes(workload) for number in range(self.made)]

    def _makes(self, workload: str) -> bool:
        return workload in MADE and (not self.paths or (len(self.workloads) > 1 and workload in _LISTINGS))

    def ready(self, job: Job, engine: Any) -> tuple[Document, list[str | None], bool]:
        """Return the document as it is read, what is asked about it (None: to go on), and whether it is all there."""
        first, count = job.number * self.per_document, self.per_document if job.workload == "needle" else 0
        needles = [made_needle(number) for number in range(first, first + count)]
        short = cut(job.document, self.context, lambda part: engine.measure(hide(part, needles)).tokens)
        whole = short.characters == job.document.characters
        if needles:
            return hide(short, needles), [each.question for each in needles], whole
        if job.workload == "questions":
            return short, [*(self.questions or questions_about(short, self.per_document))], whole
        return short, [SUM_UP if job.workload == "summary" else None], whole


@dataclass(frozen=True, slots=True)
class Needle:
    """A passage to hide in a document that has nothing to do with it, and a question that only it answers."""

    passage: str
    question: str


def cut(document: Document, max_tokens: int, count: Callable[[Document], int]) -> Document:
    """Return the document's beginning, of at most ``max_tokens`` by ``count`` and within a hundredth of it."""
    high = min(document.characters, 12 * max_tokens)
    best = _first_characters(document, high)
    high_tokens = count(best)
    if high_tokens <= max_tokens:
        return best
    low = low_tokens = 0
    best = _first_characters(document, 1)
    for _ in range(24):
        # Where the tokens would be if they were spread evenly: counting a long book is what costs here.
        share = (max_tokens * 0.995 - low_tokens) / (high_tokens - low_tokens)
        middle = min(high - 1, max(low + 1, low + round(share * (high - low))))
        shorter = _first_characters(document, middle)
        tokens = count(shorter)
        if tokens > max_tokens:
            high, high_tokens = middle, tokens
        else:
            low, low_tokens, best = middle, tokens, shorter
        if high - low < 2 or max_tokens - max_tokens // 100 <= low_tokens:
            break
    return best


def _first_characters(document: Document, characters: int) -> Document:
    pages: list[Page] = []
    for page in document.pages:
        if characters <= 0:
            break
        text = page.text[:characters]
        if len(text) < len(page.text) and " " in text:
            text = text[: text.rindex(" ")]
        pages.append(Page(page.label, text))
        characters -= len(page.text)
    return replace(document, pages=tuple(pages), chapters=())


def questions_about(document: Document, count: int) -> list[str]:
    """Return questions of one form about rare names, spread over the document; the same for the same words."""
    text = " ".join(" ".join(page.text.split()) for page in document.pages)
    names = Counter(_NAME.findall(text))
    sentences = [sentence for sentence in _SENTENCE.findall(text) if len(sentence) > 40]
    questions: list[str] = []
    for part in range(count):
        some = sentences[part * len(sentences) // count : (part + 1) * len(sentences) // count]
        found = [(names[name], name) for sentence in some for name in _NAME.findall(sentence)]
        fresh = [(seen, name) for seen, name in found if not any(f" {name}?" in question for question in questions)]
        if fresh:
            questions.append(f"What does the text say about {min(fresh)[1]}?")
    return questions or ["What is this text about?"]


def hide(document: Document, needles: Sequence[Needle]) -> Document:
    """Return the document with the needles at even depths, each behind a sentence (or, without one, a page)."""
    pages = list(document.pages)
    for number, needle in reversed(list(enumerate(needles))):  # from the end: depths before stay what they are
        offset = document.characters * (2 * number + 1) // (2 * len(needles))
        index = 0
        while offset > len(document.pages[index].text):
            offset -= len(document.pages[index].text)
            index += 1
        text = pages[index].text
        found = _SENTENCE_END.search(text, offset)
        at = found.end() if found else len(text)
        parts = text[:at].rstrip(), needle.passage, text[at:].lstrip(" ")
        pages[index] = replace(pages[index], text=" ".join(parts).strip())
    return replace(document, pages=tuple(pages))


def read_questions(path: Path) -> list[str]:
    """Read JSON Lines of {"question": ...}. Raises ConfigError naming the bad line."""
    questions = []
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} cannot be read: {error}") from error
    for number, line in enumerate(lines, start=1):
        if line.strip():
            try:
                questions.append(str(json.loads(line)["question"]))
            except (ValueError, KeyError, TypeError):
                raise ConfigError(f"{path}, line {number} is no question", allowed='{"question": "..."}') from None
    if not questions:
        raise ConfigError(f"{path} holds no question", allowed='one {"question": "..."} a line')
    return questions


def made_document(kind: str, characters: int, number: int = 0) -> Document:
    """Return a document of kind "summary", "code" or "table", at least ``characters`` long; another ``number``, another
    text."""
    chance = random.Random(f"{kind} {number}")
    part = _PARTS[kind]
    pages: list[Page] = []
    while len(pages) * _PAGE < characters:
        lines: list[str] = []
        size = 0
        while size < _PAGE:
            lines.append(part(chance, len(pages), len(lines)))
            size += len(lines[-1]) + 1
        pages.append(Page(str(len(pages) + 1), "\n".join(lines)))
    return Document(f"made {kind} {number + 1}", "txt", tuple(pages), "made")


def made_needle(number: int) -> Needle:
    """Return a fact that no book holds, and the question about it."""
    chance = random.Random(f"needle {number}")
    who, place = _PEOPLE[number % len(_PEOPLE)], _PLACES[number % len(_PLACES)]
    thing, code = chance.choice(_THINGS), chance.randint(10_000, 99_999)
    return Needle(f"That year {who} of {place} painted the number {code} on the door of the {thing}.",
                  f"Which number did {who} of {place} paint on the door of the {thing}?")


def _prose(chance: random.Random, page: int, line: int) -> str:
    """Return a paragraph of report prose."""
    place = chance.choice(_PLACES)
    sentences = [f"In the year {1800 + page} much was done in {place}."] if line == 0 else []
    for _ in range(chance.randint(2, 4)):
        who, deed, thing, cause = map(chance.choice, (_PEOPLE, _DEEDS, _THINGS, _CAUSES))
        sentences.append(f"{who.capitalize()} of {place} {deed} the {thing} {cause}.")
        if chance.random() < 0.6:
            sentences.append(chance.choice(_ENDS).format(n=chance.randint(2, 900)))
    return " ".join(sentences) + "\n"


def _code(chance: random.Random, page: int, line: int) -> str:
    """Return a small function, in a listing of many alike."""
    verb, noun, field = chance.choice(_VERBS), chance.choice(_NOUNS), chance.choice(_FIELDS)
    limit = chance.randint(2, 99)
    return (f"def {verb}_{noun}_by_{field}_{page}_{line}({noun}, limit={limit}):\n"
            f'    """{verb.capitalize()} the {noun} whose {field} is above the limit."""\n'
            f"    found = []\n    for item in {noun}:\n        if item.{field} > limit:\n"
            f"            found.append(item)\n    return {chance.choice(('found', 'sorted(found)', 'len(found)'))}\n")


def _table(chance: random.Random, page: int, line: int) -> str:
    """Return a row, or the header that every page repeats."""
    if line == 0:
        return "| date | place | goods | crates | price |\n| --- | --- | --- | --- | --- |"
    day, place, thing = chance.randint(1, 28), chance.choice(_PLACES), chance.choice(_NOUNS)
    return (f"| {1900 + page % 100}-{chance.randint(1, 12):02}-{day:02} | {place} | {thing} | {chance.randint(1, 60)} "
            f"| {chance.randint(100, 9999) / 100:.2f} |")


_PARTS: dict[str, Callable[[random.Random, int, int], str]] = {"summary": _prose, "code": _code, "table": _table}
