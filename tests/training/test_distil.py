"""What the draft sees of a long row."""

from __future__ import annotations

import torch

from training.distil import CHUNK, Parts


def test_chunks_whose_words_come_again_are_seen_and_the_whole_end() -> None:
    parts = Parts(chunks=4, end=64, scored=32)
    ids = torch.arange(2 * 256).view(2, 256)  # no pair twice
    copied = torch.tensor([40, 96])  # of each row: a chunk and a half from here on is said again at the end
    for row, start in enumerate(copied.tolist()):
        ids[row, 230 : 230 + CHUNK * 3 // 2] = ids[row, start : start + CHUNK * 3 // 2]
    torch.manual_seed(0)
    places = parts.places(ids)
    assert places.shape == (2, 4 * CHUNK + 64)
    assert bool((places.diff(dim=1) > 0).all()), "in order, none twice"
    assert torch.equal(places[:, -64:], torch.arange(192, 256).expand(2, -1))
    for row, start in enumerate(copied.tolist()):
        assert set(range(start, start + 2 * CHUNK)) <= set(places[row].tolist())


def test_only_words_that_are_scored_choose() -> None:
    """What is said again in the unscored part of the end is not what the draft learns to go on with."""
    parts = Parts(chunks=2, end=64, scored=16)
    ids = torch.arange(256)[None].clone()
    ids[0, 200:216] = ids[0, 80:96]
    ids[0, 244:252] = ids[0, 24:32]
    for seed in range(20):
        torch.manual_seed(seed)
        assert set(range(24, 32)) <= set(parts.places(ids)[0].tolist())


def test_a_row_of_4096_is_seen_as_2304_tokens() -> None:
    parts = Parts.of(4096)
    assert parts.places(torch.randint(0, 24_576, (2, 4096))).shape == (2, 128 * CHUNK + 1280)
