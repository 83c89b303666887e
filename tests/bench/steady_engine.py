"""An engine whose speeds are known, on a machine whose bandwidth is."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from triforce_core.bench import __main__ as bench
from triforce_core.bench.measure import measure_document
from triforce_core.bench.report import summary
from triforce_core.bench.roofline import Bandwidth, Traffic
from triforce_core.bench.rows import Variants, make_rows, parse_sweep
from triforce_core.config import SamplingParams
from triforce_core.documents.document import Document, Page
from triforce_core.events import (
    DocumentFit,
    DocumentOpened,
    Event,
    Finished,
    ModelInfo,
    PrefillProgress,
    RoundEvent,
    TierCount,
)
from triforce_core.metrics import answer_stats
from triforce_core.model import ModelConfig
from triforce_core.research.settings import ResearchConfig

PLAIN, FAST = "autoregressive", "triforce"
MODEL = ModelInfo("m", "d", "cpu", "", "cpu", "float32", 100_000, 10, 1000)
SHAPE = ModelConfig("LlamaForCausalLM", 100, 8, 16, 2, 2, 1, 4, 1e-5, True, False, False, 1000)
TRAFFIC = Traffic(SHAPE, 4, 1000)  # 1,952 weights
MACHINE = Bandwidth(0.075 * 2, how="a copy")
TEXT = " ".join(f"On day {i} the crew saw a whale near Nantucket{'abcdefgh'[i % 8]} again." for i in range(600))
BOOK = Document("Book", "txt", tuple(Page(str(i), TEXT[i * 3000 : (i + 1) * 3000]) for i in range(10)), "text")


class Steady:
    """Plain: 10 tokens/s. TriForce: 4 tokens a round, 5 rounds/s: 20 tokens/s. 0.5 s of prefill before each."""

    def __init__(self, differ: bool = False, streams: int = 0) -> None:
        """streams: bytes that each round brings from host memory."""
        self.differ, self.streams, self.log, self.prepared = differ, streams, [], 0

    def measure(self, document: Document, heard=lambda progress: None) -> DocumentFit:
        tokens = tuple(len(page.text) // 4 for page in document.pages)
        return DocumentFit(sum(tokens), 99_000, tokens)

    def open_document(self, document: Document) -> Iterator[Event]:
        tokens = self.measure(document).tokens
        yield PrefillProgress(tokens, tokens, 500.0, 0.0)
        yield DocumentOpened(document.id, tokens, (), 1.0, 1.0, False, 100_000)

    def ask(self, question: str | None, history: tuple, sampling: SamplingParams,
            speculation: ResearchConfig) -> Iterator[Event]:
        fast = speculation.engine == FAST
        self.log.append((question, speculation, sampling))
        per_round, seconds = (4, 0.2) if fast else (1, 0.1)
        ids = list(range(sampling.max_new_tokens))
        if self.differ and fast:
            ids[-1] = -1
        rounds = []
        for i, start in enumerate(range(0, len(ids), per_round)):
            part = tuple(ids[start : start + per_round])
            tiers = (TierCount("draft", 4, 3),) if fast else ()
            at = 0.5 + (i + 1) * seconds
            spent = {"verify": 2.0, **({"retrieval": 3.0, "draft": 1.0} if fast else {})}
            rounds.append(RoundEvent(i, part, ("bonus",) * len(part), tiers, spent, None, at,
                                     {"retrieval": 2, "draft": 4} if fast else {}, self.streams, drafted=3 * fast))
            yield rounds[-1]
        stats = answer_stats(rounds, prompt_tokens=1, reused_tokens=1, prefill_seconds=0.5,
                             engine=speculation.engine, why="because",
                             settings={"middle_cache": speculation.middle_cache, "budget": 2000})
        yield Finished("length", "", tuple(ids), stats)

    def prepare(self) -> Iterator[Event]:
        self.prepared += 1
        return iter(())

    def close(self) -> None: ...


def measure(engine: Steady, questions: list, tokens: int = 32, repeats: int = 1, sweeps: tuple[str, ...] = (),
            variants: Variants | None = None, sampling: SamplingParams | None = None,
            bandwidth: Bandwidth = MACHINE) -> dict:
    sampling = sampling or SamplingParams(max_new_tokens=tokens)
    rows = make_rows(sampling, ResearchConfig(), [parse_sweep(text) for text in sweeps], variants)
    result = measure_document(engine, BOOK, questions, rows, repeats, lambda _: None)  # type: ignore[arg-type]
    return summary([result], rows, MODEL, workload="continue", machine={"peak_memory_bytes": 2**20, "threads": 2},
                   bandwidth=bandwidth, traffic=TRAFFIC)


def steady(monkeypatch: pytest.MonkeyPatch) -> Steady:
    """The command with an engine whose speeds are known, on a machine whose bandwidth is."""
    engine = Steady()
    monkeypatch.setattr(bench, "load_engine", lambda config, shape: (engine, MODEL))
    monkeypatch.setattr(bench, "measure_bandwidth", lambda device: MACHINE)
    return engine
