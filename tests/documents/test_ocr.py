"""Pages that are pictures: made here by drawing a page of text and spoiling the picture like a scanner."""

from __future__ import annotations

import io
import re
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pypdfium2 as pdfium
import pytest
import rapidocr
from fpdf import FPDF
from PIL import Image, ImageDraw, ImageFilter

from tests.documents import hostile
from triforce_core.documents import Document, read, read_document
from triforce_core.documents.ocr import skew
from triforce_core.documents.ocr_layout import Box, reading_order, spans_of
from triforce_core.documents.ocr_letters import Reader, UnknownLayerError
from triforce_core.errors import EmptyDocumentError, ScannedDocumentError

LINES = ["The ship Margaret left Tromso on 14 May with salt.", "Captain Ellen Voss had signed for 312 barrels in all.",
         "Nobody on the quay remembered a colder spring.", "On the third day the wind turned to the north east."]
TEXT = " ".join(LINES)


def printed(lines: Sequence[str] = LINES) -> bytes:
    return hostile.text_pdf(b") Tj 0 -20 Td (".join(line.encode("latin-1") for line in lines))


def scan(skewed: float = 0.0, lines: Sequence[str] = LINES) -> Image.Image:
    """A page in 150 dots an inch, askew and grey, its edges soft, as a JPEG of low quality."""
    page = pdfium.PdfDocument(printed(lines))[0].render(scale=150 / 72).to_pil().convert("L")
    page = page.rotate(skewed, Image.Resampling.BICUBIC, fillcolor=255).point(lambda level: 30 + level * 0.8)
    out = io.BytesIO()
    page.filter(ImageFilter.GaussianBlur(0.6)).save(out, "JPEG", quality=50)
    return Image.open(out).convert("L")


def with_scan(path: Path, picture: Image.Image) -> None:
    """A file of a page with text and one that is the picture."""
    import pypdf

    out = io.BytesIO()
    picture.save(out, "PDF", resolution=150)
    writer = pypdf.PdfWriter()
    writer.append(io.BytesIO(hostile.text_pdf(b"This page has its own letters, more than a few.")))
    writer.append(out)
    writer.write(path)


def test_a_scanned_page_among_others_is_read(tmp_path: Path) -> None:
    with_scan(tmp_path / "mixed.pdf", scan(2.0))
    steps: list[tuple[int, int]] = []
    document = read_document(tmp_path / "mixed.pdf", progress=lambda *step: steps.append(step))
    first, second = document.pages
    assert first.text == "This page has its own letters, more than a few." and not first.words
    assert second.text == TEXT
    assert [word.text for word in second.words] == TEXT.split()
    assert document.warnings == ("Page 2 is scanned: its text was recognised in the picture (OCR), and letters may be "
                                 "wrong.",)
    assert steps[-1] == (2, 2)
    page = pdfium.PdfDocument(printed())[0]
    for word in (second.words[1], second.words[-1]):  # where the printed page has them, turned by the skew
        found = page.get_textpage().search(word.text)
        left, bottom, _, top = page.get_textpage().get_charbox(found.get_next()[0])
        assert word.left == pytest.approx(left / 612, abs=0.03) and word.right > word.left
        assert word.top < 1 - (bottom + top) / 2 / 792 + 0.03 and word.bottom > 1 - (bottom + top) / 2 / 792 - 0.03


def coded(lines: Sequence[str], meaning: Mapping[str, str]) -> bytes:
    """A page whose letters mean what ``meaning`` says, whatever they look like."""
    codes = b"1 begincodespacerange <00><ff> endcodespacerange %d beginbfchar " % 95 + b" ".join(
        b"<%02x><%04x>" % (code, ord(meaning.get(chr(code), chr(code)))) for code in range(32, 127)) + b" endbfchar"
    text = b") Tj 0 -20 Td (".join(re.sub(rb"([\\()])", rb"\\\1", line.encode()) for line in lines)
    font = b"/Helvetica/ToUnicode 6 0 R>>"
    return hostile.text_pdf(text, more=[hostile.stream(codes)]).replace(b"/Helvetica>>", font)


@pytest.mark.parametrize("recognised", [True, False])
@pytest.mark.parametrize("kind", ["code", "chess", "shifted"])
def test_a_layer_that_looks_garbled_goes_only_for_a_better_one(
        tmp_path: Path, kind: str, recognised: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(read, "recognisable", lambda: recognised)
    names = [f"{one}{two}{three}pq" for one in "bcdfgh" for two in "kmn" for three in "stvw"]
    lines, meaning = {
        "code": ([f"mov {name}, {name}x ; cmp ptr" for name in names[:30]], {}),
        "chess": ([" ".join(f"{n}. Nf3 Qd5 Be2 Rc8" for n in range(k, k + 3)) for k in range(1, 30, 3)],
                  {piece: chr(0xE000 + at) for at, piece in enumerate("NQBRfdec")}),
        "shifted": (LINES * 4, {chr(code): chr(code - 29) for code in range(97, 123)}),
    }[kind]
    (tmp_path / "page.pdf").write_bytes(coded(lines, meaning))
    document = read_document(tmp_path / "page.pdf")
    text = " ".join(document.pages[0].text.split())
    layer = "".join(meaning.get(letter, letter) for letter in " ".join(lines))
    if kind == "shifted" and recognised:
        assert text == " ".join(LINES * 4)
    else:
        assert text == layer and not document.pages[0].words
        assert document.warnings[0].startswith("Page 1 may have wrong letters: they look garbled. ")
        assert ("Nothing better" if recognised else "pip install") in document.warnings[0]


def test_pictures_are_documents_however_they_lie(tmp_path: Path) -> None:
    upright = scan(-1.5)
    turned = [upright.rotate(quarters * 90, expand=True) for quarters in (1, 2, 3)]
    turned[0].save(tmp_path / "pages.tiff", save_all=True, append_images=turned[1:])
    document = read_document(tmp_path / "pages.tiff")
    assert [page.text for page in document.pages] == [TEXT] * 3 and document.kind == "picture"
    tops = [page.words[0].top for page in document.pages]  # in the picture as it is, not as it was turned
    assert tops[0] > 0.5 and tops[1] > 0.5 and tops[2] < 0.5
    for name in ("page.png", "page.jpg", "page.webp"):
        upright.crop((0, 0, 1275, 400)).save(tmp_path / name)
        assert read_document(tmp_path / name).pages[0].text == TEXT, name


def test_the_last_layer_finds_what_the_whole_network_does() -> None:
    onnxruntime = pytest.importorskip("onnxruntime")
    model = next((Path(str(rapidocr.__file__)).parent / "models").glob("*_rec_*.onnx")).read_bytes()
    line = np.asarray(scan().crop((140, 162, 780, 210)).convert("RGB"), np.float32).transpose(2, 0, 1)[None] / 127.5 - 1
    whole = onnxruntime.InferenceSession(model).run(None, {"x": line})[0]
    best = Reader(model, onnxruntime.InferenceSession)(line)
    assert (best.argmax(2) == whole.argmax(2)).all() and len(set(best.characters[0])) > 10
    first = (best.characters != 0) & (np.diff(best.characters, prepend=0) != 0)
    assert best.max(2)[first] == pytest.approx(whole.max(2)[first], abs=1e-4)
    with pytest.raises(UnknownLayerError):
        Reader(model.replace(b"Softmax", b"Sigmoid"), onnxruntime.InferenceSession)


def test_a_picture_without_words_says_so(tmp_path: Path) -> None:
    Image.new("L", (300, 200), 200).save(tmp_path / "grey.png")
    with pytest.raises(EmptyDocumentError, match=r"grey\.png has no text in it, only pictures"):
        read_document(tmp_path / "grey.png")
    (tmp_path / "blank.pdf").write_bytes(hostile.text_pdf(b""))
    with pytest.raises(EmptyDocumentError, match=r"blank\.pdf has no text in it: its pages are blank"):
        read_document(tmp_path / "blank.pdf")


def test_without_the_package_the_message_says_how_to_get_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(read, "recognisable", lambda: False)
    scan().save(tmp_path / "page.png")
    with pytest.raises(ScannedDocumentError, match=r"page 1 is scanned pictures.*pip install rapidocr"):
        read_document(tmp_path / "page.png")


def test_cancel_ends_it(tmp_path: Path) -> None:
    scan().save(tmp_path / "page.png")
    stop = threading.Event()
    steps: list[int] = []

    def progress(done: int, total: int) -> None:
        steps.append(done)
        if steps.count(0) == 2:  # the page is being recognised
            stop.set()

    with pytest.raises(read.ReadCancelled):
        read_document(tmp_path / "page.png", progress=progress, cancel=stop)


@pytest.mark.parametrize("degrees", [-3.0, -0.7, 0.0, 1.2, 3.0])
def test_skew_is_measured(degrees: float) -> None:
    assert skew(scan(-degrees)) == pytest.approx(degrees, abs=0.15)


def test_columns_of_text_are_read_one_after_the_other_and_tables_by_row() -> None:
    def box(left: float, top: float, width: float) -> Box:
        return Box(left, top, left + width, top + 20)

    heading, left, right = box(0, 0, 900), [box(0, y, 400) for y in range(40, 240, 25)], [
        box(450, y + 3, 430) for y in range(40, 240, 25)]
    lines = [heading, *(each for pair in zip(right, left, strict=True) for each in pair)]
    order = [lines[at] for at in reading_order(lines, ["word " * 8] * len(lines))]
    assert order == [heading, *left, *right]
    cells = [*left, *right]
    rows = reading_order(cells, ["word"] * len(cells))
    assert [cells[at] for at in rows] == [each for pair in zip(left, right, strict=True) for each in pair]


@pytest.mark.parametrize(("levels", "order"), [
    (["a1 b1 c1", "a2 b2 -", "- b3 -", "", "d1 e1 f1", "- e2 f2"], "a1 a2 b1 b2 b3 c1 d1 e1 e2 f1 f2"),
    (["a1 b1", "a2 -", "", "c1 d1", "c2 d2", "c3 -", "", "e1 f1", "e2 f2"], "a1 a2 b1 c1 c2 c3 d1 d2 e1 f1 e2 f2"),
    (["a1 b1 c1", "a2 b2 c2", "", "d1 e1 f1", "d2 e2 f2"], "a1 b1 c1 a2 b2 c2 d1 e1 f1 d2 e2 f2"),  # rows of one line
    (["a1 b1 c1", "a2 - -", "a3 b3 c3", "", "d1 e1 f1"], "a1 b1 c1 a2 a3 b3 c3 d1 e1 f1"),  # a2 is a heading
    (["a1 9 8", "a2 7 -", "", "d1 6 5"], "a1 9 8 a2 7 d1 6 5"),  # a figure is missing
    (["a1 b1 c1", "a2 b2 -"], "a1 b1 c1 a2 b2"),  # nothing says which steps are narrow
])
def test_cells_of_several_lines_are_read_whole(levels: list[str], order: str) -> None:
    texts, boxes, top = list[str](), list[Box](), 0
    for level in levels:
        for column, text in enumerate(level.split()):
            if text != "-":
                texts.append(text)
                boxes.append(Box(300 * column, top, 300 * column + 250, top + 24))
        top += 20 if level else 8
    assert [texts[at] for at in reading_order(boxes, texts)] == order.split()


def test_the_first_pages_come_while_others_are_read(tmp_path: Path) -> None:
    strip = scan().crop((0, 0, 1275, 300))
    strip.save(tmp_path / "pages.tiff", save_all=True, append_images=[strip] * 9)
    parts: list[Document] = []
    document = read_document(tmp_path / "pages.tiff", part=parts.append)
    assert parts and 4 <= len(parts[0].pages) < 10 and len(document.pages) == 10
    assert parts[0].pages == document.pages[: len(parts[0].pages)]


def test_lines_without_letters_are_left_out_and_counted(tmp_path: Path) -> None:
    page = scan()
    pen = ImageDraw.Draw(page)
    for y in range(800, 1400, 60):
        pen.line([(x, y + 8 * (x // 6 % 2)) for x in range(150, 1100, 6)], fill=40, width=2)
    page.save(tmp_path / "zigzag.png")
    document = read_document(tmp_path / "zigzag.png")
    assert LINES[3] in document.pages[0].text and "ww" not in document.pages[0].text
    assert any(re.fullmatch(r"\d+ lines of scans were left out: too unclear to be read\.", note)
               for note in document.notes), document.notes


def test_notes_at_the_foot_of_a_scan_are_notes(tmp_path: Path) -> None:
    """Their smaller type is measured by its ink, and the figure that refers to one leaves its word."""
    page = FPDF("P", "pt", "letter")
    page.c_margin = 0
    page.add_page()
    page.set_font("Times", size=12)
    for line in (*LINES, *LINES):
        page.cell(text=line)
        page.ln(15)
    page.cell(text="The quay was rebuilt in spring")
    page.set_font("Times", size=8)
    page.cell(text="7")
    page.set_font("Times", size=12)
    page.cell(text=" and sold.")
    page.ln(60)
    page.set_font("Times", size=9)
    page.cell(text="7 The deed of sale is lost, but a copy of it is kept by the town.")
    (tmp_path / "notes.pdf").write_bytes(bytes(page.output()))
    pdfium.PdfDocument(str(tmp_path / "notes.pdf"))[0].render(scale=150 / 72).to_pil().save(tmp_path / "notes.png")
    text = read_document(tmp_path / "notes.png").pages[0].text
    assert "rebuilt in spring and sold." in text
    assert text.endswith("[7] The deed of sale is lost, but a copy of it is kept by the town.")


def test_numbers_that_stand_apart_stay_with_their_lines(tmp_path: Path) -> None:
    """The ink of a few letters says little of their size."""
    words = "of the deed says that the keeper counted barrels of salt in the autumn of that year, and no ship left."
    page = FPDF("P", "pt", "letter")
    page.add_page()
    page.set_font("Times", size=9)
    for row, letter in enumerate("ABCDEFGHI"):
        page.text(72, 100 + 14 * row, f"{row + 1}.")
        page.text(110, 100 + 14 * row, f"{letter} copy {words}")
    pdfium.PdfDocument(bytes(page.output()))[0].render(scale=150 / 72).to_pil().save(tmp_path / "notes.png")
    text = read_document(tmp_path / "notes.png").pages[0].text
    assert re.findall(r"(\d)\. ([A-I]) copy", text) == [(str(at), "ABCDEFGHI"[at - 1]) for at in range(1, 10)]


def test_a_page_number_far_from_its_words_is_no_part_of_them() -> None:
    """They may be recognised as one; the gap is no part of how wide the letters are either."""
    page, words = FPDF("P", "pt", "letter"), "The Harbour Office of Skerry"
    page.add_page()
    page.set_font("Times", size=9)
    spans = {}
    for gap, y in ((2, 600), (12, 700)):
        page.text(250, y, words)
        page.text(250 + page.get_string_width(words) + gap, y, "7")
    grey = np.asarray(pdfium.PdfDocument(bytes(page.output()))[0].render(scale=2).to_pil().convert("L"))
    for gap, y in ((2, 600), (12, 700)):
        (spans[gap],) = spans_of([f"{words}7"], [Box(490, 2 * y - 14, 780, 2 * y + 5)], grey, 0.5)
    assert spans[2].text == f"{words}7" and spans[12].text == f"{words}  7"
    assert spans[12].size == pytest.approx(9, rel=0.15)
