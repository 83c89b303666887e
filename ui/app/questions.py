"""From a typed question to a request for the engine: everything that the answer follows from is taken along now."""

from __future__ import annotations

import contextlib
import dataclasses
import sqlite3
import threading
from collections.abc import Iterator

from triforce_core import TriForceError

from . import race
from .context_budget import ContextUse, taken
from .conversations import Answer, Conversations
from .jobs import Request, Selection
from .library import PHASES, Entry, Library
from .queue import CHOOSE_PAGES_ABOVE, NOT_ALL_FITS, Queue
from .runs import Run, RunStore
from .settings import Settings
from .tab_view import TabView

OPEN_FIRST = "Open a document first"
OPEN_FIRST_MORE = "Choose one in the library, or drop a file anywhere on this window."
ONE_AT_A_TIME = "One question at a time"
ONE_AT_A_TIME_MORE = "Wait until the one before is answered, or press Stop; then ask again."

SAME_SEED_TITLE = "Expect the same words"
SAME_SEED = "At temperature 0 a question has one answer. For another, choose the preset “Balanced” in Settings."
CONTINUED = " (continued)"

DOCUMENT_GONE = "This document's text is no longer in the library. Add the file again."

NOT_KEPT = "The conversation could not be read or saved ({kind})"
NOT_KEPT_MORE = ("The question was not asked. Look whether the disk is full, then ask again; if it stays so, start the "
                 "app again.")
TEXT_CHANGES = "The text of this document is being extracted again"
TEXT_CHANGES_MORE = "Ask again in a moment."

NEEDS_QUESTION = "What should they race on?"
NEEDS_QUESTION_MORE = "Write a question, then press Race."

INSTRUCT_LONG = "These instructions have {count} characters, and were not saved"
INSTRUCT_MOST = "{most} at most"
NO_INSTRUCTIONS = "The loaded model follows no instructions"
NO_INSTRUCTIONS_REMEDY = "Remove them (Instructions, above the chat), or load a chat model (Models)."

MOST_CARRIED = 3  # exchanges that go along into a new conversation
LONGEST = 4000  # characters of instructions: more would take the room that is kept for questions and answers


class Refusal(TriForceError):
    """A wish that cannot be granted now; shown as a card."""


class Questions:
    """Checks and queues questions. Any thread may ask; two clicks at once ask one question."""

    def __init__(self, library: Library, conversations: Conversations, queue: Queue, runs: RunStore) -> None:
        self._library, self._conversations, self._queue, self._runs = library, conversations, queue, runs
        queue.on_hold = self._with_other_pages
        self._lock = threading.Lock()

    def ask(self, view: TabView, question: str, settings: Settings) -> Run | None:
        """Ask in the view's conversation, or a new one if there is none. Raises Refusal."""
        question = question.strip()
        entry = self._ready(view, early=True)
        if not question:
            return None
        if (entry.id, entry.ranges) in self._queue.too_long:
            raise Refusal(NOT_ALL_FITS, remedy=CHOOSE_PAGES_ABOVE)
        with self._one_at_a_time(view):
            self._check(self.instructions(view))
            selection = self.selection(entry) if entry.state == "ready" else None
            talk = self._conversations.get(view.conversation)
            if talk is None or talk.document != entry.id:
                talk = self._conversations.new(entry.id, question, view.system)
                view.conversation, view.system = talk.id, ""
            old = self._conversations.answer(view.editing) if view.editing else None
            parent = old.parent if old and old.conversation == talk.id else talk.leaf
            return self._put(view, entry, selection, question, parent, settings)

    def ask_again(self, view: TabView, answer: str, settings: Settings) -> Run | None:
        """Ask the same question in the place of an answer, with another seed; the old one stays. Raises Refusal."""
        entry = self._ready(view)
        with self._one_at_a_time(view):
            old = self._conversations.answer(answer)
            if old is None or old.conversation != view.conversation:
                return None
            self._check(self.instructions(view))
            versions = len(self._conversations.versions(old.conversation).get(answer, (answer,)))
            run = self._put(view, entry, self.selection(entry), old.question, old.parent,
                            dataclasses.replace(settings, seed=settings.seed + versions))
        if not settings.temperature and old.state == "done":
            view.notice = ("info", SAME_SEED_TITLE, SAME_SEED)
        return run

    def continue_anew(self, view: TabView, use: ContextUse | None) -> None:
        """Begin a conversation with the last exchanges of this one, as many as leave half of the room free. Raises
        Refusal while an answer is being written."""
        with self._one_at_a_time(view):
            talk = self._conversations.get(view.conversation)
            if talk is None:
                return
            room = (use.most - use.document) // 2 if use else 0
            carried: list[Answer] = []
            for answer in reversed(self._conversations.answers(talk.id)[-MOST_CARRIED:]):
                room -= taken(answer)
                if room < 0 or answer.state != "done":
                    break
                carried.insert(0, answer)
            title = talk.title.removesuffix(CONTINUED) + CONTINUED
            view.conversation = self._conversations.continued(talk.id, title, carried).id
            view.editing = view.notice = None

    def race(self, view: TabView, question: str, settings: Settings, third: str = "") -> Run:
        """Race a question. third: changes of the settings in a third lane (``race.lanes``). Raises Refusal and
        ConfigError."""
        entry = self._ready(view)
        question = question.strip()
        if not question:
            raise Refusal(NEEDS_QUESTION, remedy=NEEDS_QUESTION_MORE)
        with self._lock:
            running = self._runs.race_of(entry.id)
            if running is not None and not running.ended:
                raise Refusal(ONE_AT_A_TIME, remedy=ONE_AT_A_TIME_MORE)
            lanes = race.lanes(settings, third)
            view.notice = None
            request = Request(self.selection(entry), question, settings.sampling(details=False), lanes)
            return self._queue.answer(request, race=True)

    def selection(self, entry: Entry) -> Selection:
        """Return the pages that are chosen now, as a job takes them along. Raises Refusal."""
        document = self._library.document(entry.id)
        if document is None:
            raise Refusal(DOCUMENT_GONE)
        if len(document.pages) != entry.pages:
            raise Refusal(TEXT_CHANGES, remedy=TEXT_CHANGES_MORE)
        return Selection(entry.id, document, entry.ranges)

    @property
    def instructions_followed(self) -> bool:
        """Return whether the model follows any; True so long as none is loaded."""
        return self._queue.model is None or self._queue.model.instructions

    def instructions(self, view: TabView) -> str:
        """Return those of the conversation that is shown, or that the next question begins."""
        talk = self._conversations.get(view.conversation)
        return talk.system if talk and talk.document == view.document else view.system

    def instruct(self, view: TabView, words: str) -> None:
        """Keep instructions ("" takes them away). Raises TriForceError for too long ones, or if none are followed."""
        words = words.strip()
        if len(words) > LONGEST:
            raise TriForceError(INSTRUCT_LONG.format(count=len(words)), allowed=INSTRUCT_MOST.format(most=LONGEST))
        self._check(words)
        talk = self._conversations.get(view.conversation)
        if talk and talk.document == view.document:
            self._conversations.instruct(talk.id, words)
        else:
            view.system = words
        view.instructing, view.notice = False, None

    def _check(self, instructions: str) -> None:
        """Raise TriForceError where a question's instructions would be dropped."""
        if instructions and not self.instructions_followed:
            raise TriForceError(NO_INSTRUCTIONS, remedy=NO_INSTRUCTIONS_REMEDY)

    def text_is_there(self, document: str) -> None:
        """Ask what waited for a document's text, or for other pages of it, if the text is there."""
        entry = self._library.get(document)
        if entry is not None and entry.state == "ready":
            self._queue.text_is_there(document, lambda: self.selection(entry))

    def _with_other_pages(self, document: str) -> None:
        """Ask what was too long, if other pages of its document have been chosen meanwhile."""
        entry = self._library.get(document)
        if entry is not None and (entry.id, entry.ranges) not in self._queue.too_long:
            self.text_is_there(document)

    @contextlib.contextmanager
    def _one_at_a_time(self, view: TabView) -> Iterator[None]:
        """Refuse a second question of a conversation, and turn a database's failure into words."""
        try:
            with self._lock:
                if self._runs.of_conversation(view.conversation) is not None:
                    raise Refusal(ONE_AT_A_TIME, remedy=ONE_AT_A_TIME_MORE)
                yield
        except sqlite3.Error as error:
            raise Refusal(NOT_KEPT.format(kind=type(error).__name__), remedy=NOT_KEPT_MORE) from error

    def _put(self, view: TabView, entry: Entry, selection: Selection | None, question: str, parent: str,
             settings: Settings) -> Run:
        """Queue a question of the view's conversation. selection: None while the text is being taken out. parent: the
        answer before it, "" for none."""
        assert view.conversation is not None
        history = self._conversations.history(view.conversation, parent) if parent else ()
        request = Request(selection, question, settings.sampling(), (("", settings.speculation()),), history,
                          self.instructions(view))
        run = self._queue.ask(request, entry.id, view.conversation, parent)
        if selection is None:
            self.text_is_there(entry.id)  # it may have come meanwhile
        view.notice = view.editing = None
        view.traced = view.traced and run.id  # who looks at the tokens of one answer looks at those of the next
        return run

    def _ready(self, view: TabView, early: bool = False) -> Entry:
        """Return the view's document. early: its text may still be on its way. Raises Refusal."""
        entry = self._library.get(view.document)
        if entry is None:
            raise Refusal(OPEN_FIRST, remedy=OPEN_FIRST_MORE)
        if entry.state != "ready" and not (early and entry.state == "extracting"):
            raise Refusal(PHASES.get(entry.state, PHASES["closed"]), remedy=entry.error)
        return entry
