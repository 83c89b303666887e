"""Fixtures that several folders share."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Generator, Iterator
from importlib.util import find_spec

import pytest

# What no GPU test needs: a machine with a GPU may do without. The names that imports ask for.
MAY_BE_MISSING = {"PIL", "docutils", "fastapi", "fpdf", "gguf", "gradio", "h11", "httpx", "jinja2", "justhtml",
                  "markdown_it", "matplotlib", "mdit_py_plugins", "openai", "platformdirs", "playwright", "pyarrow",
                  "pypdf", "pypdfium2", "reportlab", "snowballstemmer", "starlette", "uvicorn", "zstandard"}

# Where several workers share the cores, an engine's threads only wait for each other; before anything imports torch,
# and for the processes that tests start. Alone, tests run with as many threads as users do.
if int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1")) > 1:
    os.environ |= {"OMP_THREAD_LIMIT": "1", "OMP_NUM_THREADS": "1"}  # torch asks for the second only


# After ``pip install --no-compile`` the first process that imports a module compiles it for all others. Where the
# environment forbids to keep that, every one of the hundreds that tests start would compile torch and Gradio again.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(collector: pytest.Collector) -> Generator[None, pytest.CollectReport,
                                                                         pytest.CollectReport]:
    """A module that asks for one of these where it is not installed is skipped and says so; any other import that
    fails is an error, and so is every one where nothing may be skipped."""
    report = yield
    call = getattr(report, "call", None)
    cause = call.excinfo.value.__cause__ if call is not None and call.excinfo is not None else None
    if isinstance(cause, ModuleNotFoundError) and not os.environ.get("TRIFORCE_REQUIRE_BROWSER"):
        package = (cause.name or "").partition(".")[0]
        if package in MAY_BE_MISSING and find_spec(package) is None:
            report.outcome, reason = "skipped", f"Skipped: {package} is not installed"
            report.longrepr = (str(collector.path), 1, reason)
    return report


@pytest.fixture(scope="module")
def lengths_given() -> Iterator[None]:
    """Documents are opened without measuring what passes cost: half a second each, and of no use to a test that gives
    the lengths of drafts, or that drafts nothing."""
    from triforce_core.draft_length.selector import DraftLengthSelector

    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setattr(DraftLengthSelector, "measure", lambda *_: None)
        yield


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
