"""Fixtures that several folders share."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator

import pytest


@pytest.fixture(scope="session")
def chromium() -> Iterator[object]:
    """Headless Chromium. Without one, browser tests skip and say so, or fail under TRIFORCE_REQUIRE_BROWSER."""
    sync_api = pytest.importorskip("playwright.sync_api")
    path = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if path is None:
        missing = "no chromium, chromium-browser or google-chrome on the PATH"
        pytest.fail(missing) if os.environ.get("TRIFORCE_REQUIRE_BROWSER") else pytest.skip(missing)
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield browser
        browser.close()
