"""What a newcomer does in the first minutes, by the clock, and photographed at every step.

    python -m docs.first_run [--engine scripted|triforce] [--output DIR] [--sheets DIR] [FILE]
                                                                              (needs playwright and chromium)

Start the app with nothing kept; ask the handbook; add a PDF of sixty pages of one's own and ask while it is read; open
the page of the quotation; race. Done in light, then again in dark and 360 pixels wide, each with an app that knows
nothing yet. --sheets puts all pictures of a look together on one. Prints the seconds from the start to each step as
JSON; all of it should take less than three minutes.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from PIL import Image
from playwright.sync_api import Page, sync_playwright

from .screenshots import PATIENCE, QUESTIONS, ROOT, SIZE, app, browser_of, look_at_quotation, save

WANTED = 180.0  # seconds
PAGES = 60
LOOKS = {"light": ("light", SIZE), "dark": ("dark", SIZE), "phone": ("light", {"width": 360, "height": 740})}
_LINES, _LETTERS = 20, 84  # of a page
_GAP = 8  # pixels between the pictures of a sheet


def sixty_pages(path: Path) -> Path:
    """The handbook's prose, over and over, as a PDF of somebody's own."""
    from reportlab.lib.pagesizes import A4
    from reportlab.pdfgen.canvas import Canvas

    text = " ".join(source.read_text(encoding="utf-8") for source in sorted((ROOT / "docs" / "handbook").glob("*.md")))
    words = re.sub(r"[*`_#|]", "", text).split()
    canvas = Canvas(str(path), pagesize=A4, invariant=True)
    canvas.setTitle("Notes of my own")
    at = 0
    for _ in range(PAGES):
        for line in range(_LINES):
            said = ""
            while len(said) + len(words[at % len(words)]) < _LETTERS:
                said += words[at % len(words)] + " "
                at += 1
            canvas.drawString(60, 760 - 34 * line, said)
        canvas.showPage()
    canvas.save()
    return path


class Steps:
    """Seconds since the start, and a picture of each."""

    def __init__(self, page: Page, folder: Path, look: str) -> None:
        self.page, self.folder, self.look = page, folder, look
        self.seconds: dict[str, float] = {}
        self._spent, self._from = 0.0, time.monotonic()

    def done(self, name: str) -> None:
        """The clock stands still while the picture is taken."""
        self._spent += time.monotonic() - self._from
        self.seconds[name] = round(self._spent, 1)
        save(self.page, self.folder / f"{len(self.seconds):02d}-{name}-{self.look}.png")
        self._from = time.monotonic()


def sheet(pictures: list[Path], target: Path) -> None:
    """All steps of a look, row by row, small enough to be kept with the project."""
    drawn = [Image.open(path).convert("RGB") for path in pictures]
    width, columns = (640, 2) if drawn[0].width > 640 else (240, 4)
    height = drawn[0].height * width // drawn[0].width
    rows = -(-len(drawn) // columns)
    whole = Image.new("RGB", (columns * (width + _GAP) - _GAP, rows * (height + _GAP) - _GAP), "grey")
    for number, picture in enumerate(drawn):
        place = number % columns * (width + _GAP), number // columns * (height + _GAP)
        whole.paste(picture.resize((width, height), Image.Resampling.LANCZOS), place)
    whole.save(target, quality=30, method=6)


def pane(page: Page, name: str) -> None:
    """On a narrow window one of three is shown."""
    button = page.locator(f"button[data-pane={name}]:visible")
    if button.count():
        button.first.click()


def ask(page: Page, question: str) -> None:
    pane(page, "center")
    page.fill("#question textarea", question)
    page.press("#question textarea", "Enter")


def answered(page: Page, number: int) -> None:
    page.wait_for_selector(f"#transcript .tf-answer >> nth={number - 1}")
    page.wait_for_selector("#stop", state="hidden")


def walk(page: Page, url: str, own: Path, steps: Steps) -> None:
    page.goto(f"{url}?__theme={LOOKS[steps.look][0]}")
    page.wait_for_selector("#transcript .tf-welcome [data-action=open]")
    steps.done("start")
    page.click("#transcript [data-action=open]")
    page.wait_for_selector("#head .tf-progress, #head .tf-dot-ok")
    ask(page, QUESTIONS[1])
    steps.done("asked-while-it-reads")
    answered(page, 1)
    steps.done("handbook-answer")
    look_at_quotation(page)
    steps.done("handbook-page")
    pane(page, "library")
    page.set_input_files("#upload input[type=file]", str(own))
    pane(page, "center")
    page.wait_for_selector("#head .tf-title:has-text('own')")
    ask(page, QUESTIONS[1])
    page.wait_for_selector("#live .tf-state")
    steps.done("own-asked-at-once")
    answered(page, 1)
    steps.done("own-answer")
    look_at_quotation(page)
    steps.done("own-page")
    pane(page, "center")
    page.get_by_role("tab", name="Race", exact=True).click()
    page.fill("#race-question textarea", QUESTIONS[1])
    page.click("#race-start")
    page.wait_for_selector("#race-board .tf-verdict")
    steps.done("race")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m docs.first_run", description="A newcomer's first minutes.")
    parser.add_argument("file", nargs="?", type=Path, metavar="FILE", help="a document of one's own (default: made)")
    parser.add_argument("--engine", choices=("scripted", "triforce"), default="triforce")
    parser.add_argument("--output", type=Path, default=Path(tempfile.gettempdir()) / "first-run", metavar="DIR")
    parser.add_argument("--sheets", type=Path, metavar="DIR", help="where one picture of each look goes")
    parser.add_argument("--looks", nargs="+", choices=tuple(LOOKS), default=list(LOOKS), metavar="LOOK",
                        help="of light, dark, phone (default: all)")
    given = parser.parse_args()
    given.output.mkdir(parents=True, exist_ok=True)
    told: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        own = given.file or sixty_pages(Path(folder) / "own.pdf")
        for look in given.looks:
            started = time.monotonic()
            with app(given.engine, Path(folder) / look) as url:
                ready = round(time.monotonic() - started, 1)
                browser = browser_of(playwright)
                page = browser.new_page(viewport=LOOKS[look][1])
                page.set_default_timeout(PATIENCE)
                steps = Steps(page, given.output, look)
                walk(page, url, own, steps)
                told[look] = {"app": ready, **steps.seconds}
                browser.close()
            if given.sheets:
                sheet(sorted(given.output.glob(f"*-{look}.png")), given.sheets / f"first-run-{look}.webp")
    good = all(each["app"] + each["race"] < WANTED for each in told.values())
    print(json.dumps({"engine": given.engine, "seconds": told, "good": good}))
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
