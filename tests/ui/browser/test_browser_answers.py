"""Answers in headless Chromium: what is quoted, who wrote it, what is kept of them, and what they cannot do."""

from __future__ import annotations

import re
import time
from dataclasses import replace

import pytest
from page_steps import answered, ask, statistics, upload

from ui.app.questions import ONE_AT_A_TIME
from ui.page import chat as chat_words
from ui.page import figures as figure_words
from ui.page import html as page_words
from ui.page.markdown import QUOTE_MISSING

pytestmark = pytest.mark.browser


def test_quotations_are_checked_and_open_their_page(served, tab, scripted) -> None:
    upload(served, tab)
    scripted.answer = ('It says "keeper of Ness 3 counted 302 ships" and also "the keeper of Ness 3 slept all night". '
                    "> nothing\n\n“storm reached the northern harbour. The lighthouse keeper of Ness 5”")
    ask(tab, "How many ships?")
    answered(tab)
    assert tab.locator("#transcript .tf-prose .tf-cite").all_inner_texts()[0] == "p. 3"
    assert tab.locator("#transcript .tf-uncited").count() == 1
    tab.focus("#transcript .tf-prose .tf-cite")  # with the keyboard
    tab.keyboard.press("Enter")
    tab.wait_for_selector("#page mark")
    assert tab.inner_text("#page mark") == "keeper of Ness 3 counted 302 ships"
    tab.reload()  # the open page is remembered
    tab.wait_for_selector("#page .tf-page-text:has-text('Ness 3')")
    tab.click("[data-reader=close]")
    tab.wait_for_selector("#page .tf-reader", state="hidden")


def test_sentences_are_judged_as_they_are_written_and_open_their_page(served, tab, scripted, monkeypatch) -> None:
    queue = served.services.queue
    monkeypatch.setattr(queue, "model", replace(queue.model, instructions=True))  # one that writes in its own words
    monkeypatch.setattr(queue._evidence, "judges", True)
    upload(served, tab)
    told = ("The lighthouse keeper of Ness 3 counted 302 ships before the storm reached the northern harbour. The "
            "lighthouse keeper of Ness 4 counted not 400 ships before the storm reached the northern harbour. The "
            "keeper then left for the city and never came back. ")
    scripted.answer = f"<think>It asks for ships.</think>{told}It goes on in words that stand nowhere at all."
    scripted.triforce_tokens_per_second = 12.0
    ask(tab, "How many ships?")
    tab.wait_for_selector("#live .tf-prose .tf-denied")
    assert tab.locator("#live .tf-prose .tf-cite").all_inner_texts() == ["p. 3", "p. 4"]
    scripted.triforce_tokens_per_second = 4000.0
    answered(tab)
    tab.wait_for_selector("#transcript .tf-prose .tf-denied")
    assert "1 of 4 sentences are supported" in tab.inner_text("#transcript")
    assert not tab.locator("#transcript .tf-thinking").evaluate("(fold) => fold.open")
    tab.click("#transcript .tf-prose .tf-cite >> nth=1")
    tab.wait_for_selector("#page mark")
    assert tab.inner_text("#page mark").startswith("The lighthouse keeper of Ness 4 counted 400 ships")


def test_half_a_surrogate_pair_can_be_asked(served, tab, scripted) -> None:
    """As a keyboard of some program may leave it in the box; the page sends it as JSON."""
    upload(served, tab)
    tab.evaluate("""() => {
      const box = document.querySelector('#question textarea');
      box.value = 'How many ' + String.fromCharCode(0xd83d) + ' ships?';
      box.dispatchEvent(new Event('input'));
    }""")
    tab.press("#question textarea", "Enter")
    answered(tab)
    assert "How many \ufffd ships?" in tab.inner_text("#transcript .tf-question")
    tab.reload()  # it was kept
    tab.wait_for_selector("#transcript .tf-question:has-text('How many \ufffd ships?')")


def test_pages_of_quotations_are_there_while_the_answer_is_written(served, tab, scripted) -> None:
    upload(served, tab)
    scripted.answer = ("It says “keeper of Ness 3 counted 302 ships” and “Ness 4 slept all night” "
                       + "and goes on. " * 25)
    scripted.triforce_tokens_per_second = 12.0
    ask(tab, "How many ships?")
    tab.wait_for_selector("#live .tf-prose .tf-cite")
    assert tab.locator("#live .tf-prose .tf-cite").all_inner_texts() == ["p. 3"]
    assert tab.locator("#live .tf-uncited").count() == 0  # what was not told is looked up when all is there
    tab.click("#live .tf-prose .tf-cite")
    tab.wait_for_selector("#page mark")
    assert tab.inner_text("#page mark") == "keeper of Ness 3 counted 302 ships"
    scripted.triforce_tokens_per_second = 4000.0
    answered(tab)
    assert tab.locator("#transcript .tf-uncited").count() == 1


def test_who_wrote_it(served, tab, scripted) -> None:
    upload(served, tab)
    scripted.triforce_tokens_per_second = 20.0
    ask(tab, "How many ships?")
    tab.click("#live [data-action=trace]")
    tab.wait_for_selector("#live .tf-tokens .tf-t")  # colours while it is written
    scripted.triforce_tokens_per_second = 60.0
    answered(tab)
    tab.wait_for_selector("#transcript .tf-trace")
    tab.wait_for_selector("#strip .tf-page[title*='%']")
    time.sleep(0.5)  # the strip is drawn once more
    words = tab.inner_text("#transcript .tf-tokens")
    assert words.startswith("This is the scripted engine") and tab.locator(".tf-round").count() > 5
    tab.hover(".tf-tokens .tf-t >> nth=3")
    told = tab.inner_text(".tf-told")
    assert re.search(r"scripted.*\n?.*%", told, re.DOTALL) and "ms" in told
    assert tab.locator("#strip .tf-lifted").count() == 1 and tab.locator(".tf-t.tf-near").count() >= 1
    tab.check(".tf-reach input[value=sentence]")
    tab.hover(".tf-tokens .tf-t >> nth=3")  # the way there may have scrolled another token under the pointer
    near = tab.locator(".tf-t.tf-near").all_inner_texts()
    assert "".join(near).strip() == "This is the scripted engine: it quotes the document and understands nothing."
    tab.focus(".tf-tokens")
    tab.keyboard.press("End")
    assert tab.locator(".tf-t").last.get_attribute("class").endswith("tf-at") or tab.locator(".tf-t.tf-at").count() == 1
    assert tab.locator(".tf-told-passages .tf-passage").count() >= 1  # sentences, of the rounds pointed at
    assert re.search(r"\d %\s+.*lighthouse keeper", tab.inner_text(".tf-told-passages .tf-passage >> nth=0"), re.S)
    tab.click(".tf-told-passages .tf-passage >> nth=0")
    tab.wait_for_selector("#page mark:has-text('lighthouse keeper')")
    tab.click(".tf-told [data-action=page] >> nth=0")  # to the page that was attended most
    tab.wait_for_selector("#page .tf-page-text")
    scripted.triforce_tokens_per_second = 20.0
    ask(tab, "And now?")  # stays on for the next answer
    tab.wait_for_selector("#live .tf-tokens .tf-t")
    scripted.triforce_tokens_per_second = 60.0
    answered(tab, 2)
    tab.click("#transcript [data-action=trace][aria-pressed=true]")
    tab.wait_for_selector("#transcript .tf-trace", state="detached")


def test_the_history_of_answers(served, tab, scripted) -> None:
    upload(served, tab)
    for number in (1, 2):
        ask(tab, f"Question {number}?")
        answered(tab, number)
    statistics(tab)
    tab.wait_for_function("document.querySelectorAll('#history tbody tr').length === 2")
    assert tab.locator("#history tbody th").all_inner_texts() == ["Question 2?", "Question 1?"]
    tab.wait_for_selector(f"#figures:has-text('{figure_words.SPEED_OVER_TIME}')")
    assert tab.locator("#figures .tf-chart polyline").count() >= 3  # speed, and acceptance of two tiers


def test_a_hostile_answer_stays_in_its_place(served, tab, scripted) -> None:
    upload(served, tab)
    scripted.answer = ("![x](http://evil.example/?q=1) <img src=http://evil.example/x onerror=alert(1)> "
                    '<div style="position:fixed;inset:0">over</div> <script>document.title="owned"</script> '
                    "[click](http://evil.example/) {{value}} ${1+1}")
    ask(tab, "What now?")
    answered(tab)
    assert "${1+1}" in tab.inner_text("#transcript") and "{{value}}" in tab.inner_text("#transcript")
    assert tab.title().endswith(page_words.APP)
    assert tab.locator("#transcript img, #transcript script, #transcript [style*=fixed]").count() == 0
    tab.click("button[role=tab]:has-text('Settings')")  # nothing covers the page
    assert "[evil.example]" in tab.locator("#transcript").text_content()


def test_the_refusal_goes_with_its_reason(served, tab, scripted) -> None:
    upload(served, tab)
    scripted.triforce_tokens_per_second = 30
    ask(tab, "How many ships?")
    tab.wait_for_selector("#live .tf-streaming")
    ask(tab, "And how many more?")
    tab.wait_for_selector(f"#notice:has-text('{ONE_AT_A_TIME}')")
    scripted.triforce_tokens_per_second = 1e6
    answered(tab)
    tab.wait_for_function("!document.querySelector('#notice').innerText.trim()", timeout=3000)
    assert tab.input_value("#question textarea") == "And how many more?"


def test_copied_words_read_like_words(served, tab, scripted) -> None:
    path = served.folder / "copied words.txt"
    said = "The ferry crossed at noon and came back empty"
    path.write_text("\f".join(f"{said}. Page {page}." for page in range(1, 13)))
    tab.set_input_files("#upload input[type=file]", str(path))
    tab.wait_for_selector(".tf-title:has-text('copied words')")
    tab.wait_for_selector("#head .tf-dot-ok")
    scripted.answer = f'It says: "{said}" often, and "the moon was made of cheese".'
    scripted.triforce_tokens_per_second = 1e6
    ask(tab, "What of the ferry?")
    answered(tab)
    tab.context.grant_permissions(["clipboard-read", "clipboard-write"])
    tab.click("#transcript [data-copy=answer]")
    tab.wait_for_selector(f"#transcript .tf-copy:has-text('{chat_words.COPIED}')")
    copied = tab.evaluate("navigator.clipboard.readText()")
    assert " (p. 1, p. 2, p. 3 and 9 more places) often" in copied
    assert f"({QUOTE_MISSING})" in copied
    assert tab.locator("#transcript .tf-prose .tf-cite").count() == 3  # the answer itself is as it was


def test_the_last_question_stays_in_sight_when_a_page_opens(served, tab, scripted) -> None:
    """With the passages below it, however long the words are that follow them."""
    upload(served, tab)
    scripted.answer = " ".join(["The keeper counted the ships before the storm reached the harbour."] * 90)
    scripted.triforce_tokens_per_second = 1e6
    for number in (1, 2):
        ask(tab, f"How many ships on day {number}?")
        answered(tab, number)
    wide = tab.evaluate("document.getElementById('chat-scroll').clientWidth")
    tab.click("#strip .tf-page >> nth=2")
    tab.wait_for_function(f"document.getElementById('chat-scroll').clientWidth < {wide} - 20")
    tab.wait_for_function("""() => {
      const box = document.getElementById('chat-scroll'), last = [...box.querySelectorAll('.tf-question')].at(-1);
      const top = box.getBoundingClientRect().top;
      return box.scrollHeight - box.scrollTop - box.clientHeight > 100
        && Math.abs(last.getBoundingClientRect().top - top - 8) < 5
        && last.parentElement.querySelector('.tf-best').getBoundingClientRect().bottom < innerHeight;
    }""")
    tab.evaluate("""() => {
      const box = document.getElementById('chat-scroll');
      box.scrollTop = box.scrollHeight;
      return new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)));
    }""")  # a scroll is told at the next frame: a width that changes before it is no person's doing
    tab.set_viewport_size({"width": 1200, "height": 800})
    tab.wait_for_function("""() => {
      const box = document.getElementById('chat-scroll');
      return box.scrollHeight - box.scrollTop - box.clientHeight < 5;
    }""")  # whoever went to the end stays there
    tab.set_viewport_size({"width": 1280, "height": 800})


def test_answered_now_from_the_pages_that_are_read(served, tab, scripted) -> None:
    scripted.prefill_tokens_per_second, scripted.prefill_chunk = 200.0, 60
    upload(served, tab, words=300, wait=".tf-progress:has-text('Reading')")
    tab.wait_for_selector(f"#transcript .tf-meanwhile:has-text('{chat_words.MEANWHILE_ASK}')")
    ask(tab, "What is told by now?")
    offer = tab.wait_for_selector("#live [data-action=answer-now]")
    assert re.fullmatch(r"Answer now from pages? [\d–]+", offer.inner_text())
    scripted.prefill_tokens_per_second = 1e6
    tab.click("#live [data-action=answer-now]")
    said = tab.wait_for_selector("#transcript .tf-ended:has-text('the rest was still being read')").inner_text()
    assert re.match(r"Answered from pages? [\d–]+ of pages 1–\d+", said)
    tab.wait_for_selector("#head .tf-dot-ok")  # the rest was read behind it
