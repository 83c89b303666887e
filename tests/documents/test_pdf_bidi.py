"""Lines of Hebrew and Arabic in PDFs come in the order of reading, however the file keeps them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.documents.test_print import Sheet, as_seen, width
from triforce_core.documents import read_document

HEBREW = ("המגדלור נבנה בשנת 1905 (ליד הנמל הישן) והוא", "דולק עד היום. החברה Wick Lamps Ltd סיפקה שמן",
          "במחיר של 84.50 לחבית, וב-12/05/1907 נשלח הדוח.")
ARABIC = ("بني المنار سنة 1905 على الساحل [قرب المرفأ القديم]", "وهو يضيء حتى اليوم. زودت شركة Wick Lamps المنارة",
          "بالزيت؛ وفي عام ١٩٠٦ ارتفع السعر إلى ٩٥٫٠٦ دينار.")
ENGLISH = "Every evening the keeper went up the stairs."
MIRRORED = str.maketrans("()[]", ")(][")


def drawn(line: str) -> str:
    """Return a line as it stands on paper from left to right, its brackets and its words in Latin letters, too."""
    seen = as_seen(line).translate(MIRRORED)
    for words in ("Wick Lamps Ltd", "Wick Lamps", "12/05/1907", "84.50", "12.5", "٩٥٫٠٦"):
        seen = seen.replace(as_seen(words), words)
    return seen


def visual(sheet: Sheet, y: float, line: str) -> None:
    sheet.line(540 - sum(map(width, line)) * 11 / 1000, y, drawn(line))


def backwards(sheet: Sheet, y: float, line: str) -> None:
    """Draw the letter that is read first in its place, then each to its left, and no blanks."""
    seen = drawn(line)[::-1]
    sheet._glyphs.update(dict.fromkeys(seen))
    shown, back = "", 0
    for letter in seen:
        back += width(letter)
        if letter != " ":
            shown += f" {back} <{sheet._code(letter):04x}>"
            back = width(letter)
    sheet._drawn.append(f"BT /F1 11 Tf 540 {y} Td [{shown}] TJ ET".encode())


def forms(sheet: Sheet, y: float, line: str) -> None:
    """Draw letters in the forms that they have at the end of a word, as old Arabic fonts keep them."""
    shown = line.translate({ord("ا"): "\ufe8e", ord("ل"): "\ufede", ord("م"): "\ufee2", ord("و"): "\ufeee"})
    visual(sheet, y, shown)


@pytest.mark.parametrize("paragraph", [HEBREW, ARABIC], ids=["hebrew", "arabic"])
@pytest.mark.parametrize("draw", [visual, backwards, forms])
def test_a_paragraph_is_whole_in_the_order_of_reading(tmp_path: Path, paragraph, draw) -> None:
    sheet = Sheet()
    for number, line in enumerate(paragraph):
        draw(sheet, 700 - 14 * number, line)
    (tmp_path / "a.pdf").write_bytes(sheet.bytes())
    assert read_document(tmp_path / "a.pdf").pages[0].text == " ".join(paragraph)


def test_paragraphs_of_both_directions_on_one_page(tmp_path: Path) -> None:
    sheet = Sheet()
    sheet.line(72, 740, ENGLISH)
    for number, line in enumerate(HEBREW):
        visual(sheet, 700 - 14 * number, line)
    sheet.line(72, 640, f"The word {as_seen('מגדלור')} means lighthouse.")
    (tmp_path / "a.pdf").write_bytes(sheet.bytes())
    assert read_document(tmp_path / "a.pdf").pages[0].text == "\n\n".join(
        [ENGLISH, " ".join(HEBREW), "The word מגדלור means lighthouse."])


def test_columns_are_read_from_the_right(tmp_path: Path) -> None:
    sheet = Sheet()
    left = ["הוא ירד במדרגות כל בוקר.", "ואז כתב ביומן של התחנה.", "כמה שמן נשרף בלילה הזה."] * 2
    right = ["שומר המגדלור הזקן עלה.", "במדרגות והדליק עששית.", "והאיר את כל הים הגדול."] * 2
    for number, lines in enumerate(zip(left, right, strict=True)):
        for at, line in zip((280, 540), lines, strict=True):  # the file has them as they stand, from left to right
            sheet.line(at - sum(map(width, line)) * 11 / 1000, 700 - 14 * number, drawn(line))
    (tmp_path / "a.pdf").write_bytes(sheet.bytes())
    text = read_document(tmp_path / "a.pdf").pages[0].text
    found = [text.index(line) for line in (right[0], right[1], left[0], left[1])]
    assert found == sorted(found)


def test_a_table_has_its_first_column_at_the_right(tmp_path: Path) -> None:
    sheet = Sheet()
    rows = [("חודש", "שמן", "שומר"), ("מאי", "84.50", "אלדו"), ("יוני", "12.5", "רות")]
    for number, row in enumerate(rows):
        for x, cell in zip((540, 420, 300), row, strict=True):
            sheet.line(x - sum(map(width, cell)) * 11 / 1000, 700 - 15 * number, drawn(cell))
    (tmp_path / "a.pdf").write_bytes(sheet.bytes())
    assert read_document(tmp_path / "a.pdf").pages[0].text == "\n".join(" | ".join(row) for row in rows)
