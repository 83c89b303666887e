"""The child that looks into one file: ``python -m triforce_core.documents.reader_process``, request on stdin, frames
out. Nobody else opens it: what the file is, its archive's directory and its text are all found out here.

Limits itself before it touches the file (memory, CPU, no files written, no processes, no core dump). Says ``at`` before
each page, so that the parent knows which page killed it; then sends the finished pages one by one. Imports no torch, no
numpy."""

from __future__ import annotations

import dataclasses
import gc
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

from ..errors import DocumentError, DocumentTooLargeError
from ..sandbox.frames import write_frame
from ..sandbox.restrict import restrict, sign_of_life
from .chapters import chapters_of
from .finish import finish
from .limits import ReadLimits
from .readers.source import Raw, Source
from .sniff import sniff


def main() -> None:
    """Read the request, answer in frames. The exit status is 0 whenever a last frame was sent."""
    request = json.loads(sys.stdin.buffer.readline())
    out = os.fdopen(os.dup(1), "wb")
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # libraries that print must not spoil the stream
    limits = ReadLimits(**request["limits"])
    limit(limits)
    sign_of_life(limits.page_seconds)
    gc.set_threshold(200_000)  # hundreds of thousands of small values, hardly a circle among them
    spare = bytearray(8 << 20)  # given back to word the error when memory runs out
    try:
        _answer(request, limits, out)
    except MemoryError:
        del spare
        write_frame(out, _error(_too_much_memory(request["name"], limits)))
    except ModuleNotFoundError as problem:
        write_frame(out, _error(DocumentError(
            f"{request['name']} cannot be read: the package {str(problem.name).partition('.')[0]} is not installed",
            remedy="Run pip install -r requirements.txt")))
    except DocumentError as problem:
        write_frame(out, _error(problem))
    out.close()
    os._exit(0)  # libraries' own tear-down of a hostile file is not worth the risk


def limit(limits: ReadLimits) -> None:
    """Hold this process to what one reading may use."""
    restrict(limits.memory_bytes, int(limits.seconds_for(limits.pages)) + 1)


def _answer(request: dict[str, Any], limits: ReadLimits, out: IO[bytes]) -> None:
    def at_page(page: int, pages: int) -> None:
        sign_of_life(limits.page_seconds)
        write_frame(out, {"at": page, "pages": pages})

    name = request["name"]
    source = Source(Path(request["path"]), name, limits, request["password"], frozenset(request["skip"]), at_page)
    kind = sniff(source)
    write_frame(out, {"sniffed": kind})
    read = _reader(kind, request["reader"])
    try:
        raw = read(source)
    except RecursionError as problem:
        raise DocumentTooLargeError(
            f"{name} is nested too deeply", remedy="Get the file in another format."
        ) from problem
    sign_of_life(limits.page_seconds)
    write_frame(out, {"extracted": len(raw.pages)})
    source.check_pages(len(raw.pages))
    pages, warnings = finish(raw, name)
    chapters = [dataclasses.astuple(chapter) for chapter in chapters_of(raw.headings, [text for _, text in pages])]
    write_frame(out, {"kind": raw.kind, "reader": raw.reader, "title": raw.title[:2000], "warnings": warnings,
                      "notes": raw.unread.sentences(), "chapters": chapters, "language": raw.language.strip()[:40]})
    for label, text in pages:
        write_frame(out, {"label": label, "text": text})
    write_frame(out, {"done": len(pages)})


def _reader(kind: str, reader: str) -> Callable[[Source], Raw]:
    """Only what this file needs is imported."""
    if kind == "pdf":
        from .readers import pdf

        return pdf.read_with_pypdf if reader == "pypdf" else pdf.read_with_pdfium
    if kind == "txt":
        from .readers.plain_text import read_text

        return read_text
    if kind == "markdown":
        from .readers.markdown import read_markdown

        return read_markdown
    if kind == "rst":
        from .readers.rst import read_rst

        return read_rst
    if kind == "html":
        from .readers.html import read_html

        return read_html
    if kind == "docx":
        from .readers.docx import read_docx

        return read_docx
    from .readers.epub import read_epub

    return read_epub


def _too_much_memory(name: str, limits: ReadLimits) -> DocumentTooLargeError:
    return DocumentTooLargeError(
        f"{name} needs more than {limits.memory_bytes >> 20:,} MB of memory to read",
        remedy="Split it, or save it anew in another format.",
    )


def _error(problem: DocumentError) -> dict[str, Any]:
    return {"error": type(problem).__name__} | {
        part: getattr(problem, part) for part in ("message", "allowed", "remedy")
    }


if __name__ == "__main__":
    main()
