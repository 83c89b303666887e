"""Tables that a plain text draws with bars, with rules or with blanks."""

from __future__ import annotations

import re
from collections.abc import Sequence

_MOST_LINES = 500
_RULE = frozenset(" |+=:-")
_DIAGRAM = re.compile(r"(?:\+-){4}")
_COLUMNS = re.compile(r"[=-]{2,}")
_GAP = re.compile(r" {2,}")
_LEADER = re.compile(r"(?:(?<!\s)\s++)?(?:\.\s?){4,}\s*")


def table_rows(lines: Sequence[str]) -> list[list[str]]:
    """The cells of each row, the header first; [] for lines that are no table."""
    if not 2 <= len(lines) <= _MOST_LINES or any(_DIAGRAM.search(line) for line in lines):
        return []
    return _barred(lines) or _ruled(lines) or _aligned(lines)


def _barred(lines: Sequence[str]) -> list[list[str]]:
    """| a | b |, with rules between rows of more than one line, if it has any."""
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
    """Columns below a rule such as "=====  ===="; a row whose first column is empty goes on with the one above."""
    rule = next((line for line in lines if _is_rule(line) and len(_COLUMNS.findall(line)) > 1), "")
    if not rule:
        return []
    starts = [found.start() for found in _COLUMNS.finditer(rule)]
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
    """Lines with the same number of cells, apart by two blanks or more, whose last cells begin or end below each
    other; dots that lead to a page number are no cell."""
    rows = [_GAP.split(_LEADER.sub("  ", line.strip())) for line in lines]
    if len(lines) < 3 or len(rows[0]) < 2 or any(len(row) != len(rows[0]) for row in rows):
        return []
    ends = {len(line) for line in lines}
    starts = {len(line) - len(row[-1]) for line, row in zip(lines, rows, strict=True)}
    return rows if len(ends) == 1 or len(starts) == 1 else []


def _is_rule(line: str) -> bool:
    return _RULE.issuperset(line) and ("--" in line or "==" in line)


def _merged(row: Sequence[str], more: Sequence[str]) -> list[str]:
    return [f"{cell} {rest}".strip() for cell, rest in zip(row, more, strict=True)]
