"""Plans on worlds with stated costs and stated odds: they follow the costs, and promise nothing that was not seen."""

from __future__ import annotations

import pytest

from triforce_core.draft_length.costs import Costs, Curve
from triforce_core.draft_length.plan import ENOUGH, Lengths, Way, make_plan
from triforce_core.draft_length.profile import TreeCosts
from triforce_core.draft_length.seen import Seen

LENGTHS = Lengths((0, 1, 2, 4), (2, 4, 6, 10, 16, 24), 2, 10, True)
SHOWN = "the retrieval cache, 768 of 30,000 tokens"


def costs(plain: float = 25.0, row: float = 0.5, small: float = 0.5, retrieval: float = 6.0) -> Costs:
    return Costs(plain, Curve(((1, plain), (33, plain + 32 * row))),
                 {gamma1: gamma1 * small + retrieval for gamma1 in LENGTHS.gamma1s}, 0.5)


def seen(right: float, below: float = 0.5, rounds: int = 100, drafted: int = 11) -> Seen:
    """Positions that are all right with one chance, as rounds of so many drafted tokens show them."""
    known = Seen()
    alive = float(rounds)
    for position in range(drafted):
        known.tested[position], known.accepted[position] = alive, alive * right
        alive *= right
    known.learn_below(1000, int(1000 * below))
    known.drafted = known.total
    return known


def plan(passes: Costs, known: Seen, lengths: Lengths = LENGTHS, **more):
    return make_plan([Way({}, passes, known, SHOWN, **more)], lengths)


def test_dear_full_passes_are_worth_long_drafts_and_cheap_ones_short_drafts():
    dear, cheap = plan(costs(plain=400.0, row=0.1), seen(0.97)), plan(costs(plain=14.0, retrieval=5.0), seen(0.85))
    assert dear.changes["gamma2"] > 10 and "more tokens per second are expected than with 10 at a time" in dear.words
    assert cheap.changes["gamma2"] < 10
    assert plan(costs(), seen(0.95)).changes == {}  # the usual lengths are good there


def test_where_no_draft_pays_a_controller_may_rest():
    hardly = costs(plain=8.0, row=4.0, retrieval=7.5)
    assert plan(hardly, seen(0.6)).changes == {"pace": "on"}
    held = Lengths((2,), (10,), 2, 10, True, may_rest=False)
    assert plan(hardly, seen(0.6), held).changes == {}


def test_nothing_changes_before_enough_was_seen():
    few = seen(0.97, rounds=15)
    assert few.total < ENOUGH
    found = plan(costs(plain=400.0), few)
    assert found.changes == {} and "until 200 drafted tokens were tested (142 so far)" in found.words
    assert "how many are right is not known yet" in plan(costs(), Seen()).words


def test_drafts_stay_within_the_rows_that_a_machine_computes_alike():
    narrow = Lengths(LENGTHS.gamma1s, LENGTHS.gamma2s, 2, 10, True, most=17)
    found = plan(costs(plain=400.0, row=0.1), seen(0.97), narrow).changes
    assert found["gamma2"] > 10 and found["gamma1"] + found["gamma2"] <= 17


def test_what_was_given_stays():
    given = Lengths((2,), (10,), 2, 10, True, may_rest=False, may_grow=False)
    assert plan(costs(plain=400.0, row=0.1), seen(0.97), given).changes == {}


def test_where_chance_decides_or_the_document_forces_the_usual_stay():
    passes, known = costs(plain=400.0, row=0.1), seen(0.97)
    held = make_plan([Way({}, passes, known, SHOWN)], LENGTHS, "chance decides")
    assert held.changes == {} and held.words.endswith("; chance decides")
    known.forced = known.drafted
    assert plan(passes, known).changes == {} and "the document forces" in plan(passes, known).words


def test_the_words_are_plain():
    usual = costs(retrieval=6.0)
    assert plan(usual, seen(0.95)).words == (
        "drafting 10 tokens at a time with the retrieval cache, 768 of 30,000 tokens, because a full pass takes 25 ms, "
        "a drafted token 4.0 ms, and 95% were right lately; nothing else promises 5% more tokens per second")


def test_the_small_model_rests_where_it_is_seldom_right_and_costs_much():
    found = plan(costs(small=6.0), seen(0.97, below=0.05))
    assert found.changes["gamma1"] == 0 and "without the small model" in found.words


def test_no_length_far_beyond_what_was_seen_is_promised_anything():
    known = seen(0.99, drafted=5)
    assert plan(costs(plain=400.0, row=0.01), known).changes.get("gamma2", 10) <= 10


def test_a_tree_is_chosen_only_where_siblings_were_seen_to_be_right():
    passes = costs(plain=25.0, row=0.05, retrieval=6.0)
    grown = TreeCosts(Curve(((5, 26.0), (65, 30.0))), Curve(((1, 6.0), (8, 6.4))))
    seldom, often = seen(0.6), seen(0.6)
    assert "tree" not in plan(passes, seen(0.6), trees=grown).changes  # no tree was ever tried
    for known, second in ((seldom, 0.01), (often, 0.3)):
        known.learn_rank(0, 1000, 600)
        known.learn_rank(1, 1000, int(1000 * second))
    assert "tree" not in plan(passes, seldom, trees=grown).changes
    chosen = plan(passes, often, trees=grown)
    assert chosen.changes["tree"] == "sequoia" and chosen.changes["tree_tier"] == "middle"
    assert chosen.changes["tree_size"] > chosen.changes["tree_depth"] and "drafting trees of" in chosen.words
    dear = TreeCosts(grown.verify, Curve(((1, 30.0), (8, 40.0))))
    assert "tree" not in plan(passes, often, trees=dear).changes
    asked = Lengths(LENGTHS.gamma1s, LENGTHS.gamma2s, 2, 10, True, may_grow=False)
    assert "tree" not in plan(passes, often, asked, trees=grown).changes


def test_another_budget_is_chosen_where_it_was_seen_to_fare_as_well():
    ways = [Way({}, costs(retrieval=12.0), seen(0.95), SHOWN),
            Way({"budget": 384}, costs(retrieval=5.0), seen(0.95), "the retrieval cache, 384 of 30,000 tokens")]
    assert make_plan(ways, LENGTHS).changes["budget"] == 384
    ways[1] = Way({"budget": 384}, costs(retrieval=5.0), seen(0.5), "")
    assert "budget" not in make_plan(ways, LENGTHS).changes
    ways[1] = Way({"budget": 384}, costs(retrieval=5.0), seen(0.95, rounds=10), "")
    assert "budget" not in make_plan(ways, LENGTHS).changes


def test_a_choice_that_takes_longer_than_it_promised_is_taken_back():
    passes, known = costs(small=6.0), seen(0.97, below=0.05)
    assert plan(passes, known).changes["gamma1"] == 0
    known.learn_pace(2, (100.0, 100.0, 50.0, 50.0))
    assert plan(passes, known).changes["gamma1"] == 0
    known.learn_pace(0, (1600.0, 200.0, 100.0, 50.0))  # all takes twice as long, drafting four times that again
    assert plan(passes, known).changes.get("gamma1") != 0


def test_a_machine_that_is_busy_with_other_things_changes_its_figures_only():
    passes, known = costs(plain=400.0, row=0.1), seen(0.97)
    quiet = plan(passes, known)
    known.learn_pace(quiet.changes["gamma1"], (300.0, 100.0, 150.0, 50.0))
    busy = plan(passes, known)
    assert busy.changes == quiet.changes
    assert "a full pass takes 400 ms" in quiet.words and "a full pass takes 1,200 ms" in busy.words


def test_where_lengths_are_chosen_round_by_round_a_plan_leaves_them_alone():
    pacing = Lengths(LENGTHS.gamma1s, LENGTHS.gamma2s, 2, 10, True, each_round=True)
    found = plan(costs(plain=400.0), seen(0.97), pacing)
    assert found.changes == {} and "chosen round by round" in found.words
    ways = [Way({}, costs(retrieval=12.0), seen(0.95), SHOWN), Way({"budget": 384}, costs(), seen(0.95), "half of it")]
    other = make_plan(ways, pacing)
    assert other.changes == {"budget": 384} and other.words.startswith(
        "drafting as many tokens at a time as pay, chosen round by round, with half of it, because")
    assert other.words.endswith(f"are expected than with {SHOWN}")


def test_rounds_are_remembered_by_position():
    known = Seen()
    known.learn([False, True, False], refused=True)
    assert known.tested[:4] == [1, 1, 1, 0] and known.accepted[:3] == [1, 1, 0] and known.forced == 1
    assert known.survivals(3) == [0, 0, 0]  # too little to hope for anything
    for _ in range(1000):
        known.learn([False] * 3, refused=True)
    assert known.tested[0] < 600  # old rounds fade
    assert known.survivals(4) == pytest.approx([1, 1, 1, 0], abs=0.01)
    assert known.strain(2) is None and known.last_strain == known.slowness == 1.0
    known.learn_pace(2, (20.0, 10.0, 30.0, 30.0))
    known.learn_pace(2, (10.0, 10.0, 60.0, 30.0))
    assert known.strain(2) == known.last_strain == pytest.approx((20 / 15) / (75 / 45))
    assert known.slowness == pytest.approx(75 / 45)
