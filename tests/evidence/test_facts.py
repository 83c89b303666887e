"""Records of the title page, and the questions that ask for them."""

from __future__ import annotations

import pytest

from triforce_core.documents.document import Document, Page
from triforce_core.evidence.facts import asked_fact, facts_of
from triforce_core.evidence.passages import Text

TITLE = "Rules of the Harbour"


@pytest.mark.parametrize(("question", "record"), [
    ("Who is the author?", "Author"), ("who wrote this", "Author"), ("By whom was the report written?", "Author"),
    ("Who wrote Rules of the Harbour?", "Author"), ("When was it published?", "Date"),
    ("when was this decided", "Date"), ("What year is this from?", "Date"), ("which version is this?", "Version"),
    ("what edition is it", "Version"),
    ("Which court decided this case?", "Court"), ("Who is the publisher?", "Publisher"),
    ("Which agency issued the report?", "Publisher"), ("What is the docket number?", "Number"),
    ("Who delivered the opinion?", "Judge"),
])  # fmt: skip
def test_a_question_about_the_document_itself_asks_for_a_record(question: str, record: str) -> None:
    assert asked_fact(question, TITLE).split()[0].strip(",") == record


@pytest.mark.parametrize("question", [
    "Who is the author of the letter quoted on p. 5?", "When was the first release made?", "Who published the map?",
    "Which court did she appeal to?", "What version of Python is needed?", "When is the fee due?",
    "who decided to close the gate?"])
def test_a_question_about_another_thing_asks_for_none(question: str) -> None:
    assert asked_fact(question, TITLE) == ""


def test_the_publisher_is_a_record() -> None:
    page = Page("1", f"{TITLE}\n\nBy Anna Berg\n\n3 May 2011\n\nPublished by Harbour Press\n\nShips pay a fee.")
    found = facts_of(Text.of(Document(TITLE, "txt", (page,), "test")), TITLE)
    assert [unit.lead_in.split()[0].strip(",") for unit in found] == ["Author", "Date", "Publisher"]
