"""Instructions of a conversation in headless Chromium: written, kept, heeded; closed where none are followed."""

from __future__ import annotations

import dataclasses

import pytest
from little_books import wait_for
from page_steps import answered, ask, more, more_by_keyboard, upload

from ui.page import conversations as conversation_words
from ui.page.conversations import INSTRUCT_HELP, INSTRUCT_NONE

pytestmark = pytest.mark.browser
BOX = "#instructions textarea"


def follows(served, monkeypatch, whether: bool) -> None:
    wait_for(lambda: served.services.queue.model is not None)
    made = dataclasses.replace(served.services.queue.model, instructions=whether)
    monkeypatch.setattr(served.services.queue, "model", made)
    monkeypatch.setattr(served.services.queue._engine, "_model", made)


def test_written_by_keyboard_kept_and_heeded(served, tab, scripted, monkeypatch) -> None:
    follows(served, monkeypatch, True)
    upload(served, tab)
    more_by_keyboard(tab, "#talk-bar", "instruct")
    tab.wait_for_selector(f"#instructing:has-text('{INSTRUCT_HELP[:40]}')")
    tab.wait_for_function(f"document.activeElement === document.querySelector('{BOX}')")  # typing goes on there
    tab.keyboard.type("Answer in French.")
    tab.press(BOX, "Enter")  # a new line, nothing more
    tab.keyboard.press("Tab")
    tab.keyboard.press("Enter")
    tab.wait_for_selector("#instructing", state="hidden")
    tab.wait_for_selector("#talk-bar .tf-more > summary:focus")  # and back
    tab.wait_for_selector(f"#talk-bar [aria-label='{conversation_words.INSTRUCT_SET}']")
    ask(tab, "How many ships?")
    answered(tab)
    assert "It was told: Answer in French." in tab.inner_text("#transcript")
    tab.reload()
    tab.wait_for_selector(f"#talk-bar [aria-label='{conversation_words.INSTRUCT_SET}']")
    more(tab, "#talk-bar", "instruct")
    tab.wait_for_function(f"document.querySelector('{BOX}')?.value === 'Answer in French.'")
    tab.click("#leave-instructions")
    tab.wait_for_selector("#instructing", state="hidden")
    tab.click("#new-conversation")
    tab.wait_for_selector(f"#talk-bar [aria-label='{conversation_words.INSTRUCT_SET}']", state="detached")


def test_closed_for_a_model_that_follows_none(served, tab, scripted, monkeypatch) -> None:
    follows(served, monkeypatch, False)
    upload(served, tab)
    more(tab, "#talk-bar", "instruct")
    tab.wait_for_selector(f"#instructing:has-text('{INSTRUCT_NONE[:40]}')")
    assert tab.is_disabled(BOX)
    assert tab.locator("#keep-instructions:visible").count() == 0
    tab.keyboard.press("Escape")
    tab.wait_for_selector("#instructing", state="hidden")
