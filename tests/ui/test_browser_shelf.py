"""What is read, in headless Chromium: chapters to tick, pages to write, the bar of the context, the keyboard alone."""

from __future__ import annotations

import uuid
from pathlib import Path

import pytest
from little_books import write_chapters
from page_steps import PAGES, answered, ask

pytestmark = pytest.mark.browser
OUTLINE = (("Before the storm", 0, 2), ("Its ships", 1, 3), ("The storm", 0, 5), ("After it", 0, 7))
TICKS = ("[...document.querySelectorAll('#chapters [data-chapter]')]"
         ".map(tick => tick.indeterminate ? '-' : +tick.checked).join('')")


def open_chapters(served, tab) -> Path:
    path = write_chapters(served.folder, f"{uuid.uuid4().hex[:8]}.pdf", OUTLINE)
    tab.set_input_files("#upload input[type=file]", str(path))
    tab.wait_for_selector(f".tf-title:has-text('{path.stem}')")
    tab.wait_for_selector("#head .tf-dot-ok")
    tab.click("#head [data-action=choose-pages]")
    tab.wait_for_selector("#chapters [data-chapter]")
    tab.wait_for_function(f"{TICKS} === '1111'")
    return path


def tick(tab, title: str) -> None:
    tab.click(f"#chapters label:has(:text-is('{title}')) input")


def test_chapters_and_pages_keep_step(served, tab) -> None:
    open_chapters(served, tab)
    assert tab.input_value(PAGES) == "1-8"
    tick(tab, "The storm")  # the last page of it begins "After it", or may: it stays
    tab.wait_for_function(f"{TICKS} === '1101'")
    assert tab.input_value(PAGES) == "1-5, 7-8"
    tick(tab, "Its ships")
    assert tab.evaluate(TICKS) == "-001" and tab.input_value(PAGES) == "1-2, 7-8"
    tick(tab, "Before the storm")
    assert tab.evaluate(TICKS) == "1101" and tab.input_value(PAGES) == "1-5, 7-8"
    tab.fill(PAGES, "2-5, 9")
    tab.wait_for_selector("#range-text .tf-bad")
    assert tab.evaluate(TICKS) == "0000"
    tab.fill(PAGES, "2-5")
    tab.wait_for_selector("#range-text .tf-good:has-text('Pages 2 to 5')")
    assert tab.evaluate(TICKS) == "1100"
    tab.click("[data-chapters=none]")
    tab.wait_for_selector("#range-text .tf-bad")
    tab.click("[data-chapters=all]")
    tab.wait_for_selector("#range-text .tf-good:has-text('Pages 1 to 8')")
    sizes = tab.locator("#chapters .tf-chapter-size").all_inner_texts()
    assert len(sizes) == 4 and all(size.endswith("tokens") for size in sizes)


def test_chapters_by_keyboard_are_read_and_asked_about(served, tab) -> None:
    open_chapters(served, tab)
    tab.focus("[data-chapters=none]")
    tab.keyboard.press("Enter")
    tab.wait_for_function(f"{TICKS} === '0000'")
    for _ in range(2):
        tab.keyboard.press("Tab")
    tab.keyboard.press("Space")  # "Its ships"
    for _ in range(2):
        tab.keyboard.press("Tab")
    tab.keyboard.press("Space")  # "After it"
    tab.wait_for_function(f"{TICKS} === '-101'")
    tab.keyboard.press("Tab")
    assert tab.input_value(PAGES) == "3-5, 7-8"
    tab.wait_for_selector("#range-text .tf-good:has-text('Pages 3 to 5, 7 to 8')")
    tab.keyboard.press("Enter")
    tab.wait_for_selector("#head:has-text('pages 3 to 5, 7 to 8 of 8')")
    tab.wait_for_selector("#choice", state="hidden")
    ask(tab, "How many ships?")
    answered(tab)
    tab.wait_for_selector("#figures:has-text('Last answer')")
    heights = tab.eval_on_selector_all(".tf-page", "cells => cells.map(c => +c.style.getPropertyValue('--i'))")
    assert [bool(height) for height in heights] == [number in (3, 4, 5, 7, 8) for number in range(1, 9)]
    assert tab.locator(".tf-page.tf-out").count() == 3
    tab.reload()
    tab.wait_for_selector("#head:has-text('pages 3 to 5, 7 to 8 of 8')")
