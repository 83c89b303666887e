"""Listings in PDFs: lines of fixed pitch keep their lines and indentation, and paragraphs of fixed pitch are joined."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from .test_pdf import drawn, read, write

PROSE = ["The harbour master kept his accounts in a green ledger that nobody else was", "allowed to read, and every "
         "evening he wrote down the number of gulls upon the", "pier. On the ninth of June he counted four hundred."]
CODE = ["def keeper(x):", "    if x:", "        return x * 2    # twice", "", "    return None"]


def typed(pdf: Any, lines: list[str], x: float = 72, y: float = 600, step: float = 12, size: float = 10) -> None:
    pdf.setFont("Courier", size)
    for number, line in enumerate(lines):
        if line.strip():
            pdf.drawString(x, y - step * number, line)
    pdf.setFont("Times-Roman", 11)


@pytest.mark.parametrize("step", [12, 14])
def test_code_between_paragraphs_keeps_its_lines_and_indentation(tmp_path: Path, step: int) -> None:
    def page(pdf: Any) -> None:
        write(pdf, PROSE)
        typed(pdf, CODE, y=670, step=step)
        write(pdf, PROSE, y=590)

    (text,), _, _ = read(tmp_path, drawn(page))
    prose = " ".join(PROSE)
    assert text == "\n\n".join([prose, "\n".join(CODE), prose])


def test_blanks_that_are_only_gaps_and_line_numbers(tmp_path: Path) -> None:
    def page(pdf: Any) -> None:
        write(pdf, PROSE)
        for number, (indent, words) in enumerate([(0, "for (i = 0;"), (4, "i < 9; i++) {"), (8, "work(i);"), (0, "}")]):
            pdf.setFont("Times-Roman", 7)
            pdf.drawString(60, 600 - 12 * number, str(number + 9))
            typed(pdf, [words.split()[0]], x=90 + 6 * indent, y=600 - 12 * number)  # words one by one, no blanks
            typed(pdf, [" ".join(words.split()[1:])], x=96 + 6 * (indent + len(words.split()[0])), y=600 - 12 * number)

    (text,), _, raw = read(tmp_path, drawn(page))
    assert text.endswith("\n\nfor (i = 0;\n    i < 9; i++) {\n        work(i);\n}")
    assert raw.unread.sentences() == ["4 numbers of lines of code were left out."]


def test_code_in_two_columns_and_over_a_page_break(tmp_path: Path) -> None:
    def page(pdf: Any) -> None:
        for x in (60, 330):
            for number, line in enumerate(["The keeper of the light wrote it down in", "his ledger, as he did on every",
                                           "day of that long year at sea."]):
                pdf.drawString(x, 720 - 14 * number, line)
            typed(pdf, ["while True:", "    count()"], x=x, y=660)

    def after(pdf: Any) -> None:
        typed(pdf, ["class Lamp:", "    def light(self):"], y=80)

    def last(pdf: Any) -> None:
        typed(pdf, ["        self.on = True", "        return self"], x=72, y=720)

    pages, _, _ = read(tmp_path, drawn(page, after, last))
    assert pages[0].count("year at sea.\n\nwhile True:\n    count()") == 2
    assert pages[1:] == ["class Lamp:\n    def light(self):", "        self.on = True\n        return self"]


def test_paragraphs_of_fixed_pitch_are_joined_and_what_a_terminal_says_is_not(tmp_path: Path) -> None:
    shown = ["$ ls -l inputs", "-rw-r--r-- 1 root root  1004 code.pdf", "-rw-r--r-- 1 root root 10002 a.pdf",
             "drwxr-xr-x 2 root root  4096 b"]

    def page(pdf: Any) -> None:
        typed(pdf, PROSE, y=720)
        typed(pdf, shown, y=660)
        typed(pdf, PROSE, y=590)

    (text,), _, _ = read(tmp_path, drawn(page))
    prose = " ".join(PROSE)
    assert text == "\n\n".join([prose, "\n".join(shown), prose])


def test_a_name_in_fixed_pitch_that_fills_a_line_stays_in_its_paragraph(tmp_path: Path) -> None:
    def page(pdf: Any) -> None:
        write(pdf, ["The harbour master kept his accounts in the green ledger that he had called once"])
        typed(pdf, ["harbour_accounts_of_the_year_one_thousand_nine_hundred_and_one"], y=706)
        write(pdf, ["and nobody else was allowed to read it."], y=692)

    (text,), _, _ = read(tmp_path, drawn(page))
    assert "\n" not in text
