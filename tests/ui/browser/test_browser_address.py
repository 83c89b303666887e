"""The address in headless Chromium: it names what is shown, and Back, Forward, a reload and a link find it again."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Iterator

import pytest
from little_books import wait_for
from page_steps import answered, ask, upload

from ui.app.tabs import NO_CONVERSATION, NO_DOCUMENT
from ui.page import html as page_words
from ui.page import reader as reader_words

pytestmark = pytest.mark.browser


def named(tab) -> str:
    return tab.evaluate("decodeURIComponent(location.hash)")


def wait_named(tab, *parts: str) -> None:
    tab.wait_for_function("parts => parts.every(part => decodeURIComponent(location.hash).includes(part))", arg=parts)


def page_open(tab, number: int) -> None:
    tab.wait_for_selector(f".tf-sheet[data-page='{number}']")
    wait_named(tab, f"page={number}")


def told(tab) -> None:
    """Python has drawn where the browser went: the next step may follow."""
    tab.wait_for_function(
        "document.querySelector('[data-address]').dataset.address === decodeURIComponent(location.hash.slice(1))")


def test_back_and_forward_lead_through_documents_and_conversations(served, tab) -> None:
    wait_named(tab, "")
    assert named(tab) == ""
    first = upload(served, tab)
    ask(tab, "First question?")
    answered(tab)
    wait_named(tab, "conversation=")
    talk = named(tab)
    tab.click("#new-conversation")
    tab.wait_for_function("!location.hash.includes('conversation')")
    second = upload(served, tab)
    tab.wait_for_function(f"document.title.includes('{second.stem}')")
    tab.go_back()
    tab.wait_for_selector(f".tf-title:has-text('{first.stem}')")
    tab.wait_for_function(f"document.title.includes('{first.stem}')")  # the whole step is drawn, the welcome is no sign
    tab.wait_for_selector("#transcript .tf-welcome")
    told(tab)
    tab.go_back()
    tab.wait_for_selector("#transcript .tf-bubble:has-text('First question?')")
    assert named(tab) == talk
    told(tab)
    tab.go_forward()
    tab.go_forward()
    tab.wait_for_selector(f".tf-title:has-text('{second.stem}')")
    for _ in range(3):
        tab.go_back()
    tab.wait_for_selector("#transcript .tf-welcome h1")  # where it began; the app was never left
    assert named(tab) == "" and tab.title() == page_words.APP


def test_back_closes_the_page_view_and_turning_pages_is_no_step(served, tab) -> None:
    upload(served, tab)
    wait_named(tab, "document=")
    tab.click("#strip [data-page='2']")
    page_open(tab, 2)
    tab.click("[data-reader=next]")
    page_open(tab, 3)
    tab.click("#strip [data-page='5']")
    page_open(tab, 5)
    tab.go_back()
    page_open(tab, 3)
    tab.go_back()
    tab.wait_for_selector(".tf-reader", state="hidden")
    tab.go_forward()
    page_open(tab, 3)


def test_a_reload_and_another_tab_show_the_same(served, tab) -> None:
    path = upload(served, tab)
    ask(tab, "First question?")
    answered(tab)
    tab.click("#strip [data-page='4']")
    page_open(tab, 4)
    other = upload(served, tab)  # shown last, and remembered by the browser
    tab.go_back()
    page_open(tab, 4)
    tab.reload()
    answered(tab)
    page_open(tab, 4)
    tab.wait_for_selector(f".tf-title:has-text('{path.stem}')")
    beside = tab.context.new_page()
    beside.goto(tab.url)
    beside.wait_for_selector(f".tf-title:has-text('{path.stem}')")
    answered(beside)
    page_open(beside, 4)
    beside.goto(served.url)  # no address: what was shown last
    beside.wait_for_selector(f".tf-title:has-text('{path.stem}'), .tf-title:has-text('{other.stem}')")


def test_a_link_to_a_passage_is_copied_and_leads_there(served, tab) -> None:
    upload(served, tab)
    tab.click("#strip [data-page='3']")
    page_open(tab, 3)
    tab.fill("#page-find", "lighthouse keeper")
    tab.press("#page-find", "Enter")
    tab.wait_for_selector(".tf-sheet mark")
    tab.context.grant_permissions(["clipboard-read", "clipboard-write"])
    tab.click("[data-reader=link]")
    tab.wait_for_selector(f"[data-reader=link][aria-label='{reader_words.LINKED}']")
    link = tab.evaluate("navigator.clipboard.readText()")
    assert link.startswith(served.url) and "page=3&at=3:" in link
    beside = tab.context.new_page()
    beside.goto(link)
    page_open(beside, 3)
    assert "lighthouse keeper" in beside.inner_text(".tf-sheet mark").lower()
    beside.evaluate("location.hash = '#page=6'")  # a page of the open document
    page_open(beside, 6)


def test_what_is_not_there_is_told_kindly(served, tab) -> None:
    path = upload(served, tab)
    wait_named(tab, "document=")
    here = named(tab)
    tab.evaluate("address => { location.hash = address; }", f"{here}&conversation=0123456789ab")
    tab.wait_for_selector(f"#notice:has-text('{NO_CONVERSATION}')")
    assert path.stem in tab.inner_text(".tf-title")
    told(tab)
    assert named(tab) == here
    tab.go_back()  # the corrected address is no further step
    assert named(tab) == here
    tab.evaluate("location.hash = '#document=0123456789ab&page=9'")
    tab.wait_for_selector(f"#notice:has-text('{NO_DOCUMENT}')")
    tab.wait_for_selector("#transcript .tf-welcome h1")
    tab.goto(f"{served.url}#document=<img src=x onerror=alert(1)>&page=%zz")
    tab.reload()
    tab.wait_for_selector(f"#notice:has-text('{NO_DOCUMENT}')")


@pytest.fixture
def held_open(served, monkeypatch) -> Iterator[tuple[threading.Event, threading.Event]]:
    """The next document is opened only when the test lets it: (it is about to be, let it)."""
    opened, begun, let = served.services.open, threading.Event(), threading.Event()

    def slow(view, document) -> None:
        begun.set()
        assert let.wait(10.0)
        opened(view, document)

    monkeypatch.setattr(served.services, "open", slow)
    yield begun, let
    let.set()


def test_of_steps_taken_faster_than_drawn_the_last_counts(served, tab, held_open) -> None:
    begun, let = held_open
    let.set()
    first = upload(served, tab)
    wait_named(tab, "document=")
    start = named(tab)
    second = upload(served, tab)
    tab.wait_for_function("start => decodeURIComponent(location.hash) !== start", arg=start)
    tab.click("#strip [data-page='2']")
    page_open(tab, 2)
    end, steps = named(tab), tab.evaluate("history.length")
    for _ in range(2):
        tab.go_back()
        told(tab)
    assert named(tab) == start
    begun.clear()
    let.clear()
    tab.evaluate("history.forward()")
    wait_for(begun.is_set)  # Python takes the step, and is not done with it
    third = served.folder / f"{uuid.uuid4().hex[:8]}.txt"
    third.write_text(third.stem)
    served.services.library.add(third, third.name)
    tab.wait_for_selector(f"#documents :text('{third.stem}')", state="attached")  # the page is drawn meanwhile
    tab.evaluate("history.forward()")
    tab.wait_for_function("end => decodeURIComponent(location.hash) === end", arg=end)
    let.set()
    page_open(tab, 2)
    told(tab)
    tab.wait_for_selector(f".tf-title:has-text('{second.stem}')")
    assert named(tab) == end and tab.evaluate("history.length") == steps
    tab.evaluate("history.back(); history.back()")
    tab.wait_for_selector(f".tf-title:has-text('{first.stem}')")
    told(tab)
    assert named(tab) == start


def test_what_was_typed_belongs_to_its_document_and_outlives_a_reload(served, tab) -> None:
    def line() -> str:
        return tab.input_value("#question textarea")

    def stands(words: str) -> None:
        tab.wait_for_function("words => document.querySelector('#question textarea')?.value === words", arg=words)

    tab.fill("#question textarea", "Typed before a document came")
    first = upload(served, tab)
    tab.wait_for_function(f"document.title.includes('{first.stem}')")
    assert line() == "Typed before a document came"
    tab.fill("#question textarea", "Of the first")
    second = upload(served, tab)
    tab.wait_for_function(f"document.title.includes('{second.stem}')")
    stands("")
    tab.fill("#question textarea", "Of the second")
    tab.go_back()
    tab.wait_for_function(f"document.title.includes('{first.stem}')")
    stands("Of the first")
    tab.reload()
    stands("Of the first")
    told(tab)
    tab.click("#send")
    answered(tab)
    assert tab.inner_text("#transcript .tf-bubble").strip().startswith("Of the first")
    tab.reload()
    tab.wait_for_selector("#transcript .tf-bubble")
    stands("")
