"""Words that a file, a model or a person may write to break the page, and a document that is full of them."""

from __future__ import annotations

from ui.app.library import Entry

EVIL = '<img src=x onerror=alert(1)>"\'{{x}}${y}'
ENTRY = Entry("a" * 64, EVIL, ".txt", 1000, 1.0, None, "ready", "", EVIL, "txt", 6, 100, (EVIL,), 4213, 41.0)
