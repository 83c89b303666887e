"""How long the page takes from its address to being usable, and what an answer that is written sends it.

    python -m docs.page_load [--loads N] [--engine scripted|triforce]      (prints JSON; needs playwright and chromium)

The app is started as a person starts it, and the page opened at once: its ``first`` load. Then come ``new`` loads, each
in a new browser that keeps nothing, and ``again``: of a browser that was here before. Usable means that the question
line can be typed in and the first screen is drawn. Seconds are the browser's own, from the start of the navigation.

Then an answer of some hundred words is written by the scripted engine, and the bytes are counted that come to the page
meanwhile, its words' own connection and the panels beside it, for each token.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

from playwright.sync_api import Page, Playwright, sync_playwright

from triforce_core import HANDBOOK

from .screenshots import PATIENCE, SIZE, app, browser_of

USABLE = 1.5  # seconds from the address to a usable page, wanted on two cores
QUICK = {"load_seconds": 0, "restore_seconds": 0, "triforce_tokens_per_second": 60.0, "answer_words": 300}
_READY = """() => {
  const line = document.querySelector('#question textarea');
  return line && !line.disabled && document.querySelector('#transcript .tf-welcome') ? performance.now() : 0;
}"""
_SENT = """() => {
  const all = [...performance.getEntriesByType('navigation'), ...performance.getEntriesByType('resource')];
  return {requests: all.length, bytes: all.reduce((sum, one) => sum + one.transferSize, 0)};
}"""


def load(page: Page, url: str) -> dict[str, float]:
    """One load: its seconds, requests and the bytes that came."""
    page.goto(url, wait_until="commit")
    seconds = page.wait_for_function(_READY, polling=20, timeout=PATIENCE).json_value() / 1000
    return {"seconds": round(seconds, 3)} | page.evaluate(_SENT)


def loads(playwright: Playwright, url: str, count: int) -> dict[str, Any]:
    new, again = [], []
    for _ in range(count + 1):
        browser = browser_of(playwright)
        page = browser.new_page(viewport=SIZE)
        page.goto("about:blank")
        new.append(load(page, url))
        page.goto("about:blank")
        again.append(load(page, url))
        browser.close()
    first, *new = new
    again = again[1:]

    def told(found: list[dict[str, float]]) -> dict[str, float]:
        seconds = [one["seconds"] for one in found]
        return {"median": statistics.median(seconds), "least": min(seconds), "most": max(seconds),
                "requests": found[0]["requests"], "bytes": found[0]["bytes"]}

    return {"first": first, "new": told(new), "again": told(again),
            "good": max(first["seconds"], statistics.median(one["seconds"] for one in new)) < USABLE}


def streamed(playwright: Playwright, url: str) -> dict[str, Any]:
    """Bytes that come while an answer is written: of its words, and of what stands beside them, by token."""
    browser = browser_of(playwright)
    page = browser.new_page(viewport=SIZE)
    page.set_default_timeout(PATIENCE)
    page.goto(url)
    page.click("#documents .tf-doc-open >> nth=0")
    page.wait_for_selector("#head .tf-dot-ok")
    names: dict[str, str] = {}
    came: Counter[str] = Counter()
    network = page.context.new_cdp_session(page)
    network.on("Network.requestWillBeSent", lambda one: names.update({one["requestId"]: one["request"]["url"]}))
    network.on("Network.dataReceived", lambda one: came.update(
        {"words" if "/writing/" in names.get(one["requestId"], "") else "beside": one["dataLength"]}))
    network.send("Network.enable")
    page.fill("#question textarea", "What is this about?")
    page.press("#question textarea", "Enter")
    page.wait_for_selector("#transcript .tf-answer")
    page.wait_for_selector("#stop", state="hidden")
    tokens = len(page.locator("#transcript .tf-answer .tf-prose").inner_text().split())
    browser.close()
    return {"tokens": tokens, "words_bytes_per_token": round(came["words"] / tokens, 1),
            "beside_bytes_per_token": round(came["beside"] / tokens, 1)}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m docs.page_load", description="What opening the page costs.")
    parser.add_argument("--loads", type=int, default=5, metavar="N", help="in new browsers (default: %(default)s)")
    parser.add_argument("--engine", choices=("scripted", "triforce"), default="scripted",
                        help="that runs while the page is opened (default: %(default)s)")
    given = parser.parse_args()
    home = Path(tempfile.mkdtemp())
    try:
        script = home / "script.json"
        script.write_text(json.dumps(QUICK))
        with sync_playwright() as playwright:
            with app(given.engine, home / "load") as url:
                found = loads(playwright, url, given.loads)
            with app("scripted", home / "stream", HANDBOOK, model=script) as url:
                found["stream"] = streamed(playwright, url)
    finally:
        shutil.rmtree(home)
    print(json.dumps({"engine": given.engine, **found, "cores": len(os.sched_getaffinity(0)),
                      "load_average": os.getloadavg()[0]}))


if __name__ == "__main__":
    main()
