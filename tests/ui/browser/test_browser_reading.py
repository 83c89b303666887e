"""Documents in headless Chromium: being read, too long, locked, broken, and their pages beside the chat."""

from __future__ import annotations

import dataclasses
import re
import uuid

import pytest
from little_books import PASSWORD, make_document, write_book, write_pdf
from page_steps import PAGES, answered, ask, upload

from ui.app import jobs as head_words
from ui.page import chat as chat_words
from ui.page import page_choice as choice_words
from ui.page import reader as reader_words
from ui.page.document_head import PASSWORD_TITLE

pytestmark = pytest.mark.browser


def test_reading_progress_and_cancel(served, tab, scripted) -> None:
    # Long enough for a page that a busy machine draws seconds late.
    scripted.prefill_tokens_per_second, scripted.prefill_chunk, scripted.tokenize_seconds = 40.0, 20, 6.0
    upload(served, tab, words=300, wait=".tf-progress:has-text('Turning the text into tokens:')")
    assert re.search(r"into tokens: [\d,]+ of about [\d,]+\s+[\d,.]+ tokens/s", tab.inner_text("#head"))
    tab.wait_for_selector("#head .tf-progress:has-text('Reading')")
    tab.wait_for_selector("#head .tf-progress:has-text('tokens/s')")
    assert re.search(r"Reading [\d,]+ of [\d,]+ tokens", tab.inner_text("#head"))
    assert "left" in tab.inner_text("#head")
    tab.click("[data-action=cancel-reading]")
    tab.wait_for_selector(f"#head:has-text('{head_words.READING_CANCELLED}')", timeout=2000)
    scripted.prefill_tokens_per_second, scripted.tokenize_seconds = 1e6, 0.0
    tab.click("#head [data-action=read]")
    tab.wait_for_selector("#head .tf-dot-ok")


def test_too_long_is_a_choice(served, tab, scripted, monkeypatch) -> None:
    monkeypatch.setattr(served.services.queue._engine, "_model",
                        dataclasses.replace(served.services.queue.model, max_context=1024 + 300))
    path = write_book(served.folder, f"{uuid.uuid4().hex[:8]}.txt", 12)
    path.write_text(f"{path.stem} " + path.read_text())
    tab.set_input_files("#upload input[type=file]", str(path))
    tab.wait_for_selector("#choice h2:has-text('of your 12 pages fit')")
    first, last = map(int, tab.input_value(PAGES).split("-"))
    assert first == 1 and 1 < last < 12
    assert tab.inner_text("#choice h2") == choice_words.PART_FITS.format(fitting=last, pages="12 pages")
    assert tab.get_attribute("#question textarea", "placeholder") == chat_words.ASK_LATER
    tab.click("#choice [data-tab=models]")
    tab.wait_for_selector("#models-help", state="visible")
    tab.click("#tab-chat-button")
    tab.fill(PAGES, "1-12")
    tab.wait_for_selector("#range-text .tf-bad:has-text('too many')")
    tab.wait_for_selector("#read-pages[disabled]")
    tab.press(PAGES, "Enter")  # no way round it
    tab.fill(PAGES, "1-x")
    tab.wait_for_selector("#range-text .tf-bad:has-text('Write pages')")
    assert tab.is_disabled("#read-pages")
    tab.fill(PAGES, "5-7")
    tab.wait_for_selector("#range-text .tf-good")
    tab.fill("#question textarea", "typed before")
    tab.click("#read-pages:not([disabled])")
    tab.wait_for_selector("#head:has-text('pages 5–7 of 12')")
    tab.wait_for_function("document.querySelectorAll('.tf-page.tf-out').length === 9")
    tab.wait_for_selector("#transcript:has-text('Ask about pages 5–7')")
    assert "whole" not in tab.inner_text("#transcript") and "3 of 12 pages" in tab.inner_text("#documents")
    assert tab.input_value("#question textarea") == "typed before"
    tab.wait_for_selector("#question textarea[placeholder='Ask about pages 5–7']")


def test_password(served, tab) -> None:
    path = served.folder / f"{uuid.uuid4().hex[:8]}.txt"
    path.write_text(f"LOCKED {path.stem}\n" + make_document(2).pages[0].text)
    tab.set_input_files("#upload input[type=file]", str(path))
    tab.wait_for_selector(f"#locked:has-text('{PASSWORD_TITLE}')")
    tab.fill("#password input", "wrong")
    tab.click("#unlock")
    tab.wait_for_selector("#locked .tf-bad")
    tab.fill("#password input", PASSWORD)
    tab.press("#password input", "Enter")
    tab.wait_for_selector("#head .tf-dot-ok")
    tab.wait_for_selector("#locked", state="hidden")


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


def test_a_pdf_page_beside_the_chat(served, tab, scripted) -> None:
    path = write_pdf(served.folder, f"{uuid.uuid4().hex[:8]}.pdf")
    tab.set_input_files("#upload input[type=file]", str(path))
    tab.wait_for_selector("#head .tf-dot-ok")
    scripted.answer = "“The lighthouse keeper of Ness 2 counted 201 ships before the storm”"
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
    tab.route("**/find?*", lambda route: route.fulfill(status=503))
    tab.fill("#page-find", "ness 4")
    tab.press("#page-find", "Enter")
    tab.wait_for_function(f"document.querySelector('#page-hits').textContent === '{reader_words.FIND_BROKEN}'")
    tab.unroute("**/find?*")
    tab.press("#page-find", "Enter")  # the same words again
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
