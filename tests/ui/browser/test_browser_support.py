"""A free answer on the page: sentences without a passage say so, in the text and below it."""

from __future__ import annotations

import dataclasses

import pytest
from little_books import wait_for
from page_steps import answered, ask, upload

from ui.words import chat as chat_words

pytestmark = pytest.mark.browser


def test_sentences_without_a_passage_are_marked(served, tab, scripted, monkeypatch) -> None:
    wait_for(lambda: served.services.queue.model is not None)
    monkeypatch.setattr(served.services.queue, "model",
                        dataclasses.replace(served.services.queue.model, instructions=True))
    scripted.answer = ("The keeper of Ness 3 counted 301 ships. Quantum computers factor integers with many gates."
                       "\n\nHe said “the sea is a cruel mistress to all”.")
    upload(served, tab)
    ask(tab, "How many ships?")
    answered(tab)
    tab.wait_for_selector(f"#transcript .tf-uncited:has-text('{chat_words.NO_PASSAGE}')")
    paragraph = tab.locator("#transcript .tf-prose p").first.inner_text()
    assert paragraph.startswith("The keeper of Ness 3 counted 301 ships. Quantum")
    assert paragraph.rstrip().endswith(chat_words.NO_PASSAGE) and paragraph.count(chat_words.NO_PASSAGE) == 1
    tab.wait_for_selector(f"#transcript .tf-uncited:has-text('{chat_words.QUOTE_MISSING}')")
    tab.wait_for_selector("#transcript .tf-ended:has-text('1 of 2 sentences')")
