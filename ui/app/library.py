"""The documents a person added: files stored by content, their text beside them, one row each in the database.

``<library>/<sha256>/original.<ext>`` and ``document.json``. A file's name is for display only and never part of a
path. Reading the files is ``extraction``'s work; this module stores what came of it, and knows which snapshots (saved
readings) there are.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import sqlite3
import threading
import time
import uuid
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import astuple, dataclass
from pathlib import Path

from triforce_core import (
    Chapter,
    Document,
    DocumentOpened,
    NotEnoughDiskError,
    Page,
    SnapshotStore,
    TriForceError,
    Word,
    page_ranges,
    together,
    whole_text,
)

from .database import Database
from .folders import plainly, write_private

FILE_MISSING = "{name} cannot be read: there is no such file."
FILE_EMPTY = "{name} is empty (0 bytes). Choose a file with content."
PHASES = {
    "extracting": "Extracting text", "part": "Still being read", "locked": "Needs its password",
    "failed": "Could not be read",
    "waiting": "Waiting for the engine", "loading": "Starting the engine",
    "tokenize": "Turning the text into tokens", "read": "Reading", "find": "Finding its passages",
    "restore": "Reopening the saved reading", "save": "Saving the reading", "problem": "Not read",
    "tune": "Measuring this machine", "warm-up": "Preparing the engine for it", "draft": "Reading with the draft model",
    "served": "The server is reading",
    "too_long": "Long: read in parts", "ready": "Ready", "busy": "Read; engine busy", "resting": "Saved",
    "unsaved": "Read before", "closed": "Not read yet",
}
TOO_FEW = "Tick at least two documents, and at most {most}."
PART_MISSING = "The text of one of these documents is not there yet. Open it alone first."

Ranges = tuple[tuple[int, int], ...]  # pages first..last, counted from 1, in order and apart
EXTENSIONS = (".pdf", ".txt", ".md", ".markdown", ".rst", ".html", ".htm", ".docx", ".epub", ".csv", ".tsv",
              ".mht", ".mhtml", ".eml", ".png", ".jpg", ".jpeg", ".tif", ".tiff", ".webp")
MAX_UPLOAD_BYTES = 500 << 20
MOST_PARTS = 20  # documents that are read together
TEXTS_KEPT = 4  # of the documents used last, in memory


@dataclass(frozen=True)
class Entry:
    """One document of the library.

    state: as of PHASES, or "new"; "part": the text of its first pages is there, that of the others comes.
    chosen: the pages to be read, as ``page_ranges`` takes them ("": all). read_with: the model that read it last.
    readings: ``Document.id`` of every choice of its pages that was read, which is how snapshots name them. parts: the
    documents that it was put together from; it has no file of its own. language: as of ``language``. suggested: as
    ``suggestions`` keeps it. deleted_at: set while Undo can bring it back."""

    id: str
    name: str
    extension: str
    bytes: int
    added_at: float
    opened_at: float | None
    state: str
    error: str
    title: str
    kind: str
    pages: int
    characters: int
    warnings: tuple[str, ...]
    tokens: int | None
    read_seconds: float | None
    words: int = 0
    read_with: str = ""
    readings: tuple[str, ...] = ()
    language: str = ""
    chosen: str = ""
    parts: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    suggested: str = ""
    deleted_at: float | None = None

    @property
    def is_drawn(self) -> bool:
        """Say whether its pages can be shown as pictures."""
        return self.kind in ("pdf", "picture")

    @property
    def has_text(self) -> bool:
        """Say whether its pages, or the first of them, can be looked into."""
        return self.state in ("ready", "part")

    @property
    def ranges(self) -> Ranges:
        """Return the pages to be read."""
        return page_ranges(self.chosen, self.pages) if self.chosen else ((1, self.pages),)


class Library:
    """Adds, lists and forgets documents. ``version`` grows with every change, so that a screen knows when to redraw."""

    def __init__(self, database: Database, folder: Path) -> None:
        self._database, self._folder = database, folder
        self._lock = threading.Lock()
        self._filing = threading.RLock()  # a document's row and its folder change together
        self._read: dict[str, Document] = {}  # texts
        self._cached: list[Entry] = []
        self._cached_version = -1
        self.version = 0
        database.write("update documents set state = 'new' where state in ('extracting', 'part')")

    # -- entries

    def add(self, path: Path, name: str | None = None) -> Entry:
        """Copy a file in; the same content is the same entry. Raises TriForceError for what cannot be a document."""
        name = whole_text(name or path.name).strip() or "document"
        if not os.path.isfile(path):
            raise TriForceError(FILE_MISSING.format(name=name))
        size = path.stat().st_size
        if not size:
            raise TriForceError(FILE_EMPTY.format(name=name))
        with open(path, "rb") as file:
            key = hashlib.file_digest(file, "sha256").hexdigest()
        self.restore(key)
        known = self.get(key)
        if known is not None:
            return known
        extension = Path(name).suffix.lower()
        copy = self._folder / f"{uuid.uuid4().hex}.partial"  # its own: the same file may be added twice at once
        try:
            with plainly(copy):
                shutil.copyfile(path, copy)
                os.chmod(copy, 0o600)
            with self._filing:
                return self.get(key) or self._file_away(
                    copy, key, name, extension if extension in EXTENSIONS else ".bin", size)
        finally:
            copy.unlink(missing_ok=True)

    def _file_away(self, copy: Path, key: str, name: str, extension: str, size: int) -> Entry:
        target = self._folder / key
        stored = target / f"original{extension}"
        try:
            with plainly(stored):
                target.mkdir(mode=0o700, exist_ok=True)
                os.replace(copy, stored)
            return self._insert(key, name, extension, size, ())
        except TriForceError:  # a copy that nobody knows of would fill the disk for nothing
            stored.unlink(missing_ok=True)
            raise

    def _insert(self, key: str, name: str, extension: str, size: int, parts: Sequence[str]) -> Entry:
        self._change("insert or ignore into documents (id, name, extension, bytes, added_at, state, parts)"
                     " values (?,?,?,?,?,'new',?)", key, name, extension, size, time.time(), json.dumps(parts))
        return self._known(key)

    def _known(self, key: str) -> Entry:
        entry = self.get(key)
        assert entry is not None
        return entry

    def entries(self) -> list[Entry]:
        """Return all documents, the last added first: to open one does not move it away from under the hand."""
        with self._lock:
            if self._cached_version != self.version:
                version = self.version
                self._cached = self._select("deleted_at is null order by added_at desc, name")
                self._cached_version = version
            return list(self._cached)

    def get(self, key: str | None) -> Entry | None:
        return next((entry for entry in self.entries() if entry.id == key), None)

    def hidden(self) -> list[Entry]:
        """Return those that ``restore`` can bring back, the last deleted first."""
        return self._select("deleted_at is not null order by deleted_at desc")

    def _select(self, condition: str) -> list[Entry]:
        return [_entry(row) for row in self._database.rows(f"select * from documents where {condition}")]

    def file(self, entry: Entry) -> Path:
        """Return where the original is stored; contained in the library whatever the row says."""
        path = (self._folder / entry.id / f"original{entry.extension}").resolve()
        assert path.is_relative_to(self._folder.resolve()), path
        return path

    def update(self, key: str, **values: object) -> None:
        """Change columns of one document."""
        assignments = ", ".join(f"{column} = ?" for column in values)
        flat = (json.dumps(value) if isinstance(value, list | tuple) else value for value in values.values())
        self._change(f"update documents set {assignments} where id = ?", *flat, key)

    def _change(self, statement: str, *values: object) -> int:
        changed = self._database.write(statement, values)
        self.version += 1
        return changed

    def touch(self, key: str) -> None:
        """Note that it is the one used last. That must not fail where a full disk cannot keep it."""
        with suppress(NotEnoughDiskError):
            self._change("update documents set opened_at = ? where id = ?", time.time(), key)

    def is_here(self, entry: Entry) -> bool:
        """Return whether this is still in the library: not deleted, nor deleted and added again."""
        now = self.get(entry.id)
        return now is not None and now.added_at == entry.added_at

    def mark(self, entry: Entry, state: str, error: str = "") -> bool:
        """Change the state of a document if it ``is_here``. Return whether it is."""
        with self._filing:
            here = self.is_here(entry)
            if here:
                self.update(entry.id, state=state, error=error)
        return here

    def hide(self, key: str) -> None:
        """Delete a document so that ``restore`` can bring it back as it was, with its conversations."""
        self._change("update documents set deleted_at = ? where id = ?", time.time(), key)

    def restore(self, key: str) -> None:
        """Bring back one that was hidden; a text that was being taken out then has to be taken out again."""
        with self._filing:
            self._change("update documents set deleted_at = null, state = case when state in ('extracting', 'part')"
                         " then 'new' else state end where id = ? and deleted_at is not null", key)

    def delete(self, key: str, *, hidden: bool = False) -> None:
        """Forget a document, its text and its conversations. hidden: only if it is so still."""
        only = " and deleted_at is not null" if hidden else ""
        with self._filing:
            if not self._change(f"delete from documents where id = ?{only}", key):
                return
            folder = (self._folder / key).resolve()
            if folder.parent == self._folder.resolve():
                shutil.rmtree(folder, ignore_errors=True)
            self._read.pop(key, None)

    # -- texts

    def document(self, key: str) -> Document | None:
        """Return the text of a ready document, or None if it has to be extracted (again)."""
        kept = self._read.get(key)  # in one step: another thread may forget it
        if kept is not None:
            return kept
        known = self.get(key)
        document = self._together(known.parts) if known is not None and known.parts else self._load(key)
        if document is not None:
            self._remember(key, document)
        return document

    def _load(self, key: str) -> Document | None:
        try:
            content = json.loads((self._folder / key / "document.json").read_text(encoding="utf-8"))
            pages = tuple(Page(label, text, tuple(Word(*word) for words in recognised for word in words))
                          for label, text, *recognised in content["pages"])
            chapters = tuple(Chapter(*chapter) for chapter in content.get("chapters", ()))
            return Document(content["title"], content["kind"], pages, content["reader"], tuple(content["warnings"]),
                            chapters, content.get("language", ""), tuple(content.get("notes", ())),
                            content.get("recognised", ""))
        except (OSError, ValueError, KeyError):
            return None

    def keep_text(self, entry: Entry, document: Document, state: str = "ready") -> None:
        """``store`` what was read from a document's file if it ``is_here``."""
        with self._filing:
            if self.is_here(entry):
                self.store(entry.id, document, state)

    def store(self, key: str, document: Document, state: str = "ready") -> None:
        """Keep what was read from the file. state: "part" where more will come."""
        content = {"title": document.title, "kind": document.kind, "reader": document.reader,
                   "warnings": document.warnings, "notes": document.notes,
                   "pages": [[page.label, page.text, [astuple(word) for word in page.words]]
                             for page in document.pages],
                   "chapters": [astuple(chapter) for chapter in document.chapters], "language": document.language,
                   "recognised": document.recognised}
        write_private(self._folder / key / "document.json", json.dumps(content))
        self._is_ready(key, document, state)
        for entry in self.holding(key) if state == "ready" else ():
            self._read.pop(entry.id, None)
            whole = self._together(entry.parts)
            if whole is not None:
                self._is_ready(entry.id, whole)

    def _is_ready(self, key: str, document: Document, state: str = "ready") -> None:
        self._remember(key, document)
        before = self.get(key)
        if before and before.pages != len(document.pages):  # other pages than those that were chosen
            self.update(key, chosen="")
        self.update(key, state=state, error="", title=document.title, kind=document.kind, pages=len(document.pages),
                    characters=document.characters, warnings=document.warnings, notes=document.notes,
                    words=sum(len(page.text.split()) for page in document.pages), language=language(document))

    def _remember(self, key: str, document: Document) -> None:
        with self._lock:
            self._read[key] = document
            while len(self._read) > TEXTS_KEPT:
                del self._read[next(iter(self._read))]

    # -- documents that are read together

    def combine(self, keys: Sequence[str]) -> Entry:
        """Return the entry of several documents as one, in this order; the same ones in the same order are the same
        entry. Raises TriForceError where the text of one is not there."""
        flat = dict.fromkeys(part for key in keys if (known := self.get(key)) for part in (known.parts or (key,)))
        parts = [entry for entry in map(self.get, flat) if entry is not None]
        if len(parts) < 2 or len(parts) > MOST_PARTS:
            raise TriForceError(TOO_FEW.format(most=MOST_PARTS))
        key = hashlib.sha256("\0".join(("together", *flat)).encode()).hexdigest()
        document = self._together(tuple(flat))
        if document is None or any(part.state != "ready" for part in parts):
            raise TriForceError(PART_MISSING)
        self.restore(key)
        if self.get(key) is None:
            self._insert(key, document.title[:200], "", sum(part.bytes for part in parts), list(flat))
        self._is_ready(key, document)
        return self._known(key)

    def _together(self, parts: Sequence[str]) -> Document | None:
        found = [text for part in parts if (text := self.document(part)) is not None]
        return together(found) if len(found) == len(parts) else None

    def holding(self, key: str) -> list[Entry]:
        """Return the entries that were put together from this document and others."""
        return [entry for entry in self.entries() if key in entry.parts]

    def parts(self, entry: Entry) -> list[Entry]:
        """Return the documents that it is made of: itself, or those that it was put together from."""
        return [part for key in entry.parts if (part := self.get(key))] if entry.parts else [entry]

    def place(self, entry: Entry, page: int) -> tuple[Entry, int]:
        """Return whose file a page stands in, and which page of it that is; both counted from 1."""
        for part in self.parts(entry):
            if page <= part.pages:
                return part, page
            page -= part.pages
        raise AssertionError("a page that is not there")

    # -- readings

    def was_read(self, key: str, ranges: Ranges, opened: DocumentOpened, model: str) -> None:
        """Keep what came of putting pages of a document into the cache; its figures are those of the pages that are
        chosen now."""
        entry = self.get(key)
        if entry is not None:
            readings = [*(kept for kept in entry.readings if kept != opened.document_id), opened.document_id]
            with suppress(NotEnoughDiskError):  # it stands in the cache, and can be asked about
                self.update(key, readings=readings)
                if ranges == entry.ranges:
                    self.update(key, tokens=opened.tokens, read_seconds=opened.read_seconds, read_with=model)

    def reading_rate(self, model: str) -> float:
        """Return the tokens per second of the last whole reading with this model on this machine; 0 for none."""
        rates = ((entry.opened_at or 0.0, entry.tokens / entry.read_seconds) for entry in self.entries()
                 if entry.read_with == model and entry.tokens and entry.read_seconds)
        return max(rates, default=(0.0, 0.0))[1]

    def begins_to_be_read(self, key: str, document_id: str) -> None:
        """Note these pages (``Document.id``): a snapshot of an unfinished reading is deleted with the document too."""
        entry = self.get(key)
        if entry is not None and document_id not in entry.readings:
            with suppress(NotEnoughDiskError):
                self.update(key, readings=[*entry.readings, document_id])


def _entry(row: sqlite3.Row) -> Entry:
    return Entry(**(dict(row) | {name: tuple(json.loads(row[name]))
                                 for name in ("warnings", "notes", "readings", "parts")}))


# -- snapshots

@dataclass(frozen=True)
class SnapshotSpace:
    """Bytes: what all snapshots take, the most they may take, and what the disk has free."""

    used: int
    quota: int
    free: int


class Snapshots:
    """Snapshots on disk by document. Looks at the folder again only when something in it came, went or was used."""

    def __init__(self, folder: Path, quota: int) -> None:
        self._saved, self._seen = SnapshotStore(folder, quota), 0.0
        self._sizes: Counter[str] = Counter()
        self.version = 0

    def refresh(self) -> int:
        """Look whether anything changed. Return a number that grows with every change."""
        changed = self._saved.folder.stat().st_mtime if self._saved.folder.exists() else 0.0
        if changed != self._seen:
            self._seen, self._sizes = changed, Counter()
            for info in self._saved.list():
                self._sizes[info.document] += info.bytes
            self.version += 1
        return self.version

    def size(self, documents: tuple[str, ...]) -> int:
        """Return the bytes of the snapshots of these (``Document.id``)."""
        return sum(self._sizes[document] for document in documents)

    def space(self) -> SnapshotSpace:
        free = shutil.disk_usage(self._saved.folder).free if self._saved.folder.exists() else 0
        return SnapshotSpace(sum(self._sizes.values()), self._saved.quota_bytes, free)

    def remove_dead(self) -> tuple[int, int]:
        """Remove those that can never be opened again. Return how many, and their bytes."""
        removed = self._saved.remove_dead()
        return len(removed), sum(info.bytes for info in removed)

    def delete(self, documents: tuple[str, ...]) -> None:
        for document in documents:
            self._saved.delete(document)
        self.refresh()


def language(document: Document) -> str:
    """Return the file's own language tag, then "~" and the one of its words, either of which may be missing."""
    return document.language + (f"~{document.recognised}" if document.recognised else "")
