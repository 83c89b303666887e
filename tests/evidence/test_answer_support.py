"""Sentences of an answer, each with its passage and where that stands."""

from __future__ import annotations

import pytest

from triforce_core.documents.document import Document, Page
from triforce_core.evidence.support import SupportFinder, answer_sentences
from triforce_core.metrics import support_as_json

ONE = "The lighthouse keeper counted forty ships before the storm. He wrote their names down."
TWO = "Notes\nThe council paid him twelve pounds a year for his trouble."
FOREIGN = "Quantum computers factor large integers with polynomially many gates."


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
    told = [answer[start:end] for start, end in answer_sentences(answer)]
    assert told == ["The keeper counted the ships.", "He wrote** it down.", "He left."]


def test_an_empty_document_supports_nothing() -> None:
    assert SupportFinder(Document("t", "txt", (Page("1", ""),), "test")).support(ONE) == ()
