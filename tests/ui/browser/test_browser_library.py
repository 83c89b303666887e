"""The library in headless Chromium: files dropped anywhere, and the line to search with."""

from __future__ import annotations

import pytest
from page_steps import answered, ask, upload

from ui.page import library as library_words

pytestmark = pytest.mark.browser

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
    tab.wait_for_selector(f".tf-title:has-text('{name}')")
    assert tab.locator(f".tf-doc:has-text('{name}')").count() == 1


def test_what_is_no_document_is_named_and_not_added(served, tab) -> None:
    assert held(tab, "drop", "#transcript", "holiday.png")
    tab.wait_for_selector(".tf-drop:has-text('holiday.png')")
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
