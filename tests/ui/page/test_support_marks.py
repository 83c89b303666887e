"""Judged sentences: their pages or marks behind them, how many are supported below the answer, and exported."""

from __future__ import annotations

import json

from triforce_core import Document, Page
from ui.app.conversations import Answer, Conversation
from ui.app.quotes import QuoteFinders
from ui.page import chat, export, markdown
from ui.page.markdown import CONTRADICTED, NOT_SUPPORTED, Citations, verdicts

GOOD, BAD = "The keeper counted forty ships.", "Quantum **computers** factor `n` gates!"
ANSWER = f"{GOOD} {BAD}\n\n- One more: *{BAD}* And “{GOOD}”"
MARK = f">{NOT_SUPPORTED}</span>"


def judged(text: str, sentence: str, verdict: str, after: int = 0) -> dict:
    start = text.index(sentence, after)
    place = {"page": 1, "label": "4", "start": 0, "end": len(GOOD), "ocr": False}
    return {"start": start, "end": start + len(sentence), "verdict": verdict, "chance": 0.5,
            "places": [] if verdict == "not found" else [place]}


SUPPORT = [judged(ANSWER, GOOD, "supported"), judged(ANSWER, BAD, "not found"),
           judged(ANSWER, BAD, "not found", 80)]


def test_the_mark_stands_behind_its_sentence() -> None:
    html = markdown.render(ANSWER, notes=verdicts(ANSWER, SUPPORT, None))
    assert html.count(MARK) == 2
    assert "Quantum <strong>computers</strong> factor <code>n</code> gates! <span" in html
    assert html.index(MARK) < html.index("<li>") < html.rindex(MARK) < html.index("And “")
    assert "gates! <span" in html.split("<li>")[1]


def test_a_supported_sentence_opens_its_page() -> None:
    html = markdown.render(ANSWER, notes=verdicts(ANSWER, SUPPORT, None))
    chip = html[html.index("<button") : html.index("</button>")]
    assert html.count("<button") == 1 and html.index("forty ships.") < html.index(chip) < html.index("Quantum")
    assert 'data-action="page"' in chip and f'data-spot="1:0-{len(GOOD)}"' in chip and "p. 4" in chip


def test_what_the_document_denies_has_its_page_too() -> None:
    html = markdown.live(GOOD, None, (), [judged(GOOD, GOOD, "contradicted")])
    assert f">{CONTRADICTED}</span><button" in html and 'data-page="1"' in html and MARK not in html


def test_quotations_keep_their_chips_beside_it() -> None:
    pages = Document("t", "txt", (Page("4", f"{GOOD} Then he slept."),), "test")
    html = Citations(QuoteFinders()).render(ANSWER, pages, "key", (), SUPPORT)
    assert html.count(MARK) == 2 and html.count("tf-cite") == 2 and html.count("tf-quoted") == 1
    assert "tf-good" not in html and "tf-bad" not in html, "neither praise nor alarm"
    assert Citations(QuoteFinders()).render(ANSWER, None, "key", (), SUPPORT).count(MARK) == 2


def test_what_a_model_thinks_is_folded_and_not_marked() -> None:
    text = f"<think>Perhaps <b>. {BAD}</think>\n\n{GOOD} {BAD}"
    html = markdown.render(text, notes=[(GOOD, "!!"), (BAD, "??")])
    fold, answer = html.split("</details>")
    assert fold.startswith('<details class="tf-thinking"><summary>Reasoning</summary><p>Perhaps &lt;b&gt;.')
    assert "??" not in fold and "!!" in answer and "??" in answer and "think" not in answer
    assert markdown.render("<think>It is being").endswith("<p>It is being</p>\n</details>"), "while it thinks"
    assert markdown.render(f"Perhaps.\n</think>\n\n{GOOD}").startswith('<details class="tf-thinking">'), "by a template"
    assert "<details" not in markdown.render(f"The mark `</think>` ends it. {GOOD}"), "an answer about the mark"


def test_a_sentence_that_the_text_does_not_hold_is_left_alone() -> None:
    html = markdown.render(GOOD, notes=[("Nothing of it", "!!"), (GOOD, "??")])
    assert "??" in html and "!!" not in html
    hostile = "<img src=x onerror=alert(1)> stands in the words of this sentence."
    notes = verdicts(hostile, [judged(hostile, hostile, "not found")], None)
    assert "<img" not in markdown.render(hostile, notes=notes)


def test_below_the_answer_it_is_counted() -> None:
    assert chat.compared(()) == ""
    assert chat.compared(SUPPORT) == "1 of 3 sentences are supported by the document."
    assert chat.compared(SUPPORT[1:2]) == "The sentence is not supported."
    item = Answer("a", "c", 0.0, "q?", ANSWER, (), "done", "", {"support": SUPPORT})
    assert chat.compared(SUPPORT) in chat.answer(item, "")
    older = Answer("a", "c", 0.0, "q?", ANSWER, (), "done", "", {"support": [{"start": 0, "end": 9, "found": True}]})
    assert "sentence" not in chat.answer(older, "")


def test_exports_say_it_too() -> None:
    support = [*SUPPORT, judged(ANSWER, f"“{GOOD}”", "contradicted")]
    item = Answer("a", "c", 0.0, "q?", ANSWER, (), "done", "", {"support": support})
    talk = export.Talk(Conversation("c", "d", "Talk", 0.0, 0.0), "Book", 9, [item], [item], {})
    for kind in ("md", "html"):
        _, content = export.export(talk, kind)
        assert content.count(NOT_SUPPORTED) == 2 and "1 of 4 sentences" in content, kind
        assert "ships.” p. 4 (1 of 9)" in content and f"{CONTRADICTED}: p. 4 (1 of 9)" in content, kind
    assert json.loads(export.export(talk, "json")[1])["answers"][0]["support"] == support
