"""Sentences of an answer, judged by the passages of a document: which are supported, where, and which are not."""

from __future__ import annotations

import numpy as np
import pytest

from triforce_core.documents.document import Document, Page
from triforce_core.evidence.finder import PassageFinder
from triforce_core.evidence.support import SupportFinder, answer_sentences, shipped_checks, verdict_of
from triforce_core.metrics import support_as_json

ONE = ("The lighthouse keeper counted forty ships before the storm. He wrote their names into a leather book.\n"
       "The board appoints the secretary for a term of four years. The board meets at least twice a year in Ness.")
TWO = "Notes\nThe council of Arlow paid him twelve pounds a year for his trouble."
TRUE = "Before the storm the keeper counted 40 ships."
PAID = "The council paid him twelve pounds a year."
FOREIGN = "Quantum computers factor large integers with polynomially many gates."
FALSE = ["The keeper counted fifty ships before the storm.", "The board does not appoint the secretary.",
         "The board appoints the secretary for a term of five years.", "The council paid him twelve dollars a year.",
         "The board appoints the secretary for four months.",
         "The keeper counted forty ships before the storm and sold the harbour to a rich widow from Spain."]


@pytest.fixture(scope="module")
def finder() -> SupportFinder:
    return SupportFinder(PassageFinder(Document("t", "txt", (Page("i", ONE), Page("ii", TWO)), "test")))


def test_a_supported_sentence_has_its_place(finder: SupportFinder) -> None:
    answer = f"{TRUE} {FOREIGN}\nAnd {PAID}"
    first, second, third = finder.support(answer)
    assert (first.verdict, second.verdict, third.verdict) == ("supported", "not found", "supported")
    assert answer[first.start : first.end] == TRUE and answer[second.start : second.end] == FOREIGN
    (place,) = first.places
    assert (place.page, place.label) == (1, "i")
    assert ONE[place.start : place.end].startswith("The lighthouse keeper counted")
    assert second.places == () and TWO[third.places[0].start : third.places[0].end].startswith("The council of Arlow")
    assert 0 <= second.chance < first.chance <= 1


@pytest.mark.parametrize("sentence", FALSE)
def test_what_was_exchanged_or_invented_is_not_supported(finder: SupportFinder, sentence: str) -> None:
    (judged,) = finder.support(sentence)
    assert judged.verdict != "supported"


def test_what_the_document_denies_is_shown_where_it_does(finder: SupportFinder) -> None:
    (judged,) = finder.support("The board does not appoint the secretary.", "Who appoints the secretary?")
    assert judged.verdict == "contradicted"
    assert ONE[judged.places[0].start : judged.places[0].end].startswith("The board appoints")


def test_pages_count_in_the_file(finder: SupportFinder) -> None:
    (one,) = support_as_json(finder.support(PAID), ((3, 3), (7, 9)))
    assert one["places"][0]["page"] == 7 and one["verdict"] == "supported"
    (none,) = support_as_json(finder.support(FOREIGN), ((3, 3), (7, 9)))
    assert none["places"] == ()


def test_loops_count_once_and_reasoning_not_at_all(finder: SupportFinder) -> None:
    answer = f"<think>The keeper counted nine ships.\n\nOr ten of them?</think>{TRUE} {TRUE}\n- **{TRUE}** {PAID}"
    found = list(finder.support(answer))
    assert [answer[one.start : one.end] for one in found] == [TRUE, PAID]
    assert list(finder.support("<think>The keeper counted nine ships and went to the harbour.")) == []
    opened_by_the_template = f"The keeper counted nine ships.\n</think>\n\n{TRUE}"
    (one,) = finder.support(opened_by_the_template)
    assert opened_by_the_template[one.start : one.end] == TRUE


def test_while_it_is_written_the_last_sentence_waits(finder: SupportFinder) -> None:
    answer = f"{TRUE} {PAID}"
    (first,) = finder.support(answer, whole=False)
    assert answer[first.start : first.end] == TRUE
    (second,) = finder.support(answer, start=first.end)
    assert answer[second.start : second.end] == PAID


def test_what_says_too_little_is_not_judged(finder: SupportFinder) -> None:
    assert list(finder.support("Yes, it did.")) == []
    assert list(finder.support("Der Wärter zählte vierzig Schiffe, ehe der Sturm den Hafen erreichte.")) == []
    empty = SupportFinder(PassageFinder(Document("t", "txt", (Page("1", ""),), "test")))
    assert list(empty.support(ONE)) == []


def test_markdown_is_taken_apart() -> None:
    answer = ("# A heading of several words stands here\n\n1. The keeper counted the ships. **He wrote** it down.\n"
              "- The council paid him well:\n> What did he see in the storm?\n| a | table | row | here |\n"
              "```\ncode is no sentence. None at all.\n```\nHe left. It says “the council paid him twelve pounds”.\n")
    found = [answer[start:end] for start, end in answer_sentences(answer)]
    assert found == ["The keeper counted the ships.", "He wrote** it down.", "He left."]


def test_no_chance_makes_up_for_a_number() -> None:
    weights, edges = shipped_checks()
    sure = np.array([[1.0, 20.0, -20.0, *[0.0] * (weights.shape[1] - 3)]])
    assert verdict_of(sure, weights, edges)[0] == "supported"
    sure[0, 3] = 1.0
    assert verdict_of(sure, weights, edges)[0] != "supported"
    assert (weights[0, 3:] <= 0).all() and (weights[1, 3:] >= 0).all(), "what differs speaks for nothing"
