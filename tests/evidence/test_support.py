"""What a passage has in common with a sentence about it."""

from __future__ import annotations

import pytest

from triforce_core.evidence.sentence_index import SentenceIndex
from triforce_core.evidence.support import THRESHOLD, support
from triforce_core.evidence.vectors import WordVectors

SENTENCES = ["The lighthouse keeper counted forty ships before the storm reached the harbour.",
             "He wrote their names into a leather book.",
             "The council paid him twelve pounds a year for his trouble.",
             "Nobody painted the tower for a decade."]


@pytest.fixture(scope="module")
def index() -> SentenceIndex:
    return SentenceIndex(SENTENCES, range(len(SENTENCES)), WordVectors.shipped())


def score(index: SentenceIndex, sentence: str) -> float:
    judged = support(index, sentence)
    assert judged is not None
    return judged[0]


def test_the_passage_itself_is_found_whole(index: SentenceIndex) -> None:
    for at, sentence in enumerate(SENTENCES):
        assert support(index, sentence) == (pytest.approx(1.0), at)


def test_a_sentence_in_other_words_is_nearer_than_one_about_something_else(index: SentenceIndex) -> None:
    restated = score(index, "Before the storm came to the harbour, the keeper of the lighthouse had counted the boats.")
    foreign = score(index, "Quantum computers factor large integers with polynomially many gates.")
    assert foreign < THRESHOLD < restated


def test_two_neighbours_may_support_one_sentence(index: SentenceIndex) -> None:
    both = "The keeper counted forty ships and wrote their names into a leather book."
    assert score(index, both) > 0.95
    apart = SentenceIndex([SENTENCES[0], SENTENCES[2], SENTENCES[3], SENTENCES[2], SENTENCES[1]], range(5),
                          WordVectors.shipped())
    assert score(apart, both) < 0.9, "they stand too far from each other"


def test_another_number_does_not_count(index: SentenceIndex) -> None:
    numbers = SentenceIndex(["In 1851 the council bought 12 lamps for the tower."], [0], WordVectors.shipped())
    right, wrong = (score(numbers, f"The council bought {count} lamps for the tower in {year}.")
                    for count, year in ((12, 1851), (14, 1862)))
    assert right == pytest.approx(1.0) and wrong < 0.75


def test_what_cannot_be_judged_is_not(index: SentenceIndex) -> None:
    assert support(index, "Yes, it did.") is None
    assert support(index, "Der Wärter zählte vierzig Schiffe, ehe der Sturm den Hafen erreichte.") is None
    assert support(SentenceIndex([], [], WordVectors.shipped()), SENTENCES[0]) is None


def test_sentences_can_be_left_out(index: SentenceIndex) -> None:
    assert support(index, SENTENCES[3], frozenset({3}))[0] < THRESHOLD
