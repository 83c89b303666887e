"""The benchmark's arithmetic, with an engine whose speeds are known."""

from __future__ import annotations

from dataclasses import replace

import pytest
from bench.steady_engine import BOOK, FAST, MACHINE, PLAIN, SHAPE, TRAFFIC, Steady, measure

from triforce_core.bench.measure import Answer, Pair, measure_document
from triforce_core.bench.report import table
from triforce_core.bench.roofline import Bandwidth, Traffic, measure_bandwidth
from triforce_core.bench.rows import ABLATION, make_rows
from triforce_core.config import SamplingParams
from triforce_core.metrics import answer_stats
from triforce_core.research.settings import ResearchConfig


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


def test_a_difference_is_reported_not_hidden() -> None:
    found = measure(Steady(differ=True), [None])
    assert found["identical_text"] is False
    assert found["documents"][0]["answers"][0]["same_tokens"] == 31
    assert "part after 31 of 32 tokens" in table(found) and "near-tie" not in table(found)
    assert "near-tie" in table({**found, "dtype": "bfloat16"})
    assert "part after" not in table(measure(Steady(), [None]))


def test_a_text_that_loops_is_said_to_beside_its_speed() -> None:
    found = measure(Steady(), [None, "a"], sweeps=("gamma2=4,8",))
    assert "loops" not in table(found)
    some, loops = found["rows"][0], {"variety": 0.08}
    documents = [{**found["documents"][0], **loops}, *found["documents"][1:]]
    shown = table({**found, **loops, "rows": [{**some, **loops}, *found["rows"][1:]], "documents": documents})
    assert shown.count("8% (loops)") == 2 and "no result" in shown  # a document, a row


def test_answers_too_short_to_time_are_counted() -> None:
    found = measure(Steady(), ["a", "b"], tokens=5)
    assert found["answers_too_short"] == 2 and found["speedup"] == 0.0
    table(found)


def test_plain_decoding_given_fewer_tokens_is_compared_as_far_as_it_goes() -> None:
    engine = Steady()
    rows = make_rows(SamplingParams(max_new_tokens=32), ResearchConfig())
    pair = measure_document(engine, BOOK, ["a"], rows, 1, lambda _: None, plain_limit=12).pairs[0][0]
    assert len(pair.plain[0].token_ids) == 12 and len(pair.fast[0].token_ids) == 32 and pair.identical
    other = replace(pair.plain[0], token_ids=(*pair.plain[0].token_ids[:-1], -1))
    assert not replace(pair, plain=(other,)).identical


def test_both_are_warmed_up_and_alternate() -> None:
    engine = Steady()
    measure(engine, ["a", "b"], repeats=2)
    engines = [(question, speculation.engine) for question, speculation, _ in engine.log]
    assert engine.prepared == 1, "behind the row's warm-up: no answer that is timed waits for it"
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
                     ("on", "none", "auto"), ("off", "none", "straight")]


def answer(*token_ids: int) -> Answer:
    return Answer(token_ids, answer_stats([], prompt_tokens=0, reused_tokens=0, prefill_seconds=0, engine=FAST,
                                          why=""), {}, {})


def test_where_two_answers_part_and_a_text_in_circles() -> None:
    assert Pair(None, (answer(1, 2, 3),), (answer(1, 2, 4),)).same_tokens == 2
    assert Pair(None, (answer(1, 2),), (answer(1, 2, 4),)).same_tokens == 2
    assert Pair(None, (answer(1, 2), answer(1, 2)), (answer(1, 2),)).identical
    assert not Pair(None, (answer(1, 2),), (answer(1, 2), answer(1, 3))).identical
    assert Pair(None, (answer(*range(50)),), ()).variety == 1.0
    assert Pair(None, (answer(*(1, 2) * 50),), ()).variety < 0.05


def test_the_roofline_is_bytes_over_measured_bandwidth() -> None:
    found = measure(Steady(), [None])
    tokens = found["context_tokens"] + 16  # half of the answer
    assert found["bytes_per_token"] == 1952 * 4 + tokens * 1000
    assert found["roofline_tokens_per_second"] == pytest.approx(0.15e9 / found["bytes_per_token"])
    assert found["autoregressive_share_of_roofline"] == pytest.approx(10 / found["roofline_tokens_per_second"])
    assert found["copy_gb_per_second"] == 0.15 and found["host_to_device_gb_per_second"] is None
    assert set(found["modelled"]) <= set(found) and "modelled" in table(found)
    assert found["triforce_streamed_gb_per_second"] == 0
    alone = TRAFFIC.least_seconds(1000, MACHINE)
    assert Traffic(SHAPE, 4, 1000, gpus=2).least_seconds(1000, MACHINE) == alone / 2


def test_a_cache_that_streams_is_measured_by_its_link() -> None:
    """2 GB a pass over 25 GB/s take 0.08 s, and a plain pass takes 0.1 s; the GPU's own memory could go faster."""
    found = measure(Steady(streams=2 * 10**9), [None], bandwidth=Bandwidth(4000, 25.0, "a copy"))
    assert found["autoregressive_streamed_gb_per_second"] == pytest.approx(20)
    assert found["triforce_streamed_gb_per_second"] == pytest.approx(10)
    assert found["roofline_tokens_per_second"] == pytest.approx(12.5)
    assert found["autoregressive_share_of_roofline"] == pytest.approx(0.8)
    assert "20.0 GB/s by plain" in table(found) and "25.0 GB/s from pinned host memory" in table(found)


def test_bandwidth_is_measured_and_says_how() -> None:
    found = measure_bandwidth("cpu", mebibytes=8)
    assert found.copy > 0.05 and "threads" in found.how and found.host_to_device is None
