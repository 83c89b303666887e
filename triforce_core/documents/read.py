"""Read a file into a Document, whatever it does to the process that reads it."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from .. import errors
from ..errors import (
    DamagedDocumentError,
    DocumentError,
    DocumentTooLargeError,
    EmptyDocumentError,
    EncryptedDocumentError,
    ScannedDocumentError,
    UnclearEncodingError,
)
from ..sandbox.child import NOTHING, ROOT, ChildProcess, command, environment
from .document import Chapter, Document, Page, Word
from .language import NAMED
from .limits import READERS, ReadLimits
from .readers.source import FORMATS

Progress = Callable[[int, int], None]
_READER = f"{__package__}.reader_process"
_PDF_READERS = ("pypdfium2", "pypdf")
_KINDS = frozenset({"pdf", "txt", "markdown", "rst", "html", "docx", "epub", "csv", "mail", "picture"})
_MOST_CRASHES = 3  # pages that may kill a reader before it is given up
_SECOND = "It was read by a second reader, which knows no columns, tables or notes: the usual one could not read it."
_TICK = 0.05
_RECOGNISERS = threading.BoundedSemaphore(1)  # one keeps every core busy
_PLACES = threading.BoundedSemaphore(READERS)  # whoever asks in this process: their memory adds up
_LANGUAGE = re.compile(r"[A-Za-z]{2,3}([-_][A-Za-z0-9]{2,8})*")  # a tag, and no words


class ReadCancelled(Exception):
    """The cancel event was set."""


class _Scanned(Exception):
    """There are pages whose words must be recognised."""


class _Crashed(Exception):
    """The reader process ended without a last word. page: where it was, None before the first page."""

    def __init__(self, page: int | None) -> None:
        super().__init__(page)
        self.page = page


def read_document(
    path: Path | str,
    password: str | None = None,
    *,
    encoding: str = "",
    limits: ReadLimits | None = None,
    progress: Progress | None = None,
    part: Callable[[Document], None] | None = None,
    cancel: threading.Event | None = None,
) -> Document:
    """Read a file in a short-lived process of its own. Raises DocumentError and its subclasses, or ReadCancelled.

    At most ``READERS`` files are read at once; others wait their turn, and their time does not run before it comes.
    encoding: a label such as "windows-1251", for a text that is read wrongly without. progress is called with (pages
    read, pages in all) from this thread, and part with the first pages while others are still recognised. Nothing is
    cut: what cannot be read is named in the document's warnings, counted in its notes, or ends in an error."""
    path = Path(path)
    limits = limits or ReadLimits()
    size = _size(path)
    if size > limits.file_bytes:
        raise DocumentTooLargeError(
            f"{path.name} is {size / 1e6:,.0f} MB",
            allowed=f"up to {limits.file_bytes / 1e6:,.0f} MB",
            remedy="Split it into smaller files.",
        )
    keep_bytecode()
    attempt = _Attempt(path, password, encoding, limits, progress or (lambda done, total: None), cancel,
                       part or (lambda document: None))
    problems: list[DocumentError] = []
    for reader in _PDF_READERS:
        try:
            document = attempt.with_reader(reader)
            return replace(document, warnings=(_SECOND, *document.warnings)) if problems else document
        except (EncryptedDocumentError, ScannedDocumentError):
            raise
        except DocumentError as problem:
            if attempt.kind != "pdf" or attempt.out_of_time or attempt.recognise:
                raise
            problems.append(problem)
    clearer = (problem for problem in reversed(problems) if not isinstance(problem, DamagedDocumentError))
    raise next(clearer, problems[0])


def recognisable() -> bool:
    """Say whether the packages that read scans are installed."""
    return all(find_spec(name) is not None for name in ("rapidocr", "onnxruntime"))


@functools.cache
def keep_bytecode() -> None:
    """Have what the reader imports compiled beside this process, once in its life: the reader may write no files, and
    would compile it each time, for 0.2 to 0.5 seconds."""

    def compile_all() -> None:
        with contextlib.suppress(OSError, subprocess.SubprocessError):  # nothing depends on it
            subprocess.run([*command(_READER), "--compile"], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                           stderr=subprocess.DEVNULL, env=environment(), cwd=ROOT, timeout=60, check=False)

    if not sys.dont_write_bytecode:
        threading.Thread(target=compile_all, name="bytecode", daemon=True).start()


def _size(path: Path) -> int:
    """Return the size of a file that can be opened. Raises DocumentError or EmptyDocumentError."""
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


@dataclass
class _Attempt:
    """One file, read by one reader after another, page by page around what kills them. kind: as the reader process
    found it; "" before it said so. recognise: read the words on pictures of pages."""

    path: Path
    password: str | None
    encoding: str
    limits: ReadLimits
    progress: Progress
    cancel: threading.Event | None
    part: Callable[[Document], None]
    kind: str = field(default="", init=False)
    out_of_time: bool = field(default=False, init=False)
    recognise: bool = field(default=False, init=False)

    def with_reader(self, reader: str) -> Document:
        skip: set[int] = set()
        while True:
            try:
                return self._run(reader, skip)
            except _Scanned:
                with self._place(_RECOGNISERS):
                    self.recognise, self.limits = True, self.limits.for_recognition()
                    return self.with_reader(reader)
            except _Crashed as crash:
                if crash.page is None or crash.page in skip or len(skip) >= _MOST_CRASHES:
                    raise DamagedDocumentError(
                        f"Reading {self.path.name} made the reader crash",
                        remedy="The file is damaged or hostile; get it again, or print it to a new PDF.",
                    ) from crash
                skip.add(crash.page)

    def _run(self, reader: str, skip: set[int]) -> Document:
        with self._place(_PLACES):
            started = time.monotonic()
            with ChildProcess(_READER) as child:
                child.ask({"path": str(self.path.resolve()), "name": self.path.name, "reader": reader,
                           "password": self.password, "encoding": self.encoding,
                           "skip": sorted(skip), "recognise": self.recognise,
                           "recognisable": reader != "pypdf" and recognisable(),
                           "limits": dataclasses.asdict(self.limits)})
                return self._collect(child, started)

    @contextlib.contextmanager
    def _place(self, places: threading.BoundedSemaphore) -> Iterator[None]:
        while not places.acquire(timeout=_TICK):
            self._heed_cancel()
        try:
            yield
        finally:
            places.release()

    def _heed_cancel(self) -> None:
        if self.cancel is not None and self.cancel.is_set():
            raise ReadCancelled(self.path.name)

    def _collect(self, child: ChildProcess, started: float) -> Document:
        at: int | None = None
        total = 0
        heading: dict[str, Any] = {}
        pages: list[Page] = []
        while True:
            message = self._next(child, started, total)
            if message is None:
                raise _Crashed(at)
            if "sniffed" in message:
                self.kind = message["sniffed"] if message["sniffed"] in _KINDS else ""
            elif "at" in message:
                at, total = int(message["at"]), int(message["pages"])
                self.progress(at, total)
            elif "extracted" in message:
                at = None
                total = int(message["extracted"])
                self.progress(total, total)
            elif "part" in message:
                self.part(Document(self.path.stem, self.kind, tuple(map(_page, message["part"])), ""))
            elif "kind" in message:
                heading = message
            elif "label" in message:
                pages.append(_page(message))
            elif "scanned" in message and not self.recognise:
                raise _Scanned
            elif "done" in message and message["done"] == len(pages) > 0:
                warnings = tuple(str(warning) for warning in heading["warnings"])
                title = " ".join(str(heading["title"]).split())[:200] or self.path.stem
                chapters = tuple(Chapter(str(name), *map(int, place)) for name, *place in heading["chapters"])
                language = str(heading["language"])
                return Document(title, self.kind, tuple(pages), str(heading["reader"]), warnings, chapters,
                                language if _LANGUAGE.fullmatch(language) else "",
                                tuple(str(note) for note in heading["notes"]),
                                heading["recognised"] if heading["recognised"] in NAMED else "")
            elif "error" in message:
                raise _rebuilt(message)

    def _next(self, child: ChildProcess, started: float, total: int) -> dict[str, Any] | None:
        """Return the child's next message; None when it died. Watches the clock and the cancel event meanwhile."""
        quiet_since = time.monotonic()
        while True:
            self._heed_cancel()
            message = child.next(_TICK)
            if message is not NOTHING:
                return message
            now = time.monotonic()
            quiet = now - quiet_since > self.limits.page_seconds
            if quiet or now - started > self.limits.seconds_for(total):
                self.out_of_time = True
                raise DocumentTooLargeError(
                    f"{self.path.name} takes too long to read",
                    allowed=f"{self.limits.page_seconds:g} s a page, {self.limits.seconds_for(total):g} s in all",
                    remedy="Split it, or print it to a new PDF.",
                )


def _page(message: dict[str, Any]) -> Page:
    words = tuple(Word(str(text), *map(float, box)) for text, *box in message["words"])
    return Page(str(message["label"]), str(message["text"]), words)


def _rebuilt(message: dict[str, Any]) -> DocumentError:
    """Return an error as the child worded it; only kinds of DocumentError can come."""
    kind = getattr(errors, str(message["error"]), DamagedDocumentError)
    if not (isinstance(kind, type) and issubclass(kind, DocumentError)):
        kind = DamagedDocumentError
    text, allowed, remedy = (str(message.get(part, ""))[:1000] for part in ("message", "allowed", "remedy"))
    if issubclass(kind, UnclearEncodingError):
        readings = [[str(part)[:200] for part in reading] for reading in message["readings"][:3] if len(reading) == 3]
        return kind(text, allowed=allowed, remedy=remedy, readings=readings)
    return kind(text, allowed=allowed, remedy=remedy)
