"""Read tables of separated values: a line for each row, in which each value stands behind its column's heading."""

from __future__ import annotations

import csv
import io
from itertools import chain, repeat

from ..sections import SECTION
from .encodings import decode_file
from .plain_text import numbered
from .source import Raw, Source

_SNIFFED = 8_192  # characters in which the separator is looked for
_SEPARATORS = ",;\t|"


def read_table(source: Source) -> Raw:
    text, warnings = decode_file(source)
    csv.field_size_limit(source.limits.characters)
    try:
        separator = csv.Sniffer().sniff(text[:_SNIFFED], _SEPARATORS).delimiter
    except csv.Error:  # one column, or rows of unlike lengths
        separator = "\t" if source.path.suffix.lower() == ".tsv" else ","
    table = csv.reader(io.StringIO(text, newline=""), delimiter=separator)
    rows = ([" ".join(cell.split()) for cell in row] for row in table)
    filled = (row for row in rows if any(row))
    first = next(filled, [])
    titled = len(first) > 1 and all(first) and not any(any(map(str.isdigit, cell[:1])) for cell in first)
    lines = [] if titled or not first else [_line([], first)]
    lines += [_line(first if titled else [], row) for row in filled]
    pages: list[list[str]] = [[]]
    size = 0
    for line in lines or [_line([], first)]:
        if size > SECTION:
            pages.append([])
            size = 0
        pages[-1].append(line)
        size += len(line)
    return Raw("csv", "table-1", "", numbered(["\n".join(page) for page in pages]), warnings=warnings, laid_out=True)


def _line(headings: list[str], row: list[str]) -> str:
    """Return a row as "name: Aldo | town: Rome", without its empty cells; without headings, with all of them."""
    if not headings:
        return " | ".join(row).replace("  ", " ").strip()
    return " | ".join(f"{name}: {cell}" if name else cell
                      for name, cell in zip(chain(headings, repeat("")), row, strict=False) if cell)
