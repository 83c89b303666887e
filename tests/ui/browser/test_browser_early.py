"""Questions that are asked before their document is read, in headless Chromium."""

from __future__ import annotations

import re

import pytest
from page_steps import answered, ask, upload

from ui.words import chat as chat_words

pytestmark = pytest.mark.browser


def test_answered_now_from_the_pages_that_are_read(served, tab, scripted) -> None:
    scripted.prefill_tokens_per_second, scripted.prefill_chunk = 200.0, 60
    upload(served, tab, words=300, wait=".tf-progress:has-text('Reading')")
    tab.wait_for_selector(f"#transcript .tf-meanwhile:has-text('{chat_words.MEANWHILE_ASK}')")
    ask(tab, "What is told by now?")
    offer = tab.wait_for_selector("#live [data-action=answer-now]")
    assert re.fullmatch(r"Answer now from pages? [\d–]+", offer.inner_text())
    scripted.prefill_tokens_per_second = 1e6
    tab.click("#live [data-action=answer-now]")
    said = tab.wait_for_selector("#transcript .tf-ended:has-text('the rest was still being read')").inner_text()
    assert re.match(r"Answered from pages? [\d–]+ of pages 1–\d+", said)
    tab.wait_for_selector("#head .tf-dot-ok")  # the rest was read behind it


def test_a_short_note_makes_a_long_reading_wait(served, tab, scripted) -> None:
    scripted.prefill_tokens_per_second, scripted.prefill_chunk = 100.0, 20
    long = upload(served, tab, words=900, wait=".tf-progress:has-text('Reading')")
    upload(served, tab, words=3, wait=".tf-fact")
    ask(tab, "What does the note say?")
    answered(tab)
    unread = next(entry for entry in served.services.library.entries() if long.name in (entry.name, entry.title))
    assert served.services.phase(unread) in ("waiting", "loading", "tokenize", "read"), "it was not read first"
    scripted.prefill_tokens_per_second = 1e6
