"""What a page that shows the answer costs the engine: tokens per second with it attached, and without.

    python -m docs.attached [--engine triforce|autoregressive|scripted] [--pairs N] [--new-tokens N] [--own-core] [FILE]
                                                               (one JSON line; needs playwright and chromium)

The app is started as a person starts it, and set on its own settings tab to write long answers. Each question is asked
twice, each time in a new conversation of a page that was opened a while ago and has come to rest: once the page stays
and shows the answer as it is written, once it is left for an empty one as soon as the question is queued; which comes
first alternates. Rates are the engine's own, of the kept answers: all their tokens over all the time from the end of
each question's reading to its last token. At least 0.97 is wanted; the share of each pair is told beside that of all.
Other work on the machine, and a browser that shares its few cores, count against it: with --own-core the engine's
process has the first core to itself (all its threads: it is slow, so ask for few tokens), and the page's server and the
browser the others.

The built-in pair answers with one sentence of the document. So that an answer is some hundred tokens long, quotations
are not held to the document, and the document (unless FILE is given) is the handbook's text with a full stop only after
every 300 words.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import sqlite3
import tempfile
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import psutil
from playwright.sync_api import Page, Playwright, sync_playwright

from .screenshots import PATIENCE, QUESTIONS, ROOT, SIZE, app, browser_of

LEAST = 0.97  # share of the rate without a page
REST = 8.0  # seconds in which a page that was just opened comes to rest
_SENTENCE = 300  # words
_WARM_UP = "What is this?"  # asked first: captures, kernels and caches are made for it


def long_sentences(folder: Path) -> Path:
    """The handbook's prose as a text in which a sentence is _SENTENCE words long or a little longer."""
    prose: list[str] = []
    for source in sorted((ROOT / "docs" / "handbook").glob("*.md")):
        paragraphs = source.read_text(encoding="utf-8").split("\n\n")
        prose += [" ".join(each.split()) for each in paragraphs if each[:1].isalpha()]
    sentences: list[list[str]] = [[]]
    for words in re.split(r"(?<=[.!?])\s+", re.sub(r"[*`_]", "", " ".join(prose))):
        if sum(len(each.split()) for each in sentences[-1]) >= _SENTENCE:
            sentences.append([])
        sentences[-1].append(words.rstrip(".!?:"))
    path = folder / "long-sentences.txt"
    path.write_text("\n\n".join(f"{'; '.join(sentence)}." for sentence in sentences), encoding="utf-8")
    return path


def answers(home: Path) -> list[dict[str, Any]]:
    """The figures of every finished answer, in the order in which they were asked."""
    found = next(home.rglob("*.sqlite"), None)
    if found is None:
        return []
    with closing(sqlite3.connect(f"file:{found}?mode=ro", uri=True)) as database:
        rows = database.execute("select result from answers where state = 'done' order by created_at").fetchall()
    return [json.loads(result)["figures"] for result, in rows]


def set_up(page: Page, new_tokens: int) -> None:
    """Long answers, by the page's own settings."""
    page.get_by_role("tab", name="Settings", exact=True).click()
    page.fill("#set-max-new-tokens input", str(new_tokens))
    page.click("#set-quotes label:has-text('off')")
    page.click("#settings-save")
    page.wait_for_selector("#settings-result .tf-card-info")
    page.get_by_role("tab", name="Chat", exact=True).click()


def ask(playwright: Playwright, url: str, home: Path, question: str, stays: bool,
        new_tokens: int = 0) -> dict[str, Any]:
    """The figures of one answer. stays: the page is there until the end. new_tokens: to be set before; 0: they are."""
    before = len(answers(home))
    browser = browser_of(playwright)
    try:
        page = browser.new_page(viewport=SIZE)
        page.set_default_timeout(PATIENCE)
        page.goto(url)
        page.click("#documents .tf-doc-open >> nth=0")
        page.wait_for_selector("#head .tf-dot-ok")
        if new_tokens:
            set_up(page, new_tokens)
        page.click("#new-conversation")
        page.wait_for_selector("#transcript .tf-welcome")
        page.fill("#question textarea", question)
        time.sleep(REST)
        page.press("#question textarea", "Enter")
        page.wait_for_function("!document.querySelector('#question textarea').value")  # it is queued
        if not stays:
            page.goto("about:blank")  # ending the browser would cost more, and the answer that is measured would pay
        end = time.monotonic() + PATIENCE / 1000
        while len(found := answers(home)) == before:  # not asked of the page, which would have to look for it
            if time.monotonic() > end:
                raise TimeoutError("The answer did not come")
            time.sleep(0.5)
    finally:
        browser.close()
    return found[-1]


def divide_cores() -> None:
    """The engine's process on the first core, this one and its other descendants on the rest (Linux)."""
    first, *others = sorted(os.sched_getaffinity(0))
    assert others, "one core cannot be divided"
    for process in (me := psutil.Process(), *me.children(recursive=True)):
        cores = [first] if "triforce_core.worker.process" in process.cmdline() else others
        for thread in process.threads():
            os.sched_setaffinity(thread.id, cores)


def rate(figures: list[dict[str, Any]]) -> float:
    """All tokens over all the time."""
    good = [one for one in figures if one["tokens_per_second"]]
    return sum(one["tokens"] for one in good) / sum(one["tokens"] / one["tokens_per_second"] for one in good)


def measure(playwright: Playwright, url: str, home: Path, pairs: int, new_tokens: int,
            own_core: bool = False) -> dict[str, Any]:
    cores = len(os.sched_getaffinity(0))
    ask(playwright, url, home, _WARM_UP, True, new_tokens)
    if own_core:
        divide_cores()
    told: dict[bool, list[dict[str, Any]]] = {True: [], False: []}
    for number in range(pairs):
        for stays in (True, False) if number % 2 else (False, True):
            told[stays].append(ask(playwright, url, home, QUESTIONS[number % len(QUESTIONS)], stays))
    attached, alone = rate(told[True]), rate(told[False])
    return {"attached_tokens_per_second": attached, "alone_tokens_per_second": alone, "share": attached / alone,
            "least": LEAST, "good": attached / alone >= LEAST, "pairs": pairs,
            "share_of_each": [rate([one]) / rate([other]) for one, other in zip(told[True], told[False], strict=True)],
            "tokens": {"attached": sum(one["tokens"] for one in told[True]),
                       "alone": sum(one["tokens"] for one in told[False])},
            "cores": cores, "own_core": own_core, "load_average": os.getloadavg()[0]}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m docs.attached", description="What an attached page costs.")
    parser.add_argument("file", nargs="?", type=Path, metavar="FILE", help="document to ask about (default: made)")
    parser.add_argument("--engine", choices=("triforce", "autoregressive", "scripted"), default="triforce")
    parser.add_argument("--own-core", action="store_true", help="the engine has the first core to itself (Linux)")
    parser.add_argument("--pairs", type=int, default=6, metavar="N", help="questions, each asked with and without")
    parser.add_argument("--new-tokens", type=int, default=512, metavar="N",
                        help="longest answer (default: %(default)s)")
    given = parser.parse_args()
    home = Path(tempfile.mkdtemp())
    try:
        document = given.file or long_sentences(home)
        with sync_playwright() as playwright, app(given.engine, home, document) as url:
            found = measure(playwright, url, home, given.pairs, given.new_tokens, given.own_core)
            print(json.dumps({"engine": given.engine} | found))
    finally:
        shutil.rmtree(home)


if __name__ == "__main__":
    main()
