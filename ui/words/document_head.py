"""Above the chat: how far the open document is, and the box for its password."""

from __future__ import annotations

READING_CANCELLED = "Reading was cancelled."
