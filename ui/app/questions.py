"""From a typed question to a request for the engine, with all that it follows from; and questions to begin with.

Those are only such as the app has tried itself, while nothing else was to be done: passages of a document that nobody
has asked about are looked for, question by question, and those that it surely answers are kept with it.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import logging
import re
import sqlite3
import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator

from triforce_core import Document, TriForceError

from .context_budget import ContextUse, taken
from .conversations import Answer, Conversations
from .jobs import Request, Selection
from .library import PHASES, Entry, Library
from .queue import Queue
from .runs import Run, RunStore, race_lanes
from .settings import Settings
from .tab_view import TabView

OPEN_FIRST = "Open a document first"
ADD_OTHER = "The reason stands above. Try again there, or open another document."
OPEN_FIRST_MORE = "Choose one in the library, or drop a file anywhere on this window."
ONE_AT_A_TIME = "One question at a time"
ONE_AT_A_TIME_MORE = "Wait until the one before is answered, or press Stop; then ask again."

SAME_SEED_TITLE = "Expect the same words"
SAME_SEED = "This model only quotes, and quotes the same. For another answer load a chat model under Models."
WARMER, WARMER_TITLE = 0.7, "Asked again at temperature 0.7"
WARMER_WHY = "At temperature 0, as in Settings, a question has one answer. The other one is kept: ‹ leads to it."
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
        self._lock = threading.Lock()

    def ask(self, view: TabView, question: str, settings: Settings) -> Run | None:
        """Ask in the view's conversation, or a new one if there is none. Raises Refusal."""
        question = question.strip()
        entry = self._ready(view, early=True)
        if not question:
            return None
        with self._one_at_a_time(view):
            self._check(self.instructions(view))
            selection = self.selection(entry) if entry.has_text else None
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
            same = not settings.temperature and old.state == "done"
            model = self._queue.model
            warmer = same and (model is None or model.instructions)
            settings = dataclasses.replace(settings, temperature=WARMER) if warmer else settings
            run = self._put(view, entry, self.selection(entry), old.question, old.parent,
                            dataclasses.replace(settings, seed=settings.seed + versions))
        if same:
            view.notice = ("info", WARMER_TITLE, WARMER_WHY) if warmer else ("info", SAME_SEED_TITLE, SAME_SEED)
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
        """Race a question. third: changes of the settings in a third lane (``runs.race_lanes``). Raises Refusal and
        ConfigError."""
        entry = self._ready(view)
        question = question.strip()
        if not question:
            raise Refusal(NEEDS_QUESTION, remedy=NEEDS_QUESTION_MORE)
        with self._lock:
            running = self._runs.race_of(entry.id)
            if running is not None and not running.ended:
                raise Refusal(ONE_AT_A_TIME, remedy=ONE_AT_A_TIME_MORE)
            lanes = race_lanes(settings, third)
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
        """Ask what waited for a document's text, if that is there."""
        entry = self._library.get(document)
        if entry is not None and entry.state == "ready":
            self._queue.text_is_there(document, lambda: self.selection(entry))

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
        if entry.state != "ready" and not (early and entry.state in ("extracting", "part")):
            stands_above = entry.state == "failed"  # with its reason
            raise Refusal(PHASES.get(entry.state, PHASES["closed"]), remedy=ADD_OTHER if stands_above else entry.error)
        return entry

STARTER_NAME = "What does it say about {name}?"
STARTER_CHAPTER = "What is the point of the part “{chapter}”?"
STARTER_WHOLE = "What are its main points?"

log = logging.getLogger(__name__)
MOST = 4  # that are shown
QUOTED = 3  # passages of a summary that is worth a suggestion; nobody says how sure it is
TICK = 0.5
LOOKED_AT = 400_000  # characters: names that matter come early and often
LEAST_OFTEN = 3  # times that a name comes up
# A capital inside a sentence is a name's; behind an ending, a quotation mark or a line break it may be any word's.
_NAME = re.compile(r"(?<=[a-z,;] )[A-Z][A-Za-z]{2,}(?: (?:of |the |de |von )?[A-Z][A-Za-z]{2,}){0,2}\b")
_HEADING = re.compile(r"^(?:chapter|part|section)?\s*(?:[\dIVXLC]+(?:\.\d+)*[.:)]?)?\s*(.*)$", re.IGNORECASE)


class Suggestions:
    """Tries questions in a thread of its own. in_front: returns the documents that somebody looks at."""

    def __init__(self, library: Library, conversations: Conversations, queue: Queue,
                 in_front: Callable[[], Collection[str]], patience: float = 2.0) -> None:
        """patience: seconds that the engine must have had nothing to do."""
        self._library, self._conversations, self._queue = library, conversations, queue
        self._in_front, self.patience = in_front, patience
        self._closing = threading.Event()

    def start(self) -> None:
        threading.Thread(target=self._watch, name="suggestions", daemon=True).start()

    def close(self) -> None:
        self._closing.set()

    def of(self, entry: Entry) -> tuple[str, ...]:
        """Return those that were found for the chosen pages, the surest first."""
        kept = json.loads(entry.suggested) if entry.suggested else {}
        return tuple(kept["questions"]) if kept.get("of") == _name(entry) else ()

    def _watch(self) -> None:
        rested = time.monotonic()
        while not self._closing.wait(min(TICK, self.patience)):
            entry = self._next()
            if entry is None or self._queue.jobs():
                rested = time.monotonic()
            elif time.monotonic() - rested >= self.patience:
                try:
                    self._try(entry)
                except TriForceError as error:  # a full disk, a process that ended: it is a convenience
                    log.debug("no suggestions: %s", type(error).__name__)
                rested = time.monotonic()

    def _next(self) -> Entry | None:
        """Return a document that somebody looks at, that was not tried and has no conversations yet."""
        for document in self._in_front():
            entry = self._library.get(document)
            if entry is not None and entry.state == "ready" and not self._conversations.of(document, 1):
                kept = json.loads(entry.suggested) if entry.suggested else {}
                if kept.get("of") != _name(entry):
                    return entry
        return None

    def _try(self, entry: Entry) -> None:
        document = self._library.document(entry.id)
        if document is None or len(document.pages) != entry.pages:
            return
        chosen = Selection(entry.id, document, entry.ranges).chosen
        sure: list[tuple[float, str]] = []
        for question in starters(chosen):
            if self._closing.is_set() or self._queue.jobs():
                return  # somebody asks; once more when all rests
            found = self._queue.search.find(chosen, question)
            if found.level == "found":
                sure.append((found.passages[0].chance, question))
            elif found.level is None and len(found.passages) >= QUOTED:
                sure.append((0.0, question))
        sure.sort(key=lambda one: -one[0])
        if self._library.is_here(entry):
            self._library.update(entry.id, suggested=json.dumps(
                {"of": _name(entry), "questions": [question for _, question in sure[:MOST]]}))


def _name(entry: Entry) -> list[str]:
    """Return what suggestions follow from: another text or other pages have others."""
    return ["passages", entry.chosen, str(entry.characters)]


def starters(document: Document) -> list[str]:
    """Return questions from its headings and most frequent names, the most particular first, one for the whole last."""
    questions = [STARTER_NAME.format(name=name) for name in names(document)[:4]]
    questions += [STARTER_CHAPTER.format(chapter=title) for title in headings(document)[:3]]
    return [*questions, STARTER_WHOLE]


def names(document: Document) -> list[str]:
    """Return names that come up at least LEAST_OFTEN times, the most frequent first; a part of a longer one counts with
    it. A word that is written small too, a third as often or more, is no name."""
    counted: Counter[str] = Counter()
    small: Counter[str] = Counter()
    size = 0
    for page in document.pages:
        text = " ".join(page.text.split())
        counted.update(_NAME.findall(text))
        small.update(re.findall(r"\b[a-z]{3,}", text))
        size += len(page.text)
        if size > LOOKED_AT:
            break
    found: list[str] = []
    for name, count in counted.most_common(40):
        proper = count >= LEAST_OFTEN and 3 * small[name.split()[0].lower()] < count
        if proper and not any(name in other or other in name for other in found):
            found.append(name)
    return found


def headings(document: Document) -> list[str]:
    """Return headings in the middle of the document, numbers left off: lines of a few words that stand alone."""
    found = []
    for page in document.pages[len(document.pages) // 4 :]:
        for line in page.text.split("\n\n")[:3]:
            words = line.strip()
            match = _HEADING.match(words)
            title = match[1].strip() if match else ""
            short = "\n" not in words and 2 <= len(title.split()) <= 7
            if short and title[0].isupper() and title[-1] not in ".,;:?!”\"" and title not in found:
                found.append(title)
        if len(found) >= 3:
            break
    return found
