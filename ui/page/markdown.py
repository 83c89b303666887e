"""A model's answer -> safe HTML, its quotations checked. The answer may repeat anything a hostile document says, so:

raw HTML is text, images are off (an image address can carry words out of the machine), only http(s) and mailto links
live, each shows its host and goes nowhere unless clicked. A quotation gets a chip that opens its page, or the words
"not found in the document"; where decoding found it (``triforce_core.QuoteEvent``), nothing is looked up.
"""

from __future__ import annotations

import re
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit

from markdown_it import MarkdownIt
from markdown_it.renderer import RendererHTML
from markdown_it.rules_block import StateBlock
from markdown_it.rules_inline import StateInline
from markdown_it.token import Token

from triforce_core import Document, metrics

from ..app.quotes import Found, Place, QuoteFinders, normal, quotations, says_enough, spot
from . import formatting as fmt
from .html import COPY, esc

BY_OCR = "read by OCR"
BY_OCR_HELP = "The page is a scan: its words were recognised in the picture, and a letter may be wrong."
QUOTE_MISSING = "not found in the document"
MISSING = ('<span class="tf-uncited" title="The program looked for these words on every page and did not find them.">'
           f"{QUOTE_MISSING}</span>")
NOT_SUPPORTED = "not found in the document"
NOT_SUPPORTED_HELP = "No passage of the document was found that says this."
CONTRADICTED = "the document says otherwise"
CONTRADICTED_HELP = "{label}: this passage says something else"
SUPPORTED_HELP = "{label}: this passage says so"

SHOWN = 3  # pages of one quotation that get a chip
_KEPT_ANSWERS = 800
_NAMED = re.compile(r"[\W_]{0,4}(?:pp?\.|pages?|S\.|Seite)\s*([\w-][\w.-]*)", re.IGNORECASE)
Mark = Callable[[str, str], tuple[bool, str] | None]
AFTER = 40  # characters behind a quotation, where the answer may name its page
REASONING = "Reasoning"
_SENTENCE_END = ".!?…)]”\"'’»"
_CLOSES = {"\\[": "\\]", "$$": "$$"}
_FORMULA = re.compile(r"\\\((?:[^\\]|\\(?!\))){1,4000}+\\\)|\\\[(?:[^\\]|\\(?!\])){1,4000}+\\\]|\$\$[^$]{1,4000}+\$\$"
                      r"|\$(?![\s$])[^$\n]{0,999}+(?<=[^\s\\])\$(?!\w)")
CLOSING = ("”", "“", "»", "«", "」", '"')


def _allowed(url: str) -> bool:
    try:
        parts = urlsplit(url.strip())
    except ValueError:
        return False
    return (parts.scheme in ("http", "https") and bool(parts.hostname)) or parts.scheme == "mailto"


def _link_open(renderer: RendererHTML, tokens: list[Token], index: int, options: object, env: dict) -> str:
    href = str(tokens[index].attrGet("href") or "")
    shown = tokens[index].markup == "autolink" and href.startswith("mailto:")  # <someone@example.org> says it itself
    env.setdefault("hosts", []).append("" if shown else urlsplit(href).hostname or urlsplit(href).scheme)
    safe = esc(href)
    return f'<a href="{safe}" title="{safe}" target="_blank" rel="noopener noreferrer nofollow">'


def _link_close(renderer: RendererHTML, tokens: list[Token], index: int, options: object, env: dict) -> str:
    host = env["hosts"].pop()
    return f'</a><span class="tf-host"> [{esc(host)}]</span>' if host else "</a>"


def _code(renderer: RendererHTML, tokens: list[Token], index: int, options: object, env: dict) -> str:
    code = esc(tokens[index].content)
    copy = f'<button type="button" class="tf-copy" data-copy="code">{esc(COPY)}</button>'
    return f'<div class="tf-code">{copy}<pre><code>{code}</code></pre></div>\n'


def _formula(state: StateInline, silent: bool) -> bool:
    """Leave a formula as it was written: its backslashes, stars and underscores are no Markdown."""
    found = _FORMULA.match(state.src, state.pos)
    if found is None:
        return False
    if not silent:
        state.pending += found[0]
    state.pos = found.end()
    return True


def _formula_lines(state: StateBlock, line: int, last: int, silent: bool) -> bool:
    """Keep the lines of a formula together, whatever they begin with."""
    start = state.bMarks[line] + state.tShift[line]
    opening = state.src[start : start + 2]
    if opening not in _CLOSES or state.is_code_block(line):
        return False
    end, closing = line, _CLOSES[opening]
    while end < last and state.src.find(closing, max(start + 2, state.bMarks[end]), state.eMarks[end]) < 0:
        end += 1
    if end == last or end == line or state.src[: state.eMarks[end]].rstrip()[-2:] != closing:
        return False
    if not silent:
        state.push("paragraph_open", "p", 1)
        inline = state.push("inline", "", 0)
        inline.content, inline.children = state.getLines(line, end + 1, state.blkIndent, False).strip(), []
        state.push("paragraph_close", "p", -1)
        state.line = end + 1
    return True


def _make() -> MarkdownIt:
    parser = MarkdownIt("commonmark", {"html": False, "linkify": False, "typographer": False})
    parser.enable(["table", "strikethrough"]).disable(["image", "html_block", "html_inline"])
    parser.inline.ruler.before("escape", "formula", _formula)
    parser.block.ruler.before("fence", "formula", _formula_lines, {"alt": ["paragraph"]})
    parser.validateLink = _allowed  # type: ignore[method-assign]
    for name, rule in (("link_open", _link_open), ("link_close", _link_close), ("fence", _code), ("code_block", _code),
                       ("our_html", lambda renderer, tokens, index, options, env: tokens[index].content)):
        parser.add_render_rule(name, rule)
    return parser

_PARSER = _make()


def render(text: str, mark: Mark | None = None, notes: Sequence[tuple[str, str]] = ()) -> str:
    """Return safe HTML of a Markdown text. mark: (quotation, what follows it) -> whether it was found and the HTML to
    put behind it; None: it stays as it is. notes: sentences of the text in its order, and the HTML behind each. What a
    model reasons first is folded and neither marked nor noted."""
    thought, answer = metrics.reasoning(text)
    if answer:
        return (f'<details class="tf-thinking"><summary>{REASONING}</summary>{render(thought)}</details>'
                f"{render(text[answer:], mark, notes)}")
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
    """Return the words of a Markdown text without its marks: each paragraph, heading or cell on a line of its own."""
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
    """Return a line's tokens with the notes behind those of its sentences that have one, taken out of ``left``.
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
    """Return a line's tokens, its quotations wrapped piece by piece so that emphasis inside stays well nested.

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


def named_page(after: str, labels: Iterable[str] = ()) -> str | None:
    """Return the label of the page that an answer names right behind a quotation: ' [p. 85].' -> '85'. labels: of the
    document, as some have several words ("Moby Dick, 85"): the longest that stands there is meant."""
    match = _NAMED.match(after)
    if match is None:
        return None
    rest = after[match.start(1) :]
    whole = [label for label in labels if " " in label and rest.startswith(label)
             and not rest[len(label) :][:1].isalnum()]
    return max(whole, key=len, default=match[1].rstrip("."))


def chips(found: Found, document: Document, named: str | None = None) -> str:
    """Return one button for each page on which a quotation stands, the one that the answer names first."""
    made, scanned, first = [], False, dict[int, Sequence[Place]]()
    labels = [page.label for page in document.pages]
    for places in sorted(found.occurrences, key=lambda places: labels[places[0].page - 1] != named):
        first.setdefault(places[0].page, places)
    for page, occurrence in list(first.items())[:SHOWN]:
        scanned = scanned or bool(document.pages[page - 1].words)
        label = fmt.cited_page(document, page)
        how = ("these words stand there" if found.share == 1
               else f"{int(found.share * 100)} % of these words stand there in one piece")
        title = f"{label}: {how}"
        if named and labels[page - 1] != named:
            title += f"; the answer says p. {named}"
        made.append(f'<button type="button" class="tf-cite" data-action="page" data-page="{page}" '
                    f'data-spot="{spot(occurrence)}" title="{esc(title)}" aria-label="{esc(title)}">'
                    f"{esc(label)}{'' if found.share == 1 else ' ≈'}</button>")
    more = len(found.occurrences) - len(made) + found.more
    if scanned:
        made.append(f'<span class="tf-cite-more" title="{BY_OCR_HELP}">{BY_OCR}</span>')
    if more:
        made.append(f'<span class="tf-cite-more">{more_places(more)}</span>')
    return "".join(made)


def more_places(count: int) -> str:
    """Return what stands behind the pages of a quotation that stands elsewhere too."""
    return f"and {count} more place{'s' * (count > 1)}"


def judged(result: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return the sentences of a kept answer that were judged; those of older versions, which compared words, were
    not."""
    return [one for one in result.get("support", ()) if "verdict" in one]


def verdicts(text: str, support: Sequence[Mapping[str, Any]], document: Document | None) -> list[tuple[str, str]]:
    """Return (sentence, the HTML behind it) for each sentence of an answer that was judged: the page of the passage
    that supports it or says otherwise, or that none was found. document: None where its text is gone."""
    return [(text[one["start"] : one["end"]], f" {_verdict(one, len(document.pages) if document else 0)}")
            for one in support]


def _verdict(sentence: Mapping[str, Any], pages: int) -> str:
    if sentence["verdict"] == "not found":
        return f'<span class="tf-uncited" title="{esc(NOT_SUPPORTED_HELP)}">{NOT_SUPPORTED}</span>'
    places = [Place(place["page"], place["start"], place["end"]) for place in sentence["places"]]
    label = fmt.cited(sentence["places"], pages) if pages else f"p. {sentence['places'][0]['label']}"
    denied = sentence["verdict"] == "contradicted"
    title = esc((CONTRADICTED_HELP if denied else SUPPORTED_HELP).format(label=label))
    chip = (f'<button type="button" class="tf-cite" data-action="page" data-page="{places[0].page}" '
            f'data-spot="{spot(places)}" title="{title}" aria-label="{title}">{esc(label)}</button>')
    return f'<span class="tf-denied">{CONTRADICTED}</span>{chip}' if denied else chip


def decoded(text: str, quotes: Sequence[Mapping[str, Any]], document: Document) -> dict[str, Found]:
    """Return the letters of each closed quotation that decoding found -> where it stands. quotes: of
    ``metrics.quotes_as_json``. Left out: what the pages don't say there (their text was taken out anew since), and
    letters that stand for two quotations with places of their own."""
    known: dict[str, Found | None] = {}
    for quote in quotes:
        words = _letters(text[quote["start"] : quote["end"]])
        listed = [tuple(Place(place["page"], place["start"], place["end"]) for place in occurrence["places"])
                  for occurrence in quote["occurrences"]]
        good = tuple(places for places in listed if words and _letters(_words(places, document)) == words)
        if not quote["closed"] or not good:
            continue
        found = Found(good, 1.0, quote["count"] - len(good))
        known[words] = found if known.get(words, found) == found else None
    return {words: found for words, found in known.items() if found is not None}


def _words(places: Sequence[Place], document: Document) -> str:
    return "".join(document.pages[place.page - 1].text[place.start : place.end] for place in places
                   if place.page <= len(document.pages))


def _letters(text: str) -> str:
    """Return what neither Markdown nor a model's spelling of punctuation changes."""
    return "".join(filter(str.isalnum, text))


def live(text: str, document: Document | None, quotes: Sequence[Mapping[str, Any]],
         support: Sequence[Mapping[str, Any]] = ()) -> str:
    """Return an answer that is being written, as safe HTML: chips where decoding found its quotations, and behind the
    sentences that are judged; nothing is looked up."""
    if document is None or not quotes:
        return render(text, notes=verdicts(text, support, document))
    known = decoded(text, quotes, document)
    return render(text, lambda words, after: _found(known.get(_letters(words)), document, after),
                  verdicts(text, support, document))


def _found(found: Found | None, document: Document, after: str) -> tuple[bool, str] | None:
    labels = (page.label for page in document.pages)
    return (True, chips(found, document, named_page(after, labels))) if found else None


class Citations:
    """Answers as safe HTML, every quotation looked up in the answer's document. What was looked up once is kept: an
    answer never changes, and a chat of a hundred is drawn again with each new one. Thread-safe."""

    def __init__(self, finders: QuoteFinders) -> None:
        self._finders = finders
        self._answers: OrderedDict[tuple[str, str, str], tuple[Document, str]] = OrderedDict()
        self._lock = threading.Lock()

    def render(self, text: str, document: Document | None, key: str, quotes: Sequence[Mapping[str, Any]] = (),
               support: Sequence[Mapping[str, Any]] = ()) -> str:
        """key: of the document in the library. document: None where its text is gone; then nothing is looked up.
        quotes: as ``metrics.quotes_as_json`` gives them; support: as ``metrics.support_as_json``."""
        if document is None:
            return render(text, notes=verdicts(text, support, document))
        answer = key, text, f"{quotes} {support}"
        kept = self._answers.get(answer)
        if kept is None or kept[0] is not document:  # unlocked: it may take long
            kept = document, self._checked(text, document, key, quotes, support)
        with self._lock:
            self._answers[answer] = kept
            self._answers.move_to_end(answer)
            if len(self._answers) > _KEPT_ANSWERS:
                self._answers.popitem(last=False)
        return kept[1]

    def _checked(self, text: str, document: Document, key: str, quotes: Sequence[Mapping[str, Any]],
                 support: Sequence[Mapping[str, Any]]) -> str:
        known = decoded(text, quotes, document)

        def look_up(words: str, after: str) -> tuple[bool, str] | None:
            if not says_enough(normal(words)):
                return None
            found = self._finders.of(document).find(words)
            return _found(found, document, after) or (False, MISSING)

        return render(text, lambda words, after: (
            _found(known.get(_letters(words)), document, after) or look_up(words, after)),
            verdicts(text, support, document))
