"""Documents in headless Chromium: being read, too long, locked, broken, and their pages beside the chat."""

from __future__ import annotations

import base64
import dataclasses
import re
import uuid

import pytest
from little_books import PASSWORD, make_document, write_book, write_pdf
from page_steps import PAGES, answered, ask, upload
from PIL import Image, ImageDraw, ImageFont

from tests.documents.test_print import boxes
from triforce_core import read_document
from ui.app import jobs as head_words
from ui.page import chat as chat_words
from ui.page import page_choice as choice_words
from ui.page import reader as reader_words
from ui.page.document_head import PASSWORD_TITLE
from ui.page.markdown import BY_OCR

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
    tab.wait_for_selector("#head:has-text('Longer than this model reads at once')")
    assert tab.get_attribute("#question textarea", "placeholder") == chat_words.ASK_PARTS
    ask(tab, "How many ships?")
    answered(tab)
    assert chat_words.NOT_ALL_FIT in tab.inner_text("#transcript")
    tab.click("#new-conversation")
    tab.click("#head [data-action=choose-pages]")
    tab.wait_for_selector("#choice h2:has-text('of your 12 pages fit')")
    first, last = map(int, tab.input_value(PAGES).split("-"))
    assert first == 1 and 1 < last < 12
    assert tab.inner_text("#choice h2") == choice_words.PART_FITS.format(fitting=last, pages="12 pages")
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
    tab.wait_for_selector("#transcript:has-text('Ask about pages 5–7 of')")
    assert "whole" not in tab.inner_text("#transcript") and "3 of 12 pages" in tab.inner_text("#documents")
    assert tab.input_value("#question textarea") == "typed before"
    tab.wait_for_selector("#question textarea[placeholder^='Ask about pages 5–7 of']")


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
    tab.click("#transcript .tf-prose .tf-cite")
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


def test_a_scan_is_read_and_quoted_where_its_words_stand(served, tab, scripted, monkeypatch) -> None:
    monkeypatch.setattr(served.services.extractor, "_read", read_document)
    page, type_of_page = Image.new("L", (1275, 900), 235), ImageFont.load_default(size=34)
    words = ("The keeper of Skerry counted 417 barrels of salt.", "Nobody on the quay remembered a colder spring.")
    for number, line in enumerate((*words, f"Copy {uuid.uuid4().int % 10**6} of the harbour book.")):
        ImageDraw.Draw(page).text((120, 150 + 90 * number), line, fill=30, font=type_of_page)
    path = served.folder / f"{uuid.uuid4().hex[:8]}.pdf"
    page.save(path, "PDF", resolution=150, save_all=True, append_images=[page])
    tab.set_input_files("#upload input[type=file]", str(path))
    tab.wait_for_selector("#head .tf-progress:has-text('Extracting text: page'):has-text('of 2')")
    tab.wait_for_selector("#head .tf-dot-ok", timeout=120_000)
    scripted.answer = "“The keeper of Skerry counted 417 barrels of salt.”"
    ask(tab, "How many barrels?")
    answered(tab)
    tab.wait_for_selector(f"#transcript .tf-prose:has-text('{BY_OCR}')")
    tab.click("#transcript .tf-prose .tf-cite")
    tab.wait_for_selector("#page .tf-set mark")
    tab.wait_for_function("document.querySelector('#page .tf-picture').naturalWidth >= 800")
    top, height, marked = tab.evaluate("""() => { const sheet = document.querySelector('#page .tf-sheet')
        .getBoundingClientRect(), mark = document.querySelector('#page mark').getBoundingClientRect();
        return [mark.top - sheet.top, sheet.height, mark.height]; }""")
    assert top + marked / 2 == pytest.approx(170 / 900 * height, abs=0.04 * height)  # on the drawn line


def test_a_scan_is_asked_about_in_part_and_its_reading_is_cancelled(served, tab, scripted, monkeypatch) -> None:
    monkeypatch.setattr(served.services.extractor, "_read", read_document)
    pages = [Image.new("L", (1275, 300), 235) for _ in range(30)]
    for number, page in enumerate(pages):
        words = f"The keeper of Ness {number} counted {uuid.uuid4().int % 10**6} barrels."
        ImageDraw.Draw(page).text((120, 120), words, fill=30, font=ImageFont.load_default(size=34))
    path = served.folder / f"{uuid.uuid4().hex[:8]}.tiff"
    pages[0].save(path, save_all=True, append_images=pages[1:])
    tab.set_input_files("#upload input[type=file]", str(path))
    tab.wait_for_selector("#head:has-text('of 30 are read so far')", timeout=120_000)
    ask(tab, "Who counted?")
    answered(tab)
    assert "of pages 1–30: the rest was still being read" in tab.inner_text("#transcript")
    tab.click("#head [data-action=cancel-reading]")
    tab.wait_for_selector(f"#head:has-text('{head_words.READING_CANCELLED}')")
    assert "Who counted?" in tab.inner_text("#transcript")
    found = next(entry for entry in served.services.library.entries() if entry.name == path.name)
    assert found.state == "failed" and found.id not in served.services.extractor.extractions


COLOURED = """([red, blue]) => { const sheet = document.querySelector('#page .tf-sheet').getBoundingClientRect();
    const picture = document.querySelector('#page .tf-picture'), canvas = document.createElement('canvas');
    const [wide, high] = [canvas.width, canvas.height] = [picture.naturalWidth, picture.naturalHeight];
    const pen = canvas.getContext('2d'); pen.drawImage(picture, 0, 0);
    const dots = pen.getImageData(0, 0, wide, high).data, marks = [...document.querySelectorAll('#page mark')].map(
      mark => mark.getBoundingClientRect());
    let inside = 0, all = 0;
    for (let at = 0; at < wide * high; at += 1) {
      if (Math.abs(dots[4 * at] - red) + dots[4 * at + 1] + Math.abs(dots[4 * at + 2] - blue) > 60) continue;
      const x = sheet.left + at % wide / wide * sheet.width;
      const y = sheet.top + Math.floor(at / wide) / high * sheet.height;
      all += 1;
      inside += marks.some(box => x >= box.left - 1 && x <= box.right + 1 && y >= box.top - 1 && y <= box.bottom + 1);
    }
    return all ? inside / all : -1; }"""


@pytest.mark.parametrize(("before", "quoted", "between", "sought", "after"), [
    ("השומר עלה במדרגות והדליק את", "המגדלור נבנה בשנת 1905 (ליד הנמל) והוא דולק מאז בכל לילה בלי הפסקה.", "הספינה",
     "מרגרט", "הגיעה עם 312 חביות של מלח."),
    ("看守人每天晚上点灯，早上再下来写账本。", "灯塔建于一九〇五年，船只因此平安回家，全村的人都很高兴，后来每年庆祝。",
     "后来", "新船", "来了，带着三百一十二桶盐。")], ids=["hebrew", "chinese"])
def test_the_words_of_other_scripts_are_marked_and_found(served, tab, chromium, monkeypatch, scripted, before, quoted,
                                                         between, sought, after) -> None:
    monkeypatch.setattr(served.services.extractor, "_read", read_document)
    font = base64.b64encode(boxes(" ".join((before, quoted, between, sought, after)))).decode()
    blank = "" if between > "\u2e80" else " "
    sheet = chromium.new_page()
    sheet.set_content(
        f"<style>@font-face {{font-family: Boxes; src: url(data:font/ttf;base64,{font})}}"
        "p {font: 14pt Boxes; width: 9cm}"
        f'</style><p dir="auto">{before}{blank}<span style="color: rgb(255 0 0)">{quoted}</span></p>'
        f'<p dir="auto">{between}{blank}<span style="color: rgb(0 0 255)">{sought}</span>{blank}{after}</p>')
    sheet.evaluate("document.fonts.ready")
    path = served.folder / f"{uuid.uuid4().hex[:8]}.pdf"
    path.write_bytes(sheet.pdf(format="Letter"))
    sheet.close()
    tab.set_input_files("#upload input[type=file]", str(path))
    tab.wait_for_selector(f".tf-title:has-text('{path.stem}')")
    tab.wait_for_selector("#head .tf-dot-ok")
    scripted.answer = f"“{quoted}”"
    ask(tab, "1905?")
    answered(tab)
    tab.click("#transcript .tf-prose .tf-cite")
    tab.wait_for_selector("#page .tf-set mark")
    tab.wait_for_function("document.querySelector('#page .tf-picture').naturalWidth >= 400")
    assert tab.evaluate(COLOURED, [255, 0]) > 0.99 and tab.evaluate(COLOURED, [0, 255]) == 0
    tab.fill("#page-find", sought)
    tab.press("#page-find", "Enter")
    tab.wait_for_function("document.querySelector('#page-hits').textContent === '1 / 1'")
    tab.wait_for_function("document.querySelectorAll('#page mark').length === 1")
    tab.wait_for_function("document.querySelector('#page .tf-picture').naturalWidth >= 400")
    assert tab.evaluate(COLOURED, [0, 255]) > 0.99 and tab.evaluate(COLOURED, [255, 0]) == 0


def test_a_press_on_a_reading_reads_the_text_so(served, tab, monkeypatch) -> None:
    monkeypatch.setattr(served.services.extractor, "_read", read_document)
    path = served.folder / f"{uuid.uuid4().hex[:8]}.txt"
    path.write_bytes(f"{path.stem}. Vor der Brücke steht ein Müller.".encode("mac-roman"))
    tab.set_input_files("#upload input[type=file]", str(path))
    tab.wait_for_selector("#head [data-action=encoding]")
    assert tab.locator("#head [data-action=encoding]").count() == 3
    tab.click("#head [data-action=encoding][data-encoding=mac-roman]")
    tab.wait_for_selector("#head .tf-dot-ok")
    found = next(entry for entry in served.services.library.entries() if entry.name == path.name)
    assert "Brücke" in served.services.library.document(found.id).pages[0].text
