"""The engine's verbs on a tiny random pair: same words with and without speculation, prefixes reused, nothing lost."""

from __future__ import annotations

import gc
import os
import weakref
from dataclasses import replace
from functools import cache
from itertools import product

import pytest
import torch
from engine.tiny import document
from engine.tiny import pair_config as config

from triforce_core.config import SamplingParams, SpeculationConfig
from triforce_core.documents.document import Document
from triforce_core.engine.engine import Engine
from triforce_core.engine.prefill import LeftConversations
from triforce_core.engine.session import Question
from triforce_core.errors import ConfigError, ContextTooLongError
from triforce_core.events import DocumentOpened, Finished, PrefillProgress, RoundEvent, TextDelta, Turn
from triforce_core.kv_cache.full import FullCache
from triforce_core.kv_cache.streaming import StreamingCache
from triforce_core.model import load_model
from triforce_core.research.independent_tier import IndependentTier
from triforce_core.sampling import Sampler
from triforce_core.speculation.drafter import NoDrafter
from triforce_core.speculation.model_drafter import ModelOnCache
from triforce_core.speculation.round import speculate

# Lengths are given: random weights agree so seldom that drafting would soon be left alone.
SETTINGS = {"budget": 128, "recent": 48, "window": 32, "gamma1": 2, "gamma2": 5}
PLAIN = SpeculationConfig(engine="autoregressive", verifier="coupled")
TRIFORCE = SpeculationConfig(verifier="coupled", **SETTINGS)


@pytest.fixture(scope="module")
def engine(folders):
    engine = Engine(config(folders))
    list(engine.load())
    list(engine.open_document(document()))
    return engine


def answer(engine, speculation, *, question="Who found the lamp?", history=(), temperature=0.0, seed=0, tokens=48,
           stop=()) -> tuple[Finished, list]:
    sampling = SamplingParams(temperature=temperature, seed=seed, max_new_tokens=tokens, stop_token_ids=stop)
    events = list(engine.ask(question, history, sampling, speculation))
    assert isinstance(events[-1], Finished)
    return events[-1], events


@pytest.fixture(scope="module")
def plainly(engine):
    """What plain decoding answers, each once: most tests here compare with one of a few such answers."""
    @cache
    def answered(*, quotes="auto", **given) -> Finished:
        return answer(engine, replace(PLAIN, quotes=quotes), **given)[0]

    return answered


@pytest.mark.parametrize("quotes", ["off", "on"])
@pytest.mark.parametrize("temperature", [0.0, pytest.param(0.6, marks=pytest.mark.exhaustive), 1.0])
def test_same_words_with_and_without_speculation(engine, plainly, temperature, quotes):
    for seed in range(2 if temperature else 1):  # greedy choices ask for no seed
        fast, _ = answer(engine, SpeculationConfig(verifier="coupled", quotes=quotes, **SETTINGS),
                         temperature=temperature, seed=seed)
        plain = plainly(quotes=quotes, temperature=temperature, seed=seed)
        assert fast.token_ids == plain.token_ids
        assert fast.text == plain.text
        assert plain.stats.tokens_per_full_pass == 1


@pytest.mark.parametrize(("gamma1", "gamma2", "every"), [(0, 4, 1), (1, 1, 1), (3, 12, 4)])
def test_dials_change_the_speed_never_the_words(engine, plainly, gamma1, gamma2, every):
    dials = SpeculationConfig(**{**SETTINGS, "verifier": "coupled", "gamma1": gamma1, "gamma2": gamma2,
                                 "refresh_every": every, "chunk_size": 4})
    assert answer(engine, dials, temperature=0.8)[0].token_ids == plainly(temperature=0.8).token_ids


@pytest.mark.parametrize(("tiers", "at_work"), [
    ({"small_model": "off"}, {"retrieval"}), ({"middle_cache": "none"}, {"draft"}),
    ({"middle_cache": "none", "small_model": "off"}, set()),
    ({"draft_cache": "cross"}, {"draft", "retrieval"}), ({"draft_cache": "cross", "middle_cache": "none"}, {"draft"}),
    ({"ngram": "straight", "middle_cache": "none", "small_model": "off"}, {"n-gram"}),
    ({"ngram": "straight"}, {"n-gram", "draft", "retrieval"}),
    # One thing on top of what those above show.
    *(pytest.param(*case, marks=pytest.mark.exhaustive) for case in (
        ({"ngram": "straight", "small_model": "off"}, {"n-gram", "retrieval"}),
        ({"ngram": "straight", "middle_cache": "none"}, {"n-gram", "draft"})))])
def test_tiers_can_be_left_out_and_the_words_stay(engine, plainly, tiers, at_work):
    dials = SpeculationConfig(verifier="coupled", quotes="off", **{"ngram": "off", **tiers}, **SETTINGS)
    tokens = 80 if "n-gram" in at_work else 40  # until something is there to copy
    done, events = answer(engine, dials, temperature=0.8, tokens=tokens)
    assert set(done.stats.acceptance) == at_work
    assert all(count.tested for count in done.stats.acceptance.values())
    ran = {tier for event in events if isinstance(event, RoundEvent) for tier in event.passes}
    assert ran == at_work - {"n-gram"}  # which has no model
    assert done.token_ids == plainly(quotes="off", temperature=0.8, tokens=tokens).token_ids
    assert (done.stats.engine == "autoregressive") == (not at_work) and done.stats.why


@pytest.mark.parametrize("tiers", [{}, {"small_model": "off"}, {"small_model": "off", "middle_cache": "none"}], ids=str)
@pytest.mark.parametrize(("ngram", "quotes", "temperature"), [
    ("straight", "on", 1.0), *(pytest.param(*case, marks=pytest.mark.exhaustive) for case in (
        ("straight", "off", 1.0), *product(("straight",), ("off", "on"), (0.0,))))])
def test_ngrams_change_no_word(engine, plainly, tiers, quotes, temperature, ngram):
    speculation = SpeculationConfig(verifier="coupled", quotes=quotes, ngram=ngram, **tiers, **SETTINGS)
    for question in ("Who found the lamp?", None):
        fast, _ = answer(engine, speculation, question=question, temperature=temperature, tokens=40)
        expected = plainly(quotes=quotes, question=question, temperature=temperature, tokens=40)
        assert fast.token_ids == expected.token_ids


def test_the_index_holds_the_context_whatever_is_asked(engine):
    lookup = SpeculationConfig(small_model="off", middle_cache="none", ngram="straight", quotes="off")
    for question in (None, "Who found the lamp?", None):
        done, _ = answer(engine, lookup, question=question)
        session, asked = engine._session, Question(question, (), SamplingParams(), lookup)
        assert session.parts.text()._automaton.text == [*session.context(asked), *done.token_ids]


def test_a_follow_up_finds_what_was_said_before(engine):
    """History is part of what is copied from, and a question asked again from the same state drafts the same."""
    lookup = SpeculationConfig(small_model="off", middle_cache="none", ngram="straight", quotes="off", pace="off")
    first, _ = answer(engine, lookup)  # lengths that are chosen learn from answer to answer
    history = (Turn("Who found the lamp?", first.token_ids),)
    second, _ = answer(engine, lookup, question="And who sold it?", history=history)
    again, _ = answer(engine, lookup)
    second_again, _ = answer(engine, lookup, question="And who sold it?", history=history)
    assert (again.token_ids, again.stats.acceptance) == (first.token_ids, first.stats.acceptance)
    assert (second_again.token_ids, second_again.stats.acceptance) == (second.token_ids, second.stats.acceptance)


def test_a_streaming_middle_tier_that_holds_everything_is_always_right(folders):
    model = load_model(folders[0])
    c = model.config
    context = torch.randint(3, 8192, (200,), generator=torch.Generator().manual_seed(4)).tolist()
    full = ModelOnCache(model, FullCache(c.num_layers, c.num_kv_heads, c.head_dim, max_tokens=400, dtype=model.dtype))
    newest = ModelOnCache(model, StreamingCache(c.num_layers, c.num_kv_heads, c.head_dim, sinks=4, window=400,
                                                frequencies=model.rope.frequencies, dtype=model.dtype))
    full.start(context, 0, 400)
    newest.start(context, 4, 400)
    drafter = IndependentTier(newest, NoDrafter(), 0, tier="streaming")
    for _ in range(6):
        done = speculate(full, drafter, context, 5, Sampler(SamplingParams()))
        assert done.verdict.num_accepted == 5
        context.extend(done.verdict.token_ids)
        full.commit()
        drafter.settle(context, committed=True)
        assert len(context) - 2 <= newest.cache.num_committed < len(context)  # what was computed once stays


def test_tiers_are_really_at_work(engine):
    done, events = answer(engine, SpeculationConfig(**SETTINGS), temperature=0.7, tokens=64)
    stats = done.stats
    assert stats.acceptance["retrieval"].tested > 0 and stats.acceptance["draft"].tested > 0
    assert sum(stats.tokens_by_origin.values()) == stats.generated_tokens == len(done.token_ids) == 64
    rounds = [event for event in events if isinstance(event, RoundEvent)]
    assert len(rounds) == stats.full_passes
    assert stats.settings["budget"] == 128 and stats.settings["sinks"] == 4  # chosen, decided
    assert [t for event in rounds for t in event.token_ids] == list(done.token_ids)
    assert "".join(event.text for event in events if isinstance(event, TextDelta)) == done.text
    measured = [event.page_shares for event in rounds if event.page_shares]
    assert measured and all(sum(shares) == pytest.approx(1) and len(shares) == 11 for shares in measured)
    assert done.chunks and all(chunk.end - chunk.start == 8 for chunk in done.chunks)


def test_a_follow_up_reads_only_itself_and_a_new_conversation_is_as_fresh(engine):
    first, _ = answer(engine, TRIFORCE)
    history = (Turn("Who found the lamp?", first.token_ids),)
    second, events = answer(engine, TRIFORCE, question="And who sold it?", history=history)
    assert second.stats.prompt_tokens < 60 < second.stats.reused_tokens
    assert sum(isinstance(event, PrefillProgress) for event in events) <= 2
    again, _ = answer(engine, TRIFORCE)
    assert again.token_ids == first.token_ids
    plain, _ = answer(engine, PLAIN, question="And who sold it?", history=history)
    assert plain.token_ids == second.token_ids


def test_history_that_is_only_text_is_read_as_text(engine):
    """Another program brings words, not tokens: they stand in the context where the answer's tokens would."""
    words = engine.builder().tokenizer.encode("Adele found the lamp.")
    for question in ("Who found the lamp?", "And who sold it?"):
        by_text, _ = answer(engine, PLAIN, question=question, history=(Turn("Who?", (), "Adele found the lamp."),))
        by_tokens, _ = answer(engine, PLAIN, question=question, history=(Turn("Who?", tuple(words)),))
        assert by_text.token_ids == by_tokens.token_ids
        assert by_text.stats.prompt_tokens >= by_tokens.stats.prompt_tokens


def test_a_follow_up_equals_reading_everything_anew(engine, folders):
    first, _ = answer(engine, PLAIN)
    history = (Turn("Who found the lamp?", first.token_ids),)
    warm, _ = answer(engine, PLAIN, question="And who sold it?", history=history)
    fresh = Engine(config(folders))
    list(fresh.load())
    list(fresh.open_document(document()))
    cold, _ = answer(fresh, PLAIN, question="And who sold it?", history=history)
    assert warm.token_ids == cold.token_ids


def test_stop_tokens_end_the_answer_inside_a_round(engine):
    whole, _ = answer(engine, PLAIN, tokens=30)
    stop = whole.token_ids[17]
    cut = whole.token_ids[: whole.token_ids.index(stop) + 1]
    for speculation in (PLAIN, TRIFORCE):
        done, _ = answer(engine, speculation, tokens=30, stop=(stop,))
        assert (done.reason, done.token_ids) == ("stop", cut)
        at_the_limit, _ = answer(engine, speculation, tokens=len(cut), stop=(stop,))
        assert (at_the_limit.reason, at_the_limit.text) == ("stop", done.text)
        assert answer(engine, speculation, tokens=30)[0].token_ids == whole.token_ids  # the cache is sound after it


def test_cancel_ends_within_a_round_and_keeps_the_partial_answer(engine):
    stream = engine.ask("Who found the lamp?", (), SamplingParams(max_new_tokens=400, stop_token_ids=()), TRIFORCE)
    seen = []
    for event in stream:
        seen.append(event)
        if sum(isinstance(e, RoundEvent) for e in seen) == 3:
            engine.cancel()
    assert seen[-1].reason == "cancelled" and len(seen[-1].token_ids) == sum(
        len(e.token_ids) for e in seen if isinstance(e, RoundEvent))
    assert sum(isinstance(e, RoundEvent) for e in seen) == 3
    assert answer(engine, TRIFORCE)[0].token_ids == answer(engine, PLAIN)[0].token_ids


def test_closing_the_stream_leaves_the_session_usable(engine):
    before, _ = answer(engine, TRIFORCE)
    stream = engine.ask("Who found the lamp?", (), SamplingParams(max_new_tokens=100, stop_token_ids=()), TRIFORCE)
    while not isinstance(next(stream), RoundEvent):
        pass
    stream.close()
    assert answer(engine, TRIFORCE)[0].token_ids == before.token_ids


def test_reading_can_be_cancelled_between_chunks(folders):
    engine = Engine(config(folders, prefill_chunk=64))
    list(engine.load())
    stream = engine.open_document(document())
    assert next(stream).tokens_done == 64
    engine.cancel()
    assert not any(isinstance(event, DocumentOpened) for event in stream)
    assert isinstance(list(engine.open_document(document()))[-1], DocumentOpened)


def test_a_saved_reading_gives_the_same_answer_and_a_changed_document_is_read_again(folders, tmp_path):
    def opened(doc):
        engine = Engine(config(folders, saved_readings=tmp_path))
        list(engine.load())
        return engine, list(engine.open_document(doc))[-1]

    first, opening = opened(document())
    assert not opening.restored
    second, reopening = opened(document())
    assert reopening.restored and reopening.read_seconds == opening.read_seconds
    assert answer(second, TRIFORCE)[0].token_ids == answer(first, TRIFORCE)[0].token_ids
    assert not opened(document(seed=1))[1].restored


def pages_of(doc: Document, *numbers: int) -> Document:
    return replace(doc, pages=tuple(doc.pages[number] for number in numbers))


@pytest.mark.parametrize("saved", [False, True], ids=["memory", "disk"])
def test_what_pages_have_in_common_at_their_beginning_is_read_once(folders, tmp_path, monkeypatch, saved):
    """One page more, fewer, or others behind them: same keys and values, same answer, fewer tokens read."""
    monkeypatch.setattr("triforce_core.kv_cache.snapshot._RESTORED_PER_SECOND", 1e15)  # worth it, however small
    monkeypatch.setattr("triforce_core.engine.saved_readings._WORTH_SAVING", 1)
    whole = document()

    def engine() -> Engine:
        made = Engine(config(folders, prefill_chunk=64, saved_readings=tmp_path if saved else None))
        list(made.load())
        return made

    used, first = engine(), pages_of(whole, *range(8))
    opening = list(used.open_document(first))[-1]
    assert opening.reused == 0
    for others in (range(9), (*range(6), 9), range(5), (1, 0)):
        if saved:
            used = engine()
        events = list(used.open_document(pages_of(whole, *others)))
        read = [event for event in events if isinstance(event, PrefillProgress) and event.stage == "read"]
        opening = events[-1]
        assert not opening.restored and (opening.reused > 0) == (others != (1, 0)), others
        assert opening.reused % 64 == 0 and read[0].tokens_done == min(opening.reused + 64, opening.tokens)
        afresh = Engine(config(folders, prefill_chunk=64))
        list(afresh.load())
        list(afresh.open_document(pages_of(whole, *others)))
        for layer in range(3):
            mine, theirs = used._session.full.cache.read(layer), afresh._session.full.cache.read(layer)
            assert all(torch.equal(a, b) for a, b in zip(mine, theirs, strict=True))
        assert answer(used, TRIFORCE, tokens=16)[0].token_ids == answer(afresh, TRIFORCE, tokens=16)[0].token_ids


@pytest.mark.parametrize("number", [28, 30], ids=["full", "read-only"])
def test_a_reading_that_cannot_be_saved_is_read_and_says_why(folders, tmp_path, monkeypatch, number):
    """It costs the next opening its time, not this one; said once, of the reading that it happened to."""
    def refuse(*_: object) -> int:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr("triforce_core.kv_cache.snapshot._write_tensor", refuse)
    engine = Engine(config(folders, saved_readings=tmp_path))
    list(engine.load())
    opening = list(engine.open_document(document()))[-1]
    assert not opening.restored and ("full" if number == 28 else os.strerror(number)) in opening.unsaved
    assert answer(engine, TRIFORCE)[0].token_ids
    assert list(engine.open_document(document()))[-1].unsaved == ""
    assert not list(tmp_path.glob("*.kv"))


def test_a_document_that_does_not_fit_is_refused_with_what_fits(engine):
    long = document(sentences=900)
    fit = engine.measure(long)
    assert not fit.fits and len(fit.page_tokens) == 45 and sum(fit.page_tokens) == fit.tokens
    with pytest.raises(ContextTooLongError, match="pages 1-"):
        list(engine.open_document(long))
    assert answer(engine, TRIFORCE)[0].token_ids  # the open document is still there


def test_an_empty_question_is_an_error_and_the_answer_ends_where_the_context_does(engine, folders):
    with pytest.raises(ConfigError, match="empty"):
        list(engine.ask("  ", (), SamplingParams(), TRIFORCE))
    small = Engine(config(folders, max_context=1000))
    list(small.load())
    list(small.open_document(document(sentences=58)))
    for more in ({}, {"quotes": "on"}, {"ngram": "straight", "small_model": "off", "middle_cache": "none"}):
        done, _ = answer(small, SpeculationConfig(verifier="coupled", **more, **SETTINGS), tokens=3000,
                         question="Who found the lamp? " * 50)  # which leaves room for few rounds
        assert done.reason == "context"  # though drafts may be longer than what is left
        assert done.stats.reused_tokens + done.stats.prompt_tokens + len(done.token_ids) == 1000


def test_without_a_draft_model_the_retrieved_part_drafts_alone(folders):
    engine = Engine(config(folders, draft_model="none"))
    list(engine.load())
    list(engine.open_document(document()))
    fast, _ = answer(engine, TRIFORCE, temperature=0.9)
    assert "draft" not in fast.stats.acceptance and fast.stats.acceptance["retrieval"].tested > 0
    assert fast.token_ids == answer(engine, PLAIN, temperature=0.9)[0].token_ids


def test_a_short_context_is_drafted_by_the_small_model_alone(engine, folders):
    engine = Engine(config(folders))
    list(engine.load())
    list(engine.open_document(document(sentences=20)))
    fast, _ = answer(engine, TRIFORCE, temperature=0.9)
    assert set(fast.stats.acceptance) <= {"draft", "quote"}
    assert "short" in fast.stats.why
    assert fast.token_ids == answer(engine, PLAIN, temperature=0.9)[0].token_ids


def test_opening_another_document_frees_the_first_ones_cache_at_once(folders):
    """A reference cycle would keep gigabytes until the garbage collector happens to run."""
    engine = Engine(config(folders))
    list(engine.load())
    list(engine.open_document(document()))
    answer(engine, TRIFORCE)
    cache = weakref.ref(engine._session.full.cache)
    gc.disable()
    try:
        list(engine.open_document(document(40, seed=1)))
        assert cache() is None
    finally:
        gc.enable()


def test_tokens_have_texts_and_chances_that_plain_decoding_agrees_with(engine) -> None:
    """What a round of many tokens reports of each is what a pass for that token alone reports."""
    told = {}
    for name, speculation in (("plain", PLAIN), ("fast", TRIFORCE)):
        sampling = SamplingParams(max_new_tokens=32, stop_token_ids=(), alternatives=3)
        free = replace(speculation, quotes="off")  # so that the likeliest token is the one that was taken
        events = list(engine.ask("Who found the lamp?", (), sampling, free))
        rounds = [event for event in events if isinstance(event, RoundEvent)]
        assert all(len(event.texts) == len(event.chances) == len(event.token_ids) for event in rounds)
        shown = "".join(text for event in rounds for text in event.texts)
        assert events[-1].text.startswith(shown) and len(events[-1].text) - len(shown) < 4  # half a character at most
        told[name] = [chance for event in rounds for chance in event.chances]
        for event in rounds:  # where a round looked is told with its words, of the rounds that measured it
            shares = [chunk.share for chunk in event.chunks]
            assert (event.page_shares is None) == (not shares) and shares == sorted(shares, reverse=True)
            words = "".join(page.text for page in document().pages)
            assert all(chunk.text.strip().split("\n")[-1].strip() in words for chunk in event.chunks[:1])
            assert all(0 < share <= 1 and sum(shares) <= 1 + 1e-9 for share in shares)
        for chance in told[name]:
            assert len(chance.alternatives) == 3 and chance.alternatives[0][1] == pytest.approx(chance.probability)
    assert len(told["fast"]) == 32 and len([1 for e in engine.ask("Who found the lamp?", (), SamplingParams(
        max_new_tokens=32, stop_token_ids=()), TRIFORCE) if isinstance(e, RoundEvent) and e.chances]) == 0
    for one, other in zip(told["plain"], told["fast"], strict=True):
        assert one.probability == pytest.approx(other.probability, rel=1e-3)
        assert [text for text, _ in one.alternatives] == [text for text, _ in other.alternatives]


def test_what_any_question_draws_is_known_before_the_first_one(folders) -> None:
    """And is taken off what an answer is said to have attended; its words stay."""
    engine = Engine(config(folders))
    list(engine.load())
    *_, opened = engine.open_document(document())
    assert isinstance(opened, DocumentOpened) and len(opened.usual_shares) == len(document().pages)
    assert sum(opened.usual_shares) == pytest.approx(1.0) and opened.usual_shares[-1] > 0
    session = engine._session
    usual = session.report(8)
    usual.see(torch.zeros(1, 1, usual.num_chunks).index_fill(2, torch.tensor([3, 5]), 1.0))
    usual.add_seen()
    told = {chunk: share for _, chunk, share in usual.top(usual.num_chunks)}
    expected = {chunk: 0.5 - session._usual.total[chunk] for chunk in (3, 5)}
    assert told == pytest.approx(expected)
    with_it, _ = answer(engine, TRIFORCE)
    session._usual = None
    without, _ = answer(engine, TRIFORCE)
    assert (with_it.token_ids, with_it.page_shares) == (without.token_ids, without.page_shares)
    assert sum(chunk.share for chunk in with_it.chunks) < sum(chunk.share for chunk in without.chunks)


def test_another_document_lies_in_the_memory_of_the_last_one(folders) -> None:
    """Clearing gigabytes anew takes as long as bringing a saved reading back; nothing of the old one is seen."""
    engine, fresh = Engine(config(folders)), Engine(config(folders))
    for one in (engine, fresh):
        list(one.load())
    list(engine.open_document(document()))
    before = engine._session.full.cache
    *_, opening = engine.open_document(document(200, seed=1))
    assert engine._session.full.cache is before and opening.reused == 0
    assert engine._held >= before.nbytes
    list(fresh.open_document(document(200, seed=1)))
    assert answer(engine, TRIFORCE)[0].token_ids == answer(fresh, TRIFORCE)[0].token_ids
    list(engine.open_document(document(40, seed=2)))  # most of it would lie idle
    assert engine._session.full.cache is not before


@pytest.mark.parametrize("other", [False, True], ids=["same document", "another document"])
def test_a_conversation_that_was_left_is_not_read_again(folders, other) -> None:
    """Left for another of the same document, or of another one: it is gone on with as if nothing had come between."""
    first = "Who found the lamp, who sold the river, and who painted the letter in the garden by the old harbour?"

    def gone_on(engine: Engine, between: bool) -> Finished:
        list(engine.load())
        list(engine.open_document(document()))
        said, _ = answer(engine, TRIFORCE, question=first, tokens=64)
        history = (Turn(first, said.token_ids),)
        if between:
            if other:
                list(engine.open_document(document(60, seed=1)))
            answer(engine, TRIFORCE, question="What else is there?")
            list(engine.open_document(document()))
        return answer(engine, TRIFORCE, question="And when?", history=history)[0]

    at_once, later = gone_on(Engine(config(folders)), False), gone_on(Engine(config(folders)), True)
    assert later.token_ids == at_once.token_ids
    assert later.stats.reused_tokens >= at_once.stats.reused_tokens - 1 and later.stats.prompt_tokens < 40


def test_what_was_left_is_kept_within_bounds(engine) -> None:
    full, ids = engine._session.full, engine._session.reading.document
    cache = full.cache
    full.truncate(len(ids) - 100)
    each = 70 * cache.nbytes // cache.slots
    left = LeftConversations(2 * each)
    for start in (10, 20, 30):
        left.keep("a", start, ids[: start + 70], cache)
    assert len(left) <= 2
    before = len(left)
    left.keep("a", 30, ids[:400], cache)  # too long
    left.keep("a", 30, ids[:40], cache)  # soon read again
    assert len(left) == before
    full.truncate(30)
    assert left.bring("b", ids, full, len(ids)) == 30 and left.bring("a", [*ids[:50], 1, *ids[51:]], full, 999) == 30
    layer = [tensor.clone() for tensor in cache.layers[1].keys[:, 30:100].unbind()]
    assert left.bring("a", ids, full, len(ids)) == full.length == 100
    assert all(torch.equal(a, b) for a, b in zip(layer, cache.layers[1].keys[:, 30:100].unbind(), strict=True))
