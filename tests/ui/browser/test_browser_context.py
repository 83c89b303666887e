"""How full the context is, in headless Chromium: the figure above the chat, the warning, and the way on."""

from __future__ import annotations

import pytest
from page_steps import answered, ask, upload

from ui.page import conversations as conversation_words
from ui.page.chat import CARRIED

pytestmark = pytest.mark.browser


def test_a_full_context_leads_into_a_new_conversation(served, tab, scripted) -> None:
    upload(served, tab)
    ask(tab, "First question?")
    answered(tab)
    tab.wait_for_selector(".tf-context-menu")
    assert tab.locator("#context-note button").count() == 0
    (talk,) = served.services.conversations.of(served.services.library.entries()[0].id)
    (answer,) = served.services.conversations.answers(talk.id)
    figures = answer.result["figures"] | {"reused_tokens": 32_700}
    served.services.conversations.save(answer.id, text=answer.text, token_ids=answer.token_ids, state="done", error="",
                                       result=answer.result | {"figures": figures})
    tab.wait_for_selector(f"#context-note:has-text('{conversation_words.CONTEXT_FULL}')")
    tab.click("#context-note [data-action=continue]")
    tab.wait_for_selector(f"#transcript:has-text('{CARRIED}')")
    tab.wait_for_selector("#context-note button", state="detached")
    answered(tab)
    tab.wait_for_function("document.querySelectorAll('.tf-talk').length === 2")
    ask(tab, "And on?")
    answered(tab, 2)
    tab.click(".tf-context-menu summary")  # also on request
    tab.click(".tf-context-menu [data-action=continue]")
    tab.wait_for_function("document.querySelectorAll('.tf-talk').length === 3")
    answered(tab, 2)
