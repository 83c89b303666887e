"""Which pages of a document are to be read, and what they take of the context."""

from __future__ import annotations

NOT_ALL_FITS = "Not all of the document fits"
CHOOSE_PAGES_ABOVE = "Choose the pages to read above, then ask again."
CHOOSE_PAGES_FIRST = f"{NOT_ALL_FITS}. {CHOOSE_PAGES_ABOVE}"
