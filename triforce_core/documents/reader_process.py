"""The child that looks into one file: ``python -m triforce_core.documents.reader_process``, request on stdin, frames
out. Nobody else opens it: its kind, its archive's directory and its text are all found out here.

Limits itself before it touches the file (memory, CPU, no files written, no processes, no core dump). Says ``at`` before
each page, so that the parent knows which page killed it; then sends the finished pages one by one. Imports no
torch, and numpy only to recognise a language."""

from __future__ import annotations

import dataclasses
import gc
import importlib
import os
import sys
from contextlib import suppress
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from ..errors import DocumentError, DocumentTooLargeError
from ..sandbox.child import first_request, sign_of_life, write_frame
from .chapters import chapters_of
from .cleanup import finish, scanned
from .language import language_of
from .limits import ReadLimits
from .readers.source import Raw, RawPage, Source
from .sniff import sniff

if TYPE_CHECKING:
    from .ocr import Recognisers

# By kind, the function in ``readers`` that reads it: only what a file needs is imported.
_READERS = {
    "pdf": "pdf.read_with_pdfium", "pypdf": "pdf.read_with_pypdf", "txt": "plain_text.read_text",
    "markdown": "markdown.read_markdown", "rst": "rst.read_rst", "html": "html.read_html", "docx": "docx.read_docx",
    "epub": "epub.read_epub", "csv": "table.read_table", "mail": "mail.read_mail",
    "picture": "picture.read_picture",
}  # fmt: skip
_OTHERS = ("triforce_core.documents.page_process", "pypdf", "pypdfium2", "pypdfium2.raw", "chardet",
           "py3langid.langid")


def main() -> None:
    """Read the request, answer in frames. The exit status is 0 whenever a last frame was sent. With ``--compile`` open
    no document, only import what this process and that of the page view may: see ``read.keep_bytecode``."""
    if sys.argv[1:] == ["--compile"]:
        for name in (*(f"{__package__}.readers.{place.partition('.')[0]}" for place in _READERS.values()), *_OTHERS):
            importlib.import_module(name)
        return
    request, out = first_request()
    limits = ReadLimits(**request["limits"])
    recognisers = None
    if request["recognise"]:
        from .ocr import Recognisers

        recognisers = Recognisers()  # they start threads, which a limited process cannot
    limits.enforce()
    sign_of_life(limits.page_seconds)
    gc.set_threshold(200_000)  # hundreds of thousands of small values, hardly a circle among them
    spare = bytearray(8 << 20)  # given back to word the error when memory runs out
    try:
        _answer(request, limits, out, recognisers)
    except MemoryError:
        del spare
        _send_error(out, DocumentTooLargeError(
            f"{request['name']} needs more than {limits.memory_bytes >> 20:,} MB of memory to read",
            remedy="Split it, or save it anew in another format."))
    except ModuleNotFoundError as problem:
        _send_error(out, DocumentError(
            f"{request['name']} cannot be read: the package {str(problem.name).partition('.')[0]} is not installed",
            remedy="Run pip install -r requirements.txt"))
    except DocumentError as problem:
        _send_error(out, problem)
    out.close()
    os._exit(0)  # libraries' own tear-down of a hostile file is not worth the risk


def _answer(request: dict[str, Any], limits: ReadLimits, out: IO[bytes], recognisers: Recognisers | None) -> None:
    def at_page(page: int, pages: int) -> None:
        sign_of_life(limits.page_seconds)
        write_frame(out, {"at": page, "pages": pages})

    def hand_over(raw: Raw) -> None:
        with suppress(DocumentError):  # no text yet
            pages, _ = finish(raw, name)
            write_frame(out, {"part": [_page(*page) for page in zip(pages, raw.pages, strict=True)]})

    name = request["name"]
    source = Source(Path(request["path"]), name, limits, request["password"], frozenset(request["skip"]), at_page,
                    recognisers, request["encoding"], hand_over)
    kind = sniff(source)
    write_frame(out, {"sniffed": kind})
    module, _, function = _READERS["pypdf" if kind == "pdf" and request["reader"] == "pypdf" else kind].partition(".")
    try:
        raw: Raw = getattr(importlib.import_module(f".readers.{module}", __package__), function)(source)
    except RecursionError as problem:
        raise DocumentTooLargeError(
            f"{name} is nested too deeply", remedy="Get the file in another format."
        ) from problem
    sign_of_life(limits.page_seconds)
    write_frame(out, {"extracted": len(raw.pages)})
    source.check_pages(len(raw.pages))
    if request["recognisable"] and recognisers is None and scanned(raw):
        write_frame(out, {"scanned": True})
        return
    pages, warnings = finish(raw, name)
    chapters = [dataclasses.astuple(chapter) for chapter in chapters_of(raw.headings, [text for _, text in pages])]
    write_frame(out, {"kind": raw.kind, "reader": raw.reader, "title": raw.title[:2000], "warnings": warnings,
                      "notes": raw.unread.sentences(), "chapters": chapters, "language": raw.language.strip()[:40],
                      "recognised": language_of(text for _, text in pages)})
    for page in zip(pages, raw.pages, strict=True):
        write_frame(out, _page(*page))
    write_frame(out, {"done": len(pages)})


def _page(said: tuple[str, str], page: RawPage) -> dict[str, Any]:
    return {"label": said[0], "text": said[1], "words": [dataclasses.astuple(word) for word in page.words]}


def _send_error(out: IO[bytes], problem: DocumentError) -> None:
    parts = {part: getattr(problem, part) for part in ("message", "allowed", "remedy")}
    write_frame(out, {"error": type(problem).__name__, **parts, "readings": getattr(problem, "readings", ())})


if __name__ == "__main__":
    main()
