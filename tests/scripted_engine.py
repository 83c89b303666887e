"""The engine's verbs without a model: deterministic, and as slow or as faulty as its script says.

It stands in for ``worker.client.EngineClient`` in the page's own process (``tests.scripted_app``), and, as it has the
engine's verbs too, for ``engine.engine.Engine`` in the child (factory ``tests.scripted_engine:ScriptedEngine``). Its
answers are sentences of the document, its tokens are words, its figures obey the rules of real ones: every token has
an origin, accepted <= tested, shares sum to 1. The same script, document, question and seed give the same answer in
the same rounds.
"""

from __future__ import annotations

import json
import os
import random
import re
import threading
import time
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from triforce_core import events
from triforce_core.config import BUILTIN, EngineConfig, SamplingParams, SpeculationConfig
from triforce_core.documents.document import Document
from triforce_core.errors import ConfigError, EngineDiedError, NotEnoughMemoryError
from triforce_core.metrics import RunningFigures, answer_stats
from triforce_core.surrogates import whole_text
from triforce_core.worker.protocol import EngineState, EngineStatus

Fault = Literal["", "crash", "hang", "memory"]
OPENING = "This is the scripted engine: it quotes the document and understands nothing. "
_WORD = re.compile(r"(?<!\s)\s*+\S+")
_QUOTED = re.compile("“([^“”]+)”")
_TOLD = 8  # occurrences of one quotation that are told
_DRAFTED = 6  # tokens that the middle tier offers per full pass
_CONVERSATION = 1024  # tokens left for questions and answers beside a document


@dataclass
class EngineScript:
    """The dials of a scripted engine; a test may turn each while the engine runs.

    acceptance: chance of each drafted token. fault: of the next answer, after ``fault_after``
    tokens, then forgotten; fault_odds: chance that an answer crashes or runs out of memory, drawn from ``seed`` and the
    question. A hung engine hears no cancel; only ``close`` ends it. answer: instead of sentences of the document.
    instructions: whether it takes a system text, which its answers then repeat.
    """

    seed: int = 0
    load_seconds: float = 0.3
    tokenize_seconds: float = 0.0
    prefill_tokens_per_second: float = 20_000.0
    prefill_chunk: int = 256
    restore_seconds: float = 0.1
    triforce_tokens_per_second: float = 70.0
    plain_tokens_per_second: float = 28.0
    acceptance: float = 0.8
    max_context: int = 32_768
    answer_words: int = 120
    answer: str | None = None
    fault: Fault = ""
    fault_after: int = 12
    fault_odds: float = 0.0
    instructions: bool = False


class ScriptedEngine:
    """See the module. One job at a time; ``cancel``, ``status``, ``facts`` and ``close`` from any thread."""

    def __init__(self, config: EngineConfig, script: EngineScript | None = None) -> None:
        """Without a script, config.model names a JSON file of its dials, or is "builtin". Raises ConfigError."""
        if script is None:
            try:
                dials = {} if config.model == BUILTIN else json.loads(Path(config.model).read_text())
            except (OSError, ValueError) as error:
                raise ConfigError(f"The script {config.model!r} cannot be read ({error})",
                                  remedy="Give --model a JSON file, or leave it out.") from error
            script = EngineScript(**dials)
        self.script = script
        context = script.max_context if config.max_context == "auto" else config.max_context
        dtype = "float32" if config.dtype == "auto" else config.dtype
        self._model = events.ModelInfo(
            "Scripted target", "Scripted draft", "cpu", "scripted answers: no model is loaded", "cpu", dtype, context,
            12_000_000, 4096, pass_bytes=12_000_000, instructions=script.instructions)
        self._loaded = False
        self._state: EngineState = "starting"
        self._document: Document | None = None
        self._read: dict[str, float] = {}
        self.spelled: list[events.Script | None] = []  # what each question was to say
        self._cancel, self._closed = threading.Event(), threading.Event()

    def load(self) -> Iterator[events.LoadProgress | events.ModelInfo]:
        self._state = "loading"
        for step in range(4):
            yield events.LoadProgress("weights", step / 4)
            time.sleep(self.script.load_seconds / 4)
        self._loaded, self._state = True, "idle"
        yield self._model

    def measure(self, document: Document, heard: Callable[[events.PrefillProgress], None] = lambda progress: None
                ) -> events.DocumentFit:
        fit, pause = self._fit(document), self.script.tokenize_seconds
        total = fit.tokens
        self._cancel.clear()  # of an answer before
        for done in range(1, 5 if pause else 1):
            self._cancel.wait(pause / 4)
            heard(events.PrefillProgress(total * done // 4, total, total / pause, pause * (4 - done) / 4, "tokenize"))
        return fit

    def _fit(self, document: Document) -> events.DocumentFit:
        pages = tuple(len(_WORD.findall(page.text)) + 2 for page in document.pages)
        return events.DocumentFit(sum(pages), self._model.max_context - _CONVERSATION, pages)

    def open_document(self, document: Document) -> Iterator[events.PrefillProgress | events.DocumentOpened]:
        fit, started = self._fit(document), time.monotonic()
        restored = document.id in self._read
        self._cancel.clear()
        self._document, self._state = None, "busy"
        step = fit.tokens if restored else self.script.prefill_chunk
        rate = self.script.prefill_tokens_per_second
        stage: Literal["read", "restore"] = "restore" if restored else "read"
        for done in range(0, fit.tokens, step):
            left = (fit.tokens - done) / rate
            yield events.PrefillProgress(done, fit.tokens, rate if done else 0.0, left, stage)
            pause = self.script.restore_seconds if restored else min(step, fit.tokens - done) / rate
            if self._cancel.wait(pause):
                self._state = "idle"
                return
        yield events.PrefillProgress(fit.tokens, fit.tokens, rate, 0.0, stage)
        seconds = time.monotonic() - started
        self._read.setdefault(document.id, seconds)
        self._document, self._state = document, "idle"
        pages = len(document.pages)
        yield events.DocumentOpened(document.id, fit.tokens, (), seconds, self._read[document.id], restored,
                                    self._model.max_context, usual_shares=(1 / pages,) * pages)

    def ask(self, question: str | None, history: Sequence[events.Turn], sampling: SamplingParams,
            speculation: SpeculationConfig, system: str = "", script: events.Script | None = None
            ) -> Iterator[events.Event]:
        assert self._document is not None, "a document is opened before a question is asked"
        if system and not self._model.instructions:
            raise ConfigError("The scripted engine follows no instructions here",
                              remedy='Leave them out, or give a script with "instructions": true.')
        self._cancel.clear()
        self._state = "busy"
        self.spelled.append(script)
        started, dials, document = time.monotonic(), self.script, self._document
        question, system = whole_text(question or ""), whole_text(system)
        rng = random.Random(f"{dials.seed}|{question}|{sampling.seed}|{document.id}")
        text, leaning = self._compose(document, question, rng)
        text = f"{text}\n\nIt was told: {system}" if system else text
        words = _WORD.findall(text)[: sampling.max_new_tokens]
        triforce = speculation.engine == "triforce"
        if rng.random() < dials.fault_odds:
            dials.fault = rng.choice(("crash", "memory"))
        rounds: list[events.RoundEvent] = []
        written: list[str] = []
        quotes: list[events.QuoteEvent] = []
        new = len(question.split())
        prefilled = time.monotonic() - started
        yield events.PrefillProgress(new, new, new / prefilled if prefilled else 0.0, 0.0)
        reason: events.FinishReason = "length" if len(_WORD.findall(text)) > len(words) else "stop"
        while len(written) < len(words):
            accepted, most = 0, min(_DRAFTED, len(words) - len(written) - 1) if triforce else 0
            while accepted < most and rng.random() < dials.acceptance:
                accepted += 1
            rate = dials.triforce_tokens_per_second if triforce else dials.plain_tokens_per_second
            if self._cancel.wait((accepted + 1) / rate):
                reason = "cancelled"
                break
            if len(written) >= dials.fault_after:
                self._suffer()
            part = words[len(written) : len(written) + accepted + 1]
            event = _round(len(rounds), part, triforce, document, leaning, rng, time.monotonic() - started)
            event = replace(event, decoding=event.elapsed - prefilled)
            if sampling.alternatives:
                chances = tuple(_chance(word, words, sampling.alternatives) for word in part)
                event = replace(event, chances=chances, chunks=_passages(document, leaning, event.page_shares or ()))
            written += part
            rounds.append(event)
            yield event
            yield events.TextDelta("".join(part), event.elapsed)
            if speculation.quotes != "off":
                told = _quotes(document, "".join(written))
                yield from told[len(quotes) :]
                quotes = told
        self._state = "idle"
        reused = self._fit(document).tokens + sum(len(turn.answer_token_ids) for turn in history)
        why = "a draft model is loaded and the document is long" if triforce else "plain decoding was asked for"
        stats = answer_stats(rounds, prompt_tokens=new, reused_tokens=reused, prefill_seconds=prefilled,
                             engine="triforce" if triforce else "autoregressive", why=why,
                             verifier=speculation.verifier)
        shares = RunningFigures(rounds).page_shares
        ids = tuple(token for event in rounds for token in event.token_ids)
        yield events.Finished(reason, "".join(written), ids, stats,
                              _passages(document, leaning, shares) if shares else (), shares, tuple(quotes))

    def cancel(self) -> None:
        self._cancel.set()

    def status(self) -> EngineStatus:
        return EngineStatus(self._state, self._model if self._loaded else None, os.getpid(), 0,
                            self._document.id if self._document else None, facts=self.facts())

    def facts(self) -> events.EngineFacts | None:
        return events.EngineFacts(self._model.mode, self._model.why, 3 * 2**28, 8 * 2**30) if self._loaded else None

    def close(self) -> None:
        self._cancel.set()
        self._closed.set()

    def _suffer(self) -> None:
        """The script's fault, if there is one, and only once."""
        fault, self.script.fault = self.script.fault, ""
        if fault == "memory":
            self._state, self._document = "idle", None
            raise NotEnoughMemoryError("Memory ran out while answering: 3.0 GiB needed, 2.0 GiB free",
                                       remedy="Choose fewer pages, or a smaller --max-context.")
        if fault == "hang":
            self._closed.wait()
        if fault:
            self._loaded, self._state, self._document = False, "dead", None
            raise EngineDiedError("The engine stopped while answering: it was ended from outside",
                                  remedy="What it had written is kept; the next request starts a new engine.")

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
           elapsed: float) -> events.RoundEvent:
    last = "bonus" if not triforce or len(part) > _DRAFTED else rng.choice(("bonus", "recovered"))
    sources = [rng.choice(("draft", "draft", "retrieval", "quote")) for _ in part[1:]] + [last]
    tested = len(part) - 1 + (last == "recovered")
    tiers: tuple[events.TierCount, ...] = ()
    if triforce:
        drafted = tested + rng.randint(0, 2)
        tiers = (events.TierCount("draft", drafted, tested), events.TierCount("retrieval", tested, len(part) - 1))
    shares = [0.2 + rng.random() for _ in document.pages]
    for rank, page in enumerate(leaning[:4]):
        shares[page] += len(document.pages) * (1.5 / (rank + 1)) * (0.5 + rng.random())
    total = sum(shares)
    ids = tuple(zlib.crc32(word.encode()) % 32_000 for word in part)
    return events.RoundEvent(index, ids, tuple(sources), tiers, {"draft": 4.0, "retrieval": 6.0, "verify": 20.0},
                             tuple(share / total for share in shares), elapsed, texts=tuple(part))


def _chance(word: str, words: Sequence[str], count: int) -> events.TokenChance:
    """Follows from the words alone, so that reporting it draws nothing."""
    own = 0.35 + zlib.crc32(word.encode()) % 64 / 100
    others = sorted(set(words) - {word})[: count - 1]
    rest = ((other, (1 - own) / 2 ** (n + 1)) for n, other in enumerate(others))
    return events.TokenChance(own, ((word, own), *rest))


def _quotes(document: Document, text: str) -> list[events.QuoteEvent]:
    """Closed quotations that stand in the document word for word, as an engine that holds them to it tells of them."""
    told: list[events.QuoteEvent] = []
    for match in _QUOTED.finditer(text):
        places = [(page, at.start()) for page in range(len(document.pages))
                  for at in re.finditer(re.escape(match[1]), document.pages[page].text)]
        if places:
            found = (_occurrence(document, page, at, at + len(match[1])) for page, at in places[:_TOLD])
            told.append(events.QuoteEvent(len(told), *match.span(1), True, len(places), tuple(found)))
    return told


def _occurrence(document: Document, page: int, start: int, end: int) -> events.QuoteOccurrence:
    """Characters [start, end) of a page; tokens are words, two of each page's are its marker."""
    earlier = sum(len(_WORD.findall(each.text)) + 2 for each in document.pages[:page]) + 2
    first, last = (earlier + len(_WORD.findall(document.pages[page].text[:at])) for at in (start, end))
    return events.QuoteOccurrence(first, last, (events.QuotePlace(page + 1, document.pages[page].label, start, end),))


def _passages(document: Document, leaning: list[int], shares: tuple[float, ...]) -> tuple[events.AttendedChunk, ...]:
    found = []
    for index in leaning[:3]:
        text = " ".join(document.pages[index].text.split()[:16])
        found.append(events.AttendedChunk(index + 1, document.pages[index].label, index * 100, index * 100 + 16,
                                          shares[index] / 2, text))
    return tuple(found)
