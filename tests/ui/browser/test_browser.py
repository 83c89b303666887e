"""The page in headless Chromium, on the scripted engine: what a person does, in the order in which they do it."""

from __future__ import annotations

import re
import time
import uuid
from pathlib import Path

import pytest
from little_books import wait_for, write_book
from page_steps import answered, ask, statistics, upload, visit

from ui.page import chat as chat_words
from ui.page import figures as figure_words
from ui.page import library as library_words
from ui.page import race as race_words

pytestmark = pytest.mark.browser


def test_upload_ask_stream_and_look_at_a_page(served, tab, scripted) -> None:
    upload(served, tab)
    scripted.triforce_tokens_per_second = 40  # three seconds: also a busy machine draws it in several steps
    assert "6 pages" in tab.inner_text("#head")
    tab.fill("#question textarea", "one")
    tab.press("#question textarea", "Shift+Enter")
    tab.keyboard.type("two ships?")
    assert tab.input_value("#question textarea") == "one\ntwo ships?"
    # Noted in the page itself: a test that looks now and then may see a short answer only when it is whole.
    tab.evaluate("""() => {
        window.lengths = new Set();
        const note = () => window.lengths.add(document.querySelector('#live .tf-streaming')?.innerText.length ?? 0);
        new MutationObserver(note).observe(document.body, {childList: true, subtree: true, characterData: true});
    }""")
    composed = "new KeyboardEvent('keydown', {key: 'Enter', keyCode: 229, bubbles: true, cancelable: true})"
    assert tab.evaluate(f"document.querySelector('#question textarea').dispatchEvent({composed})"), "Safari's order"
    tab.keyboard.press("Enter")
    tab.wait_for_selector("#live .tf-streaming")
    assert tab.input_value("#question textarea") == ""
    answered(tab)
    assert tab.evaluate("window.lengths.size") > 3  # it grew
    assert tab.inner_text("#live").strip() == ""
    line = tab.inner_text("#transcript .tf-line summary")
    # Nobody has measured plain decoding.
    assert re.fullmatch(r"first word [\d.]+ s, last [\d.]+ s( \(.+\))?, spelling: [\d.,]+ tok/s\s+"
                        "Details.*", line, re.DOTALL)
    assert not tab.is_visible("#transcript .tf-badge")
    tab.click("#transcript .tf-line summary")
    line = tab.inner_text("#transcript .tf-line")
    for text in (figure_words.PER_PASS_SHORT, figure_words.SPECULATION_ON, "Model: Scripted target"):
        assert text in line
    assert not tab.is_visible("#figures")  # nobody has asked for statistics
    assert tab.get_attribute("#statistics > button", "aria-expanded") == "false"
    statistics(tab)
    assert tab.get_attribute("#statistics > button", "aria-expanded") == "true"
    tab.wait_for_selector(f"#figures:has-text('{figure_words.LAST_ANSWER}')")
    highest = "Math.max(...[...document.querySelectorAll('.tf-page')].map(c => +c.style.getPropertyValue('--i'))) == 1"
    tab.wait_for_function(highest)  # the strip comes after the figures
    assert tab.locator(".tf-page").count() == 6
    tab.click(".tf-page >> nth=3")
    tab.wait_for_selector("#page .tf-page-text:has-text('Ness 4')")
    tab.focus(".tf-page.tf-selected")
    tab.keyboard.press("ArrowRight")
    tab.keyboard.press("Enter")
    tab.wait_for_selector("#page .tf-page-text:has-text('Ness 5')")


def test_stop_keeps_what_was_written(served, tab, scripted) -> None:
    upload(served, tab)
    scripted.triforce_tokens_per_second = 25
    ask(tab, "How many ships?")
    tab.wait_for_function("(document.querySelector('#live .tf-streaming')?.innerText ?? '').split(' ').length > 3")
    tab.keyboard.press("Escape")
    tab.wait_for_selector(f"#transcript:has-text('{chat_words.STOPPED}')", timeout=2000)
    assert len(tab.inner_text("#transcript .tf-prose")) > 5
    tab.wait_for_selector("#stop", state="hidden")


def test_reload_and_second_tab_join_the_answer(served, tab, scripted) -> None:
    upload(served, tab)
    scripted.triforce_tokens_per_second = 8  # the tabs must find it still going
    ask(tab, "How many ships?")
    tab.wait_for_selector("#live .tf-streaming")
    tab.reload()
    tab.wait_for_selector("#live .tf-streaming")
    before = len(tab.inner_text("#live"))
    second = tab.context.new_page()
    second.goto(served.url)
    second.wait_for_selector("#live .tf-streaming")
    tab.wait_for_function(f"document.querySelector('#live').innerText.length > {before}")
    second.click("#stop")  # stops it everywhere
    for page in (tab, second):
        page.wait_for_selector(f"#transcript:has-text('{chat_words.STOPPED}')", timeout=2000)


def test_closing_the_tab_stops_nothing(served, tab, scripted) -> None:
    upload(served, tab)
    ask(tab, "How many ships?")
    tab.wait_for_selector("#live .tf-streaming")
    (run,) = served.services.runs.active()
    again = tab.context.new_page()
    tab.close()
    wait_for(lambda: run.ended)
    assert run.state == "done"
    again.goto(served.url)
    answered(again)


def test_a_sleeping_tab_catches_up(served, tab) -> None:
    upload(served, tab)
    tab.evaluate("document.getElementById('asleep').click()")
    time.sleep(0.5)
    name = f"{uuid.uuid4().hex[:8]}.txt"
    served.services.library.add(write_book(served.folder, name, 3, 90))
    time.sleep(0.5)
    assert name not in tab.inner_text("#documents")
    tab.evaluate("document.getElementById('awake').click()")
    tab.wait_for_selector(f"#documents:has-text('{name}')")


def test_more_tabs_than_a_browser_has_connections(served, tab) -> None:
    others = []
    for _ in range(7):  # none of them is hidden: Chromium shows each in a window of its own here
        others.append(tab.context.new_page())
        others[-1].goto(served.url)
        others[-1].wait_for_selector("#transcript .tf-welcome")
    name = f"{uuid.uuid4().hex[:8]}.txt"
    path = served.folder / name
    path.write_text(f"A note, {name}.")  # words that no other test has added
    served.services.library.add(path)
    others[-1].wait_for_selector(f"#documents:has-text('{name}')")
    assert name not in tab.inner_text("#documents"), "it was used longest ago, and sleeps"
    tab.evaluate("window.dispatchEvent(new Event('focus'))")
    tab.wait_for_selector(f"#documents:has-text('{name}')")


def test_closed_tabs_leave_no_loop_behind(served, tab, monkeypatch) -> None:
    from ui.page import layout
    from ui.page.layout import Painter

    seen: set[int] = set()
    changes = Painter.changes
    monkeypatch.setattr(Painter, "changes", lambda self: (seen.add(id(self)), changes(self))[1])
    monkeypatch.setattr(layout, "PULSE", 1.0)
    pages = [tab.context.new_page() for _ in range(2)]
    for page in pages:
        page.goto(served.url)
        page.wait_for_selector("#transcript .tf-welcome")
    wait_for(lambda: len(seen) >= 3)
    for page in pages:
        page.close()

    def loops() -> int:
        seen.clear()
        time.sleep(0.5)
        return len(seen)

    wait_for(lambda: loops() == 1, 10.0)


def test_conversations(served, tab) -> None:
    upload(served, tab)
    ask(tab, "First question?")
    answered(tab)
    tab.click("#new-conversation")
    tab.wait_for_selector("#transcript .tf-welcome")
    ask(tab, "Second question?")
    answered(tab)
    assert tab.locator(".tf-talk").count() == 2
    tab.click(".tf-talk-open:has-text('First')")
    tab.wait_for_selector("#transcript .tf-bubble:has-text('First')")
    tab.hover(".tf-talk:has-text('First')")
    asked = tab.evaluate("""async () => {  // in one go: the question goes away after three seconds
      const find = () => [...document.querySelectorAll('.tf-talk')].find(talk => talk.textContent.includes('First'));
      const talk = find();
      talk.querySelector('.tf-delete').click();
      const button = talk.querySelector('.tf-delete');
      button.classList.remove('tf-armed');
      button.textContent = button.dataset.label;
      talk.replaceWith(talk.cloneNode(true));  // as a redraw between the two clicks does
      await new Promise(requestAnimationFrame);
      const again = find().querySelector('.tf-delete'), said = again.textContent;
      again.click();
      return said;
    }""")
    assert asked == library_words.DELETE_SURE
    tab.wait_for_function("document.querySelectorAll('.tf-talk').length === 1")
    tab.wait_for_selector("#transcript .tf-welcome")


def test_race(served, tab) -> None:
    upload(served, tab)
    tab.fill("#question textarea", "How many ships?")
    tab.click("#race-now")
    tab.wait_for_selector("#race-board:has-text('Waiting for its turn')")
    tab.wait_for_selector("#same-words")
    assert race_words.SAME in tab.inner_text("#same-words")
    assert re.search(r"TriForce was \d\.\d\d times as fast", tab.inner_text(".tf-speedup"))
    tab.click("#tab-chat-button")
    for number, question in enumerate(("How many ships?", "And another?"), 1):
        ask(tab, question)
        answered(tab, number)
    lines = tab.locator("#transcript .tf-line summary").all_inner_texts()
    assert re.search(r"tok/s, \d\.\d× plain", lines[0]) and "plain" not in lines[1]  # measured on the first alone
    tab.click("#tab-race-button")
    clocks = tab.locator(".tf-lane-clock")
    tab.wait_for_function("document.querySelectorAll('.tf-lane.tf-done').length === 2")
    assert float(clocks.nth(0).inner_text().split()[0]) > float(clocks.nth(1).inner_text().split()[0])
    texts = tab.locator(".tf-lane-text").all_inner_texts()
    assert texts[0] == texts[1] and len(texts[0]) > 100
    tab.click("[data-replay]")
    tab.wait_for_function("document.querySelectorAll('.tf-lane.tf-done').length === 0")
    tab.fill("#race-third input", "gamma2=3")
    tab.press("#race-third input", "Enter")
    served.script.answer = "1. **Forty ships** of `oak`, and <b>none</b> of tin. \n" * 12
    tab.click("#race-start")
    tab.wait_for_selector(".tf-lanes-3[data-race]")
    assert "gamma2=3" in tab.inner_text(".tf-third")
    tab.wait_for_function("""[...document.querySelectorAll('.tf-lane-text ol')].some(
      list => list.querySelectorAll('li > strong').length > 1 && list.children.length < 12)""")  # half replayed
    tab.wait_for_function("document.querySelectorAll('.tf-lane.tf-done').length === 3")
    lanes = tab.locator(".tf-lane-text")
    assert lanes.locator("ol > li").count() == 36 and lanes.locator("b").count() == 0
    said = set(lanes.all_inner_texts())
    assert len(said) == 1 and "**" not in str(said) and "<b>none</b>" in str(said)
    with tab.expect_download() as drawn:
        tab.click("[data-picture]")
    assert Path(drawn.value.path()).read_bytes().startswith(b"\x89PNG") and drawn.value.suggested_filename == "race.png"
    with tab.expect_download() as animated:
        tab.click("a[download='race.svg']")
    assert "<animate" in Path(animated.value.path()).read_text()
    tab.fill("#race-third input", "gamma9=3")
    tab.press("#race-third input", "Enter")
    tab.click("#race-start")
    tab.wait_for_selector("#notice .tf-card-error:has-text('gamma9=3')")


def test_settings(served, tab) -> None:
    tab.click("button[role=tab]:has-text('Settings')")
    tab.fill("#set-gamma1 input, #set-gamma1 textarea", "lots")
    tab.click("#settings-save")
    tab.wait_for_selector("#settings-result .tf-card-error:has-text('whole number')")
    tab.fill("#set-gamma1 input, #set-gamma1 textarea", "4")
    tab.click("#settings-save")
    tab.wait_for_selector("#settings-result .tf-card-info")
    assert served.services.settings.gamma1 == 4
    tab.reload()
    tab.wait_for_selector("#transcript .tf-welcome")
    tab.click("button[role=tab]:has-text('Settings')")
    tab.wait_for_function("document.querySelector('#set-gamma1 input, #set-gamma1 textarea').value === '4'")
    tab.click("#settings-reset")
    wait_for(lambda: served.services.settings.gamma1 == "auto")


def test_the_engine_dies_and_the_page_goes_on(served, tab, scripted) -> None:
    upload(served, tab)
    scripted.fault, scripted.fault_after = "crash", 15
    ask(tab, "How many ships?")
    tab.wait_for_selector(f"#transcript .tf-card-error:has-text('{chat_words.ANSWER_BROKE_OFF}')")
    assert len(tab.inner_text("#transcript .tf-prose")) > 30
    ask(tab, "And now?")
    answered(tab, 2)
    assert tab.locator("#transcript .tf-card-error").count() == 1


@pytest.mark.parametrize(("width", "theme"), [
    (1280, "dark"), (360, "light"), *(pytest.param(*both, marks=pytest.mark.exhaustive)
                                      for both in ((1280, "light"), (360, "dark")))])
def test_fits_the_screen(served, tab, width: int, theme: str) -> None:
    tab.set_viewport_size({"width": width, "height": 760})
    visit(tab, f"{served.url}?__theme={theme}")
    tab.wait_for_selector("#transcript .tf-welcome")
    assert tab.evaluate("document.body.classList.contains('dark')") is (theme == "dark")
    for pane in ("library", "center", "side"):
        if width < 760:
            tab.click(f".tf-panes [data-pane={pane}]")
        tab.wait_for_selector(f"#{pane}", state="visible")
        assert tab.evaluate("document.documentElement.scrollWidth") <= width
        wide = tab.evaluate(f"""() => [...document.querySelectorAll('#{pane} *')].filter(e => e.offsetParent &&
            e.getBoundingClientRect().right > {width} + 1).map(e => e.id || e.className).slice(0, 3)""")
        assert wide == []
