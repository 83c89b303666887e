"""The rules of choosing that run on a device against the host's: same distributions, same decisions."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
import torch

from triforce_core.config import SamplingParams
from triforce_core.sampling import DeviceSampling, DrawnChance, Sampler, SeededChance, chances
from triforce_core.speculation.drafter import Draft
from triforce_core.speculation.verifier import agree, agree_on_tensors, reject, reject_at_once

PARAMS = [SamplingParams(temperature=1.0), SamplingParams(temperature=0.6, top_p=0.9),
          SamplingParams(temperature=1.3, top_k=3), SamplingParams(temperature=0.7, top_k=40, top_p=0.5),
          SamplingParams(temperature=0.9, top_k=1_000_000, top_p=0.99)]


def law_of(sampler: Sampler, vocabulary: int) -> DeviceSampling:
    return DeviceSampling(sampler.kind, torch.tensor(sampler.parameters(vocabulary), dtype=torch.float64))


def logits_of(rows: int, vocabulary: int, seed: int) -> torch.Tensor:
    drawn = torch.randn(rows, vocabulary, generator=torch.Generator().manual_seed(seed)) * 3
    drawn[0, : vocabulary // 2] = drawn[0, 0]  # many that are equally likely
    return drawn


def test_chances_are_the_plain_distribution() -> None:
    logits = logits_of(3, 50, 0)
    probs = logits.softmax(-1)
    for row, (token, (own, best)) in enumerate(zip([4, 0, 9], chances(logits, [4, 0, 9], 5), strict=True)):
        assert own == pytest.approx(float(probs[row, token]), rel=1e-5)
        assert [p for _, p in best] == pytest.approx(probs[row].topk(5).values.tolist(), rel=1e-5)
        assert all(p == pytest.approx(float(probs[row, i]), rel=1e-5) for i, p in best)
    assert len(chances(logits[:1, :2], [1], 5)[0][1]) == 2  # no more than there are


def test_masks_leave_what_is_allowed_row_by_row() -> None:
    logits = logits_of(4, 30, 1)
    allowed = [np.array([3, 7, 29]), None, np.array([0]), np.array([4, 5])]

    class Held:
        def allowed(self, context, draft):
            return allowed

        def guided(self, context, limit):
            return []

    held = Sampler(SamplingParams(temperature=1.0), masks=Held()).distributions(logits, [1], [2, 2, 2])
    for row, ids in enumerate(allowed):
        expected = torch.full((30,), -torch.inf)
        kept = torch.arange(30) if ids is None else torch.from_numpy(ids)
        expected[kept] = logits[row, kept]
        assert torch.equal(held[row], expected.softmax(-1))


@pytest.mark.parametrize("params", PARAMS, ids=str)
def test_a_tensor_law_is_the_samplers(params):
    for seed, vocabulary in enumerate((50, 50, 700)):
        logits, sampler = logits_of(4, vocabulary, seed), Sampler(params, verifier="coupled")
        token_probs = law_of(sampler, vocabulary)
        found, expected = token_probs.distributions(logits), sampler.distributions(logits, [1, 2])
        assert torch.equal(found > 0, expected > 0)
        torch.testing.assert_close(found, expected)
        drawn = token_probs.draws(logits, sampler.noise(2, 4, vocabulary))
        assert drawn.tolist() == sampler.draws(logits, [1, 2], [3, 4, 5])


class Scripted(SeededChance):
    """The host's chance, fed with given numbers."""

    def __init__(self, numbers: torch.Tensor) -> None:
        self._waiting = iter(numbers.tolist())
        self._generator = self

    def random(self) -> float:
        return next(self._waiting)


def test_the_same_numbers_pick_the_same_tokens():
    g = torch.Generator().manual_seed(0)
    for _ in range(200):
        weights = torch.rand(17, generator=g) * (torch.rand(17, generator=g) < 0.4)
        weights[3] += 1e-3
        for number in (0.0, 0.3, 0.999999, 1 - 2**-53):
            numbers = torch.tensor([number], dtype=torch.float64)
            picked = int(DrawnChance(numbers).pick(weights))
            assert picked == Scripted(numbers).pick(weights) and weights[picked] > 0


@pytest.mark.parametrize("token", [0, 1, 77_777, 149_999])
def test_the_tail_of_a_large_vocabulary_is_drawn_too(token: int) -> None:
    """Each of its tokens adds less to a running sum in float32 than that can hold."""
    weights = torch.full((150_000,), 1e-8).index_fill(0, torch.tensor(0), 1.0)
    sums = weights.double().cumsum(0)
    number = ((sums[token] - weights[token].double() / 2) / sums[-1]).reshape(1)
    assert Scripted(number).pick(weights) == int(DrawnChance(number).pick(weights)) == token


def test_faster_ways_take_the_place_of_the_usual_ones():
    logits, numbers = logits_of(3, 20, 0), torch.rand(4, dtype=torch.float64)
    sampler = Sampler(SamplingParams(temperature=0.6, top_p=0.9))
    parameters, seen = torch.tensor(sampler.parameters(20), dtype=torch.float64), []
    usual = DeviceSampling(sampler.kind, parameters).distributions(logits)
    faster = SimpleNamespace(probs=lambda *given: (seen.append(given), usual)[1],
                             pick=lambda weights, given: (seen.append((weights, given)), given.long())[1],
                             reject=lambda *given: (seen.append(given), torch.tensor([1, 7]))[1])
    assert DeviceSampling(sampler.kind, parameters, faster).distributions(logits) is usual
    assert seen[0][0] is logits and seen[0][1] is parameters
    chance = DrawnChance(numbers, faster)
    chance.happens(torch.ones(1))
    assert chance.pick(usual).shape == (3,)
    assert torch.equal(seen[1][1], numbers[1:])  # one number a row, behind the one that was spent
    sampler = Sampler(SamplingParams(temperature=0.6, top_p=0.9), faster=faster)
    assert sampler.distributions(logits, (1,)) is usual
    assert torch.equal(seen[2][1], parameters)
    draft = Draft([4, 5], [usual[0], usual[1]], ["draft"] * 2)
    assert reject_at_once(draft, usual, DrawnChance(numbers, faster)).token_ids == [4, 7]
    drafted, probs, target, given = seen[3]
    assert drafted.tolist() == [4, 5] and torch.equal(probs, usual[:2]) and target is usual
    assert torch.equal(given, numbers[:3])  # one for each test, one for the token that follows


@pytest.mark.parametrize("guided", [False, True])
def test_the_same_numbers_decide_a_draft_alike(guided):
    g = torch.Generator().manual_seed(1)
    accepted = set()
    for _ in range(300):
        target, probs = torch.rand(4, 6, generator=g).softmax(-1), torch.rand(3, 6, generator=g).softmax(-1)
        tokens = [int(row.multinomial(1, generator=g)) for row in probs]
        draft = Draft(tokens, [None if guided and i == 1 else row for i, row in enumerate(probs)], ["draft"] * 3)
        numbers = torch.rand(4, generator=g, dtype=torch.float64)
        found = reject_at_once(draft, target, DrawnChance(numbers))
        # One by one, numbers behind the first refusal stay unread; the token that follows takes the last.
        used = found.num_tested
        assert found == reject(draft, target, Scripted(torch.cat((numbers[:used], numbers[3:]))))
        accepted.add(found.num_accepted)
    assert accepted == {0, 1, 2, 3}


def test_agreeing_alike():
    g = torch.Generator().manual_seed(2)
    for n in (0, 1, 4):
        for _ in range(50):
            drafted, own = torch.randint(2, (n,), generator=g), torch.randint(2, (n + 1,), generator=g)
            draft = Draft(drafted.tolist(), [None] * n, ["draft"] * n)
            assert int(agree_on_tensors(drafted, own)) == agree(draft, own.tolist()).num_accepted


@pytest.mark.parametrize("vocabulary", [2048, 2049, 5000, 50_000])
@pytest.mark.parametrize("kept", [1, 40, 1023, 1024, 1025, 1700])
def test_top_p_keeps_the_token_that_crosses_it_and_no_more(vocabulary: int, kept: int) -> None:
    """For peaked, flat and tied rows. Above 2,048 tokens the host tries the likeliest 1,024 before it sorts all."""
    drawn = torch.randn(vocabulary, generator=torch.Generator().manual_seed(4))
    logits = torch.stack((drawn * 2, drawn * 0.01, (drawn * 2).round()))
    for row, scores in enumerate(logits):
        ordered = scores.double().softmax(-1).sort(descending=True).values
        top_p = float(ordered[:kept].sum() - ordered[kept - 1] / 2)  # in the midst of a token: no rounding decides
        sampler = Sampler(SamplingParams(temperature=1.0, top_p=top_p))
        found = sampler.distributions(logits, [1])
        for stays in (found[row] > 0, law_of(sampler, vocabulary).distributions(logits)[row] > 0):
            assert int(stays.sum()) == kept
            assert scores[stays].min() >= scores[~stays].max()
        assert torch.equal(sampler.distributions(logits[row : row + 1], [1])[0], found[row])


def test_noise_is_gumbels_and_its_own_at_every_position_and_seed() -> None:
    rows = torch.cat([Sampler(SamplingParams(temperature=1.0, seed=seed)).noise(5, 8, 4000) for seed in (0, 1)])
    assert float((torch.corrcoef(rows) - torch.eye(len(rows))).abs().max()) < 0.1
    assert rows.mean() == pytest.approx(0.5772, abs=0.03) and rows.var() == pytest.approx(np.pi**2 / 6, abs=0.06)
    again = Sampler(SamplingParams(temperature=1.0, seed=1)).noise(7, 1, 4000)  # whatever was asked for before
    assert torch.equal(again[0], rows[10])
