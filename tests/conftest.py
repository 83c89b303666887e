"""Fixtures that several folders share."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Generator, Iterator
from importlib.util import find_spec

import pytest

# A machine without one of these skips what asks for it, and says so. The names that imports ask for.
MAY_BE_MISSING = {"PIL", "docutils", "fastapi", "fpdf", "gguf", "gradio", "h11", "httpx", "jinja2", "justhtml",
                  "markdown_it", "matplotlib", "mdit_py_plugins", "openai", "platformdirs", "playwright", "pyarrow",
                  "pypdf", "pypdfium2", "reportlab", "snowballstemmer", "starlette", "uvicorn", "zstandard"}

# Before anything imports torch, and for the processes that tests start: on shared cores an engine's threads only wait
# for each other. A test that needs more sets them itself; who wants more everywhere sets these two variables.
for variable in ("OMP_THREAD_LIMIT", "OMP_NUM_THREADS"):  # torch heeds the second only
    os.environ.setdefault(variable, "1")


# After ``pip install --no-compile`` the first process that imports a module compiles it for all others. Where the
# environment forbids to keep that, every one of the hundreds that tests start would compile torch and Gradio again.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

Report = pytest.CollectReport | pytest.TestReport


def missing_package(error: BaseException | None) -> str:
    """Return the package that ``error``, or what caused it, did not find: one of those that may be missing, or ""."""
    while error is not None and not os.environ.get("TRIFORCE_REQUIRE_BROWSER"):  # which forbids to skip anything
        if isinstance(error, ImportError):
            package = (error.name or "").partition(".")[0]
            if package in MAY_BE_MISSING and not _installed(package):
                return package
        error = error.__cause__ or error.__context__
    return ""


def _installed(package: str) -> bool:
    try:
        spec = find_spec(package)
        return spec is not None and spec.origin is not None  # a mere folder of that name, as tests/gguf, has none
    except ValueError:  # sys.modules holds None in its place
        return False


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(collector: pytest.Collector) -> Generator[None, Report, Report]:
    """Skip a module whose import asks for a package that may be missing; any other import that fails is an error."""
    report = yield
    return _skipped(report, collector, getattr(report, "call", None))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Generator[None, Report, Report]:
    """Skip a test that fails only because what it runs imports a package that may be missing."""
    report = yield
    return _skipped(report, item, call if report.failed else None)


def _skipped(report: Report, node: pytest.Collector | pytest.Item, call: pytest.CallInfo | None) -> Report:
    package = missing_package(call.excinfo.value) if call is not None and call.excinfo is not None else ""
    if package:
        report.outcome = "skipped"
        report.longrepr = (str(node.path), 1, f"Skipped: {package} is not installed")
    return report


@pytest.fixture(scope="module")
def lengths_given() -> Iterator[None]:
    """Documents are opened without measuring what passes cost: half a second each, and of no use to a test that gives
    the lengths of drafts, or that drafts nothing."""
    from triforce_core.speculation.draft_length_selector import DraftLengthSelector

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
