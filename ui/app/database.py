"""SQLite in WAL mode: one connection behind a lock, and the tables. Knows rows, not their meaning.

Questions and answers stand in a full-text index too, kept in step by triggers; where SQLite was built without FTS5,
``full_text`` is False and there is none. A refusal of the disk is raised as NotEnoughDiskError or FolderError.
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
DATABASE_NEWER = "The database {path} is of a newer version of the app (format {version}; this one reads {most})"
DATABASE_NEWER_REMEDY = "Start the newer version, or this one with a --data-dir of its own."
SET_ASIDE = {  # reason in the file's name -> title, text
    "damaged": ("The database was damaged", "It was set aside as {path}; nothing in it was deleted. The app begins "
                "with a new one: add your documents again."),
    "older": ("The database is of an older version", "It was set aside as {path}; nothing in it was deleted. Its "
              "conversations can be read with “sqlite3 {path} .dump”, or by the version that wrote them. The app "
              "begins with a new one: add your documents again."),
}

VERSION = 1  # of the schema, kept as SQLite's user_version
_LEAST_FREE = 64 << 10  # bytes; where fewer are free SQLite may call a full disk an input/output error

SCHEMA = """
create table documents (
    id text primary key, name text not null, extension text not null, bytes integer not null,
    added_at real not null, opened_at real, state text not null, error text not null default '',
    title text not null default '', kind text not null default '', pages integer not null default 0,
    characters integer not null default 0, warnings text not null default '[]',
    tokens integer, read_seconds real, words integer not null default 0, read_with text not null default '',
    readings text not null default '[]', language text not null default '', chosen text not null default '',
    parts text not null default '[]', notes text not null default '[]', suggested text not null default '',
    deleted_at real);
create table conversations (
    id text primary key, document text not null references documents(id) on delete cascade,
    title text not null, created_at real not null, updated_at real not null,
    leaf text not null default '', system text not null default '', deleted_at real);
create table answers (
    id text primary key, conversation text not null references conversations(id) on delete cascade,
    created_at real not null, question text not null, text text not null default '',
    token_ids text not null default '[]', state text not null, error text not null default '',
    result text not null default '{}', parent text not null default '');
create table traces (
    answer text primary key references answers(id) on delete cascade, trace text not null);
create table races (
    document text primary key references documents(id) on delete cascade,
    created_at real not null, question text not null, result text not null);
create index answers_in_order on answers (conversation, created_at);
create index conversations_in_order on conversations (document, updated_at);
create index conversations_deleted on conversations (deleted_at) where deleted_at is not null;
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
COLUMNS = ("select tables.name, columns.name from sqlite_master as tables, pragma_table_info(tables.name) as columns"
           " where tables.name in ('documents', 'conversations', 'answers', 'traces', 'races')"
           " or (tables.name, columns.name) = ('words', 'answer')")  # once, answers stood in the index by their ids


class UnusableDatabaseError(FolderError):
    """The file is damaged, or older than the schema that ``migrate`` knows."""

    reason = "damaged"  # of SET_ASIDE


class Database:
    """Thread-safe. Every write is committed when the call returns. set_aside: title and text of a notice, where a file
    that cannot be used was put away."""

    def __init__(self, path: Path) -> None:
        self._lock, self._path = threading.Lock(), path
        self.set_aside: tuple[str, str] | None = None
        try:
            self._open()
        except UnusableDatabaseError as error:
            self._connection.close()
            title, text = SET_ASIDE[error.reason]
            self.set_aside = title, text.format(path=_rename(path, error.reason))
            self._open()

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
            migrate(self._connection, self._path)
            self.full_text = self._index()

    @contextlib.contextmanager
    def _plainly(self) -> Iterator[None]:
        """Raise SQLite's refusals in words that say what to do. A mistake in a statement stays what it is."""
        try:
            yield
        except sqlite3.Error as error:
            code = getattr(error, "sqlite_errorcode", 0) & 0xFF  # the primary one
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

    def _damaged(self) -> UnusableDatabaseError:
        return UnusableDatabaseError(DATABASE_DAMAGED.format(path=self._path), remedy=DATABASE_DAMAGED_REMEDY)

    def _index(self) -> bool:
        """Make the full-text index unless it is there. Return False where SQLite cannot."""
        if self._connection.execute("select 1 from sqlite_master where name = 'words'").fetchone():
            return True
        try:
            self._connection.executescript(f"begin; {FULL_TEXT} commit;")
        except sqlite3.OperationalError as error:
            self._connection.rollback()
            if "fts5" not in str(error):
                raise
            return False
        return True

    def write(self, statement: str, values: Sequence[Any] = ()) -> int:
        """Run one statement and commit. Return how many rows it touched. Raises NotEnoughDiskError, FolderError."""
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


def migrate(connection: sqlite3.Connection, path: Path) -> None:
    """Bring a file to VERSION: an empty one gets the schema, one of the last version without a number its number.

    Raises UnusableDatabaseError for one with other tables, FolderError for one of a newer version."""
    version = connection.execute("pragma user_version").fetchone()[0]
    if version > VERSION:
        raise FolderError(DATABASE_NEWER.format(path=path, version=version, most=VERSION), remedy=DATABASE_NEWER_REMEDY)
    if version == VERSION:
        return
    columns = {tuple(row) for row in connection.execute(COLUMNS)}
    with contextlib.closing(sqlite3.connect(":memory:")) as empty:
        empty.executescript(SCHEMA)
        known = set(empty.execute(COLUMNS))
    if columns and columns != known:
        error = UnusableDatabaseError(f"{path} has other tables")
        error.reason = "older"
        raise error
    script = "" if columns else SCHEMA
    connection.executescript(f"begin; {script} pragma user_version = {VERSION}; commit;")
    with plainly(path):
        path.with_suffix(".reserve").unlink(missing_ok=True)  # that such versions kept free beside it


def _rename(path: Path, reason: str) -> Path:
    """Rename a database, with the files that SQLite keeps beside it. Return its new name."""
    aside = path.with_name(f"{path.stem}.{reason}-{time.strftime('%Y%m%d-%H%M%S')}{path.suffix}")
    for more in ("", "-wal", "-shm"):
        file = path.with_name(path.name + more)
        if file.exists():
            with plainly(file):
                file.rename(aside.with_name(aside.name + more))
    return aside
