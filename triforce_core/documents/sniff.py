"""What a file is, told by its content; the name only chooses between kinds of text."""

from __future__ import annotations

import zipfile
from pathlib import Path

from ..errors import DamagedDocumentError, DocumentError, EmptyDocumentError, EncryptedDocumentError, UnknownFormatError

FORMATS = "PDF, TXT, Markdown, HTML, DOCX, EPUB"
_EXPORT = "Export or save the document as PDF, DOCX or TXT."
_PICTURE = "Run `img2pdf {name} -o in.pdf` and `ocrmypdf in.pdf out.pdf`, then open out.pdf."
_SIGNATURES: tuple[tuple[bytes, str, str], ...] = (
    (b"\x89PNG", "a picture (PNG)", _PICTURE),
    (b"\xff\xd8\xff", "a picture (JPEG)", _PICTURE),
    (b"GIF8", "a picture (GIF)", _PICTURE),
    (b"II*\0", "a picture (TIFF)", _PICTURE),
    (b"MM\0*", "a picture (TIFF)", _PICTURE),
    (b"RIFF", "a picture, sound or film (RIFF)", _EXPORT),
    (b"AT&TFORM", "a DjVu file", _EXPORT),
    (b"{\\rtf", "an RTF file", _EXPORT),
    (b"%!PS", "a PostScript file", "Run `ps2pdf` on it and open the PDF."),
    (b"\x7fELF", "a program", "Choose a document."),
    (b"MZ", "a program", "Choose a document."),
    (b"\xcf\xfa\xed\xfe", "a program", "Choose a document."),
    (b"\xca\xfe\xba\xbe", "a program", "Choose a document."),
    (b"\x1f\x8b", "a gzip archive", "Unpack it and open the document inside."),
    (b"7z\xbc\xaf\x27\x1c", "a 7-Zip archive", "Unpack it and open the document inside."),
    (b"Rar!", "a RAR archive", "Unpack it and open the document inside."),
    (b"\x28\xb5\x2f\xfd", "a Zstandard archive", "Unpack it and open the document inside."),
    (b"BZh", "a bzip2 archive", "Unpack it and open the document inside."),
    (b"\xfd7zXZ", "an xz archive", "Unpack it and open the document inside."),
    (b"SQLite format 3", "a database", _EXPORT),
    (b"ID3", "a sound file", "Choose a document."),
    (b"OggS", "a sound file", "Choose a document."),
    (b"BOOKMOBI", "a Mobipocket book", "Convert it to EPUB."),
)
_TEXT_KINDS = {".md": "markdown", ".markdown": "markdown", ".mdown": "markdown"} | dict.fromkeys(
    (".html", ".htm", ".xhtml"), "html"
)
_SIGNED = {".pdf": "PDF", ".docx": "DOCX", ".epub": "EPUB"}


def check_file(path: Path) -> int:
    """The size of a file that can be opened. Raises DocumentError or EmptyDocumentError."""
    try:
        if path.is_dir():
            raise DocumentError(f"{path.name} is a folder", allowed=f"a file: {FORMATS}")
        if not path.exists():
            raise DocumentError(f"There is no file {path}", remedy="Check the name and the folder.")
        if not path.is_file():
            raise DocumentError(f"{path.name} is not a regular file", allowed=f"a file: {FORMATS}")
        with path.open("rb"):
            size = path.stat().st_size
    except PermissionError as problem:
        raise DocumentError(
            f"There is no permission to read {path.name}",
            remedy="Change its permissions or copy it to your own folder.",
        ) from problem
    except OSError as problem:
        raise DocumentError(f"{path.name} cannot be opened: {problem.strerror or problem}") from problem
    if size == 0:
        raise EmptyDocumentError(f"{path.name} is empty (0 bytes)", remedy="Choose another file.")
    return size


def sniff(path: Path) -> str:
    """One of "pdf", "txt", "markdown", "html", "docx", "epub". Raises UnknownFormatError and its like."""
    with path.open("rb") as file:
        head = file.read(4096)
    suffix = path.suffix.lower()
    if b"%PDF-" in head[:1024]:
        return "pdf"
    if head.startswith((b"PK\x03\x04", b"PK\x05\x06", b"PK\x07\x08")):
        return _zipped(path, suffix)
    if head.startswith(b"\xd0\xcf\x11\xe0"):
        if "EncryptedPackage".encode("utf-16-le") in path.read_bytes()[: 1 << 22]:
            raise EncryptedDocumentError(f"{path.name} is encrypted", remedy="Save it without a password.")
        raise UnknownFormatError(
            f"{path.name} is an old Office file (.doc)", allowed=FORMATS, remedy="Save it as .docx."
        )
    for signature, what, remedy in _SIGNATURES:
        if head.startswith(signature) or (signature == b"BOOKMOBI" and head[60:68] == signature):
            raise UnknownFormatError(f"{path.name} is {what}", allowed=FORMATS, remedy=remedy.format(name=path.name))
    if head[4:8] == b"ftyp":
        raise UnknownFormatError(f"{path.name} is a film or picture", allowed=FORMATS, remedy="Choose a document.")
    start = head.lstrip(b"\xef\xbb\xbf \t\r\n").lower()
    if suffix in _SIGNED and (b"\0" in head or not _looks_like_text(head)):
        raise DamagedDocumentError(
            f"{path.name} does not begin like a {_SIGNED[suffix]} file", remedy="Get the file again."
        )
    if start.startswith((b"<!doctype html", b"<html")) or (start.startswith(b"<?xml") and b"<html" in start):
        return "html"
    return _TEXT_KINDS.get(suffix, "txt")


def _looks_like_text(head: bytes) -> bool:
    try:
        head[:-4].decode("utf-8")
    except UnicodeDecodeError:
        return False
    return sum(byte < 9 or 13 < byte < 32 for byte in head) * 50 < len(head)


def _zipped(path: Path, suffix: str) -> str:
    try:
        with zipfile.ZipFile(path) as archive:
            names = set(archive.namelist()[:20_000])
    except (zipfile.BadZipFile, OSError, ValueError, NotImplementedError) as problem:
        kind = _SIGNED.get(suffix, "zip")
        raise DamagedDocumentError(
            f"{path.name} is a damaged {kind} file: its directory is missing (a cut-off download?)",
            remedy="Get the file again.",
        ) from problem
    if "META-INF/container.xml" in names:
        return "epub"
    if "word/document.xml" in names:
        return "docx"
    if suffix in (".docx", ".epub"):
        raise DamagedDocumentError(f"{path.name} is a zip file without a document in it", remedy="Get the file again.")
    for name, what in (("xl/workbook.xml", "an Excel file"), ("ppt/presentation.xml", "a PowerPoint file")):
        if name in names:
            raise UnknownFormatError(f"{path.name} is {what}", allowed=FORMATS, remedy="Export it as PDF.")
    what = "an OpenDocument file" if "content.xml" in names else "a zip archive"
    remedy = "Export it as PDF or DOCX." if "content.xml" in names else "Unpack it and open the document inside."
    raise UnknownFormatError(f"{path.name} is {what}", allowed=FORMATS, remedy=remedy)
