"""Which settings to answer with on this machine, from what passes cost and how drafts fared: tiers, lengths, a tree.

Expected tokens per millisecond of a round, as in ``controller`` (arXiv 2211.17192, equation 1), over what real answers
showed position by position, drafting taking as much longer beside full passes as it did there. What was never seen is
not promised: until enough drafted tokens were tested the usual settings stay, and afterwards another one is chosen only
where it promises clearly more. Measures nothing, knows no clocks and decides only what is "auto".
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import ceil

from ..research.tree_shape import choose as choose_tree
from .costs import Costs
from .profile import TreeCosts
from .seen import Seen

ENOUGH = 200.0  # drafted tokens that were tested, before anything but the usual is chosen
_BETTER = 1.05  # times the usual settings' rate that another choice must promise
_FARTHER = 2  # times the farthest known position: no longer drafts are promised anything
_FORCED = 0.05  # of accepted tokens: with more of them lengths bring what the document forces, which nobody can expect
_TREE_SIZES, _TREE_DEPTHS = (4, 8, 16, 32, 64), (2, 4, 6, 10, 16)

Changes = Mapping[str, int | str]


@dataclass(frozen=True, slots=True)
class Way:
    """Tiers that may draft, the usual ones or others. changes: of settings, that make them so. shown: what the drafter
    attends, in words. trees: the middle tier's; None where it can grow none or none was measured."""

    changes: Changes
    costs: Costs
    seen: Seen
    shown: str
    trees: TreeCosts | None = None


@dataclass(frozen=True, slots=True)
class Lengths:
    """gamma1s, gamma2s: to choose from; gamma1, gamma2: the usual ones. has_middle: a middle tier reviews what gamma1
    counts. most: tokens of a draft, at most; 0: as many as one likes. each_round: a controller chooses them while
    answering, so a plan must not. may_rest, may_grow: whether a plan may leave drafting to a controller that rests, or
    to trees."""

    gamma1s: tuple[int, ...]
    gamma2s: tuple[int, ...]
    gamma1: int
    gamma2: int
    has_middle: bool
    most: int = 0
    each_round: bool = False
    may_rest: bool = True
    may_grow: bool = True


@dataclass(frozen=True, slots=True)
class Plan:
    """changes: settings other than the usual ones, none where these stay. words: what is done and why, fit to show."""

    words: str
    changes: Changes = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Choice:
    way: Way
    changes: Changes
    rate: float  # tokens per millisecond
    drafts: str  # in words


def make_plan(ways: Sequence[Way], lengths: Lengths, fixed: str = "") -> Plan:
    """ways: the usual one first. fixed: why the usual settings stay whatever was measured, if they do."""
    usual_way = ways[0]
    usual = _Choice(usual_way, {}, 0.0, _drafting(lengths.gamma2))
    why = _figures(usual_way, lengths.gamma1, lengths)
    if lengths.each_round:
        usual = _Choice(usual_way, {}, 0.0, "drafting as many tokens at a time as pay, chosen round by round,")
    seen = usual_way.seen
    if fixed:
        return Plan(f"{_sentence(usual, why)}; {fixed}")
    if seen.total < ENOUGH:
        note = "" if lengths.each_round else \
            f"; these are the usual settings until {ENOUGH:,.0f} drafted tokens were tested ({seen.total:,.0f} so far)"
        return Plan(_sentence(usual, why) + note)
    if seen.forced > _FORCED * (seen.forced + seen.drafted):
        return Plan(_sentence(usual, why) + "; the document forces much of the text, so the usual settings stay")
    promised = _rate(usual_way, lengths.gamma1, lengths.gamma2, lengths, usual_way)
    if lengths.each_round:
        promised = max((choice.rate for choice in _chains(usual_way, lengths, usual_way)), default=promised)
    best = max(_choices(ways, lengths), key=lambda choice: choice.rate, default=usual)
    if best.rate < _BETTER * promised or not best.changes:
        return Plan(_sentence(usual, why) + f"; nothing else promises {_BETTER - 1:.0%} more tokens per second")
    beside = f"{lengths.gamma2} at a time"
    if lengths.each_round:
        beside = usual_way.shown
        best = best if "tree" in best.changes else replace(best, drafts=usual.drafts)
    gain = f"; {best.rate / promised - 1:.0%} more tokens per second are expected than with {beside}"
    gamma1 = int(best.changes.get("gamma1", lengths.gamma1))
    return Plan(_sentence(best, _figures(best.way, gamma1, lengths)) + gain, best.changes)


def _choices(ways: Sequence[Way], lengths: Lengths) -> Iterator[_Choice]:
    usual = ways[0]
    for way in ways:
        if way.seen.total >= ENOUGH:
            yield from _chains(way, lengths, usual)
            if lengths.may_grow:
                yield from _trees(way, lengths, usual)
    if lengths.may_rest and not lengths.each_round:
        rests = "mostly drafting nothing: at most a few tokens at a time,"
        yield _Choice(usual, {"pace": "on"}, 1.0 / usual.costs.plain, rests)


def _chains(way: Way, lengths: Lengths, usual: Way) -> Iterator[_Choice]:
    for gamma1 in lengths.gamma1s:
        if gamma1 not in way.costs.steps or (lengths.has_middle and gamma1 and way.seen.below is None):
            continue
        for gamma2 in lengths.gamma2s:
            if gamma2 > _FARTHER * way.seen.farthest or gamma2 + gamma1 > (lengths.most or gamma2 + gamma1):
                continue
            rate = _rate(way, gamma1, gamma2, lengths, usual)
            changes = dict(way.changes)
            if not lengths.each_round and (gamma1, gamma2) != (lengths.gamma1, lengths.gamma2):
                changes |= {"gamma1": gamma1, "gamma2": gamma2}
            alone = " without the small model" if lengths.has_middle and not gamma1 and lengths.gamma1 else ""
            yield _Choice(way, changes, rate, _drafting(gamma2) + alone)


def _trees(way: Way, lengths: Lengths, usual: Way) -> Iterator[_Choice]:
    """Sequoia's tree for this machine, where siblings were seen to be right."""
    worth = way.seen.siblings(ENOUGH)
    if way.trees is None or worth is None:
        return
    grown, beside = way.trees, way.costs.choose
    strain = _strain(way, lengths.gamma1, usual)  # of chains: no better is known of trees
    found = choose_tree(worth, lambda rows: grown.verify.at(rows) + beside, lambda rows: strain * grown.draft.at(rows),
                        sizes=[size for size in _TREE_SIZES if size <= (lengths.most or size)], depths=_TREE_DEPTHS)
    if not found.shape.size:
        return
    changes = {**way.changes, "tree": "sequoia", "tree_tier": "middle",
               "tree_size": found.shape.size, "tree_depth": found.shape.depth}
    yield _Choice(way, changes, found.expected_tokens / found.cost,
                  f"drafting trees of {found.shape.size} guesses on {found.shape.depth} levels")


def _rate(way: Way, gamma1: int, gamma2: int, lengths: Lengths, usual: Way) -> float:
    """Tokens per millisecond."""
    per_step = _per_step(way, gamma1, lengths)
    drafted = gamma2 + (per_step - 1.0) / 2  # the last step of a draft brings more than was asked for
    chances = way.seen.survivals(ceil(drafted))
    brought = 1.0 + sum(chances[: int(drafted)]) + (drafted - int(drafted)) * chances[-1]
    drafting = drafted / per_step * way.costs.steps[gamma1] * _strain(way, gamma1, usual)
    return brought / (drafting + way.costs.verify.at(drafted + 1) + way.costs.choose)


def _strain(way: Way, gamma1: int, usual: Way) -> float:
    """Its own, or that of the lengths used last: what was measured too quick for them was so for all."""
    return way.seen.strain(gamma1) or usual.seen.last_strain


def _per_step(way: Way, gamma1: int, lengths: Lengths) -> float:
    """Drafted tokens of one of the drafter's steps."""
    if not lengths.has_middle:
        return 1.0
    right = way.seen.below or 0.0
    return sum(right**i for i in range(gamma1 + 1))


def _drafting(gamma2: int) -> str:
    return f"drafting {gamma2} token{'s' if gamma2 > 1 else ''} at a time"


def _figures(way: Way, gamma1: int, lengths: Lengths) -> str:
    known = way.seen.total > 0
    now = way.seen.slowness  # not as when it was measured
    figures = [f"a full pass takes {_milliseconds(way.costs.plain * now)}"]
    if gamma1 in way.costs.steps:
        drafted = way.costs.steps[gamma1] / _per_step(way, gamma1, lengths)
        figures.append(f"a drafted token {_milliseconds(drafted * now * (way.seen.strain(gamma1) or 1.0))}")
    figures.append(f"{way.seen.share:.0%} were right lately" if known else "how many are right is not known yet")
    return f"{', '.join(figures[:-1])}, and {figures[-1]}"


def _sentence(choice: _Choice, why: str) -> str:
    return f"{choice.drafts} with {choice.way.shown}, because {why}"


def _milliseconds(time: float) -> str:
    return f"{time:,.0f} ms" if time >= 9.5 else f"{time:.1f} ms"
