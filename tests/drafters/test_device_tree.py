"""Trees grown on the device against the drafter that draws level by level on the host: same tokens, laws and shape."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
import torch

from tests.drafters.test_device_loop import SMALL, START, TARGET, run_again, same
from tests.model.tiny import LIKE_A_GPU, VOCAB, tiny_llama
from triforce_core.config import SamplingParams
from triforce_core.drafters.chain import ModelOnCache
from triforce_core.drafters.device_tree import DeviceTree
from triforce_core.drafters.hierarchical import HierarchicalDrafter
from triforce_core.drafters.tree import TreeDrafter
from triforce_core.drafters.tree_plan import Bounds, plan
from triforce_core.kv_cache.full import FullCache
from triforce_core.kv_cache.indexed import IndexedCache
from triforce_core.kv_cache.retrieval import RetrievalCache
from triforce_core.kv_cache.streaming import StreamingCache
from triforce_core.sampling import Sampler, SeededChance
from triforce_core.speculation import tree
from triforce_core.speculation.draft import Draft
from triforce_core.speculation.drafter import Drafter
from triforce_core.speculation.round import speculate
from triforce_core.speculation.tree_shape import TreeShape, sequoia

WIDE = TreeShape((-1, -1, -1, 0, 0, 1, 2, 3, 3, 5, 7))


class Grown:
    """A context in a full cache, and a tree drafter over it or over the small model's window."""

    def __init__(self, *, on_device: bool, kind: type | None = None, capture: Callable | None = None,
                 replacing: bool = False, max_tokens: int = 2000, reviewed: bool = False,
                 told: Callable | None = None, size: int = 12, model=None) -> None:
        c, small = TARGET.config, model or SMALL
        s = small.config
        self.context = [int(t) for t in np.random.default_rng(0).integers(VOCAB, size=START)]
        cache = FullCache(c.num_layers, c.num_kv_heads, c.head_dim, max_tokens=max_tokens, dtype=TARGET.dtype, slots=8)
        self.full = ModelOnCache(TARGET, cache)
        self.full.feed(self.context[:-1], 0)
        self.full.commit()
        self.part: IndexedCache | RetrievalCache | None = None
        if kind is not None:
            self.part = kind(cache, budget=64, recent=16, chunk_size=4)
            on = ModelOnCache(TARGET, self.part)
        else:
            window = StreamingCache(s.num_layers, s.num_kv_heads, s.head_dim, sinks=2, window=24, slack=8,
                                    frequencies=small.rope.frequencies, dtype=small.dtype)
            on = ModelOnCache(small, window)
            on.start(self.context, 2, 24)
        self.host = TreeDrafter(on, size, 5, follows=kind is not None, replacing=replacing, tier="draft",
                                expected=(0.5, 0.3, 0.2))
        self.drafter: Drafter = DeviceTree(self.host, capture, told) if on_device else self.host
        if reviewed:
            self.part = IndexedCache(cache, budget=64, recent=16, chunk_size=4)
            self.drafter = HierarchicalDrafter(ModelOnCache(TARGET, self.part), self.drafter, 5)

    def draft(self, levels: int, sampler: Sampler) -> Draft:
        return self.drafter.propose(self.context, levels, sampler)

    def settle(self, draft: Draft, path: Sequence[int], own: int) -> None:
        """The full cache kept ``path`` and wrote ``own``."""
        self.full.logits(self.context, draft.token_ids, draft.parents)
        self.full.keep(len(self.context), path)
        self.context += [*(draft.token_ids[node] for node in path), own]
        self.full.commit()
        self.drafter.settle(self.context, committed=True)
        if self.part is not None:
            g = torch.Generator().manual_seed(own)
            self.part.select(torch.rand(2, 2, self.part.num_chunks, generator=g))


def paths(draft: Draft) -> list[list[int]]:
    """The way to every drafted token."""
    parents = draft.parents or list(range(-1, len(draft.token_ids) - 1))
    return tree.tails(range(len(parents)), parents)


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
        assert pair[0].drafter.ranks() == pair[1].drafter.ranks()
        spent = [one.drafter.milliseconds() for one in pair]
        assert spent[0].keys() == spent[1].keys() and all(ms > 0 for ms in spent[0].values())
        assert all(one.drafter.passes()["draft"] == found[0].depth for one in pair)
    return branched


PARAMS = [SamplingParams(), SamplingParams(temperature=1.0, seed=4),
          SamplingParams(temperature=0.7, top_k=20, top_p=0.8, seed=5)]


@pytest.mark.parametrize("params", PARAMS, ids=["T0", "T1", "T0.7 filtered"])
@pytest.mark.parametrize("kind", [None, IndexedCache, RetrievalCache])
@pytest.mark.parametrize("replacing", [False, True])
def test_by_draws(params, kind, replacing):
    pair = (Grown(on_device=True, kind=kind, capture=lambda: run_again, replacing=replacing),
            Grown(on_device=False, kind=kind, replacing=replacing))
    sampler = Sampler(params, verifier="coupled")
    shapes = [WIDE, TreeShape((-1, 0, 1)), sequoia((0.6, 0.3, 0.1), 12, 4)]
    assert lives(pair, lambda _: (sampler, sampler), 4, shapes) > (4 if params.top_k else 8)  # one token may be left


@pytest.mark.parametrize("kind", [None, IndexedCache])
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
        for family in draft.families:
            assert len({draft.token_ids[node] for node in family}) == len(family)
            assert all(draft.laws[node][draft.token_ids[node]] > 0 for node in family)
            for older, node in pairwise(family):
                law = draft.laws[older].index_fill(0, torch.tensor(draft.token_ids[older]), 0.0)
                torch.testing.assert_close(draft.laws[node], law / law.sum())
        one.settle(draft, max(paths(draft), key=len), seed)
    assert missing > 5


@pytest.mark.parametrize("params", PARAMS, ids=["T0", "T1", "T0.7 filtered"])
@pytest.mark.parametrize("verifier", ["coupled", "rejection"])
def test_words_under_a_middle_tier_are_plain_decodings(params, verifier):
    """Deciding by draws. By chance just that it lives, also where a draft is kept whole and settled thrice a round."""
    words = []
    for gamma2 in (0, 6):
        tiers = Grown(on_device=True, capture=lambda: run_again, reviewed=True)
        sampler = Sampler(params, verifier=verifier)
        while len(tiers.context) < START + 60:
            done = speculate(tiers.full, tiers.drafter, tiers.context, gamma2, sampler)
            tiers.context += done.verdict.token_ids
            tiers.full.commit()
            tiers.drafter.settle(tiers.context, committed=True)
            for model in (tiers.full, tiers.host.model):
                model.cache.check_integrity()
        words.append(tiers.context[: START + 60])
    if sampler.by_draws:
        assert words[0] == words[1]


@contextmanager
def nobody_waits(monkeypatch):
    """Whatever brings a number from a tensor to the host fails, but for what stands for a kernel."""
    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("the host waits for the device")

    with monkeypatch.context() as patch:
        for name in ("item", "tolist", "cpu", "numpy", "nonzero", "__bool__", "__int__", "__float__", "__index__"):
            patch.setattr(torch.Tensor, name, refuse)
        yield


def without_looking(whole: Callable) -> Callable:
    """A kernel reads the length on the device; its stand-in in plain torch may look, too."""
    names = ("item", "tolist", "cpu", "numpy", "nonzero", "__bool__", "__int__", "__float__", "__index__")
    usual = {name: getattr(torch.Tensor, name) for name in names}

    def kernel(*args):
        refusing = {name: getattr(torch.Tensor, name) for name in names}
        try:
            for name, method in usual.items():
                setattr(torch.Tensor, name, method)
            return whole(*args)
        finally:
            for name, method in refusing.items():
                setattr(torch.Tensor, name, method)

    return kernel


@pytest.mark.parametrize("params", PARAMS, ids=["T0", "T1", "T0.7 filtered"])
@pytest.mark.parametrize("verifier", ["coupled", "rejection"])
def test_the_host_waits_once(params, verifier, monkeypatch):
    """Between the tables that went there and the one reading nothing asks the device for a number."""
    kernels = replace(LIKE_A_GPU, attention=without_looking(LIKE_A_GPU.attention))
    small = tiny_llama(kernels=kernels, num_key_value_heads=2, num_hidden_layers=1)
    one = Grown(on_device=True, model=small)
    assert isinstance(one.drafter, DeviceTree)
    one.host.shape = WIDE
    draft = one.draft(4, Sampler(params, verifier=verifier))
    one.settle(draft, [], 5)
    run, waited = DeviceTree._pass, []

    def watched(self, *args):
        with nobody_waits(monkeypatch):
            run(self, *args)

    monkeypatch.setattr(DeviceTree, "_pass", watched)
    read = type(one.drafter._state).read
    monkeypatch.setattr(type(one.drafter._state), "read", lambda state: waited.append(1) or read(state))
    assert one.draft(4, Sampler(params, verifier=verifier)).token_ids and waited == [1]


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
    widths = {key[1:] for key in one.drafter._graphs}
    assert len(captured) == len(one.drafter._graphs) == 3 * len(widths) and len(widths) <= 7


@pytest.mark.parametrize("verifier", ["coupled", "rejection"])
def test_a_follower_takes_the_leaders_decisions(verifier):
    """Another seed stands for sums in another order: what the follower itself would draw must not matter."""
    told: list[torch.Tensor] = []

    def tell(numbers: torch.Tensor) -> torch.Tensor:
        told.append(numbers.clone())
        return numbers

    pair = [Grown(on_device=True, told=each) for each in (tell, lambda numbers: numbers.copy_(told.pop(0)))]
    for step in range(4):
        drafts = []
        for number, one in enumerate(pair):
            one.host.shape = WIDE
            params = SamplingParams(temperature=0.9, seed=10 * step + number)
            drafts.append(one.draft(4, Sampler(params, verifier=verifier)))
        assert drafts[0].token_ids == drafts[1].token_ids and drafts[0].parents == drafts[1].parents and not told
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
    tiers = Grown(on_device=True, kind=IndexedCache, max_tokens=START + 40)
    sampler = Sampler(SamplingParams())
    while len(tiers.context) < START + 40:
        tiers.host.shape = WIDE
        done = speculate(tiers.full, tiers.drafter, tiers.context, 4, sampler)
        tiers.context += done.verdict.token_ids
        tiers.full.commit()
        tiers.drafter.settle(tiers.context, committed=True)
    assert tiers.full.cache.room <= 1


# --- tables ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("reread", [1, 3])
@pytest.mark.parametrize("shape", [WIDE, TreeShape((-1,)), TreeShape((-1, -1)), sequoia((0.7, 0.2, 0.1), 300, 12),
                                   TreeShape((*[-1] * 2, *range(198)))], ids=lambda shape: str(shape.size))
def test_every_row_sees_its_ancestors_and_no_other_drafted_token(shape, reread):
    bounds = Bounds(shape.size, shape.depth, max(map(len, shape.families)), reread)
    for levels in (1, 2, shape.depth):
        found = plan(shape, levels, bounds)
        assert len(found.passes) <= bounds.passes and all(width <= bounds.rows for width, _ in found.passes)
        families, above = tree.families(found.parents), tree.ancestry(found.parents)
        at: dict[int, int] = {}  # by slot, whose token was last written there
        drawn: list[int] = []
        for number, (width, siblings) in enumerate(found.passes):
            slots = found.row_slots[number, :width]
            assert found.stops[number] == slots[-1] + 1 and found.slots >= slots[-1]
            first = found.stops[number] - bounds.columns
            rows = []
            for row, (place, slot) in enumerate(zip(found.places[number], slots, strict=False)):
                at[int(slot)] = int(place)
                if place != bounds.nowhere:
                    rows.append((row, int(place)))
            for row, place in rows:
                seen = {first + int(column) for column in np.flatnonzero(found.masks[number, row])}
                assert set(range(first, min(1, int(slots[0])))) <= seen
                if place < reread:
                    assert max(seen) == slots[row] == found.steps[number, row] == place - reread + 1
                    continue
                node = place - reread
                assert found.steps[number, row] == above[node].sum()
                mine = {at[slot] - reread for slot in seen if slot > 0}
                assert mine == set(np.flatnonzero(above[node])) and set(range(first, 1)) <= seen
            for row, place in rows:
                node = place - reread
                wanted = [child + reread for child in families[node + 1]] if place >= reread - 1 else []
                given = [int(target) for target in found.targets[number, :siblings, row] if target != bounds.nowhere]
                assert given == wanted
                drawn += given
        assert sorted(drawn) == [node + reread for node in range(len(found.parents))]
        assert found.run == [node for node, children in enumerate(families[1:]) if children]
