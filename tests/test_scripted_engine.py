"""The scripted engine: the same script gives the same answer, and its figures obey the rules of real ones."""

from __future__ import annotations

import dataclasses
import json
import os
import signal
import threading
import time
from pathlib import Path

import pytest

from tests.scripted_engine import EngineScript, ScriptedEngine
from triforce_core import (
    ConfigError,
    Document,
    DocumentOpened,
    EngineClient,
    EngineConfig,
    EngineDiedError,
    Finished,
    NotEnoughMemoryError,
    Page,
    PrefillProgress,
    QuoteEvent,
    RoundEvent,
    SamplingParams,
    SpeculationConfig,
    TextDelta,
)

SENTENCE = "The keeper of Ness {0} counted {0}7 ships before the storm. "
BOOK = Document("Ships", "txt", tuple(Page(str(n), SENTENCE.format(n) * 3) for n in range(1, 5)), "test")
QUICK = EngineScript(load_seconds=0, restore_seconds=0, prefill_tokens_per_second=1e9, triforce_tokens_per_second=1e9,
                     plain_tokens_per_second=1e9)


def engine(**dials) -> ScriptedEngine:
    made = ScriptedEngine(EngineConfig(), dataclasses.replace(QUICK, **dials))
    list(made.load())
    list(made.open_document(BOOK))
    return made


def ask(made, question: str = "How many ships?", kind: str = "triforce", **sampling) -> list:
    return list(made.ask(question, (), SamplingParams(**sampling), SpeculationConfig(engine=kind)))


def timeless(events: list) -> list:
    rounds = [dataclasses.replace(event, elapsed=0.0, decoding=0.0)
              for event in events if isinstance(event, RoundEvent)]
    return [*rounds, events[-1].text, events[-1].token_ids, events[-1].page_shares]


def test_the_same_script_question_and_seed_give_the_same_rounds() -> None:
    first = timeless(ask(engine()))
    assert timeless(ask(engine())) == first
    assert timeless(ask(engine(), seed=1)) != first and timeless(ask(engine(seed=1))) != first


def test_both_decodings_write_the_same_words() -> None:
    texts = {ask(engine(), kind=kind)[-1].text for kind in ("triforce", "autoregressive")}
    assert len(texts) == 1


def test_figures_obey_the_rules_of_real_ones() -> None:
    events = ask(engine())
    rounds, last = [event for event in events if isinstance(event, RoundEvent)], events[-1]
    assert isinstance(last, Finished) and last.stats.full_passes == len(rounds) > 3
    assert last.text == "".join(event.text for event in events if isinstance(event, TextDelta))
    for event in rounds:
        assert len(event.sources) == len(event.token_ids) and abs(sum(event.page_shares) - 1) < 1e-9
        assert all(0 <= count.accepted <= count.tested for count in event.tiers)
    assert sum(last.stats.tokens_by_origin.values()) == last.stats.generated_tokens == len(last.token_ids)


def test_acceptance_is_what_the_script_says() -> None:
    per_pass = [ask(engine(acceptance=chance))[-1].stats.tokens_per_full_pass for chance in (0.0, 0.5, 1.0)]
    assert per_pass[0] == 1.0 < per_pass[1] < per_pass[2]


def test_faults_happen_once_where_the_script_says() -> None:
    made = engine(fault="memory", fault_after=5)
    with pytest.raises(NotEnoughMemoryError, match="needed"):
        ask(made)
    list(made.open_document(BOOK))
    assert ask(made)[-1].reason == "stop"
    with pytest.raises(EngineDiedError):
        ask(engine(fault="crash"))
    with pytest.raises(EngineDiedError, match="reading"):
        engine(fault="crash", fault_at="reading", fault_after=0)


def test_a_hung_engine_hears_no_cancel_but_ends_with_close() -> None:
    made, raised = engine(fault="hang"), threading.Event()

    def work() -> None:
        with pytest.raises(EngineDiedError):
            ask(made)
        raised.set()

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    while made.script.fault:  # until it hangs
        time.sleep(0.001)
    made.cancel()
    assert not raised.wait(0.2)
    made.close()
    assert raised.wait(2.0)


def test_odds_draw_faults_from_the_seed() -> None:
    def fates() -> list[str]:
        made, seen = engine(fault_odds=0.4), []
        for number in range(12):
            list(made.load())
            list(made.open_document(BOOK))
            try:
                ask(made, f"Question {number}?")
                seen.append("")
            except (EngineDiedError, NotEnoughMemoryError) as error:
                seen.append(type(error).__name__)
        return seen

    assert fates() == fates() and len(set(fates())) == 3


def test_a_script_from_a_file(tmp_path: Path) -> None:
    path = tmp_path / "slow.json"
    path.write_text(json.dumps({"load_seconds": 0, "answer": "Aye.", "acceptance": 1}))
    made = ScriptedEngine(EngineConfig(model=str(path)))
    list(made.open_document(BOOK))
    assert ask(made)[-1].text == "Aye."
    for bad in ('{"speed": 3}', '{"seed": "one"}', "[1]", "{"):
        path.write_text(bad)
        with pytest.raises(ConfigError):
            ScriptedEngine(EngineConfig(model=str(path)))


def test_in_the_child_and_killed_there(tmp_path: Path) -> None:
    """The same engine behind the real client: a kill is a kill, and the next question brings a new process."""
    path = tmp_path / "script.json"
    path.write_text(json.dumps({"load_seconds": 0, "triforce_tokens_per_second": 200.0}))
    with EngineClient(EngineConfig(model=str(path)), factory="tests.scripted_engine:ScriptedEngine") as client:
        assert isinstance(list(client.open_document(BOOK))[-1], DocumentOpened)
        before = client.status().pid
        with pytest.raises(EngineDiedError, match="SIGKILL"):
            for event in client.ask("How many?"):
                if isinstance(event, TextDelta):
                    os.kill(before, signal.SIGKILL)
        assert list(client.ask("How many?"))[-1].text.startswith("This is the scripted engine")
        assert client.status().pid != before


def test_quotations_are_told_with_their_places_as_soon_as_they_are_closed() -> None:
    text = "It says “ships before the storm.” and “no such words” and “keeper of Ness 3 counted”."
    events = ask(engine(answer=text))
    quotes = [event for event in events if isinstance(event, QuoteEvent)]
    assert events[-1].quotes == tuple(quotes) and [quote.count for quote in quotes] == [12, 3]
    written = ""
    for event in events:
        written += event.text if isinstance(event, TextDelta) else ""
        if isinstance(event, QuoteEvent):
            assert written[event.end] == "”" and event.closed and len(event.occurrences) == min(8, event.count)
            for occurrence in event.occurrences:
                (place,) = occurrence.places
                assert BOOK.pages[place.page - 1].text[place.start : place.end] == text[event.start : event.end]
                words = " ".join(f"{page.label} x {page.text}" for page in BOOK.pages).split()
                assert words[occurrence.start : occurrence.end] == text[event.start : event.end].split()
    assert not any(isinstance(event, QuoteEvent) for event in engine(answer=text).ask(
        "", (), SamplingParams(), SpeculationConfig(quotes="off")))


def test_a_stop_does_not_hurry_what_comes_after_it() -> None:
    made = engine(tokenize_seconds=0.4)
    made.cancel()
    told: list[PrefillProgress] = []
    began = time.monotonic()
    made.measure(BOOK, told.append)
    assert time.monotonic() - began >= 0.35 and len(told) == 4


def test_half_a_surrogate_pair_is_answered() -> None:
    made = engine(instructions=True)
    *_, done = made.ask("Who \ud83d?", (), SamplingParams(), SpeculationConfig(), "Be \udc00 brief")
    assert isinstance(done, Finished) and done.text.endswith("Be \ufffd brief")
    done.text.encode()
