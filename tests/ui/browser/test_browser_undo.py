"""Delete and Undo in headless Chromium: by mouse, by keyboard, and after a reload."""

from __future__ import annotations

import pytest
from page_steps import answered, ask, upload

from ui.page import library as library_words

pytestmark = pytest.mark.browser


def delete(tab, item: str) -> None:
    tab.hover(item)
    tab.click(f"{item} > .tf-delete")
    tab.click(f"{item} > .tf-delete:has-text('{library_words.DELETE_SURE}')")


def test_a_deleted_document_comes_back_after_a_reload(served, tab) -> None:
    path = upload(served, tab)
    ask(tab, "How many ships?")
    answered(tab)
    delete(tab, f".tf-doc:has-text('{path.stem}')")
    tab.wait_for_selector(f".tf-doc:has-text('{path.stem}')", state="detached")
    tab.wait_for_selector("#transcript .tf-welcome")
    tab.reload()
    tab.click("#undo")
    tab.wait_for_selector(f".tf-title:has-text('{path.stem}')")
    answered(tab)


def test_undo_by_keyboard(served, tab) -> None:
    upload(served, tab)
    ask(tab, "How many ships?")
    answered(tab)
    tab.focus(".tf-talk:has-text('How many') > .tf-delete")
    tab.keyboard.press("Enter")
    tab.wait_for_selector(".tf-delete.tf-armed")
    tab.keyboard.press("Enter")
    tab.wait_for_function("document.activeElement.id === 'undo'")
    tab.keyboard.press("Enter")
    tab.wait_for_selector(".tf-talk:has-text('How many')")
    delete(tab, ".tf-talk:has-text('How many')")
    tab.wait_for_selector(".tf-toast")
    tab.evaluate("document.activeElement.blur()")
    tab.keyboard.press("Control+z")
    tab.wait_for_selector(".tf-talk:has-text('How many')")
