"""The engine's verbs. ``worker.client`` has the same ones and yields the same events."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from threading import Event
from time import perf_counter

from ..config import EngineConfig, SamplingParams, SpeculationConfig
from ..device.shard import ALONE, Shard
from ..documents.document import Document
from ..documents.prompt import PROMPT_VERSION, DocumentPrompt, PromptBuilder
from ..drafters.chain import ModelOnCache
from ..errors import ContextTooLongError, NotEnoughDiskError
from ..events import (
    DocumentFit,
    DocumentOpened,
    LoadProgress,
    ModelInfo,
    PrefillProgress,
    Turn,
)
from ..kv_cache.full import FullCache
from ..kv_cache.saved import ReadingKey, SavedReadings, token_digest
from .assembly import Loaded, full_cache, load
from .prefill import prefill, restore
from .session import AnswerEvent, Session

_KV_VERSION = 1  # raise it when the same ids and weights would give other keys or values
_CONVERSATION = 1536  # tokens left for questions and answers beside a document
_WORTH_SAVING = 2048  # tokens: shorter documents are read faster than a file is looked after


class Engine:
    """One loaded model and at most one open document. Not thread-safe but for ``cancel``.

    With several ranks, each has an engine of its own that is given the same requests; see ``device.shard``."""

    def __init__(self, config: EngineConfig, loaded: Loaded | None = None, shard: Shard = ALONE) -> None:
        """loaded: models made elsewhere, for ``load`` to take as they are (benchmarks grow theirs)."""
        self.config, self._shard = config, loaded.shard if loaded else shard
        self._loaded = loaded
        self._builder = PromptBuilder(loaded.tokenizer) if loaded else None
        self._session: Session | None = None
        self._read_seconds = 0.0  # what reading the open document cost, now or when it was saved
        self._cancel = Event()
        self._saved = SavedReadings(config.saved_readings, config.saved_quota_bytes) if config.saved_readings else None

    def load(self) -> Iterator[LoadProgress | ModelInfo]:
        """Load the model unless it is loaded. Raises ModelError kinds, ConfigError, NotEnoughMemoryError."""
        if self._loaded is None:
            for step in load(self.config, self._shard):
                if isinstance(step, Loaded):
                    self._loaded = step
                    self._builder = PromptBuilder(step.tokenizer)
                else:
                    yield step
        assert self._loaded is not None
        yield self._loaded.info

    def measure(self, document: Document) -> DocumentFit:
        """How many tokens the document takes, page by page, and how many fit."""
        page_tokens = tuple(self._need_builder().tokens_of_pages(document))
        return DocumentFit(sum(page_tokens), self._longest_document, page_tokens)

    def open_document(self, document: Document) -> Iterator[PrefillProgress | DocumentOpened]:
        """Read the document into the cache, or take its saved reading. Cancelled: ends without DocumentOpened.

        Raises ContextTooLongError (nothing is ever cut silently), NotEnoughMemoryError."""
        builder, loaded = self._need_builder(), self._need_loaded()
        self._cancel.clear()
        started = perf_counter()
        prompt = builder.document(document)
        if self._session is not None and self._session.prompt.document_id == prompt.document_id:
            yield self._opened(prompt, 0.0, restored=True)
            return
        fit = builder.fit(document, self._longest_document)
        if not fit.fits:
            raise ContextTooLongError(str(fit), remedy=f"Choose a page range, such as 1-{max(1, fit.pages_fit)}.")
        self._session = None  # its cache goes before the new one comes
        tokens = prompt.token_ids.tolist()
        full = full_cache(loaded, len(tokens) + _CONVERSATION)
        chunk = self._chunk(loaded)
        key = self._key(document, tokens, chunk)
        read_seconds = restore(full, self._saved, key) if self._saved else None
        restored = self._shard.least(read_seconds is not None) == 1
        if not restored or read_seconds is None:
            full.reset()  # this rank may have restored what another has not
            yield from prefill(full, tokens, chunk, self._cancelled)
            if full.length < len(tokens):
                return
            read_seconds = perf_counter() - started
            yield from self._save(full, key, read_seconds, document.title)
        self._read_seconds = read_seconds
        self._session = Session(loaded, builder, prompt, full, chunk)
        yield self._opened(prompt, perf_counter() - started, restored)

    def ask(self, question: str | None, history: Sequence[Turn], sampling: SamplingParams,
            speculation: SpeculationConfig) -> Iterator[AnswerEvent]:
        """Answer about the open document; the last event is Finished. question None: go on with its text."""
        assert self._session is not None, "open a document first"
        self._cancel.clear()
        yield from self._session.ask(question, history, sampling, speculation, self._cancelled)

    def cancel(self) -> None:
        """From any thread: end what runs, within one prefill chunk or one round."""
        self._cancel.set()

    def _cancelled(self) -> bool:
        """Asked by all ranks at the same places, so that they stop together: when rank 0 was told to."""
        return bool(self._shard.same([self._cancel.is_set()])[0])

    def close(self) -> None:
        self._session = self._builder = self._loaded = None

    @property
    def _longest_document(self) -> int:
        context = self._need_loaded().info.max_context
        return context - min(_CONVERSATION, context // 4)

    def _opened(self, prompt: DocumentPrompt, seconds: float, restored: bool) -> DocumentOpened:
        return DocumentOpened(prompt.document_id, len(prompt.token_ids), prompt.pages, seconds, self._read_seconds,
                              restored, self._need_loaded().info.max_context)

    def _save(self, full: ModelOnCache, key: ReadingKey, read_seconds: float, title: str) -> Iterator[PrefillProgress]:
        cache = full.cache
        assert isinstance(cache, FullCache)
        tokens = cache.num_committed
        if self._saved is None or tokens < _WORTH_SAVING:
            return
        layers = [cache.read(layer) for layer in range(cache.num_layers)]
        started = perf_counter()
        # A reading that cannot be kept (full disk, quota) costs the next opening time, not this one.
        with suppress(NotEnoughDiskError):
            for fraction in self._saved.save_steps(key, layers, read_seconds=read_seconds, title=title):
                if self._cancel.is_set():
                    return
                spent = perf_counter() - started
                yield PrefillProgress(int(fraction * tokens), tokens, fraction * tokens / max(spent, 1e-9),
                                      spent / max(fraction, 1e-9) - spent, "save")

    def _key(self, document: Document, tokens: list[int], chunk: int) -> ReadingKey:
        loaded = self._need_loaded()
        settings = [("device", loaded.target.device.type), ("kv", str(_KV_VERSION)), ("prefill_chunk", str(chunk))]
        if self._shard.world > 1:  # each keeps the keys and values of its own heads
            settings.append(("rank", f"{self._shard.rank} of {self._shard.world}"))
        return ReadingKey(document.id, token_digest(tokens), loaded.fingerprint, loaded.tokenizer.fingerprint,
                          loaded.info.dtype, str(PROMPT_VERSION), tuple(settings))

    def _chunk(self, loaded: Loaded) -> int:
        if self.config.prefill_chunk != "auto":
            return self.config.prefill_chunk
        return 2048 if loaded.target.device.type == "cuda" else 512

    def _need_loaded(self) -> Loaded:
        assert self._loaded is not None, "load first"
        return self._loaded

    def _need_builder(self) -> PromptBuilder:
        assert self._builder is not None, "load first"
        return self._builder
