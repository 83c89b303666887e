"""``read_document``: a file in, a Document out, whatever the file does to the process that reads it."""

from __future__ import annotations

import dataclasses
import json
import os
import queue
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .. import errors
from ..errors import DamagedDocumentError, DocumentError, DocumentTooLargeError, EncryptedDocumentError
from .document import Document, Page
from .frames import BrokenFrameError, read_frame
from .limits import ReadLimits
from .sniff import check_file, sniff

Progress = Callable[[int, int], None]
_PDF_READERS = ("pypdfium2", "pypdf")
_MOST_CRASHES = 3  # pages that may kill a reader before it is given up
_TICK = 0.05
_NOTHING: dict[str, Any] = {}  # a mark: nothing came yet
_ROOT = Path(__file__).resolve().parents[2]


class ReadCancelled(Exception):
    """The cancel event was set."""


class _Crashed(Exception):
    """The reader process ended without a last word. page: where it was, None before the first page."""

    def __init__(self, page: int | None) -> None:
        super().__init__(page)
        self.page = page


def read_document(
    path: Path | str,
    password: str | None = None,
    *,
    limits: ReadLimits | None = None,
    progress: Progress | None = None,
    cancel: threading.Event | None = None,
) -> Document:
    """Read a file in a short-lived process of its own. Raises DocumentError and its subclasses, or ReadCancelled.

    progress is called with (pages read, pages in all) from this thread. Nothing is cut: what cannot be read is either
    named in the document's warnings or ends in an error."""
    path = Path(path)
    limits = limits or ReadLimits()
    size = check_file(path)
    if size > limits.file_bytes:
        raise DocumentTooLargeError(
            f"{path.name} is {size / 1e6:,.0f} MB",
            allowed=f"up to {limits.file_bytes / 1e6:,.0f} MB",
            remedy="Split it into smaller files.",
        )
    kind = sniff(path)
    attempt = _Attempt(path, kind, password, limits, progress or (lambda done, total: None), cancel)
    first_problem: DocumentError | None = None
    for reader in _PDF_READERS if kind == "pdf" else ("",):
        try:
            return attempt.with_reader(reader)
        except (EncryptedDocumentError, errors.ScannedDocumentError):
            raise
        except DocumentError as problem:
            if isinstance(problem, DocumentTooLargeError) and attempt.out_of_time:
                raise
            better = not isinstance(problem, DamagedDocumentError)
            first_problem = problem if first_problem is None or better else first_problem
    assert first_problem is not None
    raise first_problem


@dataclass
class _Attempt:
    """One file, read by one reader after another, page by page around what kills them."""

    path: Path
    kind: str
    password: str | None
    limits: ReadLimits
    progress: Progress
    cancel: threading.Event | None
    out_of_time: bool = field(default=False, init=False)

    def with_reader(self, reader: str) -> Document:
        skip: set[int] = set()
        while True:
            try:
                return self._run(reader, skip)
            except _Crashed as crash:
                if crash.page is None or crash.page in skip or len(skip) >= _MOST_CRASHES:
                    raise DamagedDocumentError(
                        f"Reading {self.path.name} made the reader crash",
                        remedy="The file is damaged or hostile; get it again, or print it to a new PDF.",
                    ) from crash
                skip.add(crash.page)

    def _run(self, reader: str, skip: set[int]) -> Document:
        started = time.monotonic()
        with _ReaderProcess() as child:
            child.ask(
                {
                    "path": str(self.path.resolve()),
                    "name": self.path.name,
                    "kind": self.kind,
                    "reader": reader,
                    "password": self.password,
                    "skip": sorted(skip),
                    "limits": dataclasses.asdict(self.limits),
                }
            )
            return self._collect(child, started)

    def _collect(self, child: _ReaderProcess, started: float) -> Document:
        at: int | None = None
        total = 0
        heading: dict[str, Any] = {}
        pages: list[Page] = []
        while True:
            message = self._next(child, started, total)
            if message is None:
                raise _Crashed(at)
            if "at" in message:
                at, total = int(message["at"]), int(message["pages"])
                self.progress(at, total)
            elif "extracted" in message:
                at = None
                total = int(message["extracted"])
                self.progress(total, total)
            elif "kind" in message:
                heading = message
            elif "label" in message:
                pages.append(Page(str(message["label"]), str(message["text"])))
            elif "done" in message and message["done"] == len(pages) > 0:
                warnings = tuple(str(warning) for warning in heading["warnings"])
                title = " ".join(str(heading["title"]).split())[:200] or self.path.stem
                return Document(title, self.kind, tuple(pages), str(heading["reader"]), warnings)
            elif "error" in message:
                raise _rebuilt(message)

    def _next(self, child: _ReaderProcess, started: float, total: int) -> dict[str, Any] | None:
        """The child's next message; None when it died. Watches the clock and the cancel event meanwhile."""
        quiet_since = time.monotonic()
        while True:
            if self.cancel is not None and self.cancel.is_set():
                raise ReadCancelled(self.path.name)
            message = child.next(_TICK)
            if message is not _NOTHING:
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


class _ReaderProcess:
    """The child and a thread that listens to it, so that waiting works the same on every system."""

    def __init__(self) -> None:
        environment = {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")}
        environment |= {"PYTHONPATH": str(_ROOT), "PYTHONHASHSEED": "0", "PYTHONDONTWRITEBYTECODE": "1"}
        self._process = subprocess.Popen(
            [sys.executable, "-X", "utf8", "-m", "triforce_core.documents.reader_process"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=environment, cwd=_ROOT,
        )  # fmt: skip
        self._messages: queue.Queue[dict[str, Any] | None] = queue.Queue(maxsize=256)
        self._closed = threading.Event()
        self._listener = threading.Thread(target=self._listen, name="document-reader", daemon=True)
        self._listener.start()

    def __enter__(self) -> _ReaderProcess:
        return self

    def __exit__(self, *_: object) -> None:
        self._closed.set()
        self._process.kill()
        self._process.wait()
        self._listener.join(timeout=5)
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                try:
                    stream.close()
                except OSError:
                    continue

    def ask(self, request: dict[str, Any]) -> None:
        """The request goes through stdin: a password on the command line could be seen by others."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(request).encode() + b"\n")
            self._process.stdin.close()
        except OSError:
            return  # it died at once; the listener says so

    def next(self, timeout: float) -> dict[str, Any] | None:
        try:
            return self._messages.get(timeout=timeout)
        except queue.Empty:
            return _NOTHING

    def _listen(self) -> None:
        assert self._process.stdout is not None
        message: dict[str, Any] | None = _NOTHING
        while message is not None and not self._closed.is_set():
            try:
                message = read_frame(self._process.stdout)
            except (BrokenFrameError, OSError, ValueError):
                message = None
            while not self._closed.is_set():
                try:
                    self._messages.put(message, timeout=_TICK)
                    break
                except queue.Full:
                    continue


def _rebuilt(message: dict[str, Any]) -> DocumentError:
    """An error as the child worded it; only kinds of DocumentError can come."""
    kind = getattr(errors, str(message["error"]), DamagedDocumentError)
    if not (isinstance(kind, type) and issubclass(kind, DocumentError)):
        kind = DamagedDocumentError
    words = (str(message.get(part, ""))[:1000] for part in ("message", "allowed", "remedy"))
    text, allowed, remedy = words
    return kind(text, allowed=allowed, remedy=remedy)
