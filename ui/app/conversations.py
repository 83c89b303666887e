"""Conversations and their answers, kept with statistics, tokens and attention. The database is the only memory.

The answers of a conversation are a tree: to ask again, or in other words, begins a branch beside the old answer, and
nothing is lost. ``leaf`` names the answer at the end of the branch that is shown; its ancestors are the history.
"""

from __future__ import annotations

import json
import re
import threading
import time
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from triforce_core import TriForceError, Turn

from .accumulator import Trace
from .database import Database

NOT_SAVED = "{why} Until then this page alone holds what was written last: it is saved as soon as that is possible."

TITLE_LENGTH = 60
MOST_HITS = 50  # conversations that a search shows
AROUND = 60  # characters of an excerpt before and after the first found word
# Neither deleted, nor of a deleted document.
SHOWN = ("conversations.deleted_at is null"
         " and conversations.document in (select id from documents where deleted_at is null)")


@dataclass(frozen=True)
class Conversation:
    """system: the person's instructions for all its answers. deleted_at: set while Undo can bring it back."""

    id: str
    document: str
    title: str
    created_at: float
    updated_at: float
    leaf: str = ""
    system: str = ""
    deleted_at: float | None = None


@dataclass(frozen=True)
class Answer:
    """One question and what came of it. state: done, stopped or failed ('running' only while a run writes it).

    result: ``Run.kept``, as plain JSON. parent: the answer before it, "" of the first."""

    id: str
    conversation: str
    created_at: float
    question: str
    text: str
    token_ids: tuple[int, ...]
    state: str
    error: str
    result: dict[str, Any] = field(default_factory=dict)
    parent: str = ""


@dataclass(frozen=True)
class Hit:
    """A conversation in which all words were found. answer: where, "" if in its title. excerpt: the text around the
    first of them, found: characters [start, end) of it."""

    conversation: Conversation
    answer: str
    excerpt: str
    found: tuple[int, int]


class Conversations:
    """Reads and writes conversations. ``version`` grows with every change a screen would show.

    problem: why the last answers are not on the disk; "" where all is well."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._saving = threading.Lock()
        self._unsaved: dict[str, dict[str, Any]] = {}  # columns of answers that the disk would not take
        self._untraced: dict[str, str] = {}
        self.version = 0
        self.problem = ""

    def interrupted(self, message: str) -> None:
        """At start: mark answers that an earlier process left half written as failed; they keep their text."""
        self._database.write("update answers set state = 'failed', error = ? where state = 'running'", (message,))

    # -- conversations

    def new(self, document: str, title: str, system: str = "") -> Conversation:
        now = time.time()
        made = Conversation(uuid.uuid4().hex, document, _title(title), now, now, system=system)
        self._change("insert into conversations (id, document, title, created_at, updated_at, system)"
                     " values (?,?,?,?,?,?)", made.id, document, made.title, now, now, system)
        return made

    def of(self, document: str, most: int = -1) -> list[Conversation]:
        """Return a document's conversations, the newest first. most: how many; -1: all."""
        return self._found(f"document = ? and {SHOWN} order by updated_at desc limit ?", document, most)

    def get(self, key: str | None) -> Conversation | None:
        found = self._found(f"id = ? and {SHOWN}", key)
        return found[0] if found else None

    def hidden(self) -> list[Conversation]:
        """Return those that ``restore`` can bring back, the last deleted first."""
        return self._found("deleted_at is not null order by deleted_at desc")

    def continued(self, key: str, title: str, answers: Sequence[Answer]) -> Conversation:
        """Return a new conversation with the same instructions that begins with copies of these answers, in order."""
        old = self.get(key)
        assert old is not None, "a conversation that is there"
        made, parent = self.new(old.document, title, old.system), ""
        for answer in answers:
            copied = uuid.uuid4().hex
            self._database.write(
                "insert into answers (id, conversation, created_at, question, text, token_ids, state, error, result,"
                " parent) select ?, ?, created_at, question, text, token_ids, state, error, ?, ? from answers"
                " where id = ?", (copied, made.id, json.dumps(answer.result | {"carried": True}), parent, answer.id))
            self._database.write("insert into traces select ?, trace from traces where answer = ?", (copied, answer.id))
            parent = copied
        self._change("update conversations set leaf = ? where id = ?", parent, made.id)
        return made

    def delete(self, key: str, *, hidden: bool = False) -> None:
        """Delete a conversation for good. hidden: only if it is so still."""
        only = " and deleted_at is not null" if hidden else ""
        self._change(f"delete from conversations where id = ?{only}", key)

    def hide(self, key: str) -> None:
        """Delete a conversation so that ``restore`` can bring it back as it was."""
        self._change("update conversations set deleted_at = ? where id = ?", time.time(), key)

    def restore(self, key: str) -> None:
        self._change("update conversations set deleted_at = null where id = ?", key)

    def rename(self, key: str, title: str) -> None:
        """Rename a conversation; nothing but white space changes nothing."""
        if title.strip():
            self._change("update conversations set title = ? where id = ?", _title(title), key)

    def instruct(self, key: str, system: str) -> None:
        """Set its instructions from the next answer on; earlier ones keep theirs (``Answer.result``)."""
        self._change("update conversations set system = ? where id = ?", system, key)

    def search(self, query: str) -> list[Hit]:
        """Return one hit per conversation, titles first, then the newest answers. Words match from their beginning."""
        words = re.findall(r"\w+", query)
        if not words:
            return []
        like = [f"%{word.replace('_', '~_')}%" for word in words]
        titles = " and ".join("title like ? escape '~'" for _ in words)
        hits = {talk.id: _hit(talk, "", talk.title, words) for talk in self._found(
            f"{titles} and {SHOWN} order by updated_at desc limit ?", *like, MOST_HITS)}
        rows = self._database.rows(
            "select answers.* from words join answers on answers.rowid = words.rowid where words match ?"
            " order by created_at desc limit ?",
            (" ".join(f'"{word}"*' for word in words), 4 * MOST_HITS)) if self._database.full_text else []
        if not rows:  # any part of a word: there is no index, or it has no words of a script without spaces
            anywhere = " and ".join("question || ' ' || text like ? escape '~'" for _ in words)
            rows = self._database.rows(f"select * from answers where {anywhere} order by created_at desc limit ?",
                                       (*like, 4 * MOST_HITS))
        for row in rows:
            talk = None if row["conversation"] in hits else self.get(row["conversation"])
            if talk is not None:
                hits[talk.id] = _hit(talk, row["id"], f"{row['question']}\n{row['text']}", words)
        return list(hits.values())[:MOST_HITS]

    # -- answers

    def answers(self, conversation: str | None) -> list[Answer]:
        """Return the branch that is shown, in order."""
        known = self.get(conversation)
        return self._branch(known.id, known.leaf) if known else []

    def every_answer(self, conversation: str) -> list[Answer]:
        """Return the answers of all branches, in the order in which they were asked."""
        return self._answers("select * from answers where conversation = ? order by created_at, rowid", conversation)

    def recent(self, document: str, most: int) -> list[Answer]:
        """Return the document's newest finished answers of any conversation, the newest first; none of them twice."""
        # They stand in the conversations that were asked in last; some of those have none of their own yet.
        return self._answers(
            "select * from answers where conversation in (select id from conversations"
            f" where document = ? and {SHOWN} order by updated_at desc limit ?)"
            " and state != 'running' and json_extract(result, '$.carried') is null"
            " order by created_at desc limit ?", document, 4 * most, most)

    def answer(self, key: str) -> Answer | None:
        found = self._answers("select * from answers where id = ?", key)
        return found[0] if found else None

    def versions(self, conversation: str) -> dict[str, tuple[str, ...]]:
        """Return answer -> all answers in its place, itself among them, the oldest first; of those that have others."""
        beside: dict[str, list[str]] = {}
        for key, parent in self._tree(conversation):
            beside.setdefault(parent, []).append(key)
        return {key: tuple(keys) for keys in beside.values() if len(keys) > 1 for key in keys}

    def show(self, answer: str) -> None:
        """Make the branch of this answer the shown one, down to its newest end."""
        row = self._database.row("select conversation from answers where id = ?", (answer,))
        if row is None:
            return
        newest = {parent: key for key, parent in self._tree(row["conversation"])}
        while answer in newest:
            answer = newest[answer]
        self._change("update conversations set leaf = ? where id = ?", answer, row["conversation"])

    def history(self, conversation: str, answer: str | None = None) -> tuple[Turn, ...]:
        """Return the finished exchanges that lead to an answer (None: to the end of the shown branch), as the engine
        needs them; answers without a single word are left out."""
        branch = self._branch(conversation, answer) if answer else self.answers(conversation)
        return tuple(Turn(each.question, each.token_ids, each.text) for each in branch
                     if (each.token_ids or each.text) and each.state != "running")

    def begin(self, answer: str, conversation: str, question: str, parent: str | None = None) -> None:
        """Make the row of an answer that is about to be written, and show its branch.

        parent: the answer before it (None: the end of the shown branch; "": none). Raises NotEnoughDiskError,
        FolderError."""
        now = time.time()
        known = self.get(conversation)
        parent = (known.leaf if known else "") if parent is None else parent
        self._database.write(
            "insert into answers (id, conversation, created_at, question, state, parent) values (?,?,?,?,'running',?)",
            (answer, conversation, now, question, parent))
        self._change("update conversations set updated_at = ?, leaf = ? where id = ?", now, answer, conversation)

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
        """Write an answer's trace, apart from it: only who asks for it pays for reading it."""
        with self._saving:
            self._untraced[answer] = json.dumps(vars(trace))
            self._settle()

    def trace(self, answer: str) -> Trace | None:
        row = self._database.row("select trace from traces where answer = ?", (answer,))
        found = self._untraced.get(answer) or (row["trace"] if row else None)
        return Trace(**json.loads(found)) if found else None

    def save_race(self, document: str, question: str, result: dict[str, Any]) -> None:
        """Keep the last race of a document, unless that is deleted."""
        self._database.write("insert or replace into races select id, ?, ?, ? from documents where id = ?",
                             (time.time(), question, json.dumps(result), document))

    def race(self, document: str) -> dict[str, Any] | None:
        row = self._database.row("select * from races where document = ?", (document,))
        return None if row is None else json.loads(row["result"]) | {"question": row["question"]}

    def settle(self) -> None:
        """Try again to keep what could not be kept."""
        if self.problem:
            with self._saving:
                self._settle()

    def close(self) -> None:
        """Try once more, and close the database."""
        self.settle()
        self._database.close()

    # -- rows

    def _change(self, statement: str, *values: Any) -> None:
        self._database.write(statement, values)
        self.version += 1

    def _found(self, condition: str, *values: Any) -> list[Conversation]:
        rows = self._database.rows(f"select * from conversations where {condition}", values)
        return [Conversation(**dict(row)) for row in rows]

    def _answers(self, statement: str, *values: Any) -> list[Answer]:
        """Return the selected answers as they were last, be they saved or not."""
        found = (dict(row) | self._unsaved.get(row["id"], {}) for row in self._database.rows(statement, values))
        return [Answer(**(values | {"token_ids": tuple(json.loads(values["token_ids"])),
                                    "result": json.loads(values["result"])})) for values in found]

    def _branch(self, conversation: str, leaf: str) -> list[Answer]:
        return self._answers("""
            with recursive branch (id, depth) as (
                select ?, 0 union all
                select answers.parent, depth + 1 from answers join branch using (id) where answers.parent <> '')
            select answers.* from answers join branch using (id) where conversation = ? order by depth desc""",
            leaf, conversation)

    def _tree(self, conversation: str) -> list[tuple[str, str]]:
        """Return (id, parent) of every answer, in the order in which they were asked."""
        return [(row["id"], row["parent"]) for row in self._database.rows(
            "select id, parent from answers where conversation = ? order by created_at, rowid", (conversation,))]

    def _settle(self) -> None:
        try:
            for key, values in list(self._unsaved.items()):
                assignments = ", ".join(f"{column} = ?" for column in values)
                self._database.write(f"update answers set {assignments} where id = ?", (*values.values(), key))
                del self._unsaved[key]
            for key, trace in list(self._untraced.items()):  # that of a deleted answer is dropped
                self._database.write("insert or replace into traces select id, ? from answers where id = ?",
                                     (trace, key))
                del self._untraced[key]
            self.problem = ""
        except TriForceError as error:
            self.problem = NOT_SAVED.format(why=error)


def _title(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= TITLE_LENGTH else line[: TITLE_LENGTH - 1].rstrip() + "…"


def _hit(talk: Conversation, answer: str, text: str, words: list[str]) -> Hit:
    text = " ".join(text.split())
    found = re.search("|".join(map(re.escape, words)), text, re.IGNORECASE)
    start, end = found.span() if found else (0, 0)
    low, high = max(0, start - AROUND), min(len(text), end + AROUND)
    before, after = "…" if low else "", "…" if high < len(text) else ""
    return Hit(talk, answer, before + text[low:high] + after, (start - low + len(before), end - low + len(before)))
