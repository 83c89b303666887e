"""Find out a file's kind by its content; the name only chooses between kinds of text. Runs in the reader process."""

from __future__ import annotations

import codecs
import re
import zipfile
import zlib
from pathlib import Path

from ..errors import DamagedDocumentError, EncryptedDocumentError, UnknownFormatError
from .readers.source import FORMATS, Source

_HEAD = 65_536  # bytes that are looked at
_PDF_JUNK = 1_024  # bytes that may stand before a PDF's header, as in other readers
_OFFICE_HEAD = 1 << 22  # of an old Office file, where it says that it is encrypted
_PDF_HEADER = re.compile(rb"(?:\A(?:\xef\xbb\xbf)?|[\r\n])[ \t]*%PDF-\d")
_PDF_OBJECT = re.compile(rb"[\r\n][ \t]*\d{1,10}[ \t\r\n]{1,8}\d{1,5}[ \t\r\n]{1,8}obj\b")
_MOST_HIGH = 1 / 3  # bytes beyond ASCII in a text of some older encoding
_EXPORT = "Export or save the document as PDF, DOCX or TXT."
_PICTURES = (b"\x89PNG\r\n\x1a\n", b"\xff\xd8\xff", b"II*\0", b"MM\0*")
_SIGNATURES: tuple[tuple[tuple[bytes, ...], str, str], ...] = (
    ((b"GIF8",), "a picture (GIF)", "Save it as PNG."),
    ((b"RIFF",), "a picture, sound or film (RIFF)", _EXPORT),
    ((b"AT&TFORM",), "a DjVu file", _EXPORT),
    ((b"{\\rtf",), "an RTF file", _EXPORT),
    ((b"%!PS",), "a PostScript file", "Run `ps2pdf` on it and open the PDF."),
    ((b"\x7fELF", b"MZ", b"\xcf\xfa\xed\xfe", b"\xca\xfe\xba\xbe"), "a program", "Choose a document."),
    ((b"\x1f\x8b", b"BZh", b"\xfd7zXZ", b"7z\xbc\xaf\x27\x1c", b"Rar!", b"\x28\xb5\x2f\xfd"),
     "an archive (gzip, bzip2, xz, 7-Zip, RAR or Zstandard)", "Unpack it and open the document inside."),
    ((b"SQLite format 3",), "a database", _EXPORT),
    ((b"ID3", b"OggS"), "a sound file", "Choose a document."),
)
_WRITTEN_AS_TEXT = ((b"{\\rtf",), (b"%!PS",))  # their files are text; those of all other signatures are not
_CONTROLS = bytes(code for code in range(32) if code not in b"\t\n\v\f\r") + b"\x7f"
_TEXT_KINDS = (
    dict.fromkeys((".md", ".markdown", ".mdown"), "markdown") | dict.fromkeys((".rst", ".rest"), "rst")
    | dict.fromkeys((".html", ".htm", ".xhtml"), "html") | dict.fromkeys((".csv", ".tsv"), "csv")
)  # fmt: skip
_TYPES = "[Content_Types].xml"
_MAIN_PART = re.compile(rb"(?:wordprocessingml|ms-word)\.\w+(?:\.\w+)?\.?main\+xml")
_MAIL = re.compile(rb"(?:\A|\n)mime-version:|\Areturn-path:|\Areceived:|\Adelivered-to:", re.IGNORECASE)
_SIGNED = {".pdf": "PDF", ".docx": "DOCX", ".epub": "EPUB"}


def sniff(source: Source) -> str:
    """Return "pdf", "txt", "markdown", "rst", "html", "docx", "epub" or "picture". Raises UnknownFormatError and its
    like."""
    path, name = source.path, source.name
    with path.open("rb") as file:
        head = file.read(_HEAD)
    suffix, text = path.suffix.lower(), is_text(head)
    if _is_pdf(head, suffix, text):
        return "pdf"
    if head.startswith((b"PK\x03\x04", b"PK\x05\x06", b"PK\x07\x08")):
        return _zipped(source, suffix)
    if head.startswith(b"\xd0\xcf\x11\xe0"):
        _refuse_old_office(path, name)
    if (head.startswith(_PICTURES) or (head[:4] == b"RIFF" and head[8:12] == b"WEBP")) and not text:
        return "picture"
    for signatures, what, remedy in _SIGNATURES:
        if head.startswith(signatures) and (not text or signatures in _WRITTEN_AS_TEXT):
            raise UnknownFormatError(f"{name} is {what}", allowed=FORMATS, remedy=remedy)
    if head[60:68] == b"BOOKMOBI" and not text:
        raise UnknownFormatError(f"{name} is a Mobipocket book", allowed=FORMATS, remedy="Convert it to EPUB.")
    if head[4:8] == b"ftyp" and not text:
        raise UnknownFormatError(f"{name} is a film or picture", allowed=FORMATS, remedy="Choose a document.")
    if suffix in _SIGNED and not text:
        raise DamagedDocumentError(f"{name} does not begin like a {_SIGNED[suffix]} file", remedy="Get the file again.")
    start = head.lstrip(b"\xef\xbb\xbf \t\r\n").lower()
    if start.startswith((b"<!doctype html", b"<html")) or (start.startswith(b"<?xml") and b"<html" in start[:4096]):
        return "html"
    headers = re.split(rb"\r?\n\r?\n", head.lstrip(b"\xef\xbb\xbf\r\n"), maxsplit=1)[0]
    if text and _MAIL.search(headers) and re.search(rb"\n(?:content-type|from):", headers, re.IGNORECASE):
        return "mail"
    return _TEXT_KINDS.get(suffix, "txt")


def is_text(head: bytes) -> bool:
    """Say whether a file that begins with these bytes is text: UTF-8 with hardly a control character, or one of the
    older encodings, mostly ASCII and with none."""
    if 0 in head:
        return False
    controls = len(head) - len(head.translate(None, _CONTROLS))
    try:
        codecs.getincrementaldecoder("utf-8")().decode(head)  # it may end inside a character
    except UnicodeDecodeError:
        high = len(head) - len(head.translate(None, bytes(range(128, 256))))
        return not controls and high < _MOST_HIGH * len(head)
    return controls * 50 < len(head) or not controls


def _is_pdf(head: bytes, suffix: str, text: bool) -> bool:
    """Say whether a file is a PDF. A text may name a PDF's first bytes, and even begin with them; a PDF that is all
    text goes on with objects."""
    if b"%PDF-" not in head[:_PDF_JUNK]:
        return False
    if not text or suffix == ".pdf":
        return True
    own_line = _PDF_HEADER.search(head, 0, _PDF_JUNK + 1)
    return own_line is not None and _PDF_OBJECT.search(head, own_line.end()) is not None


def _refuse_old_office(path: Path, name: str) -> None:
    with path.open("rb") as file:
        if "EncryptedPackage".encode("utf-16-le") in file.read(_OFFICE_HEAD):
            raise EncryptedDocumentError(f"{name} is encrypted", remedy="Save it without a password.")
    raise UnknownFormatError(f"{name} is an old Office file (.doc)", allowed=FORMATS, remedy="Save it as .docx.")


def _zipped(source: Source, suffix: str) -> str:
    from .readers.archive import open_zip  # here: most files are no archives

    name = source.name
    try:
        with open_zip(source) as archive:
            names = set(archive.namelist())
            word = _TYPES in names and _MAIN_PART.search(_start(archive, _TYPES)) is not None
    except (zipfile.BadZipFile, OSError, ValueError, NotImplementedError) as problem:
        kind = _SIGNED.get(suffix, "zip")
        raise DamagedDocumentError(
            f"{name} is a damaged {kind} file: its directory is missing (a cut-off download?)",
            remedy="Get the file again.",
        ) from problem
    if "META-INF/container.xml" in names:
        return "epub"
    if word or "word/document.xml" in names:
        return "docx"
    if suffix in (".docx", ".epub"):
        raise DamagedDocumentError(f"{name} is a zip file without a document in it", remedy="Get the file again.")
    for part, what in (("xl/workbook.xml", "an Excel file"), ("ppt/presentation.xml", "a PowerPoint file")):
        if part in names:
            raise UnknownFormatError(f"{name} is {what}", allowed=FORMATS, remedy="Export it as PDF.")
    what = "an OpenDocument file" if "content.xml" in names else "a zip archive"
    remedy = "Export it as PDF or DOCX." if "content.xml" in names else "Unpack it and open the document inside."
    raise UnknownFormatError(f"{name} is {what}", allowed=FORMATS, remedy=remedy)


def _start(archive: zipfile.ZipFile, name: str) -> bytes:
    """Return the first bytes of a part; b"" where it cannot be unpacked, which the reader says more clearly."""
    try:
        with archive.open(name) as part:
            return part.read(_HEAD)
    except (zipfile.BadZipFile, zlib.error, EOFError, OSError, NotImplementedError, RuntimeError):
        return b""
