"""Small documents, and a quick reader for them, so that the page's tests need no child process per file."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from triforce_core import Document, EncryptedDocumentError, Page, read_document

if TYPE_CHECKING:  # what the page needs may be missing where only other tests run: see tests/conftest.py
    from ui.app.runs import Run
    from ui.app.services import Services
    from ui.app.tab_view import TabView

PASSWORD = "open sesame"
SENTENCE = "The lighthouse keeper of {place} counted {n} ships before the storm reached the northern harbour."


def make_document(pages: int = 6, title: str = "The keeper", words: int = 60) -> Document:
    """A document whose every page holds different sentences."""
    texts = [" ".join(SENTENCE.format(place=f"Ness {i}", n=i * 100 + j) for j in range(words // 14 + 1))
             for i in range(1, pages + 1)]
    return Document(title, "txt", tuple(Page(str(i), text) for i, text in enumerate(texts, 1)), "test")


def read_quickly(path: Path, password: str | None = None, *, progress=None, part=None, cancel=None) -> Document:
    """In place of ``read_document`` where a child process per file would only cost time: pages end at form feeds."""
    if path.read_bytes().startswith(b"%PDF"):
        return read_document(path, password, progress=progress, cancel=cancel)
    text = path.read_text(encoding="utf-8")
    if text.startswith("LOCKED") and password != PASSWORD:
        raise EncryptedDocumentError("The password is wrong" if password else "This file is protected")
    parts = text.split("\f")
    if progress:
        progress(len(parts), len(parts))
    return Document("", "txt", tuple(Page(str(i), part) for i, part in enumerate(parts, 1)), "quick")


def wait_for(condition: Callable[[], object], seconds: float = 10.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "waited too long"
        time.sleep(0.01)


def phase(services: Services, view: TabView) -> str:
    """Return where the tab's document stands, "" where there is none."""
    entry = services.library.get(view.document)
    return services.phase(entry) if entry else ""


def opened(services: Services, folder: Path, name: str = "a.txt", pages: int = 6, words: int = 60) -> TabView:
    """Return a tab with a document that stands in the cache."""
    from ui.app.tab_view import TabView

    view = TabView()
    services.add(view, [(write_book(folder, name, pages, words), name)])
    wait_for(lambda: phase(services, view) == "ready")
    return view


def asked(services: Services, view: TabView, question: str) -> Run:
    """Ask, and return the run once it has ended."""
    run = services.ask(view, question)
    wait_for(lambda: run.ended, 60.0)  # a real encoder may have to be loaded first
    return run


def write_pdf(folder: Path, name: str, pages: int = 4) -> Path:
    """The same sentences, set on small pages with a running head."""
    fpdf = pytest.importorskip("fpdf")
    pdf = fpdf.FPDF(unit="pt", format=(300, 400))
    pdf.set_auto_page_break(False)
    for page in make_document(pages, words=45).pages:
        pdf.add_page()
        pdf.set_font("times", size=11)
        pdf.set_xy(30, 20)
        pdf.cell(240, 12, f"The keeper  {page.label}")
        pdf.set_xy(30, 50)
        pdf.multi_cell(240, 14, page.text, align="L")
    path = folder / name
    pdf.set_title(path.stem)
    pdf.output(str(path))
    return path


def write_chapters(folder: Path, name: str, chapters: Sequence[tuple[str, int, int]], pages: int = 8) -> Path:
    """The same with an outline. chapters: title, level from 0, page from 1."""
    pypdf = pytest.importorskip("pypdf")
    path = write_pdf(folder, name, pages)
    writer = pypdf.PdfWriter(clone_from=path)
    above: dict[int, object] = {}
    for title, level, page in chapters:
        above[level] = writer.add_outline_item(title=title, page_number=page - 1, parent=above.get(level - 1))
    writer.write(path)
    return path


def write_book(folder: Path, name: str, pages: int = 6, words: int = 60) -> Path:
    path = folder / name
    path.write_text("\f".join(page.text for page in make_document(pages, words=words).pages), encoding="utf-8")
    return path
