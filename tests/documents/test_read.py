"""Readable files of every format: the words, the pages, the warnings."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from tests.documents import hostile
from triforce_core.documents import Document, ReadCancelled, read, read_document
from triforce_core.errors import EncryptedDocumentError

PARAGRAPHS = [
    f"Chapter note {n}. The whale is the largest animal that has ever lived, and every sailor who has met one knows it "
    f"well enough to keep away from it; but in the year {1800 + n} a mate of the ship Ann rowed up to one. "
    "Nobody believed him when he came back, and he did not much care." for n in range(40)
]  # fmt: skip


def book_pdf(path: Path, align: str = "J", spacing: float = 2) -> None:
    """A book with a running header and page numbers, wrapped and justified."""
    from fpdf import FPDF

    class Book(FPDF):
        def header(self) -> None:
            self.set_font("Times", size=9)
            self.cell(0, 8, "A History of Whales", align="C")
            self.ln(10)

        def footer(self) -> None:
            self.set_y(-15)
            self.set_font("Times", size=9)
            self.cell(0, 8, f"- {self.page_no()} -", align="C")

    book = Book()
    book.set_auto_page_break(True, 20)
    book.set_title("A History of Whales")
    book.add_page()
    for paragraph in PARAGRAPHS:
        book.set_font("Times", size=11)
        book.multi_cell(0, 5.2, paragraph, align=align)
        book.ln(spacing)
    book.output(str(path))


@pytest.mark.parametrize("reader", ["pypdfium2", "pypdf"])
def test_pdf_paragraphs_without_headers(tmp_path: Path, reader: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from triforce_core.documents import read

    monkeypatch.setattr(read, "_PDF_READERS", (reader,))
    book_pdf(tmp_path / "book.pdf")
    seen: list[tuple[int, int]] = []
    document = read_document(tmp_path / "book.pdf", progress=lambda done, total: seen.append((done, total)))
    assert document.reader.startswith(reader) and document.title == "A History of Whales" and not document.warnings
    text = "\n".join(page.text for page in document.pages)
    assert "A History of Whales" not in text and "- 2 -" not in text
    assert [page.label for page in document.pages] == [str(n + 1) for n in range(len(document.pages))]
    assert len(document.pages) > 1 and seen[-1] == (len(document.pages),) * 2
    whole = [paragraph for paragraph in PARAGRAPHS if paragraph in text]
    if reader == "pypdfium2":
        assert len(whole) >= len(PARAGRAPHS) - len(document.pages)  # those cut by a page break
        assert all(f"\n\n{paragraph}" in text or text.startswith(paragraph) for paragraph in whole[2:5])
    assert "".join(text.split()) == "".join("".join(PARAGRAPHS).split())


def test_a_file_that_only_the_second_reader_reads_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = read._Attempt._run

    def broken(attempt: Any, reader: str, skip: set[int]) -> Document:
        if reader == "pypdfium2":
            attempt.kind = "pdf"
            raise read._Crashed(None)
        return run(attempt, reader, skip)

    monkeypatch.setattr(read._Attempt, "_run", broken)
    book_pdf(tmp_path / "a.pdf")
    [warning] = read_document(tmp_path / "a.pdf").warnings
    assert "second reader" in warning


def test_the_same_file_gives_the_same_document(tmp_path: Path) -> None:
    book_pdf(tmp_path / "book.pdf")
    assert read_document(tmp_path / "book.pdf") == read_document(str(tmp_path / "book.pdf"))


def test_pdf_password_labels_and_hyphens(tmp_path: Path) -> None:
    import io

    import pypdf

    (tmp_path / "e.pdf").write_bytes(hostile.encrypted_pdf("secret", "owner"))
    assert read_document(tmp_path / "e.pdf", "secret").pages[0].text == "The whale is a mammal."
    with pytest.raises(EncryptedDocumentError, match="not right"):
        read_document(tmp_path / "e.pdf", "wrong")
    writer = pypdf.PdfWriter(clone_from=io.BytesIO(hostile.scanned_pdf(4, with_text=4)))
    writer.set_page_label(0, 1, style="/r", start=3)
    writer.set_page_label(2, 3, style="/D", start=85)
    writer.write(tmp_path / "l.pdf")
    assert [page.label for page in read_document(tmp_path / "l.pdf").pages] == ["iii", "iv", "85", "86"]


def test_scanned_pages_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where nothing is installed that could read them."""
    monkeypatch.setattr(read, "recognisable", lambda: False)
    (tmp_path / "mixed.pdf").write_bytes(hostile.scanned_pdf(6, with_text=3))
    document = read_document(tmp_path / "mixed.pdf")
    assert [bool(page.text) for page in document.pages] == [False] * 3 + [True] * 3
    (warning,) = document.warnings
    assert warning.startswith("Pages 1-3 are scanned") and "ocrmypdf in.pdf out.pdf" in warning
    (tmp_path / "few.pdf").write_bytes(hostile.scanned_pdf(12, with_text=11))
    (warning,) = read_document(tmp_path / "few.pdf").warnings
    assert warning.startswith("Page 1 is a scanned picture without readable text") and "ocrmypdf" in warning


def test_text_in_sections_with_nothing_lost(tmp_path: Path) -> None:
    import textwrap

    wrapped = "\n\n".join(textwrap.fill(paragraph, 70) for paragraph in PARAGRAPHS) + "\n\nA list:\n- one\n- two\n"
    (tmp_path / "book.txt").write_text(wrapped, "utf-8")
    document = read_document(tmp_path / "book.txt")
    assert document.kind == "txt" and len(document.pages) > 2 and document.pages[0].label == "1"
    text = "\n\n".join(page.text for page in document.pages)
    assert all(paragraph in text for paragraph in PARAGRAPHS) and "- one\n- two" in text
    assert "".join(text.split()) == "".join(wrapped.split())
    assert all(len(page.text) < 6000 for page in document.pages)


def test_docx_pages_tables_lists(tmp_path: Path) -> None:
    broken = "<w:r><w:br w:type='page'/></w:r>"
    body = (
        hostile.paragraph("The whale") + hostile.paragraph("one", "<w:pPr><w:numPr/></w:pPr>")
        + hostile.paragraph("two", "<w:pPr><w:numPr/></w:pPr>") + f"<w:p>{broken}</w:p>"
        + hostile.paragraph("Page two", "<w:r><w:lastRenderedPageBreak/></w:r>")
        + f"<w:tbl><w:tr><w:tc>{hostile.paragraph('a')}</w:tc><w:tc>{hostile.paragraph('b')}</w:tc></w:tr></w:tbl>"
    )  # fmt: skip
    (tmp_path / "a.docx").write_bytes(hostile.docx(body))
    document = read_document(tmp_path / "a.docx")
    assert [page.label for page in document.pages] == ["1", "2"]
    assert document.pages[0].text == "The whale\n\n- one\n- two" and document.pages[1].text == "Page two\n\na | b"
    (tmp_path / "b.docx").write_bytes(hostile.docx("".join(map(hostile.paragraph, PARAGRAPHS))))
    sections = read_document(tmp_path / "b.docx").pages
    assert len(sections) > 2 and "\n\n".join(page.text for page in sections) == "\n\n".join(PARAGRAPHS)


def test_epub_chapters(tmp_path: Path) -> None:
    long = "<html><body><h1>Two</h1>" + "".join(f"<p>{paragraph}</p>" for paragraph in PARAGRAPHS) + "</body></html>"
    doctype = (
        "<?xml version='1.0'?><!DOCTYPE html><html><head><title>x</title></head><body><p>One&nbsp;whale</p></body>"
    )
    (tmp_path / "a.epub").write_bytes(hostile.epub({"one.xhtml": doctype, "two.xhtml": long}))
    document = read_document(tmp_path / "a.epub")
    assert document.title == "Whales" and document.pages[0].text == "One whale"
    labels = [page.label for page in document.pages]
    assert labels == [str(number) for number in range(1, len(labels) + 1)] and len(labels) > 2
    assert "".join(PARAGRAPHS[5].split()) in "".join(document.pages[1].text.split())


def test_cancel_is_quick(tmp_path: Path) -> None:
    (tmp_path / "slow.html").write_bytes(b"<div>" * 1_000_000)
    cancel = threading.Event()
    threading.Timer(0.4, cancel.set).start()
    begin = time.monotonic()
    with pytest.raises(ReadCancelled):
        read_document(tmp_path / "slow.html", cancel=cancel)
    assert time.monotonic() - begin < 2


def test_the_reader_starts_light() -> None:
    """No torch, numpy or gradio in the reader process, nor in what imports read_document."""
    code = (
        "import sys, triforce_core.documents, triforce_core.documents.reader_process;"
        "print([m for m in ('torch', 'numpy', 'gradio', 'transformers') if m in sys.modules])"
    )
    root = Path(__file__).parents[2]
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=root)
    assert out.stdout.strip() == "[]"
