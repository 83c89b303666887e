"""The page in headless Chromium, on the scripted engine: what a person does, in the order in which they do it."""

from __future__ import annotations

import dataclasses
import re
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from little_books import PASSWORD, make_document, wait_for, write_book, write_pdf

from triforce_core import EngineScript
from ui import strings

pytestmark = pytest.mark.browser


@pytest.fixture
def dials(served, fresh_script) -> EngineScript:
    """A script that can be watched."""
    served.script.load_seconds = 0.05
    served.script.triforce_tokens_per_second, served.script.plain_tokens_per_second = 150.0, 90.0
    return fresh_script


@pytest.fixture
def tab(served, chromium, dials) -> Iterator[object]:
    """A fresh browser with the page open. Fails on outside requests and on errors of the page's own scripts."""
    context = chromium.new_context(viewport={"width": 1280, "height": 800})
    context.set_default_timeout(15_000)
    outside, broken = [], []
    context.on("request", lambda request: None if request.url.startswith((served.url, "data:", "blob:"))
               else outside.append(request.url))
    page = context.new_page()
    page.on("pageerror", lambda error: broken.append(str(error)))
    page.goto(served.url)
    page.wait_for_selector("#transcript .tf-welcome")
    yield page
    context.close()
    assert outside == [] and broken == []


def upload(served, page, pages: int = 6, *, words: int = 60, wait: str = ".tf-dot-ok") -> Path:
    """Drop a new document on the library and wait until it stands where it should."""
    path = write_book(served.folder, f"{uuid.uuid4().hex[:8]}.txt", pages, words)
    path.write_text(f"Copy {path.stem}. " + path.read_text())
    page.set_input_files("#upload input[type=file]", str(path))
    page.wait_for_selector(f".tf-title:has-text('{path.stem}')")
    page.wait_for_selector(f"#head {wait}")
    return path


def ask(page, question: str) -> None:
    page.fill("#question textarea", question)
    page.press("#question textarea", "Enter")


def answered(page, number: int = 1) -> None:
    page.wait_for_function(f"document.querySelectorAll('#transcript .tf-question').length === {number}")


def test_upload_ask_stream_and_look_at_a_page(served, tab) -> None:
    upload(served, tab)
    assert "6 pages" in tab.inner_text("#head")
    tab.fill("#question textarea", "one")
    tab.press("#question textarea", "Shift+Enter")
    tab.keyboard.type("two ships?")
    assert tab.input_value("#question textarea") == "one\ntwo ships?"
    tab.keyboard.press("Enter")
    tab.wait_for_selector("#live .tf-streaming")
    first = len(tab.inner_text("#live"))
    tab.wait_for_function(f"document.querySelector('#live').innerText.length > {first + 40}")  # it grows
    assert tab.input_value("#question textarea") == ""
    answered(tab)
    assert tab.inner_text("#live").strip() == ""
    line = tab.inner_text("#transcript .tf-foot")
    for text in ("tok/s", strings.PER_PASS_SHORT, strings.SPECULATION_ON):
        assert text in line
    tab.wait_for_selector(f"#figures:has-text('{strings.LAST_ANSWER}')")
    heights = tab.eval_on_selector_all(".tf-page", "cells => cells.map(c => +c.style.getPropertyValue('--i'))")
    assert len(heights) == 6 and max(heights) == 1.0
    tab.click(".tf-page >> nth=3")
    tab.wait_for_selector("#page .tf-page-text:has-text('Ness 4')")
    tab.focus(".tf-page.tf-selected")
    tab.keyboard.press("ArrowRight")
    tab.keyboard.press("Enter")
    tab.wait_for_selector("#page .tf-page-text:has-text('Ness 5')")


def test_stop_keeps_what_was_written(served, tab, dials) -> None:
    upload(served, tab)
    dials.triforce_tokens_per_second = 25
    ask(tab, "How many ships?")
    tab.wait_for_function("(document.querySelector('#live .tf-streaming')?.innerText ?? '').split(' ').length > 3")
    tab.keyboard.press("Escape")
    tab.wait_for_selector(f"#transcript:has-text('{strings.STOPPED}')", timeout=2000)
    assert len(tab.inner_text("#transcript .tf-prose")) > 5
    tab.wait_for_selector("#stop", state="hidden")


def test_reload_and_second_tab_join_the_answer(served, tab, dials) -> None:
    upload(served, tab)
    dials.triforce_tokens_per_second = 8  # the tabs must find it still going
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
        page.wait_for_selector(f"#transcript:has-text('{strings.STOPPED}')", timeout=2000)


def test_closing_the_tab_stops_nothing(served, tab, dials) -> None:
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


def test_closed_tabs_leave_no_loop_behind(served, tab, monkeypatch) -> None:
    from ui.painter import Painter

    seen: set[int] = set()
    changes = Painter.changes
    monkeypatch.setattr(Painter, "changes", lambda self: (seen.add(id(self)), changes(self))[1])
    pages = [tab.context.new_page() for _ in range(2)]
    for page in pages:
        page.goto(served.url)
        page.wait_for_selector("#transcript .tf-welcome")
    assert len(seen) >= 3
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
    tab.click(".tf-talk:has-text('First') .tf-delete")
    tab.click(f".tf-talk:has-text('First') .tf-delete:has-text('{strings.DELETE_SURE}')")
    tab.wait_for_function("document.querySelectorAll('.tf-talk').length === 1")
    tab.wait_for_selector("#transcript .tf-welcome")


def test_race(served, tab) -> None:
    upload(served, tab)
    tab.fill("#question textarea", "How many ships?")
    tab.click("#race-now")
    tab.wait_for_selector(f"#race-board:has-text('{strings.RACE_WAITS}')")
    tab.wait_for_selector("#same-words")
    assert strings.RACE_SAME in tab.inner_text("#same-words")
    assert re.search(r"TriForce was \d\.\d\d times as fast", tab.inner_text(".tf-speedup"))
    clocks = tab.locator(".tf-lane-clock")
    tab.wait_for_function("document.querySelectorAll('.tf-lane.tf-done').length === 2")
    assert float(clocks.nth(0).inner_text().split()[0]) > float(clocks.nth(1).inner_text().split()[0])
    texts = tab.locator(".tf-lane-text").all_inner_texts()
    assert texts[0] == texts[1] and len(texts[0]) > 100
    tab.click("[data-replay]")
    tab.wait_for_function("document.querySelectorAll('.tf-lane.tf-done').length === 0")
    tab.fill("#race-third input", "gamma2=3")
    tab.press("#race-third input", "Enter")
    tab.click("#race-start")
    tab.wait_for_selector(".tf-lanes-3[data-race]")
    assert "gamma2=3" in tab.inner_text(".tf-third")
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
    assert served.services.dials.gamma1 == 4
    tab.reload()
    tab.wait_for_selector("#transcript .tf-welcome")
    tab.click("button[role=tab]:has-text('Settings')")
    tab.wait_for_function("document.querySelector('#set-gamma1 input, #set-gamma1 textarea').value === '4'")
    tab.click("#settings-reset")
    wait_for(lambda: served.services.dials.gamma1 == "auto")


def test_reading_progress_and_cancel(served, tab, dials) -> None:
    dials.prefill_tokens_per_second, dials.prefill_chunk = 300.0, 20
    upload(served, tab, words=300, wait=".tf-progress:has-text('tokens/s')")
    assert re.search(r"Reading [\d,]+ of [\d,]+ tokens", tab.inner_text("#head"))
    assert "left" in tab.inner_text("#head")
    tab.click("[data-action=cancel-reading]")
    tab.wait_for_selector(f"#head:has-text('{strings.READING_CANCELLED}')", timeout=2000)
    dials.prefill_tokens_per_second = 1e6
    tab.click("#head [data-action=read]")
    tab.wait_for_selector("#head .tf-dot-ok")


def test_too_long_is_a_choice(served, tab, dials, monkeypatch) -> None:
    monkeypatch.setattr(served.services.desk._engine, "_model",
                        dataclasses.replace(served.services.desk.model, max_context=1024 + 300))
    path = write_book(served.folder, f"{uuid.uuid4().hex[:8]}.txt", 12)
    path.write_text(f"{path.stem} " + path.read_text())
    tab.set_input_files("#upload input[type=file]", str(path))
    tab.wait_for_selector(f"#choice:has-text('{strings.TOO_LONG_TITLE}')")
    assert "fit beside questions" in tab.inner_text("#choice")
    last = int(tab.input_value("#last-page input"))
    assert tab.input_value("#first-page input") == "1" and 1 < last < 12
    tab.fill("#last-page input", "12")
    tab.wait_for_selector("#range-text .tf-bad:has-text('too many')")
    tab.fill("#first-page input", "5")
    tab.fill("#last-page input", "7")
    tab.wait_for_selector("#range-text .tf-good")
    tab.click("#read-pages")
    tab.wait_for_selector("#head:has-text('pages 5 to 7 of 12')")
    tab.wait_for_function("document.querySelectorAll('.tf-page.tf-out').length === 9")


def test_password(served, tab) -> None:
    path = served.folder / f"{uuid.uuid4().hex[:8]}.txt"
    path.write_text(f"LOCKED {path.stem}\n" + make_document(2).pages[0].text)
    tab.set_input_files("#upload input[type=file]", str(path))
    tab.wait_for_selector(f"#locked:has-text('{strings.PASSWORD_TITLE}')")
    tab.fill("#password input", "wrong")
    tab.click("#unlock")
    tab.wait_for_selector("#locked .tf-bad")
    tab.fill("#password input", PASSWORD)
    tab.press("#password input", "Enter")
    tab.wait_for_selector("#head .tf-dot-ok")
    tab.wait_for_selector("#locked", state="hidden")


def test_the_engine_dies_and_the_page_goes_on(served, tab, dials) -> None:
    upload(served, tab)
    dials.fault, dials.fault_after = "crash", 15
    ask(tab, "How many ships?")
    tab.wait_for_selector(f"#transcript .tf-card-error:has-text('{strings.ANSWER_BROKE_OFF}')")
    assert len(tab.inner_text("#transcript .tf-prose")) > 30
    ask(tab, "And now?")
    answered(tab, 2)
    assert tab.locator("#transcript .tf-card-error").count() == 1


def test_a_bad_file_is_a_card(served, tab) -> None:
    path = served.folder / "broken.txt"
    path.write_bytes(b"\xff\xfe\x00" + uuid.uuid4().bytes)
    tab.set_input_files("#upload input[type=file]", str(path))
    tab.wait_for_selector("#head .tf-card-error")
    empty = served.folder / "empty.txt"
    empty.write_bytes(b"")
    tab.set_input_files("#upload input[type=file]", str(empty))
    tab.wait_for_selector("#notice .tf-card-error")
    tab.click("#notice [data-action=dismiss]")
    tab.wait_for_selector("#notice .tf-card", state="detached")


def test_quotations_are_checked_and_open_their_page(served, tab, dials) -> None:
    upload(served, tab)
    dials.answer = ('It says "keeper of Ness 3 counted 302 ships" and also "the keeper of Ness 3 slept all night". '
                    "> nothing\n\n“storm reached the northern harbour. The lighthouse keeper of Ness 5”")
    ask(tab, "How many ships?")
    answered(tab)
    assert tab.locator("#transcript .tf-cite").all_inner_texts()[0] == "p. 3"
    assert tab.locator("#transcript .tf-uncited").count() == 1
    tab.focus("#transcript .tf-cite")  # with the keyboard
    tab.keyboard.press("Enter")
    tab.wait_for_selector("#page mark")
    assert tab.inner_text("#page mark") == "keeper of Ness 3 counted 302 ships"
    tab.reload()  # the open page is remembered
    tab.wait_for_selector("#page .tf-page-text:has-text('Ness 3')")
    tab.click("[data-reader=close]")
    tab.wait_for_selector("#page .tf-reader", state="hidden")


def test_who_wrote_it(served, tab, dials) -> None:
    upload(served, tab)
    dials.triforce_tokens_per_second = 60.0
    ask(tab, "How many ships?")
    tab.click("#live [data-action=trace]")
    tab.wait_for_selector("#live .tf-tokens .tf-t")  # colours while it is written
    answered(tab)
    tab.wait_for_selector("#transcript .tf-trace")
    tab.wait_for_selector("#strip .tf-page[title*='%']")
    tab.wait_for_selector(f"#figures:has-text('{strings.LAST_ANSWER}')")
    time.sleep(0.5)  # the strip is drawn once more
    words = tab.inner_text("#transcript .tf-tokens")
    assert words.startswith("This is the scripted engine") and tab.locator(".tf-round").count() > 5
    tab.hover(".tf-tokens .tf-t >> nth=3")
    told = tab.inner_text(".tf-told")
    assert re.search(r"scripted.*\n?.*%", told, re.DOTALL) and "ms" in told
    assert tab.locator("#strip .tf-lifted").count() == 1 and tab.locator(".tf-t.tf-near").count() >= 1
    tab.check(".tf-reach input[value=sentence]")
    near = tab.locator(".tf-t.tf-near").all_inner_texts()
    assert "".join(near).strip() == "This is the scripted engine: it quotes the document and understands nothing."
    tab.focus(".tf-tokens")
    tab.keyboard.press("End")
    assert tab.locator(".tf-t").last.get_attribute("class").endswith("tf-at") or tab.locator(".tf-t.tf-at").count() == 1
    tab.click(".tf-told [data-action=page] >> nth=0")  # to the page that was attended most
    tab.wait_for_selector("#page .tf-page-text")
    ask(tab, "And now?")  # stays on for the next answer
    tab.wait_for_selector("#live .tf-tokens .tf-t")
    answered(tab, 2)
    tab.click("#transcript [data-action=trace][aria-pressed=true]")
    tab.wait_for_selector("#transcript .tf-trace", state="detached")


def test_the_history_of_answers(served, tab, dials) -> None:
    upload(served, tab)
    for number in (1, 2):
        ask(tab, f"Question {number}?")
        answered(tab, number)
    tab.wait_for_function("document.querySelectorAll('#history tbody tr').length === 2")
    assert tab.locator("#history tbody th").all_inner_texts() == ["Question 2?", "Question 1?"]
    tab.wait_for_selector(f"#figures:has-text('{strings.SPEED_OVER_TIME}')")
    assert tab.locator("#figures .tf-chart polyline").count() >= 3  # speed, and acceptance of two tiers


def test_a_pdf_page_beside_the_chat(served, tab, dials) -> None:
    path = write_pdf(served.folder, f"{uuid.uuid4().hex[:8]}.pdf")
    tab.set_input_files("#upload input[type=file]", str(path))
    tab.wait_for_selector("#head .tf-dot-ok")
    dials.answer = "“The lighthouse keeper of Ness 2 counted 201 ships before the storm”"
    ask(tab, "How many?")
    answered(tab)
    tab.click("#transcript .tf-cite")
    tab.wait_for_selector("#page .tf-set mark")
    tab.wait_for_function("document.querySelector('#page .tf-picture').naturalWidth >= 800")
    box = tab.evaluate("""() => { const piece = [...document.querySelectorAll('#page .tf-layer span')]
        .find(e => e.textContent.includes('201')); const range = document.createRange();
        range.selectNodeContents(piece); const words = range.getBoundingClientRect();
        const marks = [...document.querySelectorAll('#page mark')].map(m => m.getBoundingClientRect());
        return marks.some(m => Math.abs(m.top - words.top) < 6 && m.left < words.right && m.right > words.left); }""")
    assert box  # the mark lies on the words
    assert "counted 201 ships" in " ".join(tab.locator("#page .tf-layer").text_content().split())
    tab.focus("#page .tf-sheets")
    tab.keyboard.press("ArrowRight")
    tab.wait_for_function("document.querySelector('#page .tf-layer')?.textContent.includes('Ness 3')")
    tab.wait_for_selector(".tf-page.tf-selected[data-page='3']")
    tab.fill("#page-find", "ness 4 counted")
    tab.press("#page-find", "Enter")
    tab.wait_for_function("document.querySelector('#page-hits').textContent.startsWith('1 / ')")
    tab.wait_for_selector("#page .tf-set[data-page='4'] mark")
    width = tab.evaluate("document.querySelector('.tf-sheet').clientWidth")
    tab.click("[data-reader=larger]")
    assert tab.evaluate("document.querySelector('.tf-sheet').clientWidth") > 1.2 * width
    tab.click("[data-reader=thumbs]")
    tab.wait_for_function("[...document.querySelectorAll('.tf-thumb img')].some(i => i.naturalWidth > 50)")
    tab.click("[data-thumb='1']")
    tab.wait_for_function("document.querySelector('#page .tf-layer')?.textContent.includes('Ness 1')")
    tab.fill("#page-number", "99")
    tab.press("#page-number", "Enter")
    tab.wait_for_selector("#page .tf-set[data-page='4']")


def test_a_hostile_answer_stays_in_its_place(served, tab, dials) -> None:
    upload(served, tab)
    dials.answer = ("![x](http://evil.example/?q=1) <img src=http://evil.example/x onerror=alert(1)> "
                    '<div style="position:fixed;inset:0">over</div> <script>document.title="owned"</script> '
                    "[click](http://evil.example/) {{value}} ${1+1}")
    ask(tab, "What now?")
    answered(tab)
    assert "${1+1}" in tab.inner_text("#transcript") and "{{value}}" in tab.inner_text("#transcript")
    assert tab.title() == strings.APP
    assert tab.locator("#transcript img, #transcript script, #transcript [style*=fixed]").count() == 0
    tab.click("button[role=tab]:has-text('Settings')")  # nothing covers the page
    assert "[evil.example]" in tab.locator("#transcript").text_content()


def test_updates_do_not_slow_down_with_the_chat(served, tab, dials) -> None:
    """A 100-message chat streams like an empty one, and never faster than ten times a second."""
    upload(served, tab)
    dials.answer, dials.triforce_tokens_per_second = "The harbour was quiet that night. " * 12, 4000.0
    ask(tab, "Begin?")
    answered(tab)
    (talk,) = served.services.conversations.of(served.services.library.entries()[0].id)
    for number in range(49):
        served.services.conversations.begin(uuid.uuid4().hex, talk.id, f"Question {number}?")
        row = served.services.conversations.answers(talk.id)
        served.services.conversations.save(row[-1].id, text="An earlier answer. " * 40, token_ids=(1,), state="done",
                                           error="", result=row[0].result)
    answered(tab, 50)
    dials.triforce_tokens_per_second = 40.0
    tab.evaluate("""() => { window.seen = []; new MutationObserver(() => seen.push(performance.now())).observe(
        document.querySelector('#live'), {childList: true, subtree: true, characterData: true}); }""")
    ask(tab, "One more?")
    tab.wait_for_selector("#live .tf-streaming")
    time.sleep(1.5)
    times = tab.evaluate("seen")
    rate = (len(times) - 1) / (times[-1] - times[0]) * 1000
    assert 3 < rate <= 10.5, rate
    box = tab.evaluate("(b => b.scrollHeight - b.scrollTop - b.clientHeight)(document.querySelector('#chat-scroll'))")
    assert box < 90  # the end stays in sight


@pytest.mark.parametrize("width", [1280, 360])
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_fits_the_screen(served, tab, width: int, theme: str) -> None:
    tab.set_viewport_size({"width": width, "height": 760})
    tab.goto(f"{served.url}?__theme={theme}")
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
