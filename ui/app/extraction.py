"""Files -> text, beside the engine's queue: extraction never waits for an answer, and no answer for extraction."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path

from triforce_core import READERS, Document, EncryptedDocumentError, TriForceError, UnclearEncodingError

from .jobs import READING_CANCELLED, UNEXPECTED
from .library import Entry, Library

log = logging.getLogger(__name__)
Reader = Callable[..., Document]


@dataclass(eq=False)
class Extraction:
    """A file whose text is being taken out, page by page.

    entry: the document as it was when this was asked for: the text is kept for that one, never for one that was added
    in its place. encoding: that the person chose. then_read: somebody opened it.
    started: it has a reader; keeping: its text is being stored, past
    cancelling. began: of ``time.monotonic``."""

    entry: Entry
    password: str | None = None
    encoding: str = ""
    then_read: bool = False
    pages_done: int = 0
    pages_total: int = 0
    started: bool = False
    keeping: bool = False
    began: float = 0.0
    cancelled: threading.Event = field(default_factory=threading.Event)

    @property
    def seconds_left(self) -> float | None:
        """Return an estimate by the pages that are done; None before the first and behind the last."""
        left = self.pages_total - self.pages_done
        return left * (time.monotonic() - self.began) / self.pages_done if left and self.pages_done else None


class TextExtractor:
    """Extracts a few documents at once (``read`` does it in a child process each) and stores what comes out.

    ``extractions`` holds those under way: a cancelled or deleted one leaves it at once, so that the same document can
    be asked for again, and whatever its reader still reports is dropped."""

    def __init__(self, library: Library, read: Reader, then: Callable[[str], None],
                 failed: Callable[[str, str], None] = lambda document, why: None) -> None:
        """then: called with a document's id when its text is there and it was opened rather than just added. failed:
        with the id and the reason when the text will not come."""
        self._library, self._read, self._then, self._failed = library, read, then, failed
        self._pool = ThreadPoolExecutor(READERS, thread_name_prefix="extract")
        self._lock = threading.Lock()
        self.extractions: dict[str, Extraction] = {}
        self.readings: dict[str, Sequence[Sequence[str]]] = {}  # of texts whose encoding is for the person to choose
        self.version = 0

    def extract(self, document: str, *, password: str | None = None, encoding: str = "",
                then_read: bool = False) -> None:
        """Start on a document, unless that is under way. Another password starts anew."""
        with self._lock:
            entry, now = self._library.get(document), self.extractions.get(document)
            if entry is None:
                return
            if now is not None and now.entry.added_at == entry.added_at:
                then_read = now.then_read = now.then_read or then_read
                if now.keeping or password in (None, now.password):
                    return
            if not self._library.mark(entry, "extracting"):
                return
            self._pool.submit(self._next)
            if now is not None:
                now.cancelled.set()
            self.extractions[document] = Extraction(entry, password, encoding, then_read)
            self.readings.pop(document, None)
            self.version += 1

    def cancel(self, document: str) -> None:
        with self._lock:
            now = self.extractions.get(document)
            if now is None or now.keeping:
                return
            now.cancelled.set()
            del self.extractions[document]
            self.version += 1
            self._library.mark(now.entry, "failed", READING_CANCELLED)
        self._failed(document, READING_CANCELLED)

    def close(self) -> None:
        """End all; what was under way starts anew with the app."""
        with self._lock:
            for extraction in self.extractions.values():
                extraction.cancelled.set()
            self.extractions.clear()
        self._pool.shutdown(cancel_futures=True)

    def _next(self) -> None:
        """Take one that waits: an opened one first, else in the order in which they came."""
        with self._lock:
            waiting = sorted((each for each in self.extractions.values() if not each.started),
                             key=lambda each: not each.then_read)
            if not waiting:  # it was cancelled
                return
            waiting[0].started, waiting[0].began = True, time.monotonic()
        try:
            self._work(waiting[0])
        except Exception:  # the database: what became of it cannot be written
            log.exception("extraction failed")

    def _work(self, extraction: Extraction) -> None:
        entry, path = extraction.entry, self._library.file(extraction.entry)

        def progress(done: int, total: int) -> None:
            extraction.pages_done, extraction.pages_total = done, total
            self.version += 1

        def part(document: Document) -> None:
            with self._lock:
                if self._is_wanted(extraction):
                    self._library.keep_text(entry, titled(document, entry.name), "part")

        state, text = "failed", ""
        try:
            chosen = {"encoding": extraction.encoding} if extraction.encoding else {}
            document = self._read(path, extraction.password, progress=progress, part=part, cancel=extraction.cancelled,
                                  **chosen)
            with self._lock:
                extraction.keeping = self._is_wanted(extraction)
            if extraction.keeping:
                self._library.keep_text(entry, titled(document, entry.name))
            state = "ready"
        except EncryptedDocumentError as error:
            state, text = "locked", str(error) if extraction.password else ""
        except TriForceError as error:
            text = str(error)
            if isinstance(error, UnclearEncodingError):
                self.readings[entry.id] = error.readings
        except Exception as error:
            if not extraction.cancelled.is_set():
                log.exception("extraction failed")
            text = UNEXPECTED.format(kind=type(error).__name__)
        self._end(extraction, state, text.replace(path.name, entry.name))  # the name that the person knows

    def _end(self, extraction: Extraction, state: str, error: str) -> None:
        with self._lock:
            if not self._is_wanted(extraction):
                return
            del self.extractions[extraction.entry.id]
            self.version += 1
            here = self._library.is_here(extraction.entry) if state == "ready" else self._library.mark(
                extraction.entry, state, error)
        if here and extraction.then_read and state == "ready":
            self._then(extraction.entry.id)
        if state == "failed":
            self._failed(extraction.entry.id, error)

    def _is_wanted(self, extraction: Extraction) -> bool:
        return self.extractions.get(extraction.entry.id) is extraction


def titled(document: Document, name: str) -> Document:
    """Return the document under its own title, or its file's name (the stored file is 'original')."""
    title = document.title.strip()
    if not title or title.lower().startswith("original"):
        title = Path(name).stem
    return replace(document, title=title)
