"""How answers went: rates over rounds, charts, the table of a document's answers, energy where it is counted."""

from __future__ import annotations

import re
import types
from dataclasses import replace

import pytest

from triforce_core import AnswerStats, EngineFacts, Finished, ModelInfo, RoundEvent
from triforce_core.events import TierCount
from ui.app import accumulator as energy
from ui.app.accumulator import Accumulator, Figures, Trace
from ui.app.conversations import Answer
from ui.app.services import Services
from ui.page import figures as charts_over_time


def trace(rounds: int = 20, tokens: int = 4, seconds: float = 0.1) -> Trace:
    made = Trace()
    for n in range(rounds):
        made.add(RoundEvent(n, (1,) * tokens, ("draft",) * tokens,
                            (TierCount("draft", 4, 3), TierCount("retrieval", 3, n % 2)), {"verify": 50.0}, None,
                            seconds * (n + 1)))
    return made


def test_rates_are_taken_over_a_window() -> None:
    found = charts_over_time.rates(trace())
    assert len(found) == 19 and all(rate == pytest.approx(40.0) for _, rate in found)
    assert charts_over_time.rates(trace(1)) == [] and charts_over_time.rates(Trace()) == []


def test_acceptance_by_tier() -> None:
    lines = charts_over_time.accepted(trace())
    assert {y for _, y in lines["draft"]} == {0.75}
    assert lines["retrieval"][-1][1] == pytest.approx(4 / 24)


def test_charts_stay_inside_their_box() -> None:
    html = charts_over_time.answer_charts(trace(300))
    lines = re.findall(r'<polyline class="[^"]+" points="([^"]+)"/></svg><ul', html)
    places = [tuple(map(float, place.split(","))) for points in lines for place in points.split()]
    assert len(places) > 50
    assert all(0 <= x <= charts_over_time.WIDTH and 0 <= y <= charts_over_time.HEIGHT for x, y in places)
    assert "tok/s" not in html and "75 %" in html  # the speed stands below the answer
    assert charts_over_time.answer_charts(Trace()) == ""


def test_what_a_full_pass_reads() -> None:
    """The embedding table is not read; the share needs a measured copy and everything in the GPU's memory."""
    model = ModelInfo("m", "d", "cpu", "", "cpu", "float32", 1024, 1_500_000_000, 1_000_000, pass_bytes=1_000_000_000)
    figures = Figures(tokens=0, reused_tokens=900, prompt_tokens=100)
    html = charts_over_time.bandwidth(trace(), figures, model, None)
    assert "2.0 GB in 50 ms: 40.0 GB/s" in html and "meter" not in html
    facts = EngineFacts("on-chip", "", 1, 1, 1, 1, copy_rate=50e9)
    html = charts_over_time.bandwidth(trace(), figures, model, facts)
    assert "40.0 GB/s, 80 % of the 50.0 GB/s" in html and 'aria-valuenow="80"' in html
    for without in (replace(facts, mode="offload"), replace(facts, copy_rate=None)):
        assert " of the " not in charts_over_time.bandwidth(trace(), figures, model, without)
    assert charts_over_time.bandwidth(Trace(), Figures(), model, facts) == ""
    assert charts_over_time.bandwidth(trace(), Figures(), None, facts) == ""
    assert charts_over_time.bandwidth(trace(), Figures(), replace(model, pass_bytes=0), facts) == ""


def answer(key: str, question: str, **figures: object) -> Answer:
    return Answer(key, "c", 1.0, question, "Text", (1,), "done", "", {"figures": {"tokens": 10, **figures}})


def test_the_table_has_a_row_for_every_answer() -> None:
    html = charts_over_time.history([
        answer("b", "<b>New</b>?", tokens_per_second=50.0, acceptance={"draft": [10, 8]}, joules=12.0),
        answer("a", "Old?", tokens_per_second=40.0), answer("0", "Empty?", tokens=0)])
    assert html.count("<tr>") == 3 and "Empty" not in html and "<b>New" not in html and "&lt;b&gt;New" in html
    assert "80 %" in html and ">J<" in html and ">12<" in html
    assert html.index("New") < html.index("Old") and charts_over_time.history([]) == ""


def test_recent_answers_are_the_documents_own(services: Services) -> None:
    for document in "de":
        services.database.write("insert into documents (id, name, extension, bytes, added_at, state)"
                                " values (?,'n','.txt',1,0,'ready')", (document,))
        for n in range(2):
            talk = services.conversations.new(document, "t")
            services.conversations.begin(f"{document}{n}", talk.id, f"Question {document}{n}?")
            services.conversations.save(f"{document}{n}", text="x", token_ids=(1,), state="done" if n else "running",
                                        error="", result={})
    assert [item.id for item in services.conversations.recent("d", 9)] == ["d1"]
    assert services.conversations.recent("d", 0) == []


@pytest.fixture
def counter(monkeypatch):
    """A machine with two GPUs that have spent 1000 J each, 50 J more with every look."""
    spent = {"now": 1_000_000}

    class NVMLError(Exception):
        pass

    def look(handle):
        spent["now"] += 50_000
        if spent.get("broken"):
            raise NVMLError
        return spent["now"]

    library = types.SimpleNamespace(NVMLError=NVMLError, nvmlInit=lambda: None, nvmlDeviceGetCount=lambda: 2,
                                    nvmlDeviceGetHandleByIndex=lambda n: n, nvmlDeviceGetTotalEnergyConsumption=look)
    monkeypatch.setitem(__import__("sys").modules, "pynvml", library)
    energy._energy_counters.cache_clear()
    yield spent
    energy._energy_counters.cache_clear()


def finished() -> Finished:
    return Finished("stop", "x", (1,), AnswerStats(1, 0, 10, 1, 0.0, 0.1, 1.0, 10.0, 1.0, {}, {}, "triforce", ""))


def test_energy_is_what_was_spent_meanwhile(counter) -> None:
    accumulator = Accumulator()
    accumulator.add(RoundEvent(0, (1,), ("bonus",), ()))
    accumulator.add(finished())
    figures = accumulator.figures()
    assert figures.joules == pytest.approx(200.0)
    assert "200 J, 20.0 J a token" in charts_over_time.energy(figures)


def test_energy_is_not_told_where_nobody_counts(counter, monkeypatch) -> None:
    counter["broken"] = True
    assert energy.joules() is None
    energy._energy_counters.cache_clear()
    monkeypatch.setitem(__import__("sys").modules, "pynvml", None)
    accumulator = Accumulator()
    accumulator.add(finished())
    assert accumulator.figures().joules is None and charts_over_time.energy(accumulator.figures()) == ""
