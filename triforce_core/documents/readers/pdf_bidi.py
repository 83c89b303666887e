"""Lines of a PDF with Hebrew, Arabic or another script that is written from right to left, in the order of reading.

Files keep such lines in either order, whole or letter by letter, and PDFium turns parts of them around. Where the
characters stand is the same in all, so it alone decides: a line is put together as it is seen, and then turned by the
rules of Unicode's bidirectional algorithm (UAX 9), backwards."""

from __future__ import annotations

import ctypes
import math
import re
import unicodedata
from bisect import bisect
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

RIGHT_TO_LEFT = re.compile("[\u0590-\u08ff\ufb1d-\ufdff\ufe70-\ufefc]")
_LEVEL = 0.3  # of the size: how far baselines of one row lie apart, at most ...
_RAISED = 0.8  # ... where one is much smaller
SMALL = 0.84  # of the size beside it: a raised mark; browsers set these at 5/6
_BLANK = 0.15  # ems between two words, at least ...
_MORE_THAN_BLANK = 0.2  # ... where blanks are drawn, too ...
_LEAST_BLANK = 0.1  # ... and where one is drawn right there
_CELL = 2.0  # ems between two cells of a row
_NEAR = 2.2  # sizes from a line to the next of its paragraph
_STEP = 8.0  # points: places of a row that are looked up at once
_RECENT = 60  # rows that a stray piece is looked for in
_FORMS = re.compile("[\ufb1d-\ufdff\ufe70-\ufefc]")  # letters as they are drawn, not as they are written
_KINDS = {"L": "L", "R": "R", "AL": "R", "EN": "N", "AN": "N", "CS": "S", "ES": "E", "ET": "T", "WS": " ", "NSM": "M"}
_NUMBER = re.compile(r"(?:(?<!T)T++)?+N++(?:[SE]N++)*+T*+|L")
_ARABIC_NUMBER = re.compile(r"N+(?:SN+)*|L")
_LEFTWARD = re.compile("R(?:[^L]*R)?")
_ALEF_LAM = re.compile("[\u0622\u0623\u0625\u0627\u0671]\u0644\\Z")
_OPENING = "([{«‹"
_BRACKETS = dict(zip("([{«‹)]}»›", ")]}»›([{«‹", strict=True))
_STOPS = ".,:;!?،؛؟\"'”“"


@dataclass(slots=True)
class Glyph:
    """What is drawn at one place. text: its characters as they are read. left, right, base and size in points along
    the direction of writing, which is turned by quarters. at: their indices in PDFium's order; drawn: the text object
    they belong to."""

    text: str
    left: float
    right: float
    base: float
    size: float
    turn: int
    at: list[int]
    drawn: int

    @property
    def kind(self) -> str:
        return "" if not self.text else " " if self.text.isspace() else _KINDS.get(
            unicodedata.bidirectional(self.text[0]), "O")


Row = list[Glyph]  # from left to right as it is seen


def rows_of_page(text: str, raw: Any, page: Any, c: Any) -> list[tuple[Row, bool]]:
    """Return the rows of a page that hold a letter written from right to left, and whether each is read so. text:
    PDFium's characters, each a string of one UTF-16 unit; raw: the page's text."""
    if text.isascii() or not RIGHT_TO_LEFT.search(text):
        return []
    found: list[_Places] = []
    glyphs = _glyphs(text, raw, c)
    for glyph in glyphs:
        place = next((place for place in found[: -_RECENT - 1 : -1] if place.fits(glyph, place is found[-1])), None)
        if place is None:
            found.append(place := _Places())
        place.add(glyph)
    marks = [place for place in found if {glyph.kind for glyph in place.row} == {"M"}]
    found = [place for place in found if place not in marks]
    for glyph in (*(glyph for place in marks for glyph in place.row),
                  *_unread(page, {glyph.drawn for glyph in glyphs}, c)):
        place = next((place for place in found if place.fits(glyph, False)), None)
        if place is not None:
            place.add(glyph)
    rows = [place.row for place in found]
    return [(sorted(_with_marks(row), key=lambda glyph: glyph.left), leftward)
            for row, leftward in zip(rows, _directions(rows), strict=True)
            if any(RIGHT_TO_LEFT.search(glyph.text) for glyph in row)]


class _Places:
    """A row that grows, and its glyphs by where they end."""

    def __init__(self) -> None:
        self.row: Row = []
        self._ends = defaultdict[int, Row](list)

    def add(self, glyph: Glyph) -> None:
        self.row.append(glyph)
        self._ends[round(glyph.right / _STEP)].append(glyph)

    def fits(self, glyph: Glyph, latest: bool) -> bool:
        """Say whether a glyph stands in the row: the latest may go on anywhere, an earlier one close by."""
        last = self.row[0]
        size = max(glyph.size, last.size)
        small = min(glyph.size, last.size) < SMALL * size or not glyph.text or unicodedata.combining(glyph.text[-1])
        if glyph.turn != last.turn or abs(glyph.base - last.base) > (_RAISED if small else _LEVEL) * size:
            return False
        first, end = round((glyph.left - size) / _STEP), round((glyph.left + size) / _STEP) + 1
        near = (other for at in range(first, end) for other in self._ends.get(at, ())
                ) if end - first < len(self._ends) else self.row
        return latest or any(-size < glyph.left - other.right < size and -size < other.left - glyph.right < size
                             for other in near)


def _glyphs(text: str, raw: Any, c: Any) -> list[Glyph]:
    """Return what the file draws; blanks that PDFium made are none. What has one origin, such as a ligature, is one."""
    box, matrix = c.FS_RECTF(), c.FS_MATRIX()
    x, y = ctypes.c_double(), ctypes.c_double()
    groups: dict[tuple[int, float, float], tuple[Glyph, list[tuple[float, int, str]]]] = {}
    for at, letter in enumerate(text):
        found = c.FPDFText_GetTextObject(raw, at)
        if not found:
            continue
        c.FPDFText_GetCharOrigin(raw, at, x, y)
        c.FPDFText_GetLooseCharBox(raw, at, box)
        c.FPDFText_GetMatrix(raw, at, matrix)
        turn = round(math.atan2(matrix.b, matrix.a) / (math.pi / 2)) % 4
        size = c.FPDFText_GetFontSize(raw, at) * math.hypot(matrix.c, matrix.d) or 1.0
        right, base = [(box.right, y.value), (box.top, -x.value), (-box.left, -y.value), (-box.bottom, x.value)][turn]
        left = (x.value, y.value, -x.value, -y.value)[turn]
        drawn = ctypes.addressof(found.contents)
        new = Glyph("", left, right, base, size, turn, [], drawn)
        glyph, letters = groups.setdefault((drawn, left, base), (new, []))
        letters.append((-right, -at, letter))
        glyph.right = max(glyph.right, right)
        glyph.at.append(at)
    for glyph, letters in groups.values():
        glyph.text = _read([letter for _, _, letter in letters] if "\ud800" <= letters[0][2] < "\udc00" else [
            letter for _, _, letter in sorted(letters)])
    return [glyph for glyph, _ in groups.values() if glyph.text]


def _unread(page: Any, known: Collection[int], c: Any) -> Iterator[Glyph]:
    """Yield what else the page draws as text: what may be a blank, and the other half of a letter
    and its mark that came as one."""
    for thing in page.get_objects(filter=[c.FPDF_PAGEOBJ_TEXT], max_depth=1):
        if ctypes.addressof(thing.raw.contents) not in known:
            left, bottom, right, top = thing.get_bounds()
            matrix = thing.get_matrix()
            size = max(top - bottom, right - left)
            yield Glyph(" " * (right == left), left, right, matrix.f, size, 0, [], 0)


def _read(letters: Sequence[str]) -> str:
    """Return what one glyph means in the order of reading: lam before alef, and letters before their marks."""
    text = _FORMS.sub(lambda form: unicodedata.normalize("NFKC", form[0]).strip(), "".join(letters))
    if not text.isascii():
        text = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
        if len(text) > 1 and (unicodedata.combining(text[0]) or _ALEF_LAM.match(text)):
            text = text[::-1]
    return text


def _with_marks(row: Row) -> Row:
    """Return a row with each mark in the glyph of the letter that it stands on."""
    letters = sorted((glyph.left + glyph.right, at) for at, glyph in enumerate(row) if glyph.kind not in ("M", " ", ""))
    kept = []
    for glyph in row:
        if glyph.kind != "M" or not letters:
            kept.append(glyph)
            continue
        middle = glyph.left + glyph.right
        behind = bisect(letters, (middle, 0))
        _, at = min(letters[max(0, behind - 1) : behind + 1], key=lambda letter: abs(letter[0] - middle))
        row[at].text += glyph.text
        row[at].at += glyph.at
    return kept


def _directions(rows: Sequence[Row]) -> list[bool]:
    """Say of each row whether it is read from the right: as most of its letters are, and where they are mixed, as most
    are in it and in the rows right above and below."""
    counts = [Counter(glyph.kind for glyph in row) for row in rows]
    found = []
    for at, (row, count) in enumerate(zip(rows, counts, strict=True)):
        votes, letters = count["R"] - count["L"], count["R"] + count["L"]
        if 2 * abs(votes) < letters:
            votes += sum(counts[other]["R"] - counts[other]["L"] for other in (at - 1, at + 1) if 0 <= other < len(rows)
                         and abs(rows[other][0].base - row[0].base) < _NEAR * row[0].size)
        found.append(votes > 0)
    return found


def usual_size(glyphs: Sequence[Glyph]) -> float:
    """Return the size that most glyphs are set in."""
    return Counter(glyph.size for glyph in glyphs if glyph.at).most_common(1)[0][0]


def cells(row: Row, rightward: bool) -> list[list[Glyph]]:
    """Return the cells of a row, from left to right, each in the order of reading, with blanks between its words.
    rightward: the row is read from the left."""
    found: list[Row] = [[]]
    em = usual_size(row)
    blank = em * (_BLANK if all(glyph.kind != " " for glyph in row) else _MORE_THAN_BLANK)
    phrases = {one.drawn for one, two, three in zip(row, row[1:], row[2:], strict=False)
               if one.drawn == two.drawn == three.drawn and two.kind == " "}
    right, told = row[0].left, False
    for glyph in row:
        if glyph.kind == " " and not glyph.at:
            told = True
            continue
        if glyph.left - right > _CELL * em:
            found.append([])
        elif glyph.left - right > (_LEAST_BLANK * em if told else blank):
            found[-1].append(replace(glyph, text=" ", left=right, right=glyph.left, at=[], drawn=0))
        found[-1].append(glyph)
        right, told = max(right, glyph.right), False
    return [read for cell in found if (read := _read_cell(cell, rightward, bool(phrases)))]


def _read_cell(cell: Row, rightward: bool, phrases: bool) -> list[Glyph]:
    """Return a cell in the order of reading. phrases: each of the file's objects holds words of one direction."""
    solid = [glyph for glyph in cell if glyph.text]
    cell = [glyph for glyph, after in zip(solid, [*solid[1:], None], strict=True)
            if glyph.kind != " " or (after is not None and after.kind != " " and glyph is not solid[0])]
    kinds = "".join(glyph.kind for glyph in cell)
    if not rightward:
        return _bracketed(_turned(cell, kinds, phrases))
    read, end = [], 0
    for found in _LEFTWARD.finditer(kinds):
        read += cell[end : found.start()] + _turned(cell[found.start() : found.end()], found[0], phrases)
        end = found.end()
    return _bracketed(read + cell[end:])


def _turned(seen: Row, kinds: str, phrases: bool) -> list[Glyph]:
    """Return a stretch that is read from the right; words of other scripts and numbers in it are read from the left."""
    arabic = 2 * sum(unicodedata.bidirectional(glyph.text[0]) == "AL" for glyph in seen) > kinds.count("R")
    number = _ARABIC_NUMBER if arabic else _NUMBER
    read: list[Glyph] = []
    end = len(seen)
    for start, stop in reversed(list(_rightward(seen, kinds, number, phrases))):
        read += [*seen[stop:end][::-1], *seen[start:stop]]
        end = start
    return read + seen[:end][::-1]


def _rightward(seen: Row, kinds: str, number: re.Pattern[str], phrases: bool) -> Iterator[tuple[int, int]]:
    """Yield where parts begin and end that are read from the left: numbers, and words with all that is between them. A
    number beside a word is its own part where the file draws it apart, though it draws phrases whole."""
    start = end = 0
    worded = False
    for found in number.finditer(kinds):
        between = kinds[end : found.start()]
        word = found[0] == "L"
        joins = "R" not in between and (worded or word) and not (
            phrases and " " in between and word != (kinds[end - 1] == "L")
            and seen[end - 1].drawn != seen[found.start()].drawn)
        if end and joins:
            end, worded = found.end(), worded or word
            continue
        if end:
            yield start, end
        start, end, worded = found.start(), found.end(), word
    if end:
        yield start, end


def _outside(letter: str) -> int:
    """Say how surely a character is not inside the brackets that it stands beside."""
    return 2 if letter.isspace() else int(letter in _STOPS)


def _bracketed(read: list[Glyph]) -> list[Glyph]:
    """Give brackets the side that they are on: files keep them as they are drawn or as they are read."""
    depth = 0
    others = [glyph for glyph in read if glyph.text not in _BRACKETS]
    at = 0
    for glyph in read:
        if glyph.text not in _BRACKETS:
            at += 1
            continue
        before, after = _outside(others[at - 1].text[-1] if at else " "), _outside("".join(
            other.text for other in others[at : at + 1])[:1] or " ")
        opens = before > after if before != after else glyph.text in _OPENING if before else depth == 0
        if opens != (glyph.text in _OPENING):
            glyph.text = _BRACKETS[glyph.text]
        depth += 1 if opens else -1
    return read
