"""What is exported fetches nothing, whatever a model wrote into it: opened in a browser, and read as text."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from little_books import wait_for, write_book

from tests.scripted_engine import EngineScript
from ui.app.services import Services
from ui.app.tab_view import TabView
from ui.page import markdown
from ui.page.export import exported

HOSTILE = (
    "![a](http://evil.example/1.png) ![b][r] <img src=http://evil.example/2 onerror=\"fetch('http://evil.example/3')\">",
    "<video autoplay src=http://evil.example/4></video><audio src=//evil.example/5></audio>",
    "<iframe src=http://evil.example/6></iframe><object data=http://evil.example/7></object><embed src=//evil.test>",
    "<style>@import url(http://evil.example/9); body { background: url(http://evil.example/10) }</style>",
    "<link rel=stylesheet href=http://evil.example/11><meta http-equiv=refresh content='0;url=http://evil.example/12'>",
    "<script src=http://evil.example/13></script><base href=http://evil.example/>",
    "<form action=http://evil.example/14><input type=image src=http://evil.example/15></form>",
    "<svg><image href=http://evil.example/16 /><use href=http://evil.example/17 /></svg>",
    "<div style=\"position:fixed;inset:0;background:url('http://evil.example/18')\">over</div>",
    "[x](javascript:fetch('http://evil.example/19')) [y](data:text/html,<img src=http://evil.example/20>)",
    "| a | b |\n|---|---|\n| ![c](http://evil.example/21) | <img src=http://evil.example/22> |",
    "```html\n<img src=http://evil.example/23>\n```", "[r]: http://evil.example/24.png",
)
LOADING = "img, script, iframe, object, embed, video, audio, link, base, form, svg, meta[http-equiv=refresh], [onerror]"


@pytest.mark.browser
def test_an_exported_page_fetches_nothing(services: Services, tmp_path: Path, script: EngineScript, chromium) -> None:
    script.answer, view = "\n\n".join(HOSTILE), TabView()
    services.add(view, [(write_book(tmp_path, "a.txt"), "a.txt")])
    wait_for(lambda: services.phase(services.library.get(view.document)) == "ready")
    run = services.ask(view, f"What of {HOSTILE[0]}?")
    wait_for(lambda: run.ended)
    wait_for(lambda: services.conversations.answers(view.conversation)[0].state == "done")
    *_, content = exported(services, view.conversation, "html")
    path = tmp_path / "out.html"
    path.write_text(content, encoding="utf-8")
    context = chromium.new_context()
    asked: list[str] = []
    context.on("request", lambda request: asked.append(request.url))
    page = context.new_page()
    page.goto(path.as_uri())
    page.wait_for_load_state("networkidle")
    assert "evil.example" in page.inner_text("body")  # it is there, as text
    assert page.locator(LOADING).count() == 0 and page.locator("[style*=fixed]").count() == 0
    assert asked == [path.as_uri()]
    context.close()


@pytest.mark.parametrize("text", HOSTILE, ids=range(len(HOSTILE)))
def test_nothing_that_loads_comes_out_of_the_renderer(text: str) -> None:
    drawn = markdown.render(text)
    tags = set(re.findall(r"<([a-z]+)", drawn))
    assert not tags & {"img", "script", "iframe", "object", "embed", "video", "audio", "link", "base", "form", "input",
                       "svg", "style", "meta"}
    assert "javascript:" not in " ".join(re.findall(r'href="([^"]*)"', drawn)) and 'href="data:' not in drawn
