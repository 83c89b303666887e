"""Conversations in headless Chromium: branches, names, search, downloads, the keyboard, and what streaming costs."""

from __future__ import annotations

import dataclasses
import json
import uuid
from pathlib import Path

import pytest
from little_books import wait_for
from page_steps import answered, ask, more, more_by_keyboard, upload

from ui.app.questions import SAME_SEED_TITLE, Suggestions
from ui.page import conversations as conversation_words
from ui.page import library as library_words
from ui.page.chat import CARRIED, VERSION_BEFORE
from ui.page.conversations import INSTRUCT_HELP, INSTRUCT_NONE

pytestmark = pytest.mark.browser


def test_edit_ask_again_and_versions_by_keyboard(served, tab, scripted) -> None:
    upload(served, tab)
    ask(tab, "How many ships?")
    answered(tab)
    tab.press("#question textarea", "ArrowUp")  # rewords the last question
    tab.wait_for_selector("#editing .tf-editing")
    assert tab.input_value("#question textarea") == "How many ships?"
    tab.keyboard.press("Escape")
    tab.wait_for_selector("#editing .tf-editing", state="detached")
    assert tab.input_value("#question textarea") == ""
    tab.keyboard.press("ArrowUp")
    tab.wait_for_selector("#editing .tf-editing")
    tab.keyboard.type(" And when?")
    tab.keyboard.press("Enter")
    tab.wait_for_selector("#transcript .tf-tools:has-text('2 of 2')")
    assert tab.inner_text("#transcript .tf-bubble") == "How many ships? And when?"
    tab.focus(f"#transcript [aria-label='{VERSION_BEFORE}']")
    tab.keyboard.press("Enter")
    tab.wait_for_selector("#transcript .tf-tools:has-text('1 of 2')")
    assert tab.inner_text("#transcript .tf-bubble") == "How many ships?"
    tab.press("#question textarea", "Control+Enter")
    tab.wait_for_selector(f"#notice:has-text('{SAME_SEED_TITLE}')")
    tab.wait_for_selector("#transcript .tf-tools:has-text('3 of 3')")


def test_rename_search_and_find_again(served, tab, scripted) -> None:
    upload(served, tab)
    mark = uuid.uuid4().hex[:10]
    scripted.answer = f"The word was {mark}, and <b>nobody</b> knew it."
    ask(tab, "Which word?")
    answered(tab)
    more(tab, "#talk-bar", "rename")
    tab.fill("#new-title input, #new-title textarea", "The word <i>")
    tab.press("#new-title input, #new-title textarea", "Enter")
    tab.wait_for_selector("#talk-bar .tf-talk-title:has-text('The word <i>')")
    tab.wait_for_selector("#renaming", state="hidden")
    upload(served, tab)  # another document is open now
    tab.keyboard.press("Control+k")
    tab.keyboard.type(mark)
    tab.wait_for_selector(f".tf-hit mark:has-text('{mark}')")
    assert tab.locator(".tf-hit").count() == 1 and "The word <i>" in tab.inner_text(".tf-hit")
    tab.press("#search input, #search textarea", "Tab")
    tab.keyboard.press("Enter")
    tab.wait_for_selector(f"#transcript:has-text('{mark}')")
    tab.wait_for_selector(".tf-docs")  # the library again


def test_exports_are_downloaded(served, tab, scripted) -> None:
    upload(served, tab)
    scripted.answer = "A harbour."
    ask(tab, "Where?")
    answered(tab)
    for kind in ("md", "json", "html"):
        tab.click("#talk-bar .tf-more > summary")
        with tab.expect_download() as coming:
            tab.click(f"#talk-bar [data-kind={kind}]")
        assert coming.value.suggested_filename == f"Where.{kind}"
        text = Path(coming.value.path()).read_text(encoding="utf-8")
        assert "A harbour." in text
        if kind == "json":
            assert json.loads(text)["answers"][0]["figures"]["tokens"] == 2
        if kind == "html":  # it needs nothing: the page opens without a single request
            page = tab.context.new_page()
            page.on("request", lambda request: pytest.fail(request.url))
            page.set_content(text)
            assert "A harbour." in page.inner_text("body")
            page.close()


def test_a_starter_is_asked_and_the_keys_are_told(served, tab, scripted) -> None:
    suggestions = Suggestions(served.services.library, served.services.conversations, served.services.queue,
                              served.services.views.documents, patience=0.1)
    suggestions.start()  # a real app has its own
    upload(served, tab)
    tab.wait_for_selector(".tf-starters button")
    suggestions.close()
    first = tab.inner_text(".tf-starters button >> nth=0")
    tab.focus(".tf-starters button >> nth=0")
    tab.keyboard.press("Enter")
    answered(tab)
    assert tab.inner_text("#transcript .tf-bubble") == first
    tab.evaluate("document.activeElement.blur()")
    tab.keyboard.press("?")
    tab.wait_for_selector("#key-table[open]")
    for keys, what in conversation_words.SHORTCUTS:
        assert what in tab.inner_text("#key-table"), keys
    tab.keyboard.press("Escape")
    tab.wait_for_selector("#key-table", state="hidden")
    tab.keyboard.press("/")
    assert tab.evaluate("document.activeElement.closest('#question') !== null")
    tab.keyboard.press("Alt+n")
    tab.wait_for_selector("#transcript .tf-welcome")


def test_a_preset_fills_the_form_and_is_kept(served, tab) -> None:
    tab.click("button[role=tab]:has-text('Settings')")
    tab.click("#preset-creative")
    tab.wait_for_selector("#settings-result .tf-card-info")
    assert served.services.settings.temperature == 1.0 and served.services.settings.top_p == 0.95
    tab.wait_for_function("document.querySelector('#set-temperature input[type=number]').value === '1'")
    tab.click("#preset-precise")
    tab.wait_for_function("document.querySelector('#set-temperature input[type=number]').value === '0'")
    assert served.services.settings.temperature == 0.0
    tab.wait_for_selector("#preset-precise:has-text('✓ Precise')")


WORK = """() => { window.work = {updates: 0, letters: 0, nodes: 0, bytes: 0};
  new MutationObserver(records => {
    work.updates += 1;
    work.letters += document.querySelector('#live').innerText.length;
    for (const record of records) {
    const changed = record.type === 'characterData' ? [record.target] : record.addedNodes;
    for (const node of changed) {
      work.nodes += 1 + (node.querySelectorAll ? node.querySelectorAll('*').length : 0);
      work.bytes += (node.outerHTML ?? node.data ?? '').length;
    }
  } }).observe(document.querySelector('#center'), {childList: true, subtree: true, characterData: true}); }"""


def test_streaming_costs_the_same_in_a_long_chat(served, tab, scripted) -> None:
    """Nodes per update, and bytes per letter shown, put into the page while an answer is written, and bytes that come
    from the server for it (what has not changed is compared there by the browser, however long it is): with 10 messages
    and with 100. (How many updates there are depends on the machine's load; at most ten a second.)"""
    upload(served, tab)
    wire, came = tab.context.new_cdp_session(tab), [0]
    wire.on("Network.dataReceived", lambda event: came.append(event["dataLength"]))
    wire.send("Network.enable")
    scripted.answer, scripted.triforce_tokens_per_second = "The harbour was quiet. " * 60, 4000.0
    ask(tab, "Begin?")
    answered(tab)
    talks = served.services.conversations
    (talk,) = talks.of(served.services.library.entries()[0].id)
    result = talks.answers(talk.id)[0].result
    costs = {}
    for messages in (10, 100):
        while len(talks.answers(talk.id)) < messages // 2:
            key = uuid.uuid4().hex
            talks.begin(key, talk.id, "An earlier question?")
            talks.save(key, text="An earlier answer. " * 40, token_ids=(1,), state="done", error="", result=result)
        answered(tab, messages // 2)
        scripted.triforce_tokens_per_second = 40.0
        ask(tab, "One more?")
        tab.wait_for_function("document.querySelector('#live .tf-streaming')?.innerText.length > 40")
        tab.evaluate(WORK)
        letters, stretches = tab.evaluate("document.querySelector('#live .tf-streaming').innerText.length"), []
        for _ in range(3):  # what comes by the clock falls into some of them, however fast words come
            before, begun = sum(came), letters
            tab.wait_for_function(f"document.querySelector('#live .tf-streaming')?.innerText.length > {begun + 60}")
            letters = tab.evaluate("document.querySelector('#live .tf-streaming').innerText.length")
            stretches.append((sum(came) - before) / (letters - begun))
        work = tab.evaluate("work")
        costs[messages] = {"nodes": work["nodes"] / work["updates"], "bytes": work["bytes"] / work["letters"],
                           "wire": min(stretches)}
        scripted.triforce_tokens_per_second = 4000.0
        answered(tab, messages // 2 + 1)
        talks.delete(talk.id) if messages == 100 else None
    assert costs[10]["nodes"] >= 1 and costs[10]["wire"] > 0.5
    # The figures beside the chat come by the clock, not by the update; a transcript sent again would cost four times.
    for name, most in (("nodes", 1.2), ("bytes", 1.2), ("wire", 2.0)):
        assert costs[100][name] <= most * costs[10][name], costs


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


def delete(tab, item: str) -> None:
    tab.hover(item)
    tab.click(f"{item} > .tf-delete")
    tab.click(f"{item} > .tf-delete:has-text('{library_words.DELETE_SURE}')")


def test_a_deleted_document_comes_back_after_a_reload(served, tab) -> None:
    path = upload(served, tab)
    ask(tab, "How many ships?")
    answered(tab)
    delete(tab, f".tf-doc:has-text('{path.stem}')")
    tab.wait_for_selector(f".tf-doc:has-text('{path.stem}')", state="detached")
    tab.wait_for_selector("#transcript .tf-welcome")
    tab.reload()
    tab.click("#undo")
    tab.wait_for_selector(f".tf-title:has-text('{path.stem}')")
    answered(tab)


def test_undo_by_keyboard(served, tab) -> None:
    upload(served, tab)
    ask(tab, "How many ships?")
    answered(tab)
    tab.focus(".tf-talk:has-text('How many') > .tf-delete")
    tab.keyboard.press("Enter")
    tab.wait_for_selector(".tf-delete.tf-armed")
    tab.keyboard.press("Enter")
    tab.wait_for_function("document.activeElement.id === 'undo'")
    tab.keyboard.press("Enter")
    tab.wait_for_selector(".tf-talk:has-text('How many')")
    delete(tab, ".tf-talk:has-text('How many')")
    tab.wait_for_selector(".tf-toast")
    tab.evaluate("document.activeElement.blur()")
    tab.keyboard.press("Control+z")
    tab.wait_for_selector(".tf-talk:has-text('How many')")
