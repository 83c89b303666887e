"""What a page that shows the answer costs the engine: tokens per second with it attached, and without.

    python -m docs.attached [--engine triforce|autoregressive|scripted] [--pairs N] [--own-core] [FILE]    (one JSON
    line; needs playwright and chromium)

The app is started as a person starts it. Each question is asked twice, each time in a new conversation of a page that
was just opened: once the page stays and shows the answer as it is written, once the browser is ended as soon as the
question is queued; which comes first alternates. Rates are the engine's own, of the kept answers: all their tokens over
all the time from the end of each question's reading to its last token. At least 0.97 is wanted. Other work on the
machine, and a browser that shares its few cores, count against it: with --own-core the engine's process has the first
core to itself, and the page's server and the browser the others.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sqlite3
import tempfile
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import psutil
from playwright.sync_api import Playwright, sync_playwright

from .screenshots import PATIENCE, QUESTIONS, SIZE, app

LEAST = 0.97  # share of the rate without a page
_WARM_UP = "What is this?"  # asked first: captures, kernels and caches are made for it


def answers(home: Path) -> list[dict[str, Any]]:
    """The figures of every finished answer, in the order in which they were asked."""
    found = next(home.rglob("*.sqlite"), None)
    if found is None:
        return []
    with closing(sqlite3.connect(f"file:{found}?mode=ro", uri=True)) as database:
        rows = database.execute("select result from answers where state = 'done' order by created_at").fetchall()
    return [json.loads(result)["figures"] for result, in rows]


def ask(playwright: Playwright, url: str, home: Path, question: str, stays: bool) -> dict[str, Any]:
    """The figures of one answer. stays: the page is there until the end."""
    before = len(answers(home))
    browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
    try:
        page = browser.new_page(viewport=SIZE)
        page.set_default_timeout(PATIENCE)
        page.goto(url)
        page.click("#documents .tf-doc-open >> nth=0")
        page.wait_for_selector("#head .tf-dot-ok")
        page.click("#new-conversation")
        page.wait_for_selector("#transcript .tf-welcome")
        page.fill("#question textarea", question)
        page.press("#question textarea", "Enter")
        page.wait_for_function("!document.querySelector('#question textarea').value")  # it is queued
        if stays:
            page.wait_for_selector("#transcript .tf-answer")
    finally:
        browser.close()
    end = time.monotonic() + PATIENCE / 1000
    while len(found := answers(home)) == before:
        if time.monotonic() > end:
            raise TimeoutError("The answer did not come")
        time.sleep(0.2)
    return found[-1]


def divide_cores() -> None:
    """The engine's process on the first core, this one and its other descendants on the rest (Linux)."""
    first, *others = sorted(os.sched_getaffinity(0))
    assert others, "one core cannot be divided"
    for process in (me := psutil.Process(), *me.children(recursive=True)):
        cores = [first] if "triforce_core.worker.process" in process.cmdline() else others
        for thread in process.threads():
            os.sched_setaffinity(thread.id, cores)


def measure(playwright: Playwright, url: str, home: Path, pairs: int, own_core: bool = False) -> dict[str, Any]:
    cores = len(os.sched_getaffinity(0))
    ask(playwright, url, home, _WARM_UP, True)
    if own_core:
        divide_cores()
    told: dict[bool, list[dict[str, Any]]] = {True: [], False: []}
    for number in range(pairs):
        for stays in (True, False) if number % 2 else (False, True):
            told[stays].append(ask(playwright, url, home, QUESTIONS[number % len(QUESTIONS)], stays))

    def rate(figures: list[dict[str, Any]]) -> float:
        good = [one for one in figures if one["tokens_per_second"]]
        return sum(one["tokens"] for one in good) / sum(one["tokens"] / one["tokens_per_second"] for one in good)

    attached, alone = rate(told[True]), rate(told[False])
    return {"attached_tokens_per_second": attached, "alone_tokens_per_second": alone, "share": attached / alone,
            "least": LEAST, "good": attached / alone >= LEAST, "pairs": pairs,
            "tokens": {"attached": sum(one["tokens"] for one in told[True]),
                       "alone": sum(one["tokens"] for one in told[False])},
            "cores": cores, "own_core": own_core, "load_average": os.getloadavg()[0]}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m docs.attached", description="What an attached page costs.")
    parser.add_argument("file", nargs="?", type=Path, metavar="FILE", help="document to ask about (default: handbook)")
    parser.add_argument("--engine", choices=("triforce", "autoregressive", "scripted"), default="triforce")
    parser.add_argument("--own-core", action="store_true", help="the engine has the first core to itself (Linux)")
    parser.add_argument("--pairs", type=int, default=6, metavar="N", help="questions, each asked with and without")
    given = parser.parse_args()
    home = Path(tempfile.mkdtemp())
    try:
        with sync_playwright() as playwright, app(given.engine, home, *([given.file] if given.file else ())) as url:
            found = measure(playwright, url, home, given.pairs, given.own_core)
            print(json.dumps({"engine": given.engine} | found))
    finally:
        shutil.rmtree(home)


if __name__ == "__main__":
    main()
