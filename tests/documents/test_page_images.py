"""Pages drawn in a child process: right places, bounded, and a hostile file ends the child, not the app."""

from __future__ import annotations

import base64
import io
import threading
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


def test_a_file_that_hangs_holds_nobody_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Asked for twice at once, it takes one child, not two."""
    asked, go_on, started = threading.Semaphore(0), threading.Event(), []

    class Scripted:
        def __init__(self, module: str) -> None:
            self.slow = False

        def ask(self, request, last=True) -> None:
            if "path" in request:
                started.append(request["path"])
                self.slow = "slow" in request["path"]

        def next(self, timeout: float):
            if self.slow:
                asked.release()
                go_on.wait(10)
            return {"png": base64.b64encode(b"\x89PNG").decode()}

        def close(self) -> None:
            pass

    monkeypatch.setattr(page_images, "ChildProcess", Scripted)
    images, drawn = PageImages(), []
    slow = [threading.Thread(target=images.picture, args=(tmp_path / "slow.pdf", page, 100)) for page in (1, 2)]
    for thread in slow:
        thread.start()
    assert asked.acquire(timeout=10)
    quick = threading.Thread(target=lambda: drawn.append(images.picture(tmp_path / "quick.pdf", 1, 100)))
    quick.start()
    quick.join(5)
    assert drawn == [b"\x89PNG"]
    go_on.set()
    for thread in slow:
        thread.join(10)
    assert sorted(Path(path).name for path in started) == ["quick.pdf", "slow.pdf"]


@pytest.mark.parametrize("answer", [
    {}, {"error": "PdfiumError"}, {"width": 1, "height": 1, "text": "ab", "boxes": [None]},
    {"width": "x", "height": 1, "text": "", "boxes": []}, {"width": 1, "height": 1, "text": "a", "boxes": [[1, 2]]},
    {"width": -1, "height": 1, "text": "", "boxes": []}])
def test_a_childs_answer_is_checked(answer) -> None:
    assert page_images._layout(answer) is None
