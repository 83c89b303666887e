"""Events fold into the same figures, live and final."""

from little_books import make_document

from tests.scripted_engine import EngineScript, ScriptedEngine
from triforce_core import (
    DocumentOpened,
    EngineConfig,
    Finished,
    QuoteEvent,
    RoundEvent,
    SamplingParams,
    SpeculationConfig,
    TextDelta,
    metrics,
)
from triforce_core.events import AttendedChunk, QuoteOccurrence, QuotePlace, TierCount
from ui.app.accumulator import Accumulator
from ui.app.runs import Run, RunStore
from ui.page.chat import quoting


def folded(*events) -> Accumulator:
    accumulator = Accumulator()
    for event in events:
        accumulator.add(event)
    return accumulator


def test_rates_leave_the_first_round_out() -> None:
    accumulator = folded(RoundEvent(0, (1, 2), ("draft", "bonus"), (TierCount("draft", 3, 1),), elapsed=1.0),
                  RoundEvent(1, (3, 4, 5), ("draft", "draft", "recovered"), (TierCount("draft", 4, 2),), elapsed=2.5))
    figures = accumulator.figures()
    assert (figures.tokens, figures.full_passes, figures.time_to_first_token) == (5, 2, 1.0)
    assert figures.tokens_per_second == 2.0
    assert figures.tokens_per_full_pass == 2.5
    assert figures.acceptance == {"draft": (7, 3)}
    assert figures.origins == {"draft": 3, "bonus": 1, "recovered": 1}


def test_a_trace_tells_of_pages_beyond_the_usual() -> None:
    opened = DocumentOpened("d", 9, (), 0.0, 0.0, False, 99, usual_shares=(0.1, 0.9))
    accumulator = folded(opened, RoundEvent(0, (1,), ("bonus",), (), page_shares=(0.25, 0.75)))
    assert accumulator.trace.rounds[0][3] == [[0, 0.15]]
    assert accumulator.result()["usual_shares"] == [0.1, 0.9] and accumulator.page_shares() == (0.25, 0.75)


def test_the_engine_s_own_figures_win_and_agree() -> None:
    engine = ScriptedEngine(EngineConfig(), EngineScript(load_seconds=0, triforce_tokens_per_second=5000))
    list(engine.open_document(make_document()))
    accumulator = Accumulator()
    for event in engine.ask("Where is the harbour?", (), SamplingParams(), SpeculationConfig()):
        if isinstance(event, Finished):
            live, marks = accumulator.figures(), accumulator.marks
            accumulator.add(event)
            final = accumulator.figures()
            assert (live.tokens, live.full_passes, live.acceptance, live.origins) == (
                final.tokens, final.full_passes, final.acceptance, final.origins)
            stats = event.stats
            assert final.tokens_per_second == stats.generated_tokens / stats.decode_seconds
            assert marks[-1][1] == len(accumulator.text)
        else:
            accumulator.add(event)
    assert final.engine == "triforce" and final.why
    result = accumulator.result()
    assert abs(sum(result["page_shares"]) - 1) < 1e-3 and result["passages"]


def test_a_broken_off_answer_keeps_its_text_and_tokens() -> None:
    accumulator = folded(RoundEvent(0, (7,), ("bonus",), ()), TextDelta("Half", 0.1))
    assert (accumulator.text, accumulator.token_ids, accumulator.result()["reason"]) == ("Half", [7], "")


def test_store_finds_what_runs_and_forgets_the_oldest() -> None:
    store = RunStore(keep=2)
    runs = [store.add(Run("doc", "q", f"talk{i}")) for i in range(4)]
    assert store.of_conversation("talk2") is runs[2]
    for run in runs:
        run.state = "done"
    store.add(Run("doc", "q", race=True))
    assert store.get(runs[0].id) is None and store.get(runs[3].id) is runs[3]
    assert store.of_conversation("talk2") is None
    assert store.race_of("doc") is not None and store.race_of("other") is None


def test_attended_chunks_count_their_pages_in_the_file() -> None:
    run = Run("d", "q", ranges=((1, 1), (11, 14)))
    chunks = (AttendedChunk(1, "i", 0, 8, 0.5, "a"), AttendedChunk(3, "i", 8, 16, 0.25, "b"))
    run.accumulator.add(RoundEvent(0, (1,), ("bonus",), (), chunks=chunks))
    assert [chunk["page"] for chunk in run.accumulator.trace.rounds[0][5]] == [1, 12]
    stats = metrics.answer_stats([], prompt_tokens=0, reused_tokens=0, prefill_seconds=0.0, engine="", why="")
    run.accumulator.add(Finished("stop", "x", (1,), stats, chunks))
    assert [(each["page"], each["label"]) for each in run.accumulator.result()["passages"]] == [(1, "i"), (12, "i")]


def test_a_quotation_is_told_again_and_its_pages_count_in_the_whole_document() -> None:
    run = Run("d", "q", ranges=((1, 1), (11, 14)))
    open_, closed, other = (QuoteEvent(number, 1, end, end > 5, 1, (
        QuoteOccurrence(3, 4, (QuotePlace(2, "xi", 0, end),)),)) for number, end in ((0, 4), (0, 9), (1, 8)))
    run.accumulator.add(open_)
    assert quoting(run.quotes, 14) == " · quoting p. xi (11 of 14)"
    run.accumulator.add(closed)
    assert quoting(run.quotes, 14) == "" and run.accumulator.quotes == (closed,)
    run.accumulator.add(other)
    assert [(quote["number"], quote["closed"]) for quote in run.quotes] == [(0, True), (1, True)]
    (place,) = run.quotes[0]["occurrences"][0]["places"]
    assert place == {"page": 11, "label": "xi", "start": 0, "end": 9, "ocr": False}
