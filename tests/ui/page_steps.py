"""Steps that a person takes again and again on the page."""

from __future__ import annotations

import uuid
from pathlib import Path

from little_books import write_book
from playwright.sync_api import Error

PAGES = "#pages-wanted :is(input, textarea)"


def visit(page, url: str) -> None:
    """Leave for another address. If the page writes what it shows into its own just then, that ends the way there."""
    for last in (False, True):
        try:
            page.goto(url)
            return
        except Error as error:
            if last or "ERR_ABORTED" not in str(error):
                raise


def upload(served, page, pages: int = 6, *, words: int = 60, wait: str = ".tf-dot-ok") -> Path:
    """Drop a new document on the library and wait until it stands where it should."""
    path = write_book(served.folder, f"{uuid.uuid4().hex[:8]}.txt", pages, words)
    path.write_text(f"Copy {path.stem}. " + path.read_text())
    page.set_input_files("#upload input[type=file]", str(path))
    page.wait_for_selector(f".tf-title:has-text('{path.stem}')")
    page.wait_for_selector(f"#head {wait}")
    return path


def ask(page, question: str) -> None:
    page.fill("#question textarea", question)
    page.press("#question textarea", "Enter")


def answered(page, number: int = 1) -> None:
    page.wait_for_function(f"document.querySelectorAll('#transcript .tf-question').length === {number}")


def statistics(page) -> None:
    """Unfold what the right pane keeps folded."""
    page.click("#statistics > button")
    page.wait_for_selector("#figures")


def more(page, place: str, action: str) -> None:
    """Press what a ⋯ menu holds."""
    page.click(f"{place} .tf-more > summary")
    page.click(f"{place} .tf-more[open] [data-action={action}]")


def more_by_keyboard(page, place: str, action: str) -> None:
    page.focus(f"{place} .tf-more > summary")
    page.keyboard.press("Enter")
    page.wait_for_selector(f"{place} .tf-more[open]")
    page.focus(f"{place} .tf-more [data-action={action}]")
    page.keyboard.press("Enter")
