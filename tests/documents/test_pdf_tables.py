"""Tables of PDFs whose columns stand close: rows by the gaps that go on through them, also over pages."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.documents.test_pdf import WORDS, drawn, read, write
from triforce_core.evidence.passages import Role, units_of

FONT, SIZE = "Times-Roman", 11
Row = Sequence[str]
Place = Callable[[float, float, float], float]  # left and right end of a column, width of a cell -> its left end
LEFT: Place = lambda left, right, width: left  # noqa: E731
RIGHT: Place = lambda left, right, width: right - width  # noqa: E731
MIDDLE: Place = lambda left, right, width: (left + right - width) / 2  # noqa: E731


def made(columns: int, rows: int, seed: int, empty: float) -> list[Row]:
    """Return headings and rows: a name, then figures and words; some cells are empty."""
    rng = random.Random(seed)
    cells = [lambda: f"{rng.randrange(9_999):,}", lambda: f"{rng.choice(WORDS)} {rng.choice(WORDS)}"]
    body = [[rng.choice(WORDS).capitalize(), *("" if rng.random() < empty else cells[at % 2]() for at in
                                               range(columns - 1))] for _ in range(rows)]
    return [[rng.choice(WORDS).capitalize() for _ in range(columns)], *body]


def table(pdf: Any, rows: Sequence[Row], y: float, gap: float, places: Sequence[Place] = (LEFT,)) -> None:
    """Draw it with ``gap`` points between its columns, headings in the middle."""
    widths = [max(pdf.stringWidth(cell, FONT, SIZE) for cell in column) for column in zip(*rows, strict=True)]
    for number, row in enumerate(rows):
        x = 72.0
        for at, (cell, width) in enumerate(zip(row, widths, strict=True)):
            place = places[at % len(places)] if number else MIDDLE
            if cell:
                pdf.drawString(place(x, x + width, pdf.stringWidth(cell, FONT, SIZE)), y - 16 * number, cell)
            x += width + gap


def written(row: Row) -> str:
    return " | ".join(row).replace("  ", " ").rstrip("| ")


@pytest.mark.parametrize("columns", range(2, 8))
@pytest.mark.parametrize("gap", [6, 9, 14])
@pytest.mark.parametrize("places", [(LEFT,), (LEFT, RIGHT)])
def test_cells_that_stand_close_are_cells(tmp_path: Path, columns: int, gap: float, places: Sequence[Place]) -> None:
    rows = made(columns, 9, columns, 0.15)

    def page(pdf: Any) -> None:
        write(pdf, ["The whale that was seen from the island has been entered into this log by the captain."])
        table(pdf, rows, 680, gap, places)

    (text,), _, _ = read(tmp_path, drawn(page))
    assert text.split("\n\n", 1)[1].split("\n") == [written(row) for row in rows]


@pytest.mark.parametrize("repeated", [False, True])
def test_headings_hold_for_the_rows_on_the_next_pages(tmp_path: Path, repeated: bool) -> None:
    rows = made(4, 60, 5, 0.1)
    parts = [rows[:25], rows[25:45], rows[45:]]
    if repeated:
        parts[1:] = [[rows[0], *part] for part in parts[1:]]

    def page(part: Sequence[Row], number: int) -> Callable[[Any], None]:
        def draw(pdf: Any) -> None:
            table(pdf, part, 720, 30)
            pdf.drawCentredString(306, 40, f"Page {number}")
        return draw

    texts, _, _ = read(tmp_path, drawn(*(page(part, number) for number, part in enumerate(parts, 1))))
    lines = [line for text in texts for line in text.split("\n")]
    units = units_of("", lines, range(len(lines)))
    below = [unit for unit in units if lines[unit.sentences[0]] != written(rows[0])]
    assert [lines[unit.sentences[0]] for unit in below] == [written(row) for row in rows[1:]]
    assert {(unit.role, unit.lead_in) for unit in below} == {(Role.ROW, written(rows[0]))}


def test_words_of_a_paragraph_are_no_cells(tmp_path: Path) -> None:
    rng = random.Random(4)
    lines = [[rng.choice(WORDS) for _ in range(11)] for _ in range(30)]

    def page(pdf: Any) -> None:
        for number, words in enumerate(lines):  # each word an object of its own, the gaps of a justified line
            room = (468 - sum(pdf.stringWidth(word, FONT, SIZE) for word in words)) / (len(words) - 1)
            x = 72.0
            for word in words:
                pdf.drawString(x, 720 - 14 * number, word)
                x += pdf.stringWidth(word, FONT, SIZE) + room

    (text,), _, _ = read(tmp_path, drawn(page))
    assert text == " ".join(word for words in lines for word in words)


def test_names_in_the_margin_do_not_cut_the_sentences_beside_them(tmp_path: Path) -> None:
    lines = ["A keeper is sworn in by the captain of the harbour, who reads the rules to", "him and to those whom he",
             "brings along to the tower, and then writes his name into the long ledger of", "the island. A mule is not",
             "sworn in, but its name is written into the ledger of the stable by the man", "who feeds it."]

    def page(pdf: Any) -> None:
        write(pdf, lines, x=150)
        for number, name in ((0, "Keeper"), (2, "Ledger"), (4, "Stable")):
            pdf.drawRightString(140, 720 - 14 * number, name)

    (text,), _, _ = read(tmp_path, drawn(page))
    assert " ".join(lines) in text.replace("\n\n", " ")
