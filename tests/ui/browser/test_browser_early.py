"""Questions that are asked before their document is read, in headless Chromium."""

from __future__ import annotations

import re

import pytest
from page_steps import ask, upload

from ui.page import chat as chat_words

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
