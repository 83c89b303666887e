"""Trees grown on the device against the drafter that draws level by level on the host: same tokens, laws and shape."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import pairwise

import pytest
import torch
from speculation.grown import PARAMS, WIDE, Grown, paths
from speculation.probs import ANY_SHAPE

from tests.model.tiny import VOCAB
from tests.speculation.test_graph_runner import START, run_again, same, write_on
from triforce_core.config import SamplingParams
from triforce_core.kv_cache.retrieval import IndexedRetrievalCache, RetrievalCache
from triforce_core.research.tree_shape import TreeShape, sequoia
from triforce_core.sampling import Sampler, SeededChance
from triforce_core.speculation import tree


def lives(pair: tuple[Grown, Grown], samplers: Callable[[int], tuple[Sampler, Sampler]], levels: int,
          shapes: Sequence[TreeShape] = (WIDE,)) -> int:
    """Draft and settle side by side; how many drafts branched."""
    rng, branched = random.Random(0), 0
    for step in range(14):
        for one in pair:
            one.host.shape = shapes[step % len(shapes)]
        found = [one.draft(levels, sampler) for one, sampler in zip(pair, samplers(step), strict=True)]
        same(*found)
        assert found[0].parents == found[1].parents and found[0].depth == min(levels, found[0].depth)
        branched += bool(found[0].parents)
        ways = paths(found[0])
        path = max(ways, key=len) if step % 3 == 0 else rng.choice(ways)
        own = rng.randrange(VOCAB)
        for one, draft in zip(pair, found, strict=True):
            one.settle(draft, path, own)
            one.full.cache.check_integrity()
            one.host.model.cache.check_integrity()
        stats = [one.drafter.stats() for one in pair]
        assert stats[0].ranks == stats[1].ranks
        spent = [one.milliseconds for one in stats]
        assert spent[0].keys() == spent[1].keys() and all(ms > 0 for ms in spent[0].values())
        assert all(one.passes["draft"] == found[0].depth for one in stats)
    return branched


@pytest.mark.parametrize("params", PARAMS, ids=["T0", "T1", "T0.7 filtered"])
@pytest.mark.parametrize("kind", [None, IndexedRetrievalCache, RetrievalCache])
@pytest.mark.parametrize("replacing", [False, True])
def test_by_draws(params, kind, replacing):
    pair = (Grown(on_device=True, kind=kind, capture=lambda: run_again, replacing=replacing),
            Grown(on_device=False, kind=kind, replacing=replacing))
    sampler = Sampler(params, verifier="coupled")
    shapes = [WIDE, TreeShape((-1, 0, 1)), sequoia((0.6, 0.3, 0.1), 12, 4)]
    assert lives(pair, lambda _: (sampler, sampler), 4, shapes) > (4 if params.top_k else 8)  # one token may be left


@pytest.mark.parametrize("kind", [None, IndexedRetrievalCache])
@pytest.mark.parametrize("replacing", [False, True])
@pytest.mark.parametrize("levels", [1, 3, 5])
def test_by_chance_with_the_same_numbers(kind, replacing, levels):
    """Where every token may come no family ends early, and both spend one number for each token, in one order."""
    pair = (Grown(on_device=True, kind=kind, capture=lambda: run_again, replacing=replacing),
            Grown(on_device=False, kind=kind, replacing=replacing))
    params = SamplingParams(temperature=1.0)
    assert lives(pair, lambda step: (Sampler(params, chance=SeededChance(step)),
                                     Sampler(params, chance=SeededChance(step))), levels) == 14


def test_where_little_is_left_families_end_and_nothing_grows_under_what_is_not_there():
    one = Grown(on_device=True, capture=lambda: run_again)
    one.host.shape = WIDE
    missing = 0
    for seed in range(30):
        sampler = Sampler(SamplingParams(temperature=0.5, top_p=0.5, seed=seed))
        draft = one.draft(4, sampler)
        missing += len(draft.token_ids) < WIDE.size
        for family in tree.families(draft.parents or range(-1, len(draft.token_ids) - 1)):
            assert len({draft.token_ids[node] for node in family}) == len(family)
            assert all(draft.probs[node][draft.token_ids[node]] > 0 for node in family)
            for older, node in pairwise(family):
                token_probs = draft.probs[older].index_fill(0, torch.tensor(draft.token_ids[older]), 0.0)
                torch.testing.assert_close(draft.probs[node], token_probs / token_probs.sum())
        one.settle(draft, max(paths(draft), key=len), seed)
    assert missing > 5


def test_another_shape_needs_other_tables_but_hardly_another_graph():
    captured = []

    def capture(once: Callable) -> tuple[Callable, None]:
        captured.append(once)
        return run_again(once)

    one = Grown(on_device=True, capture=lambda: capture)
    for seed, params in enumerate((PARAMS[0], PARAMS[1], PARAMS[2], replace(PARAMS[2], temperature=1.4, seed=9))):
        for shape in (WIDE, TreeShape((-1, -1, 0, 1, 2, 2)), TreeShape((-1, -1, -1, 0, 0, 1, 2, 2, 4))):
            one.host.shape = shape
            draft = one.draft(4, Sampler(params, verifier="coupled"))
            one.settle(draft, [0], seed)
    widths = {key[1:] for key in one.drafter.captured.graphs}
    assert len(captured) == len(one.drafter.captured.graphs) == 3 * len(widths) and len(widths) <= 7


@pytest.mark.parametrize("verifier", ["coupled", "rejection"])
@pytest.mark.parametrize("loop", [False, True], ids=["a tree", "rounds of trees"])
def test_a_follower_takes_the_leaders_decisions(verifier, loop):
    """Another seed stands for sums in another order: what the follower itself would draw must not matter."""
    told: list[torch.Tensor] = []

    def tell(numbers: torch.Tensor) -> torch.Tensor:
        told.append(numbers.clone())
        return numbers

    pair = [Grown(on_device=True, told=each, reviewed=loop, loop=loop)
            for each in (tell, lambda numbers: numbers.copy_(told.pop(0)))]
    for step in range(4):
        drafts = []
        for number, one in enumerate(pair):
            one.host.shape = WIDE
            params = SamplingParams(temperature=0.9, seed=10 * step + number)
            drafts.append(one.draft(4, Sampler(params, verifier=verifier)))
        assert drafts[0].token_ids == drafts[1].token_ids and not told
        assert drafts[0].parents == drafts[1].parents
        for one, draft in zip(pair, drafts, strict=True):
            one.settle(draft, [0], step)


def test_nothing_follows_the_end_of_an_answer():
    free = Grown(on_device=True)
    free.host.shape = WIDE
    stop = free.draft(4, Sampler(SamplingParams())).token_ids[0]
    cut = Grown(on_device=True)
    cut.host.shape = WIDE
    draft = cut.draft(4, Sampler(SamplingParams(), stop=frozenset([stop])))
    assert draft.token_ids[0] == stop and 0 not in draft.parents
    cut.settle(draft, [0], 7)


def test_near_the_end_of_the_context_the_host_leads():
    tiers = Grown(on_device=True, kind=IndexedRetrievalCache, max_tokens=START + 40)
    sampler = Sampler(SamplingParams())
    while len(tiers.context) < START + 40:
        tiers.host.shape = WIDE
        write_on(tiers, 4, sampler, verify=ANY_SHAPE)
    assert tiers.full.cache.room <= 1


@pytest.mark.parametrize("params", PARAMS, ids=["T0", "T1", "T0.7 filtered"])
@pytest.mark.parametrize("verifier", ["coupled", "rejection"])
def test_words_under_a_middle_tier_are_plain_decodings(params, verifier):
    """Deciding by draws. By chance just that it lives, also where a draft is kept whole and settled thrice a round."""
    words = []
    for gamma2 in (0, 6):
        tiers = Grown(on_device=True, capture=lambda: run_again, reviewed=True)
        sampler = Sampler(params, verifier=verifier)
        while len(tiers.context) < START + 60:
            write_on(tiers, gamma2, sampler, verify=ANY_SHAPE)
            for model in (tiers.full, tiers.host.model):
                model.cache.check_integrity()
        words.append(tiers.context[: START + 60])
    if sampler.coupled:
        assert words[0] == words[1]
