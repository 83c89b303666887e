"""The folds, on answers small enough to count by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest

from triforce_core import metrics
from triforce_core.events import Passage, Passages, QuotePlace, RankCount, RoundEvent, TierCount


def make_round(index: int, tokens: int, elapsed: float, *tiers: TierCount, shares: tuple | None = None) -> RoundEvent:
    sources = ("draft",) * (tokens - 1) + ("bonus",)
    return RoundEvent(index, tuple(range(tokens)), sources, tiers, {"verify": 2.0}, shares, elapsed)


ROUNDS = [
    make_round(0, 1, 1.0),
    make_round(1, 3, 1.5, TierCount("draft", 4, 3), TierCount("retrieval", 3, 2), shares=(0.25, 0.75)),
    make_round(2, 4, 2.0, TierCount("draft", 4, 4), TierCount("retrieval", 4, 3), shares=(0.75, 0.25)),
]


def test_an_answer() -> None:
    stats = metrics.answer_stats(ROUNDS, prompt_tokens=5, reused_tokens=100, prefill_seconds=0.9, engine="triforce",
                                 why="on")
    assert (stats.generated_tokens, stats.full_passes) == (8, 3)
    assert stats.tokens_per_full_pass == pytest.approx(8 / 3)
    assert stats.time_to_first_token == 1.0
    assert stats.decode_seconds == pytest.approx(1.1)  # prefill ended at 0.9
    assert stats.decode_tokens_per_second == pytest.approx(8 / 1.1)
    assert stats.acceptance == {"draft": TierCount("draft", 8, 7), "retrieval": TierCount("retrieval", 7, 5)}
    assert stats.tokens_by_origin == {"bonus": 3, "draft": 5}


def test_nothing_yet() -> None:
    stats = metrics.answer_stats([], prompt_tokens=0, reused_tokens=0, prefill_seconds=0, engine="triforce", why="")
    assert stats.generated_tokens == stats.full_passes == 0
    assert stats.decode_tokens_per_second == stats.tokens_per_full_pass == 0.0
    assert metrics.RunningFigures().page_shares == ()


def test_an_answer_of_one_round_has_a_rate() -> None:
    stats = metrics.answer_stats([make_round(0, 30, 1.5)], prompt_tokens=0, reused_tokens=0, prefill_seconds=0.5,
                                 engine="triforce", why="")
    assert stats.decode_tokens_per_second == 30.0


def test_figures_while_an_answer_is_written_are_those_of_its_rounds_so_far() -> None:
    running = metrics.RunningFigures()
    for count, event in enumerate(ROUNDS, 1):
        running.add(event)
        so_far = metrics.answer_stats(ROUNDS[:count], prompt_tokens=0, reused_tokens=0, prefill_seconds=0.5,
                                      engine="triforce", why="")
        assert (running.tokens, running.rounds) == (so_far.generated_tokens, count)
        assert running.acceptance == so_far.acceptance and running.origins == so_far.tokens_by_origin
        assert running.tokens_per_full_pass == so_far.tokens_per_full_pass
        assert running.time_to_first_token == 1.0
    assert running.tokens_per_second == 7.0  # 3 + 4 tokens in the second after the first round
    assert running.page_shares == (0.5, 0.5)
    decoded = metrics.RunningFigures([replace(ROUNDS[0], decoding=0.5), *ROUNDS[1:]])
    assert decoded.tokens_per_second == pytest.approx(8 / 1.5)  # all tokens, from the end of the prefill on


def test_tokens_of_a_server_that_reports_no_rounds_make_a_rate() -> None:
    running = metrics.RunningFigures()
    for tokens, elapsed in ((2, 1.0), (3, 1.5), (5, 2.0)):
        running.add_tokens(tokens, elapsed)
    assert (running.tokens, running.rounds, running.tokens_per_full_pass) == (10, 0, 0.0)
    assert running.time_to_first_token == 1.0 and running.tokens_per_second == 8.0


def test_sums_and_means() -> None:
    assert metrics.milliseconds(ROUNDS) == {"verify": 6.0}
    assert metrics.RunningFigures(ROUNDS).page_shares == (0.5, 0.5)
    merged = metrics.merge_acceptance([metrics.acceptance(ROUNDS), metrics.acceptance(ROUNDS)])
    assert merged["draft"] == TierCount("draft", 16, 14)
    assert metrics.acceptance_rate(merged["draft"]) == 0.875
    assert metrics.acceptance_rate(TierCount("draft", 0, 0)) == 0.0


def test_siblings_are_counted_by_tier_and_rank() -> None:
    counts = [RankCount("draft", 1, 5, 1), RankCount("draft", 0, 8, 6), RankCount("retrieval", 0, 3, 3)]
    rounds = [replace(ROUNDS[0], ranks=tuple(counts)), replace(ROUNDS[1], ranks=(RankCount("draft", 0, 2, 1),))]
    stats = metrics.answer_stats(rounds, prompt_tokens=0, reused_tokens=0, prefill_seconds=0, engine="triforce", why="")
    assert stats.ranks == (RankCount("draft", 0, 10, 7), RankCount("draft", 1, 5, 1), RankCount("retrieval", 0, 3, 3))


def test_speedup() -> None:
    fast = metrics.answer_stats(ROUNDS, prompt_tokens=0, reused_tokens=0, prefill_seconds=0, engine="triforce", why="")
    none = metrics.answer_stats([], prompt_tokens=0, reused_tokens=0, prefill_seconds=0, engine="triforce", why="")
    assert metrics.speedup(fast, fast) == 1.0
    assert metrics.speedup(none, fast) is None and metrics.speedup(None, fast) is None


def test_what_streamed_from_host_memory_counts_over_all_decoding() -> None:
    rounds = [replace(event, streamed_bytes=1100) for event in ROUNDS]
    stats = metrics.answer_stats(rounds, prompt_tokens=5, reused_tokens=100, prefill_seconds=0.9, engine="triforce",
                                 why="on")
    assert stats.streamed_bytes == 3300 and stats.streamed_bytes_per_second == pytest.approx(3000)


def test_what_programs_get_names_the_pages_that_are_spelled_by_label_and_place() -> None:
    one = Passage((QuotePlace(31, "29", 0, 9), QuotePlace(32, "30", 0, 9)), "It is so.")
    other = Passage((QuotePlace(5, "5", 0, 9),), "It is.")
    found = Passages("q", "several", (one, other, one))
    assert metrics.content("It is so.\n", found, 60) == "It is so. (p. 29–30 (31–32 of 60), p. 5)"
    assert metrics.content("It is so.", None, 60) == "It is so." and metrics.content(" ", found, 60) == " "
