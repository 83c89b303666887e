"""Pages that are pictures: made here by drawing a page of text and spoiling the picture like a scanner."""

from __future__ import annotations

import io
import threading
from collections.abc import Sequence
from pathlib import Path

import pypdfium2 as pdfium
import pytest
from PIL import Image, ImageFilter

from tests.documents import hostile
from triforce_core.documents import read, read_document
from triforce_core.documents.ocr import _Box, reading_order, skew
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


def test_a_picture_without_words_says_so(tmp_path: Path) -> None:
    Image.new("L", (300, 200), 200).save(tmp_path / "grey.png")
    with pytest.raises(EmptyDocumentError, match=r"grey\.png has no text"):
        read_document(tmp_path / "grey.png")


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
    def box(left: float, top: float, width: float) -> _Box:
        return _Box(left, top, left + width, top + 20)

    heading, left, right = box(0, 0, 900), [box(0, y, 400) for y in range(40, 240, 25)], [
        box(450, y + 3, 430) for y in range(40, 240, 25)]
    lines = [heading, *(each for pair in zip(right, left, strict=True) for each in pair)]
    order = [lines[at] for at in reading_order(lines, [8] * len(lines))]
    assert order == [heading, *left, *right]
    cells = [*left, *right]
    rows = reading_order(cells, [1] * len(cells))
    assert [cells[at] for at in rows] == [each for pair in zip(left, right, strict=True) for each in pair]
