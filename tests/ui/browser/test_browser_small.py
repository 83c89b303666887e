"""Small windows in headless Chromium: 200 % zoom, a laptop's, a phone's. What was asked for is in sight."""

from __future__ import annotations

import pytest
from page_steps import answered, ask, upload

pytestmark = pytest.mark.browser
SENTENCES = ("The keeper counted the ships before the storm. Nobody else was awake at that hour of the night. "
             "“The lighthouse keeper of Ness 2 counted 200 ships before the storm reached the northern harbour.”")
SEEN = """selector => {
  const box = document.querySelector(selector).getClientRects()[0];  // of words, their first line
  const x = (box.left + box.right) / 2, y = (box.top + box.bottom) / 2;
  const there = [[x, box.top + 3], [x, y], [x, box.bottom - 3], [box.left + 3, y], [box.right - 3, y]];
  return there.every(([x, y]) => document.elementFromPoint(x, y)?.closest(selector) !== null);
}"""


def seen(tab, selector: str) -> None:
    """All of it can be seen: inside the window, and nothing lies over it."""
    tab.wait_for_function(SEEN, arg=selector)


@pytest.mark.parametrize(("width", "height"), [(640, 400), (360, 640), (1280, 800)])
def test_an_answer_of_three_sentences_can_be_read(served, tab, scripted, width: int, height: int) -> None:
    upload(served, tab)
    tab.set_viewport_size({"width": width, "height": height})
    scripted.answer = SENTENCES
    if width < 760:
        tab.click(".tf-panes [data-pane=center]")
    ask(tab, "How many ships?")
    answered(tab)
    tab.wait_for_selector("#transcript .tf-cite")
    for selector in ("#transcript .tf-prose", "#transcript .tf-cite", "#question textarea", "#send"):
        seen(tab, selector)
    assert tab.evaluate("document.documentElement.scrollWidth") <= width


def test_a_laptop_shows_answer_citation_and_page_at_once(served, tab, scripted) -> None:
    upload(served, tab)
    scripted.answer = SENTENCES
    ask(tab, "How many ships?")
    answered(tab)
    tab.click("#transcript .tf-cite")
    tab.wait_for_selector("#page .tf-page-text mark")
    for selector in ("#transcript .tf-bubble", "#transcript .tf-prose", "#transcript .tf-cite", "#page mark", "#send"):
        seen(tab, selector)


def test_on_a_phone_the_page_views_buttons_stay_in_one_row(served, tab, scripted) -> None:
    upload(served, tab)
    tab.set_viewport_size({"width": 360, "height": 740})
    tab.click(".tf-panes [data-pane=side]")
    tab.click("#strip .tf-page >> nth=1")
    tab.wait_for_selector("#page .tf-page-text")
    tops = tab.eval_on_selector_all(".tf-reader-bar button", "all => all.map(one => one.getBoundingClientRect().top)")
    assert max(tops) - min(tops) < 4
    seen(tab, "[data-reader=close]")
