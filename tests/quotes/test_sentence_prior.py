"""BM25 over sentences."""

from __future__ import annotations

import math

import numpy as np
import pytest

from triforce_core.quotes.sentence_prior import WordIndex

SENTENCES = ["The harbour master counted nine ships.", "Ships need wind.", "The mill stood by the river.", "It rained."]


def test_scores_equal_the_formula() -> None:
    """A word in two of four sentences of 6, 3, 6 and 2 words: idf * tf (k1 + 1) / (tf + k1 (1 - b + b len / mean))."""
    rarity = math.log(1 + (4 - 2 + 0.5) / (2 + 0.5))
    damping = [1.2 * (0.5 + 0.5 * length / (17 / 4)) for length in (6, 3)]
    expected = [rarity * 2.2 / (1 + d) for d in damping]
    assert WordIndex(SENTENCES).scores("Ships?") == pytest.approx([*expected, 0.0, 0.0])


@pytest.mark.parametrize("question", ["How many ships did he count?", "Who counts the ship?", "COUNTING HARBOURS"])
def test_endings_and_case_do_not_matter(question: str) -> None:
    assert int(WordIndex(SENTENCES).scores(question).argmax()) == 0


@pytest.mark.parametrize("question", ["What happens next?", "And then?", "Go on.", "", "?!", "Quote the next one."])
def test_words_of_the_request_itself_favour_nothing(question: str) -> None:
    assert not WordIndex([*SENTENCES, "Then the next sentence happens to continue."]).scores(question).any()


def test_documents_without_sentences_or_words() -> None:
    assert WordIndex([]).scores("ships").shape == (0,)
    assert np.array_equal(WordIndex(["...", "!"]).scores("ships"), [0.0, 0.0])


@pytest.mark.parametrize("leaders", [" . . . . . . 19", ".......19", " . . . . ."])
def test_a_line_of_the_contents_answers_nothing(leaders: str) -> None:
    """It names what is asked about in few words, and so would win."""
    index = WordIndex([*SENTENCES, f"Nine ships{leaders}", "He waited .... and left."])
    scores = index.scores("How many ships?")
    assert int(scores.argmax()) == 1 and scores[4] == scores.min() < -10 and scores[5] == 0
    assert index.scores("And then?")[4] == scores[4]
