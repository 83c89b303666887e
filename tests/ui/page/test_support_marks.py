"""Sentences without a passage: marked behind the sentence, counted below the answer, and exported."""

from __future__ import annotations

import json

from triforce_core import Document, Page
from ui.app.conversations import Answer, Conversation
from ui.app.quotes import QuoteFinders
from ui.page import chat, export, markdown
from ui.page import markdown as chat_words
from ui.page.markdown import Citations, no_passage

GOOD, BAD = "The keeper counted forty ships.", "Quantum **computers** factor `n` gates!"
ANSWER = f"{GOOD} {BAD}\n\n- One more: *{BAD}* And “{GOOD}”"
MARK = f">{chat_words.NO_PASSAGE}</span>"


def judged(text: str, sentence: str, found: bool, after: int = 0) -> dict:
    start = text.index(sentence, after)
    return {"start": start, "end": start + len(sentence), "found": found, "score": 0.5, "place": None}


SUPPORT = [judged(ANSWER, GOOD, True), judged(ANSWER, BAD, False), judged(ANSWER, BAD, False, 80)]


def test_the_mark_stands_behind_its_sentence() -> None:
    html = markdown.render(ANSWER, notes=no_passage(ANSWER, SUPPORT))
    assert html.count(MARK) == 2
    assert f"{GOOD} Quantum <strong>computers</strong> factor <code>n</code> gates! <span" in html
    assert html.index(MARK) < html.index("<li>") < html.rindex(MARK) < html.index("And “")
    assert "gates! <span" in html.split("<li>")[1]


def test_quotations_keep_their_chips_beside_it() -> None:
    pages = Document("t", "txt", (Page("4", f"{GOOD} Then he slept."),), "test")
    html = Citations(QuoteFinders()).render(ANSWER, pages, "key", (), SUPPORT)
    assert html.count(MARK) == 2 and html.count("tf-cite") == 1 and html.count("tf-quoted") == 1
    assert "tf-good" not in html and "tf-bad" not in html, "neither praise nor alarm"
    assert Citations(QuoteFinders()).render(ANSWER, None, "key", (), SUPPORT).count(MARK) == 2


def test_a_sentence_that_the_text_does_not_hold_is_left_alone() -> None:
    html = markdown.render(GOOD, notes=[("Nothing of it", "!!"), (GOOD, "??")])
    assert "??" in html and "!!" not in html
    hostile = "<img src=x onerror=alert(1)> stands in the words of this sentence."
    assert "<img" not in markdown.render(hostile, notes=no_passage(hostile, [judged(hostile, hostile, False)]))


def test_below_the_answer_it_is_counted_without_a_promise() -> None:
    assert chat.compared(()) == ""
    assert "2 of 3 sentences" in chat.compared(SUPPORT) and "may be wrong too" in chat.compared(SUPPORT)
    assert "That does not make them right" in chat.compared(SUPPORT[:1])
    item = Answer("a", "c", 0.0, "q?", ANSWER, (), "done", "", {"support": SUPPORT})
    assert chat.compared(SUPPORT) in chat.answer(item, "")


def test_exports_say_it_too() -> None:
    item = Answer("a", "c", 0.0, "q?", ANSWER, (), "done", "", {"support": SUPPORT})
    talk = export.Talk(Conversation("c", "d", "Talk", 0.0, 0.0), "Book", [item], [item], {})
    for kind in ("md", "html"):
        _, content = export.export(talk, kind)
        assert content.count(chat_words.NO_PASSAGE) == 2 and "2 of 3 sentences" in content, kind
    assert json.loads(export.export(talk, "json")[1])["answers"][0]["support"] == SUPPORT
