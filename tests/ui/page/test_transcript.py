"""Finished answers: how they ended, and the passages above them."""

from __future__ import annotations

import json
from dataclasses import asdict, replace

import pytest

from tests.scripted_evidence import ScriptedEvidence
from triforce_core import Document, Page
from triforce_core.events import Passage, Passages, QuotePlace
from ui.app.conversations import Answer, Conversation
from ui.page import chat
from ui.page.export import Talk, export
from ui.page.passages import Side, drawn

BOOK = Document("b", "txt", tuple(Page(str(n), f"Nobody <came> on day {n}. The keeper of Ness {n} counted ships.")
                                  for n in range(1, 8)), "t")


def found(level: str | None = "found", document: Document = BOOK) -> dict:
    evidence = ScriptedEvidence()
    evidence.level = level
    *_, passages = evidence.find(document, "Which keeper counted?")
    return asdict(passages)


def test_the_best_passage_stands_in_full_two_below_it_the_rest_folded() -> None:
    shown = drawn(found())
    above, folded = shown.split("<details>")
    assert "Found" in above and above.count("tf-best") == 1 and above.count('class="tf-other"') == 2
    assert folded.count('class="tf-other"') == 5 and "5 more passages" in folded
    assert "The <mark>keeper</mark> of Ness 1 <mark>counted</mark> ships." in above and "Part 1" in above
    assert 'data-page="1" data-spot="1:28-34;1:45-52"' in above, "the page opens with the answering words marked"
    assert "&lt;came&gt;" in shown and "<came>" not in shown


def test_a_right_passage_is_never_hidden_whatever_the_level() -> None:
    for level, words in (("perhaps", "Perhaps"), ("not found", "Not found in this document: closest passages")):
        shown = drawn(found(level))
        assert words in shown and "of Ness 1 " in shown
    digest = drawn(found(None))
    assert digest.count("tf-best") == 8 and "<details" not in digest
    assert "Looking for passages" in drawn(None, searched=False) and drawn(None) == ""
    assert "it ended &lt;here&gt;" in drawn(None, "it ended <here>")


def test_passages_of_two_documents_stand_beside_each_other() -> None:
    sides = [Side("One <book>", 1, 3), Side("Another", 4, 7)]
    shown = drawn(found(), sides=sides)
    assert shown.count("tf-best") == 2 and shown.index("One &lt;book&gt;") < shown.index("Another")
    assert "tf-sides" not in drawn(found(document=BOOK.select(1, 3)), sides=sides)


def test_passages_and_what_is_spelled_name_label_and_place() -> None:
    book = replace(BOOK, pages=(Page("iv", BOOK.pages[0].text), *BOOK.pages[1:]))
    sides, item = [Side("Book", 1, 7)], Answer("a", "c", 0.0, "Who?", "“Nobody came.”", (), "done", "", {
        "found": found(document=book), "spelled": True})
    shown = chat.answer(item, "", sides=sides)
    assert "Spelled from p. iv (1 of 7), not written" in shown and 'title="Open p. iv (1 of 7)"' in shown
    assert ">p. iv (1 of 7)</button>" in shown and ">p. 2</span>" in shown
    talk = Talk(Conversation("c", "d", "Ships", 0.0, 0.0), "Book", 7, [item], [item], {})
    assert "p. iv \\(1 of 7\\) › Part 1" in export(talk, "md")[1]


def test_what_is_spelled_says_so_and_from_where() -> None:
    item = Answer("a", "c", 0.0, "Who?", "“Nobody came.”", (), "done", "", {"found": found(), "spelled": True})
    assert "Spelled from p. 1, not written" in chat.answer(item, "")
    free = Answer("a", "c", 0.0, "Who?", "Nobody.", (), "done", "", {"found": found()})
    assert "Spelled" not in chat.answer(free, "") and "tf-found" in chat.answer(free, "")


def test_a_long_passage_is_cut_before_its_answering_words() -> None:
    text = "word " * 60 + "and here it is."
    one = Passage((QuotePlace(1, "1", 0, len(text)),), text, marks=((304, 312),))
    shown = drawn(asdict(Passages("q", "sentence", (one, one), "found")))
    assert shown.count("<mark>here it </mark>") == 2 and "… word" in shown


@pytest.mark.parametrize("kind", ["md", "html", "json"])
def test_exports_carry_passages_with_level_and_page(kind: str) -> None:
    item = Answer("a", "c", 0.0, "Who?", "“Nobody came.”", (), "done", "", {"found": found("perhaps"), "spelled": True})
    talk = Talk(Conversation("c", "d", "Ships", 0.0, 0.0), "Book", 9, [item], [item], {})
    text = export(talk, kind)[1]
    if kind == "json":
        kept = json.loads(text)["answers"][0]
        assert kept["passages"] == json.loads(json.dumps(found("perhaps"))) and kept["spelled"] is True
        return
    words = "The **keeper** of Ness 1" if kind == "md" else "The <strong>keeper</strong> of Ness 1"
    assert words in text and "Perhaps" in text and "p. 1 › Part 1" in text and "<came>" not in text
    assert "Spelled from p. 1, not written" in text


def test_a_long_question_scrolls_in_its_bubble_and_can_be_reached_by_keyboard() -> None:
    assert 'tabindex="0"' in chat.question("word " * 100) and "tabindex" not in chat.question("Why?")
