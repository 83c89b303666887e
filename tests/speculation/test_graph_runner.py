"""The loop on the device against the drafters that decide on the host: same tokens, laws, writers and counts."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from tests.model.tiny import LIKE_A_GPU, VOCAB, tiny_llama
from triforce_core.config import SamplingParams
from triforce_core.kv_cache.full import FullCache
from triforce_core.kv_cache.retrieval import IndexedRetrievalCache, RetrievalCache
from triforce_core.kv_cache.streaming import StreamingCache
from triforce_core.research.lenience import LenientRunner, lenient
from triforce_core.sampling import Sampler, SeededChance
from triforce_core.speculation.drafter import Draft, Drafter, NoDrafter
from triforce_core.speculation.graph_runner import GraphRunner
from triforce_core.speculation.hierarchical import HierarchicalDrafter
from triforce_core.speculation.model_drafter import ModelDrafter, ModelOnCache
from triforce_core.speculation.round import speculate

TARGET = tiny_llama(kernels=LIKE_A_GPU, num_key_value_heads=2)
# One that is right half the time: the target's first layer.
SMALL = tiny_llama(kernels=LIKE_A_GPU, num_key_value_heads=2, num_hidden_layers=1)
START = 150
VERIFIERS = {False: "rejection", True: "coupled"}


class Tiers:
    """A context in a full cache, and one of the two kinds of drafter over it."""

    def __init__(self, gamma1: int, *, on_device: bool, kind: type = IndexedRetrievalCache, middle: bool = True,
                 capture: Callable | None = None, max_tokens: int = 2000, same: Callable | None = None,
                 lenience: float = 1.0) -> None:
        c, s = TARGET.config, SMALL.config
        self.context = [int(t) for t in np.random.default_rng(0).integers(VOCAB, size=START)]
        cache = FullCache(c.num_layers, c.num_kv_heads, c.head_dim, max_tokens=max_tokens, dtype=TARGET.dtype, slots=8)
        self.full = ModelOnCache(TARGET, cache)
        self.full.feed(self.context[:-1], 0)
        self.full.commit()
        window = StreamingCache(s.num_layers, s.num_kv_heads, s.head_dim, sinks=2, window=24, slack=8,
                                frequencies=SMALL.rope.frequencies, dtype=SMALL.dtype)
        small = ModelDrafter(ModelOnCache(SMALL, window))
        small.model.start(self.context, 2, 24)
        host: ModelDrafter | HierarchicalDrafter = small
        self.part: IndexedRetrievalCache | RetrievalCache | None = None
        if middle:
            self.part = kind(cache, budget=64, recent=16, chunk_size=4)
            host = HierarchicalDrafter(ModelOnCache(TARGET, self.part), small if gamma1 else NoDrafter(), gamma1,
                                       verify=lenient(lenience))
        self.drafter: Drafter = host
        if on_device:
            lenient_too = isinstance(host, HierarchicalDrafter) and lenience > 1.0
            self.drafter = LenientRunner(host, lenience, capture, same) if lenient_too else GraphRunner(
                host, capture, same)

    def draft(self, count: int, sampler: Sampler) -> Draft:
        if isinstance(self.drafter, GraphRunner):  # with a sampler of its own: this one's chance is the draft's
            self.drafter.prepare(self.context, count, [Sampler(sampler.params, verifier=VERIFIERS[sampler.coupled])])
        return self.drafter.propose(self.context, count, sampler)

    def settle(self, tokens: list[int], draft: Draft) -> None:
        """``tokens`` is what the full cache made of the draft."""
        self.full.logits(self.context, draft.token_ids)
        self.full.keep(len(self.context) + len(tokens) - 1)
        self.context += tokens
        self.full.commit()
        self.drafter.settle(self.context, committed=True)
        if self.part is not None:
            g = torch.Generator().manual_seed(len(tokens))
            self.part.select(torch.rand(2, 2, self.part.num_chunks, generator=g))


def run_again(once: Callable) -> tuple[Callable, None]:
    """A capture that has run the function once, as real ones have."""
    once()
    return once, None


def same(mine: Draft, host: Draft) -> None:
    assert (mine.token_ids, mine.sources) == (host.token_ids, host.sources)
    for a, b in zip(mine.probs, host.probs, strict=True):
        assert (a is None) == (b is None)
        if a is not None and b is not None:
            torch.testing.assert_close(a, b, atol=1e-5, rtol=1e-4)


def lives(tiers: tuple[Tiers, Tiers], samplers: Callable[[int], tuple[Sampler, Sampler]], count: int) -> int:
    """Draft and settle side by side; how many drafted tokens were the small model's."""
    rng, below = random.Random(0), 0
    for step in range(14):
        found = [one.draft(count, sampler) for one, sampler in zip(tiers, samplers(step), strict=True)]
        same(*found)
        assert len(found[0].token_ids) >= count
        below += found[0].sources.count("draft")
        kept = len(found[0].token_ids) if step % 3 == 0 else rng.randint(0, count)
        truth = [*found[0].token_ids[:kept], rng.randrange(VOCAB)]
        for one, draft in zip(tiers, found, strict=True):
            one.settle(list(truth), draft)
        stats = [one.drafter.stats() for one in tiers]
        assert stats[0].counts == stats[1].counts
        spent = [one.milliseconds for one in stats]
        assert spent[0].keys() == spent[1].keys() and all(ms > 0 for ms in spent[0].values())
    return below


@pytest.mark.parametrize("params", [SamplingParams(), SamplingParams(temperature=1.0, seed=4),
                                    SamplingParams(temperature=0.7, top_k=20, top_p=0.8, seed=5)],
                         ids=["T0", "T1", "T0.7 filtered"])
@pytest.mark.parametrize(("gamma1", "count"), [(0, 3), (1, 1), (2, 10), (4, 5)])
@pytest.mark.parametrize("kind", [IndexedRetrievalCache, RetrievalCache])
def test_by_draws(params, gamma1, count, kind):
    tiers = (Tiers(gamma1, on_device=True, kind=kind, capture=lambda: run_again),
             Tiers(gamma1, on_device=False, kind=kind))
    sampler = Sampler(params, verifier="coupled")
    below = lives(tiers, lambda _: (sampler, sampler), count)
    assert (below > 3) == (gamma1 > 0)


@pytest.mark.parametrize("params", [SamplingParams(), SamplingParams(temperature=1.0, seed=4)], ids=["T0", "T1"])
def test_the_small_model_alone(params):
    tiers = (Tiers(1, on_device=True, middle=False, capture=lambda: run_again), Tiers(1, on_device=False, middle=False))
    sampler = Sampler(params, verifier="coupled")
    assert lives(tiers, lambda _: (sampler, sampler), 4) == 14 * 4


class OneRoundLate:
    """Ask a rule as if the next round were under way, for a host that has none."""

    def __init__(self, rule: Callable, most: int, wanted: int) -> None:
        self._rule, self._most, self._wanted = rule, most, wanted
        self._good, self._before = True, 0

    def __call__(self, sure: list[float], num_drafted: int, steps: int, under_way: int) -> bool:
        begun = self._good and self._before + self._most < self._wanted
        self._good = self._good and self._rule(sure)
        self._before = num_drafted
        return begun or self._good


@pytest.mark.parametrize(("gamma1", "count"), [(0, 6), (2, 10)])
@pytest.mark.parametrize("verifier", ["coupled", "rejection"])
def test_a_draft_ends_where_the_tier_is_not_sure(gamma1, count, verifier):
    """On the device as on the host, but for the round that is under way there: the same sureness, and so the same end.
    """
    tiers = Tiers(gamma1, on_device=True, capture=lambda: run_again), Tiers(gamma1, on_device=False)
    params, lengths, known = SamplingParams(temperature=1.0, seed=4), set(), [0.0]
    for step in range(12):
        def rule(sure: list[float], least: float = sorted(known)[step * len(known) // 14] + 1e-4) -> bool:
            return sure[-1] > least

        tiers[0].drafter.host.keep_going = lambda sure, _, steps, under_way, rule=rule: rule(sure)
        tiers[1].drafter.keep_going = OneRoundLate(rule, gamma1 + 1, count)
        if verifier == "coupled":
            samplers = (Sampler(params, verifier="coupled"),) * 2
        else:
            samplers = (Sampler(params, chance=SeededChance(step)),
                        Sampler(params, chance=InRows(step, count + gamma1, gamma1)))
        found = [one.draft(count, sampler) for one, sampler in zip(tiers, samplers, strict=True)]
        same(*found)
        assert found[0].confidence == pytest.approx(found[1].confidence, abs=1e-5)
        assert all(0.0 < sure <= 1.0 for sure in found[0].confidence)
        lengths.add(len(found[0].token_ids))
        known += found[0].confidence
        for one, draft in zip(tiers, found, strict=True):
            one.settle([*draft.token_ids[:2], step], draft)
        assert tiers[0].drafter.stats().counts == tiers[1].drafter.stats().counts
    assert min(lengths) < count / 2 and max(lengths) >= count


class InRows(SeededChance):
    """Spends the same numbers as the device loop, decision by decision: a row of 2g + 1 per round."""

    def __init__(self, seed: int, room: int, gamma: int) -> None:
        super().__init__(seed)
        self._rows, self._gamma = self.numbers(room * (2 * gamma + 1)).view(room, -1), gamma
        self._round = self._picked = self._tested = 0
        self._generator = self
        self._next = 0.0

    def random(self) -> float:
        return self._next

    def happens(self, probability: float) -> bool:
        self._next = float(self._rows[self._round, self._gamma + self._tested])
        self._tested += 1
        return super().happens(probability)

    def pick(self, weights: torch.Tensor) -> int:
        last = self._picked == self._gamma
        self._next = float(self._rows[self._round, 2 * self._gamma if last else self._picked])
        self._picked += 1
        if last:
            self._round, self._picked, self._tested = self._round + 1, 0, 0
        return super().pick(weights)


@pytest.mark.parametrize("params", [SamplingParams(temperature=1.0), SamplingParams(temperature=0.6, top_p=0.9)],
                         ids=["T1", "T0.6 top-p 0.9"])
@pytest.mark.parametrize(("gamma1", "count"), [(0, 3), (1, 4), (2, 10)])
def test_by_chance_with_the_same_numbers(params, gamma1, count):
    tiers = (Tiers(gamma1, on_device=True, capture=lambda: run_again), Tiers(gamma1, on_device=False))

    def samplers(step: int) -> tuple[Sampler, Sampler]:
        return (Sampler(params, chance=SeededChance(step)),
                Sampler(params, chance=InRows(step, count + gamma1, gamma1)))

    below = lives(tiers, samplers, count)
    assert (below > 3) == (gamma1 > 0)


@pytest.mark.parametrize("params", [SamplingParams(), SamplingParams(temperature=1.0, seed=4)], ids=["T0", "T1"])
@pytest.mark.parametrize("verifier", ["coupled", "rejection"])
def test_lenient_reviews(params, verifier):
    tiers = (Tiers(2, on_device=True, capture=lambda: run_again, lenience=8.0),
             Tiers(2, on_device=False, lenience=8.0))

    def samplers(step: int) -> tuple[Sampler, Sampler]:
        if verifier == "coupled" or params.temperature == 0:
            return (Sampler(params, verifier=verifier),) * 2
        return Sampler(params, chance=SeededChance(step)), Sampler(params, chance=InRows(step, 10 + 2, 2))

    assert lives(tiers, samplers, 10) > 3


@pytest.mark.parametrize(("params", "verifier"), [
    (SamplingParams(), "coupled"), (SamplingParams(temperature=0.9, top_p=0.8), "coupled"),
    (SamplingParams(temperature=0.9, top_p=0.8), "rejection")], ids=["T0", "draws", "chance"])
@pytest.mark.parametrize("middle", [True, False])
def test_a_follower_takes_the_leaders_decisions(params, verifier, middle):
    """Another seed stands for sums in another order: what the follower itself would draw must not matter."""
    told: list[torch.Tensor] = []

    def tell(numbers: torch.Tensor) -> torch.Tensor:
        told.append(numbers.clone())
        return numbers

    tiers = [Tiers(2, on_device=True, middle=middle, capture=lambda: run_again, same=same)
             for same in (tell, lambda numbers: numbers.copy_(told.pop(0)))]
    for step in range(4):
        drafts = [one.draft(6, Sampler(replace(params, seed=10 * step + number), verifier=verifier))
                  for number, one in enumerate(tiers)]
        assert drafts[0].token_ids == drafts[1].token_ids and drafts[0].sources == drafts[1].sources
        assert not told
        for one, draft in zip(tiers, drafts, strict=True):
            one.settle([*draft.token_ids[: step + 1], step], draft)


def test_other_values_need_no_other_graphs():
    captured = []

    def capture(once: Callable) -> tuple[Callable, None]:
        captured.append(once)
        return run_again(once)

    tiers = Tiers(2, on_device=True, capture=lambda: capture)
    for temperature, top_p, seed, count in ((0.5, 0.9, 0, 6), (1.4, 0.6, 1, 3), (0.9, 0.99, 2, 6)):
        for verifier in ("rejection", "coupled"):
            draft = tiers.draft(count, Sampler(SamplingParams(temperature=temperature, top_p=top_p, seed=seed),
                                               verifier=verifier))
            tiers.settle(draft.token_ids[:1], draft)
    assert len(captured) == 4  # two parts of two kinds


def test_a_stop_token_ends_the_draft():
    free = Tiers(2, on_device=True).draft(12, Sampler(SamplingParams())).token_ids
    stop = free[4]
    cut = Tiers(2, on_device=True).draft(12, Sampler(SamplingParams(), stop=frozenset([stop]))).token_ids
    assert cut == free[: free.index(stop) + 1]


class Anything:
    def allowed(self, context, draft):
        return [None] * (len(draft) + 1)

    def guided(self, context, limit):
        return []


def test_masks_are_asked_on_the_host():
    tiers = (Tiers(2, on_device=True), Tiers(2, on_device=False))
    for masks in (None, Anything(), None):
        sampler = Sampler(SamplingParams(), masks=masks)
        found = [one.draft(5, sampler) for one in tiers]
        same(*found)
        for one, draft in zip(tiers, found, strict=True):
            one.settle(draft.token_ids[:3], draft)


def write_on(tiers: Any, gamma2: int, sampler: Sampler, **more: Any) -> None:
    """Run one round over the tiers' context, and commit what it wrote. more: see ``speculate``."""
    tiers.context += speculate(tiers.full, tiers.drafter, tiers.context, gamma2, sampler, **more).verdict.token_ids
    tiers.full.commit()
    tiers.drafter.settle(tiers.context, committed=True)


def test_near_the_end_of_the_context_drafts_get_shorter():
    tiers = Tiers(2, on_device=True, max_tokens=START + 20)
    sampler = Sampler(SamplingParams())
    while len(tiers.context) < START + 20:
        write_on(tiers, 6, sampler)
    assert tiers.full.cache.room <= 1


@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_the_words_are_plain_decodings(temperature):
    words = []
    for gamma2, on_device in ((0, False), (7, True)):
        tiers = Tiers(2, on_device=on_device, capture=lambda: run_again)
        sampler = Sampler(SamplingParams(temperature=temperature, seed=9), verifier="coupled")
        while len(tiers.context) < START + 60:
            write_on(tiers, gamma2, sampler)
        words.append(tiers.context[: START + 60])
    assert words[0] == words[1]
