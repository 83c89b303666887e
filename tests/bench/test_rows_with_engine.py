"""Rows on a real engine with a tiny random pair: each answers as if it were alone, and all say the same words."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from engine.tiny import document, pair_config

from triforce_core.bench.measure import DocumentResult, measure_document, those_that_fit
from triforce_core.bench.report import summary
from triforce_core.bench.roofline import Bandwidth, Traffic
from triforce_core.bench.rows import ABLATION, Row, make_rows, parse_sweep
from triforce_core.config import SamplingParams
from triforce_core.errors import NotEnoughMemoryError
from triforce_core.model import read_config
from triforce_core.research.engine import ResearchEngine
from triforce_core.research.settings import ResearchConfig

pytestmark = pytest.mark.usefixtures("lengths_given")
SETTINGS = ResearchConfig(gamma1=2, gamma2=10, budget=128, recent=48, window=32)
SAMPLING = SamplingParams(max_new_tokens=24, stop_token_ids=())
SWEEPS = ("budget=64,128", "gamma2=2,8", "temperature=0.5,0.9", "ngram=off,on", *(
    pytest.param(sweep, marks=pytest.mark.exhaustive)
    for sweep in ("chunk_size=4,8", "gamma1=1,3", "window=16,64", "refresh_every=1,3", "seed=0,5")))


def open_engine(folders: tuple[Path, Path]) -> ResearchEngine:
    engine = ResearchEngine(pair_config(folders))
    list(engine.load())
    return engine


def run(engine: ResearchEngine, rows: list[Row]) -> DocumentResult:
    return measure_document(engine, document(120), [None], rows, 1, lambda _: None)


@pytest.mark.parametrize("sweep", SWEEPS)
def test_a_row_says_what_it_would_say_alone(folders: tuple[Path, Path], sweep: str) -> None:
    rows = make_rows(SAMPLING, replace(SETTINGS, verifier="coupled"), [parse_sweep(sweep)])
    together = run(open_engine(folders), rows)
    assert all(pair.identical for pairs in together.pairs for pair in pairs)
    alone = run(open_engine(folders), rows[-1:])
    found, expected = together.pairs[-1][0].fast[0], alone.pairs[0][0].fast[0]
    # Not only the words, which plain decoding decides: also how they were drafted.
    assert found.token_ids == expected.token_ids and found.passes == expected.passes
    assert found.stats.acceptance == expected.stats.acceptance


def test_the_ablation_runs_what_it_names(folders: tuple[Path, Path]) -> None:
    rows = make_rows(replace(SAMPLING, temperature=0.7), SETTINGS, variants=ABLATION)
    engine = open_engine(folders)
    result = run(engine, rows)
    *_, info = engine.load()
    traffic = Traffic(read_config(folders[0]), 4, info.kv_bytes_per_token)
    found = summary([result], rows, info, workload="continue", machine={}, bandwidth=Bandwidth(10.0), traffic=traffic)
    tiers = [set(row["acceptance"]) for row in found["rows"]]
    assert [models - {"n-gram"} for models in tiers[:4]] == [  # copies may have come beside
        {"retrieval", "draft"}, {"retrieval"}, {"streaming", "draft"}, {"draft"}]
    assert tiers[4] == {"n-gram"}
    assert all(row["identical_text"] is None and row["speedup"] > 0 for row in found["rows"])


def test_a_row_that_does_not_fit_is_left_out_and_the_others_are_measured(folders: tuple[Path, Path]) -> None:
    rows, engine, said = make_rows(SAMPLING, SETTINGS, [parse_sweep("gamma1=1,2,3")]), open_engine(folders), []
    ask = engine.ask

    def tight(question, history, sampling, speculation):
        if speculation.gamma1 == 2:
            raise NotEnoughMemoryError("24 GiB are there", remedy="Choose fewer pages.")
        return ask(question, history, sampling, speculation)

    engine.ask = tight  # type: ignore[method-assign]
    result = measure_document(engine, document(120), [None], rows, 1, said.append)
    assert [bool(pairs) for pairs in result.pairs] == [True, False, True]
    assert any("gamma1=2 LEFT OUT. 24 GiB are there" in line for line in said)
    results, fitting = those_that_fit([result], rows)
    assert [row.name for row in fitting] == ["gamma1=1", "gamma1=3"]
    found = summary(results, fitting, engine._need_loaded().info, workload="continue", machine={},
                    bandwidth=Bandwidth(1.0, how="a copy"), traffic=Traffic(read_config(folders[0]), 4, 1000))
    assert [row["row"] for row in found["rows"]] == ["gamma1=1", "gamma1=3"]
    with pytest.raises(NotEnoughMemoryError):  # the first row is what the others are compared with
        measure_document(engine, document(120), [None], rows[1:], 1, said.append)
