"""PDF pages by the place of their words: notes, columns, tables, hyphens, forms; and what damage hides is said."""

from __future__ import annotations

import io
import random
import re
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from triforce_core.documents.cleanup import finish
from triforce_core.documents.limits import ReadLimits
from triforce_core.documents.readers.pdf import read_with_pdfium
from triforce_core.documents.readers.source import Raw, Source
from triforce_core.errors import DocumentError

canvas = pytest.importorskip("reportlab.pdfgen.canvas")
WORDS = "whale sailor harbour lantern anchor captain weather island timber compass".split()


def drawn(*pages: Callable[[Any], None], **options: Any) -> bytes:
    out = io.BytesIO()
    pdf = canvas.Canvas(out, pagesize=(612, 792), invariant=1, **options)
    for page in pages:
        pdf.setFont("Times-Roman", 11)
        page(pdf)
        pdf.showPage()
    pdf.save()
    return out.getvalue()


def read(folder: Path, data: bytes) -> tuple[list[str], list[str], Raw]:
    (folder / "a.pdf").write_bytes(data)
    raw = read_with_pdfium(Source(folder / "a.pdf", "a.pdf", ReadLimits()))
    pages, warnings = finish(raw, "a.pdf")
    return [text for _, text in pages], warnings, raw


def write(pdf: Any, lines: list[str], x: float = 72, y: float = 720, step: float = 14) -> None:
    for number, line in enumerate(lines):
        pdf.drawString(x, y - step * number, line)


def raised(pdf: Any, x: float, y: float, before: str, mark: str, after: str) -> None:
    pdf.drawString(x, y, before)
    x += pdf.stringWidth(before, "Times-Roman", 11)
    pdf.setFont("Times-Roman", 7)
    pdf.drawString(x, y + 4, mark)
    x += pdf.stringWidth(mark, "Times-Roman", 7)
    pdf.setFont("Times-Roman", 11)
    pdf.drawString(x, y, after)


def test_words_broken_at_line_ends_are_whole(tmp_path: Path) -> None:
    def page(pdf: Any) -> None:
        write(pdf, [
            "The cache is must-revalidate and the harbour of the whale is far away from home, says the cap-",
            "tain of the ship; every cache that he ever saw in his long life at sea was always must-",
            "revalidate, and the owner of the ship, who was a well-known man of Nantucket, was a well-",
            "known friend of Ac-",
        ])
        write(pdf, ["counts and of other whalers."], y=720 - 56)

    (text,), _, _ = read(tmp_path, drawn(page))
    assert "says the captain of the ship" in text and "always must-revalidate, and" in text
    assert "a well-known friend of Accounts and" in text and "\n" not in text


def test_marks_of_notes_leave_the_sentence_and_notes_stand_behind_it(tmp_path: Path) -> None:
    def page(pdf: Any) -> None:
        write(pdf, ["Every whale that was ever seen from the deck of this ship has been entered into the log."])
        raised(pdf, 72, 706, "It is set out in RFC 793", "4", " and nowhere else. It weighs 10")
        raised(pdf, 72, 692, "It weighs 10", "6", " grams on the 1")
        raised(pdf, 72, 678, "It was seen on the 1", "st", " of May in an area of 5 m")
        raised(pdf, 72, 664, "It has an area of 5 m", "2", " and 2")
        raised(pdf, 72, 650, "There are 2", "30", " of them. The end of it is here and the sentence runs on over the")
        pdf.setFont("Times-Roman", 8)
        write(pdf, ["4 The first of all notes. It has two sentences and it goes on and on", "over a second line."],
              y=100, step=10)

    def after(pdf: Any) -> None:
        write(pdf, ["break of the page, and ends here. Then another sentence follows, as it should be in a text."])

    (text, following), _, _ = read(tmp_path, drawn(page, after))
    assert "in RFC 793 and nowhere else." in text and "10^6 grams" in text and "the 1st of May" in text
    assert "5 m^2 and" in text and "2^30 of them" in text
    body, note = text.split("\n\n[4] ")
    assert note == "The first of all notes. It has two sentences and it goes on and on over a second line."
    assert body.endswith("runs on over the") and following.startswith("break of the page")


FIGURES = [  # "^" and "_" stand before what is set smaller, raised or lowered
    ("Einstein wrote E = mc|^2| in 1905.", "E = mc^2 in"), ("The area is (a + b)|^2| of it.", "(a + b)^2 of"),
    ("With sin|^2| x + cos|^2| x = 1 here.", "sin^2 x + cos^2 x"), ("The isotope |^14|C decays.", "isotope 14C decays"),
    ("About 3 x 10|^−|^5| g of it.", "10^−5 g"), ("Some H|_2|O and Ca|^2+| ions.", "H_2O and Ca^2+ ions"),
    ("The sum of x|_i|^2| is chi|^2|.", "x_i^2 is chi^2."),
    ("It took 3|^1|/|_2| hours, or x|^2|/2.", "3 1/2 hours, or x^2/2."),
    ("The speed is 12 m s|^-1|, and then", "12 m s^-1, and"),
    ("On the 3|^rd| of May, A|^n+1| grew.", "3rd of May, A^(n+1) grew")]


def figures(pdf: Any, lines: list[str], y: float = 720) -> None:
    for line in lines:
        x = 72.0
        for part in line.split("|"):
            size, rise = {"^": (7, 4), "_": (7, -3)}.get(part[:1], (11, 0))
            pdf.setFont("Times-Roman" if "−" not in part else "Symbol", size)
            words = part.lstrip("^_")
            pdf.drawString(x, y + rise, words)
            x += pdf.stringWidth(words, "Times-Roman", size)
        y -= 20


@pytest.mark.parametrize("line, wanted", FIGURES)
def test_raised_and_lowered_figures_stay(tmp_path: Path, line: str, wanted: str) -> None:
    (text,), _, _ = read(tmp_path, drawn(lambda pdf: figures(pdf, [line])))
    assert wanted in text


def test_a_raised_number_is_dropped_only_where_a_note_has_it(tmp_path: Path) -> None:
    def page(pdf: Any) -> None:
        figures(pdf, ["Einstein wrote E = mc|^2| in 1905, as the captain|^2| of the ship was told by him.",
                      "A claim without a note|^3| stands here, and another|^1,2| with two of them."])
        pdf.setFont("Times-Roman", 8)
        write(pdf, ["1 The first of all notes.", "2 The second of all notes."], y=100, step=12)

    (text,), _, _ = read(tmp_path, drawn(page))
    assert "E = mc^2 in 1905, as the captain of" in text and "a note^3 stands here, and another with two" in text
    assert text.endswith("[1] The first of all notes.\n\n[2] The second of all notes.")


def test_characters_of_two_halves_are_whole(tmp_path: Path) -> None:
    import pypdf
    from pypdf.generic import DecodedStreamObject, DictionaryObject, NameObject

    writer = pypdf.PdfWriter(clone_from=io.BytesIO(drawn(lambda pdf: pdf.drawString(72, 700, "a = b and then c"))))
    resources = writer.pages[0]["/Resources"].get_object()
    codes = DecodedStreamObject()
    codes.set_data(b"1 begincodespacerange <00> <ff> endcodespacerange 3 beginbfchar <61> <d835dc38> <62> <d83dde00> "
                   b"<63> <d842dfb7> endbfchar 1 beginbfrange <64> <7a> <0064> endbfrange")
    font = DictionaryObject({NameObject(key): value for key, value in {
        "/Type": NameObject("/Font"), "/Subtype": NameObject("/Type1"), "/BaseFont": NameObject("/Times-Roman"),
        "/ToUnicode": writer._add_object(codes)}.items()})
    for name in list(resources["/Font"].get_object()):
        resources["/Font"].get_object()[NameObject(name)] = font
    out = io.BytesIO()
    writer.write(out)
    (text,), _, _ = read(tmp_path, out.getvalue())
    assert text == "\U0001d438 = \U0001f600 \U0001d438nd then \U00020bb7"


def test_columns_are_read_one_after_the_other(tmp_path: Path) -> None:
    rng = random.Random(3)
    left = [" ".join(rng.choices(WORDS, k=6)) for _ in range(30)]
    right = [" ".join(rng.choices(WORDS, k=6)) for _ in range(30)]

    def row_by_row(pdf: Any) -> None:
        pdf.setFont("Times-Roman", 18)
        pdf.drawString(150, 760, "A Title Across Both Columns")
        pdf.setFont("Times-Roman", 11)
        for number, (one, two) in enumerate(zip(left, right, strict=True)):
            pdf.drawString(50, 720 - 14 * number, one)
            pdf.drawString(330, 720 - 14 * number, two)

    def column_by_column(pdf: Any) -> None:
        write(pdf, left, 50)
        write(pdf, right, 330)

    (first, second), _, raw = read(tmp_path, drawn(row_by_row, column_by_column))
    wanted = " ".join(left + right).split()
    assert first.startswith("A Title Across Both Columns\n\n") and [h.title for h in raw.headings] == [
        "A Title Across Both Columns"]
    assert first.split()[5:] == wanted and second.split() == wanted and " | " not in first + second


@pytest.mark.parametrize("step", [14, 24, 29, 34])
def test_lines_that_stand_far_apart_are_a_paragraph_all_the_same(tmp_path: Path, step: int) -> None:
    from reportlab.lib.utils import simpleSplit

    report = ("The first report about the harbour of Nantucket and about its ships was published in the year 2024 by "
              "the harbour's own office, which had asked all captains for what they knew of the whales at sea and of "
              "the men who hunted them, and it is still read in every school of the island.")
    lines = simpleSplit(report, "Times-Roman", 12, 420)

    def page(pdf: Any) -> None:
        write(pdf, lines, step=step)
        write(pdf, ["The second report came later; nobody on the island has read it."],
              y=720 - (len(lines) + 1) * step, step=step)

    (text,), _, _ = read(tmp_path, drawn(page))
    assert text.split("\n\n") == [report, "The second report came later; nobody on the island has read it."]


def test_a_tables_row_is_one_line(tmp_path: Path) -> None:
    from reportlab.lib.styles import ParagraphStyle
    from reportlab.platypus import Paragraph, SimpleDocTemplate, Table

    style = ParagraphStyle("x", fontName="Times-Roman", fontSize=9, leading=11)
    rows = [["Ship", "Length of the hull in metres at the waterline", "Year"], ["Ann", "31.5", "1812"],
            ["Essex", "26.7 as built, and 27.1 after she was lengthened in the yard", "1799"], ["Pequod", "35", "1840"]]
    out = io.BytesIO()
    before = Paragraph("These are the ships that sailed from Nantucket in the year of the great storm. " * 4, style)
    table = Table([[Paragraph(cell, style) for cell in row] for row in rows], colWidths=[80, 130, 60])
    SimpleDocTemplate(out, invariant=1).build([before, table, Paragraph("They all came home again. " * 9, style)])
    (text,), _, _ = read(tmp_path, out.getvalue())
    assert "\n".join(" | ".join(row) for row in rows) in text
    assert text.count("|") == 8 and text.startswith("These are") and text.endswith("home again.")


@pytest.mark.parametrize("right", [False, True])
def test_empty_cells_of_a_table_stay_empty(tmp_path: Path, right: bool) -> None:
    rows = [["", "Debit", "Credit", "Balance of account"], ["Opening", "", "", "1,200.00"],
            ["Lamp oil", "84.50", "", "9"],
            ["Harbour dues", "", "310.00", "1,425.50"], ["Rope", "4", "", ""], ["Tar", "46.20", "7.10", "1,379.30"]]

    def page(pdf: Any) -> None:
        for at, row in enumerate(rows):
            for x, cell in zip((72, 240, 330, 450), row, strict=True):
                (pdf.drawRightString if right and x > 72 else pdf.drawString)(x, 700 - 16 * at, cell)

    (text,), _, _ = read(tmp_path, drawn(page))
    assert text.split("\n") == ["| Debit | Credit | Balance of account", "Opening | | | 1,200.00",
                                "Lamp oil | 84.50 | | 9",
                                "Harbour dues | | 310.00 | 1,425.50", "Rope | 4", "Tar | 46.20 | 7.10 | 1,379.30"]


@pytest.mark.parametrize("short", [2, 3, 6])
@pytest.mark.parametrize("more", [0, 2])
def test_short_columns_and_a_longer_first_one(tmp_path: Path, short: int, more: int) -> None:
    rng = random.Random(5)
    left = [" ".join(rng.choices(WORDS, k=6)) for _ in range(short + more)]
    other = [" ".join(rng.choices(WORDS, k=6)) for _ in range(short)]

    def page(pdf: Any) -> None:
        for number, line in enumerate(left):
            pdf.drawString(50, 720 - 14 * number, line)
            if number < short:
                pdf.drawString(330, 720 - 14 * number, other[number])

    (text,), _, _ = read(tmp_path, drawn(page))
    assert text.split() == " ".join(left + other).split()


def test_two_rows_of_words_are_a_table_all_the_same(tmp_path: Path) -> None:
    def page(pdf: Any) -> None:
        for number, row in enumerate((["The name of the ship", "The port where she lay"],
                                      ["Essex of the whalers", "Nantucket in the north"])):
            for x, cell in zip((72, 300), row, strict=True):
                pdf.drawString(x, 700 - 16 * number, cell)

    (text,), _, _ = read(tmp_path, drawn(page))
    assert text == "The name of the ship | The port where she lay\nEssex of the whalers | Nantucket in the north"


def test_drop_caps_and_running_heads_of_two_sides(tmp_path: Path) -> None:
    rng = random.Random(1)

    def page(number: int) -> Callable[[Any], None]:
        def draw(pdf: Any) -> None:
            pdf.drawString(72, 760, f"{number}   MOBY DICK" if number % 2 else f"THE HARBOUR OF SAILORS   {number}")
            pdf.setFont("Times-Roman", 33)
            pdf.drawString(72, 698, "T")
            pdf.setFont("Times-Roman", 11)
            write(pdf, ["HE whale " + " ".join(rng.choices(WORDS, k=9)), " ".join(rng.choices(WORDS, k=9))], 94)
        return draw

    texts, _, _ = read(tmp_path, drawn(*map(page, range(1, 9))))
    assert all(text.startswith("THE whale ") for text in texts)
    assert not any("MOBY" in text or "HARBOUR" in text for text in texts)


@pytest.mark.parametrize("label", ["Question {}", "Payslip for month {} of 1911", "Task {}: 5 points", "7.{} Aufgabe"])
def test_what_counts_with_the_pages_without_being_their_number_stays(tmp_path: Path, label: str) -> None:
    rng = random.Random(2)

    def page(number: int) -> Callable[[Any], None]:
        def draw(pdf: Any) -> None:
            pdf.drawString(72, 740, label.format(number))
            write(pdf, [" ".join(rng.choices(WORDS, k=9)) for _ in range(5)], y=700)
            pdf.drawString(72, 60, "Harbour School, Nantucket")
            pdf.drawRightString(540, 60, f"Page {number}")
        return draw

    texts, _, raw = read(tmp_path, drawn(*map(page, range(1, 11))))
    assert all(text.startswith(label.format(number) + "\n") for number, text in enumerate(texts, 1))
    assert not any("Page" in text or "School" in text for text in texts)
    assert raw.unread.sentences() == ["10 running lines at the top or foot of pages were left out: "
                                      "“Harbour School, Nantucket Page …”."]


def test_a_line_that_repeats_in_the_middle_of_short_pages_is_text(tmp_path: Path) -> None:
    def page(number: int) -> Callable[[Any], None]:
        def draw(pdf: Any) -> None:
            pdf.drawString(72, 760, "The Harbour News")
            write(pdf, ["Mind the whale before you go ashore.", f"{WORDS[number]} and {WORDS[-number]}"], y=450)
            pdf.drawCentredString(306, 40, f"- {number} -")
        return draw

    texts, _, _ = read(tmp_path, drawn(*map(page, range(1, 7))))
    assert all(text.startswith("Mind the whale before you go ashore.") for text in texts)


@pytest.mark.parametrize(("turned", "rotation"), [(0, 90), (0, 270), (90, 0), (90, 90), (270, 0), (270, 90)])
def test_lines_of_a_turned_page_come_from_the_top_to_the_foot(tmp_path: Path, turned: int, rotation: int) -> None:
    lines = [" ".join(random.Random(n).choices(WORDS, k=9)) for n in range(8)]

    def page(pdf: Any) -> None:
        pdf.setPageRotation(rotation)
        pdf.translate(306, 396)
        pdf.rotate(turned)
        write(pdf, lines, x=-200, y=100)

    (text,), _, _ = read(tmp_path, drawn(page))
    assert text == " ".join(lines)


def test_headings_are_paragraphs_with_levels(tmp_path: Path) -> None:
    def page(pdf: Any) -> None:
        for y, size, font, line in ((720, 18, "Times-Bold", "Of Whales"), (690, 13, "Times-Bold", "Their Food")):
            pdf.setFont(font, size)
            pdf.drawString(72, y, line)
        pdf.setFont("Times-Roman", 11)
        write(pdf, ["A whale eats a great many small fish and other animals of the sea, day by day and",
                    "all through the night."], y=672)

    (text,), _, raw = read(tmp_path, drawn(page))
    assert text.startswith("Of Whales\n\nTheir Food\n\nA whale eats") and text.endswith("and all through the night.")
    assert [(heading.title, heading.level, heading.page) for heading in raw.headings] == [
        ("Of Whales", 1, 0), ("Their Food", 2, 0)]


def test_a_title_of_two_lines_is_one_heading_and_two_headings_are_two(tmp_path: Path) -> None:
    def page(pdf: Any) -> None:
        for y, line in ((720, "The Feeding of Whales in the Waters"), (693, "of the Southern Ocean"),
                        (600, "Their Food"), (573, "Their Young")):  # the last two had room beside each other
            pdf.setFont("Times-Bold", 22)
            pdf.drawString(72, y, line)
        pdf.setFont("Times-Roman", 11)
        lines = ["A whale eats a great many small fish and other animals of the sea, day by day and", "all night."]
        write(pdf, lines, y=670)
        write(pdf, lines, y=550)

    _, _, raw = read(tmp_path, drawn(page))
    assert [heading.title for heading in raw.headings] == [
        "The Feeding of Whales in the Waters of the Southern Ocean", "Their Food", "Their Young"]


def test_filled_fields_and_free_text_are_text(tmp_path: Path) -> None:
    import pypdf
    from pypdf.annotations import FreeText

    def page(pdf: Any) -> None:
        pdf.drawString(72, 700, "Family name:")
        pdf.acroForm.textfield(name="a", value="Coffin", x=150, y=695, width=200, height=18)
        pdf.drawString(72, 660, "The captain signs here and nowhere else on this page.")

    writer = pypdf.PdfWriter(clone_from=io.BytesIO(drawn(page)))
    writer.add_annotation(0, FreeText(text="Paid in full.", rect=(300, 300, 400, 330)))
    out = io.BytesIO()
    writer.write(out)
    (text,), _, _ = read(tmp_path, out.getvalue())
    assert "Family name: Coffin\n" in text and text.endswith("\nPaid in full.")


def test_hidden_text_is_left_out_and_counted(tmp_path: Path) -> None:
    import pypdf
    from pypdf.generic import RectangleObject

    def page(pdf: Any) -> None:
        write(pdf, ["The keeper of the light wrote every evening into the green ledger of the harbour."], y=700)
        pdf.drawString(72, 660, "Invisible order one.", mode=3)
        pdf.setFillGray(1)
        pdf.drawString(72, 620, "White order two.")
        pdf.setFillGray(0.2)
        pdf.rect(60, 570, 400, 30, fill=1)
        pdf.setFillGray(1)
        pdf.drawString(72, 580, "White words on a dark bar are seen.")
        pdf.drawString(72, 699, "White order over the ledger.")
        pdf.setFillGray(0)
        pdf.setFont("ZapfDingbats", 16)
        pdf.drawString(70, 496, "l")  # a disc
        pdf.setFont("Times-Roman", 7)
        pdf.setFillGray(1)
        pdf.drawString(75, 500, "9")
        pdf.setFillGray(0)
        pdf.setFont("Times-Roman", 11)
        pdf.drawString(92, 498, "is the number of the note.")
        pdf.drawString(72, 20, "Beside the page.")
        pdf.setFont("Times-Roman", 0.5)
        pdf.drawString(72, 540, "tiny order three")

    writer = pypdf.PdfWriter(clone_from=io.BytesIO(drawn(page)))
    writer.pages[0].cropbox = RectangleObject((50, 50, 562, 742))
    out = io.BytesIO()
    writer.write(out)
    (text,), _, raw = read(tmp_path, out.getvalue())
    assert "green ledger" in text and "White words on a dark bar are seen." in text
    assert "order" not in text and "Beside" not in text and "9" in text
    assert raw.unread.sentences() == ["17 words that the file hides were left out."]


def test_the_invisible_layer_of_a_scan_and_small_units_stay(tmp_path: Path) -> None:
    from PIL import Image
    from reportlab.lib.utils import ImageReader

    def scan(pdf: Any) -> None:
        pdf.drawImage(ImageReader(Image.new("RGB", (30, 40), "white")), 0, 60, 612, 732)
        pdf.drawString(72, 700, "The words of the scan that were read by another program.", mode=3)
        pdf.drawString(72, 30, "A stamp below it.")

    def scaled(pdf: Any) -> None:
        pdf.scale(50, 50)
        pdf.setFont("Times-Roman", 0.22)
        pdf.drawString(1, 10, "Words in units of fifty points each.")

    texts, _, raw = read(tmp_path, drawn(scan, scaled))
    assert "read by another program." in texts[0] and "A stamp" in texts[0] and "fifty points" in texts[1]
    assert raw.unread.hidden == 0


def test_a_page_that_inherits_its_paper_keeps_its_head(tmp_path: Path) -> None:
    from tests.documents.hostile import pdf, stream

    data = pdf([
        b"<</Type/Catalog/Pages 2 0 R>>", b"<</Type/Pages/Kids[3 0 R]/Count 1/MediaBox[0 0 595 842]>>",
        b"<</Type/Page/Parent 2 0 R/Contents 4 0 R/Resources<</Font<</F1 5 0 R>>>>>>",
        stream(b"BT /F1 11 Tf 72 815 Td (A head on A4.) Tj 0 -100 Td "
               b"(The keeper of the light wrote every evening into the ledger.) Tj ET"),
        b"<</Type/Font/Subtype/Type1/BaseFont/Helvetica>>"])
    (text,), _, raw = read(tmp_path, data)
    assert "A head on A4." in text and raw.unread.hidden == 0


def test_layers_that_are_off_are_left_out(tmp_path: Path) -> None:
    from tests.documents.hostile import pdf, stream

    content = (b"BT /F1 11 Tf 72 700 Td (The keeper wrote every evening.) Tj ET "
               b"/OC /On BDC BT /F1 11 Tf 72 650 Td (This layer is on.) Tj ET EMC "
               b"/OC /Off BDC BT /F1 11 Tf 72 600 Td (This layer is off.) Tj ET EMC")
    data = pdf([
        b"<</Type/Catalog/Pages 2 0 R/OCProperties<</OCGs[6 0 R 7 0 R]/D<</OFF[7 0 R]>>>>>>",
        b"<</Type/Pages/Kids[3 0 R]/Count 1>>",
        b"<</Type/Page/Parent 2 0 R/MediaBox[0 0 612 792]/Contents 4 0 R/Resources<</Font<</F1 5 0 R>>"
        b"/Properties<</On 6 0 R/Off 7 0 R>>>>>>", stream(content),
        b"<</Type/Font/Subtype/Type1/BaseFont/Helvetica>>", b"<</Type/OCG/Name(English)>>",
        b"<</Type/OCG/Name(Draft)>>"])
    (text,), _, raw = read(tmp_path, data)
    assert "layer is on" in text and "layer is off" not in text and raw.unread.hidden == 4


def test_damage_is_told_of_the_page_that_has_it(tmp_path: Path) -> None:
    data = bytearray(repacked(many_pages(8)))
    starts = [found.end() for found in re.finditer(rb"(?<!end)stream\r?\n", data)]
    largest = sorted(starts, key=lambda at: data.index(b"endstream", at) - at)[-8:]
    data[min(largest) + 300] ^= 0xFF
    _, warnings, _ = read(tmp_path, bytes(data))
    assert [re.sub("[0-9]+", "N", warning) for warning in warnings] == [
        "Page N is damaged: some of the text there may be missing or wrong."]


def test_a_broken_profile_or_an_attached_pdf_is_no_damage(tmp_path: Path) -> None:
    import pypdf
    from pypdf.generic import DecodedStreamObject, NameObject, NumberObject

    writer = pypdf.PdfWriter(clone_from=io.BytesIO(many_pages(2)))
    writer.add_attachment("inner.pdf", many_pages(1, pageCompression=0))
    profile = DecodedStreamObject()
    profile.set_data(b"no profile at all")
    profile[NameObject("/N")] = NumberObject(3)
    profile[NameObject("/Filter")] = NameObject("/FlateDecode")
    writer._add_object(profile)
    out = io.BytesIO()
    writer.write(out)
    _, warnings, _ = read(tmp_path, out.getvalue())
    assert warnings == []


@pytest.mark.parametrize("cover", [True, False])
def test_attached_files_are_named_and_a_portfolio_is_known(tmp_path: Path, cover: bool) -> None:
    import pypdf

    lines = ["For the best experience, open this PDF portfolio in Acrobat."] if cover else [" ".join(WORDS)] * 9
    writer = pypdf.PdfWriter(clone_from=io.BytesIO(drawn(lambda pdf: write(pdf, lines))))
    for name in ("accounts of 1911.csv", "ledger.pdf"):
        writer.add_attachment(name, b"a;b")
    out = io.BytesIO()
    writer.write(out)
    _, warnings, raw = read(tmp_path, out.getvalue())
    assert "2 attached files were not read: “accounts of 1911.csv”, “ledger.pdf”." in raw.unread.sentences()
    assert [("add them one by one" in warning) for warning in warnings] == [True] * cover


def test_packed_data_whose_end_is_not_marked_is_whole(tmp_path: Path) -> None:
    packer = zlib.compressobj()
    content = packer.compress(b"BT /F1 11 Tf 72 700 Td (The keeper) Tj ET") + packer.flush(zlib.Z_SYNC_FLUSH)
    data = drawn(lambda pdf: write(pdf, ["A line."]), pageCompression=0)
    stream = b"99 0 obj\n<</Length %d/Filter/FlateDecode>>\nstream\n%s\nendstream\nendobj\n" % (
        len(content), content)
    _, warnings, _ = read(tmp_path, data.replace(b"xref", stream + b"xref", 1))
    assert not warnings


def many_pages(pages: int = 6, **options: Any) -> bytes:
    rng = random.Random(7)

    def page(pdf: Any) -> None:
        write(pdf, [" ".join(f"word{rng.randrange(100_000)}" for _ in range(8)) for _ in range(30)])

    return drawn(*[page] * pages, **options)


def repacked(data: bytes) -> bytes:
    import pypdf

    out = io.BytesIO()
    pypdf.PdfWriter(clone_from=io.BytesIO(data)).write(out)
    return out.getvalue()


def test_pages_that_the_tree_hides_are_read(tmp_path: Path) -> None:
    data = many_pages(12)
    assert b"/Count 12" in data
    texts, _, _ = read(tmp_path, data.replace(b"/Count 12", b"/Count  1"))
    whole, warnings, _ = read(tmp_path, data)
    assert texts == whole and len(texts) == 12 and not warnings


@pytest.mark.parametrize(
    "options", [{"pageCompression": 0}, {"pageCompression": 1}, {}], ids=["plain", "ascii85", "flate"])
def test_text_that_a_flipped_bit_costs_is_never_lost_in_silence(tmp_path: Path, options: dict[str, Any]) -> None:
    data = many_pages(**options) if options else repacked(many_pages())
    texts, warnings, _ = read(tmp_path, data)
    words = set(re.findall(r"word\d+", " ".join(texts)))
    assert len(words) > 1300 and not warnings
    rng, lost = random.Random(1), 0
    for _ in range(40):
        damaged = bytearray(data)
        damaged[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
        try:
            texts, warnings, _ = read(tmp_path, bytes(damaged))
        except DocumentError:  # said as well
            continue
        if len(words - set(re.findall(r"word\d+", " ".join(texts)))) > 1:  # one bit may make one word another
            lost += 1
            assert warnings
    assert lost > 3


def test_files_that_are_pinned_to_a_page_are_named(tmp_path: Path) -> None:
    import pypdf
    from fpdf import FPDF

    (tmp_path / "ledger of 1911.csv").write_text("oil,wick")
    page = FPDF()
    page.add_page()
    page.set_font("Times", size=12)
    page.cell(text="The ledger is pinned to this page of the report.")
    page.file_attachment_annotation(tmp_path / "ledger of 1911.csv", 50, 50)
    writer = pypdf.PdfWriter(clone_from=io.BytesIO(bytes(page.output())))
    del writer.root_object["/Names"]  # where other files are attached to the document
    out = io.BytesIO()
    writer.write(out)
    _, _, raw = read(tmp_path, out.getvalue())
    assert "1 attached file was not read: “ledger of 1911.csv”." in raw.unread.sentences()
