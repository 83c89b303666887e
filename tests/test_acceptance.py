"""The main job, end to end, as a new user does it: a book as a PDF of over 100 pages, 30,000 tokens, in a real browser.

Needs the test corpus (``TRIFORCE_CORPUS``, a folder with books-dev.jsonl.zst) and Chromium; minutes, not seconds.
"""

from __future__ import annotations

import io
import json
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
QUESTIONS = ["What is said about the doctor?", "Where did they live?", "Who was rich?"]
CHARACTERS = 110_000  # about 30,000 tokens; more would not fit the built-in context
PAGES = 110
READING = 900_000  # milliseconds: a loaded machine reads slowly

pytestmark = [pytest.mark.browser, pytest.mark.exhaustive, pytest.mark.slow, pytest.mark.timeout(1800)]


@pytest.fixture(scope="module")
def book(tmp_path_factory) -> tuple[Path, str]:
    """The middle of an unseen book as a PDF, and its words. Made here, kept nowhere."""
    corpus = os.environ.get("TRIFORCE_CORPUS")
    if not corpus:
        pytest.skip("TRIFORCE_CORPUS is not set: no book to read")
    fpdf = pytest.importorskip("fpdf")
    zstandard = pytest.importorskip("zstandard")
    with open(Path(corpus) / "books-dev.jsonl.zst", "rb") as packed:
        lines = io.TextIOWrapper(zstandard.ZstdDecompressor().stream_reader(packed), encoding="utf-8")
        text = next(record["text"] for record in map(json.loads, lines) if "Middlemarch" in record["title"])
    start = text.index("\n", len(text) // 2) + 1
    text = text[start : start + CHARACTERS].encode("latin-1", "replace").decode("latin-1")
    pdf = fpdf.FPDF(format="A5")
    pdf.set_font("Times", size=11)
    size = len(text) // PAGES + 1
    for page in range(PAGES):
        pdf.add_page()
        pdf.multi_cell(0, 5, text[page * size : (page + 1) * size])
    path = tmp_path_factory.mktemp("book") / "middlemarch.pdf"
    pdf.output(str(path))
    assert pdf.page_no() > 100
    return path, text


@pytest.fixture(scope="module")
def app(tmp_path_factory) -> Iterator[str]:
    """``python app.py`` in a process of its own, on a free port, with an empty data folder."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [sys.executable, "app.py", "--no-browser", "--port", str(port), "--data-dir",
               str(tmp_path_factory.mktemp("home"))]
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    line = process.stdout.readline()
    assert f"http://127.0.0.1:{port}/" in line
    yield f"http://127.0.0.1:{port}/"
    process.send_signal(signal.SIGTERM)
    assert process.wait(20) == 0


def squeezed(text: str) -> str:
    """Letters and digits only: line breaks and hyphens of the PDF do not count."""
    return re.sub(r"[^a-z0-9]", "", text.lower())


def test_read_a_book_ask_three_questions_and_race(app, book, chromium, tmp_path) -> None:
    path, text = book
    context = chromium.new_context(viewport={"width": 1280, "height": 800})
    context.set_default_timeout(60_000)
    outside: list[str] = []
    context.on("request", lambda request: None if request.url.startswith((app, "data:", "blob:"))
               else outside.append(request.url))
    page = context.new_page()
    page.goto(app)
    page.set_input_files("#upload input[type=file]", str(path))
    page.wait_for_selector(f"#head:has-text('{PAGES} pages')", timeout=READING)
    page.wait_for_selector("#head .tf-dot-ok", timeout=READING)
    for number, question in enumerate(QUESTIONS, start=1):
        page.fill("#question textarea", question)
        page.press("#question textarea", "Enter")
        page.wait_for_function(
            f"document.querySelectorAll('#transcript .tf-foot').length === {number}", timeout=READING)
    answers = page.locator("#transcript .tf-prose").all_inner_texts()
    assert len(answers) == len(QUESTIONS)
    for answer in answers:
        quotations = re.findall("“([^”]+)”", answer)
        assert quotations and all(squeezed(quotation) in squeezed(text) for quotation in quotations)
    assert page.locator(".tf-page").count() == PAGES
    page.screenshot(path=str(tmp_path / "answers.png"))
    page.fill("#question textarea", QUESTIONS[0])
    page.click("button#race-now")
    page.wait_for_selector("#race-board:has-text('Same words: yes')", timeout=READING)
    page.screenshot(path=str(tmp_path / "race.png"))
    page.emulate_media(color_scheme="dark")
    page.goto(f"{app}?__theme=dark")
    page.wait_for_selector("#head .tf-dot-ok")
    page.wait_for_function(f"document.querySelectorAll('#transcript .tf-foot').length === {len(QUESTIONS)}")
    page.screenshot(path=str(tmp_path / "dark.png"))
    context.close()
    assert outside == []
