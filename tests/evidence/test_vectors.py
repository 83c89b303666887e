"""Words as vectors: what is about the same lies near, also in other words."""

from __future__ import annotations

import numpy as np

from triforce_core.evidence.bm25 import telling
from triforce_core.evidence.vectors import WordVectors

SENTENCES = ["The captain has the command of the ship.", "Taxes are due on the fifth of May.",
             "Every house needs a roof.", "A dog that barks does not bite."]


def means(texts: list[str]) -> np.ndarray:
    return WordVectors.shipped().means([telling(text) for text in texts])


def test_other_words_for_the_same_are_near() -> None:
    for question, answer in (("Who commands the vessel?", 0), ("When do I have to pay the tax?", 1)):
        assert int(np.argmax(means(SENTENCES) @ means([question])[0])) == answer


def test_lengths_are_one_and_texts_without_words_nothing() -> None:
    found = means([*SENTENCES, "", "whale " * 3000, "Who \ud83d?", *SENTENCES])
    assert found.dtype == np.float32
    assert np.allclose(np.linalg.norm(found, axis=1), [1] * 4 + [0, 1, 0] + [1] * 4, atol=1e-5)
    assert np.allclose(found[:4], found[-4:], atol=1e-6)
    assert means([]).shape == (0, found.shape[1])
