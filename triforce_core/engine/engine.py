"""The engine's verbs. ``worker.client`` has the same ones and yields the same events."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import replace
from time import perf_counter
from typing import TypeVar

import numpy as np

from ..config import EngineConfig, SamplingParams, SpeculationConfig
from ..device.capability import describe, read_capability
from ..device.memory import give_back, ran_out, read_use
from ..device.shard import ALONE, Shard, require_gpus
from ..documents.document import Document
from ..errors import ConfigError, NotEnoughMemoryError
from ..events import (
    DocumentFit,
    DocumentOpened,
    EngineFacts,
    LoadProgress,
    MachineInfo,
    MemoryPlan,
    ModelInfo,
    PrefillProgress,
    Script,
    Turn,
)
from ..kv_cache.full import FullCache
from ..kv_cache.snapshot import SnapshotStore
from ..prompt.builder import PromptBuilder
from ..prompt.quotations import Quoting
from ..speculation.cost_profile import Profile
from ..speculation.model_drafter import ModelOnCache
from . import promise
from .loading import Loaded, choose, fingerprint, full_cache, load
from .pipeline import Parts
from .plan import prefill_chunk
from .prefill import Cancellation, LeftConversations, Reading, prefill, prepare
from .saved_readings import SavedReading
from .session import AnswerEvent, Question, Session
from .tune import ROOM, open_profile, subject, tune, usual_lengths

_CONVERSATION = 1536  # tokens of questions and answers that memory is planned for
_FIRST_ANSWER = 640  # tokens left beside a document at least: for a question and a short answer
_SHORTEST_TUNED = 1024  # tokens: passes over less context cost what their weights cost
_Step = TypeVar("_Step")


class Engine:
    """One loaded model and at most one open document. Not thread-safe but for ``cancel`` and ``facts``.

    With several ranks, each has an engine of its own that is given the same requests; see ``device.shard``."""

    parts = Parts  # what makes plans and pipelines

    def __init__(self, config: EngineConfig, loaded: Loaded | None = None, shard: Shard = ALONE) -> None:
        """loaded: models made elsewhere, for ``load`` to take as they are (benchmarks grow theirs)."""
        self.config, self._shard = config, loaded.shard if loaded else shard
        self._loaded = loaded
        self._quoting = Quoting(PromptBuilder(loaded.tokenizer)) if loaded else None
        self._session: Session | None = None
        self._opened: DocumentOpened | None = None  # what was said of the open document
        self._wanted: int | None = None  # tokens of context that the document being opened, or open, shall have
        self._left = LeftConversations()
        self._profile: Profile | None = None  # of the loaded model; None where nothing is kept
        self._cancelled = Cancellation(self._shard)
        self._settings = SpeculationConfig()  # of the last answer: the next one's, most likely
        self._saved = SnapshotStore(config.saved_readings, config.saved_quota_bytes) if config.saved_readings else None

    def check(self) -> Iterator[MachineInfo | ModelInfo]:
        """Yield what this machine has, and what would be loaded and how it would lie in memory; load nothing.
        Raises as ``load``."""
        yield MachineInfo(tuple(describe(read_capability())))
        require_gpus(self.config.gpus, self.config.on_cpu)
        chosen = choose(self.config, Shard(0, self.config.gpus), together=False)
        info = chosen.measured()
        if self.config.measurements is None:
            yield info
            return
        whose = subject(chosen.device, chosen.info.dtype, chosen.fingerprint,
                        fingerprint(chosen.draft_folder), chosen.planner.shard)
        yield replace(info, drafting=open_profile(self.config.measurements, whose).in_words())

    def load(self) -> Iterator[LoadProgress | ModelInfo]:
        """Load the model unless it is loaded. Raises ModelError kinds, ConfigError, NotEnoughMemoryError."""
        if self._loaded is None:
            for step in load(self.config, self._shard):
                if isinstance(step, Loaded):
                    self._loaded = step
                    self._quoting = Quoting(PromptBuilder(step.tokenizer))
                else:
                    yield step
        assert self._loaded is not None
        if self._profile is None and (self.config.measurements is not None or self.config.tune):
            self._profile = self._open_profile()
            yield from self._try_draft(self._profile)
        yield self._info

    def _try_draft(self, profile: Profile) -> Iterator[LoadProgress]:
        """Measure once what a draft model of another family promises, so that it is left out where it does not pay."""
        loaded = self._need_loaded()
        if loaded.words is not None and profile.promise is None and self._shard.world == 1:
            for share in promise.measure(loaded, profile):
                yield LoadProgress(f"Trying {loaded.info.draft_name} as draft model", share)

    def tune(self, contexts: Sequence[int] = ()) -> Iterator[PrefillProgress | ModelInfo]:
        """Measure what passes cost here, and forget what was measured before; closes the open document. The last event
        is the ModelInfo, which says what follows; cancelled: it says what is known by then.

        contexts: tokens of context to measure at (empty: a short one and a long one). Raises ConfigError."""
        loaded = self._need_loaded()
        self._cancelled.clear()
        longest = loaded.planner.plan(None, self._held, together=True).context
        for context in contexts:
            if not _SHORTEST_TUNED <= context <= longest - ROOM:
                raise ConfigError(f"context is {context}", allowed=f"{_SHORTEST_TUNED} to {longest - ROOM}")
        self._session = None
        self._profile = self._profile or self._open_profile()
        self._profile.forget()
        chunk = prefill_chunk(self.config, loaded.target.config.group_size, on_gpu=loaded.target.device.type == "cuda",
                              streams=False)
        yield from self._within_memory("measuring", tune(
            loaded, self._profile, contexts or usual_lengths(loaded, longest), chunk, self._cancelled,
            lambda tokens: loaded.planner.plan(tokens, self._held, together=True)))
        yield self._info

    def _open_profile(self) -> Profile:
        """Open what is kept of this machine with the loaded model, or nothing yet."""
        loaded = self._need_loaded()
        whose = subject(loaded.target.device, loaded.info.dtype, loaded.fingerprint, loaded.draft_fingerprint,
                        self._shard)
        profile = open_profile(self.config.measurements, whose)
        if self.config.tune:
            profile.forget()
        return profile

    @property
    def _info(self) -> ModelInfo:
        info = self._need_loaded().info
        return info if self._profile is None else replace(info, drafting=self._profile.in_words())

    def measure(self, document: Document, heard: Callable[[PrefillProgress], None] = lambda progress: None
                ) -> DocumentFit:
        """Return how many tokens the document takes, page by page, and how many fit into the context and into memory
        now. heard: called meanwhile with how far the count is. Raises NotEnoughMemoryError."""
        page_tokens = tuple(page.end - page.start for page in self.builder().document(document, heard).pages)
        loaded = self._need_loaded()
        context = loaded.planner.plan(None, self._held).context
        return DocumentFit(sum(page_tokens), _without_conversation(context), page_tokens,
                           "memory" if context < loaded.info.max_context else "context")

    def open_document(self, document: Document) -> Iterator[PrefillProgress | DocumentOpened]:
        """Read the document into the cache, or take its saved reading. Cancelled: ends without DocumentOpened.

        Raises ContextTooLongError (nothing is ever cut silently), NotEnoughMemoryError."""
        yield from self._within_memory("reading", self._open(document))

    def _open(self, document: Document) -> Iterator[PrefillProgress | DocumentOpened]:
        builder, loaded = self.builder(), self._need_loaded()
        self._cancelled.clear()
        started = perf_counter()
        prompt = builder.document(document)
        if self._session is not None and self._session.prompt.document_id == prompt.document_id:
            assert self._opened is not None, "set with the session"
            yield replace(self._opened, seconds=0.0, restored=True, unsaved="", reused=0, damaged=False)
            return
        builder.require_fit(prompt, _without_conversation(loaded.info.max_context))
        tokens = prompt.token_ids.tolist()
        wanted = self._wanted = min(len(tokens) + _CONVERSATION, loaded.info.max_context)
        plan = loaded.planner.plan(wanted, self._held, together=True)
        chunk = prefill_chunk(self.config, loaded.target.config.group_size, on_gpu=loaded.target.device.type == "cuda",
                              streams=plan.resident_layers < plan.num_layers)
        if self._session is not None:
            self._session.reading.leave()
        full = self._cut_to_common(plan, tokens, chunk, wanted)
        self._session = None  # its cache goes before a new one comes
        if full is None:
            full = full_cache(loaded, plan)
            yield from prepare(full, len(tokens), self._cancelled)
        damaged = self._saved.damaged if self._saved else 0
        opened = DocumentOpened(prompt.document_id, len(tokens), prompt.pages, 0.0, 0.0, True, loaded.info.max_context)
        saved = SavedReading(self._saved, loaded, document.id, document.title, tokens, chunk, plan.kv_kind)
        read_seconds = yield from saved.restore(full)
        if self._shard.least(read_seconds is not None) == 1 and read_seconds is not None:
            opened = replace(opened, read_seconds=read_seconds)
        else:
            if read_seconds is not None:
                full.reset()  # this rank has restored what another has not
            reused = yield from self._read(full, tokens, chunk, saved)
            read_seconds = perf_counter() - started
            if full.length < len(tokens):
                yield from saved.save_beginning(full, reused, read_seconds)
                return
            unsaved = yield from saved.save(full, read_seconds, self._cancelled.is_set)
            opened = replace(opened, read_seconds=read_seconds, restored=False, unsaved=unsaved, reused=reused)
        shared = len(tokens) - prompt.tail
        reading = Reading(full, document.id, tokens, shared, chunk, self._left)
        self._opened = opened
        self._session = session = Session(loaded, self.quoting(), prompt, reading, plan, self._profile, self.parts)
        yield from session.prefill_draft_model(self._cancelled)
        yield from session.prepare(self._settings, self._cancelled)
        usual = session.usual_shares(self._settings, self._cancelled)
        self._opened = replace(opened, seconds=perf_counter() - started, usual_shares=usual,
                               damaged=self._saved is not None and self._saved.damaged > damaged)
        yield self._opened

    def _cut_to_common(self, plan: MemoryPlan, tokens: list[int], chunk: int,
                       wanted: int) -> ModelOnCache[FullCache] | None:
        """Return the open document's cache, cut to the whole chunks with which the new one begins too: where there are
        none, for its memory, which takes a while to clear anew. None where the new one needs a cache of another kind,
        or room for more than this (wanted: tokens), or so little that most of this would lie idle."""
        session = self._session
        if session is None or (session.memory.resident_layers, session.memory.kv_kind) != (plan.resident_layers,
                                                                                             plan.kv_kind):
            return None
        both = min(len(tokens), len(session.prompt.token_ids))
        differ = np.flatnonzero(session.prompt.token_ids[:both] != tokens[:both])
        alike = int(differ[0] if len(differ) else both) // chunk * chunk
        cache = session.full.cache
        fits = cache.max_tokens >= wanted if alike else not cache.streams and wanted <= cache.slots <= 2 * wanted
        if not self._shard.least(fits):
            return None
        session.full.observer = None
        session.full.truncate(alike if cache.reachable(alike) == alike else 0)
        return session.full

    def _read(self, full: ModelOnCache[FullCache], tokens: list[int], chunk: int, saved: SavedReading
              ) -> Generator[PrefillProgress, None, int]:
        """Prefill what neither the cache nor a saved reading holds of these tokens. Return how many they held."""
        yield from saved.restore_beginning(full)
        reused = self._shard.least(full.length)
        full.truncate(reused)
        yield from prefill(full, tokens[reused:], chunk, self._cancelled, len(tokens))
        return reused

    def ask(self, question: str | None, history: Sequence[Turn], sampling: SamplingParams,
            speculation: SpeculationConfig, system: str = "", script: Script | None = None) -> Iterator[AnswerEvent]:
        """Answer about the open document; the last event is Finished. question None: go on with its text. system:
        instructions for the whole conversation. script: what a model that only quotes says; other models do not heed
        it.

        Raises ContextTooLongError, ConfigError, NotSpelledError (of the script nothing is spelled then);
        NotEnoughMemoryError, after which the document must be opened again."""
        assert self._session is not None, "open a document first"
        self._cancelled.clear()
        if speculation.engine != "autoregressive":  # plain decoding needs next to nothing
            self._settings = speculation
        answer = self._session.ask(Question(question, history, sampling, speculation, system, script),
                                   self._cancelled)
        yield from self._within_memory("answering", answer)

    def prepare(self) -> Iterator[PrefillProgress]:
        """Make ready, between answers, what the last one's settings need and was not there yet, as another one with
        them may follow. Cancelled, or without a document, it ends early. Where memory runs out nothing is made ready.
        """
        if self._session is None:
            return
        self._cancelled.clear()
        try:
            yield from self._session.prepare(self._settings, self._cancelled)
        except Exception as error:
            # One rank alone cannot do without what the others go on with.
            if self._shard.world > 1 or not (isinstance(error, NotEnoughMemoryError) or ran_out(error)):
                raise
            self._session.release()
            give_back(error)

    def facts(self) -> EngineFacts | None:
        """Return where things lie now; None before the model is loaded. From any thread; waits for nothing."""
        loaded, session, profile = self._loaded, self._session, self._profile  # the thread that works may change them
        if loaded is None:
            return None
        use = read_use(loaded.planner.device, loaded.planner.limit)
        mode, why = loaded.info.mode, loaded.info.why
        if session is not None:
            mode, why = session.memory.mode, f"{loaded.planner.why_there}; {session.memory.why}"
        return EngineFacts(mode, why, use.host_used, use.host_free, use.device_used, use.device_free,
                           profile.in_words() if profile is not None else "",
                           loaded.copy_rate and loaded.copy_rate * self._shard.world)

    def cancel(self) -> None:
        """End what runs, within one prefill chunk or one round. From any thread."""
        self._cancelled.set()

    def close(self) -> None:
        self._session = self._quoting = self._loaded = self._profile = None

    def _within_memory(self, doing: str, steps: Iterator[_Step]) -> Iterator[_Step]:
        """Run ``steps``; where memory runs out, give back everything they hold and raise NotEnoughMemoryError."""
        try:
            yield from steps
        except Exception as error:
            if not isinstance(error, NotEnoughMemoryError) and not ran_out(error):
                raise
            if doing == "answering":  # a pass that broke off has left its caches in an unknown state
                self._session = None
            if self._session is None:
                self._need_loaded().copies.clear()  # of the weights: only speed is lost with them
            give_back(error)
            raise self._need_loaded().planner.too_little(error, doing, self._wanted, self._held) from None

    @property
    def _held(self) -> int:
        """Return the host memory that the models and the open document's cache have taken, and a new document may have.
        """
        planner, session = self._need_loaded().planner, self._session
        if planner.device.type != "cpu":
            return session.memory.host if session else 0
        return planner.loaded_bytes + (session.full.cache.nbytes if session else 0)

    def _need_loaded(self) -> Loaded:
        assert self._loaded is not None, "load first"
        return self._loaded

    def builder(self) -> PromptBuilder:
        """Return what lays out prompts for the loaded model."""
        return self.quoting().builder

    def quoting(self) -> Quoting:
        """Return what holds the loaded model's answers to a document's words."""
        assert self._quoting is not None, "load first"
        return self._quoting


def _without_conversation(context: int) -> int:
    """Return the tokens of a document that leave room for questions and answers."""
    return context - min(_FIRST_ANSWER, context // 4)
