"""Passages that answer: what is found in a document, and what is said of it."""

from __future__ import annotations

from functools import cache
from itertools import pairwise

import numpy as np
import pytest

from triforce_core.documents.document import Document, Page, together
from triforce_core.events import Passages
from triforce_core.evidence.finder import MOST, PassageFinder
from triforce_core.evidence.vector_cache import VectorCache

PAGES = (
    """Rules of the Harbour

By Anna Berg

Published: 3 May 2011

1. Purpose

This document describes how ships enter and leave the harbour. It was made by the council of the town.

2. Fees

Every ship pays a fee before it leaves. The fee is forty crowns for a ship with one mast. Fishing boats pay nothing.

The following are exempt:

- ships of the navy;
- ships in distress;
- pilot boats on duty.
""",
    """3. Lights

The lamp on the north pier burns all night. The keeper lights it at dusk. He counts the ships that pass.

Colour | Meaning | Where
red | danger | south pier
green | free passage | north pier

4. Safety

No ship may enter while a storm blows. The harbour master closes the gate when waves are higher than two metres.
""")


@cache
def finder() -> PassageFinder:
    return PassageFinder(harbour())


def harbour() -> Document:
    pages = tuple(Page(str(at + 1), page) for at, page in enumerate(PAGES))
    return Document("Rules of the Harbour", "txt", pages, "test")


def last(question: str, before: str = "", said: str = "") -> Passages:
    *_, found = finder().find(question, before, said)
    return found


def marked(found: Passages) -> str:
    best = found.passages[0]
    return " ".join(best.text[start:end] for start, end in best.marks)


@pytest.mark.parametrize(("question", "words"), [
    ("How much does a ship with one mast pay?", "forty crowns"),
    ("When does the gate get closed?", "higher than two metres"),
    ("When were the rules published?", "3 May 2011"),
    ("Which vessels do not have to pay?", "nothing"),
])  # fmt: skip
def test_the_marked_words_of_the_first_passage_answer(question: str, words: str) -> None:
    found = last(question)
    first = " ".join(passage.text for passage in found.passages[:3])
    assert words in first and found.level in ("found", "perhaps") and found.final
    assert words in marked(found) or "nothing" in words


def test_a_first_order_comes_before_the_final_one() -> None:
    first, final = finder().find("How much does a ship with one mast pay?")
    assert not first.final and final.final and first.level == "perhaps" and "forty crowns" in first.passages[0].text


def test_what_the_document_lacks_is_not_found() -> None:
    found = last("Who won the football match against Sweden?")
    assert found.level == "not found" and found.passages and found.passages[0].chance < 0.5


def test_a_passage_is_shown_once_and_no_more_than_some() -> None:
    found = last("Which ships pay a fee?")
    assert len(found.passages) <= MOST
    assert len({passage.places for passage in found.passages}) == len(found.passages)


@pytest.mark.parametrize(("question", "words"), [
    ("Who is the author?", "By Anna Berg"), ("who wrote this", "By Anna Berg"),
    ("What is its date?", "Published: 3 May 2011"),
])  # fmt: skip
def test_the_record_that_is_asked_for_comes_first(question: str, words: str) -> None:
    first, final = finder().find(question)
    for found in (first, final):
        assert (found.passages[0].kind, found.passages[0].text, found.passages[0].places[0].page) == ("fact", words, 1)


def test_a_question_about_another_thing_is_not_answered_from_the_record() -> None:
    assert last("Who is the author of the letter about the storm?").passages[0].kind != "fact"


def test_a_row_is_shown_with_the_headings_of_its_table() -> None:
    best = last("What does a green light mean?").passages[0]
    assert best.kind == "row" and "free passage" in best.text and best.lead_in == "Colour | Meaning | Where"


def test_a_list_is_shown_with_what_introduces_it() -> None:
    found = last("Which ships are exempt from the fee?")
    exempt = next(passage for passage in found.passages if passage.kind == "list")
    assert exempt.lead_in == "The following are exempt:" and exempt.text.count("\n") == 2
    assert exempt.path == ("2. Fees",)


def test_a_section_that_is_named_is_searched() -> None:
    found = last("what does section 3 say about the keeper?")
    assert found.section == "3. Lights" and "keeper" in found.passages[0].text


def test_a_summary_of_a_section_stays_within_it() -> None:
    found = last("Summarise section 2")
    assert found.request == "summary" and found.section == "2. Fees" and found.level is None and not found.words
    assert {passage.path for passage in found.passages} == {("2. Fees",)}


def test_a_section_that_is_not_there_is_said() -> None:
    found = last("Summarise section 9")
    assert "section 9" in found.words and "whole document" in found.words and not found.section and found.passages


def test_a_digest_goes_through_the_sections_and_repeats_nothing() -> None:
    found = last("What is this document about?")
    paths = [passage.path for passage in found.passages]
    assert paths == sorted(paths) and len(set(paths)) >= 3
    assert {passage.places[0].page for passage in found.passages} == {1, 2}
    texts = [passage.text for passage in found.passages]
    assert len(set(texts)) == len(texts)


def test_a_digest_says_what_the_text_does_and_finds() -> None:
    finding = "We find that the harbour sold wine to traders as its walls kept out the winds."
    goods = "salt rope cloth wine corn iron glass wool".split()
    parts = [f"{number}. Part {number}\n\n" + "\n\n".join(
        f"The harbour sold {one} to {other} traders, and its walls kept out the {number} winds of {one}."
        for one, other in pairwise(goods)) for number in range(1, 5)]
    parts[1] += "\n\nThis report examines who owns the harbour. Traders sold corn by its walls."
    parts[3] += f"\n\n{finding}\n\nSource: This report of the town, page 4."
    document = Document("Walls", "txt", tuple(Page(str(at), part) for at, part in enumerate(parts, 1)), "walls")
    *_, found = PassageFinder(document).find("Summarise this document")
    told = [passage.text[slice(*passage.marks[0])] for passage in found.passages]
    assert "This report examines who owns the harbour." in told
    assert finding in told
    assert not any("Source" in line for line in told)
    assert {passage.places[0].page for passage in found.passages} == {1, 2, 3, 4}


@pytest.mark.parametrize(("line", "request_"), [("thanks!", "social"), ("translate this into French", "task"),
                                                ("Warum ist das nicht so und wer hat es gebaut?", "language")])
def test_what_no_passage_gives_is_answered_in_the_apps_own_words(line: str, request_: str) -> None:
    found = last(line)
    assert found.request == request_ and found.words and not found.passages and found.level is None


def test_more_is_what_follows_the_passage_shown() -> None:
    said = ("“Every ship pays a fee before it leaves. The fee is forty crowns for a ship with one mast. Fishing boats "
            "pay nothing.”")
    assert last("go on", "How much?", said).passages[0].text.startswith("The following are exempt")


def test_documents_that_are_compared_take_turns() -> None:
    market = Document("Rules of the Market", "txt", (Page("1", """1. Stalls

A stall costs two crowns a day.

2. Hours

The market opens at eight and closes at noon. Nobody sells fish after ten."""),), "test")
    both = PassageFinder(together([harbour(), market]))
    *_, found = both.find("Compare the fee of a ship with the price of a stall.")
    sides = ["Market" in passage.places[0].label for passage in found.passages[:4]]
    assert sides[0] != sides[1] and sides[2] != sides[3]
    assert "two crowns" in found.passages[sides.index(True)].text and "fee" in found.passages[sides.index(False)].text
    *_, found = both.find("How many crowns does a ship with one mast pay?")
    assert "forty crowns" in found.passages[0].text


def test_a_question_that_points_back_is_read_with_the_one_before() -> None:
    assert "dusk" in last("When does he light it?", "Who looks after the lamp on the north pier?").passages[0].text


def test_vectors_of_all_passages_are_made_in_parts_and_kept(tmp_path) -> None:  # type: ignore[no-untyped-def]
    cache_ = VectorCache(tmp_path)
    made = PassageFinder(harbour(), cache_)
    while not made.whole:
        made.make_vectors(3)
    again = PassageFinder(harbour(), cache_)
    assert again.whole and again._vectors is not None and made._vectors is not None
    assert np.abs(again._vectors - made._vectors).max() < 1e-3
    *_, found = again.find("How much does a ship with one mast pay?")
    assert "forty crowns" in marked(found)


def test_an_empty_document_has_no_passages() -> None:
    found = list(PassageFinder(Document("t", "txt", (Page("1", ""),), "test")).find("Who?"))
    assert [one.passages for one in found] == [()] and found[0].final
