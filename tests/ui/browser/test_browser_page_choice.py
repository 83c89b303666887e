"""What is read, in headless Chromium: chapters to tick, pages to write, the bar of the context, the keyboard alone."""

from __future__ import annotations

import dataclasses
import uuid
from pathlib import Path

import pytest
from little_books import write_chapters
from page_steps import PAGES, answered, ask, more, more_by_keyboard, upload, visit

from ui.page import library as library_words

pytestmark = pytest.mark.browser


OUTLINE = (("Before the storm", 0, 2), ("Its ships", 1, 3), ("The storm", 0, 5), ("After it", 0, 7))
TICKS = ("[...document.querySelectorAll('#chapters [data-chapter]')]"
         ".map(tick => tick.indeterminate ? '-' : +tick.checked).join('')")


def open_chapters(served, tab) -> Path:
    path = write_chapters(served.folder, f"{uuid.uuid4().hex[:8]}.pdf", OUTLINE)
    tab.set_input_files("#upload input[type=file]", str(path))
    tab.wait_for_selector(f".tf-title:has-text('{path.stem}')")
    tab.wait_for_selector("#head .tf-dot-ok")
    more(tab, "#head", "choose-pages")
    tab.wait_for_selector("#chapters [data-chapter]")
    tab.wait_for_function(f"{TICKS} === '1111'")
    tab.wait_for_selector("#chapters [data-chapter]:focus")  # the box that a button opens takes the focus
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
    tab.wait_for_selector("#range-text .tf-good:has-text('Pages 2–5')")
    assert tab.evaluate(TICKS) == "1100"
    tab.click("[data-chapters=none]")
    tab.wait_for_selector("#range-text .tf-bad")
    tab.click("[data-chapters=all]")
    tab.wait_for_selector("#range-text .tf-good:has-text('Pages 1–8')")
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
    tab.wait_for_selector("#range-text .tf-good:has-text('Pages 3–5, 7–8')")
    tab.keyboard.press("Enter")
    tab.wait_for_selector("#head:has-text('pages 3–5, 7–8 of 8')")
    tab.wait_for_selector("#choice", state="hidden")
    ask(tab, "How many ships?")
    answered(tab)
    heights = "[...document.querySelectorAll('.tf-page')].map(c => +c.style.getPropertyValue('--i'))"
    tab.wait_for_function(f"Math.max(...{heights}) > 0")  # the strip comes after the figures
    assert {at for at, height in enumerate(tab.evaluate(heights), 1) if height} <= {3, 4, 5, 7, 8}
    unread = "[...document.querySelectorAll('.tf-page')].map(c => c.classList.contains('tf-out'))"
    assert tab.evaluate(unread) == [number in (1, 2, 6) for number in range(1, 9)]
    assert tab.locator(".tf-page.tf-out").count() == 3
    tab.reload()
    tab.wait_for_selector("#head:has-text('pages 3–5, 7–8 of 8')")


def test_several_documents_together(served, tab, scripted) -> None:
    first = open_chapters(served, tab)
    tab.keyboard.press("Escape")
    tab.wait_for_selector("#head .tf-more > summary:focus")  # and gives it back
    for width, opener in ((360, "#head .tf-more > summary"), (1280, "#head .tf-more > summary"),
                          (1280, "#together-button")):  # to the one of its two buttons that opened it
        tab.set_viewport_size({"width": width, "height": 800})
        if opener == "#together-button":
            tab.focus(opener)
            tab.keyboard.press("Enter")
        else:
            more_by_keyboard(tab, "#head", "together")
        tab.wait_for_selector("#pick input:focus")
        tab.keyboard.press("Escape")
        tab.wait_for_selector(f"{opener}:focus")
    ask(tab, "What about this one alone?")
    answered(tab)
    second = upload(served, tab, 5)
    more_by_keyboard(tab, "#head", "together")  # from here on by keyboard
    tab.wait_for_selector("#pick h2")
    tab.wait_for_selector("#pick input:focus")
    tab.wait_for_selector(f"#pick label:has-text('{second.stem}') input:checked")
    tab.wait_for_selector("#pick-budget [data-action=read-together][disabled]")
    tab.focus(f"#pick label:has-text('{first.stem}') input")
    tab.keyboard.press("Space")
    tab.wait_for_selector("#pick-budget .tf-budget-parts li:nth-child(4)")
    legend = tab.locator("#pick-budget .tf-budget-parts li").all_inner_texts()
    assert [second.stem in legend[0], first.stem in legend[1]] == [True, True] and len(legend) == 4
    tab.focus("#pick-budget [data-action=read-together]")
    tab.keyboard.press("Enter")
    tab.wait_for_selector(f"#head .tf-title:has-text('{second.stem} + {first.stem}')")
    tab.wait_for_selector("#head .tf-dot-ok")
    tab.wait_for_selector("#pick h2", state="detached")
    assert tab.locator("#head .tf-budget-bar span").count() == 4 and "All 13 pages" in tab.inner_text("#head")
    assert tab.locator("#transcript .tf-question").count() == 0  # a conversation of its own
    scripted.answer = (f'It was "counted 201 ships before the storm" [p. {first.stem}, 2], '
                       'not "counted no ships at all".')
    ask(tab, "How many ships?")
    answered(tab)
    chips = tab.locator("#transcript .tf-prose .tf-cite")
    assert chips.all_inner_texts() == [f"{first.stem}, p. 2 (7 of 13)", f"{second.stem}, p. 2 (2 of 13)"]
    assert tab.locator("#transcript .tf-uncited").count() == 1
    chips.nth(0).click()  # of the PDF: its picture, the words marked
    tab.wait_for_selector("#page mark.tf-box")
    assert tab.inner_text("#page-label") == f"{first.stem}, page 2 (7 of 13)" and tab.input_value("#page-number") == "7"
    tab.wait_for_function("document.querySelector('#page img')?.naturalWidth > 9")
    chips.nth(1).click()  # of the text
    tab.wait_for_selector("#page .tf-page-text mark")
    assert "counted 201 ships" in tab.inner_text("#page .tf-page-text")
    colours = tab.eval_on_selector_all("#strip .tf-page", "cells => cells.map(c => /tf-part-(.)/.exec(c.className)[1])")
    assert "".join(colours) == "1" * 5 + "2" * 8
    tab.reload()
    answered(tab)
    tab.click(f"#documents .tf-doc-open:has-text('{first.stem}') >> nth=-1")
    tab.wait_for_selector("#transcript .tf-bubble:has-text('this one alone')")


def test_too_much_together_says_what_to_leave_out(served, tab, scripted, monkeypatch) -> None:
    long, short = upload(served, tab, 12), upload(served, tab, 4)
    counted = served.services.queue.fits[served.services.library.entries()[0].id].tokens
    monkeypatch.setattr(served.services.queue._engine, "_model",
                        dataclasses.replace(served.services.queue.model, max_context=1024 + 3 * counted + 60))
    served.services.queue.fits.clear()
    tab.click("#together-button")
    tab.check(f"#pick label:has-text('{long.stem}') input")
    tab.click("#pick-budget [data-action=read-together]:not([disabled])")
    tab.click("#head [data-action=choose-pages]")
    tab.wait_for_selector("#choice:has-text('of your 16 pages fit')")
    tab.fill(PAGES, "1-16")
    tab.wait_for_selector(f"#range-text .tf-bad:has-text('Without “{short.stem}” it would fit')")
    tab.click(f"#chapters label:has-text('{long.stem}') input")
    tab.wait_for_selector("#range-text .tf-good")
    tab.click("#read-pages")
    tab.wait_for_selector("#head:has-text('pages 1–4 of 16')")
    tab.wait_for_function("document.querySelectorAll('.tf-page.tf-out').length === 12")


@pytest.mark.parametrize(("width", "theme"), [
    (1280, "light"), (360, "dark"), *(pytest.param(*both, marks=pytest.mark.exhaustive)
                                      for both in ((1280, "dark"), (360, "light")))])
def test_its_dialogs_fit_the_screen(served, tab, width: int, theme: str) -> None:
    path = open_chapters(served, tab)
    tab.set_viewport_size({"width": width, "height": 640})
    visit(tab, f"{served.url}?__theme={theme}")
    for action, button in (("choose-pages", "#read-pages"), ("together", "#pick-budget [data-action=leave-together]")):
        more(tab, "#head", action)
        tab.locator(button).scroll_into_view_if_needed()
        box = tab.locator(button).bounding_box()
        assert box["y"] + box["height"] <= 640 and box["x"] + box["width"] <= width, path
        assert tab.evaluate("document.documentElement.scrollWidth") <= width
    tab.click("#pick-budget [data-action=leave-together]")


def test_a_part_is_not_deleted_silently(served, tab) -> None:
    first, second = upload(served, tab, 4), upload(served, tab, 3)
    names = {entry.title: entry.id for entry in served.services.library.entries()}
    cards = tab.locator("#documents .tf-doc-open").count()
    served.services.library.combine([names[first.stem], names[second.stem]])
    tab.wait_for_selector(f"#documents .tf-doc-open >> nth={cards}")  # drawn anew, no card would be asked twice
    row = f"#documents li:has(> [data-document='{names[first.stem]}'].tf-doc-open)"
    tab.hover(row)
    tab.click(f"{row} > .tf-delete")
    tab.click(f"{row} > .tf-delete:has-text('{library_words.DELETE_SURE}')")  # the same deed twice
    tab.wait_for_selector(f"#notice .tf-card-error:has-text('“{first.stem}” is part of')")
    assert served.services.library.get(names[first.stem]) is not None


# What a browser tells a page of a file that is held over it, and whether the page takes it (else the browser does).
HOLD = """([kind, selector, name, words]) => {
  const parcel = new DataTransfer();
  parcel.items.add(new File([words], name));
  const event = new DragEvent(kind, {dataTransfer: parcel, bubbles: true, cancelable: true, composed: true});
  document.querySelector(selector).dispatchEvent(event);
  return event.defaultPrevented;
}"""


def held(tab, kind: str, selector: str, name: str = "dropped on the chat.txt") -> bool:
    return tab.evaluate(HOLD, [kind, selector, name, f"The keeper of {name} counted the ships."])


@pytest.mark.parametrize("selector", ["#transcript", "#question textarea", "#side", "#upload"])
def test_a_file_dropped_anywhere_is_added(served, tab, selector) -> None:
    assert held(tab, "dragover", selector)
    assert tab.inner_text(".tf-drop") == library_words.DROP_ANYWHERE and tab.is_visible(".tf-drop")
    name = f"dropped {selector.strip('#').split()[0]}"
    assert held(tab, "drop", selector, f"{name}.txt")
    assert tab.is_hidden(".tf-drop")
    for place in (".tf-title", ".tf-doc"):  # two panels, each drawn for itself
        tab.wait_for_selector(f"{place}:has-text('{name}')")
    assert tab.locator(f".tf-doc:has-text('{name}')").count() == 1


def test_what_is_no_document_is_named_and_not_added(served, tab) -> None:
    assert held(tab, "drop", "#transcript", "holiday.mp4")
    tab.wait_for_selector(".tf-drop:has-text('holiday.mp4')")
    assert "holiday" not in tab.inner_text("#documents")


def test_words_dragged_inside_the_page_stay_the_browsers(served, tab) -> None:
    assert not tab.evaluate("""() => {
      const parcel = new DataTransfer();
      parcel.setData('text/plain', 'some words');
      const event = new DragEvent('dragover', {dataTransfer: parcel, bubbles: true, cancelable: true});
      document.querySelector('#transcript').dispatchEvent(event);
      return event.defaultPrevented || document.querySelector('.tf-drop') !== null;
    }""")


def test_the_cleared_search_shows_the_library_again(served, tab) -> None:
    path = upload(served, tab)
    ask(tab, "How many ships?")
    answered(tab)
    tab.click("#search input, #search textarea")
    tab.keyboard.type("xyzzy")
    tab.wait_for_selector("#documents:has-text('xyzzy')")
    tab.keyboard.press("Control+a")
    tab.keyboard.press("Delete")
    tab.wait_for_selector(f".tf-doc:has-text('{path.stem}')", timeout=3000)
