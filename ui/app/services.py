"""The verbs of a person, on one object: panels call them, tests too. Knows neither Gradio nor HTML."""

from __future__ import annotations

import dataclasses
import uuid
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from pathlib import Path

from triforce_core import EngineConfig, PageImages, TriForceError, page_ranges, ranges_text

from . import settings as settings_store
from .context_budget import ContextUse, DocumentCollection, conversation_tokens
from .conversations import Conversations
from .database import Database
from .engine_holder import Engine
from .extraction import Reader, TextExtractor
from .folders import Folders
from .jobs import Selection
from .library import PART_MISSING, Entry, Library, Snapshots
from .models import Models, remembered
from .questions import Questions, Refusal, Suggestions
from .queue import Queue
from .quotes import QuoteFinders
from .runs import Run, RunStore
from .settings import Settings
from .tab_view import TabView, TabViews
from .trash import Trash

NOT_ADDED = "Not added"
SAMPLE_NAME = "The TriForce Chat handbook.pdf"

PART_OF = "“{title}” is part of “{whole}”"
PART_OF_MORE = "Delete that one first; its conversations go with it."
NEW_TALK = "A new conversation begins"
NEW_TALK_MORE = ("The model now reads {count} documents together. The conversation you were in stays with “{title}”.")

CUT_SHORT = ("This answer was not kept to its end: the app stopped, or the disk was full, while it was being written. "
             "Ask again for the rest.")
DOCUMENT_DELETED = "The document was deleted while this was being answered."
CONVERSATION_DELETED = "The conversation was deleted while this was being answered."

RACE_IS_LOCAL = "A race needs the engine of this machine"
RACE_IS_LOCAL_MORE = "A server decodes in one way only. Choose a model of this machine's engine under Models to race."
NOT_SERVED = "{model} is not among what {url} was found to have"
NOT_SERVED_MORE = "Open Models again: it looks anew."


class Services:
    """The whole app without a screen: documents in, questions in, runs out."""

    def __init__(self, folders: Folders, make_engine: Callable[[EngineConfig], Engine], config: EngineConfig,
                 read: Reader, *, fixed: Collection[str] = (), plain: bool = False) -> None:
        """fixed: those of ENGINE_SETTINGS, "model" and "engine" that the command line chose, so that the page's tabs
        cannot. plain: --engine autoregressive."""
        self.folders, self._fixed, self._plain = folders, fixed, plain
        self.database = Database(folders.database)
        self.library = Library(self.database, folders.library)
        self.conversations = Conversations(self.database)
        self.conversations.interrupted(CUT_SHORT)
        self.runs, self.views = RunStore(), TabViews()
        self.finders, self.pages = QuoteFinders(), PageImages()
        self.settings = settings_store.load(folders.settings)
        self._forms = {"weights": config.weights, "kv": config.kv}  # as the command line says
        if "model" not in fixed:
            config = remembered(folders.model, config, own="engine" in fixed)
        self.models = Models(folders.model, lambda: dataclasses.replace(self.queue.config, **self._forms))
        self.models.on_here = lambda found: self.use_model(found.model, found.draft)
        self.queue = Queue(make_engine, self._with_settings(config), self.library, self.conversations, self.runs,
                           self.views.documents, folders.vectors)
        self.queue.on_poll = self._poll
        self.questions = Questions(self.library, self.conversations, self.queue, self.runs)
        self.snapshots = Snapshots(folders.saved_readings, config.saved_quota_bytes)
        self.removed_readings = self.snapshots.remove_dead()  # how many, and their bytes
        self.trash = Trash(self.library, self.conversations, self._erase)
        self.trash.empty()
        self.collection = DocumentCollection(self.library, self.queue)
        self.suggestions = Suggestions(self.library, self.conversations, self.queue, self.views.documents)
        self.extractor = TextExtractor(self.library, read, self.read, self.queue.no_text)
        self.take_text = read
        self.start_id = uuid.uuid4().hex
        self.opening: str | None = None  # document that a first tab shows (from the command line)

    def start(self, files: Sequence[Path], sample: Path | None = None) -> list[str]:
        """Start the engine and add these files. Return sentences about those that could not be added."""
        self.queue.start()
        if sample and not self.folders.settings.exists() and not self.library.entries():
            self.library.add(sample, SAMPLE_NAME)
            settings_store.save(self.folders.settings, self.settings)
        problems: list[str] = []
        for entry in self._added(((path, None) for path in files), problems):
            if self.opening is None:
                self.opening = entry.id
                self.read(entry.id)
        for entry in self.library.entries():
            if entry.state == "new" and entry.id != self.opening:
                self.extractor.extract(entry.id)
        return problems

    def close(self) -> None:
        self.models.close()
        self.suggestions.close()
        self.extractor.close()
        self.pages.close()
        self.queue.close()
        self.trash.empty()
        self.conversations.close()

    @property
    def sends_to(self) -> str:
        """The server that gets documents and questions, on this machine or elsewhere; "" for none."""
        return self.queue.config.server

    @property
    def quotes_only(self) -> bool:
        """Whether no chat model is there to answer: the loaded one only spells what was found."""
        return self.queue.model is not None and not self.queue.model.instructions and not self.sends_to

    def _poll(self) -> None:
        self.conversations.settle()
        self.trash.expire()

    # -- documents

    def read(self, document: str) -> None:
        """Take out the text if need be, then put the document into the cache."""
        entry = self.library.get(document)
        if entry is None:
            return
        if entry.parts and self.library.document(document) is None:
            raise Refusal(PART_MISSING)
        if entry.state == "ready" and self.library.document(document) is not None:
            self.queue.read(self.questions.selection(entry))
            self.questions.text_is_there(document)
        elif entry.state != "locked":
            self.extractor.extract(document, then_read=True)

    def open(self, view: TabView, document: str) -> None:
        """Show a document and start reading it."""
        if self.library.get(document) is None:
            return
        newest = self.conversations.of(document, 1)
        if document not in self.views.documents():
            self.queue.comes_to_front(document)
        self.views.add(view)
        view.show(document, newest[0].id if newest else None)
        self.library.touch(document)
        self.read(document)

    def add(self, view: TabView, paths: Sequence[tuple[Path, str]]) -> None:
        """Take in uploaded files (path, name) and open the first."""
        problems: list[str] = []
        for number, entry in enumerate(self._added(paths, problems)):
            if not number:
                self.open(view, entry.id)
            elif entry.state == "new":
                self.extractor.extract(entry.id)
        if problems:
            view.notice = ("error", NOT_ADDED, " ".join(problems))

    def _added(self, paths: Iterable[tuple[Path, str | None]], problems: list[str]) -> Iterator[Entry]:
        """Add files (path, name), one by one. problems: gains a sentence about each that could not be added."""
        for path, name in paths:
            try:
                entry = self.library.add(path, name)
            except TriForceError as error:
                problems.append(str(error))
            else:
                yield entry

    def read_together(self, view: TabView) -> None:
        """Open the documents that were picked as one, in a conversation of their own. Raises TriForceError."""
        before, left = self.library.get(view.document), view.conversation
        entry = self.library.combine(view.picking or ())
        self.open(view, entry.id)
        if before is not None and left and before.id != entry.id and view.conversation is None:
            view.notice = ("info", NEW_TALK, NEW_TALK_MORE.format(
                count=len(entry.parts), title=before.title or before.name))

    def unlock(self, view: TabView, password: str) -> None:
        if view.document and password:
            self.extractor.extract(view.document, password=password, then_read=True)

    def choose_encoding(self, view: TabView, encoding: str) -> None:
        if view.document and encoding:
            self.extractor.extract(view.document, encoding=encoding, then_read=True)

    def delete(self, view: TabView, document: str) -> None:
        """Delete a document; ``undo`` brings it back for a moment. Raises Refusal where it is part of another."""
        entry, holding = self.library.get(document), self.library.holding(document)
        if entry is None:
            return
        if holding:
            raise Refusal(PART_OF.format(title=entry.title or entry.name, whole=holding[0].title),
                          remedy=PART_OF_MORE)
        for run in self.runs.active():
            if run.document == document:
                self.queue.stop(run, DOCUMENT_DELETED)
        self.extractor.cancel(document)
        self.queue.forget(document)
        self.trash.put("document", document)
        if view.document == document:
            view.document = view.conversation = view.page = view.choosing = None

    def delete_conversation(self, view: TabView, conversation: str) -> None:
        """Delete a conversation; ``undo`` brings it back for a moment."""
        run = self.runs.of_conversation(conversation)
        if run:
            self.queue.stop(run, CONVERSATION_DELETED)
        self.trash.put("conversation", conversation)
        if view.conversation == conversation:
            view.conversation = None

    def undo(self, view: TabView) -> None:
        """Bring back what was deleted last, and show it where nothing else is shown instead."""
        if not self.trash.items():
            return
        item = self.trash.items()[0]
        self.trash.restore(item)
        if item.kind == "document" and view.document is None:
            self.open(view, item.id)
        elif item.kind == "conversation" and view.document == item.document and view.conversation is None:
            view.conversation = item.id

    def _erase(self, entry: Entry) -> None:
        """Delete a document in the trash for good."""
        document = self.library.document(entry.id)
        self.snapshots.delete(entry.readings)
        self.queue.search.forget({*entry.readings, *([document.id] if document else [])})
        self.library.delete(entry.id, hidden=True)

    def delete_snapshots(self, document: str) -> None:
        """Delete a document's snapshots; the document stays, also in the cache if it is there."""
        entry = self.library.get(document)
        if entry is None:
            return
        self.snapshots.delete(entry.readings)
        self.library.update(document, readings=())
        if self.queue.open_key is None or self.queue.open_key[0] != document:
            self.library.update(document, read_seconds=None, read_with="")

    def cancel_reading(self, document: str) -> None:
        self.extractor.cancel(document)
        self.queue.cancel_prefill(document)

    def choosing(self, view: TabView) -> Entry | None:
        """Return the document of which pages are being chosen; None while documents are picked: one box is open at a
        time."""
        entry = self.library.get(view.document)
        if entry is None or entry.state != "ready" or view.picking is not None:
            return None
        return entry if view.choosing is not None else None

    def choose_pages(self, view: TabView, pages: str) -> None:
        """Read only these pages ("1-12, 40") from now on. Raises PageRangeError."""
        entry = self.library.get(view.document)
        if entry is None:
            return
        chosen = page_ranges(pages, entry.pages)
        self.library.update(entry.id, chosen="" if chosen == ((1, entry.pages),) else ranges_text(chosen))
        view.choosing = None
        self.read(entry.id)

    def phase(self, entry: Entry) -> str:
        """Return where a document stands: one of ``library.PHASES``."""
        if entry.id in self.extractor.extractions:
            return "extracting"
        if entry.state in ("locked", "failed"):
            return entry.state
        prefill = self.queue.prefills.get(entry.id)
        if prefill:
            return prefill.stage
        if self.queue.open_key == (entry.id, entry.ranges):
            return "ready"
        if (entry.id, entry.ranges) in self.queue.too_long:
            return "too_long"
        if entry.id in self.queue.problems:
            return "problem"
        model = self.queue.model.reader if self.queue.model else ""
        read = entry.read_seconds is not None and entry.read_with in ("", model)
        if not read and (model or not entry.read_with):
            return "closed"
        saved = not model or self.sends_to or self.snapshots.size(entry.readings[-1:])
        return "resting" if saved else "unsaved"

    # -- questions

    def ask(self, view: TabView, question: str) -> Run | None:
        """Queue a question in the view's conversation, or a new one if there is none. Raises Refusal."""
        run = self.questions.ask(view, question, self.resolved_settings())
        extraction = self.extractor.extractions.get(run.document) if run is not None else None
        if run is not None and extraction is not None and run.ranges and run.ranges[-1][1] < extraction.pages_total:
            run.asked_about = ((1, extraction.pages_total),)  # it is answered from those that were read by now
        if run is not None and (extraction is not None or self.queue.holds(run)):
            self.read(run.document)  # whoever only added it did not want to hear of its text
        return run

    def context_use(self, view: TabView) -> ContextUse | None:
        """Return how full the context is with the open document and conversation; None where that is not known."""
        entry, model = self.library.get(view.document), self.queue.model
        opened = self.queue.opened.get(view.document or "")
        tokens = opened.tokens if opened and self.queue.open_key == (view.document, entry and entry.ranges) else (
            entry.tokens if entry and model and entry.read_with == model.reader else None)
        if entry is None or model is None or not model.max_context or not tokens:
            return None
        answers = [answer for answer in self.conversations.answers(view.conversation) if answer.state != "running"]
        return ContextUse(tokens, conversation_tokens(answers, tokens, entry.ranges, model.name), model.max_context,
                          self.settings.max_new_tokens)

    def continue_anew(self, view: TabView) -> None:
        """Begin a conversation with the last exchanges of this one (``Questions.continue_anew``)."""
        self.questions.continue_anew(view, self.context_use(view))

    def ask_again(self, view: TabView, answer: str) -> Run | None:
        """Ask the same question in the place of an answer, with another seed. Raises Refusal."""
        return self.questions.ask_again(view, answer, self.resolved_settings())

    def find(self, view: TabView, conversation: str, answer: str) -> None:
        """Show a search hit: the document, the conversation, and the branch with the answer."""
        talk = self.conversations.get(conversation)
        if talk is None:
            return
        if view.document != talk.document:
            self.open(view, talk.document)
        view.conversation = talk.id
        if answer and answer not in {each.id for each in self.conversations.answers(talk.id)}:
            self.conversations.show(answer)

    def answer_now(self, key: str) -> None:
        """Answer a waiting question from the pages that are read by now; the rest is read behind it."""
        run = self.runs.get(key)
        pages = self.queue.pages_read(run) if run else ()
        document = self.library.document(run.document) if run else None
        if run is not None and document is not None and pages:
            self.queue.answer_from(run, Selection(run.document, document, pages))

    def race(self, view: TabView, question: str, third: str = "") -> Run:
        """Race a question (``Questions.race``). Raises Refusal and ConfigError."""
        if self.sends_to:
            raise Refusal(RACE_IS_LOCAL, remedy=RACE_IS_LOCAL_MORE)
        return self.questions.race(view, question, self.settings, third)

    def stop(self, view: TabView) -> None:
        """Stop the answer or the race that this view shows."""
        run = self.active_run(view)
        if run:
            self.queue.stop(run)

    def running(self, view: TabView) -> Run | None:
        """Return the answer that is being written in the conversation on the screen."""
        return self.runs.of_conversation(view.conversation) if view.conversation else None

    def active_run(self, view: TabView) -> Run | None:
        """Return the answer or the race that is being written and that this view shows."""
        race = self.runs.race_of(view.document)
        return self.running(view) or (race if race and not race.ended else None)

    # -- settings

    def keep(self, settings: Settings) -> bool:
        """Keep settings. Return whether the engine restarts for them."""
        self.settings = settings
        settings_store.save(self.folders.settings, settings)
        config = self._with_settings(self.queue.wanted)
        restarts = config != self.queue.config
        self.queue.reconfigure(config)
        return restarts

    def use_model(self, model: str, draft: str, weights: str = "", kv: str = "") -> None:
        """Load another model: the engine restarts with it, after its present job. weights, kv: how they are kept in
        memory; "": as the command line says."""
        self.models.keep(model, draft, weights, kv)
        forms = self._forms | {name: form for name, form in (("weights", weights), ("kv", kv)) if form}
        self.queue.reconfigure(dataclasses.replace(self.queue.wanted, model=model, draft_model=draft, server="",
                                                   **forms))

    def use_server(self, url: str, model: str) -> None:
        """Have a server of this machine answer that was found, after the engine's present job. Raises Refusal."""
        found = next((one for one in self.models.served or () if (one.url, one.name) == (url, model)), None)
        if found is None or found.problem:
            raise Refusal(NOT_SERVED.format(model=model, url=url), remedy=found.problem if found else NOT_SERVED_MORE)
        self.models.keep(model, "auto", server=url)
        self.queue.reconfigure(dataclasses.replace(self.queue.wanted, model=model, draft_model="auto", server=url))

    def resolved_settings(self) -> Settings:
        if self._plain and self.settings.engine == "auto":
            return dataclasses.replace(self.settings, engine="autoregressive")
        return self.settings

    def _with_settings(self, config: EngineConfig) -> EngineConfig:
        chosen = {name: getattr(self.settings, name) for name in settings_store.ENGINE_SETTINGS
                  if name not in self._fixed}
        return dataclasses.replace(config, **chosen)
