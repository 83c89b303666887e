"""Cut a document into passages: one to three sentences of a line, a list or a row of a table, each with the headings
above it and what introduces its list. ``training`` cuts its documents likewise for the encoder."""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from ..documents.chapters import solid
from ..documents.document import Document
from ..documents.sentences import runs_on, sentence_spans
from ..events import Passage, QuotePlace
from .line_roles import Role, line_roles
from .title_lines import title_lines

MOST_WORDS, LIST_WORDS = 80, 110  # words of a passage; of a list
_LEVEL = re.compile(r"(\d{1,2}(?:\.\d{1,3})*)\.?\s")
_MARK = re.compile(r"\(?([0-9]{1,3}|[a-zA-Z]{1,5})[.)]")
_ROMAN = "i ii iii iv v vi vii viii ix x".split()
# A sentence before a list introduces it without a colon, too.
_FOLLOWS = re.compile(r"\b(?:following|follows|below|folgend\w*|suivant\w*|siguientes?)\b", re.IGNORECASE)
_DEEPEST = 9  # the level of a heading without a number


@dataclass(frozen=True, slots=True)
class Unit:
    """sentences: numbers of the document's, in order; headings: those above them, the outermost first, the document's
    title before them; lead_in: what introduces the list, or the first row of the table; "" where nothing does."""

    headings: tuple[str, ...]
    lead_in: str
    sentences: tuple[int, ...]
    role: Role = Role.PROSE
    fact: bool = False

    @property
    def path(self) -> tuple[str, ...]:
        """Return headings and lead-in as the encoder reads them."""
        return (*self.headings, self.lead_in) if self.lead_in else self.headings


class Headings:
    """The headings that hold at a line, by their numbers ("2.3"); one without a number replaces the last."""

    def __init__(self, title: str) -> None:
        self._title, self._path = title, list[tuple[int, str]]()

    def add(self, heading: str, level: int = 0) -> None:
        """Add a heading below those that are not as deep. level: from 1; 0: by its number."""
        numbered = _LEVEL.match(heading)
        level = level or (numbered[1].count(".") + 1 if numbered else _DEEPEST)
        self._path = [one for one in self._path if one[0] < level] + [(level, heading)]

    def path(self) -> tuple[str, ...]:
        """Return the title and the innermost three."""
        return (self._title, *(text for _, text in self._path[-3:]))


def units_of(title: str, sentences: Sequence[str], lines: Sequence[int], most: int = 3,
             known: Mapping[int, int] | None = None) -> list[Unit]:
    """Cut a document. lines: the number of each sentence's line; most: sentences of a passage; known: levels of lines
    that are headings, beside those that look like one and stand below them."""
    by_line: dict[int, list[int]] = defaultdict(list)
    for number, line in enumerate(lines):
        by_line[line].append(number)
    roles = line_roles([" ".join(sentences[number] for number in numbers) for numbers in by_line.values()])
    headings, found, header, last, weak = Headings(title), list[Unit](), "", -2, False
    leads: list[tuple[str, str]] = []  # what introduces the open lists, from the outermost, behind its item's mark
    known, before, row = known or {}, Role.PROSE, -2
    for (line, numbers), role in zip(by_line.items(), roles, strict=True):
        inside = role is Role.HEADING and before is Role.ROW and line == row + 1  # a row of one cell
        role = Role.HEADING if line in known else Role.ROW if inside else role
        row = line if role is Role.ROW else row
        text = " ".join(sentences[number] for number in numbers)
        header = "" if role is not Role.ROW else header if before is role else text if _is_header(text) else ""
        before = role
        if role is Role.HEADING:
            headings.add(text, known.get(line, _DEEPEST if known else 0))
            leads, last = [], -2
            continue
        if role is not Role.ITEM and (line != last + 1 or weak):
            leads = []
        mark = _MARK.match(text) if role is Role.ITEM else None
        while mark and leads and _succeeds(leads[-1][0], mark[1]):
            leads.pop()
        above = header if header and header != text else leads[-1][1] if leads else ""
        unit = Unit(headings.path(), above, tuple(numbers), role)
        size = sum(len(sentences[number].split()) for number in numbers)
        joined = role is Role.ITEM and line == last + 1 and found and found[-1].path == unit.path
        if joined and most > 1 and _words(sentences, found[-1].sentences) + size <= LIST_WORDS:
            found[-1] = Unit(unit.headings, above, (*found[-1].sentences, *numbers), role)
        else:
            found += [Unit(unit.headings, above, part, role) for part in _parts(sentences, numbers, most)]
        last = line
        end = sentences[numbers[-1]]
        weak = role is Role.PROSE and not end.endswith(":") and _FOLLOWS.search(end) is not None
        if weak or end.endswith(":"):
            leads = [*(leads if role is Role.ITEM else ()), (mark[1] if mark else "", end)]
            last = line + 1 if line + 1 not in by_line else line
    return found


def _succeeds(mark: str, other: str) -> bool:
    """Return whether an item's mark is the next one: 3 behind 2, d behind c, iv behind iii."""
    if mark.isdigit() and other.isdigit():
        return int(other) == int(mark) + 1
    roman = mark in _ROMAN and other in _ROMAN and _ROMAN.index(other) == _ROMAN.index(mark) + 1
    return roman or (len(mark) == len(other) == 1 and ord(other) == ord(mark) + 1)


def _is_header(row: str) -> bool:
    """Return whether a table's first row may be its headings: few words, and no sentence."""
    return len(row.split()) <= MOST_WORDS // 2 and not row.endswith((".", ";"))


def _words(sentences: Sequence[str], numbers: Sequence[int]) -> int:
    return sum(len(sentences[number].split()) for number in numbers)


def _parts(sentences: Sequence[str], numbers: Sequence[int], most: int) -> list[tuple[int, ...]]:
    """Return sentences of a line in runs of ``most``, the runs about alike in length; a long sentence stands alone."""
    count = max(1, math.ceil(len(numbers) / most))
    even = math.ceil(len(numbers) / count)
    parts: list[tuple[int, ...]] = []
    open_part: list[int] = []
    for number in numbers:
        if open_part and (len(open_part) >= even or _words(sentences, [*open_part, number]) > MOST_WORDS):
            parts.append(tuple(open_part))
            open_part = []
        open_part.append(number)
    return [*parts, tuple(open_part)]


def path_text(path: Sequence[str]) -> str:
    """Return a passage's path in one text, of long headings the part that says most."""
    title, *others = path or ("",)
    return " > ".join((" ".join(title.split()[:8]), *(" ".join(one.split()[-14:]) for one in others)))


_KINDS: dict[Role, Literal["list", "row"]] = {Role.ITEM: "list", Role.ROW: "row"}
Stretch = tuple[int, int, int]  # page, from 0; characters [start, end) of its text


@dataclass(slots=True)
class Text:
    """The n sentences of a document in its order. lines: of each the number of its line, a line that goes on over a
    page break being one; stretches: of each where it stands, on one page or two; titles: the lines on which chapters of
    the outline begin, by their number there."""

    document: Document
    sentences: list[str] = field(default_factory=list)
    lines: list[int] = field(default_factory=list)
    stretches: list[tuple[Stretch, ...]] = field(default_factory=list)
    titles: dict[int, int] = field(default_factory=dict)

    @classmethod
    def of(cls, document: Document) -> Text:
        """Split a document."""
        text = cls(document)
        lines = list(_lines(document))
        shown = [" ".join(_shown(document, part) for part in line) for _, line in lines]
        titled = title_lines(document.chapters, shown, [line[0][0] for _, line in lines])
        text.titles = {chapter: lines[at][0] for chapter, at in titled.items()}
        for (number, line), words in zip(lines, shown, strict=True):
            for first, last in sentence_spans(words):
                if words[first:last].strip():
                    text.sentences.append(words[first:last])
                    text.lines.append(number)
                    text.stretches.append(tuple(_within(line, first, last)))
        return text

    def units(self, title: str) -> list[Unit]:
        """Cut it into passages."""
        known = {line: self.document.chapters[at].level for at, line in self.titles.items()}
        return units_of(title, self.sentences, self.lines, known=known)

    def passage(self, unit: Unit, marked: Sequence[int] = (), chance: float = 0.0) -> Passage:
        """Return a unit as it is shown. marked: of its sentences those that answer."""
        text, marks, lit = "", list[tuple[int, int]](), list[Stretch]()
        places: list[Stretch] = []
        last = -1
        for number in unit.sentences:
            if last >= 0:
                text += " " if self.lines[number] == self.lines[last] else "\n"
            start = len(text)
            text += self.sentences[number]
            beside = last >= 0 and self.lines[number] == self.lines[last]
            _extend(places, self.stretches[number], beside)
            if number in marked:
                joins = beside and last in marked
                _extend(lit, self.stretches[number], joins)
                if joins:
                    start = marks.pop()[0]
                marks.append((start, len(text)))
            last = number
        kind: Literal["text", "list", "row", "fact"]
        kind = "fact" if unit.fact else _KINDS.get(unit.role, "text")
        return Passage(self.places(places), text, unit.headings[1:], unit.lead_in, tuple(marks), self.places(lit),
                       kind, chance)

    def places(self, stretches: Sequence[Stretch]) -> tuple[QuotePlace, ...]:
        """Return stretches as others know them."""
        labels = [page.label for page in self.document.pages]
        return tuple(QuotePlace(page + 1, labels[page], start, end) for page, start, end in stretches)


def _lines(document: Document) -> Iterator[tuple[int, list[Stretch]]]:
    """Yield number and stretches of each line; one that goes on over a page break has several. A page break is no end
    of a list."""
    number, held_at, held = 0, 0, list[Stretch]()
    titles = {(chapter.first - 1, solid(chapter.title)) for chapter in document.chapters}
    for page, content in enumerate(document.pages):
        at = 0
        for line in content.text.split("\n"):
            stripped = line.strip()
            start = at + len(line) - len(line.lstrip())
            at += len(line) + 1
            number += 1
            if not stripped:
                continue
            here = (page, start, start + len(stripped))
            goes_on = held and held[-1][0] == page - 1 and (page, solid(stripped)) not in titles
            if goes_on and runs_on(_shown(document, held[-1]), stripped):
                held.append(here)
                continue
            if held:
                yield held_at, held
            held_at, held = number, [here]
    if held:
        yield held_at, held


def _shown(document: Document, stretch: Stretch) -> str:
    page, start, end = stretch
    return document.pages[page].text[start:end]


def _within(line: Sequence[Stretch], first: int, last: int) -> Iterator[Stretch]:
    """Yield where characters [first, last) of a line stand, whose stretches are joined by a blank."""
    at = 0
    for page, start, end in line:
        low, high = max(first - at, 0), min(last - at, end - start)
        if low < high:
            yield page, start + low, start + high
        at += end - start + 1


def _extend(stretches: list[Stretch], more: Sequence[Stretch], beside: bool) -> None:
    """Add stretches; the first goes on where the last one ends, if ``beside`` and on one page."""
    for page, start, end in more:
        if beside and stretches and stretches[-1][0] == page:
            stretches[-1] = (page, stretches[-1][1], end)
        else:
            stretches.append((page, start, end))
