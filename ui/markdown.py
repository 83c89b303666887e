"""A model's answer -> safe HTML. The answer may repeat anything a hostile document says, so:

raw HTML is text, images are off (an image address can carry words out of the machine), only http(s) and mailto links
live, each shows its host and goes nowhere unless clicked.
"""

from __future__ import annotations

import html
from urllib.parse import urlsplit

from markdown_it import MarkdownIt
from markdown_it.renderer import RendererHTML
from markdown_it.token import Token

from . import strings


def _allowed(url: str) -> bool:
    try:
        parts = urlsplit(url.strip())
    except ValueError:
        return False
    return (parts.scheme in ("http", "https") and bool(parts.hostname)) or parts.scheme == "mailto"


def _link_open(renderer: RendererHTML, tokens: list[Token], index: int, options: object, env: dict) -> str:
    href = str(tokens[index].attrGet("href") or "")
    env.setdefault("hosts", []).append(urlsplit(href).hostname or urlsplit(href).scheme)
    safe = html.escape(href)
    return f'<a href="{safe}" title="{safe}" target="_blank" rel="noopener noreferrer nofollow">'


def _link_close(renderer: RendererHTML, tokens: list[Token], index: int, options: object, env: dict) -> str:
    return f'</a><span class="tf-host"> [{html.escape(env["hosts"].pop())}]</span>'


def _code(renderer: RendererHTML, tokens: list[Token], index: int, options: object, env: dict) -> str:
    code = html.escape(tokens[index].content)
    copy = f'<button type="button" class="tf-copy" data-copy="code">{html.escape(strings.COPY)}</button>'
    return f'<div class="tf-code">{copy}<pre><code>{code}</code></pre></div>\n'


def _make() -> MarkdownIt:
    parser = MarkdownIt("commonmark", {"html": False, "linkify": False, "typographer": False})
    parser.enable(["table", "strikethrough"]).disable(["image", "html_block", "html_inline"])
    parser.validateLink = _allowed  # type: ignore[method-assign]
    for name, rule in (("link_open", _link_open), ("link_close", _link_close), ("fence", _code), ("code_block", _code)):
        parser.add_render_rule(name, rule)
    return parser


_PARSER = _make()


def render(text: str) -> str:
    """Safe HTML of a Markdown text."""
    return _PARSER.render(text, {})
