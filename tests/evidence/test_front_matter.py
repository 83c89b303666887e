"""Questions about the document as a whole, and the lines that answer them."""

from __future__ import annotations

import pytest

from triforce_core.evidence.answering import Answering
from triforce_core.evidence.front_matter import says_of_itself
from triforce_core.evidence.sentence_index import SentenceIndex
from triforce_core.evidence.sentence_prior import SentencePrior
from triforce_core.evidence.word_vectors import WordVectors

PROPOSAL = ["A Harbour for Small Boats", "Author(s): Ada Brunt, Karl Vane", "Created: 3-Feb-2019",
            "Last updated: 9 June 2021", "Effective Date: May 2, 2022", "Pier-Version: 3.2", "Obsoletes: 17",
            "The harbour master wrote a letter to Ada in 1999.", "The storm of 2020 changed the plan.",
            "By the end of the year the pier was closed."]
STORY = ["The Lost Oar", "By Ada Maria Brunt", "The rowers had been written off by everybody."]
NOTHING = ["The pier is old.", "It was painted in 1980 by the council.", "This document obsoletes all notes."]


def index(sentences: list[str]) -> SentenceIndex:
    return SentenceIndex(sentences, list(range(len(sentences))), WordVectors.shipped())


@pytest.mark.parametrize(("sentences", "question", "answer"), [
    (PROPOSAL, "Who wrote this?", 1), (PROPOSAL, "who is the author of this proposal", 1), (STORY, "who wrote it", 1),
    (STORY, "Who's it by?", None), (PROPOSAL, "When was this proposal created?", 2),
    (PROPOSAL, "when was it written", 2),
    (PROPOSAL, "When was this last updated?", 3), (PROPOSAL, "when does this agreement take effect?", 4),
    (PROPOSAL, "What is the effective date?", 4), (PROPOSAL, "which version is this?", 5),
    (PROPOSAL, "What Pier version is this for", 5), (PROPOSAL, "which standard does this replace", 6),
    (NOTHING, "What does this document obsolete?", 2), (STORY, "when was this published?", None),
    (NOTHING, "who wrote this?", None), (NOTHING, "when was it created", None),
])
def test_the_line_is_found(sentences: list[str], question: str, answer: int | None) -> None:
    assert says_of_itself(index(sentences), question) == (None if answer is None else (answer, answer))


@pytest.mark.parametrize("question", [
    "Who wrote the letter to Ada?", "who wrote this letter to the harbour master", "When was the pier created?",
    "when was this pier first painted", "Which version of the plan failed?", "what does the storm replace",
    "who wrote the letter?", "who changed this plan because of the storm?", "When does it rain?",
])
def test_questions_about_a_part_are_none(question: str) -> None:
    assert says_of_itself(index(PROPOSAL), question) is None


def test_front_matter_stands_at_the_front() -> None:
    late = index([f"Boat {number} came in." for number in range(90)] + ["Author: Ada Brunt"])
    assert says_of_itself(late, "who wrote this?") is None


def test_the_answer_is_that_line_and_sure() -> None:
    answering = Answering(index(PROPOSAL), SentencePrior.shipped())
    plan = answering.plan("Who wrote this proposal?")
    assert plan.choices == ((1, 1),) and plan.answerable and plan.confidence is not None and plan.confidence > 0.9
