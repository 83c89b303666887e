"""Conversations and their answers, kept with statistics, tokens and attention. The database is the only memory."""

from __future__ import annotations

import json
import time
import uuid
from dataclasses import dataclass, field
from typing import Any

from triforce_core import Turn

from .database import Database
from .trace import Trace

TITLE_LENGTH = 60


@dataclass(frozen=True)
class Conversation:
    id: str
    document: str
    title: str
    created_at: float
    updated_at: float


@dataclass(frozen=True)
class Answer:
    """One question and what came of it. state: done, stopped or failed ('running' only while a run writes it).

    result: what ``runs`` folded out of the events, as plain JSON (statistics, page shares, passages)."""

    id: str
    conversation: str
    created_at: float
    question: str
    text: str
    token_ids: tuple[int, ...]
    state: str
    error: str
    result: dict[str, Any] = field(default_factory=dict)


class Conversations:
    """``version`` grows with every change a screen would show."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self.version = 0

    def interrupted(self, message: str) -> None:
        """At start: answers that an earlier process left half written keep their text and say so."""
        self._database.write("update answers set state = 'failed', error = ? where state = 'running'", (message,))

    def new(self, document: str, title: str) -> Conversation:
        now = time.time()
        made = Conversation(uuid.uuid4().hex, document, _title(title), now, now)
        self._database.write("insert into conversations values (?,?,?,?,?)",
                             (made.id, made.document, made.title, made.created_at, made.updated_at))
        self.version += 1
        return made

    def of(self, document: str) -> list[Conversation]:
        """A document's conversations, the newest first."""
        rows = self._database.rows(
            "select * from conversations where document = ? order by updated_at desc", (document,))
        return [Conversation(**dict(row)) for row in rows]

    def get(self, key: str | None) -> Conversation | None:
        row = self._database.row("select * from conversations where id = ?", (key,))
        return Conversation(**dict(row)) if row else None

    def delete(self, key: str) -> None:
        self._database.write("delete from conversations where id = ?", (key,))
        self.version += 1

    def answers(self, conversation: str | None) -> list[Answer]:
        rows = self._database.rows(
            "select * from answers where conversation = ? order by created_at", (conversation,))
        return [_answer(row) for row in rows]

    def recent(self, document: str, most: int) -> list[Answer]:
        """The document's newest finished answers, whatever the conversation, the newest first."""
        rows = self._database.rows(
            "select answers.* from answers join conversations on conversations.id = answers.conversation"
            " where document = ? and state != 'running' order by answers.created_at desc limit ?", (document, most))
        return [_answer(row) for row in rows]

    def history(self, conversation: str) -> tuple[Turn, ...]:
        """The finished exchanges, as the engine needs them; answers without a single word are left out."""
        return tuple(Turn(answer.question, answer.token_ids, answer.text) for answer in self.answers(conversation)
                     if (answer.token_ids or answer.text) and answer.state != "running")

    def begin(self, answer: str, conversation: str, question: str) -> None:
        """Make the row of an answer that is about to be written."""
        now = time.time()
        self._database.write(
            "insert into answers (id, conversation, created_at, question, state) values (?,?,?,?,'running')",
            (answer, conversation, now, question))
        self._database.write("update conversations set updated_at = ? where id = ?", (now, conversation))
        self.version += 1

    def save(self, answer: str, *, text: str, token_ids: tuple[int, ...], state: str, error: str,
             result: dict[str, Any]) -> None:
        """Write what there is of an answer so far."""
        self._database.write(
            "update answers set text = ?, token_ids = ?, state = ?, error = ?, result = ? where id = ?",
            (text, json.dumps(token_ids), state, error, json.dumps(result), answer))
        if state != "running":
            self.version += 1

    def save_trace(self, answer: str, trace: Trace) -> None:
        """Apart from the answer itself: only who asks for it pays for reading it."""
        self._database.write("insert or replace into traces values (?,?)", (answer, json.dumps(trace.stored())))

    def trace(self, answer: str) -> Trace | None:
        row = self._database.row("select trace from traces where answer = ?", (answer,))
        return Trace(**json.loads(row["trace"])) if row else None

    def save_race(self, document: str, question: str, result: dict[str, Any]) -> None:
        """The last race of a document is kept; the one before it is not."""
        self._database.write("insert or replace into races values (?,?,?,?)",
                             (document, time.time(), question, json.dumps(result)))

    def race(self, document: str) -> dict[str, Any] | None:
        row = self._database.row("select * from races where document = ?", (document,))
        return None if row is None else json.loads(row["result"]) | {"question": row["question"]}


def _title(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= TITLE_LENGTH else line[: TITLE_LENGTH - 1].rstrip() + "…"


def _answer(row: Any) -> Answer:
    values = dict(row)
    values["token_ids"] = tuple(json.loads(values["token_ids"]))
    values["result"] = json.loads(values["result"])
    return Answer(**values)
