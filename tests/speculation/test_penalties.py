"""Penalties, biases and min-p leave speculation lossless: by enumeration on toy laws, and word for word."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from speculation.probs import BOUND, START, deviation, models, proven_ngrams, tiers
from speculation.toy import Settling

from triforce_core.config import SamplingParams
from triforce_core.errors import ConfigError
from triforce_core.sampling import Sampler
from triforce_core.sampling.penalties import Penalties
from triforce_core.speculation.drafter import NoDrafter
from triforce_core.speculation.model_drafter import ModelDrafter
from triforce_core.speculation.prompt_lookup import Router
from triforce_core.speculation.round import speculate

PARAMS = {name: SamplingParams(temperature=1.0, **given) for name, given in {
    "frequency": {"frequency_penalty": 1.2}, "presence": {"presence_penalty": -1.5}, "repeat": {"repeat_penalty": 1.8},
    "bias": {"logit_bias": ((0, 1.5), (2, -100.0))}, "min-p": {"min_p": 0.3},
    "all": {"frequency_penalty": 0.7, "presence_penalty": 0.4, "repeat_penalty": 1.3, "min_p": 0.1, "top_p": 0.95,
            "logit_bias": ((1, -0.5),)}}.items()}


@pytest.mark.parametrize("params", PARAMS.values(), ids=PARAMS)
@pytest.mark.parametrize(("gamma1", "gamma2"), [(None, 3), (0, 2), (1, 2), (2, 2)])
def test_every_tier_weighs_alike(params, gamma1, gamma2, rejection):
    """The small model alone (None), the retrieved part alone (0), and both below the full cache."""
    target, retrieval, small = models()
    drafter = ModelDrafter(Settling(small)) if gamma1 is None else tiers(retrieval, small, gamma1)
    assert deviation(target, drafter, gamma2, params) < BOUND


@pytest.mark.parametrize("params", PARAMS.values(), ids=PARAMS)
def test_copies_are_weighed_too(params):
    target, retrieval, small = models()
    assert deviation(target, proven_ngrams, 2, params) < BOUND
    assert deviation(target, lambda: Router(tiers(retrieval, small, 1), proven_ngrams(), 2, 0.1), 2, params) < BOUND


def test_the_enumeration_sees_counts_without_the_drafted_tokens(monkeypatch):
    exact = Penalties.applied
    monkeypatch.setattr(Penalties, "applied", lambda self, logits, context, draft: torch.cat(
        [exact(self, row[None], context, ()) for row in logits]))
    target, _, small = models()
    assert deviation(target, ModelDrafter(Settling(small)), 3, PARAMS["frequency"]) > 0.01


@pytest.mark.parametrize("temperature", [0.0, 0.8])
@pytest.mark.parametrize("name", PARAMS)
def test_deciding_by_draws_gives_plain_decodings_words(temperature, name):
    target, retrieval, small = models(vocabulary=12)
    params = replace(PARAMS[name], temperature=temperature, seed=4)

    def words(drafter, gamma2):
        sampler, context = Sampler(params, verifier="coupled", answer_start=2), list(START)
        while len(context) < 80:
            context.extend(speculate(target, drafter, context, gamma2, sampler).verdict.token_ids)
            drafter.settle(context, committed=True)
        return context[:80]

    assert words(tiers(retrieval, small, 2), 4) == words(NoDrafter(), 0)


def test_logits_are_weighed_as_openai_and_llama_cpp_define_it():
    logits = torch.tensor([[2.0, -2.0, 1.0, 0.5]]).expand(3, 4)
    params = SamplingParams(frequency_penalty=0.5, presence_penalty=0.25, repeat_penalty=2.0, logit_bias=((3, 4.0),))
    rows = Penalties(params, 2).applied(logits, [3, 3, 0], [1, 0])  # the first two are the prompt's
    assert rows.tolist() == [[0.25, -2.0, 1.0, 4.5], [0.25, -4.75, 1.0, 4.5], [-0.25, -4.75, 1.0, 4.5]]
    assert logits[0].tolist() == [2.0, -2.0, 1.0, 0.5], "what the model said stays"
    halves = Penalties(params, 2).applied(logits.bfloat16(), [3, 3, 0], [1, 0])
    assert halves.dtype == torch.float32


def test_min_p_is_a_share_of_the_likeliest():
    probs = torch.tensor([[0.5, 0.3, 0.1, 0.1]])
    for temperature in (1.0, 0.5):
        sampler = Sampler(SamplingParams(temperature=temperature, min_p=0.5))
        found = sampler.distributions(probs.log(), START)[0]
        heated = probs[0] ** (1 / temperature)
        kept = torch.where(heated >= 0.5 * heated.max(), heated, 0.0)
        torch.testing.assert_close(found, kept / kept.sum())


def test_what_is_not_set_costs_nothing():
    sampler = Sampler(SamplingParams(temperature=0.7, top_p=0.9))
    assert not sampler.host_leads and Sampler(PARAMS["bias"]).host_leads
    logits = torch.randn(1, 5)
    assert sampler._masked(logits, START, ()) is logits


@pytest.mark.parametrize("given", [{"min_p": 1.5}, {"frequency_penalty": -3}, {"repeat_penalty": 0},
                                   {"presence_penalty": "much"}, {"logit_bias": ((-1, 0.0),)},
                                   {"logit_bias": ((1, 200.0),)}], ids=str)
def test_settings_out_of_range_are_refused_by_name(given):
    with pytest.raises(ConfigError, match=next(iter(given))):
        SamplingParams(**given)
