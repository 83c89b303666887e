"""Small windows in headless Chromium: 200 % zoom, a laptop's, a phone's. What was asked for is in sight."""

from __future__ import annotations

from time import monotonic

import pytest
from little_books import write_book, write_chapters
from page_steps import answered, ask, more, upload

from triforce_core import CuratedModel

pytestmark = pytest.mark.browser
SENTENCES = ("The keeper counted the ships before the storm. Nobody else was awake at that hour of the night. "
             "“The lighthouse keeper of Ness 2 counted 200 ships before the storm reached the northern harbour.”")
SEEN = """selector => {
  const box = document.querySelector(selector).getClientRects()[0];  // of words, their first line
  const x = (box.left + box.right) / 2, y = (box.top + box.bottom) / 2;
  const there = [[x, box.top + 3], [x, y], [x, box.bottom - 3], [box.left + 3, y], [box.right - 3, y]];
  return there.every(([x, y]) => document.elementFromPoint(x, y)?.closest(selector));
}"""


def seen(tab, selector: str) -> None:
    """All of it can be seen: inside the window, and nothing lies over it."""
    tab.wait_for_function(SEEN, arg=selector)


def test_an_answer_of_three_sentences_its_quotation_and_its_page_can_be_seen(served, tab, scripted) -> None:
    upload(served, tab)
    scripted.answer = SENTENCES
    ask(tab, "How many ships?")
    answered(tab)
    tab.wait_for_selector("#transcript .tf-prose .tf-cite")
    for width, height in ((640, 400), (360, 640), (1280, 800)):
        tab.set_viewport_size({"width": width, "height": height})
        if width < 760:
            tab.click(".tf-panes [data-pane=center]")
        tab.evaluate("document.getElementById('chat-scroll').scrollTop = 1e6")
        for selector in ("#transcript .tf-prose", "#transcript .tf-prose .tf-cite", "#question textarea", "#send"):
            seen(tab, selector)
        assert tab.evaluate("document.documentElement.scrollWidth") <= width
    tab.click("#transcript .tf-prose .tf-cite")
    tab.wait_for_selector("#page .tf-page-text mark")
    for selector in ("#transcript .tf-prose", "#transcript .tf-prose .tf-cite", "#page mark", "#send"):
        seen(tab, selector)


@pytest.mark.parametrize(("width", "height"), [(640, 400), (360, 740)])
def test_a_quotation_far_down_its_page_leaves_the_page_views_bar_in_sight(served, tab, scripted, width: int,
                                                                          height: int) -> None:
    upload(served, tab, words=400)
    tab.set_viewport_size({"width": width, "height": height})
    tab.click(".tf-panes [data-pane=center]")
    document = served.services.library.document(served.services.library.entries()[0].id)
    scripted.answer = f"“{document.pages[1].text.split('. ')[-2]}.”"
    ask(tab, "How many ships?")
    answered(tab)
    tab.click("#transcript .tf-prose .tf-cite >> nth=0")
    tab.wait_for_selector("#page .tf-page-text mark")
    tab.wait_for_function("document.querySelector('.tf-sheets').scrollTop > 0")
    for selector in ("#page mark", "[data-reader=close]", "#page-number"):
        seen(tab, selector)


def test_a_menu_stays_inside_its_column(served, tab) -> None:
    path = write_book(served.folder, "A title so long that hardly anything has room beside it.txt", 3)
    tab.set_input_files("#upload input[type=file]", str(path))
    tab.wait_for_selector("#head .tf-dot-ok")
    tab.click("#head .tf-more > summary")
    for action in ("choose-pages", "together"):
        seen(tab, f"#head .tf-more [data-action={action}]")


def test_pages_can_be_chosen_and_read_without_looking_for_the_button(served, tab) -> None:
    path = write_chapters(served.folder, "wide.pdf", [(f"Part {page}", 0, page) for page in range(1, 15)], 14)
    tab.set_input_files("#upload input[type=file]", str(path))
    tab.wait_for_selector("#head .tf-dot-ok")
    more(tab, "#head", "choose-pages")
    tab.wait_for_selector("#choice h2")
    tab.wait_for_selector("#range-text .tf-good", state="attached")
    for width, height in ((1280, 660), (640, 400), (360, 420)):
        tab.set_viewport_size({"width": width, "height": height})
        if width < 760:
            tab.click(".tf-panes [data-pane=center]")
        seen(tab, "#read-pages")
        seen(tab, "#leave-pages")
        if width == 1280:
            seen(tab, "#range-text .tf-good")


def test_the_keys_are_read_from_the_top(served, tab, scripted) -> None:
    """Its button has the focus and stands below what fits."""
    tab.set_viewport_size({"width": 360, "height": 740})
    tab.click(".tf-panes [data-pane=center]")
    tab.evaluate("document.activeElement.blur()")
    for _ in range(2):
        tab.keyboard.press("?")
        tab.wait_for_selector("#key-table[open]")
        table = "document.querySelector('#key-table')"
        assert tab.evaluate(f"{table}.scrollHeight > {table}.clientHeight && {table}.scrollTop === 0")
        seen(tab, "#key-table h2")
        seen(tab, "#key-table tr:first-child th")
        tab.keyboard.press("End")
        tab.keyboard.press("Escape")
        tab.wait_for_selector("#key-table", state="hidden")


def test_a_long_path_stays_inside_its_models_card(served, tab) -> None:
    models = served.services.models
    models.listed = (CuratedModel("Some 4B", "some/four", "Apache-2.0", False, "", 4_000_000_000, 4096, "",
                                  (("bf16", 8_000_000_000),), folder=f"/home/{'x' * 90}", disk_free=10**11),)
    models._looked = monotonic()
    models.want("some/four")
    tab.set_viewport_size({"width": 360, "height": 740})
    tab.click(".tf-panes [data-pane=center]")
    tab.get_by_role("tab", name="Models").click()
    tab.wait_for_selector(".tf-listed .tf-card", state="attached")
    right = "[...document.querySelectorAll('.tf-listed .tf-model')].map(e => e.getBoundingClientRect().right)"
    found, models.listed = tab.evaluate(right), ()
    models.want(None)
    assert found and max(found) <= 360
