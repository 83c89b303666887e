"""Marks of notes that a PDF draws apart from their line, and lines of forms that are no paragraph."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.documents.test_pdf import WORDS, drawn, read, write

ACT, REST = "The Lighthouse Keepers Act (LKA)", "was signed into law by"
BELOW = ["President Pavone on the ninth of June, 1911. The act has two parts, and", "each of them deals with lamps."]
NOTE = "Book of Laws, page 304."


def mark(pdf: Any, x: float, y: float, size: float = 7) -> None:
    pdf.setFont("Times-Roman", size)
    pdf.drawString(x, y + 0.6 * size, "1")
    pdf.setFont("Times-Roman", 11)


def first_line(pdf: Any, kind: str) -> None:
    if kind == "one object":  # with a hole in it
        act = ACT.replace("(", r"\(").replace(")", r"\)")
        pdf._code.append(f"BT /F2 11 Tf 1 0 0 1 72 720 Tm [({act}) -700 ({REST})] TJ ET")
        return
    x = 72.0
    for part in [ACT, REST] if kind == "two objects" else f"{ACT} {REST}".split():
        pdf.drawString(x, 720, part)
        x += pdf.stringWidth(part, "Times-Roman", 11) + 5


@pytest.mark.parametrize("kind", ["one object", "two objects", "words"])
@pytest.mark.parametrize("when", ["before", "behind", "last"])
def test_a_mark_drawn_apart_from_its_line_cuts_no_sentence(tmp_path: Path, kind: str, when: str) -> None:
    def page(pdf: Any) -> None:
        at = 72 + sum(pdf.stringWidth(word, "Times-Roman", 11) for word in ACT.split())
        at += (len(ACT.split()) - 1) * (5 if kind == "words" else 2.75)
        if when == "before":
            mark(pdf, at, 720)
        first_line(pdf, kind)
        if when == "behind":
            mark(pdf, at, 720)
        write(pdf, BELOW, y=706)
        mark(pdf, 72, 100, 5)
        pdf.setFont("Times-Roman", 9)
        pdf.drawString(77, 100, NOTE)
        if when == "last":
            mark(pdf, at, 720)

    (text,), _, _ = read(tmp_path, drawn(page))
    assert text == f"{ACT} {REST} {' '.join(BELOW)}\n\n[1] {NOTE}"


def test_an_answer_far_below_a_question_stands_alone(tmp_path: Path) -> None:
    def page(pdf: Any) -> None:
        write(pdf, ["Which of these keepers was it who", "never once let the lamp go out and"], step=16)
        pdf.drawString(72, 90, "Answer: the third")

    (text,), _, _ = read(tmp_path, drawn(page))
    assert text.endswith("lamp go out and\n\nAnswer: the third")


def test_fields_of_a_form_are_lines_of_their_own(tmp_path: Path) -> None:
    lines = ["Payslip of the second month", "Gross pay: 3034.00", "Taken away: 206.50", "Hours: 4", "Net pay: 2828.50"]
    (text,), _, _ = read(tmp_path, drawn(lambda pdf: write(pdf, lines)))
    assert text.split("\n\n") == lines


def test_a_sentence_with_a_colon_goes_on(tmp_path: Path) -> None:
    lines = ["The keeper had one rule that he never broke in all the years at the",
             "Harbour: the lamp had to burn before the sun had set, and it had to", "burn well: that was all."]
    (text,), _, _ = read(tmp_path, drawn(lambda pdf: write(pdf, lines)))
    assert text == " ".join(lines)


def test_bullets_that_are_drawn_divide_items(tmp_path: Path) -> None:
    items = ["ships without a lamp,", "mules that refuse to walk past the chapel,", "gulls of every kind."]

    def page(pdf: Any) -> None:
        pdf.drawString(72, 740, "These are excluded:")
        write(pdf, items, x=100)
        for number in range(3):
            pdf.circle(90, 723.5 - 14 * number, 1.9, stroke=0, fill=1)

    (text,), _, _ = read(tmp_path, drawn(page))
    assert text.split("\n") == ["These are excluded:", "", *(f"• {item}" for item in items)]


def test_two_marks_stand_in_one_object_with_holes_for_them(tmp_path: Path) -> None:
    def page(pdf: Any) -> None:
        pdf._code.append("BT /F2 11 Tf 1 0 0 1 72 720 Tm [(The lamps) -700 (were lit) -700 (and kept so,)] TJ ET")
        write(pdf, ["which nobody had seen before that day, as they say in the harbour town."], y=706)
        for before, gaps in ("The lamps", 0), ("The lampswere lit", 1):
            mark(pdf, 73.5 + 7.7 * gaps + pdf.stringWidth(before, "Times-Roman", 11), 720)
        pdf.setFont("Times-Roman", 8)
        pdf.drawString(72, 90, f"1 {NOTE}")

    (text,), _, _ = read(tmp_path, drawn(page))
    assert text.startswith("The lamps were lit and kept so, which nobody") and text.endswith(f"\n\n[1] {NOTE}")


def test_running_heads_that_name_the_chapter_are_no_sentences(tmp_path: Path) -> None:
    def page(number: int) -> Callable[[Any], None]:
        def draw(pdf: Any) -> None:
            pdf.drawString(72, 750, f"Chapter {number // 2}: Of {WORDS[number // 2]}s and what they do")
            pdf.drawRightString(540, 750, str(number + 4))
            write(pdf, [f"{number} keepers saw the {WORDS[-number]}, but nobody else did so then, as", "they say."])
            write(pdf, [" ".join(random.Random(number).choices(WORDS, k=9)) for _ in range(30)], y=680)
        return draw

    texts, _, raw = read(tmp_path, drawn(*map(page, range(1, 9))))
    assert all(text.startswith(f"{number} keepers saw") for number, text in enumerate(texts, 1))
    assert raw.unread.running.total() == 8


def test_heads_that_change_are_apart_from_the_text_far_below(tmp_path: Path) -> None:
    def page(name: str) -> Callable[[Any], None]:
        def draw(pdf: Any) -> None:
            pdf.drawString(72, 770, f"CHAPTER 3. {name.upper()}S AND KEEPERS")
            write(pdf, [f"e{name} keepers saw it, but nobody else did so, as", *["they say, and so on, and on"] * 9])
        return draw

    texts, _, raw = read(tmp_path, drawn(*map(page, WORDS)))
    assert not raw.unread.running
    assert all(text.startswith(f"CHAPTER 3. {name.upper()}S AND KEEPERS\n\ne{name} keepers saw")
               for name, text in zip(WORDS, texts, strict=True))


@pytest.mark.parametrize("apart", [14, 60])
def test_what_stands_with_the_few_lines_of_a_page_does_not_run(tmp_path: Path, apart: float) -> None:
    def page(name: str) -> Callable[[Any], None]:
        def draw(pdf: Any) -> None:
            pdf.drawString(72, 720 + apart, "Certificate of attendance")
            write(pdf, [f"{name} took part in the course and", "did so to the end.", "The office, 3 May 1911"])
        return draw

    texts, _, raw = read(tmp_path, drawn(*map(page, WORDS)))
    assert raw.unread.running.total() == (10 if apart > 14 else 0)
    assert all(("Certificate" in text) == (apart == 14) and "The office" in text for text in texts)
