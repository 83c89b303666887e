"""Find listings on a PDF page: lines of fixed pitch that are code, or the words of a terminal, and no paragraphs. They
keep their lines, blanks and indentation, and lose the numbers that count their lines."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from ..reflow import SENTENCE_END
from .pdf_spans import HYPHEN, Line

_LEVEL = 0.4  # line heights, at most, between what stands on one line
_BLANK = 1.6  # usual steps from a line to the one below a blank line
_TIGHTEST = 0.9  # line heights from a line to the next
_FARTHEST = 6.0  # line heights between two lines of one listing
_MOSTLY = 0.7  # share of the characters that are of fixed pitch, where paragraphs are too
_CELLS = 0.6  # share of lines with a wide gap in a table
_NUMBER = re.compile(r"\d{1,5}\Z")
_COUNTED = re.compile(r"(\d{1,5})[.:]?(?:\s|\Z)\s*")
_Rows = list[list[Line]]  # from the top to the foot, and what stands on one line from left to right


@dataclass
class Typeface:
    """How many characters of a document's pages so far are of fixed pitch, of how many; and how many numbers that count
    the lines of listings were left out."""

    fixed: int = 0
    of: int = 0
    numbers: int = 0


def parted(pieces: Sequence[Line], seen: Typeface) -> Iterator[tuple[list[Line], bool]]:
    """Yield pieces in their order: the lines of listings, with True, and what stands between these, with False. seen:
    of the pages before, to which this one is added."""
    fixed = sum(len(piece.text) for piece in pieces if piece.pitch)
    seen.fixed += fixed
    seen.of += sum(len(piece.text) for piece in pieces)
    if not fixed:
        yield list(pieces), False
        return
    others: list[Line] = []
    for run in _runs(pieces):
        for part, listing in _listings(run, others[-1:], seen):
            if not listing:
                for piece in part:
                    piece.text = " ".join(piece.text.split()) if piece.pitch else piece.text
                others += part
                continue
            if others:
                yield others, False
            yield part, True
            others = []
    if others:
        yield others, False


def _runs(pieces: Sequence[Line]) -> Iterator[list[Line]]:
    """Yield pieces in their order: what is of fixed pitch, with the numbers beside it, apart from all else."""
    run: list[Line] = []
    was = False
    for piece in pieces:
        fixed = piece.pitch > 0 or _NUMBER.match(piece.text) is not None
        if run and fixed != was:
            yield run
            run = []
        run.append(piece)
        was = fixed
    yield run


def _listings(run: list[Line], before: Sequence[Line], seen: Typeface) -> Iterator[tuple[list[Line], bool]]:
    """Yield the parts of a run, and whether each is a listing. before: the piece above."""
    from .plain_text import lines_that_stay  # few pages need it, and its patterns take a while to compile

    if sum(piece.pitch > 0 for piece in run) < 2:
        yield run, False
        return
    mostly = seen.fixed > _MOSTLY * seen.of  # and paragraphs are of fixed pitch, too
    for rows in _without_columns_of_numbers(_blocks(run), seen):
        if not any(piece.pitch for row in rows for piece in row):
            yield [piece for row in rows for piece in row], False
            continue
        plain, numbers = (rows, 0) if mostly else _without_numbers(rows)
        table = mostly and sum(len(row) > 1 for row in plain) > _CELLS * len(plain)
        if len(plain) < 2 or table or _goes_on(before, plain):
            yield [piece for row in rows for piece in row], False
            continue
        seen.numbers += numbers
        groups = _groups(plain)
        origin = min(row[0].left for row in plain)
        stay = lines_that_stay([[_text(row, origin) for row in group] for group in groups], prose=mostly)
        for at, group in enumerate(groups):
            if stay[at] or (len(group) == 1 and all(stay[max(0, at - 1) : at] + stay[at + 1 : at + 2])):
                yield [_line(row) for row in group], True
            else:
                yield [piece for row in group for piece in row], False


def _blocks(run: Sequence[Line]) -> list[_Rows]:
    """Return the rows of a run, those of each column apart."""
    blocks: list[_Rows] = []
    for piece in run:
        last = blocks[-1][-1][-1] if blocks else None
        step = last.base - piece.base if last is not None else 0.0
        if last is None or not -_LEVEL < step / piece.size < _FARTHEST or (
                abs(step) < _LEVEL * piece.size and piece.left < last.right - piece.size):
            blocks.append([[piece]])
        elif step < _LEVEL * piece.size:
            blocks[-1][-1].append(piece)
        else:
            blocks[-1].append([piece])
    return blocks


def _without_columns_of_numbers(blocks: Sequence[_Rows], seen: Typeface) -> Iterator[_Rows]:
    """Yield blocks but for those that count the lines of the block before or behind them."""
    for at, rows in enumerate(blocks):
        beside = [row[0].base for other in (*blocks[max(0, at - 1) : at], *blocks[at + 1 : at + 2]) for row in other]
        numbers = [int(row[0].text) for row in rows if _NUMBER.match(row[0].text) and len(row) == 1]
        level = sum(any(abs(row[0].base - base) < _LEVEL * row[0].size for base in beside) for row in rows)
        if len(numbers) < max(2, len(rows)) or numbers != sorted(numbers) or level < 0.8 * len(rows):
            yield rows
        else:
            seen.numbers += len(numbers)


def _without_numbers(rows: _Rows) -> tuple[_Rows, int]:
    """Return the rows of a listing without the numbers that count them, if they do, and how many these were."""
    found = [_COUNTED.match(row[0].text) for row in rows]
    numbers = [int(match[1]) for match in found if match]
    apart = not any(row[0].pitch for row, match in zip(rows, found, strict=True) if match)  # in type of their own
    each = len(numbers) == len(rows) and all(two - one == 1 for one, two in pairwise(numbers))
    if len(numbers) < 3 or numbers != sorted(set(numbers)) or not (apart or each):
        return rows, 0
    kept: _Rows = []
    for row, match in zip(rows, found, strict=True):
        first, rest = row[0], row[1:]
        if match and match.end() < len(first.text):
            rest = [replace(first, text=first.text[match.end() :], left=first.left + match.end() * first.pitch), *rest]
        kept.append(rest if match else row)
    return [row for row in kept if row], len(numbers)


def _goes_on(before: Sequence[Line], rows: _Rows) -> bool:
    """Say whether a block is the end of a line above it that breaks off inside of a name or an address, or a table's
    cell."""
    if not before:
        return False
    above, first = before[0], rows[0][0]
    if abs(above.base - first.base) < _LEVEL * first.size:
        return len(rows) < 3 and above.right < first.left
    room = (len(first.text.split(None, 1)[0]) + 1) * (first.pitch or first.size / 2)
    return (0 < above.base - first.base < 1.4 * first.size and abs(above.left - first.left) < 1
            and not SENTENCE_END.search(above.text) and above.right + room > max(row[-1].right for row in rows))


def _groups(rows: _Rows) -> list[_Rows]:
    """Return rows by the blank lines between them."""
    usual = _usual([row[0] for row in rows])
    groups = [rows[:1]]
    for above, row in pairwise(rows):
        if above[0].base - row[0].base > _BLANK * usual:
            groups.append([])
        groups[-1].append(row)
    return groups


def _usual(lines: Sequence[Line]) -> float:
    """Return the step from a line to the next where no blank one stands between."""
    steps = (above.base - below.base for above, below in pairwise(lines))
    return min((step for step in steps if step > _TIGHTEST * lines[0].size), default=lines[0].size)


def _text(row: Sequence[Line], origin: float) -> str:
    """Return what stands on a row, each piece in its column. origin: the left end of the first column, in points."""
    pitch = next((piece.pitch for piece in row if piece.pitch), row[0].size / 2)
    text = ""
    for piece in row:
        column = round((piece.left - origin) / pitch)
        text += " " * max(column - len(text), bool(text)) + piece.text
    return text.replace(HYPHEN, "-")


def _line(row: Sequence[Line]) -> Line:
    first = next((piece for piece in row if piece.pitch), row[0])
    return replace(first, text=_text(row, row[0].left), left=row[0].left, right=row[-1].right,
                   pitch=first.pitch or first.size / 2, row=True, code=True)


def listing(lines: Sequence[Line], origin: float) -> str:
    """Return the lines of a listing, with their indentation and the blank lines between them."""
    usual = _usual(lines)
    text = ""
    for at, line in enumerate(lines):
        blank = at > 0 and lines[at - 1].base - line.base > _BLANK * usual
        text += "\n" * (bool(text) + blank) + " " * round((line.left - origin) / line.pitch) + line.text
    return text
