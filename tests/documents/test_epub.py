"""EPUB: chapters by what they are, notes from their own files, and parts that are missing."""

from __future__ import annotations

from pathlib import Path

from tests.documents import hostile
from triforce_core.documents import Document, read_document


def read(folder: Path, data: bytes) -> Document:
    (folder / "a.epub").write_bytes(data)
    return read_document(folder / "a.epub")


def page(body: str) -> str:
    return (f"<?xml version='1.0'?><html xmlns='http://www.w3.org/1999/xhtml' xmlns:epub='http://www.idpf.org/2007/ops'>"
            f"<head><title/></head><body>{body}</body></html>")


def with_kind(data: bytes, kind: str) -> bytes:
    """The same book, whose chapters are said to be of another kind."""
    import io
    import zipfile

    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        parts: dict[str, bytes | str] = {name: archive.read(name) for name in archive.namelist()}
    package = parts["OEBPS/book.opf"]
    assert isinstance(package, bytes)
    parts["OEBPS/book.opf"] = package.replace(b"application/xhtml+xml", kind.encode())
    return hostile.zipped(parts)


def test_chapters_by_content(tmp_path: Path) -> None:
    book = hostile.epub({"one.xhtml": page("<p>One<a id='x'/> whale.</p>"), "two.xml": page("<p>Two.</p>")})
    for kind in ("application/xhtml+xml", "text/x-nothing", "application/octet-stream", ""):
        document = read(tmp_path, with_kind(book, kind))
        assert [found.text for found in document.pages] == ["One whale.", "Two."] and not document.warnings


def test_pictures_as_pages_and_missing_parts(tmp_path: Path) -> None:
    book = hostile.epub({"cover.svg": "<svg xmlns='http://www.w3.org/2000/svg'><text>Cover</text></svg>",
                         "p.jpg": "\x89PNG\r\n\x1a\n" + "\0" * 99,
                         "c.xhtml": page("<p>The whale.</p><img src='a'/>"), "gone.xhtml": "x"})
    document = read(tmp_path, book.replace(b"OEBPS/gone.xhtml", b"OEBPS/away.xhtml"))
    assert [found.text for found in document.pages] == ["The whale."]
    assert document.warnings == ("1 part of the book is missing or damaged and could not be read: gone.xhtml.",)
    assert document.notes == ("1 picture or other object was not read.",
                              "2 pages that are only a picture were not read.")


def test_notes_in_place_and_in_a_file_of_their_own(tmp_path: Path) -> None:
    one = page("<p>As told.<a epub:type='noteref' href='notes.xhtml#n1' id='r1'>1</a> More<sup><a epub:type='noteref' "
               "href='#here'>*</a></sup>.</p><aside epub:type='footnote' id='here'><p>Here.</p></aside>")
    notes = page("<h2>Notes</h2><p id='n1'><a href='one.xhtml#r1'>1.</a> See it.</p>")
    document = read(tmp_path, hostile.epub({"one.xhtml": one, "notes.xhtml": notes}))
    assert [found.text for found in document.pages] == ["As told. More.\n\n[*] Here.", "Notes\n\n[1] See it."]


def test_xhtml_closes_what_html_leaves_open(tmp_path: Path) -> None:
    body = "<script src='x'/><p class='a'/><p>One <i/>two<![CDATA[ & <three>]]></p><div/><textarea/><p>End.</p>"
    (found,) = read(tmp_path, hostile.epub({"a.xhtml": page(body)})).pages
    assert found.text == "One two & <three>\n\nEnd."
