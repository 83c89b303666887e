"""Makes the README's pictures: starts the app, does what the two-minute tour says, and photographs it, light and dark.

    python -m docs.screenshots [--engine scripted|triforce] [--output DIR]    (needs playwright and Debian's chromium)

On the scripted engine it takes seconds, and its figures are made up: good for looking at a change. The README's own are
made with ``--engine triforce``: the built-in pair reads the handbook on this machine, so its figures are real ones.
"""

from __future__ import annotations

import argparse
import io
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from PIL import Image
from playwright.sync_api import Browser, Playwright, sync_playwright

ROOT = Path(__file__).resolve().parents[1]
SIZE = {"width": 1280, "height": 800}
COLOURS = 96  # of the written PNG: a page of text needs no more, and is a third as large
PATIENCE = 400_000  # ms: the first reading of forty pages on a slow CPU
DRAWN = "() => [...document.querySelectorAll('.tf-picture')].some(picture => picture.complete && picture.width > 9)"
QUESTIONS = ("How many tokens are kept for questions and answers?", "When was TriForce published?",
             "What is a bonus token?")


@contextmanager
def app(engine: str, home: Path, *files: Path, model: Path | None = None) -> Iterator[str]:
    """The app as a person starts it, with nothing kept from before; its address. model: None for the built-in one."""
    program = ["-m", "tests.scripted_app"] if engine == "scripted" else ["app.py", "--engine", engine]
    command = [sys.executable, *program, "--no-browser", "--data-dir", str(home),
               *(("--model", str(model)) if model else ()), *(str(file.resolve()) for file in files)]
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        yield process.stdout.readline().split()[-1]
    finally:
        process.terminate()
        process.wait(60)  # a busy machine takes its time


def browser_of(playwright: Playwright) -> Browser:
    """This machine's own Chromium."""
    return playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])


def save(page: Any, path: Path) -> None:
    """The window as a small picture, PNG or WebP by the name; what still moves is let come to rest first."""
    page.mouse.move(0, 0)
    page.wait_for_timeout(700)
    picture = Image.open(io.BytesIO(page.screenshot(animations="disabled", caret="hide"))).convert("RGB")
    few = picture.quantize(COLOURS, Image.Quantize.MAXCOVERAGE, kmeans=1, dither=Image.Dither.NONE)
    few.save(path, optimize=True, lossless=True, quality=100, method=6)


def look_at_quotation(page: Any) -> None:
    """Opens the page of the last answer's quotation, and waits until it is drawn."""
    quotation = page.locator("#transcript .tf-cite")
    if quotation.count():  # the scripted engine does not always quote
        quotation.last.click()
        page.wait_for_function(DRAWN)


def tour(page: Any, url: str, folder: Path) -> None:
    """Every step once, in light; then the same pages in dark."""
    page.goto(url)
    page.wait_for_selector("#transcript .tf-welcome [data-action=open]")
    save(page, folder / "start-light.webp")
    page.click("#transcript [data-action=open]")
    page.wait_for_selector("#head .tf-dot-ok")
    for number, question in enumerate(QUESTIONS, start=1):
        page.fill("#question textarea", question)
        page.press("#question textarea", "Enter")
        page.wait_for_selector(f"#transcript .tf-answer >> nth={number - 1}")
        page.wait_for_selector("#stop", state="hidden")
    look_at_quotation(page)
    save(page, folder / "chat-light.webp")
    page.get_by_role("tab", name="Race", exact=True).click()
    page.fill("#race-question textarea", QUESTIONS[1])
    page.click("#race-start")
    page.wait_for_selector("#race-board .tf-verdict")
    page.reload()  # a kept race is shown at its end, not replayed
    page.get_by_role("tab", name="Race", exact=True).click()
    page.wait_for_selector("#race-board .tf-verdict")
    save(page, folder / "race-light.webp")
    page.get_by_role("tab", name="Models", exact=True).click()
    if page.locator("#models-look").is_visible():  # the scripted engine has no models
        page.click("#models-look")
        page.wait_for_selector(".tf-model")
    save(page, folder / "models-light.webp")
    page.goto(f"{url}?__theme=dark")
    page.wait_for_selector("#transcript .tf-answer")
    look_at_quotation(page)
    save(page, folder / "chat-dark.webp")
    page.get_by_role("tab", name="Race", exact=True).click()
    page.wait_for_selector("#race-board .tf-verdict")
    save(page, folder / "race-dark.webp")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m docs.screenshots", description="Make the README's pictures.")
    parser.add_argument("--engine", choices=("scripted", "triforce"), default="scripted")
    parser.add_argument("--output", type=Path, default=ROOT / "docs", metavar="DIR")
    given = parser.parse_args()
    given.output.mkdir(parents=True, exist_ok=True)
    home = Path(tempfile.mkdtemp())
    try:
        with sync_playwright() as playwright, app(given.engine, home) as url:
            browser = browser_of(playwright)
            page = browser.new_page(viewport=SIZE)
            page.set_default_timeout(PATIENCE)
            tour(page, url, given.output)
            browser.close()
    finally:
        shutil.rmtree(home)


if __name__ == "__main__":
    main()
