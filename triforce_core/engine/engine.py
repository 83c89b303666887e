"""The engine's verbs. ``worker.client`` has the same ones and yields the same events."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import replace
from threading import Event
from time import perf_counter
from typing import TypeVar

import numpy as np
import torch

from ..config import EngineConfig, SamplingParams, SpeculationConfig
from ..device.bandwidth import copy_rate
from ..device.capability import describe, read_capability
from ..device.memory import give_back, ran_out, read_use
from ..device.shard import ALONE, Shard, require_gpus
from ..documents.document import Document
from ..errors import ConfigError, ContextTooLongError, NotEnoughDiskError, NotEnoughMemoryError
from ..events import (
    DocumentFit,
    DocumentOpened,
    EngineFacts,
    LoadProgress,
    MachineInfo,
    MemoryPlan,
    ModelInfo,
    PrefillProgress,
    Turn,
)
from ..kernels import compiled
from ..kv_cache.full import FullCache
from ..kv_cache.snapshot import KV_VERSION, PROMPT_VERSION, SnapshotKey, SnapshotStore, prefix_digests, token_digest
from ..packages import FOR_QUOTES, require
from ..prompt.builder import DocumentPrompt, PromptBuilder
from ..speculation.cost_profile import Profile
from ..speculation.model_drafter import ModelOnCache
from .loading import Loaded, choose, fingerprint, full_cache, load
from .pipeline import Parts
from .plan import prefill_chunk
from .prefill import LeftConversations, prefill, prepare, restore, restore_beginning, share_done
from .quoting import Quoting
from .session import AnswerEvent, Question, Session
from .tune import ROOM, open_profile, subject, tune, usual_lengths

_CONVERSATION = 1536  # tokens left for questions and answers beside a document
_SHORTEST_TUNED = 1024  # tokens: passes over less context cost what their weights cost
_COPIED = 512 * 2**20  # bytes: far beyond any GPU's cache, and copied in a millisecond
_WORTH_SAVING = 2048  # tokens: shorter documents are read faster than a file is looked after
_SAVED_PER_SECOND = 5 * 10**8  # bytes, checksum included
_WORTH_KEEPING = 0.2  # seconds that keeping an unfinished reading may take, of each that it took
_Step = TypeVar("_Step")


# large: the loaded model, the open document, and what is kept of both
class Engine:
    """One loaded model and at most one open document. Not thread-safe but for ``cancel`` and ``facts``.

    With several ranks, each has an engine of its own that is given the same requests; see ``device.shard``."""

    parts = Parts  # what makes plans and pipelines
    answers_people = True  # so that whatever an answer may need is looked for before a document is read

    def __init__(self, config: EngineConfig, loaded: Loaded | None = None, shard: Shard = ALONE) -> None:
        """loaded: models made elsewhere, for ``load`` to take as they are (benchmarks grow theirs)."""
        self.config, self._shard = config, loaded.shard if loaded else shard
        self._loaded = loaded
        self._quoting = Quoting(PromptBuilder(loaded.tokenizer)) if loaded else None
        self._session: Session | None = None
        self._plan: MemoryPlan | None = None  # of the open document
        self._wanted: int | None = None  # tokens of context that the document being opened, or open, shall have
        self._copy_rate: float | None = None  # of this rank's GPU, see EngineFacts
        self._read_seconds = 0.0  # what reading the open document cost, now or when it was saved
        self._left = LeftConversations()
        self._usual: tuple[float, ...] = ()  # what each page of the open document usually gets of the attention
        self._profile: Profile | None = None  # of the loaded model; None where nothing is kept
        self._cancel = Event()
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
        # Where several ranks measure, the first one's figures are told.
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
                    self._copy_rate = _copy_rate(step)
                else:
                    yield step
        assert self._loaded is not None
        if self._profile is None and (self.config.measurements is not None or self.config.tune):
            self._profile = self._open_profile()
        yield self._info

    def tune(self, contexts: Sequence[int] = ()) -> Iterator[PrefillProgress | ModelInfo]:
        """Measure what passes cost here, and forget what was measured before; closes the open document. The last event
        is the ModelInfo, which says what follows; cancelled: it says what is known by then.

        contexts: tokens of context to measure at (empty: a short one and a long one). Raises ConfigError."""
        loaded = self._need_loaded()
        self._cancel.clear()
        longest = loaded.planner.plan(None, self._held, together=True).context
        for context in contexts:
            if not _SHORTEST_TUNED <= context <= longest - ROOM:
                raise ConfigError(f"context is {context}", allowed=f"{_SHORTEST_TUNED} to {longest - ROOM}")
        self._session = self._plan = None
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
        """How many tokens the document takes, page by page, and how many fit into the context and into memory now.
        heard: called meanwhile with how far the count is. Raises NotEnoughMemoryError."""
        page_tokens = tuple(self.builder().tokens_of_pages(document, heard))
        loaded = self._need_loaded()
        context = loaded.planner.plan(None, self._held).context
        return DocumentFit(sum(page_tokens), _without_conversation(context), page_tokens,
                           "memory" if context < loaded.info.max_context else "context")

    def open_document(self, document: Document) -> Iterator[PrefillProgress | DocumentOpened]:
        """Read the document into the cache, or take its saved reading. Cancelled: ends without DocumentOpened.

        Raises ContextTooLongError (nothing is ever cut silently), NotEnoughMemoryError, ConfigError where a package is
        not installed that answers need."""
        yield from self._within_memory("reading", self._open(document))

    def _open(self, document: Document) -> Iterator[PrefillProgress | DocumentOpened]:
        builder, loaded = self.builder(), self._need_loaded()
        self._cancel.clear()
        started = perf_counter()
        if self.answers_people and builder.quote_format is not None and self._settings.quotes != "off":
            require(FOR_QUOTES, "A model that quotes")
        prompt = builder.document(document)
        if self._session is not None and self._session.prompt.document_id == prompt.document_id:
            yield self._opened(prompt, 0.0, restored=True)
            return
        fit = builder.fit(document, _without_conversation(loaded.info.max_context))
        if not fit.fits:
            raise ContextTooLongError(str(fit), remedy=f"Choose a page range, such as 1-{max(1, fit.pages_fit)}.")
        tokens = prompt.token_ids.tolist()
        wanted = self._wanted = min(len(tokens) + _CONVERSATION, loaded.info.max_context)
        plan = loaded.planner.plan(wanted, self._held, together=True)
        chunk = prefill_chunk(self.config, loaded.target.config.group_size, on_gpu=loaded.target.device.type == "cuda",
                              streams=plan.resident_layers < plan.num_layers)
        if self._session is not None:
            self._session.leave()
        full = self._cut_to_common(plan, tokens, chunk, wanted)
        self._session = self._plan = None  # its cache goes before a new one comes
        if full is None:
            full = full_cache(loaded, plan)
            yield from prepare(full, len(tokens), self._cancelled)
        key, reused, unsaved = self._key(document, tokens, chunk, plan.kv_kind), 0, ""
        prefixes = prefix_digests(tokens, chunk) if self._saved else []
        damaged = self._saved.damaged if self._saved else 0
        read_seconds = (yield from restore(full, self._saved, key, len(tokens))) if self._saved else None
        restored = self._shard.least(read_seconds is not None) == 1
        if not restored or read_seconds is None:
            if read_seconds is not None:
                full.reset()  # this rank has restored what another has not
            reused = yield from self._read(full, tokens, chunk, key, prefixes)
            read_seconds = perf_counter() - started
            if full.length < len(tokens):
                beginning = tokens[: full.length // chunk * chunk]
                key = self._key(document, beginning, chunk, plan.kv_kind)
                yield from self._save_beginning(full, key, prefixes[: len(beginning) // chunk], len(beginning), reused,
                                                read_seconds, document.title)
                return
            unsaved = yield from self._save(full, key, prefixes, read_seconds, document.title)
        self._read_seconds = read_seconds
        self._session = Session(loaded, self.quoting(), prompt, full, chunk, self._profile, self._left, plan.budget,
                                self.parts)
        self._plan = plan
        yield from self._session.prefill_draft_model(self._cancelled)
        yield from self._session.prepare(self._settings, self._cancelled)
        self._usual = self._session.usual_shares(self._settings, self._cancelled)
        opened = self._opened(prompt, perf_counter() - started, restored, unsaved, reused)
        yield replace(opened, damaged=self._saved is not None and self._saved.damaged > damaged)

    def _cut_to_common(self, plan: MemoryPlan, tokens: list[int], chunk: int,
                       wanted: int) -> ModelOnCache[FullCache] | None:
        """The open document's cache, cut to the whole chunks with which the new one begins too: where there are none,
        for its memory, which takes a while to clear anew. None where the new one needs a cache of another kind, or room
        for more than this (wanted: tokens), or so little that most of this would lie idle."""
        session, old = self._session, self._plan
        if session is None or old is None or (old.resident_layers, old.kv_kind) != (plan.resident_layers, plan.kv_kind):
            return None
        both = min(len(tokens), len(session.prompt.token_ids))
        differ = np.flatnonzero(session.prompt.token_ids[:both] != tokens[:both])
        alike = int(differ[0] if len(differ) else both) // chunk * chunk
        cache = session.full.cache
        fits = cache.max_tokens >= wanted if alike else not cache.streams and wanted <= cache.slots <= 2 * wanted
        if not self._shard.least(fits):
            return None
        session.full.observer = None
        session.full.truncate(alike)
        return session.full

    def _read(self, full: ModelOnCache[FullCache], tokens: list[int], chunk: int, key: SnapshotKey,
              prefixes: Sequence[str]) -> Generator[PrefillProgress, None, int]:
        """Prefill what neither the cache nor a saved reading holds of these tokens. Returns how many they held."""
        if self._saved:
            yield from restore_beginning(full, self._saved, key, prefixes, chunk)
        reused = self._shard.least(full.length)
        full.truncate(reused)
        yield from prefill(full, tokens[reused:], chunk, self._cancelled, len(tokens))
        return reused

    def ask(self, question: str | None, history: Sequence[Turn], sampling: SamplingParams,
            speculation: SpeculationConfig, system: str = "") -> Iterator[AnswerEvent]:
        """Answer about the open document; the last event is Finished. question None: go on with its text. system:
        instructions for the whole conversation.

        Raises ContextTooLongError, ConfigError; NotEnoughMemoryError, after which the document must be opened again."""
        assert self._session is not None, "open a document first"
        self._cancel.clear()
        if speculation.engine != "autoregressive":  # plain decoding needs next to nothing
            self._settings = speculation
        answer = self._session.ask(Question(question, history, sampling, speculation, system), self._cancelled)
        yield from self._within_memory("answering", answer)

    def prepare(self) -> Iterator[PrefillProgress]:
        """Between answers: make ready what the last one's settings need and was not there yet, as another one with them
        may follow. Cancelled, or without a document, it ends early. Where memory runs out nothing is made ready."""
        if self._session is None:
            return
        self._cancel.clear()
        try:
            yield from self._session.prepare(self._settings, self._cancelled)
        except Exception as error:
            # One rank alone cannot do without what the others go on with.
            if self._shard.world > 1 or not (isinstance(error, NotEnoughMemoryError) or ran_out(error)):
                raise
            self._session.release()
            give_back(error)

    def facts(self) -> EngineFacts | None:
        """Where things lie now; None before the model is loaded. From any thread; waits for nothing."""
        loaded, plan, profile = self._loaded, self._plan, self._profile  # the thread that works may change them
        if loaded is None:
            return None
        use = read_use(loaded.planner.device, loaded.planner.limit)
        mode, why = loaded.info.mode, loaded.info.why
        if plan is not None:
            mode, why = plan.mode, f"{loaded.planner.why_there}; {plan.why}"
        return EngineFacts(mode, why, use.host_used, use.host_free, use.device_used, use.device_free,
                           profile.in_words() if profile is not None else "",
                           self._copy_rate and self._copy_rate * self._shard.world)

    def cancel(self) -> None:
        """From any thread: end what runs, within one prefill chunk or one round."""
        self._cancel.set()

    def _cancelled(self) -> bool:
        """Say whether to stop. All ranks ask at the same places, so that they stop together, when rank 0 was
        cancelled."""
        return bool(self._shard.same([self._cancel.is_set()])[0])

    def close(self) -> None:
        self._session = self._quoting = self._loaded = self._plan = self._profile = None

    def _within_memory(self, doing: str, steps: Iterator[_Step]) -> Iterator[_Step]:
        """Run ``steps``; where memory runs out, give back everything they hold and raise NotEnoughMemoryError."""
        try:
            yield from steps
        except Exception as error:
            if not isinstance(error, NotEnoughMemoryError) and not ran_out(error):
                raise
            if doing == "answering":  # a pass that broke off has left its caches in an unknown state
                self._session = self._plan = None
            if self._session is None:
                self._need_loaded().copies.clear()  # of the weights: only speed is lost with them
            give_back(error)
            raise self._need_loaded().planner.too_little(error, doing, self._wanted, self._held) from None

    @property
    def _held(self) -> int:
        """Host memory that the models and the open document's cache have taken, and that a new document may have."""
        planner, plan = self._need_loaded().planner, self._plan
        if planner.device.type != "cpu":
            return plan.host if plan else 0
        return planner.loaded_bytes + (self._session.full.cache.nbytes if self._session else 0)

    def _opened(self, prompt: DocumentPrompt, seconds: float, restored: bool, unsaved: str = "",
                reused: int = 0) -> DocumentOpened:
        return DocumentOpened(prompt.document_id, len(prompt.token_ids), prompt.pages, seconds, self._read_seconds,
                              restored, self._need_loaded().info.max_context, unsaved=unsaved,
                              reused=reused, usual_shares=self._usual)

    def _save_beginning(self, full: ModelOnCache[FullCache], key: SnapshotKey, prefixes: Sequence[str], kept: int,
                        reused: int, read_seconds: float, title: str) -> Iterator[PrefillProgress]:
        """A reading that was cut short: its whole chunks, for whoever goes on with it, where writing them takes little
        beside what reading them took."""
        cache = full.cache
        if not self._saved or kept - reused < _WORTH_SAVING or self._shard.world > 1:
            return
        full.truncate(kept)
        keys, values = cache.read(0)
        size = cache.num_layers * (keys.nbytes + values.nbytes)
        read_seconds *= kept / (kept - reused)  # as if all of it had been read now
        if size / _SAVED_PER_SECOND < read_seconds * _WORTH_KEEPING:
            yield from self._save(full, key, prefixes, read_seconds, title, unfinished=True)

    def _save(self, full: ModelOnCache[FullCache], key: SnapshotKey, prefixes: Sequence[str], read_seconds: float,
              title: str, unfinished: bool = False) -> Generator[PrefillProgress, None, str]:
        """Returns why it could not be kept (full disk, quota, folder): that costs the next opening time, not this one.
        unfinished: it was cancelled already."""
        cache = full.cache
        tokens = cache.num_committed
        if self._saved is None or tokens < _WORTH_SAVING:
            return ""
        layers = [cache.read(layer) for layer in range(cache.num_layers)]
        started = perf_counter()
        try:
            for fraction in self._saved.save_steps(key, layers, read_seconds=read_seconds, title=title,
                                                   prefixes=prefixes, unfinished=unfinished):
                if self._cancel.is_set() and not unfinished:
                    return ""
                yield share_done("save", fraction, tokens, started)
        except NotEnoughDiskError as error:
            return str(error)
        return ""

    def _key(self, document: Document, tokens: list[int], chunk: int, kv_kind: str) -> SnapshotKey:
        loaded = self._need_loaded()
        settings = [("device", loaded.target.device.type), ("kv", str(KV_VERSION)), ("prefill_chunk", str(chunk))]
        if loaded.target.device.type == "cpu" and loaded.target.dtype == torch.bfloat16 and compiled().library:
            settings.append(("kernels", "own"))  # they round otherwise than torch's
        if loaded.target.in_groups:
            settings.append(("weights", "in groups"))
        if kv_kind != "same":
            settings.append(("kv_kind", kv_kind))
        if self._shard.world > 1:  # each keeps the keys and values of its own heads
            settings.append(("rank", f"{self._shard.rank} of {self._shard.world}"))
        return SnapshotKey(document.id, token_digest(tokens), loaded.fingerprint, loaded.tokenizer.fingerprint,
                          loaded.info.dtype, str(PROMPT_VERSION), tuple(settings))

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


def _copy_rate(loaded: Loaded) -> float | None:
    """Measure the copy rate of the GPU that this rank was put on, while its cache is not there yet; None on a CPU, and
    where even so little memory is not free."""
    device = loaded.target.device
    if device.type != "cuda":
        return None
    try:
        with torch.cuda.device(device):
            return copy_rate(_COPIED)
    except Exception as error:
        if not ran_out(error):
            raise
        return None
    finally:
        torch.cuda.empty_cache()


def _without_conversation(context: int) -> int:
    """Tokens of a document that leave room for questions and answers."""
    return context - min(_CONVERSATION, context // 4)
