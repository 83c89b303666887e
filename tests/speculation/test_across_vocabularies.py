"""A draft model with another vocabulary leaves the law as it is, whatever it reads and however that is spelled."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from speculation.probs import BOUND, PARAMS, EvenAfterTwo, deviation, plain_probs
from speculation.toy import Settling, TableModel, enumerate_exactly, total_variation

from triforce_core.config import SamplingParams
from triforce_core.sampling import Sampler
from triforce_core.speculation.across_vocabularies import ModelAcross
from triforce_core.speculation.drafter import Draft, NoDrafter
from triforce_core.speculation.hierarchical import HierarchicalDrafter
from triforce_core.speculation.model_drafter import ModelDrafter, ModelOnCache
from triforce_core.speculation.round import speculate
from triforce_core.tokenizer.translation import Translation

START = [0, 1, 2, 0]  # "ab aa"
LAWS = {"T1": PARAMS[0], "T0.7": SamplingParams(temperature=0.7), "T0.6 top-p 0.9": PARAMS[1],
        "T1.3 top-k 2": PARAMS[2],
        "penalty and min-p": SamplingParams(temperature=1.0, repeat_penalty=1.7, min_p=0.1)}


class Toy:
    """A tokenizer of a few pieces; the longest that fits comes first."""

    def __init__(self, *pieces: str, bos: int | None = None) -> None:
        self.pieces, self.bos_token_id = pieces, bos
        self.hidden = frozenset(i for i, piece in enumerate(pieces) if piece.startswith("<"))

    def strings(self):
        return {(piece.encode(), i in self.hidden): i for i, piece in enumerate(self.pieces)}

    def token_bytes(self, token: int) -> bytes:
        return b"" if token in self.hidden else self.pieces[token].encode()

    def encode(self, text: str) -> list[int]:
        ids: list[int] = []
        while text:
            piece = max((piece for piece in self.pieces if text.startswith(piece)), key=len)
            ids.append(self.pieces.index(piece))
            text = text[len(piece) :]
        return ids

    def text(self, ids) -> str:
        return "".join(self.pieces[i] for i in ids)


TARGET, DRAFT = Toy("a", "b", " a", "ab"), Toy("b", " ", "a", "ba", "<s>", bos=4)


class Recorder:
    """A cache that holds tokens; the law of the toy below follows what is really in it."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        self.tokens: list[int] = []
        self.num_committed = 0

    @property
    def length(self) -> int:
        return len(self.tokens)

    def keep(self, path) -> None:
        staged = self.tokens[self.num_committed :]
        self.tokens[self.num_committed :] = [staged[i] for i in path]

    def commit(self) -> None:
        self.num_committed = len(self.tokens)


class Reading:
    """A model whose law depends on the last two tokens of its cache."""

    def __init__(self, table: TableModel) -> None:
        self.table, self.config = table, SimpleNamespace(vocab_size=len(table.table))

    def forward(self, ids, cache, logits_rows, **_):
        cache.tokens += ids.tolist()
        return torch.stack([self.table.row([0, *cache.tokens])] * logits_rows) if logits_rows else torch.empty(0)


def across(start=START, window: int = 8) -> ModelAcross:
    found = ModelAcross(ModelOnCache(Reading(TableModel(5, 3)), Recorder()), Translation(TARGET, DRAFT), 4)
    found.start(start, 2, window)
    return found


def drafter() -> ModelDrafter:
    return ModelDrafter(across())


def middle() -> HierarchicalDrafter:
    return HierarchicalDrafter(Settling(TableModel(4, 2)), drafter(), 2)


@pytest.mark.parametrize("params", LAWS.values(), ids=LAWS)
@pytest.mark.parametrize("gamma", [1, 3])
def test_a_round_is_lossless(params, gamma, rejection):
    assert deviation(TableModel(4, 1), drafter, gamma, params, start=START) < BOUND


@pytest.mark.parametrize("law", ["T1.3 top-k 2", "penalty and min-p",
                                 pytest.param("T0.7", marks=pytest.mark.exhaustive)])
def test_below_a_middle_tier_too(law, rejection):
    assert deviation(TableModel(4, 1), middle, 2, LAWS[law], start=START) < BOUND


@pytest.mark.parametrize(("law", "length"), [("T0.7", 3), ("T1.3 top-k 2", 4),
                                             pytest.param("T1", 4, marks=pytest.mark.exhaustive)])
def test_rounds_in_a_row_are_lossless(law, length):
    """The draft model follows what was settled between them."""
    target, params = TableModel(4, 1), LAWS[law]

    def answer(chance) -> tuple[int, ...]:
        made, context, sampler = drafter(), list(START), Sampler(params, chance=chance)
        while len(context) < len(START) + length:
            context += speculate(target, made, context, 2, sampler).verdict.token_ids
            made.settle(context, committed=True)
        return tuple(context[len(START) :][:length])

    assert total_variation(enumerate_exactly(answer), plain_probs(target, params, length, start=START)) < BOUND


class OnlyUnsaid(EvenAfterTwo):
    """Behind an "a" only what the draft model cannot say."""

    def allowed(self, context, draft):
        whole = [*context, *draft]
        return [np.array([2, 3]) if whole[len(context) + i - 1] == 0 else None for i in range(len(draft) + 1)]

    def guided(self, context, limit):
        return []


@pytest.mark.parametrize("masks", [EvenAfterTwo(), OnlyUnsaid()], ids=["forced", "none of its own"])
def test_masks_that_forbid_all_it_can_say_stay_lossless(masks):
    assert deviation(TableModel(4, 1), drafter, 3, SamplingParams(temperature=1.0), masks, START) < BOUND


def test_the_enumeration_sees_a_law_that_was_not_restricted():
    """What the draft model gives to tokens that only it has, reported as if nothing had been left out."""

    class Unrestricted(ModelDrafter):
        def step(self, grown, sampler) -> Draft:
            draft = super().step(grown, sampler)
            return replace(draft, probs=[probs * 0.7 for probs in draft.probs])

    assert deviation(TableModel(4, 1), lambda: Unrestricted(across()), 2, SamplingParams(temperature=1.0),
                     start=START) > 0.01


@pytest.mark.parametrize("temperature", [0.0, 0.7, 1.0])
@pytest.mark.parametrize("seed", range(4))
def test_words_are_plain_decodings_and_the_cache_holds_them(temperature, seed):
    target = TableModel(4, 1)

    def answer(made, gamma, settled=lambda context: None):
        sampler, context = Sampler(SamplingParams(temperature=temperature, seed=seed), verifier="coupled"), list(START)
        while len(context) < 160:
            context += speculate(target, made, context, gamma, sampler).verdict.token_ids
            made.settle(context, committed=True)
            settled(context)
        return context[:160]

    model = across()

    def settled(context) -> None:
        assert ("<s>" + TARGET.text(context)).startswith(DRAFT.text(model.cache.tokens))
        assert model.cache.num_committed == model.cache.length, "buffers do not grow with the answer"

    assert answer(ModelDrafter(model), 3, settled) == answer(NoDrafter(), 0)
    assert model.cache.num_committed > 100


def test_a_long_context_is_read_by_its_beginning_and_its_end():
    model = across([2, 1] * 40, window=8)
    assert DRAFT.text(model.cache.tokens) == "<s>  ab ab a", "in its own tokens as many"


def test_special_tokens_are_those_of_the_same_name_and_others_are_left_out():
    target, draft = Toy("a", "<end>", "<mine>", "b"), Toy("<end>", "ab", "a", "b")
    words = Translation(target, draft)
    assert sorted(words.shared) == [(0, 1), (2, 0), (3, 3)]
    assert words.spelled([0, 3, 1, 0, 2, 3]) == [2, 3, 0, 2, 3]
    assert words.opening == []


def test_behind_a_special_token_that_it_does_not_know_it_goes_on_as_before():
    words = Translation(Toy("a", "b", " a", "<x>"), DRAFT)
    model = ModelAcross(ModelOnCache(Reading(TableModel(5, 3)), Recorder()), words, 4)
    model.start([0, 1, 0], 2, 8)
    before = model.logits([0, 1, 0], ())
    for more in ([3], [3, 3]):
        assert torch.equal(model.logits([0, 1, 0, *more], ()), before)
    model.agree([0, 1, 0, 3])
    model.commit()
    model.keep_up([0, 1, 0, 3])
    assert torch.equal(model.logits([0, 1, 0, 3], ()), before)
    assert not torch.equal(model.logits([0, 1, 0, 3, 1], ()), before)
    assert before.argmax() in (0, 1) and before[0, [2, 3]].softmax(0).tolist() == [0.5, 0.5]
