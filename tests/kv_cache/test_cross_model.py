"""A small model's own reading of a text, and the part of it that it attends because another model marked it."""

from __future__ import annotations

import random
from itertools import pairwise

import pytest
import torch

from tests.kv_cache.test_contract import MODEL, ONE_LAYER, assert_like_recomputed, full_cache
from tests.model.tiny import VOCAB
from triforce_core.device.shard import ALONE
from triforce_core.engine.prefill import DraftPrefill, mark
from triforce_core.kv_cache.retrieval import CrossModelCache
from triforce_core.kv_cache.streaming import turn

BUDGET, RECENT, CHUNK = 48, 16, 4


def marked(full, model=MODEL, budget: int = BUDGET) -> CrossModelCache:
    return CrossModelCache(full, budget=budget, chunk_size=CHUNK, recent=RECENT, slack=8,
                       frequencies=model.rope.frequencies)


def read(cache: CrossModelCache, tokens: list[int], model=MODEL) -> None:
    model.forward(torch.tensor(tokens), cache, logits_rows=0)
    cache.commit()


@pytest.mark.parametrize("seed", range(3))
def test_while_all_of_it_fits_it_is_exact_and_fills_its_full_cache(seed: int) -> None:
    rng, full = random.Random(seed), full_cache()
    cache = marked(full, budget=300)
    kept: list[int] = []
    for _ in range(12):
        new = [rng.randrange(VOCAB) for _ in range(rng.choice([1, 3, 20]))]
        MODEL.forward(torch.tensor(new), cache, logits_rows=1)
        survivors = rng.randint(0, len(new))
        cache.keep(range(survivors))
        cache.commit()
        kept += new[:survivors]
        cache.check_integrity()
        full.check_integrity()
        assert full.num_committed == cache.num_committed == len(kept)
        assert_like_recomputed(MODEL, cache, kept)
        assert_like_recomputed(MODEL, full, kept)


def test_a_long_text_is_read_through_a_window() -> None:
    """Keys of one layer depend on nothing before it: the full cache holds what an ordinary reading gives."""
    rng, full, ordinary = random.Random(0), full_cache(ONE_LAYER), full_cache(ONE_LAYER)
    cache = marked(full, ONE_LAYER)
    tokens = [rng.randrange(VOCAB) for _ in range(200)]
    for start in range(0, 200, 25):
        read(cache, tokens[start : start + 25], ONE_LAYER)
        cache.check_integrity()
        assert cache.layers[0].slots <= BUDGET + 3 * 25 + 8
    ONE_LAYER.forward(torch.tensor(tokens), ordinary, logits_rows=0)
    ordinary.commit()
    for mine, true in zip(full.read(0), ordinary.read(0), strict=True):
        torch.testing.assert_close(mine, true, atol=1e-5, rtol=1e-4)


def test_marked_chunks_stand_side_by_side_before_the_newest_tokens() -> None:
    rng, full = random.Random(1), full_cache()
    cache = marked(full)
    for _ in range(10):
        read(cache, [rng.randrange(VOCAB) for _ in range(20)])
    scores = torch.zeros(3, 4, 50)  # of a larger model: more layers and heads
    scores[..., 30] = scores[1, 2, 9] = 1.0
    scores[0, 0, 21] = 0.5
    mark(cache, scores, ALONE)
    cache.check_integrity()
    chosen = cache.selection[0, 0].tolist()
    assert {0, 9, 21, 30} <= set(chosen) and all(a < b for a, b in pairwise(chosen))
    assert torch.equal(cache.selection, cache.selection[:1, :1].expand_as(cache.selection))
    held, at = len(chosen) * CHUNK, chosen.index(30) * CHUNK
    tail_start = 200 - (cache._filled - held)
    moved = torch.full((2, CHUNK, 1), tail_start - held + at - 30 * CHUNK) * MODEL.rope.frequencies
    keys, values = full.read(1)
    whole = slice(30 * CHUNK, 31 * CHUNK)
    torch.testing.assert_close(cache.layers[1].keys[:, at : at + CHUNK], turn(keys[:, whole], moved))
    assert torch.equal(cache.layers[1].values[:, at : at + CHUNK], values[:, whole])
    assert torch.equal(cache.layers[1].keys[:, held : cache._filled], keys[:, tail_start:])


def test_chosen_ahead_while_tokens_are_staged_they_and_the_newest_stay() -> None:
    rng, full = random.Random(4), full_cache()
    cache, fresh = marked(full), marked(full)
    for _ in range(10):
        read(cache, [rng.randrange(VOCAB) for _ in range(20)])
    assert not cache.marked
    mark(cache, torch.rand(3, 4, 50), ALONE)
    staged = MODEL.forward(torch.tensor([5, 6, 7]), cache, logits_rows=1)
    scores = torch.rand(3, 4, 50)
    mark(cache, scores, ALONE, ahead=True)
    fresh.sync()
    mark(fresh, scores, ALONE)
    assert cache.num_staged == 3 and torch.equal(cache.selection, fresh.selection)
    for mine, new in zip(cache.layers, fresh.layers, strict=True):
        assert torch.equal(mine.keys[:, : fresh._filled], new.keys[:, : fresh._filled])
    cache.keep(range(2))
    assert not torch.equal(MODEL.forward(torch.tensor([7]), cache, logits_rows=1), staged)
    cache.keep(range(2))
    cache.commit()
    cache.check_integrity()
    assert full.num_committed == 202 and cache.marked
    for _ in range(3):  # no room: the newest stay, and nothing is marked until the next choice
        read(cache, [1, 2])
    assert not cache.marked and cache.selection is not None


def test_what_was_chosen_stays_until_there_is_no_room() -> None:
    rng, full = random.Random(2), full_cache()
    cache = marked(full)
    for _ in range(5):
        read(cache, [rng.randrange(VOCAB) for _ in range(20)])
    mark(cache, torch.rand(2, 2, 25), ALONE)
    chosen = cache.selection.clone()
    read(cache, [1, 2, 3])
    assert torch.equal(cache.selection, chosen) and full.num_committed == 103
    read(cache, list(range(30)))
    assert cache.selection.unique().tolist() == [0] and cache._filled <= BUDGET


def test_a_document_is_read_once_and_every_question_behind_it_anew() -> None:
    rng = random.Random(3)
    document = [rng.randrange(VOCAB) for _ in range(60)]
    reading = DraftPrefill(MODEL, 60, max_tokens=400)

    def ask(question: list[int], cancelled=lambda: False) -> int:
        return len(list(reading.read([*document, *question, 9], 16, cancelled)))

    asked = [list(range(60)), [5] * 49]
    assert ask([], lambda: True) == 0 and reading.full.num_committed == 0
    assert ask(asked[0]) == 4 + 4 and reading.full.num_committed == 120
    first = [part.clone() for part in reading.full.read(1)]
    assert ask(asked[1]) == 4 and reading.full.num_committed == 109
    assert ask(asked[0]) == 4
    assert all(torch.equal(a, b) for a, b in zip(first, reading.full.read(1), strict=True))
    # So few tokens the first draft reads, in a pass that it makes anyway.
    assert ask([1, 2, 3]) == 0 and reading.full.num_committed == 60
    assert ask([5] * 48) == 0 and reading.full.num_committed == 60
    # The first question of all is no other: a seed shall fix its words as it does later ones'.
    reading = DraftPrefill(MODEL, 60, max_tokens=400)
    assert ask([1, 2, 3]) == 4 and reading.full.num_committed == 60
