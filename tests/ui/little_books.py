"""Small documents, and a quick reader for them, so that the page's tests need no child process per file."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from triforce_core import Document, EncryptedDocumentError, Page

PASSWORD = "open sesame"
SENTENCE = "The lighthouse keeper of {place} counted {n} ships before the storm reached the northern harbour."


def make_document(pages: int = 6, title: str = "The keeper", words: int = 60) -> Document:
    """A document whose every page holds different sentences."""
    texts = [" ".join(SENTENCE.format(place=f"Ness {i}", n=i * 100 + j) for j in range(words // 14 + 1))
             for i in range(1, pages + 1)]
    return Document(title, "txt", tuple(Page(str(i), text) for i, text in enumerate(texts, 1)), "test")


def read_quickly(path: Path, password: str | None = None, *, progress=None, cancel=None) -> Document:
    """In place of ``read_document`` where a child process per file would only cost time: pages end at form feeds."""
    text = path.read_text(encoding="utf-8")
    if text.startswith("LOCKED") and password != PASSWORD:
        raise EncryptedDocumentError("The password is wrong" if password else "This file is protected")
    parts = text.split("\f")
    if progress:
        progress(len(parts), len(parts))
    return Document("", "txt", tuple(Page(str(i), part) for i, part in enumerate(parts, 1)), "quick")


def wait_for(condition: Callable[[], object], seconds: float = 10.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "waited too long"
        time.sleep(0.01)


def write_book(folder: Path, name: str, pages: int = 6, words: int = 60) -> Path:
    path = folder / name
    path.write_text("\f".join(page.text for page in make_document(pages, words=words).pages), encoding="utf-8")
    return path
