"""The language that a file names as its own, by every kind of file that does."""

from __future__ import annotations

from pathlib import Path

import pytest

from triforce_core.documents.read import read_document

from . import hostile


@pytest.mark.parametrize(("attribute", "tag"), [('lang="de-AT"', "de-AT"), ("", ""), ('lang="<b>x"', ""),
                                                ('xml:lang="fr"', "fr"), ('lang="klingonisch gar"', "")])
def test_html(tmp_path: Path, attribute: str, tag: str) -> None:
    path = tmp_path / "a.html"
    path.write_text(f"<html {attribute}><body><p lang='it'>Der Wal ist ein Tier.</p></body></html>")
    document = read_document(path)
    assert document.language == tag and document.select(1, 1).language == tag


def test_epub(tmp_path: Path) -> None:
    book = tmp_path / "a.epub"
    book.write_bytes(hostile.epub({"one.xhtml": "<p>The whale.</p>"}))
    assert read_document(book).language == ""
    book.write_bytes(hostile.epub({"one.xhtml": "<p>The whale.</p>"}, metadata=(
        "<dc:language> pt-BR </dc:language><dc:language>en</dc:language>")))
    document = read_document(book)
    assert (document.language, document.title) == ("pt-BR", "Whales")


@pytest.mark.parametrize("without", ["", "pypdfium2"])
def test_pdf(tmp_path: Path, without: str, monkeypatch: pytest.MonkeyPatch) -> None:
    fpdf = pytest.importorskip("fpdf")
    for tag in ("nl", ""):
        pdf = fpdf.FPDF()
        if tag:
            pdf.set_lang(tag)
        pdf.add_page()
        pdf.set_font("times", size=12)
        pdf.multi_cell(0, 8, "De walvis is een dier dat in de zee leeft, zegt de kapitein.")
        pdf.output(str(tmp_path / "a.pdf"))
        if without:  # the careful reader reads it alone
            monkeypatch.setattr("triforce_core.documents.read._PDF_READERS", ("pypdf",))
        document = read_document(tmp_path / "a.pdf")
        assert document.language == tag and document.reader.startswith("pypdf " if without else "pypdfium2")
