"""axe-core looks at every screen: nothing serious or critical, in light, dark and on a narrow page.

Its script is not part of the project: `npm install axe-core`, then AXE_CORE=node_modules/axe-core/axe.min.js.
.ci/run does so where there is npm.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from page_steps import answered, ask, more, statistics, upload, visit

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


@pytest.mark.parametrize(("width", "theme"), [(1280, "light"), (1280, "dark"), (360, "light"), (360, "dark")])
def test_axe_finds_nothing_serious(served, tab, scripted, axe, width: int, theme: str) -> None:
    def look(screen: str) -> None:
        tab.wait_for_timeout(300)  # colours come in
        found.update({screen: names} if (names := tab.evaluate(FOUND)) else {})

    def pane(name: str) -> None:
        if width < 760:
            tab.click(f".tf-panes [data-pane={name}]")

    found: dict[str, list[str]] = {}
    visit(tab, f"{served.url}?__theme={theme}")
    tab.wait_for_selector("#transcript .tf-welcome")
    tab.set_viewport_size({"width": width, "height": 800})
    tab.evaluate(axe)
    look("welcome")
    upload(served, tab)
    look("opened")
    scripted.triforce_tokens_per_second = 8
    ask(tab, "How many ships?")
    tab.wait_for_selector("#live .tf-streaming")
    look("while it is written")
    scripted.triforce_tokens_per_second = 4000
    answered(tab)
    look("answered")
    pane("library")
    tab.click("#documents .tf-about > summary")
    look("library")
    pane("center")
    tab.click("#transcript .tf-line summary")
    tab.click("#transcript [data-action=trace]")
    tab.wait_for_selector("#transcript .tf-trace")
    look("who wrote it")
    pane("side")
    tab.click("#strip .tf-page >> nth=2")
    tab.wait_for_selector("#page .tf-page-text")
    statistics(tab)
    look("page and statistics")
    pane("center")
    tab.keyboard.press("?")
    tab.wait_for_selector("#key-table[open]")
    look("keys")
    tab.keyboard.press("Escape")
    more(tab, "#talk-bar", "instruct")
    tab.wait_for_selector("#instructions-about p")
    look("instructions")
    tab.click("#leave-instructions")
    more(tab, "#head", "together")
    tab.wait_for_selector("#together h2")
    look("together")
    tab.click("#together [data-action=leave-together]")
    tab.wait_for_selector("#together h2", state="detached")
    more(tab, "#head", "choose-pages")
    tab.wait_for_selector("#choice h2")
    look("choice")
    tab.click("#leave-pages")
    for name in ("models", "settings", "race"):
        tab.click(f"#tab-{name}-button")
        look(name)
    tab.fill("#race-question textarea", "How many ships?")
    tab.click("#race-start")
    tab.wait_for_selector("#race-board .tf-verdict")
    look("raced")
    assert found == {}
