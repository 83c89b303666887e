"""Small things that a person stumbles over, in headless Chromium: each was wrong once."""

from __future__ import annotations

import pytest
from page_steps import answered, ask, upload

from ui.app.questions import ONE_AT_A_TIME
from ui.page import chat as chat_words
from ui.page.markdown import QUOTE_MISSING

pytestmark = pytest.mark.browser


def test_the_refusal_goes_with_its_reason(served, tab, scripted) -> None:
    upload(served, tab)
    scripted.triforce_tokens_per_second = 30
    ask(tab, "How many ships?")
    tab.wait_for_selector("#live .tf-streaming")
    ask(tab, "And how many more?")
    tab.wait_for_selector(f"#notice:has-text('{ONE_AT_A_TIME}')")
    scripted.triforce_tokens_per_second = 1e6
    answered(tab)
    tab.wait_for_function("!document.querySelector('#notice').innerText.trim()", timeout=3000)
    assert tab.input_value("#question textarea") == "And how many more?"


def test_copied_words_read_like_words(served, tab, scripted) -> None:
    path = served.folder / "copied words.txt"
    said = "The ferry crossed at noon and came back empty"
    path.write_text("\f".join(f"{said}. Page {page}." for page in range(1, 13)))
    tab.set_input_files("#upload input[type=file]", str(path))
    tab.wait_for_selector(".tf-title:has-text('copied words')")
    tab.wait_for_selector("#head .tf-dot-ok")
    scripted.answer = f'It says: "{said}" often, and "the moon was made of cheese".'
    scripted.triforce_tokens_per_second = 1e6
    ask(tab, "What of the ferry?")
    answered(tab)
    tab.context.grant_permissions(["clipboard-read", "clipboard-write"])
    tab.click("#transcript [data-copy=answer]")
    tab.wait_for_selector(f"#transcript .tf-copy:has-text('{chat_words.COPIED}')")
    copied = tab.evaluate("navigator.clipboard.readText()")
    assert " (p. 1, p. 2, p. 3 and 9 more places) often" in copied
    assert f"({QUOTE_MISSING})" in copied
    assert tab.locator("#transcript .tf-cite").count() == 3  # the answer itself is as it was


def test_the_end_of_the_chat_stays_in_sight_when_a_page_opens(served, tab, scripted) -> None:
    upload(served, tab)
    scripted.answer = " ".join(["The keeper counted the ships before the storm reached the harbour."] * 12)
    scripted.triforce_tokens_per_second = 1e6
    for number in (1, 2):
        ask(tab, f"How many ships on day {number}?")
        answered(tab, number)
    wide = tab.evaluate("document.getElementById('chat-scroll').clientWidth")
    tab.click("#strip .tf-page >> nth=2")
    tab.wait_for_function(f"document.getElementById('chat-scroll').clientWidth < {wide} - 20")
    tab.wait_for_function("""() => {
      const box = document.getElementById('chat-scroll');
      return box.scrollHeight - box.scrollTop - box.clientHeight < 5;
    }""", timeout=3000)
