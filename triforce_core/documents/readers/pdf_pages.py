"""Turn the lines of all pages into their texts: running lines out, paragraphs whole, headings and notes apart.

The usual size of type, running lines and hyphens of words are found here: no page knows them alone."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from ..cleanup import clean
from ..reflow import SENTENCE_END, between_lines, between_running_lines, is_tied, median, words_that_run
from .pdf_figures import ISOTOPE, MARKED, RAISED, RAISED_END, cited, raised_marks, resolved, without_raised
from .pdf_lines import ITEM_MARK
from .pdf_listings import listing
from .pdf_spans import HYPHEN, Line
from .source import Heading

_WIDER = 1.3  # a gap of that many usual gaps begins a paragraph
_DOUBLE = 2.2  # type sizes between lines that stand no farther apart than in a double-spaced manuscript
_TITLE_STEP = 1.35  # type sizes, at most, from a line of a title to its next
_LARGER = 1.12  # headings are set that much larger than the text ...
_LONGEST_HEADING = 160  # ... and have no more characters, in so many lines
_HEADING_LINES = 3
_SMALLER = 0.94  # notes are set smaller than the text
_FULL = 0.5  # ems for a character of the word that would not have fitted
_ITEM = re.compile(ITEM_MARK + r"\s")
_NUMBERED_HEADING = re.compile(r"(?:[A-Z]|[IVXLC]+|\d+(?:\.\d+)*)\.\s")
_FIELD = re.compile(r"[A-Z][\w() /-]{1,30}: \S")  # of a form: "Net pay: 2,814.50"
_NOTE = re.compile(
    rf"(?:{RAISED}([^{RAISED_END}]*){RAISED_END}|\[?(\d{{1,3}}|[*†‡§¶]{{1,3}})[\].)]{{0,2}}(?=\s|[A-Z“\"]))\s*")
_ENDNOTES = re.compile(r"(?:end|foot)?notes|(references)", re.IGNORECASE)
_NUMBERED = re.compile(r"\[?(\d{1,3})[\].)]*\s+")
_BROKEN = re.compile(rf"(?<![^\W_])([^\W_]++(?:['’-][^\W_]+){{0,8}})(?:{HYPHEN}|-(?=\ufdd0))\ufdd0?\s*([^\W_]+)?(-?)")
_PREFIXES = frozenset("non self semi quasi well ex".split())
_BROKEN_AT = "\ufdd0"  # no character; stands where a line that ends with a hyphen was joined with the next
_DEEPEST = 24  # characters that a part of a listing may be indented more than the one before
_OFF_GRID = 0.1  # characters between the columns of two pages of one listing
_MARGIN = 1 / 6  # of the height of all pages: running lines stand above or below
_FEW_ROWS = 25.0  # sizes of type: where the text of most pages is no higher, these are nearly empty, and ...
_APART, _UNEVEN = 3.0, 1.5  # ... a line runs only so many sizes, and times the gap between the others, from these
_TITLE = "x" * 200  # too long to run
_WORD = re.compile(r"[^\W_]+(?:-[^\W_]+)*")
_Levels = Sequence[Sequence[Line]]  # of a page: what stands on each, from the top


@dataclass
class _Paragraph:
    lines: list[Line]
    kind: str = "text"  # "heading", "row", "note", "code", "head"
    mark: str = ""  # of a note
    origin: float = 0.0  # of a listing: where its first column begins, in points
    text: str = field(default="", init=False)


def page_texts(pages: Sequence[Sequence[Line]], running: Counter[str]) -> tuple[list[str], list[Heading]]:
    """Return the text of every page, and the headings by size and weight. running: counts the lines left out."""
    body = _body_size(pages)
    levels = [_levels(page) for page in pages]
    kept = _without_running(pages, levels, body, running)
    heads = _heads(levels, body)
    found = [_paragraphs(page, body, heads) for page in kept]
    _whole_over_page_breaks(found)
    endnotes = _end_notes(found)
    _foot_notes(found, body)
    _resolve(found, endnotes)
    _make_words_whole([paragraph for page in found for paragraph in page])
    return [_page_text(page) for page in found], _headings(found)


def _resolve(pages: Sequence[Sequence[_Paragraph]], endnotes: set[str]) -> None:
    """Give each paragraph its text, with raised figures written out and the marks of notes dropped. endnotes: the marks
    of notes that all pages refer to."""
    _align_listings(pages)
    texts = [[_joined(paragraph.lines) if paragraph.kind != "code" else listing(paragraph.lines, paragraph.origin)
              for paragraph in page] for page in pages]
    own = [{mark for paragraph, text in zip(page, known, strict=True) for mark in _marks_of_note(paragraph, text)}
           for page, known in zip(pages, texts, strict=True)]
    notes = set().union(*own)
    for page, known, here in zip(pages, texts, own, strict=True):
        elsewhere = {mark for text in known for mark in cited(text)}
        for paragraph, text in zip(page, known, strict=True):
            paragraph.text = resolved(text, notes, here | endnotes, elsewhere)


def _align_listings(pages: Sequence[Sequence[_Paragraph]]) -> None:
    """Find where the first column of each listing begins; one that goes on over a page break has one beginning."""
    parts: list[_Paragraph] = []  # of one listing
    for page in pages:
        for paragraph in page:
            if paragraph.kind != "code":
                continue
            paragraph.origin = min(line.left for line in paragraph.lines)
            shift = (paragraph.origin - parts[-1].origin) / paragraph.lines[0].pitch if parts else 0.5
            if paragraph is not page[0] or abs(shift) > _DEEPEST or abs(shift - round(shift)) > _OFF_GRID:
                parts = []
            parts.append(paragraph)
            first = min(part.origin for part in parts[-2:])
            for part in parts:
                part.origin = first
        if not page or page[-1].kind != "code":
            parts = []


def _marks_of_note(paragraph: _Paragraph, text: str) -> list[str]:
    """Return the mark that a paragraph begins with, as a note does and an affiliation below the names of authors."""
    if paragraph.mark:
        return [paragraph.mark]
    found = MARKED.match(text)
    return raised_marks(found[0]) if found and not ISOTOPE.match(text) else []


def _whole_over_page_breaks(pages: Sequence[Sequence[_Paragraph]]) -> None:
    """Make a word whole that is broken at the foot of a page; it stands there."""
    for page, after in pairwise(pages):
        below = after[0].lines[0] if after and after[0].kind == "text" else None
        body = [paragraph for paragraph in page
                if paragraph.kind == "text" and not _NOTE.match(paragraph.lines[0].text)]
        line = body[-1].lines[-1] if body else None
        if below is None or line is None or below.text[0] == RAISED or abs(line.size - below.size) > 0.5:
            continue
        word, _, rest = below.text.partition(" ")
        if word[:1].islower() and rest and re.search(rf"[^\W\d_](?:{HYPHEN}|-)\Z", line.text):
            line.text = line.text.rstrip(f"-{HYPHEN}") + HYPHEN + word
            below.text = rest


def _make_words_whole(paragraphs: Sequence[_Paragraph]) -> None:
    broken = [paragraph for paragraph in paragraphs if HYPHEN in paragraph.text or _BROKEN_AT in paragraph.text]
    if not broken:
        return
    vocabulary = Counter[str]()
    apart = set(map(id, broken))
    for paragraph in paragraphs:
        text = _BROKEN.sub(" ", paragraph.text) if id(paragraph) in apart else paragraph.text
        vocabulary.update(_WORD.findall(text.lower()))
    for paragraph in broken:
        text = _BROKEN.sub(lambda match: _whole(match, vocabulary), paragraph.text)
        paragraph.text = text.replace(HYPHEN, "-").replace(_BROKEN_AT, "")


def _body_size(pages: Sequence[Sequence[Line]]) -> float:
    sizes = Counter[float]()
    for page in pages:
        for line in page:
            sizes[round(line.size * 2) / 2] += len(line.text)
    return sizes.most_common(1)[0][0] if sizes else 0.0


def _without_running(pages: Sequence[Sequence[Line]], levels: Sequence[_Levels], body: float,
                     running: Counter[str]) -> list[list[Line]]:
    """Drop running lines, looked for from the top and from the foot, whatever the order in the file. A line set larger
    than the text is a title, even where its words run on the other pages. One outside the margins is text, and so is
    one that stands with the few lines of pages which are nearly empty."""
    texts = [_running_texts(rows, *area, body) for rows, area in zip(levels, _text_areas(levels), strict=True)]
    kept = []
    for page, rows, words, (first, end) in zip(pages, levels, texts, between_running_lines(texts), strict=True):
        running.update(words_that_run(line) for line in (*words[:first], *words[end:]) if line.strip())
        gone = {id(line) for row in (*rows[:first], *rows[end:]) for line in row}
        kept.append([line for line in page if id(line) not in gone and line.text.strip()])
    return kept


def _heads(levels: Sequence[_Levels], body: float) -> set[int]:
    """Return which lines (by ``id``) stand at one height, far above or below the text of most pages: they run, though
    their words may change with the chapter, and belong to no paragraph."""
    found: dict[int, list[Sequence[Line]]] = {}
    for rows in levels:
        gaps = [above[0].base - row[0].base for above, row in pairwise(rows)]
        for at in (0, len(gaps)):
            if _stands_apart(gaps, at, body) and not any(line.bold or line.size > _LARGER * body for line in rows[at]):
                found.setdefault(round(rows[at][0].base), []).append(rows[at])
    return {id(line) for same in found.values() if len(same) > max(1, len(levels) / 2) for row in same for line in row}


def _text_areas(levels: Sequence[_Levels]) -> list[tuple[float, float]]:
    """Return, for each page, the lowest and highest base between the margins, which all pages share; those of turned
    pages count from another corner."""
    areas: dict[bool, tuple[float, float]] = {}
    for turned in (False, True):
        pages = [rows for rows in levels if rows and (rows[0][0].base < 0) == turned]
        if pages:
            low, high = median(rows[-1][0].base for rows in pages), median(rows[0][0].base for rows in pages)
            areas[turned] = low + _MARGIN * (high - low), high - _MARGIN * (high - low)
    return [areas[rows[0][0].base < 0] if rows else (0.0, 0.0) for rows in levels]


def _running_texts(rows: Sequence[Sequence[Line]], low: float, high: float, body: float) -> list[str]:
    """Return the words on each level of a page that may run, a wide gap between any two that stand apart; in small type
    or at the right a number belongs to no word. The headings of a table that goes on over pages do not run."""
    lines = [line for row in rows for line in row]
    middle = (min(line.left for line in lines) + max(line.right for line in lines)) / 2 if lines else 0.0
    gaps = [above[0].base - row[0].base for above, row in pairwise(rows)]
    few = (high - low) / (1 - 2 * _MARGIN) < _FEW_ROWS * body
    texts = []
    for at, (row, below) in enumerate(zip(rows, [*rows[1:], []], strict=False)):
        if low < row[0].base < high or (few and not _stands_apart(gaps, at, body)):
            texts.append(_TITLE)
            continue
        heads = all(line.row for line in (*row, *below)) and below and row[0].base - below[0].base < 3 * row[0].size
        words = "   ".join(line.text for line in sorted(row, key=lambda line: line.left))
        if heads or all(line.size > _LARGER * body for line in row):
            words = _TITLE
        elif row[0].left > middle or all(line.size < _SMALLER * body for line in row):
            words = words.replace(" ", "  ")
        texts.append(words)
    return texts


def _stands_apart(gaps: Sequence[float], at: int, body: float) -> bool:
    """Say whether a level is the first or last of its page, far from the others beside the gaps between these."""
    if at not in (0, len(gaps)) or len(gaps) < 2:
        return False
    own, *others = gaps if at == 0 else gaps[::-1]
    return own > _APART * body and own > _UNEVEN * median(others)  # few need the median


def _levels(page: Sequence[Line]) -> list[list[Line]]:
    """Return lines from the top to the foot, those on one level together."""
    rows: list[list[Line]] = []
    for line in sorted(page, key=lambda line: -line.base):
        if rows and abs(rows[-1][0].base - line.base) < 2:
            rows[-1].append(line)
        else:
            rows.append([line])
    return rows


def _paragraphs(lines: Sequence[Line], body: float, heads: Collection[int]) -> list[_Paragraph]:
    measure = _Measure(lines, body)
    found: list[_Paragraph] = []
    for at, line in enumerate(lines):
        last = found[-1] if found else None
        if line.code and last is not None and last.kind == "code" and 0 < last.lines[-1].base - line.base:
            last.lines.append(line)
            continue
        if line.row or id(line) in heads:
            found.append(_Paragraph([line], "code" if line.code else "row" if line.row else "head"))
            continue
        following = lines[at + 1] if at + 1 < len(lines) else None
        if last is not None and last.kind == "text" and _continues(last.lines, line, following, measure):
            last.lines.append(line)
        else:
            found.append(_Paragraph([line]))
    for paragraph in found:
        if _is_heading(paragraph, body):
            paragraph.kind = "heading"
    return found


class _Measure:
    """Measure how far lines reach to the right and how far apart they stand on a page. body: the size of the text."""

    def __init__(self, lines: Sequence[Line], body: float) -> None:
        self._body = body
        self._lines = [line for line in lines if not line.row]
        self._gaps = [above.base - below.base for above, below in pairwise(lines)
                      if 0 < above.base - below.base < 4 * above.size and abs(above.size - below.size) < 1]
        self._rights: dict[tuple[int, int], float] = {}
        self._usual: dict[int, float] = {}

    def right(self, line: Line) -> float:
        """Return the right end of the longest line that is set as ``line`` is and stands above or below it."""
        key = round(line.left), round(line.size)
        if key not in self._rights or self._rights[key] < line.right:
            self._rights[key] = max((other.right for other in self._lines if abs(other.size - line.size) < 1
                                     and other.left < line.right and other.right > line.left), default=line.right)
        return self._rights[key]

    def goes_on(self, title: Line, line: Line, room: float) -> bool:
        """Say whether ``line`` is the next one of a title that is set larger than the text: close below, alike, and its
        first word, which takes ``room``, would not have stood in the column above."""
        edge = max(other.right for other in self._lines if other.left < title.right and other.right > title.left)
        return (min(title.size, line.size) > _LARGER * self._body and title.bold == line.bold
                and title.base - line.base < _TITLE_STEP * line.size and title.right + room > edge)

    def gap(self, size: float) -> float:
        """Return the usual gap between lines of that size."""
        key = round(size * 4)
        if key not in self._usual:
            near = [gap for gap in self._gaps if gap < _DOUBLE * size]
            self._usual[key] = median(near) if near else self._even_gap(size)
        return self._usual[key]

    def _even_gap(self, size: float) -> float:
        """Return the usual gap of lines that all stand far apart, as in a manuscript; paragraphs of one line each stand
        apart unevenly."""
        if len(self._gaps) > 2:
            usual = median(self._gaps)
            if 2 * sum(abs(gap - usual) < 0.05 * usual for gap in self._gaps) > len(self._gaps):
                return usual
        return 1.3 * size


def _continues(above: Sequence[Line], line: Line, following: Line | None, measure: _Measure) -> bool:
    """Say whether a paragraph goes on with ``line``."""
    last = above[-1]
    if abs(last.size - line.size) > 0.08 * last.size + 0.2 or (
            line.text[0] == RAISED and not ISOTOPE.match(line.text)):
        return False
    if last.text.endswith(HYPHEN) or is_tied(last.text, line.text):
        return True
    if _ITEM.match(line.text) or (_FIELD.match(line.text) and (
            _FIELD.match(last.text) or (following is not None and _FIELD.match(following.text)))):
        return False
    step, usual, em = last.base - line.base, measure.gap(line.size), max(line.size, 1.0)
    room = (len(line.text.split(None, 1)[0]) + 1) * _FULL * em
    full = last.right + room > measure.right(last) - 0.5 * em
    ended = SENTENCE_END.search(without_raised(last.text)) is not None
    if step <= 0 or step > 3 * max(usual, em):  # the head of the next column; far below: behind a picture
        more = line.text[0].islower() or (full and step <= 0)
        return not ended and not (last.bold and line.bold) and more and len(last.text) > 20
    if last.bold and not line.bold and not full:
        return False
    if step > _WIDER * max(usual, 0.9 * em) and not measure.goes_on(last, line, room):
        return False
    return _aligns(above, line, following, full=full, ended=ended)


def _aligns(above: Sequence[Line], line: Line, following: Line | None, *, full: bool, ended: bool) -> bool:
    """Say whether ``line``, right below a paragraph, begins where the paragraph's next line would. full: the last one
    had no room for its first word; ended: it ends like a sentence."""
    first, last, em = above[0], above[-1], max(line.size, 1.0)
    centred = abs(last.left + last.right - line.left - line.right) < 4 and abs(last.left - line.left) > 2
    if centred and first.left > 0:
        return not ended or not full
    item = _ITEM.match(first.text) is not None
    if item and len(above) == 1:
        return full or line.left > first.left + 0.5 * em
    if item and line.left < above[1].left - 0.5 * em:
        return False
    if not item and line.left - last.left > 0.5 * em:
        hanging = following is not None and abs(following.left - line.left) < 1.5 and not ended
        return hanging and full
    return full or (not ended and line.text[0].islower())


def _is_heading(paragraph: _Paragraph, body: float) -> bool:
    lines = paragraph.lines
    text = "".join(line.text for line in lines)
    if paragraph.kind != "text" or len(text) > _LONGEST_HEADING or len(lines) > _HEADING_LINES:
        return False
    if sum(map(str.isalpha, text)) < 3 or MARKED.match(text):
        return False
    if all(line.size > _LARGER * body for line in lines):
        return True
    bold = all(line.bold for line in lines) and lines[0].size > 0.95 * body
    return bold and (text.rstrip()[-1] not in ".,;:" or _NUMBERED_HEADING.match(text) is not None)


def _headings(pages: Sequence[Sequence[_Paragraph]]) -> list[Heading]:
    """Return the headings; larger type is a higher level."""
    found = [(paragraph, number) for number, page in enumerate(pages) for paragraph in page
             if paragraph.kind == "heading"]
    sizes = sorted({round(paragraph.lines[0].size) for paragraph, _ in found}, reverse=True)
    return [Heading(paragraph.text, sizes.index(round(paragraph.lines[0].size)) + 1, number)
            for paragraph, number in found]


def _foot_notes(pages: Sequence[list[_Paragraph]], body: float) -> None:
    """Find notes: paragraphs of smaller type at the foot that begin with a mark, also where one runs on to the next
    page."""
    open_note: _Paragraph | None = None
    for page in pages:
        marks = {mark for paragraph in page for line in paragraph.lines
                 for mark in raised_marks(line.text[1:] if line.text[0] == RAISED else line.text)}
        notes: list[_Paragraph] = []
        if not (foot := _foot(page, body)):
            open_note = None
            continue
        page[-len(foot) :] = foot = [part for paragraph in foot for part in _split_at(marks, paragraph)]
        for paragraph in foot:
            match = _NOTE.match(paragraph.lines[0].text)
            if match and (match[1] is not None or match[2] in marks):
                notes.append(paragraph)
                paragraph.kind, paragraph.mark = "note", (match[1] or match[2]).strip("[] ,")
                paragraph.lines[0].text = paragraph.lines[0].text[match.end() :]
            elif notes:
                notes[-1].lines += paragraph.lines
                paragraph.lines = []
            elif open_note is not None and not SENTENCE_END.search(without_raised(open_note.lines[-1].text)):
                open_note.lines += paragraph.lines
                paragraph.lines = []
        page[:] = [paragraph for paragraph in page if paragraph.lines]
        open_note = notes[-1] if notes else None


def _split_at(marks: set[str], paragraph: _Paragraph) -> list[_Paragraph]:
    """Return short notes one by one that stand below each other like lines of one paragraph."""
    parts = [_Paragraph(paragraph.lines[:1], paragraph.kind)]
    for above, line in pairwise(paragraph.lines):
        match = _NOTE.match(line.text)
        ended = SENTENCE_END.search(above.text) and abs(line.left - paragraph.lines[0].left) < 1
        if match and match[2] in marks and ended:
            parts.append(_Paragraph([line]))
        else:
            parts[-1].lines.append(line)
    return parts


def _foot(page: Sequence[_Paragraph], body: float) -> Sequence[_Paragraph]:
    """Return a page's last paragraphs, as far as they are of smaller type, or hardly larger behind a raised mark."""
    start = len(page)
    while start and page[start - 1].kind in ("text", "row", "head") and max(
            line.size for line in page[start - 1].lines) < (
            1.02 if page[start - 1].lines[0].text[0] == RAISED else _SMALLER) * body:
        start -= 1
    return page[start:]


def _end_notes(pages: Sequence[list[_Paragraph]]) -> set[str]:
    """Find notes: numbered paragraphs under a heading "Notes" whose numbers count up from 1; under "References" only
    where the numbers are raised in the text. Return their marks."""
    raised = {mark for page in pages for paragraph in page for line in paragraph.lines
              for mark in raised_marks(line.text)}
    expected, listed = 0, False
    last: _Paragraph | None = None
    found: set[str] = set()
    for page in pages:
        for paragraph in page:
            text = paragraph.lines[0].text
            if heading := _ENDNOTES.fullmatch(text.strip(" :")):
                expected, listed = 1, heading[1] is None
                continue
            match = (_NUMBERED.match(text) or _NOTE.match(text)) if expected else None
            number = (match[1] or match[match.lastindex or 0]) if match else ""
            if match and number == str(expected) and (listed or number in raised):
                paragraph.kind, paragraph.mark, last = "note", number, paragraph
                paragraph.lines[0].text = text[match.end() :]
                found.add(number)
                expected += 1
            elif last is not None and paragraph.kind == "text" and last.lines[0].size == paragraph.lines[0].size and (
                    not SENTENCE_END.search(last.lines[-1].text)):
                last.lines += paragraph.lines
                paragraph.lines = []
            else:
                last = None
        page[:] = [paragraph for paragraph in page if paragraph.lines]
    return found


def _joined(lines: Sequence[Line]) -> str:
    text = lines[0].text
    for line in lines[1:]:
        if text.endswith(HYPHEN):
            text += line.text
        elif text[-1] == "-" and text[-2:-1].isalnum() and line.text[0].isalpha():
            text += _BROKEN_AT + line.text
        else:
            text += between_lines(text, line.text) + line.text
    return text


def _whole(match: re.Match[str], vocabulary: Counter[str]) -> str:
    """Return a word broken at a line's end, with its hyphen only where the document's own words say that it has one."""
    first, second = match[1], match[2] or ""
    if not second:
        return f"{first}-"
    joined, hyphenated = f"{first}{second}{match[3]}", f"{first}-{second}{match[3]}"
    if match[3]:  # trustee-to-trustee
        return joined if vocabulary[f"{first}{second}".lower()] else hyphenated
    solid, apart = vocabulary[joined.lower()], vocabulary[hyphenated.lower()]
    if solid or apart:
        return hyphenated if apart > solid else joined
    tail = first.rsplit("-", 1)[-1]
    if "-" in first and vocabulary[f"{tail}{second}".lower()]:
        return joined
    if first.lower() in _PREFIXES or any(map(str.isupper, first[1:])) != first.isupper():
        return hyphenated
    if "-" in first or first[-1].isdigit() or second[0].isdigit() or second[0].isupper() != first.isupper():
        return hyphenated
    words = min(len(tail), len(second)) > 2 and vocabulary[tail.lower()] and vocabulary[second.lower()]
    return hyphenated if words else joined


def _page_text(page: Sequence[_Paragraph]) -> str:
    """Return the text of a page, notes last. Items of a list and rows of a table stand close together."""
    body = [paragraph for paragraph in page if paragraph.kind != "note"]
    text = ""
    close = False
    for paragraph in body:
        item = paragraph.kind == "row" or (paragraph.kind == "text" and _ITEM.match(paragraph.text) is not None)
        words = paragraph.text if paragraph.kind == "code" else " ".join(paragraph.text.split())
        if not words.isprintable() and paragraph.kind != "code":  # what goes leaves no two blanks
            words = clean(words)[0]
        text += ("\n" if item and close else "\n\n") + words
        close = item
    notes = (f"\n\n[{paragraph.mark}] " + " ".join(paragraph.text.split()) for paragraph in page
             if paragraph.kind == "note")
    return (text + "".join(notes)).strip("\n")
