"""Conversations and their answers, kept with statistics, tokens and attention. The database is the only memory.

The answers of a conversation are a tree: to ask again, or in other words, begins a branch beside the old answer, and
nothing is lost. ``leaf`` names the answer at the end of the branch that is shown; its ancestors are the history.
"""

from __future__ import annotations

import json
import threading
import time
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from triforce_core import TriForceError, Turn

from .database import Database
from .trace import Trace

NOT_SAVED = "{why} Until then this page alone holds what was written last: it is saved as soon as that is possible."

TITLE_LENGTH = 60
# Neither deleted, nor of a deleted document.
SHOWN = ("conversations.deleted_at is null"
         " and conversations.document in (select id from documents where deleted_at is null)")


@dataclass(frozen=True)
class Conversation:
    id: str
    document: str
    title: str
    created_at: float
    updated_at: float
    leaf: str = ""
    system: str = ""  # the person's instructions for all its answers
    deleted_at: float | None = None  # of one that Undo can bring back


@dataclass(frozen=True)
class Answer:
    """One question and what came of it. state: done, stopped or failed ('running' only while a run writes it).

    result: what ``accumulator`` made of the events, as plain JSON (statistics, page shares, passages)."""

    id: str
    conversation: str
    created_at: float
    question: str
    text: str
    token_ids: tuple[int, ...]
    state: str
    error: str
    result: dict[str, Any] = field(default_factory=dict)
    parent: str = ""  # the answer before it, "" of the first


class Conversations:
    """``version`` grows with every change a screen would show. problem: why what was written last is not on the disk;
    "" where all is well."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._saving = threading.Lock()
        self._unsaved: dict[str, dict[str, Any]] = {}  # columns of answers that the disk would not take
        self._untraced: dict[str, str] = {}
        self.version = 0
        self.problem = ""

    def interrupted(self, message: str) -> None:
        """At start: answers that an earlier process left half written keep their text and say so."""
        self._database.write("update answers set state = 'failed', error = ? where state = 'running'", (message,))

    def new(self, document: str, title: str, system: str = "") -> Conversation:
        now = time.time()
        made = Conversation(uuid.uuid4().hex, document, _title(title), now, now, system=system)
        self._database.write("insert into conversations (id, document, title, created_at, updated_at, system)"
                             " values (?,?,?,?,?,?)",
                             (made.id, made.document, made.title, made.created_at, made.updated_at, made.system))
        self.version += 1
        return made

    def of(self, document: str, most: int = -1) -> list[Conversation]:
        """A document's conversations, the newest first, so many of them; -1: all."""
        rows = self._database.rows(
            f"select * from conversations where document = ? and {SHOWN} order by updated_at desc limit ?",
            (document, most))
        return [Conversation(**dict(row)) for row in rows]

    def continued(self, key: str, title: str, answers: Sequence[Answer]) -> Conversation:
        """A new conversation with the same instructions that begins with copies of these answers, in order."""
        old = self.get(key)
        assert old is not None, "a conversation that is there"
        made, parent = self.new(old.document, title, old.system), ""
        for answer in answers:
            copied = uuid.uuid4().hex
            self._database.write(
                "insert into answers (id, conversation, created_at, question, text, token_ids, state, error, result,"
                " parent) values (?,?,?,?,?,?,?,?,?,?)",
                (copied, made.id, answer.created_at, answer.question, answer.text, json.dumps(answer.token_ids),
                 answer.state, answer.error, json.dumps(answer.result | {"carried": True}), parent))
            self._database.write("insert into traces select ?, trace from traces where answer = ?", (copied, answer.id))
            parent = copied
        self._database.write("update conversations set leaf = ? where id = ?", (parent, made.id))
        self.version += 1
        return made

    def get(self, key: str | None) -> Conversation | None:
        row = self._database.row(f"select * from conversations where id = ? and {SHOWN}", (key,))
        return Conversation(**dict(row)) if row else None

    def delete(self, key: str, *, hidden: bool = False) -> None:
        """hidden: only if it is so still."""
        only = " and deleted_at is not null" if hidden else ""
        self._database.write(f"delete from conversations where id = ?{only}", (key,))
        self.version += 1

    def hide(self, key: str) -> None:
        """Delete a conversation so that ``restore`` can bring it back as it was."""
        self._database.write("update conversations set deleted_at = ? where id = ?", (time.time(), key))
        self.version += 1

    def restore(self, key: str) -> None:
        self._database.write("update conversations set deleted_at = null where id = ?", (key,))
        self.version += 1

    def hidden(self) -> list[Conversation]:
        """Those that ``restore`` can bring back, the last deleted first."""
        rows = self._database.rows("select * from conversations where deleted_at is not null order by deleted_at desc")
        return [Conversation(**dict(row)) for row in rows]

    def rename(self, key: str, title: str) -> None:
        """Words of nothing but white space change nothing."""
        if title.strip():
            self._database.write("update conversations set title = ? where id = ?", (_title(title), key))
            self.version += 1

    def instruct(self, key: str, system: str) -> None:
        """From the next answer on; those that stand keep what they were written with (``Answer.result``)."""
        self._database.write("update conversations set system = ? where id = ?", (system, key))
        self.version += 1

    def answers(self, conversation: str | None) -> list[Answer]:
        """The branch that is shown, in order."""
        known = self.get(conversation)
        return self._branch(known.id, known.leaf) if known else []

    def every_answer(self, conversation: str) -> list[Answer]:
        """Of all branches, in the order in which they were asked."""
        rows = self._database.rows(
            "select * from answers where conversation = ? order by created_at, rowid", (conversation,))
        return [self._answer(row) for row in rows]

    def recent(self, document: str, most: int) -> list[Answer]:
        """The document's newest finished answers, whatever the conversation, the newest first; none of them twice."""
        # They stand in the conversations that were asked in last; some of those have none of their own yet.
        rows = self._database.rows(
            "select * from answers where conversation in (select id from conversations"
            f" where document = ? and {SHOWN} order by updated_at desc limit ?)"
            " and state != 'running' and json_extract(result, '$.carried') is null"
            " order by created_at desc limit ?", (document, 4 * most, most))
        return [self._answer(row) for row in rows]

    def answer(self, key: str) -> Answer | None:
        row = self._database.row("select * from answers where id = ?", (key,))
        return self._answer(row) if row else None

    def versions(self, conversation: str) -> dict[str, tuple[str, ...]]:
        """Answer -> all answers in its place (itself among them), the oldest first; of those that have others."""
        rows = self._database.rows("select id, parent from answers where conversation = ? order by created_at, rowid",
                                   (conversation,))
        beside: dict[str, list[str]] = {}
        for row in rows:
            beside.setdefault(row["parent"], []).append(row["id"])
        return {key: tuple(keys) for keys in beside.values() if len(keys) > 1 for key in keys}

    def show(self, answer: str) -> None:
        """Make the branch of this answer the shown one, down to its newest end."""
        row = self._database.row("select conversation from answers where id = ?", (answer,))
        if row is None:
            return
        rows = self._database.rows("select id, parent from answers where conversation = ? order by created_at, rowid",
                                   (row["conversation"],))
        newest = {each["parent"]: each["id"] for each in rows}
        while answer in newest:
            answer = newest[answer]
        self._database.write("update conversations set leaf = ? where id = ?", (answer, row["conversation"]))
        self.version += 1

    def _answer(self, row: Any) -> Answer:
        """As it was last, be it saved or not."""
        return _answer(dict(row) | self._unsaved.get(row["id"], {}))

    def _branch(self, conversation: str, leaf: str) -> list[Answer]:
        rows = self._database.rows("""
            with recursive branch (id, depth) as (
                select ?, 0 union all
                select answers.parent, depth + 1 from answers join branch using (id) where answers.parent <> '')
            select answers.* from answers join branch using (id) where conversation = ? order by depth desc""",
            (leaf, conversation))
        return [self._answer(row) for row in rows]

    def history(self, conversation: str, answer: str | None = None) -> tuple[Turn, ...]:
        """The finished exchanges that lead to an answer (None: to the end of the shown branch), as the engine needs
        them; answers without a single word are left out."""
        branch = self._branch(conversation, answer) if answer else self.answers(conversation)
        return tuple(Turn(each.question, each.token_ids, each.text) for each in branch
                     if (each.token_ids or each.text) and each.state != "running")

    def begin(self, answer: str, conversation: str, question: str, parent: str | None = None) -> None:
        """Make the row of an answer that is about to be written, behind ``parent`` (None: the end of the branch that
        is shown; "": the very beginning), and show its branch. Raises NotEnoughDiskError, FolderError."""
        now = time.time()
        known = self.get(conversation)
        parent = (known.leaf if known else "") if parent is None else parent
        self._database.write(
            "insert into answers (id, conversation, created_at, question, state, parent) values (?,?,?,?,'running',?)",
            (answer, conversation, now, question, parent))
        self._database.write("update conversations set updated_at = ?, leaf = ? where id = ?",
                             (now, answer, conversation))
        self.version += 1

    def save(self, answer: str, *, text: str, token_ids: tuple[int, ...], state: str, error: str,
             result: dict[str, Any]) -> None:
        """Write what there is of an answer so far. What the disk does not take stays here until it does."""
        values = {"text": text, "token_ids": json.dumps(token_ids), "state": state, "error": error,
                  "result": json.dumps(result)}
        with self._saving:
            self._unsaved[answer] = values
            self._settle()
        if state != "running":
            self.version += 1

    def save_trace(self, answer: str, trace: Trace) -> None:
        """Apart from the answer: only who asks for it pays for reading it. That of a deleted answer is let go."""
        with self._saving:
            self._untraced[answer] = json.dumps(trace.stored())
            self._settle()

    def trace(self, answer: str) -> Trace | None:
        row = self._database.row("select trace from traces where answer = ?", (answer,))
        found = self._untraced.get(answer) or (row["trace"] if row else None)
        return Trace(**json.loads(found)) if found else None

    def settle(self) -> None:
        """Try again to keep what could not be kept."""
        if self.problem:
            with self._saving:
                self._settle()

    def close(self) -> None:
        """Try once more, and close the database."""
        self.settle()
        self._database.close()

    def _settle(self) -> None:
        try:
            for key, values in list(self._unsaved.items()):
                assignments = ", ".join(f"{column} = ?" for column in values)
                self._database.write(f"update answers set {assignments} where id = ?", (*values.values(), key))
                del self._unsaved[key]
            for key, trace in list(self._untraced.items()):
                self._database.write("insert or replace into traces select id, ? from answers where id = ?",
                                     (trace, key))
                del self._untraced[key]
            self.problem = ""
        except TriForceError as error:
            self.problem = NOT_SAVED.format(why=error)

    def save_race(self, document: str, question: str, result: dict[str, Any]) -> None:
        """The last race of a document is kept; the one before it is not, nor that of a deleted document."""
        self._database.write("insert or replace into races select id, ?, ?, ? from documents where id = ?",
                             (time.time(), question, json.dumps(result), document))

    def race(self, document: str) -> dict[str, Any] | None:
        row = self._database.row("select * from races where document = ?", (document,))
        return None if row is None else json.loads(row["result"]) | {"question": row["question"]}


def _title(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= TITLE_LENGTH else line[: TITLE_LENGTH - 1].rstrip() + "…"


def _answer(values: dict[str, Any]) -> Answer:
    values["token_ids"] = tuple(json.loads(values["token_ids"]))
    values["result"] = json.loads(values["result"])
    return Answer(**values)
