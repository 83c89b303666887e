"""How long it takes from dropping a PDF of sixty pages to the first words about it, and what that time goes to.

    python -m docs.first_answer [--engine scripted|triforce] [FILE]       (prints JSON; needs playwright and chromium)

The question is asked as soon as the document stands in the page's title, while its text is still being extracted. Each
line above the chat is noted with the second, since the drop, at which it came: what the app was at, and any gap.
"""

from __future__ import annotations

import argparse
import json
import re
import tempfile
import time
from pathlib import Path
from typing import Any

from playwright.sync_api import Page, sync_playwright

from .first_run import sixty_pages
from .screenshots import PATIENCE, SIZE, app, browser_of

QUESTION = "When was TriForce published?"
REST = 6000  # ms: the engine has started, and the page rests
_LOOK = """() => [document.querySelector('#head .tf-progress-row span')?.innerText || '',
                  Boolean(document.querySelector('#transcript .tf-prose, [data-writing] .tf-prose'))]"""


def stages(page: Page, file: Path) -> list[tuple[float, str]]:
    """(seconds since the drop, what the app was at from then on), the first words last."""
    before = page.inner_text("#head") if page.locator("#head").count() else ""
    began, found = time.monotonic(), [(0.0, "dropped")]
    page.set_input_files("#upload input[type=file]", str(file))
    page.wait_for_function("before => document.querySelector('#head .tf-title') && "
                           "document.querySelector('#head').innerText !== before", arg=before, polling=20)
    page.fill("#question textarea", QUESTION)
    page.press("#question textarea", "Enter")
    found.append((round(time.monotonic() - began, 2), "asked"))
    words = False
    while not words and time.monotonic() - began < PATIENCE / 1000:
        line, words = page.evaluate(_LOOK)
        kind = re.sub(r":? [\d,].*", "", line)
        if kind and kind != found[-1][1]:
            found.append((round(time.monotonic() - began, 2), kind))
        time.sleep(0.03)
    return [*found, (round(time.monotonic() - began, 2), "first words")]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--engine", choices=("scripted", "triforce"), default="triforce")
    parser.add_argument("file", type=Path, nargs="?", help="a PDF of your own instead")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        file = arguments.file or sixty_pages(Path(folder) / "notes.pdf")
        with app(arguments.engine, Path(folder) / "home") as url:
            browser = browser_of(playwright)
            page: Any = browser.new_page(viewport=SIZE)
            page.set_default_timeout(PATIENCE)
            page.goto(url)
            page.wait_for_selector("#transcript .tf-welcome")
            page.wait_for_timeout(REST)
            print(json.dumps(stages(page, file)))
            browser.close()


if __name__ == "__main__":
    main()
