"""axe-core looks at every screen: nothing serious or critical, in light, dark and on a narrow page.

Its script is not part of the project: `npm pack axe-core` and unpack it, then AXE_CORE=.../axe.min.js.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from page_steps import answered, ask, more, upload

pytestmark = pytest.mark.browser
FOUND = """async () => {
  const found = await axe.run(document, {resultTypes: ['violations']});
  return found.violations.filter(one => ['serious', 'critical'].includes(one.impact))
    .flatMap(one => one.nodes.map(node => `${one.id}: ${node.target.join(' ')}`));
}"""


@pytest.fixture(scope="module")
def axe() -> str:
    path = Path(os.environ.get("AXE_CORE", ""))
    if not path.is_file():
        pytest.skip("AXE_CORE names no axe.min.js (see the module)")
    return path.read_text(encoding="utf-8")


@pytest.mark.parametrize(("width", "theme"), [(1280, "light"), (1280, "dark"), (360, "light")])
def test_axe_finds_nothing_serious(served, tab, axe, width: int, theme: str) -> None:
    def look(screen: str) -> None:
        tab.wait_for_timeout(300)  # colours come in
        found.update({screen: names} if (names := tab.evaluate(FOUND)) else {})

    def pane(name: str) -> None:
        if width < 760:
            tab.click(f".tf-panes [data-pane={name}]")

    found: dict[str, list[str]] = {}
    tab.goto(f"{served.url}?__theme={theme}")
    tab.wait_for_selector("#transcript .tf-welcome")
    tab.set_viewport_size({"width": width, "height": 800})
    tab.evaluate(axe)
    look("welcome")
    upload(served, tab)
    look("opened")
    ask(tab, "How many ships?")
    answered(tab)
    look("answered")
    pane("library")
    look("library")
    pane("center")
    tab.click("#transcript .tf-line summary")
    tab.click("#transcript [data-action=trace]")
    tab.wait_for_selector("#transcript .tf-trace")
    look("who wrote it")
    pane("side")
    tab.click("#strip .tf-page >> nth=2")
    tab.wait_for_selector("#page .tf-page-text")
    look("page")
    pane("center")
    more(tab, "#head", "choose-pages")
    tab.wait_for_selector("#choice h2")
    look("choice")
    tab.click("#leave-pages")
    for name in ("race", "models", "settings"):
        tab.click(f"#tab-{name}-button")
        look(name)
    assert found == {}
