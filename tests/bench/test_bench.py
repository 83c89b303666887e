"""The benchmark's arithmetic and its line of JSON, with an engine whose speeds are known."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from triforce_core.bench import __main__ as bench
from triforce_core.bench.measure import FAST, PLAIN, Pair, measure_document
from triforce_core.bench.report import summary, table
from triforce_core.bench.workload import cut, questions_about, read_questions
from triforce_core.config import EngineConfig, SamplingParams, SpeculationConfig
from triforce_core.documents.document import Document, Page
from triforce_core.errors import ConfigError
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

MODEL = ModelInfo("m", "d", "cpu", "", "cpu", "float32", 100_000, 10, 1000)
TEXT = " ".join(f"On day {i} the crew saw a whale near Nantucket{'abcdefgh'[i % 8]} again." for i in range(600))
BOOK = Document("Book", "txt", tuple(Page(str(i), TEXT[i * 3000 : (i + 1) * 3000]) for i in range(10)), "text")


class Steady:
    """Plain: 10 tokens/s. TriForce: 4 tokens a round, 5 rounds/s: 20 tokens/s. 0.5 s of prefill before each."""

    def __init__(self, differ: bool = False) -> None:
        self.differ, self.log = differ, []

    def measure(self, document: Document) -> DocumentFit:
        tokens = tuple(len(page.text) // 4 for page in document.pages)
        return DocumentFit(sum(tokens), 99_000, tokens)

    def open_document(self, document: Document) -> Iterator[Event]:
        tokens = self.measure(document).tokens
        yield PrefillProgress(tokens, tokens, 500.0, 0.0)
        yield DocumentOpened(document.id, tokens, (), 1.0, 1.0, False, 100_000)

    def ask(self, question: str | None, history: tuple, sampling: SamplingParams,
            speculation: SpeculationConfig) -> Iterator[Event]:
        fast = speculation.engine == FAST
        self.log.append((question, speculation.engine, sampling.max_new_tokens))
        per_round, seconds = (4, 0.2) if fast else (1, 0.1)
        ids = list(range(sampling.max_new_tokens))
        if self.differ and fast:
            ids[-1] = -1
        rounds = []
        for i, start in enumerate(range(0, len(ids), per_round)):
            part = tuple(ids[start : start + per_round])
            tiers = (TierCount("draft", 4, 3),) if fast else ()
            at = 0.5 + (i + 1) * seconds
            rounds.append(RoundEvent(i, part, ("bonus",) * len(part), tiers, {"verify": 2.0}, None, at))
            yield rounds[-1]
        stats = answer_stats(rounds, prompt_tokens=1, reused_tokens=1, prefill_seconds=0.5,
                             engine=speculation.engine, why="because")
        yield Finished("length", "", tuple(ids), stats)

    def close(self) -> None: ...


def measure(engine: Steady, questions: list, tokens: int = 32, repeats: int = 1, verifier: str = "rejection") -> dict:
    sampling = SamplingParams(max_new_tokens=tokens)
    result = measure_document(engine, BOOK, questions, sampling, SpeculationConfig(), repeats, lambda _: None)  # type: ignore[arg-type]
    return summary([result], MODEL, sampling, workload="continue", verifier=verifier,
                   machine={"peak_memory_bytes": 2**20, "threads": 2}, peer=None)


def test_rates_speedup_and_identity() -> None:
    found = measure(Steady(), [None])
    assert found["autoregressive_tokens_per_second"] == pytest.approx(10)
    assert found["triforce_tokens_per_second"] == pytest.approx(20)
    assert found["speedup"] == pytest.approx(2)
    assert found["tokens_per_full_pass"] == 4 and found["identical_text"] is True
    assert found["prefill_tokens_per_second"] == 500.0
    assert found["acceptance"] == {"draft": {"tested": 32, "accepted": 24, "rate": 0.75}}
    assert found["triforce_milliseconds_per_pass"] == {"verify": 2.0}
    assert "2.00x" in table(found) and "1 of 1" in table(found)


def test_a_difference_is_reported_not_hidden() -> None:
    found = measure(Steady(differ=True), [None])
    assert found["identical_text"] is False
    assert found["documents"][0]["answers"][0]["same_tokens"] == 31


def test_answers_too_short_to_time_are_counted() -> None:
    found = measure(Steady(), ["a", "b"], tokens=5)
    assert found["answers_too_short"] == 2 and found["speedup"] == 0.0
    table(found)


def test_both_are_warmed_up_and_alternate() -> None:
    engine = Steady()
    measure(engine, ["a", "b"], repeats=2)
    assert [entry[:2] for entry in engine.log[:2]] == [("a", PLAIN), ("a", FAST)] and engine.log[0][2] == 24
    assert [name for _, name, _ in engine.log[2:]] == [PLAIN, FAST, FAST, PLAIN, FAST, PLAIN, PLAIN, FAST]


def test_where_two_answers_part() -> None:
    assert Pair(None, (), (), {PLAIN: (1, 2, 3), FAST: (1, 2, 4)}).same_tokens == 2
    assert Pair(None, (), (), {PLAIN: (1, 2), FAST: (1, 2, 4)}).same_tokens == 2


def test_a_text_in_circles_is_told() -> None:
    assert Pair(None, (), (), {PLAIN: tuple(range(50))}).variety == 1.0
    assert Pair(None, (), (), {PLAIN: (1, 2) * 50}).variety < 0.05


@pytest.mark.parametrize("tokens", [100, 1000, 5000])
def test_a_cut_document_is_as_long_as_allowed(tokens: int) -> None:
    def count(document: Document) -> int:
        return sum(len(page.text) // 4 + 3 for page in document.pages)

    short = cut(BOOK, tokens, count)
    assert 0.97 * tokens - 10 <= count(short) <= tokens
    assert BOOK.pages[0].text.startswith(short.pages[0].text)
    assert cut(BOOK, 10**6, count) == BOOK


def test_questions_come_from_the_whole_document_and_never_change() -> None:
    questions = questions_about(BOOK, 3)
    assert questions == questions_about(BOOK, 3)
    assert len(set(questions)) == 3 and all("about Nant" in question for question in questions)
    assert questions_about(Document("t", "txt", (Page("1", "no names."),), "text"), 3)


def test_questions_from_a_file(tmp_path: Path) -> None:
    path = tmp_path / "q.jsonl"
    path.write_text('{"question": "Why?"}\n\n{"question": "Who?"}\n')
    assert read_questions(path) == ["Why?", "Who?"]
    path.write_text('{"question": "Why?"}\nnonsense\n')
    with pytest.raises(ConfigError, match="line 2"):
        read_questions(path)
    with pytest.raises(ConfigError, match="cannot be read"):
        read_questions(tmp_path / "none")


def test_the_command_prints_a_table_and_then_one_line_of_json(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(bench, "_load", lambda config, shape: (Steady(), MODEL))
    paths = []
    for name in ("one", "two"):
        paths.append(tmp_path / f"{name}.txt")
        paths[-1].write_text(f"{name} " + TEXT)
    arguments = [argument for path in paths for argument in ("--document", str(path))]
    assert bench.main([*arguments, "--context", "1000", "--new-tokens", "40", "--workload", "questions"]) == 0
    out, err = capsys.readouterr()
    found = json.loads(out.splitlines()[-1])
    assert {"model", "device", "context_tokens", "autoregressive_tokens_per_second", "triforce_tokens_per_second",
            "speedup", "acceptance", "tokens_per_full_pass", "identical_text", "prefill_tokens_per_second",
            "peak_memory_bytes", "threads", "dtype", "versions", "documents", "seed", "machine"} <= found.keys()
    assert found["speedup"] == pytest.approx(2) and found["answers"] == 6 and len(found["documents"]) == 2
    assert 900 <= found["context_tokens"] <= 1000 and "CUT" in err and "load average" in err


@pytest.mark.parametrize("arguments", [["--context", "1"], ["--repeats", "0"], ["--new-tokens", "0"], ["--nonsense"],
                                       ["--document", "/no/such/file"], ["--questions", "/no/such/file"]])
def test_a_mistake_is_one_line(arguments: list[str], monkeypatch: pytest.MonkeyPatch,
                               capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(bench, "_load", lambda config, shape: (Steady(), MODEL))
    try:
        status = bench.main(arguments if "--document" in arguments else ["--document", __file__, *arguments])
    except SystemExit as exit_:
        status = exit_.code
    assert status == 2 and capsys.readouterr().err.count("\n") == 1


def test_flags_become_settings() -> None:
    given = bench._parser().parse_args(["--dtype", "float32", "--device", "cpu", "--gamma1", "3", "--budget", "512"])
    assert bench.flags.engine_config(given) == EngineConfig(dtype="float32", device="cpu")
    assert bench.flags.speculation_config(given, FAST) == SpeculationConfig(gamma1=3, budget=512)
