"""SQLite in WAL mode: one connection behind a lock, and the tables. Knows rows, not their meaning.

Older files gain the columns of ADDED when they are opened. Questions and answers stand in a full-text index too, kept
in step by triggers; where SQLite was built without FTS5, ``full_text`` is False and there is none.

What the disk refuses is told as NotEnoughDiskError or FolderError.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import sqlite3
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from triforce_core import NotEnoughDiskError

from .folders import DISK_FULL, DISK_FULL_REMEDY, NOT_WRITABLE, NOT_WRITABLE_REMEDY, FolderError, plainly

DATABASE_DAMAGED = "The database {path} is damaged"
DATABASE_DAMAGED_REMEDY = "Start the app again: it sets the file aside and begins with a new one."

_LEAST_FREE = 64 << 10  # bytes; where fewer are free SQLite may call a full disk an input/output error

SCHEMA = """
create table if not exists documents (
    id text primary key, name text not null, extension text not null, bytes integer not null,
    added_at real not null, opened_at real, state text not null, error text not null default '',
    title text not null default '', kind text not null default '', pages integer not null default 0,
    characters integer not null default 0, warnings text not null default '[]',
    tokens integer, read_seconds real);
create table if not exists conversations (
    id text primary key, document text not null references documents(id) on delete cascade,
    title text not null, created_at real not null, updated_at real not null);
create table if not exists answers (
    id text primary key, conversation text not null references conversations(id) on delete cascade,
    created_at real not null, question text not null, text text not null default '',
    token_ids text not null default '[]', state text not null, error text not null default '',
    result text not null default '{}');
create table if not exists traces (
    answer text primary key references answers(id) on delete cascade, trace text not null);
create table if not exists races (
    document text primary key references documents(id) on delete cascade,
    created_at real not null, question text not null, result text not null);
create index if not exists answers_in_order on answers (conversation, created_at);
"""

ADDED = (("answers", "parent", "text"), ("conversations", "leaf", "text not null default ''"),
         ("conversations", "system", "text not null default ''"),
         ("documents", "words", "integer not null default 0"), ("documents", "read_with", "text not null default ''"),
         ("documents", "readings", "text not null default '[]'"),
         ("documents", "language", "text not null default ''"), ("documents", "chosen", "text not null default ''"),
         ("documents", "parts", "text not null default '[]'"), ("documents", "notes", "text not null default '[]'"),
         ("documents", "suggested", "text not null default ''"), ("documents", "deleted_at", "real"),
         ("conversations", "deleted_at", "real"))
# One range of pages was all that could be chosen once.
RANGES = """
update documents set chosen = first_page || '-' || last_page where first_page is not null;
alter table documents drop column first_page;
alter table documents drop column last_page;
"""
# An answer that knows no parent comes from a time without branches: it follows the one before it.
CHAIN = """
update answers set parent = coalesce((select earlier.id from answers as earlier
    where earlier.conversation = answers.conversation
      and (earlier.created_at, earlier.rowid) < (answers.created_at, answers.rowid)
    order by earlier.created_at desc, earlier.rowid desc limit 1), '') where parent is null;
update conversations set leaf = coalesce((select id from answers where conversation = conversations.id
    order by created_at desc, rowid desc limit 1), '') where leaf = '';
"""
# So that none of many conversations costs what is not shown.
INDEXES = """
create index if not exists conversations_in_order on conversations (document, updated_at);
create index if not exists conversations_deleted on conversations (deleted_at) where deleted_at is not null;
"""
# Once, an answer was found in the full-text index by its id, which reads all of the index.
BY_ID = """
drop trigger words_added; drop trigger words_changed; drop trigger words_gone; drop table words;
"""
FULL_TEXT = """
create virtual table words using fts5 (question, text, tokenize = 'unicode61 remove_diacritics 2');
insert into words (rowid, question, text) select rowid, question, text from answers;
create trigger words_added after insert on answers begin
    insert into words (rowid, question, text) values (new.rowid, new.question, new.text); end;
create trigger words_changed after update of question, text on answers when new.text <> old.text begin
    update words set text = new.text where rowid = new.rowid; end;
create trigger words_gone after delete on answers begin delete from words where rowid = old.rowid; end;
"""


class DamagedDatabaseError(FolderError): ...


class Database:
    """Thread-safe. Every write is committed when the call returns. set_aside: where a damaged file was put, if one was.
    """

    def __init__(self, path: Path) -> None:
        self._lock, self._path = threading.Lock(), path
        self.set_aside: Path | None = None
        try:
            self._open()
        except DamagedDatabaseError:
            self._connection.close()
            self.set_aside = _set_aside(path)
            self._open()
        with plainly(path):
            path.with_suffix(".reserve").unlink(missing_ok=True)  # what earlier versions kept free beside it

    def _open(self) -> None:
        with self._lock, self._plainly():
            self._connection = sqlite3.connect(self._path, check_same_thread=False)
            with plainly(self._path):
                os.chmod(self._path, 0o600)
            self._connection.row_factory = sqlite3.Row
            self._connection.execute("pragma journal_mode = wal")
            self._connection.execute("pragma synchronous = normal")
            if self._connection.execute("pragma quick_check (1)").fetchone()[0] != "ok":
                raise self._damaged()
            self._connection.execute("pragma foreign_keys = on")
            self._connection.executescript(SCHEMA)
            for table, column, kind in ADDED:
                if column not in self._columns(table):
                    self._connection.execute(f"alter table {table} add column {column} {kind}")
            if "first_page" in self._columns("documents"):
                self._connection.executescript(f"begin; {RANGES} commit;")
            self._connection.executescript(CHAIN + INDEXES)
            self.full_text = self._index()

    @contextlib.contextmanager
    def _plainly(self) -> Iterator[None]:
        """What SQLite refuses, in words that say what to do. A mistake in a statement stays what it is."""
        try:
            yield
        except sqlite3.Error as error:
            code = getattr(error, "sqlite_errorcode", 0) & 0xFF  # without what is told in addition
            full = code == sqlite3.SQLITE_FULL
            if code in (sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CANTOPEN):
                full = shutil.disk_usage(self._path.parent).free < _LEAST_FREE
            if full:
                raise NotEnoughDiskError(DISK_FULL.format(folder=self._path.parent),
                                         remedy=DISK_FULL_REMEDY) from error
            if code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
                raise self._damaged() from error
            if code in (sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PERM):
                raise FolderError(NOT_WRITABLE.format(path=self._path, why=error),
                                  remedy=NOT_WRITABLE_REMEDY) from error
            raise

    def _damaged(self) -> DamagedDatabaseError:
        return DamagedDatabaseError(DATABASE_DAMAGED.format(path=self._path),
                                    remedy=DATABASE_DAMAGED_REMEDY)

    def _columns(self, table: str) -> set[str]:
        return {row["name"] for row in self._connection.execute(f"pragma table_info({table})")}

    def _index(self) -> bool:
        """Make the full-text index unless it is there; False where SQLite cannot."""
        columns = self._columns("words")
        if columns and "answer" not in columns:
            return True
        try:
            self._connection.executescript(f"begin; {BY_ID if columns else ''} {FULL_TEXT} commit;")
        except sqlite3.OperationalError as error:
            self._connection.rollback()
            if "fts5" not in str(error):
                raise
            return False
        return True

    def write(self, statement: str, values: Sequence[Any] = ()) -> int:
        """Run one statement and commit; the number of rows it touched. Raises NotEnoughDiskError, FolderError."""
        with self._lock, self._plainly(), self._connection:
            return self._connection.execute(statement, values).rowcount

    def rows(self, statement: str, values: Sequence[Any] = ()) -> list[sqlite3.Row]:
        with self._lock, self._plainly():
            return self._connection.execute(statement, values).fetchall()

    def row(self, statement: str, values: Sequence[Any] = ()) -> sqlite3.Row | None:
        found = self.rows(statement, values)
        return found[0] if found else None

    def close(self) -> None:
        with self._lock:
            self._connection.close()


def _set_aside(path: Path) -> Path:
    """Rename a damaged database, with what SQLite keeps beside it; its new name."""
    aside = path.with_name(f"{path.stem}.damaged-{time.strftime('%Y%m%d-%H%M%S')}{path.suffix}")
    for more in ("", "-wal", "-shm"):
        file = path.with_name(path.name + more)
        if file.exists():
            with plainly(file):
                file.rename(aside.with_name(aside.name + more))
    return aside
