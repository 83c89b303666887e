"""Rounds of trees led by the device against the drafter that leads them from the host: same tokens, laws and counts."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

import pytest
import torch
from speculation.grown import PARAMS, WIDE, Grown
from speculation.probs import ANY_SHAPE, OnTensors
from speculation.toy import enumerate_exactly, total_variation

from tests.model.tiny import VOCAB
from tests.speculation.test_graph_runner import START, run_again, same, write_on
from triforce_core.config import SamplingParams
from triforce_core.research import tree_verifier
from triforce_core.research.tree_drafter import siblings_on_tensors
from triforce_core.research.tree_runner import TreeTables
from triforce_core.research.tree_schedule import Bounds, plan
from triforce_core.research.tree_shape import TreeShape
from triforce_core.research.tree_verifier import reject_tree_on_tensors
from triforce_core.sampling import DrawnChance, Sampler, SeededChance


def side_by_side(pair: tuple[Grown, Grown], samplers: Callable[[int], tuple[Sampler, Sampler]], count: int,
                 shapes: Sequence[TreeShape]) -> int:
    """Rounds of two tiers, the loop's first; how many drafted tokens were the small model's. Families are fewer than
    what would change the shape within a draft, which only the host can."""
    for one in pair:
        one.host._families = -10_000
    rng, below = random.Random(0), 0
    for step in range(14):
        for one in pair:
            one.host.shape = shapes[step % len(shapes)]
        found = [one.draft(count, sampler) for one, sampler in zip(pair, samplers(step), strict=True)]
        same(*found)
        below += found[0].sources.count("draft")
        path = range(len(found[0].token_ids) if step % 3 == 0 else rng.randint(0, count))
        own = rng.randrange(VOCAB)
        for one, draft in zip(pair, found, strict=True):
            one.settle(draft, path, own)
            one.full.cache.check_integrity()
            one.host.model.cache.check_integrity()
        stats = [one.drafter.stats() for one in pair]
        for told in ("counts", "ranks", "passes"):
            assert getattr(stats[0], told) == getattr(stats[1], told), told
        assert pair[0].host.acceptance == pair[1].host.acceptance
        spent = [one.milliseconds for one in stats]
        assert spent[0].keys() == spent[1].keys() and all(ms > 0 for ms in spent[0].values())
    return below


@pytest.mark.parametrize("params", PARAMS[:2], ids=["T0", "T1"])
@pytest.mark.parametrize("replacing", [False, True])
@pytest.mark.parametrize("count", [1, 4, 10])
def test_rounds_of_trees_without_the_host_by_draws(params, replacing, count):
    pair = (Grown(on_device=True, capture=lambda: run_again, reviewed=True, loop=True, replacing=replacing),
            Grown(on_device=False, reviewed=True, replacing=replacing))
    sampler = Sampler(params, verifier="coupled")
    shapes = [WIDE, TreeShape((-1, 0, 1)), TreeShape((-1, -1, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8))]
    assert side_by_side(pair, lambda _: (sampler, sampler), count, shapes) > 5


class InTrees(SeededChance):
    """Spends the same numbers as the loop: of each round's row, one to draw and one to test each token with."""

    def __init__(self, seed: int, room: int, size: int) -> None:
        super().__init__(seed)
        self._rows, self._size = super().numbers(room * (2 * size + 3)).view(room, -1), size
        self._generator = self
        self._round = self._picked = 0

    def random(self) -> float:
        self._picked += 1
        return float(self._rows[self._round, self._picked - 1])

    def numbers(self, count: int) -> torch.Tensor:
        row, size = self._rows[self._round], self._size
        self._round, self._picked = self._round + 1, 0
        return torch.cat((row[size : size + count - 1], row[2 * size + 1 : 2 * size + 2]))


@pytest.mark.parametrize("replacing", [False, True])
@pytest.mark.parametrize("count", [1, 10])
def test_rounds_of_trees_without_the_host_by_chance_with_the_same_numbers(replacing, count, monkeypatch):
    monkeypatch.setattr(tree_verifier, "reject", lambda draft, target, chance: tree_verifier.reject_at_once(
        draft, torch.stack([target[row] for row in range(len(draft.token_ids) + 1)]),
        DrawnChance(chance.numbers(len(draft.token_ids) + 1))))
    pair = (Grown(on_device=True, capture=lambda: run_again, reviewed=True, loop=True, replacing=replacing, size=11),
            Grown(on_device=False, reviewed=True, replacing=replacing, size=11))
    params = SamplingParams(temperature=1.0)
    shapes = [WIDE, TreeShape((-1, -1, 0, 0, 1, 2, 3, 4, 5, 6, 7))]
    assert side_by_side(pair, lambda step: (Sampler(params, chance=SeededChance(step)),
                                            Sampler(params, chance=InTrees(step, count + 6, 11))), count, shapes) > 5


@pytest.mark.parametrize("params", PARAMS, ids=["T0", "T1", "T0.7 filtered"])
@pytest.mark.parametrize("verifier", ["coupled", "rejection"])
def test_words_with_rounds_of_trees_are_plain_decodings(params, verifier):
    """To the end of the context. By chance just that it lives."""
    words = []
    for loop in (False, True):
        tiers = Grown(on_device=True, capture=lambda: run_again, reviewed=True, loop=loop, max_tokens=START + 70)
        sampler = Sampler(params, verifier=verifier)
        while len(tiers.context) < START + 70:
            left = START + 70 - len(tiers.context)
            write_on(tiers, min(7, left - 1) if loop else 0, sampler, most=left - 1, verify=ANY_SHAPE)
            for model in (tiers.full, tiers.host.model):
                model.cache.check_integrity()
        words.append(tiers.context[: START + 70])
    if sampler.coupled:
        assert words[0] == words[1]


@pytest.mark.parametrize("replacing", [False, True])
@pytest.mark.parametrize("token_probs", [[0.6, 0.4, 0.0, 0.0], [0.1, 0.2, 0.3, 0.4], [0.0, 0.0, 1.0, 0.0]], ids=str)
def test_what_a_review_on_tensors_emits_has_the_reviewers_law(token_probs, replacing):
    """Every branch: of two tokens with three and one children, some of which cannot be drawn."""
    g = torch.Generator().manual_seed(1)
    drafting = torch.tensor([token_probs, [0.25, 0.25, 0.0, 0.5]], dtype=torch.float64)
    target = torch.rand(6, 4, generator=g, dtype=torch.float64)
    target /= target.sum(-1, keepdim=True)
    bounds = Bounds(5, 2, 4, 1)
    tables = TreeTables(bounds, torch.device("cpu"))
    tables.load(plan(TreeShape((-1, -1, -1, 0, 1)), 2, bounds))

    def emitted(branching) -> tuple[int, ...]:
        chance, drafted = OnTensors(branching), torch.full((6,), -1)
        probs = torch.zeros(6, 4, dtype=torch.float64)
        for rank, (tokens, drawn) in enumerate(siblings_on_tensors(drafting[:1], 3, chance, replacing=replacing)):
            drafted[rank], probs[rank] = tokens[0], drawn[0]
        for node in (3, 4):
            drafted[node], probs[node] = chance.pick(drafting[1:])[0], drafting[1]
        shape = tables.shape(4)
        kept, residuals = reject_tree_on_tensors(drafted, shape, probs, target, chance)
        path, row = shape.walk(kept)
        own = chance.pick(residuals.index_select(0, row)[0])
        return int(drafted[path.nonzero()[0, 0]]) if path.any() else int(own), len(path)

    found = enumerate_exactly(emitted)
    expected = {(token, 6): float(p) for token, p in enumerate(target[0])}
    assert total_variation(found, expected) < 1e-12
