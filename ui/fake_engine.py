"""``--engine fake``: the engine's verbs without a model. Deterministic, and as slow or as faulty as its script says.

The page's tests and the README's screenshots run on it. Its answers are sentences of the document, its tokens are
words, its figures obey the same rules as real ones (every token has an origin, accepted <= tested, shares sum to 1).
"""

from __future__ import annotations

import os
import random
import re
import threading
import time
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from triforce_core import (
    AnswerStats,
    AttendedChunk,
    Document,
    DocumentFit,
    DocumentOpened,
    EngineConfig,
    EngineDiedError,
    EngineFacts,
    EngineStatus,
    Event,
    Finished,
    LoadProgress,
    MachineInfo,
    ModelInfo,
    PageSpan,
    PrefillProgress,
    RoundEvent,
    SamplingParams,
    SpeculationConfig,
    TextDelta,
    TierCount,
    Turn,
)

OPENING = "This is the fake engine: it quotes the document and understands nothing. "
WORD = re.compile(r"\s*\S+")


@dataclass
class FakeScript:
    """Dials that a test may turn while the engine runs. crash_after: tokens until the next answer's engine dies."""

    load_seconds: float = 0.3
    prefill_tokens_per_second: float = 20_000.0
    prefill_chunk: int = 256
    restore_seconds: float = 0.1
    triforce_tokens_per_second: float = 70.0
    plain_tokens_per_second: float = 28.0
    max_context: int = 32_768
    answer_words: int = 120
    crash_after: int | None = None
    answer: str | None = None  # instead of sentences of the document


class FakeEngine:
    """See the module. Like the real one: one job at a time, ``cancel`` from any thread."""

    def __init__(self, config: EngineConfig, script: FakeScript | None = None) -> None:
        self.script = script or FakeScript()
        context = self.script.max_context if config.max_context == "auto" else config.max_context
        dtype = "float32" if config.dtype == "auto" else config.dtype
        self._model = ModelInfo("Fake target", "Fake draft", "cpu", "scripted answers: no model is loaded", "cpu",
                                dtype, context, 12_000_000, 4096)
        self._loaded = False
        self._state = "starting"
        self._document: Document | None = None
        self._read: dict[str, float] = {}
        self._cancel = threading.Event()

    def check(self) -> Iterator[MachineInfo | ModelInfo]:
        yield MachineInfo((("CPU", "not looked at"),))
        yield self._model

    def load(self) -> Iterator[LoadProgress | ModelInfo]:
        self._state = "loading"
        for step in range(4):
            yield LoadProgress("weights", step / 4)
            time.sleep(self.script.load_seconds / 4)
        self._loaded, self._state = True, "idle"
        yield self._model

    def measure(self, document: Document) -> DocumentFit:
        pages = tuple(len(WORD.findall(page.text)) + 2 for page in document.pages)
        return DocumentFit(sum(pages), self._model.max_context - 1024, pages)

    def open_document(self, document: Document) -> Iterator[PrefillProgress | DocumentOpened]:
        fit, started = self.measure(document), time.monotonic()
        restored = document.id in self._read
        self._cancel.clear()
        self._document, self._state = None, "busy"
        step = fit.tokens if restored else self.script.prefill_chunk
        rate = self.script.prefill_tokens_per_second
        for done in range(0, fit.tokens, step):
            left = (fit.tokens - done) / rate
            yield PrefillProgress(done, fit.tokens, rate if done else 0.0, left, "restore" if restored else "read")
            pause = self.script.restore_seconds if restored else min(step, fit.tokens - done) / rate
            if self._cancel.wait(pause):
                self._state = "idle"
                return
        yield PrefillProgress(fit.tokens, fit.tokens, rate, 0.0, "restore" if restored else "read")
        seconds = time.monotonic() - started
        self._read.setdefault(document.id, seconds)
        self._document, self._state = document, "idle"
        yield DocumentOpened(document.id, fit.tokens, _spans(document, fit), seconds, self._read[document.id], restored,
                             self._model.max_context)

    def ask(self, question: str, history: Sequence[Turn], sampling: SamplingParams,
            speculation: SpeculationConfig) -> Iterator[Event]:
        assert self._document is not None, "a document is opened before a question is asked"
        self._cancel.clear()
        self._state = "busy"
        document, rng = self._document, random.Random(f"{question}|{sampling.seed}|{self._document.id}")
        text, leaning = self._compose(document, question, rng)
        words = WORD.findall(text)[: sampling.max_new_tokens]
        triforce = speculation.engine == "triforce"
        rate = self.script.triforce_tokens_per_second if triforce else self.script.plain_tokens_per_second
        rounds: list[RoundEvent] = []
        written: list[str] = []
        started, reason = time.monotonic(), "stop"
        yield PrefillProgress(len(question.split()), len(question.split()), 900.0, 0.0)
        while len(written) < len(words):
            size = min(rng.randint(1, 7) if triforce else 1, len(words) - len(written))
            if self._cancel.wait(size / rate):
                reason = "cancelled"
                break
            if self.script.crash_after is not None and len(written) >= self.script.crash_after:
                self.script.crash_after = None
                self._loaded, self._state, self._document = False, "dead", None
                raise EngineDiedError("The engine stopped while answering: it was ended from outside",
                                      remedy="What it had written is kept; the next request starts a new engine.")
            part = words[len(written) : len(written) + size]
            event = _round(len(rounds), part, triforce, document, leaning, rng, time.monotonic() - started)
            written += part
            rounds.append(event)
            yield event
            yield TextDelta("".join(part), event.elapsed)
        else:
            reason = "length" if len(WORD.findall(text)) > len(words) else "stop"
        self._state = "idle"
        reused = self.measure(document).tokens + sum(len(turn.answer_token_ids) for turn in history)
        ids = tuple(token for event in rounds for token in event.token_ids)
        shares = tuple(sum(event.page_shares[i] for event in rounds) / max(1, len(rounds))
                       for i in range(len(document.pages)))
        yield Finished(reason, "".join(written), ids, _stats(rounds, question, reused, speculation, triforce),
                       _passages(document, leaning, shares), shares if rounds else ())

    def cancel(self) -> None:
        self._cancel.set()

    def status(self) -> EngineStatus:
        facts = EngineFacts(self._model.mode, self._model.why, 3 * 2**28, 8 * 2**30) if self._loaded else None
        return EngineStatus(self._state, self._model if self._loaded else None, os.getpid(), 0, 0,
                            self._document.id if self._document else None, facts=facts)

    def close(self) -> None:
        self._cancel.set()

    def _compose(self, document: Document, question: str, rng: random.Random) -> tuple[str, list[int]]:
        """The answer's text, and the pages it comes from (those that share words with the question first)."""
        if self.script.answer is not None:
            return self.script.answer, [0]
        wanted = set(re.findall(r"\w{4,}", question.lower()))
        scored = sorted(range(len(document.pages)), key=lambda i: (
            -len(wanted & set(re.findall(r"\w{4,}", document.pages[i].text.lower()))), rng.random()))
        parts, leaning = [OPENING], []
        for index in scored:
            sentences = re.findall(r"[A-Z][^.!?\n]{20,200}[.!?]", document.pages[index].text)
            if sentences:
                leaning.append(index)
                parts.append(f"\n\n**Page {document.pages[index].label}:** “{rng.choice(sentences)}”")
            if len(" ".join(parts).split()) >= self.script.answer_words:
                break
        return "".join(parts), leaning or [0]


def _round(index: int, part: list[str], triforce: bool, document: Document, leaning: list[int], rng: random.Random,
           elapsed: float) -> RoundEvent:
    last = rng.choice(("bonus", "recovered")) if triforce else "bonus"
    origins = [rng.choice(("draft", "draft", "retrieval", "quote")) for _ in part[1:]] + [last]
    tested = len(part) - 1 + (last == "recovered")
    tiers: tuple[TierCount, ...] = ()
    if triforce:
        drafted = tested + rng.randint(0, 2)
        tiers = (TierCount("draft", drafted, tested), TierCount("retrieval", tested, len(part) - 1))
    shares = [0.2 + rng.random() for _ in document.pages]
    for rank, page in enumerate(leaning[:4]):
        shares[page] += len(document.pages) * (1.5 / (rank + 1)) * (0.5 + rng.random())
    total = sum(shares)
    ids = tuple(zlib.crc32(word.encode()) % 32_000 for word in part)
    return RoundEvent(index, ids, tuple(origins), tiers, {"draft": 4.0, "retrieval": 6.0, "verify": 20.0},
                      tuple(share / total for share in shares), elapsed)


def _stats(rounds: list[RoundEvent], question: str, reused: int, speculation: SpeculationConfig,
           triforce: bool) -> AnswerStats:
    tokens = sum(len(event.token_ids) for event in rounds)
    seconds = rounds[-1].elapsed - rounds[0].elapsed if rounds else 0.0
    acceptance: dict[str, TierCount] = {}
    origins: dict[str, int] = {}
    for event in rounds:
        for count in event.tiers:
            before = acceptance.get(count.tier, TierCount(count.tier, 0, 0))
            acceptance[count.tier] = TierCount(count.tier, before.tested + count.tested,
                                               before.accepted + count.accepted)
        for origin in event.origins:
            origins[origin] = origins.get(origin, 0) + 1
    why = "a draft model is loaded and the document is long" if triforce else "plain decoding was asked for"
    return AnswerStats(
        len(question.split()), reused, tokens, len(rounds), 0.01, rounds[0].elapsed if rounds else 0.0, seconds,
        (tokens - len(rounds[0].token_ids)) / seconds if seconds else 0.0, tokens / len(rounds) if rounds else 0.0,
        acceptance, origins, "triforce" if triforce else "autoregressive", why, speculation.verifier)


def _spans(document: Document, fit: DocumentFit) -> tuple[PageSpan, ...]:
    spans, start = [], 0
    for page, tokens in zip(document.pages, fit.page_tokens, strict=True):
        spans.append(PageSpan(page.label, start, start + tokens))
        start += tokens
    return tuple(spans)


def _passages(document: Document, leaning: list[int], shares: tuple[float, ...]) -> tuple[AttendedChunk, ...]:
    found = []
    for index in leaning[:3]:
        text = " ".join(document.pages[index].text.split()[:16])
        found.append(AttendedChunk(document.pages[index].label, index * 100, index * 100 + 16, shares[index] / 2, text))
    return tuple(found)
