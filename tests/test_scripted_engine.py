"""The scripted engine: the same script gives the same answer, and its figures obey the rules of real ones."""

from __future__ import annotations

import dataclasses

from tests.scripted_engine import EngineScript, ScriptedEngine
from triforce_core import (
    Document,
    EngineConfig,
    Finished,
    Page,
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


def test_figures_obey_the_rules_of_real_ones() -> None:
    events = ask(engine())
    rounds, last = [event for event in events if isinstance(event, RoundEvent)], events[-1]
    assert isinstance(last, Finished) and last.stats.full_passes == len(rounds) > 3
    assert last.text == "".join(event.text for event in events if isinstance(event, TextDelta))
    for event in rounds:
        assert len(event.sources) == len(event.token_ids) and abs(sum(event.page_shares) - 1) < 1e-9
        assert all(0 <= count.accepted <= count.tested for count in event.tiers)
    assert sum(last.stats.tokens_by_origin.values()) == last.stats.generated_tokens == len(last.token_ids)


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
