"""The page view."""

from __future__ import annotations

PAGE_VIEW = "Page view"
PAGE_NUMBER = "Go to page"
PAGE_EMPTY = "This page has no text."
PAGE_BROKEN = "This page cannot be shown now."
FIND_BROKEN = "Search failed: Enter tries again"
SMALLER = "Smaller"
LARGER = "Larger"
THUMBNAILS = "All pages"
CLOSE_PAGE = "Close the page view"
FIND = "Find in the document"
HIT_BEFORE = "Previous match"
HIT_AFTER = "Next match"
PREVIOUS = "Previous page"
NEXT = "Next page"
NO_PAGE = "Click a page in the strip, or the page number after a quotation, to read it here."
