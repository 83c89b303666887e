"""What the browser itself can do with an answer, in headless Chromium: read it aloud, print it; and what there is to
look at while a document is read."""

from __future__ import annotations

import pytest
from little_books import write_chapters
from page_steps import answered, ask, upload

from ui.page import chat as chat_words
from ui.page.chat import READ_ALOUD

pytestmark = pytest.mark.browser
SPOKEN = """() => {
  window.spoken = [];
  window.SpeechSynthesisUtterance = class { constructor(text) { this.text = text; } };
  const voices = [{ name: 'far', default: true, localService: false }, { name: 'near', localService: true }];
  const voice = { speak: one => spoken.push(one), cancel: () => spoken.push('cancel'), getVoices: () => voices };
  Object.defineProperty(window, 'speechSynthesis', { value: voice, configurable: true });
}"""


def test_an_answer_is_read_aloud_and_stopped(served, tab, scripted) -> None:
    tab.add_init_script(f"({SPOKEN})()")
    tab.reload()
    upload(served, tab)
    scripted.answer = "The keeper counted. “The lighthouse keeper of Ness 2 counted 200 ships before the storm”"
    ask(tab, "How many?")
    answered(tab)
    tab.click("[data-aloud]")
    tab.wait_for_selector(f"[data-aloud][aria-pressed=true]:has-text('{chat_words.READ_SILENT}')")
    said = tab.evaluate("spoken.filter(one => one !== 'cancel').map(one => one.text)")
    assert tab.evaluate("spoken.every(one => one === 'cancel' || one.voice.name === 'near')")  # no words go elsewhere
    assert said[0] == "The keeper counted." and "200 ships" in said[1]
    tab.evaluate("spoken.at(-1).onend()")
    tab.wait_for_selector(f"[data-aloud][aria-pressed=false]:has-text('{READ_ALOUD}')")
    tab.click("[data-aloud]")
    tab.click("[data-aloud]")
    assert tab.evaluate("spoken.at(-1)") == "cancel"


@pytest.mark.parametrize("voice", ["undefined", "{ getVoices: () => [{ name: 'far', localService: false }] }"])
def test_a_browser_without_a_voice_of_its_own_offers_none(served, tab, scripted, voice: str) -> None:
    tab.add_init_script(f"Object.defineProperty(window, 'speechSynthesis', {{ value: {voice} }})")
    tab.reload()
    upload(served, tab)
    ask(tab, "How many?")
    answered(tab)
    assert tab.locator("[data-aloud]").count() == 1 and not tab.is_visible("[data-aloud]")


def test_on_paper_stands_the_conversation_alone(served, tab, scripted) -> None:
    path = upload(served, tab)
    scripted.answer = "One line after another.\n\n" * 60
    ask(tab, "How many?")
    answered(tab)
    tab.emulate_media(media="print")
    for selector in ("#library", "#side", "#composer", "#bar", ".tf-foot", ".tf-tools"):
        assert not tab.is_visible(selector), selector
    assert path.stem in tab.inner_text(".tf-title") and tab.is_visible("#transcript .tf-bubble")
    tall = "selector => document.querySelector(selector).getBoundingClientRect().height"
    assert tab.evaluate(tall, "#chat-scroll") >= tab.evaluate(tall, "#transcript .tf-prose") > 1500  # nothing cut off
    assert tab.evaluate("document.documentElement.scrollHeight") > 1500
    tab.emulate_media(media="screen")


def test_a_long_list_of_chapters_is_read_from_its_top(served, tab, scripted) -> None:
    upload(served, tab)
    ask(tab, "A question whose answer is longer than the window?")
    answered(tab)
    tab.set_viewport_size({"width": 1280, "height": 500})
    tab.wait_for_function("document.getElementById('chat-scroll').scrollTop > 0")
    scripted.prefill_tokens_per_second = 60.0
    path = write_chapters(served.folder, "many chapters.pdf", [(f"Chapter {at}", at % 2, 1 + at // 3)
                                                               for at in range(30)], pages=12)
    tab.set_input_files("#upload input[type=file]", str(path))
    tab.wait_for_selector(".tf-meanwhile button")
    box = "document.getElementById('chat-scroll')"
    tab.wait_for_function(f"{box}.scrollHeight > {box}.clientHeight + 80 && {box}.scrollTop === 0")
    ask(tab, "Asked before it is read?")
    tab.wait_for_selector("#live .tf-bubble")
    scripted.prefill_tokens_per_second = 20_000.0
    answered(tab)
    tab.wait_for_function("document.querySelector('#transcript .tf-best').getBoundingClientRect().top > 0")


def test_chapters_can_be_looked_into_while_a_document_is_read(served, tab, scripted) -> None:
    scripted.prefill_tokens_per_second = 60.0
    path = write_chapters(served.folder, "slow chapters.pdf", [("One", 0, 1), ("Two", 0, 4), ("Three", 0, 7)],
                          pages=11)  # words that no other test has read
    tab.set_input_files("#upload input[type=file]", str(path))
    tab.wait_for_selector(".tf-meanwhile button")
    tab.click(".tf-meanwhile li:nth-child(2) button")
    tab.wait_for_selector(".tf-reader:not([hidden]) .tf-sheet[data-page='4']")
    scripted.prefill_tokens_per_second = 20_000.0
    tab.wait_for_selector("#head .tf-dot-ok")
    tab.wait_for_selector(".tf-meanwhile", state="detached")
