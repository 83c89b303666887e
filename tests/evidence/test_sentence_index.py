"""Features of sentences: BM25 by its formula, soft matches, typing errors, headings."""

from __future__ import annotations

import math

import numpy as np
import pytest

from triforce_core.evidence.sentence_index import SentenceIndex
from triforce_core.evidence.vectors import WordVectors

SENTENCES = ["The harbour master counted nine ships.", "Ships need wind.", "The mill stood by the river.", "It rained."]


def index(sentences: list[str] = SENTENCES, lines: list[int] | None = None) -> SentenceIndex:
    return SentenceIndex(sentences, lines or list(range(len(sentences))), WordVectors.shipped())


def test_bm25_equals_the_formula() -> None:
    """A word in two of four sentences of 6, 3, 6 and 2 words: idf * tf (k1 + 1) / (tf + k1 (1 - b + b len / mean))."""
    rarity = math.log(1 + (4 - 2 + 0.5) / (2 + 0.5))
    damping = [1.2 * (0.5 + 0.5 * length / (17 / 4)) for length in (6, 3)]
    expected = [rarity * 2.2 / (1 + d) for d in damping]
    assert index().bm25("Ships?") == pytest.approx([*expected, 0.0, 0.0], abs=1e-6)


@pytest.mark.parametrize("question", ["How many ships did he count?", "Who counts the ship?", "COUNTING HARBOURS"])
def test_endings_and_case_do_not_matter(question: str) -> None:
    assert int(index().bm25(question).argmax()) == 0


def test_a_typing_error_finds_the_word_that_was_meant() -> None:
    assert index().terms("Where is the harrbourr?") == index().terms("Where is the harbour?")
    assert int(index().bm25("who is the harbuor master").argmax()) == 0


def test_words_that_are_used_alike_are_near() -> None:
    alike, times = index().matches(index().terms("boats"))
    assert times.sum() == 0 and alike[0].argmax() in (0, 1) and alike[0].max() < 1
    assert index().matches(index().terms("ships"))[0][0, 1] == 1


def test_features_are_finite_and_know_the_heading() -> None:
    whole = index(["Of Mills", "It stood by the river.", "Of Ships", "They need wind."])
    assert whole.heading_of.tolist() == [-1, 0, -1, 2]
    features = whole.features("Where did the mill stand?", "Who built it?")
    assert features.shape[0] == 4 and features.dtype == np.float32 and np.isfinite(features).all()


@pytest.mark.parametrize("sentences", [["..."], ["!", "?"], ["1"]])
def test_documents_without_words(sentences: list[str]) -> None:
    assert np.isfinite(index(sentences).features("ships")).all()
    assert not index(sentences).bm25("ships").any()


def test_items_and_rows_know_what_they_hang_on() -> None:
    made = index(["The report is short.", "Applicants must send:", "- a letter.", "- a picture.", "It ends here.",
                  "Name | Role | Year", "Ada | Editor | 1843", "Grace | Admiral | 1952", "- alone."],
                 [0, 0, 1, 2, 3, 4, 5, 6, 7])
    leads = [made.lead_in(sentence) for sentence in range(made.size)]
    assert leads == ["", "", "Applicants must send:", "Applicants must send:", "", "", "Name | Role | Year",
                     "Name | Role | Year", ""]


def test_the_order_of_words_counts() -> None:
    made = index(["The growth period of an account is the time before age 18.", "In the growth period all must save.",
                  "Growth is good.", "A period ends.", "Effective Date: May 27, 2025"], [0, 1, 2, 2, 3])
    terms = made.terms("What is meant by the growth period?")
    assert terms == ["growth", "period"]
    pairs, behind, on_line, leading, defined, less = made._order(terms, np.ones(2, np.float32)).T.round(3).tolist()
    assert pairs == [1, 1, 0, 0, 0] and behind == [0, 0, -1, -1, -1] and on_line == [1, 1, 0, 0, 0]
    assert leading == [1, 1, 0.5, 0.5, 0] and defined == [1, 0, 0.5, 0, 0] and less == [0, -1, -0.5, -1, -1]
    assert made.signs[:, -1].tolist() == [0, 0, 0, 0, 1]
