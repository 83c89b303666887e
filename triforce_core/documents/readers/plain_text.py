"""Plain text, wrapped by hand or not: paragraphs, items, headings, tables, code and verse.

Decided group by group (the lines between two blank ones), with the width of the groups around it: neither one long line
nor one narrow list says how the rest of a file is to be read."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from ..reflow import ITEM, NARROWEST, Vocabulary, columns, fills, join, median, strip_running_lines, vocabulary
from ..sections import placed, split_sections
from .blocks import Blocks
from .encodings import decode_file
from .source import Raw, RawPage, Source, Unread
from .text_headings import find_headings, indent_of

_HEAD = 4_000  # characters in which a text may say its title, as those of Project Gutenberg do
_TITLE = re.compile(r"^Title: +(\S.{0,150})$", re.MULTILINE)
_SENTENCE_END = re.compile(r"[.!?:;][\"'”’)\]]*\Z")
_WIDEST = 130  # whoever writes longer lines does not wrap them
_AROUND = 4  # groups before and behind that say how wide lines are here
_FEWEST_SPACED = 5  # single lines one behind the other that show double spacing
_TOGETHER = 0.1  # share of lines with one directly behind, at most, in a text with double spacing
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
_MOST_LINES = 500
_RULE = frozenset(" |+=:-")
_DIAGRAM = re.compile(r"(?:\+-){4}")
_COLUMN_RULE = re.compile(r"[=-]{2,}")
_GAP = re.compile(r" {2,}")
_DOTS = re.compile(r"(?:(?<!\s)\s++)?(?:\.\s?){4,}\s*")


def decoded(source: Source) -> tuple[str, list[str]]:
    """Return a file's text with line feeds at its line ends, and warnings."""
    text, warnings = decode_file(source)
    return text.replace("\r\n", "\n").replace("\r", "\n"), warnings


def read_text(source: Source) -> Raw:
    return text_raw(*decoded(source))


def text_raw(text: str, warnings: list[str]) -> Raw:
    # A form feed begins a page; where pages are numbered at their foot, as in RFCs, text runs on over them.
    parts = [text] if "[Page " in text else text.split("\f")
    unread = Unread()
    read = [text_blocks(_unpaged(part, unread.running)).finish() for part in parts if part.strip()]
    headings = [heading for _, found in read for heading in found]
    sections = [section for body, found in read for section in split_sections(body, {words for words, _ in found})]
    title = _TITLE.search(text[:_HEAD])
    return Raw("txt", "text 3", title[1].strip() if title else "", numbered(sections), warnings=warnings,
               headings=placed(headings, sections), laid_out=True, unread=unread)


def numbered(sections: list[str]) -> list[RawPage]:
    return [RawPage(str(number + 1), text) for number, text in enumerate(sections)]


@dataclass
class _Group:
    """Lines between two blank ones. own: length of its full lines if it is clearly wrapped; width: of full lines here;
    0 if nothing is wrapped."""

    lines: list[str]
    own: int = 0
    width: int = 0


def text_blocks(lines: Sequence[str], words: Vocabulary | None = None) -> Blocks:
    """Lay lines out. words: the vocabulary that tells which hyphens stay, by default of these lines."""
    lines = [line.expandtabs(4).rstrip() for line in lines]
    groups = _groups(_single_spaced(lines))
    _set_widths(groups)
    return _Layout(groups, vocabulary(lines) if words is None else words).blocks()


def _groups(lines: Sequence[str]) -> list[_Group]:
    groups: list[_Group] = []
    for before, line in pairwise(["", *lines]):
        if line and not before:
            groups.append(_Group([]))
        if line:
            groups[-1].lines.append(line)
    return groups


def _single_spaced(lines: Sequence[str]) -> list[str]:
    """Return lines without the blank ones between the lines of a paragraph: a manuscript or a pleading is typed with
    double spacing, so that hardly two lines stand together. More blank lines than usual part two paragraphs."""
    if sum(bool(first and second) for first, second in pairwise(lines)) > _TOGETHER * sum(map(bool, lines)):
        return list(lines)
    kept: list[str] = []
    run: list[tuple[int, str]] = []  # single lines that follow each other: the blank lines before each, and it
    blanks = 1  # before the first line of all
    for line, after in pairwise([*lines, ""]):
        if not line:
            blanks += 1
        elif blanks and not after:
            run.append((blanks, line))
            blanks = 0
        else:
            kept += _closed_up(run)
            run = []
            kept += [""] * blanks + [line]
            blanks = 0
    return kept + _closed_up(run)


def _closed_up(run: Sequence[tuple[int, str]]) -> list[str]:
    """Return single lines without the fewest blank lines between any two, if they are those of wrapped paragraphs: all
    but a few go on in the middle of a sentence, and none is an item."""
    between = 0
    if len(run) >= _FEWEST_SPACED and _own_width([line for _, line in run]):
        heads = [line.lstrip() for _, line in run]
        going_on = sum(not _SENTENCE_END.search(last) for last in heads)
        lower = sum(head[0].islower() for head in heads)
        if min(going_on, 1.5 * lower) >= _FILLED * (len(run) - 1) and not any(map(ITEM.match, heads)):
            between = min(blanks for blanks, _ in run[1:])
    return [text for place, (blanks, line) in enumerate(run)
            for text in (*[""] * (blanks - between if place else blanks), line)]


def _unpaged(text: str, running: Counter[str]) -> list[str]:
    """Return the lines of a text whose pages end with a form feed or with "[Page 12]", without its running lines. A
    blank line stands between two pages unless a sentence runs on over the border."""
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
    for page in strip_running_lines([page for page in pages if any(map(str.strip, page))], running):
        if lines and page and not _runs_on(lines[-1], page[0]):
            lines.append("")
        lines += page
    return lines


def _runs_on(last: str, first: str) -> bool:
    """Say whether the first line of a page goes on with the paragraph at the foot of the one before."""
    if not last.strip() or indent_of(last) != indent_of(first) or ITEM.match(first.strip()):
        return False
    return first.strip()[0].islower() or last.rstrip()[-1] not in ".:!?\"')”’]"


def _set_widths(groups: Sequence[_Group]) -> None:
    """Give each group its own width if it is clearly wrapped, and otherwise that of its neighbours; 0 where most of
    these are lines too long for anybody to have wrapped them."""
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
            longest = max(map(columns, group.lines[:-1]))
            group.width = longest if 2 * NARROWEST < longest <= _WIDEST else 0


def _own_width(lines: Sequence[str]) -> int:
    """Return the length of the full lines of a group of three lines or more that is wrapped; otherwise 0."""
    if len(lines) < 3:
        return 0
    lengths = [columns(line) for line in lines[:-1]]
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


def lines_that_stay(groups: Sequence[list[str]], prose: bool) -> list[bool]:
    """Say of each group of lines whether they are code or a list, and no paragraphs. prose: in doubt they are none."""
    found = [_Group(lines) for lines in groups]
    _set_widths(found)
    return [not group.own and (not prose or (len(group.lines) > 1 and _is_code(group.lines)) or _unwrapped(group))
            for group in found]


def _unwrapped(group: _Group) -> bool:
    """Say whether three lines or more have no item among them, and are set in unevenly or end where there is room."""
    if len(group.lines) < 3 or any(ITEM.match(line.lstrip()) for line in group.lines):
        return False
    uneven = len({indent_of(line) for line in group.lines[1:]}) > 1
    return uneven or not any(fills(line, after.strip(), group.width or _WIDEST)
                             for line, after in pairwise(group.lines))


class _Layout:
    """Turn groups into blocks. Lines that keep their blanks wait in ``_kept`` until the run of such groups ends, so
    that they lose the indentation that they have in common."""

    def __init__(self, groups: Sequence[_Group], words: Vocabulary) -> None:
        self._groups, self._words = groups, words
        self._blocks = Blocks()
        self._kept: list[list[str]] = []
        indents = Counter[int]()
        for group in groups:
            if group.own:
                indents[indent_of(group.lines[1])] += len(group.lines)
        self._base = indents.most_common(1)[0][0] if indents else 0

    def blocks(self) -> Blocks:
        headings, taken = find_headings([group.lines for group in self._groups], self._base)
        for number, group in enumerate(self._groups):
            if number in headings:
                self._release()
                self._blocks.heading(*headings[number])
            lines = group.lines[taken.get(number, 0) :]
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
        rows = _table_rows(lines)
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
        """Add what ``_paragraphs`` found; a run of single lines that are no items keeps its lines."""
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
        """Return (number of lines, text) of each paragraph or item in a group."""
        found: list[list[str]] = []  # pieces: a text grown line by line takes quadratic time
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
        """Say whether line ``number`` goes on with the paragraph of the line before it; before: lines that this has."""
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
    """Say whether an item's marker is one, and not an initial or a number at which a full line ended."""
    if _BULLET.match(line) or in_list:
        return True
    return last[-1] in ".:;!?" and _FIRST_ITEM.match(line) is not None


def _table_rows(lines: Sequence[str]) -> list[list[str]]:
    """Return the cells of each row, the header first; [] for lines that are no table."""
    if not 2 <= len(lines) <= _MOST_LINES or any(_DIAGRAM.search(line) for line in lines):
        return []
    return _barred(lines) or _ruled(lines) or _aligned(lines)


def _barred(lines: Sequence[str]) -> list[list[str]]:
    """Read rows such as | a | b |, with rules between rows of more than one line, if it has any."""
    rows: list[list[str]] = []
    rules = [number for number, line in enumerate(lines) if _is_rule(line)]
    cells = [] if not all("|" in line or _is_rule(line) for line in lines) else [
        [cell.strip() for cell in line.strip().removeprefix("|").removesuffix("|").split("|")] for line in lines]
    written = [row for number, row in enumerate(cells) if number not in rules]
    if len(written) < 2 or len(written[0]) < 2 or any(len(row) != len(written[0]) for row in written):
        return []
    apart = True
    several = len(rules) > 3  # a rule between any two rows: lines between two rules are one row
    for number, row in enumerate(cells):
        if number in rules:
            apart = True
        elif apart or (row[0] and not several):
            rows.append(row)
            apart = False
        else:
            rows[-1] = _merged(rows[-1], row)
    return rows


def _ruled(lines: Sequence[str]) -> list[list[str]]:
    """Read columns below a rule such as "=====  ===="; a row whose first column is empty goes on with the one above."""
    rule = next((line for line in lines if _is_rule(line) and len(_COLUMN_RULE.findall(line)) > 1), "")
    if not rule:
        return []
    starts = [found.start() for found in _COLUMN_RULE.finditer(rule)]
    rows: list[list[str]] = []
    for line in lines:
        if _is_rule(line):
            continue
        if any(line[start - 1 : start].strip() for start in starts[1:]):
            return []  # words stand where a gap should be
        row = [line[start:end].strip() for start, end in zip(starts, [*starts[1:], None], strict=True)]
        if rows and not row[0]:
            rows[-1] = _merged(rows[-1], row)
        else:
            rows.append(row)
    return rows if len(rows) > 1 else []


def _aligned(lines: Sequence[str]) -> list[list[str]]:
    """Read lines with the same number of cells, apart by two blanks or more, whose last cells begin or end below each
    other; dots that lead to a page number are no cell."""
    rows = [_GAP.split(_DOTS.sub("  ", line.strip())) for line in lines]
    if len(lines) < 3 or len(rows[0]) < 2 or any(len(row) != len(rows[0]) for row in rows):
        return []
    ends = {len(line) for line in lines}
    starts = {len(line) - len(row[-1]) for line, row in zip(lines, rows, strict=True)}
    return rows if len(ends) == 1 or len(starts) == 1 else []


def _is_rule(line: str) -> bool:
    return _RULE.issuperset(line) and ("--" in line or "==" in line)


def _merged(row: Sequence[str], more: Sequence[str]) -> list[str]:
    return [f"{cell} {rest}".strip() for cell, rest in zip(row, more, strict=True)]
