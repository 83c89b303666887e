"""All drafters in one table: what is run, and gains over TriForce as it was."""

from __future__ import annotations

import json
from math import prod

import pytest
from bench.steady_engine import FAST, PLAIN, steady

from triforce_core.bench import __main__ as bench
from triforce_core.bench.report import gains
from triforce_core.bench.rows import AS_BEFORE, PLANNED, POLICIES, combinations
from triforce_core.bench.workload import FIVE
from triforce_core.research.settings import ResearchConfig


@pytest.mark.parametrize("offloaded", [False, True])
def test_combinations_are_settings_that_can_be_run(offloaded: bool) -> None:
    rows = {name: ResearchConfig(**changes) for name, changes in combinations(offloaded).items()}  # type: ignore
    assert rows[PLANNED] == ResearchConfig() and next(iter(rows)) == PLANNED
    assert rows[AS_BEFORE].gamma2 == (32 if offloaded else 10) and rows[AS_BEFORE].ngram == "off"
    assert len(set(rows.values())) == len(rows)
    for changes in POLICIES.values():
        ResearchConfig(**changes)  # type: ignore[arg-type]


def test_five_workloads_in_one_run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    engine = steady(monkeypatch)
    opened = []
    reopen = engine.open_document
    monkeypatch.setattr(engine, "open_document", lambda document: opened.append(document) or reopen(document))
    only = f"{PLANNED};{AS_BEFORE};prompt lookup"
    assert bench.main(["--workload", "all", "--combinations", "--only", only, "--sweep", "temperature=0,1",
                       "--document", __file__, "--context", "900", "--new-tokens", "32",
                       "--questions-per-document", "1"]) == 0
    out = capsys.readouterr().out
    found = json.loads(out.splitlines()[-1])
    assert tuple(found["workloads"]) == FIVE and "geo. mean" in out
    assert f"* {PLANNED} temperature=0" in out
    # What is asked about the same document follows each other; a listing and a table are made.
    assert [document.title for document in opened] == ["test_combinations"] * 3 + ["made code 1", "made table 1"]
    assert len({document.id for document in opened}) == 3
    plain = [sampling.temperature for _, s, sampling in engine.log if s.engine == PLAIN]
    assert plain == [0, 0, 1, 1] * 5  # a short warm-up and one answer, for all rows
    fast = [(s.ngram, sampling.temperature) for _, s, sampling in engine.log if s.engine == FAST]
    assert fast[::2] == [(ngram, t) for ngram in ("auto", "off", "straight") for t in (0, 1)] * 5
    assert set(found["gains"]) == {f"{name} temperature={t}" for name in only.split(";") for t in (0, 1)}
    assert all(entry["geometric_mean"] == pytest.approx(1.0) for entry in found["gains"].values())
    assert [name for name, entry in found["gains"].items() if entry["planned"]] == [
        f"{PLANNED} temperature={t}" for t in (0, 1)]


def test_gains_are_against_triforce_at_the_same_settings() -> None:
    def row(variant: str, temperature: float, rate: float) -> dict:
        return {"row": f"{variant} {temperature}", "variant": variant, "settings": {"temperature": temperature},
                "tokens_per_second": rate}

    rates = {"a": (10.0, 15.0, 4.0, 5.0), "b": (20.0, 20.0, 8.0, 16.0), "c": (10.0, 0.0, 1.0, 3.0)}
    found = gains({name: {"rows": [row(AS_BEFORE, 0, r[0]), row("x", 0, r[1]), row(AS_BEFORE, 1, r[2]),
                                   row("x", 1, r[3])]} for name, r in rates.items()})
    assert found["x 0"]["over_triforce"] == {"a": 1.5, "b": 1.0} and found["x 0"]["geometric_mean"] is None
    assert found["x 1"]["geometric_mean"] == pytest.approx(prod((1.25, 2.0, 3.0)) ** (1 / 3))
    assert found[f"{AS_BEFORE} 1"]["geometric_mean"] == pytest.approx(1.0)
    assert gains({"a": {"rows": [row("x", 0, 1.0)]}}) == {}


def test_policies_by_budget_and_temperature(monkeypatch: pytest.MonkeyPatch,
                                            capsys: pytest.CaptureFixture[str]) -> None:
    engine = steady(monkeypatch)
    assert bench.main(["--policies", "--document", __file__, "--context", "900", "--new-tokens", "16"]) == 0
    out = capsys.readouterr().out
    assert len(json.loads(out.splitlines()[-1])["rows"]) == len(POLICIES) * 5 * 3
    tried = {(s.middle_cache, s.refresh, s.budget, sampling.temperature) for _, s, sampling in engine.log
             if s.engine == FAST}
    assert len(tried) == 90 and ("retrieval", "chunk-means", 4096, 0.6) in tried
    # Of the middle tier's acceptance nobody else has a share.
    assert {(s.ngram, s.pace) for _, s, _ in engine.log if s.engine == FAST} == {("off", "off")}
    assert "retrieval by chunk means" in out
