"""The benchmark's arithmetic and its line of JSON, with an engine whose speeds are known."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from triforce_core.bench import __main__ as bench
from triforce_core.bench import peer as peer_process
from triforce_core.bench import plot, roofline
from triforce_core.bench.made import made_needle
from triforce_core.bench.measure import Answer, Pair, measure_document
from triforce_core.bench.report import summary, tree_acceptance
from triforce_core.bench.roofline import Bandwidth, Traffic, measure_bandwidth
from triforce_core.bench.rows import ABLATION, Variants, make_rows, parse_sweep
from triforce_core.bench.table import table
from triforce_core.bench.workload import SUM_UP
from triforce_core.config import EngineConfig, SamplingParams, SpeculationConfig
from triforce_core.documents.document import Document, Page
from triforce_core.events import (
    DocumentFit,
    DocumentOpened,
    Event,
    Finished,
    ModelInfo,
    PrefillProgress,
    RankCount,
    RoundEvent,
    TierCount,
)
from triforce_core.kernels import HEAD_KIND, bytes_per_weight
from triforce_core.metrics import answer_stats
from triforce_core.model import ModelConfig

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
        self.differ, self.streams, self.log = differ, streams, []

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
                             dials={"middle_cache": speculation.middle_cache, "budget": 2000})
        yield Finished("length", "", tuple(ids), stats)

    def close(self) -> None: ...


def measure(engine: Steady, questions: list, tokens: int = 32, repeats: int = 1, sweeps: tuple[str, ...] = (),
            variants: Variants | None = None, sampling: SamplingParams | None = None,
            bandwidth: Bandwidth = MACHINE) -> dict:
    sampling = sampling or SamplingParams(max_new_tokens=tokens)
    rows = make_rows(sampling, SpeculationConfig(), [parse_sweep(text) for text in sweeps], variants)
    result = measure_document(engine, BOOK, questions, rows, repeats, lambda _: None)  # type: ignore[arg-type]
    return summary([result], rows, MODEL, workload="continue", machine={"peak_memory_bytes": 2**20, "threads": 2},
                   bandwidth=bandwidth, traffic=TRAFFIC)


def steady(monkeypatch: pytest.MonkeyPatch) -> Steady:
    """The command with an engine whose speeds are known, on a machine whose bandwidth is."""
    engine = Steady()
    monkeypatch.setattr(bench, "_load", lambda config, shape: (engine, MODEL))
    monkeypatch.setattr(roofline, "measure_bandwidth", lambda device: MACHINE)
    return engine


def test_rates_speedup_and_identity() -> None:
    found = measure(Steady(), [None])
    assert found["autoregressive_tokens_per_second"] == pytest.approx(10)
    assert found["triforce_tokens_per_second"] == pytest.approx(20)
    assert found["speedup"] == pytest.approx(2)
    assert found["tokens_per_full_pass"] == 4 and found["identical_text"] is True
    assert found["prefill_tokens_per_second"] == 500.0
    assert found["acceptance"] == {"draft": {"tested": 32, "accepted": 24, "rate": 0.75}}
    assert found["triforce_milliseconds_per_pass"] == {"verify": 2.0, "retrieval": 3.0, "draft": 1.0}
    assert "2.00x" in table(found) and "1 of 1" in table(found)


def test_a_cache_that_streams_is_measured_by_its_link() -> None:
    """2 GB a pass over 25 GB/s take 0.08 s, and a plain pass takes 0.1 s; the GPU's own memory could go faster."""
    found = measure(Steady(streams=2 * 10**9), [None], bandwidth=Bandwidth(4000, 25.0, 1.0, "a copy"))
    assert found["autoregressive_streamed_gb_per_second"] == pytest.approx(20)
    assert found["triforce_streamed_gb_per_second"] == pytest.approx(10)
    assert found["roofline_tokens_per_second"] == pytest.approx(12.5)
    assert found["autoregressive_share_of_roofline"] == pytest.approx(0.8)
    assert "20.0 GB/s by plain" in table(found)
    assert measure(Steady(), [None])["triforce_streamed_gb_per_second"] == 0


def test_a_difference_is_reported_not_hidden() -> None:
    found = measure(Steady(differ=True), [None])
    assert found["identical_text"] is False
    assert found["documents"][0]["answers"][0]["same_tokens"] == 31
    assert "part after 31 of 32 tokens" in table(found) and "near-tie" not in table(found)
    assert "near-tie" in table({**found, "dtype": "bfloat16"})
    assert "part after" not in table(measure(Steady(), [None]))


def test_answers_too_short_to_time_are_counted() -> None:
    found = measure(Steady(), ["a", "b"], tokens=5)
    assert found["answers_too_short"] == 2 and found["speedup"] == 0.0
    table(found)


def test_plain_decoding_given_fewer_tokens_is_compared_as_far_as_it_goes() -> None:
    engine = Steady()
    rows = make_rows(SamplingParams(max_new_tokens=32), SpeculationConfig())
    pair = measure_document(engine, BOOK, ["a"], rows, 1, lambda _: None, plain_limit=12).pairs[0][0]
    assert len(pair.plain[0].token_ids) == 12 and len(pair.fast[0].token_ids) == 32 and pair.identical
    other = replace(pair.plain[0], token_ids=(*pair.plain[0].token_ids[:-1], -1))
    assert not replace(pair, plain=(other,)).identical


def test_both_are_warmed_up_and_alternate() -> None:
    engine = Steady()
    measure(engine, ["a", "b"], repeats=2)
    engines = [(question, speculation.engine) for question, speculation, _ in engine.log]
    assert engines[:2] == [("a", PLAIN), ("a", FAST)] and engine.log[0][2].max_new_tokens == 8
    assert [name for _, name in engines[2:]] == [PLAIN, FAST, FAST, PLAIN, FAST, PLAIN, PLAIN, FAST]


def test_rows_share_a_reading_and_what_plain_decoding_measured() -> None:
    engine = Steady()
    found = measure(engine, [None], sweeps=("budget=256,512", "gamma2=4,8"))
    assert [row["row"] for row in found["rows"]] == [
        f"budget={budget} gamma2={gamma}" for budget in (256, 512) for gamma in (4, 8)]
    assert [(s.budget, s.gamma2) for _, s, _ in engine.log if s.engine == FAST][::2] == [
        (256, 4), (256, 8), (512, 4), (512, 8)]
    assert sum(s.engine == PLAIN for _, s, _ in engine.log) == 2  # a warm-up and one answer, for all rows
    assert all(row["speedup"] == pytest.approx(2) and row["identical_text"] for row in found["rows"])
    assert found["rows"][1]["settings"] == {"budget": 256, "gamma2": 8} and found["speedup"] == pytest.approx(2)
    assert table(found).count("budget=") == 4


def test_a_sweep_of_temperatures_has_a_plain_answer_for_each() -> None:
    engine = Steady(differ=True)
    found = measure(engine, [None], sweeps=("temperature=0,0.6",))
    assert [sampling.temperature for _, s, sampling in engine.log if s.engine == PLAIN] == [0, 0, 0.6, 0.6]
    assert [row["identical_text"] for row in found["rows"]] == [False, None]
    assert " NO " in table(found)


def test_the_ablation_takes_one_part_away_at_a_time() -> None:
    engine = Steady()
    found = measure(engine, [None], variants=ABLATION, sweeps=("gamma2=4,8",))
    names = ("TriForce", "no hierarchy", "StreamingLLM", "small model alone", "prompt lookup")
    assert [row["row"] for row in found["rows"]] == [f"{name} gamma2={gamma}" for name in names for gamma in (4, 8)]
    tried = [(s.small_model, s.middle_cache, s.ngram) for _, s, _ in engine.log if s.engine == FAST][::4]
    assert tried == [("on", "retrieval", "auto"), ("off", "retrieval", "auto"), ("on", "streaming", "auto"),
                     ("on", "none", "auto"), ("off", "none", "on")]
    assert found["rows"][-1]["inner_step_ms"] is None


def test_the_roofline_is_bytes_over_measured_bandwidth() -> None:
    found = measure(Steady(), [None])
    tokens = found["context_tokens"] + 16  # half of the answer
    assert found["bytes_per_token"] == 1952 * 4 + tokens * 1000
    assert found["roofline_tokens_per_second"] == pytest.approx(0.15e9 / found["bytes_per_token"])
    assert found["autoregressive_share_of_roofline"] == pytest.approx(10 / found["roofline_tokens_per_second"])
    assert found["inner_step_ms"] == pytest.approx((3 + 1) / 2)  # two passes a round
    assert found["inner_step_over_roofline"] == pytest.approx(2 / ((1952 * 4 + 2000 * 1000) / 0.15e9 * 1e3))
    assert found["copy_gb_per_second"] == 0.15 and found["host_to_device_gb_per_second"] is None
    assert set(found["modelled"]) >= {"bytes_per_token", "roofline_tokens_per_second"} and "modelled" in table(found)
    assert set(found["modelled"]) <= set(found)


def test_on_a_gpu_the_link_and_the_share_of_its_matrix_rate_are_told() -> None:
    found = measure(Steady(), [None], bandwidth=Bandwidth(4000.0, 55.0, 800.0, "a copy"))
    assert found["host_to_device_gb_per_second"] == 55 and found["matrix_teraflops"] == 800
    seconds = found["context_tokens"] / 500
    assert found["prefill_teraflops"] == pytest.approx(TRAFFIC.prefill_flops(found["context_tokens"]) / seconds / 1e12)
    assert found["prefill_share_of_matrix_rate"] == pytest.approx(found["prefill_teraflops"] / 800)
    assert "55.0 GB/s from pinned host memory" in table(found) and "of the large product's rate" in table(found)


PEER = {"name": "transformers", "version": "5", "attention": "sdpa", "generate": "generate, static cache",
        "logits": {"rows": 8, "max_difference": 1e-4, "deviation": 2.0, "same_choice": 1.0},
        "tokens_per_second": 5.0, "token_ids": [0, 1, 9, 9], "prefill_seconds": 4.0, "prefill_tokens_per_second": 250.0,
        "context_tokens": 1000, "failed": {"prompt lookup": "RuntimeError: no memory"},
        "methods": {"generate, static cache": {"tokens_per_second": 5.0, "tokens": 4, "token_ids": [0, 1, 9, 9]},
                    "assisted generation": {"tokens_per_second": 8.0, "tokens": 4, "token_ids": [0, 1, 2, 3]}}}


@pytest.mark.parametrize("peer", [PEER, None])
def test_transformers_is_compared_and_its_failure_loses_nothing(
    peer: dict | None, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    steady(monkeypatch)
    jobs = []
    monkeypatch.setattr(peer_process, "run_peer", lambda job: jobs.append(job) or peer)
    arguments = ["--document", __file__, "--context", "1000", "--new-tokens", "16", "--peer", "transformers"]
    assert bench.main([*arguments, "--grow", "llama3-8b"]) == (0 if peer else 1)
    out = capsys.readouterr().out
    found = json.loads(out.splitlines()[-1])
    assert found["speedup"] == pytest.approx(2) and jobs[0].shape == "llama3-8b" and jobs[0].new_tokens == 48
    if peer is None:
        assert "peer" not in found
        return
    assert found["peer"]["best"] == "assisted generation" and found["peer"]["triforce_over_best"] == pytest.approx(2.5)
    assert found["peer"]["autoregressive_over_peer"] == pytest.approx(2)
    assert [method["same_tokens"] for method in found["peer"]["methods"].values()] == [2, 4]
    assert "prompt lookup: failed, RuntimeError" in out and "token_ids" not in json.dumps(found["peer"])
    first = json.loads(next(line for line in out.splitlines() if line.startswith("{")))
    assert first == {key: value for key, value in found.items() if "transformers" not in key and key != "peer"}


def test_several_gpus_each_bring_their_bandwidth() -> None:
    assert Traffic(SHAPE, 4, 1000, gpus=2).seconds(3e8, MACHINE) == TRAFFIC.seconds(3e8, MACHINE) / 2 == 1.0


def test_a_copy_of_the_weights_in_few_bits_has_a_lower_roofline() -> None:
    dials = {"middle_cache": "retrieval", "budget": 0, "retrieval_weights": "int4"}
    head = 100 * 8
    assert TRAFFIC.inner_bytes(dials) == (1952 - head) * bytes_per_weight("int4") + head * bytes_per_weight(HEAD_KIND)
    assert TRAFFIC.inner_bytes({**dials, "middle_cache": "h2o"}) == TRAFFIC.inner_bytes(dials)
    assert TRAFFIC.inner_bytes({**dials, "retrieval_weights": "same"}) == 1952 * 4
    assert TRAFFIC.inner_bytes({**dials, "middle_cache": "top-k"}) is None  # reads all keys: no budget of KV


def test_prefill_counts_products_and_causal_attention() -> None:
    # Two layers of 8 x (8 + 4 + 4 + 8) + 3 x 8 x 16 weights, of the last one only q, k, v; attention in the first.
    assert TRAFFIC.prefill_flops(10) == 2 * 10 * (576 + 8 * 16) + 2 * 10 * 10 * 2 * 4


def test_bandwidth_is_measured_and_says_how() -> None:
    found = measure_bandwidth("cpu", mebibytes=8)
    assert found.copy > 0.05 and "threads" in found.how and found.host_to_device is None


def answer(*token_ids: int) -> Answer:
    return Answer(token_ids, answer_stats([], prompt_tokens=0, reused_tokens=0, prefill_seconds=0, engine=FAST,
                                          why=""), {}, {})


def test_where_two_answers_part() -> None:
    assert Pair(None, (answer(1, 2, 3),), (answer(1, 2, 4),)).same_tokens == 2
    assert Pair(None, (answer(1, 2),), (answer(1, 2, 4),)).same_tokens == 2


def test_a_repeat_that_differs_is_a_difference() -> None:
    assert Pair(None, (answer(1, 2), answer(1, 2)), (answer(1, 2),)).identical
    assert not Pair(None, (answer(1, 2),), (answer(1, 2), answer(1, 3))).identical


def test_a_text_in_circles_is_told() -> None:
    assert Pair(None, (answer(*range(50)),), ()).variety == 1.0
    assert Pair(None, (answer(*(1, 2) * 50),), ()).variety < 0.05


def test_the_command_prints_a_table_and_then_one_line_of_json(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    steady(monkeypatch)
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
            "peak_memory_bytes", "threads", "dtype", "versions", "documents", "seed", "machine", "rows",
            "copy_gb_per_second", "host_to_device_gb_per_second", "bytes_per_token", "roofline_tokens_per_second",
            "autoregressive_share_of_roofline", "inner_step_ms", "inner_step_over_roofline"} <= found.keys()
    assert found["speedup"] == pytest.approx(2) and found["answers"] == 6 and len(found["documents"]) == 2
    assert 900 <= found["context_tokens"] <= 1000 and "CUT" in err and "load average" in err


@pytest.mark.parametrize(("workload", "asked", "quotes"), [
    ("summary", SUM_UP, "off"), ("code", None, "auto"), ("table", None, "auto")])
def test_workloads_make_their_own_documents(
    workload: str, asked: str | None, quotes: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    engine = steady(monkeypatch)
    arguments = ["--workload", workload, "--context", "1000", "--new-tokens", "16", "--made-documents", "2"]
    assert bench.main(arguments) == 0
    found = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert [row["title"] for row in found["documents"]] == [f"made {workload} 1", f"made {workload} 2"]
    assert 900 <= found["context_tokens"] <= 1000 and found["workload"] == workload
    assert {(question, speculation.quotes) for question, speculation, _ in engine.log} == {(asked, quotes)}


@pytest.mark.parametrize("arguments", [
    ["--context", "1"], ["--repeats", "0"], ["--new-tokens", "0"], ["--nonsense"], ["--document", "/no/such/file"],
    ["--questions", "/no/such/file"], ["--sweep", "colour=red"], ["--sweep", "budget"], ["--sweep", "budget=1,2,1"],
    ["--sweep", "budget=abc"], ["--sweep", "gamma2=2,4", "--sweep", "gamma2=8"], ["--plot", "a.png"],
    ["--ablation", "--sweep", "middle_cache=none"], ["--sweep", "budget=64,128", "--plot", "/no/such/folder/a.png"],
    ["--made-documents", "0"], ["--grow", "llama2-7b", "--saved-readings", "x"]])
def test_a_mistake_is_one_line(arguments: list[str], monkeypatch: pytest.MonkeyPatch,
                               capsys: pytest.CaptureFixture[str]) -> None:
    steady(monkeypatch)
    try:
        status = bench.main(arguments if "--document" in arguments else ["--document", __file__, *arguments])
    except SystemExit as exit_:
        status = exit_.code
    assert status == 2 and capsys.readouterr().err.count("\n") == 1


def test_a_missing_plotting_library_is_told_before_anything_is_measured(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    engine = steady(monkeypatch)
    monkeypatch.setattr(plot, "find_spec", lambda name: None)
    assert bench.main(["--document", __file__, "--sweep", "budget=256,512", "--plot", "a.png"]) == 2
    assert "pip install matplotlib" in capsys.readouterr().err and not engine.log


@pytest.mark.parametrize("arguments", [{"sweeps": ("budget=256,512",)}, {"variants": ABLATION},
                                       {"sweeps": ("refresh=attention,chunk-means",)},
                                       {"sweeps": ("gamma1=1,2", "budget=256,512")}])
def test_rows_are_drawn(arguments: dict, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    plot.plot(measure(Steady(), [None], **arguments), tmp_path / "rows.png")
    assert (tmp_path / "rows.png").read_bytes().startswith(b"\x89PNG")


def test_help_is_quick_and_light() -> None:
    code = ("import sys; from triforce_core.bench.__main__ import _parser; _parser().format_help(); "
            "assert not {'torch', 'numpy', 'transformers'} & sys.modules.keys()")
    subprocess.run([sys.executable, "-c", code], check=True, cwd=Path(__file__).parents[2])


def test_flags_become_settings() -> None:
    given = bench._parser().parse_args(["--dtype", "float32", "--device", "cpu", "--gamma1", "3", "--budget", "512"])
    assert bench.flags.engine_config(given) == EngineConfig(dtype="float32", device="cpu")
    assert bench.flags.speculation_config(given, FAST) == SpeculationConfig(gamma1=3, budget=512)


def test_the_needle_workload_hides_what_it_asks_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    own = tmp_path / "own.jsonl"
    own.write_text('{"context": "The  key is green.", "question": "What colour?"}\n', encoding="utf-8")
    text = tmp_path / "text.txt"
    text.write_text("Nothing is said here. " * 400, encoding="utf-8")
    opened: list[str] = []
    open_document = Steady.open_document

    def remember(self: Steady, document: Document) -> object:
        opened.append(" ".join(page.text for page in document.pages))
        return open_document(self, document)

    monkeypatch.setattr(Steady, "open_document", remember)
    for more, asked in (([], {made_needle(number).question for number in range(3)}),
                        (["--questions", str(own)], {"What colour?"})):
        engine = steady(monkeypatch)
        assert bench.main(["--workload", "needle", "--document", str(text), "--context", "1000", *more]) == 0
        assert json.loads(capsys.readouterr().out.splitlines()[-1])["context_tokens"] <= 1000
        assert {question for question, _, _ in engine.log} == asked
        assert {speculation.quotes for _, speculation, _ in engine.log} == {"off"}
    assert all(made_needle(number).passage in opened[0] for number in range(3)) and "The key is green." in opened[1]
    own.write_text('{"question": "Why?"}\n', encoding="utf-8")
    assert bench.main(["--workload", "needle", "--document", str(text), "--questions", str(own)]) == 2
    assert '"context"' in capsys.readouterr().err


def test_acceptance_is_tabled_by_policy_and_budget() -> None:
    found = measure(Steady(), [None], sweeps=("middle_cache=retrieval,top-k", "budget=256,512", "temperature=0,1"))
    for number, row in enumerate(found["rows"]):
        row["dials"] = {**row["dials"], "budget": row["settings"]["budget"]}
        row["acceptance"] = {row["settings"]["middle_cache"]: {"tested": 10, "accepted": number, "rate": number / 10}}
    found["rows"][3]["acceptance"] = {}
    text = table(found)
    lines = [line.split() for line in text.splitlines()]
    assert ["retrieval", "0.0%", "20.0%"] in lines and ["retrieval", "10.0%", "-"] in lines
    assert ["top-k", "(an", "upper", "bound)", "40.0%", "60.0%"] in lines and "  temperature 1" in text


def test_what_each_rank_of_siblings_brought_is_told_over_all_answers() -> None:
    def answer(*counts: RankCount) -> Answer:
        event = RoundEvent(0, (1,), ("bonus",), (), ranks=counts)
        stats = answer_stats([event], prompt_tokens=0, reused_tokens=0, prefill_seconds=0, engine=FAST, why="")
        return Answer((1,), stats, {}, {})

    answers = [answer(RankCount("draft", 0, 3, 2), RankCount("draft", 1, 1, 0)), answer(RankCount("draft", 0, 1, 1))]
    assert tree_acceptance(answers) == {"draft": [{"tested": 4, "accepted": 3, "rate": 0.75},
                                                  {"tested": 1, "accepted": 0, "rate": 0.0}]}
    assert tree_acceptance([answer()]) == {}
