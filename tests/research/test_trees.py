"""Trees of guesses are lossless too: every random branch enumerated, however siblings are drawn."""

from __future__ import annotations

from itertools import pairwise, product

import pytest
import torch
from speculation.probs import (
    ANY_SHAPE,
    BOUND,
    PARAMS,
    START,
    EvenAfterTwo,
    OnTensors,
    TwoAllowed,
    deviation,
    models,
    ngrams,
    proven_ngrams,
)
from speculation.toy import Settling, TableModel, enumerate_exactly, total_variation

from triforce_core.config import SamplingParams
from triforce_core.research import tree_drafter
from triforce_core.research.lenience import lenient
from triforce_core.research.tree_drafter import TreeDrafter, draw_at_once, draw_one_by_one, siblings_on_tensors
from triforce_core.research.tree_shape import TreeShape, choose, sequoia
from triforce_core.research.tree_verifier import for_trees
from triforce_core.sampling import Sampler
from triforce_core.speculation.drafter import Drafter, NoDrafter
from triforce_core.speculation.hierarchical import HierarchicalDrafter
from triforce_core.speculation.model_drafter import ModelDrafter
from triforce_core.speculation.prompt_lookup import Router
from triforce_core.speculation.round import speculate
from triforce_core.speculation.verifier import verify_tokens

# The third has more siblings than there are tokens; in the last an only child has children.
SHAPES = {"two siblings": (-1, -1), "two levels": (-1, -1, 0), "more than there are": (-1, -1, -1, -1),
          "a late fork": (-1, 0, 0), "both": (-1, -1, 1, 1)}


def grown(model: TableModel, parents: tuple[int, ...], *, replacing: bool = False, tier: str = "draft") -> TreeDrafter:
    drafter = TreeDrafter(Settling(model), len(parents), 4, replacing=replacing, tier=tier)
    drafter.shape = TreeShape(parents)
    return drafter


def reviewed(model: TableModel, drafter: Drafter, gamma1: int) -> HierarchicalDrafter:
    return HierarchicalDrafter(Settling(model), drafter, gamma1, verify=for_trees(verify_tokens))


@pytest.mark.parametrize("params", PARAMS, ids=["T1", "T0.6 top-p 0.9", "T1.3 top-k 2"])
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("replacing", [False, True], ids=["without replacement", "with"])
def test_one_tier_is_lossless(params, shape, replacing, rejection):
    target, _, small = models()
    assert deviation(target, grown(small, SHAPES[shape], replacing=replacing), 4, params) < BOUND


def test_a_fourth_tier_changes_nothing():
    target, retrieval, small = models()

    def tiers():
        between = reviewed(TableModel(3, 9, like=target, blend=0.4), grown(small, (-1, -1)), 1)
        return reviewed(retrieval, between, 1)

    assert deviation(target, tiers, 1, PARAMS[0]) < BOUND


@pytest.mark.parametrize("params", PARAMS[:2], ids=["T1", "T0.6 top-p 0.9"])
@pytest.mark.parametrize("gamma2", [1, 2])
@pytest.mark.parametrize("replacing", [False, True], ids=["without replacement", "with"])
def test_the_small_models_tree_under_the_middle_tier_is_lossless(params, gamma2, replacing, rejection):
    target, retrieval, small = models()

    def tiers():  # made anew for each branch, as what trees measure is a state
        shape = (-1, -1, 0) if gamma2 == 1 else (-1, -1)
        return reviewed(retrieval, grown(small, shape, replacing=replacing), 2)

    assert deviation(target, tiers, gamma2, params) < BOUND


@pytest.mark.parametrize("params", PARAMS[:2], ids=["T1", "T0.6 top-p 0.9"])
@pytest.mark.parametrize("replacing", [False, True], ids=["without replacement", "with"])
def test_lenience_lets_no_more_of_a_tree_pass_and_trees_stand_beside_copies(params, replacing, rejection):
    target, retrieval, small = models()
    drafters = {
        "lenient": lambda: HierarchicalDrafter(Settling(retrieval), grown(small, (-1, -1), replacing=replacing), 2,
                                               verify=for_trees(lenient(3.0))),
        "or a copy": lambda: Router(grown(small, (-1, -1, 0), replacing=replacing), ngrams(), 4, 9.0),
        "a proven copy": lambda: Router(grown(small, (-1, -1, 0), replacing=replacing), proven_ngrams(), 4, 9.0),
    }
    for name, drafter in drafters.items():
        assert deviation(target, drafter, 2, params) < BOUND, name


@pytest.mark.parametrize("params", PARAMS[:2], ids=["T1", "T0.6 top-p 0.9"])
@pytest.mark.parametrize("masks", [EvenAfterTwo(), TwoAllowed()], ids=["forced", "two"])
@pytest.mark.parametrize("start", [[0, 1], [0, 2]], ids=["free", "forced at once"])
@pytest.mark.parametrize("replacing", [False, True], ids=["without replacement", "with"])
def test_masks_and_forced_tokens_stay_lossless(params, masks, start, replacing, rejection):
    target, retrieval, small = models()
    for parents in ((-1, -1, 0), (-1, 0, 0)):
        assert deviation(target, grown(small, parents, replacing=replacing), 3, params, masks, start) < BOUND

    def tiers():
        return reviewed(retrieval, grown(small, (-1, -1), replacing=replacing), 1)

    assert deviation(target, tiers, 2, params, masks, start) < BOUND


@pytest.mark.parametrize("claimed", ["drawn independently", "drawn from the first one's leavings, which were not"])
def test_the_enumeration_sees_siblings_with_a_wrong_law(claimed, monkeypatch):
    """A verifier that is told that siblings were drawn in another way than they were must be caught."""

    def lying(token_probs, count, chance, *, replacing):
        family = draw_one_by_one(token_probs, count, chance, replacing=claimed != "drawn independently")
        first = family.token_ids[0]
        told = token_probs if claimed == "drawn independently" else token_probs.index_fill(0, torch.tensor(first), 1e-9)
        return tree_drafter.Family(family.token_ids, [token_probs, *[told / told.sum()] * (len(family.probs) - 1)])

    monkeypatch.setattr(tree_drafter, "draw_one_by_one", lying)
    target, _, small = models()
    assert deviation(target, grown(small, (-1, -1)), 1, PARAMS[0]) > 1e-3


@pytest.mark.parametrize("replacing", [False, True], ids=["without replacement", "with"])
def test_siblings_drawn_at_once_are_those_drawn_one_by_one(replacing):
    probs = torch.tensor([[0.5, 0.3, 0.2], [0.0, 1.0, 0.0], [0.6, 0.0, 0.4]], dtype=torch.float64)
    counts = [3, 2, 1]

    def at_once(chance):
        families = draw_at_once(probs, counts, OnTensors(chance), replacing=replacing)
        for family in families:  # each law is what was left
            for (token, token_probs), (_, later) in pairwise(zip(family.token_ids, family.probs, strict=True)):
                left = token_probs if replacing else token_probs.index_fill(0, torch.tensor(token), 0.0)
                torch.testing.assert_close(later, left / left.sum())
        return tuple(tuple(family.token_ids) for family in families)

    def one_by_one(chance):
        return tuple(tuple(draw_one_by_one(token_probs, count, chance, replacing=replacing).token_ids)
                     for token_probs, count in zip(probs, counts, strict=True))

    found, expected = enumerate_exactly(at_once), enumerate_exactly(one_by_one)
    assert total_variation(found, expected) < BOUND
    assert all(len(families[1]) == (2 if replacing else 1) for families in found)  # nothing is left after the first


@pytest.mark.parametrize("replacing", [False, True], ids=["without replacement", "with"])
def test_siblings_drawn_on_tensors_are_those_drawn_one_by_one(replacing):
    probs = torch.tensor([[0.5, 0.3, 0.2], [0.0, 1.0, 0.0], [0.6, 0.0, 0.4]], dtype=torch.float64)

    def on_tensors(chance):
        families: list[list[int]] = [[], [], []]
        for tokens, drawn_from in siblings_on_tensors(probs, 3, OnTensors(chance), replacing=replacing):
            for token_probs, whole, family, token in zip(drawn_from, probs, families, tokens.tolist(), strict=True):
                if token >= 0:
                    left = whole if replacing else whole.index_fill(0, torch.tensor(family, dtype=torch.int64), 0.0)
                    torch.testing.assert_close(token_probs, left / left.sum())
                    family.append(token)
        return tuple(map(tuple, families))

    def one_by_one(chance):
        return tuple(tuple(draw_one_by_one(row, 3, chance, replacing=replacing).token_ids) for row in probs)

    assert total_variation(enumerate_exactly(on_tensors), enumerate_exactly(one_by_one)) < BOUND


def words(target, drafter: Drafter, params: SamplingParams, gamma2: int, length: int = 160):
    sampler = Sampler(params, verifier="coupled")
    context, later = list(START), 0
    while len(context) < length:
        done = speculate(target, drafter, context, gamma2, sampler, verify=ANY_SHAPE)
        parents = done.draft.parents
        later += any(node not in (parents.index(parents[node]),) for node in done.verdict.path if parents)
        context.extend(done.verdict.token_ids)
        drafter.settle(context, committed=True)
    return context[:length], later


@pytest.mark.parametrize("temperature", [0.0, 0.6, 1.0])
@pytest.mark.parametrize("replacing", [False, True], ids=["sequoia", "specinfer"])
@pytest.mark.parametrize("middle", [False, True])
def test_deciding_by_draws_gives_plain_decodings_words(temperature, replacing, middle):
    target, retrieval, small = models(vocabulary=12)
    params = SamplingParams(temperature=temperature, seed=4)
    drafter: Drafter = TreeDrafter(Settling(small), 6, 3, replacing=replacing)
    if middle:
        drafter = reviewed(retrieval, drafter, 3)
    fast, later = words(target, drafter, params, 3)
    assert fast == words(target, NoDrafter(), params, 0)[0]
    if not middle and temperature:
        assert later > 5  # second guesses are of use: they are what the noise would have chosen next


def test_a_tree_of_one_branch_is_a_chain():
    _, _, small = models(vocabulary=12)
    for params, verifier in ((SamplingParams(temperature=1.0, seed=7), "rejection"), (SamplingParams(), "coupled")):
        tree = TreeDrafter(Settling(small), 4, 4, expected=(0.7,))
        drafts = [drafter.propose(START, 4, Sampler(params, verifier=verifier))
                  for drafter in (tree, ModelDrafter(Settling(small)))]
        assert drafts[0].token_ids == drafts[1].token_ids and drafts[0].parents == drafts[1].parents == []
        for own, other in zip(drafts[0].probs, drafts[1].probs, strict=True):
            assert (own is None and other is None) or torch.equal(own, other)


def test_nothing_follows_the_end_of_an_answer():
    _, _, small = models()
    stop = frozenset({0, 1})
    sampler = Sampler(SamplingParams(temperature=1.0, seed=1), stop=stop)
    for _ in range(20):
        draft = grown(small, (-1, -1, -1, 0, 1, 2)).propose(START, 4, sampler)
        assert all(draft.token_ids[parent] not in stop for parent in draft.parents if parent >= 0)


def test_what_siblings_bring_is_measured_and_shapes_the_tree():
    """A target that always takes the second best: the tree grows wide, and the ranks say why."""
    small = TableModel(12, 3)
    order = small.table.argsort(-1, descending=True)
    target = TableModel(12, 3)
    target.table = torch.full_like(small.table, -30.0).scatter(-1, order[..., 1:2], 0.0)
    drafter = TreeDrafter(Settling(small), 4, 4, expected=(0.9, 0.05))
    assert drafter.shape.parents == (-1, 0, 1, 2)
    sampler, context = Sampler(SamplingParams()), list(START)
    drafter.shape = TreeShape((-1, -1, 0, 1))
    for _ in range(60):
        context += speculate(target, drafter, context, 4, sampler, verify=ANY_SHAPE).verdict.token_ids
        drafter.settle(context, committed=True)
    found = {count.rank: (count.tested, count.accepted) for count in drafter.stats().ranks}
    assert found[0][1] == 0 and found[1][1] > 0.4 * found[1][0]
    assert drafter.acceptance[1] > drafter.acceptance[0]
    assert drafter.shape.parents.count(-1) == 2 and drafter.shape == sequoia(drafter.acceptance, 4, 4)
    assert drafter.stats().ranks == ()


# --- shapes ----------------------------------------------------------------------------------------------------------


def every_tree(size: int, depth: int, width: int):
    """All lists of parents of ``size`` tokens, in any order that puts parents first."""
    for parents in product(range(-1, size - 1), repeat=size):
        if all(parent < node for node, parent in enumerate(parents)):
            shape = TreeShape(parents)
            if shape.depth <= depth and max(map(len, shape.families)) <= width:
                yield shape


@pytest.mark.parametrize("acceptance", [(0.6, 0.2, 0.1), (0.2, 0.5), (0.3, 0.3, 0.3), (0.0, 0.7), (0.9,)])
@pytest.mark.parametrize("depth", [1, 2, 5])
def test_the_programme_finds_the_best_of_all_trees(acceptance, depth):
    for size in range(1, 6):
        best = max(shape.expected_tokens(acceptance) for count in range(1, size + 1)
                   for shape in every_tree(count, depth, len(acceptance)))
        found = sequoia(acceptance, size, depth)
        assert found.size <= size and found.depth <= depth
        assert found.expected_tokens(acceptance) == pytest.approx(best, abs=1e-12)
        assert list(found.parents) == sorted(found.parents)  # level by level, siblings side by side


def test_the_choice_for_a_machine_follows_its_costs():
    acceptance = (0.7, 0.15, 0.05)
    free = choose(acceptance, lambda rows: 100.0, lambda rows: 0.1, sizes=(4, 16, 64), depths=(1, 4, 8))
    assert (free.shape.size, free.shape.depth) == (64, 8)
    by_row = choose(acceptance, lambda rows: 10.0 * rows, lambda rows: 5.0, sizes=(1, 4, 16), depths=(1, 2, 4))
    assert by_row.shape.size == 0 and by_row.expected_tokens == 1.0 and by_row.cost == 10.0
    slow_drafts = choose(acceptance, lambda rows: 10.0, lambda rows: 8.0, sizes=(4, 16), depths=(1, 2, 4, 8))
    assert slow_drafts.shape.depth == 1  # each level costs as much as it could bring
    for choice in (free, slow_drafts):
        assert choice.expected_tokens == choice.shape.expected_tokens(acceptance)
