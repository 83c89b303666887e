"""Plain text, wrapped by hand or not: which lines make a paragraph, an item, a heading, a table, code or verse.

Decided group by group (what stands between blank lines), with the width of the groups around it: neither one long line
nor one narrow list says how the rest of a file is to be read."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median

from ..reflow import ITEM, NARROWEST, Vocabulary, fills, join, vocabulary
from ..running_lines import strip_running_lines
from .blocks import Blocks
from .text_headings import Headings, indent_of
from .text_tables import table_rows

_WIDEST = 130  # whoever writes longer lines does not wrap them
_AROUND = 4  # groups before and behind that say how wide lines are here
_FILLED = 0.75  # share of line ends at which the next word had no room, in a wrapped paragraph
_CODE_SHARE = 0.4  # share of lines with signs of code, in a group that is code
_PAGE_FOOT = re.compile(r"\S.{0,100}\[Page (?:\d{1,5}|[ivxlc]{1,7})\]\s*\Z")
_NOTE = re.compile(r"\[(\d{1,3}|[*†‡])\]:?\s+(?=\S)")
_FIELD = re.compile(r"[A-Z][\w-]{1,30}: \S")
_LEADERS = re.compile(r"\.{4}|(?:\. ){4}")
_CODE = re.compile(
    r"[{}\\]\s*\Z|\A(?=.*?[=()\[\]>]).*;\s*\Z|\A\s*(?:\$|>>>|#|//|\+-)\s?|\A\s*[<|]|[=<>!:]=|->|\(\)|\S {3,}\S"
    r"|\A\s*(?:- )?[\w.-]+\s*[:=]\s*\S{0,30}\Z|\A\s*(?:- )?[\w.-]+:\s+[\[{\"'|>\d]"
)
_BULLET = re.compile(r"[^\w(]\s(?![*-])|o  ")
_FIRST_ITEM = re.compile(r"\(?[1aAiI][.)]\s")


@dataclass
class _Group:
    """Lines between two blank ones. own: length of its full lines if it is clearly wrapped; width: of full lines here;
    0 if nothing is wrapped."""

    lines: list[str]
    own: int = 0
    width: int = 0


def text_blocks(text: str) -> Blocks:
    lines = [line.expandtabs(4).rstrip() for line in _unpaged(text)]
    groups = _groups(lines)
    _set_widths(groups)
    words = vocabulary(lines)
    return _Layout(groups, words).blocks()


def _unpaged(text: str) -> list[str]:
    """The lines of a text whose pages end with a form feed or with "[Page 12]", without its running lines. A blank line
    stands between two pages unless a sentence runs on over the border."""
    if "\f" not in text and "[Page " not in text:
        return text.split("\n")
    pages: list[list[str]] = [[]]
    for line in text.split("\n"):
        before, *behind = line.split("\f")
        pages[-1].append(before)
        if behind:
            pages += [[part] for part in behind]
        elif _PAGE_FOOT.match(line):
            pages.append([])
    lines: list[str] = []
    for page in strip_running_lines([page for page in pages if any(map(str.strip, page))]):
        if lines and page and not _runs_on(lines[-1], page[0]):
            lines.append("")
        lines += page
    return lines


def _runs_on(last: str, first: str) -> bool:
    """Whether the first line of a page goes on with the paragraph at the foot of the one before."""
    if not last.strip() or indent_of(last) != indent_of(first) or ITEM.match(first.strip()):
        return False
    return first.strip()[0].islower() or last.rstrip()[-1] not in ".:!?\"')”’]"


def _groups(lines: Sequence[str]) -> list[_Group]:
    groups: list[_Group] = []
    blank = True
    for line in lines:
        if line and blank:
            groups.append(_Group([]))
        if line:
            groups[-1].lines.append(line)
        blank = not line
    return groups


def _set_widths(groups: Sequence[_Group]) -> None:
    """A group has its own width if it is clearly wrapped, and otherwise that of its neighbours; 0 where most of these
    are lines too long for anybody to have wrapped them."""
    for group in groups:
        group.own = _own_width(group.lines)
    own = {number: group.own for number, group in enumerate(groups) if group.own}
    long = {number for number, group in enumerate(groups) if min(map(len, group.lines)) > _WIDEST}
    places = sorted(own.keys() | long)
    for number, group in enumerate(groups):
        at = bisect_left(places, number)
        near = places[max(0, at - _AROUND) : at + _AROUND]
        wrapped = [own[place] for place in near if place in own]
        if 2 * len(wrapped) > len(near):
            group.width = own.get(number, int(median(wrapped)))
        elif not near and len(group.lines) > 1:
            longest = max(map(len, group.lines[:-1]))
            group.width = longest if 2 * NARROWEST < longest <= _WIDEST else 0


def _own_width(lines: Sequence[str]) -> int:
    """Return the length of the full lines of a group of three lines or more that is wrapped; otherwise 0."""
    if len(lines) < 3:
        return 0
    lengths = [len(line) for line in lines[:-1]]
    middle = sorted(lengths)[len(lengths) // 2]
    width = max(length for length in lengths if length <= 1.25 * middle)
    if not NARROWEST <= width <= _WIDEST:
        return 0
    full = sum(fills(line, after.strip(), width) for line, after in pairwise(lines))
    capitals = sum(line.strip()[0].isupper() for line in lines[1:])
    wrapped = full >= _FILLED * len(lengths) and capitals <= 0.5 * len(lengths)
    return width if wrapped and not _is_code(lines) else 0


def _is_code(lines: Sequence[str]) -> bool:
    signs = sum(_CODE.search(line) is not None for line in lines)
    return signs >= _CODE_SHARE * len(lines) and (signs > 1 or len(lines) == 1)


class _Layout:
    """Groups -> blocks. Lines that keep their blanks wait in ``_kept`` until the run of such groups ends, so that they
    lose the indentation that they have in common."""

    def __init__(self, groups: Sequence[_Group], words: Vocabulary) -> None:
        self._groups, self._words = groups, words
        self._blocks = Blocks()
        self._kept: list[list[str]] = []
        self._base = self._usual_indent()
        self._headings = Headings([group.lines for group in groups], self._base)

    def _usual_indent(self) -> int:
        counts: Counter[int] = Counter()
        for group in self._groups:
            if group.own:
                counts[indent_of(group.lines[1])] += len(group.lines)
        return counts.most_common(1)[0][0] if counts else 0

    def blocks(self) -> Blocks:
        for number, group in enumerate(self._groups):
            heading = self._headings.of(number)
            if heading:
                self._release()
                self._blocks.heading(*heading)
            lines = group.lines[self._headings.taken(number) :]
            if lines:
                self._lay_out(lines, group)
        self._release()
        return self._blocks

    def _lay_out(self, lines: list[str], group: _Group) -> None:
        """lines: of the group, without those of its heading."""
        note = _NOTE.match(lines[0].strip())
        if note:
            self._release()
            whole = " ".join(paragraph for _, paragraph in self._paragraphs(lines, group.width))
            self._blocks.note(note[1], whole[note.end() :])
            return
        rows = table_rows(lines)
        if rows:
            self._release()
            for number, row in enumerate(rows):
                self._blocks.row(row, first=not number)
            return
        if len(lines) > 1 and not group.own and _is_code(lines):
            self._kept.append(lines)
            return
        if len(lines) == 1 and (indent_of(lines[0]) > self._base + 1 or _LEADERS.search(lines[0])) and self._kept:
            self._kept.append(lines)
            return
        self._add_paragraphs(self._paragraphs(lines, group.width), lines)

    def _add_paragraphs(self, paragraphs: list[tuple[int, str]], lines: Sequence[str]) -> None:
        """paragraphs: see ``_paragraphs``; a run of single lines that are no items keeps its lines."""
        run: list[str] = []
        at = 0
        for count, text in paragraphs:
            item = ITEM.match(text)
            if count == 1 and not item and len(paragraphs) > 1 and len(text) <= _WIDEST:
                run.append(lines[at])
            else:
                self._keep(run)
                run = []
                self._release()
                if item:
                    self._blocks.item(item[0].strip().replace("o", "-"), text[item.end() :])
                else:
                    self._blocks.paragraph(text)
            at += count
        self._keep(run)

    def _keep(self, lines: list[str]) -> None:
        if len(lines) == 1:
            self._release()
            self._blocks.paragraph(lines[0])
        elif lines:
            self._kept.append(lines)

    def _release(self) -> None:
        if self._kept:
            common = min(indent_of(line) for lines in self._kept for line in lines)
            for lines in self._kept:
                self._blocks.code([line[common:] for line in lines])
            self._kept = []

    def _paragraphs(self, lines: Sequence[str], width: int) -> list[tuple[int, str]]:
        """(number of lines, text) of each paragraph or item in a group."""
        found: list[list[str]] = []
        counts: list[int] = []
        for number, line in enumerate(lines):
            if number and self._goes_on(lines, number, width, counts[-1]):
                join(found[-1], line.strip(), self._words)
                counts[-1] += 1
            else:
                found.append([line.strip()])
                counts.append(1)
        return [(count, "".join(pieces)) for count, pieces in zip(counts, found, strict=True)]

    def _goes_on(self, lines: Sequence[str], number: int, width: int, before: int) -> bool:
        """Whether line ``number`` goes on with the paragraph of the line before it; before: lines that this has."""
        last, line = lines[number - 1], lines[number].strip()
        if width < NARROWEST or not fills(last, line, width):
            return False
        first = lines[number - before].strip()
        if _FIELD.match(line) and _FIELD.match(first):
            return False
        if ITEM.match(line) and _begins(line, last, in_list=ITEM.match(first) is not None):
            return False
        step = indent_of(lines[number]) - indent_of(last)
        if step > 1 and before > 1:  # a first line that is set in, unless all that follow are
            return number + 1 < len(lines) and indent_of(lines[number + 1]) >= indent_of(lines[number])
        return True


def _begins(line: str, last: str, in_list: bool) -> bool:
    """Whether what looks like an item's marker is one, and not an initial or a number at which a full line ended."""
    if _BULLET.match(line) or in_list:
        return True
    return last[-1] in ".:;!?" and _FIRST_ITEM.match(line) is not None
