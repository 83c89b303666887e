"""Pages drawn in a child process: right places, bounded, and a hostile file ends the child, not the app."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

from triforce_core import PageImages
from triforce_core.documents import page_images
from triforce_core.documents.page_process import MOST_PIXELS

pytest.importorskip("pypdfium2")
fpdf = pytest.importorskip("fpdf")
PIL = pytest.importorskip("PIL.Image")


def write_pdf(path: Path, *pages: str, size: tuple[float, float] = (200, 300), rotate: int = 0) -> Path:
    pdf = fpdf.FPDF(unit="pt", format=size)
    pdf.set_auto_page_break(False)
    for text in pages:
        pdf.add_page()
        pdf.set_font("helvetica", size=12)
        pdf.set_xy(20, 30)
        pdf.multi_cell(160, 16, text)
        if rotate:
            pdf.pages[pdf.page].page_rotation = rotate
    pdf.output(str(path))
    return path


@pytest.fixture
def images():
    made = PageImages(patience=10)
    yield made
    made.close()


def test_pictures_and_places(tmp_path: Path, images: PageImages) -> None:
    path = write_pdf(tmp_path / "a.pdf", "First page words", "The keeper counted\nforty ships")
    png = images.picture(path, 2, 400)
    assert png is not None and PIL.open(io.BytesIO(png)).size == (400, 600)
    assert images.picture(path, 2, 400) is png  # kept
    layout = images.layout(path, 2)
    assert layout is not None and (layout.width, layout.height) == (200, 300)
    assert layout.text.split() == ["The", "keeper", "counted", "forty", "ships"]
    first, last = layout.boxes[0], layout.boxes[len(layout.text) - 1]
    assert first is not None and last is not None
    assert 0.1 < first[0] < 0.13 and 0.09 < first[1] < first[3] < 0.17  # near (20, 30) of 200 x 300
    assert last[1] > first[1] and last[0] < 0.5
    assert layout.boxes[layout.text.index(" ")] is None


def test_a_picture_has_a_largest_size(tmp_path: Path, images: PageImages) -> None:
    path = write_pdf(tmp_path / "wide.pdf", "x", size=(14_000, 10_000))
    png = images.picture(path, 1, 8_000)
    assert png is not None
    width, height = PIL.open(io.BytesIO(png)).size
    assert width * height <= MOST_PIXELS * 1.01 and width < 8_000


def test_what_is_no_pdf_or_no_page_is_not_drawn(tmp_path: Path, images: PageImages) -> None:
    text = tmp_path / "b.txt"
    text.write_text("no PDF")
    path = write_pdf(tmp_path / "a.pdf", "Words")
    assert images.picture(text, 1, 100) is None and images.layout(text, 1) is None
    assert images.picture(path, 9, 100) is None and images.layout(path, 0) is None
    assert images.picture(path, 1, 100) is not None  # and the others still are


def test_a_child_that_dies_or_hangs_is_replaced_a_few_times_only(tmp_path: Path, monkeypatch) -> None:
    path = write_pdf(tmp_path / "a.pdf", "Words")
    started = []

    class Failing(page_images.ChildProcess):
        def __init__(self, module: str) -> None:
            started.append(module)
            super().__init__(module)

        def next(self, timeout):
            return None if len(started) % 2 else page_images.NOTHING

    monkeypatch.setattr(page_images, "ChildProcess", Failing)
    images = PageImages(patience=0.2)
    assert [images.picture(path, 1, 100) for _ in range(5)] == [None] * 5
    assert len(started) == page_images.MOST_FAILURES
    images.close()


@pytest.mark.parametrize("answer", [
    {}, {"error": "PdfiumError"}, {"width": 1, "height": 1, "text": "ab", "boxes": [None]},
    {"width": "x", "height": 1, "text": "", "boxes": []}, {"width": 1, "height": 1, "text": "a", "boxes": [[1, 2]]},
    {"width": -1, "height": 1, "text": "", "boxes": []}])
def test_a_childs_answer_is_checked(answer) -> None:
    assert page_images._layout(answer) is None
