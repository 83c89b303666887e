"""Words -> the conversations in which they stand: in a title, a question or an answer. Knows no screen."""

from __future__ import annotations

import re
from dataclasses import dataclass

from .conversations import SHOWN, Conversation, Conversations
from .database import Database

MOST = 50  # conversations shown
AROUND = 60  # characters of an excerpt before and after the first found word


@dataclass(frozen=True)
class Hit:
    """A conversation in which all words were found. answer: where, "" if in its title. excerpt: the text around the
    first of them, found: characters [start, end) of it."""

    conversation: Conversation
    answer: str
    excerpt: str
    found: tuple[int, int]


def search(database: Database, conversations: Conversations, query: str) -> list[Hit]:
    """One hit per conversation, titles first, then the newest answers. Words match from their beginning."""
    words = re.findall(r"\w+", query)
    if not words:
        return []
    hits: dict[str, Hit] = {}
    titles = " and ".join("title like ? escape '\\'" for _ in words)
    for row in database.rows(f"select * from conversations where {titles} and {SHOWN} order by updated_at desc limit ?",
                             (*(f"%{_literally(word)}%" for word in words), MOST)):
        hits[row["id"]] = _hit(Conversation(**dict(row)), "", row["title"], words)
    for row in (_indexed(database, words) if database.full_text else []) or _scanned(database, words):
        talk = None if row["conversation"] in hits else conversations.get(row["conversation"])
        if talk is not None:
            hits[talk.id] = _hit(talk, row["id"], f"{row['question']}\n{row['text']}", words)
    return list(hits.values())[:MOST]


def _indexed(database: Database, words: list[str]) -> list:
    return database.rows(
        "select answers.id, conversation, answers.question, answers.text from words"
        " join answers on answers.rowid = words.rowid where words match ? order by created_at desc limit ?",
        (" ".join(f'"{word}"*' for word in words), 4 * MOST))


def _scanned(database: Database, words: list[str]) -> list:
    """Any part of a word: what the index has no words for (no FTS5, or a script without spaces)."""
    anywhere = " and ".join("question || ' ' || text like ? escape '\\'" for _ in words)
    return database.rows(
        f"select id, conversation, question, text from answers where {anywhere} order by created_at desc limit ?",
        (*(f"%{_literally(word)}%" for word in words), 4 * MOST))


def _literally(word: str) -> str:
    return re.sub(r"([\\%_])", r"\\\1", word)


def _hit(talk: Conversation, answer: str, text: str, words: list[str]) -> Hit:
    text = " ".join(text.split())
    found = re.search("|".join(map(re.escape, words)), text, re.IGNORECASE)
    start, end = found.span() if found else (0, 0)
    low, high = max(0, start - AROUND), min(len(text), end + AROUND)
    before, after = "…" if low else "", "…" if high < len(text) else ""
    return Hit(talk, answer, before + text[low:high] + after, (start - low + len(before), end - low + len(before)))
