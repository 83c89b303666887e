"""Files -> text, beside the engine's desk: extraction never waits for an answer, and no answer for extraction."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path

from triforce_core import Document, EncryptedDocumentError, TriForceError

from . import strings
from .library import Entry, Library

log = logging.getLogger(__name__)
Reader = Callable[..., Document]


@dataclass
class Extraction:
    """A file whose text is being taken out, page by page."""

    document: str
    pages_done: int = 0
    pages_total: int = 0
    cancelled: threading.Event = field(default_factory=threading.Event)


class ReadingRoom:
    """Extracts documents one at a time (``read`` does it in a child process of its own) and stores what comes out."""

    def __init__(self, library: Library, read: Reader, then: Callable[[str], None]) -> None:
        """then: called with the document's id when its text is there and it was opened rather than just added."""
        self._library, self._read, self._then = library, read, then
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="extract")
        self._wanted: set[str] = set()
        self.extractions: dict[str, Extraction] = {}
        self.version = 0

    def extract(self, document: str, *, password: str | None = None, then_read: bool = False) -> None:
        """Start on a document, unless that is under way."""
        if then_read:
            self._wanted.add(document)
        if document in self.extractions:
            return
        self.extractions[document] = Extraction(document)
        self._library.update(document, state="extracting", error="")
        self._pool.submit(self._work, self.extractions[document], password)

    def cancel(self, document: str) -> None:
        if document in self.extractions:
            self.extractions[document].cancelled.set()
            self.version += 1

    def close(self) -> None:
        for extraction in list(self.extractions.values()):
            extraction.cancelled.set()
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _work(self, extraction: Extraction, password: str | None) -> None:
        key = extraction.document
        entry = self._library.get(key)

        def progress(done: int, total: int) -> None:
            extraction.pages_done, extraction.pages_total = done, total
            self.version += 1

        if entry is None:
            return
        path: Path = self._library.file(entry)
        try:
            document = self._read(path, password, progress=progress, cancel=extraction.cancelled)
            self._library.store(key, titled(document, entry.name))
        except EncryptedDocumentError as error:
            self._library.update(key, state="locked", error=_named(error, path, entry) if password else "")
        except Exception as error:
            if extraction.cancelled.is_set():
                text = strings.READING_CANCELLED
            elif isinstance(error, TriForceError):
                text = _named(error, path, entry)
            else:
                log.exception("extraction failed")
                text = strings.UNEXPECTED.format(kind=type(error).__name__)
            self._library.update(key, state="failed", error=text)
        finally:
            self.extractions.pop(key, None)
            self.version += 1
        if key in self._wanted:
            self._wanted.discard(key)
            entry = self._library.get(key)
            if entry and entry.state == "ready":
                self._then(key)


def _named(error: TriForceError, path: Path, entry: Entry) -> str:
    """The error under the name that the person knows the file by."""
    return str(error).replace(path.name, entry.name)


def titled(document: Document, name: str) -> Document:
    """The document under a title a person recognises: its own, or its file's name (the stored file is 'original')."""
    title = document.title.strip()
    if not title or title.lower().startswith("original"):
        title = Path(name).stem
    return replace(document, title=title)
