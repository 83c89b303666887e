"""Finished answers: doubt is shown, and quotations can be read in their context."""

from __future__ import annotations

from ui.app.conversations import Answer
from ui.page import chat

QUOTE = {"number": 0, "start": 1, "end": 10, "closed": True, "count": 1, "occurrences": [],
         "before": "It <was> dark.", "after": "He left."}


def test_an_answer_that_found_nothing_looks_doubtful() -> None:
    sure, doubtful = (Answer("a", "c", 0.0, "Who?", "“He came.”", (), "done", "", {"answerable": told})
                      for told in (True, False))
    assert "tf-doubtful" in chat.answer(doubtful, "") and "tf-doubtful" not in chat.answer(sure, "")


def test_an_answer_cut_off_says_whether_it_went_in_circles() -> None:
    new = " ".join(f"Clause {number} says something else." for number in range(30))
    said = {text: chat.answer(Answer("a", "c", 0.0, "Why?", text, (), "done", "", {"reason": "length"}), "")
            for text in (new, new + " The law is a law that protects people by being law." * 4, "Yes.")}
    assert all("longest answer allowed" in shown for shown in said.values())
    assert ["repeats itself" in shown for shown in said.values()] == [False, True, False]


def test_neighbours_of_a_quotation_are_folded_away_and_escaped() -> None:
    shown = chat.in_context("“He came.”", [QUOTE])
    assert "It &lt;was&gt; dark." in shown and "He left." in shown and "<details" in shown
    assert chat.in_context("“He came.”", [{**QUOTE, "before": "", "after": ""}]) == ""
    shown = chat.in_context("“He came.”", [{**QUOTE, "before": "", "after": "", "lead_in": "Guests <all>:"}])
    assert shown == '<p class="tf-lead-in">Under: Guests &lt;all&gt;:</p>'
    assert chat.in_context("“He came.”", [{**QUOTE, "closed": False}]) == ""
