"""Questions that name a table, and the row that they ask for."""

from __future__ import annotations

import pytest

from triforce_core.evidence.answering import Answering
from triforce_core.evidence.sentence_index import SentenceIndex
from triforce_core.evidence.sentence_prior import SentencePrior
from triforce_core.evidence.table_rows import asked_row
from triforce_core.evidence.word_vectors import WordVectors

LINES = ["Ships by harbour", "The inspectors counted the ships of every harbour in spring.", "Harbour | Ships | Rotten",
         "Hull | 57 | 9", "Whitby | 12 | 4", "Leith | 31 | 0", "Most of the rotten ships lay at Whitby.",
         "What pilots earn", "Type of pilot | Type of pay", "Pay of a sea pilot | By the ship",
         "Type of river pilot | By the day"]


@pytest.fixture(scope="module")
def index() -> SentenceIndex:
    return SentenceIndex(LINES, list(range(len(LINES))), WordVectors.shipped())


@pytest.mark.parametrize(("question", "row"), [
    ("According to the table, how many ships has Leith?", 5), ("in table 1, how many are rotten at Whitby", 4),
    ("What does the row on Hull say?", 3), ("in the table of what pilots earn, what of the river pilot?", 10),
    ("how many ships has Leith?", None), ("In the table, how many ships has Dover lost in the war?", None),
    ("what does the table of contents say of Leith?", None),
])
def test_the_row_is_found(index: SentenceIndex, question: str, row: int | None) -> None:
    assert asked_row(index, question) == (None if row is None else (row, row))


def test_a_row_is_quoted_whole() -> None:
    """Full stops in its cells or not."""
    sentences = ["Harbour | Rule", "Hull | Ships wait. | They pay twice.", "Leith | Ships go in."]
    parts = ["Harbour | Rule", "Hull | Ships wait.", "| They pay twice.", "Leith | Ships go in."]
    whole = SentenceIndex(sentences, [0, 1, 2], WordVectors.shipped())
    split = SentenceIndex(parts, [0, 1, 1, 2], WordVectors.shipped())
    assert asked_row(whole, "in the table, what of Hull") == (1, 1)
    assert asked_row(split, "in the table, what of Hull") == (1, 2)


def test_without_a_table_there_is_no_row() -> None:
    assert asked_row(SentenceIndex(["Hull has 57 ships."], [0], WordVectors.shipped()), "in the table, Hull") is None


def test_the_answer_is_that_row(index: SentenceIndex) -> None:
    plan = Answering(index, SentencePrior.shipped()).plan("According to the table, how many ships has Leith?")
    assert plan.choices == ((5, 5),) and plan.answerable
