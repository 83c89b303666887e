"""A model's answer -> safe HTML. The answer may repeat anything a hostile document says, so:

raw HTML is text, images are off (an image address can carry words out of the machine), only http(s) and mailto links
live, each shows its host and goes nowhere unless clicked.
"""

from __future__ import annotations

import html
from collections.abc import Callable, Iterable, Sequence
from urllib.parse import urlsplit

from markdown_it import MarkdownIt
from markdown_it.renderer import RendererHTML
from markdown_it.token import Token

from ..app.quotes import quotations
from .html import COPY

Mark = Callable[[str, str], tuple[bool, str] | None]
AFTER = 40  # characters behind a quotation, where the answer may name its page
_SENTENCE_END = ".!?…)]”\"'’»"
CLOSING = ("”", "“", "»", "«", "」", '"')


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
    copy = f'<button type="button" class="tf-copy" data-copy="code">{html.escape(COPY)}</button>'
    return f'<div class="tf-code">{copy}<pre><code>{code}</code></pre></div>\n'


def _make() -> MarkdownIt:
    parser = MarkdownIt("commonmark", {"html": False, "linkify": False, "typographer": False})
    parser.enable(["table", "strikethrough"]).disable(["image", "html_block", "html_inline"])
    parser.validateLink = _allowed  # type: ignore[method-assign]
    for name, rule in (("link_open", _link_open), ("link_close", _link_close), ("fence", _code), ("code_block", _code),
                       ("our_html", lambda renderer, tokens, index, options, env: tokens[index].content)):
        parser.add_render_rule(name, rule)
    return parser


_PARSER = _make()


def render(text: str, mark: Mark | None = None, notes: Sequence[tuple[str, str]] = ()) -> str:
    """Safe HTML of a Markdown text. mark: of a quotation and what follows it, whether it was found and the
    HTML to put behind it; None: it stays as it is. notes: sentences of the text in its order, and the HTML to put
    behind each."""
    tokens, left, depth = _PARSER.parse(text, {}), list(notes), 0
    for token in tokens:
        depth += {"blockquote_open": 1, "blockquote_close": -1}.get(token.type, 0)
        if token.type == "inline" and token.children:
            if left:
                token.children = _noted(token.children, left)
            if mark is not None:
                token.children = _marked(token.children, mark, whole=depth > 0)
    return str(_PARSER.renderer.render(tokens, _PARSER.options, {}))


def plain(text: str) -> str:
    """The words of a Markdown text without its marks: each paragraph, heading or cell on a line of its own."""
    lines, mark = [], ""
    for token in _PARSER.parse(text, {}):
        if token.type == "list_item_open":
            mark = f"{token.info}{token.markup} "
        elif token.type == "inline":
            breaks = ("softbreak", "hardbreak")
            words = "".join(" " if child.type in breaks else child.content for child in token.children or ())
            lines.append(mark + words)
            mark = ""
        elif token.type in ("fence", "code_block"):
            lines.append(token.content.rstrip("\n"))
    return "\n".join(lines)


def _noted(children: list[Token], left: list[tuple[str, str]]) -> list[Token]:
    """A line's tokens with the notes behind those of its sentences that have one; they are taken out of ``left``.
    Letters and digits alone are compared, as Markdown's own marks are no part of the line."""
    starts, plain = [], ""
    for child in children:
        starts.append(len(plain))
        plain += child.content if child.type in ("text", "code_inline") else " "
    places = [at for at, letter in enumerate(plain) if letter.isalnum()]
    letters, after = "".join(plain[at] for at in places), 0
    ends: list[tuple[int, str]] = []
    for sentence, note in tuple(left):
        wanted = "".join(filter(str.isalnum, sentence))
        at = letters.find(wanted, after) if wanted else -1
        if at >= 0:
            after = at + len(wanted)
            end = places[after - 1] + 1
            ends.append((end + len(plain[end:]) - len(plain[end:].lstrip(_SENTENCE_END)), note))
            left.remove((sentence, note))
    out: list[Token] = []
    for start, child in zip(starts, children, strict=True):
        stop, done = start + len(child.content or " "), start
        here = [(end, note) for end, note in ends if start < end <= stop]
        if child.type != "text":
            out += [child, *(_raw(note) for _, note in here)]
            continue
        for end, note in here:
            out += [_text(plain[done:end]), _raw(note)]
            done = end
        out.append(_text(plain[done:stop]))
    return out


def _marked(children: list[Token], mark: Mark, whole: bool) -> list[Token]:
    """A line's tokens, its quotations wrapped piece by piece so that emphasis inside stays well nested.

    whole: in a block quotation, text without quotation marks is one quotation."""
    starts, plain = [], ""
    for child in children:
        starts.append(len(plain))
        # Code is no quotation, whatever marks stand in it.
        plain += " " * len(child.content) if child.type == "code_inline" else \
            child.content if child.type == "text" else "\n" if child.type in ("softbreak", "hardbreak") else ""
    verdicts = _verdicts(plain, quotations(plain), mark)
    if whole and not verdicts:
        verdicts = _verdicts(plain, [(0, len(plain))], mark)
    if not verdicts:
        return children
    out: list[Token] = []
    for start, child in zip(starts, children, strict=True):
        if child.type != "text":
            out.append(child)
            if child.type == "code_inline":
                out += [_raw(after) for _, high, _, after in verdicts if start < high <= start + len(child.content)]
            continue
        done, text = 0, child.content
        for low, high, good, after in verdicts:
            first, last = max(0, low - start), min(len(text), high - start)
            if first >= last:
                continue
            out += [_text(text[done:first]), _raw(f'<span class="{"tf-quoted" if good else "tf-unquoted"}">'),
                    _text(text[first:last]), _raw("</span>")]
            done = last
            if high - start <= len(text):
                done = last + text[last:].startswith(CLOSING)  # the chip stands behind the closing mark
                out += [_text(text[last:done]), _raw(after)]
        out.append(_text(text[done:]))
    return out


def _verdicts(plain: str, spans: Iterable[tuple[int, int]], mark: Mark) -> list[tuple[int, int, bool, str]]:
    judged = ((start, end, mark(plain[start:end], plain[end : end + AFTER])) for start, end in spans)
    return [(start, end, *verdict) for start, end, verdict in judged if verdict is not None]


def _text(content: str) -> Token:
    return Token("text", "", 0, content=content)


def _raw(content: str) -> Token:
    return Token("our_html", "", 0, content=content)
