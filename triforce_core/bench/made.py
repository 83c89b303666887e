"""Documents that a benchmark makes itself: the same words for the same kind and number, in any length. They stand for
kinds of text that books are not, and are easier to draft than real ones: report prose, a listing of code, a table."""

from __future__ import annotations

import random
from collections.abc import Callable

from ..documents.document import Document, Page
from .workload import Needle

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


def made_document(kind: str, characters: int, number: int = 0) -> Document:
    """kind: "summary", "code" or "table"; at least ``characters`` long; another ``number``, another text."""
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
    """A fact that no book holds, and the question about it."""
    chance = random.Random(f"needle {number}")
    who, place = _PEOPLE[number % len(_PEOPLE)], _PLACES[number % len(_PLACES)]
    thing, code = chance.choice(_THINGS), chance.randint(10_000, 99_999)
    return Needle(f"That year {who} of {place} painted the number {code} on the door of the {thing}.",
                  f"Which number did {who} of {place} paint on the door of the {thing}?")


def _prose(chance: random.Random, page: int, line: int) -> str:
    """A paragraph of report prose."""
    place = chance.choice(_PLACES)
    sentences = [f"In the year {1800 + page} much was done in {place}."] if line == 0 else []
    for _ in range(chance.randint(2, 4)):
        who, deed, thing, cause = map(chance.choice, (_PEOPLE, _DEEDS, _THINGS, _CAUSES))
        sentences.append(f"{who.capitalize()} of {place} {deed} the {thing} {cause}.")
        if chance.random() < 0.6:
            sentences.append(chance.choice(_ENDS).format(n=chance.randint(2, 900)))
    return " ".join(sentences) + "\n"


def _code(chance: random.Random, page: int, line: int) -> str:
    """A small function, in a listing of many alike."""
    verb, noun, field = chance.choice(_VERBS), chance.choice(_NOUNS), chance.choice(_FIELDS)
    limit = chance.randint(2, 99)
    return (f"def {verb}_{noun}_by_{field}_{page}_{line}({noun}, limit={limit}):\n"
            f'    """{verb.capitalize()} the {noun} whose {field} is above the limit."""\n'
            f"    found = []\n    for item in {noun}:\n        if item.{field} > limit:\n"
            f"            found.append(item)\n    return {chance.choice(('found', 'sorted(found)', 'len(found)'))}\n")


def _table(chance: random.Random, page: int, line: int) -> str:
    """A row, or the header that every page repeats."""
    if line == 0:
        return "| date | place | goods | crates | price |\n| --- | --- | --- | --- | --- |"
    day, place, thing = chance.randint(1, 28), chance.choice(_PLACES), chance.choice(_NOUNS)
    return (f"| {1900 + page % 100}-{chance.randint(1, 12):02}-{day:02} | {place} | {thing} | {chance.randint(1, 60)} "
            f"| {chance.randint(100, 9999) / 100:.2f} |")


_PARTS: dict[str, Callable[[random.Random, int, int], str]] = {"summary": _prose, "code": _code, "table": _table}
