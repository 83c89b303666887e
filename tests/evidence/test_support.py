"""Passages that support a sentence, and the sentences of an answer, each with its passage and where that stands."""

from __future__ import annotations

import pytest

from triforce_core.documents.document import Document, Page
from triforce_core.evidence.sentence_index import SentenceIndex
from triforce_core.evidence.support import THRESHOLD, SupportFinder, answer_sentences, support
from triforce_core.evidence.vectors import WordVectors
from triforce_core.metrics import support_as_json

SENTENCES = ["The lighthouse keeper counted forty ships before the storm reached the harbour.",
             "He wrote their names into a leather book.",
             "The council paid him twelve pounds a year for his trouble.",
             "Nobody painted the tower for a decade."]


ONE = "The lighthouse keeper counted forty ships before the storm. He wrote their names down."
TWO = "Notes\nThe council paid him twelve pounds a year for his trouble."
FOREIGN = "Quantum computers factor large integers with polynomially many gates."


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


@pytest.fixture(scope="module")
def finder() -> SupportFinder:
    return SupportFinder(Document("t", "txt", (Page("i", ONE), Page("ii", TWO)), "test"))


def test_each_sentence_has_its_place(finder: SupportFinder) -> None:
    answer = f"The keeper counted forty ships before the storm came. {FOREIGN}\nThe council paid twelve pounds a year."
    first, second, third = finder.support(answer)
    assert answer[second.start : second.end] == FOREIGN and not second.found and second.place is None
    assert first.found and (first.place.page, first.place.label) == (1, "i")
    assert ONE[first.place.start : first.place.end].startswith("The lighthouse keeper counted")
    assert third.found and TWO[third.place.start : third.place.end].startswith("The council paid")
    assert 0 <= second.score < first.score <= 1


def test_pages_count_in_the_file(finder: SupportFinder) -> None:
    (one,) = support_as_json(finder.support("The council paid him twelve pounds a year."), ((3, 3), (7, 9)))
    assert one["place"]["page"] == 7 and one["found"] is True
    (none,) = support_as_json(finder.support(FOREIGN), ((3, 3), (7, 9)))
    assert none["place"] is None


def test_markdown_is_taken_apart() -> None:
    answer = ("# A heading of several words stands here\n\n1. The keeper counted the ships. **He wrote** it down.\n"
              "- The council paid him well:\n> What did he see in the storm?\n| a | table | row | here |\n"
              "```\ncode is no sentence. None at all.\n```\nHe left. It says “the council paid him twelve pounds”.\n")
    found = [answer[start:end] for start, end in answer_sentences(answer)]
    assert found == ["The keeper counted the ships.", "He wrote** it down.", "He left."]


def test_an_empty_document_supports_nothing() -> None:
    assert SupportFinder(Document("t", "txt", (Page("1", ""),), "test")).support(ONE) == ()
