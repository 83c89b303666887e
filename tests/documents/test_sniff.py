"""Find out the kind of a file by its bytes, in the reader process; no text is refused because of its first words."""

from __future__ import annotations

import bz2
import io
import struct
import wave
import zipfile
from pathlib import Path

import pytest

from tests.documents import hostile
from triforce_core.documents import read_document
from triforce_core.errors import DamagedDocumentError, DocumentTooLargeError, UnknownFormatError

GIF = b"GIF89a" + struct.pack("<2H3B", 1, 1, 0x80, 0, 0) + bytes(6) + b",\0\0\0\0\1\0\1\0\0\2\2D\1\0;"
PROGRAM = b"MZ" + struct.pack("<13H", 144, 3, 0, 4, 0, 65535, 0, 184, 0, 0, 0, 64, 0) + bytes(32) + b"@\0\0\0PE\0\0"
SONG = b"ID3\x04\0\0\0\0\0\x17TIT2\0\0\0\x0d\0\0\x03The whale song" + b"\xff\xfb\x90\x64" * 40
LISTING = "\n".join(f"{n} 0 obj" for n in range(3))


def sound() -> bytes:
    out = io.BytesIO()
    with wave.open(out, "wb") as file:
        file.setparams((1, 2, 8000, 0, "NONE", ""))
        file.writeframes(bytes(range(256)) * 4)
    return out.getvalue()


@pytest.mark.parametrize("start", [
    "MZ is what a program begins with, and", "ID3 tags name a song;", "GIF8 and GIF89a are pictures, but",
    "BZh91AY&SY begins an archive;", "RIFF holds sounds, yet", "OggS too;", "Rar! it cried;",
    "SQLite format 3 is old;", "II*", "The ftyp box says little, and", "A PDF begins with %PDF-1.7 and then",
    "%PDF-1.4 is how a PDF begins, and", "%PDF- alone is not enough;", f"Its bytes:\n%PDF\n{LISTING}\nNow %PDF-1.7:",
    "MZ-Gerät für Wale:"])
@pytest.mark.parametrize(("encoding", "suffix"), [("utf-8", ".md"), ("cp1252", "")])
def test_a_text_may_begin_with_any_words(tmp_path: Path, start: str, encoding: str, suffix: str) -> None:
    path = tmp_path / f"a{suffix}"
    path.write_bytes(f"{start} the whale is a mammal, naïve and sure.".encode(encoding))
    (page,) = read_document(path).pages
    assert page.text.replace("\n", " ").startswith(start.split("\n")[0]) and page.text.endswith("naïve and sure.")


@pytest.mark.parametrize(("content", "what"), [
    (PROGRAM, "a program"), (SONG, "a sound file"), (GIF, "a picture"), (bz2.compress(b"The whale"), "bzip2"),
    (bz2.compress(b"The whale is a mammal. " * 99), "bzip2"), (bz2.compress(b""), "bzip2"), (sound(), "RIFF")])
def test_binaries_are_named_and_refused(tmp_path: Path, content: bytes, what: str) -> None:
    (tmp_path / "a.txt").write_bytes(content)
    with pytest.raises(UnknownFormatError, match=what):
        read_document(tmp_path / "a.txt")


@pytest.mark.parametrize("suffix", [".pdf", ".txt"])
@pytest.mark.parametrize("junk", [
    b"", b"\n \n", b"\xef\xbb\xbf", b"HTTP/1.1 200 OK\r\n\r\n", b"\0junk " * 100, b"\xff" * 900])
def test_junk_may_stand_before_a_pdf(tmp_path: Path, junk: bytes, suffix: str) -> None:
    (tmp_path / f"a{suffix}").write_bytes(junk + hostile.text_pdf())
    document = read_document(tmp_path / f"a{suffix}")
    assert document.kind == "pdf" and document.pages[0].text == "The whale is a mammal."


def test_a_damaged_pdf_is_still_called_one(tmp_path: Path) -> None:
    (tmp_path / "cut.pdf").write_bytes(hostile.text_pdf()[:60])
    with pytest.raises(DamagedDocumentError, match="as a PDF"):
        read_document(tmp_path / "cut.pdf")


def test_the_app_itself_opens_no_archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever looks into a file has the reader process's limits of memory and time."""
    (tmp_path / "a.docx").write_bytes(hostile.docx(hostile.paragraph("The whale is a mammal.")))
    (tmp_path / "a.zip").write_bytes(hostile.zipped({"a.txt": "x"}))
    monkeypatch.setattr(zipfile, "ZipFile", None)
    assert read_document(tmp_path / "a.docx").kind == "docx"
    with pytest.raises(UnknownFormatError, match="zip archive"):
        read_document(tmp_path / "a.zip")


@pytest.mark.parametrize("name", ["a.docx", "a.epub", "a.zip"])
def test_a_directory_too_long_is_not_read(tmp_path: Path, name: str) -> None:
    """The real limits: parsed, these parts would take the reader more than its time."""
    (tmp_path / name).write_bytes(hostile.crowded_zip(300_000))
    with pytest.raises(DocumentTooLargeError, match="directory of 14 MB"):
        read_document(tmp_path / name)
