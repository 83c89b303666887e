"""Markdown by markdown-it-py (CommonMark, with tables, notes and definition lists), written as a tree of HTML.

What Markdown leaves to the eye is found on the way: notes below a heading "Footnotes", rows without the rule of a
table, lines that a table of contents names, and what only looks like a tag."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from itertools import groupby, pairwise
from typing import Any

from justhtml.dom import Node, Text
from markdown_it import MarkdownIt
from markdown_it.token import Token
from mdit_py_plugins.deflist import deflist_plugin
from mdit_py_plugins.footnote import footnote_plugin

from .blocks import CONTENTS, bare, unmarked
from .html import HtmlText
from .html_tree import VOID, Builder, parse
from .plain_text import decoded
from .source import Raw, Source

_NESTING = 60  # of quotes and lists; markdown-it drops what stands deeper, so deeper marks are taken off before
_DEEP = re.compile(r"^((?:[ ]{0,3}(?:>|[-+*] )){20})(?:[ ]{0,3}(?:>|[-+*] ))+", re.MULTILINE)
_FRONT_MATTER = re.compile(r"\A---[ \t]*\n(.*?)^(?:---|\.\.\.)[ \t]*(?:\n|\Z)", re.MULTILINE | re.DOTALL)
_LONGEST_FRONT = 20_000
_SETTING = re.compile(r"[\w.-]+:(?:\s|\Z)|- |#|[\]}]|[ \t]+\S")
_TITLE = re.compile(r"^title:[ \t]*(\S.*)$", re.MULTILINE)
_LONG_LINE = 200  # whoever writes lines longer than this does not wrap them: each is a paragraph
_LONGEST_UNDERLINED = 120  # a longer line above "---" is prose above a rule
_UNDEFINED_NOTE = re.compile(r"(?<=[^\s\[(|])\[\^\d{1,4}\]")
_ALERT = re.compile(r"\A\[!([A-Z]+)\]\s*")
_LINES = ("heading_open", "paragraph_open")
_ROW = re.compile(r"\s*\|")
_NOTES = re.compile(r"(?:foot|end)?notes?:?", re.IGNORECASE)
_NOTE_LINE = re.compile(r"\A\[?(\d{1,4})[.)\]]{1,2}\s+(?=\S)")
_NOTE_CELL = re.compile(r"\[?(\d{1,4})[.)\]]{0,2}")
_NOTE_LINK = re.compile(r"#(?:user-content-)?_?(?:fn|foot|note|ftn|end|cite|sdfoot)", re.IGNORECASE)
_NOTE_MARK = re.compile(r"[\[(]?(?:\d{1,4}|[a-z*†‡§])[\])]?")
# An arrow that leads from a note back to its mark.
_BACK = re.compile("(?<!\\s)\\s*+[\u21a9\u2191\u2934]\ufe0e?\ufe0f?")
_HTML_NOTE = re.compile(r"(<(?:p|li|div|aside)\b[^>]{0,300}\b(?:id|class)=[\"'][^\"'>]{0,80}(?:note|fn)[^>]{0,300})>"
                        r"(?=\s*+(?:<[^<>]{1,200}>\s*+){0,4}\[?\d{1,4}[.)\]]{1,2}\s)", re.IGNORECASE)
_TAG = re.compile(r"<(/?)([A-Za-z][A-Za-z0-9-]*+)(.*?)/?>", re.DOTALL)
_ATTRIBUTE = re.compile(r"(?<![\w:-])([\w:-]++)\s*+=\s*+(?:\"([^\"]*)\"|'([^']*)'|([^\s\"'>]+))")
_ELEMENTS = VOID | frozenset(
    "a abbr acronym address article aside audio b bdi bdo big blockquote button caption center cite code colgroup data "
    "datalist dd del details dfn div dl dt em fieldset figcaption figure font footer form h1 h2 h3 h4 h5 h6 header i "
    "iframe ins kbd label legend li main map mark meter nav nobr noscript object ol optgroup option output p picture "
    "pre progress q rp rt ruby s samp script section select small span strike strong style sub summary sup svg table "
    "tbody td template textarea tfoot th thead time tr tt u ul var video".split()
)


def read_markdown(source: Source) -> Raw:
    text, warnings = decoded(source)
    page = HtmlText(markdown_tree(text))
    settings, _ = _front_matter(text)
    named = _TITLE.search(settings)
    title = next((words for words, _ in page.headings), named[1].strip("\"' ") if named else "")
    return page.raw("markdown", "markdown 4", title, warnings, keep_titles=True)


def markdown_tree(text: str) -> Node:
    """Return a text as a tree of HTML; settings at its top as they stand."""
    parser = MarkdownIt("commonmark", {"maxNesting": _NESTING}).enable(["table", "strikethrough"])
    parser.use(deflist_plugin).use(footnote_plugin, move_to_end=False)
    environment: dict[str, Any] = {}
    settings, start = _front_matter(text)
    tokens = parser.parse(_DEEP.sub(r"\1", text[start:]), environment)
    writer = _Writer(environment.get("footnotes", {}).get("list", {}))
    if settings:
        writer.tree.element("pre", settings)
    writer.blocks(tokens)
    return writer.tree.root


def _front_matter(text: str) -> tuple[str, int]:
    """Return the settings between two "---" at the very top, and where the text goes on. Prose that stands there is no
    settings: ("", 0)."""
    found = _FRONT_MATTER.match(text)
    if (found and found[1].strip() and len(found[1]) <= _LONGEST_FRONT
            and all(_SETTING.match(line) for line in found[1].split("\n") if line.strip())):
        return found[1], found.end()
    return "", 0


class _Writer:
    """Writes the tokens of a document as a tree. noted: the notes that are written inside a sentence."""

    def __init__(self, noted: dict[int, dict[str, Any]]) -> None:
        self.tree = Builder()
        self._noted = noted
        self._marks: set[str] = set()  # of notes
        self._sentences: list[Text] = []  # in which such marks may stand
        self._in_notes = False  # below a heading such as "Footnotes"
        self._in_contents = False
        self._listed: set[str] = set()  # what a table of contents names

    def blocks(self, tokens: Sequence[Token]) -> None:
        for at, token in enumerate(tokens):
            if token.type == "inline" and tokens[at - 1].type in _LINES:
                self._line(tokens[at - 1], token.children or [], in_item=tokens[at - 2].type == "list_item_open")
            elif token.type == "inline":
                self._inline(token.children or [], _breaks(token.children or []))
            elif token.type in ("fence", "code_block"):
                self.tree.element("pre", token.content)
            elif token.type == "html_block":
                self.tree.graft(parse(_HTML_NOTE.sub(r'\1 role="doc-footnote">', token.content)))
            elif token.type == "list_item_open" and token.info:
                self.tree.open("li", {"data-mark": f"{token.info}{token.markup}"})
                self._note(token.info if self._in_notes else "")
            elif token.type == "footnote_reference_open":
                self.tree.open("aside")
                self._note(token.meta["label"])
            elif token.nesting > 0 and token.type not in _LINES:
                self.tree.open(token.tag)
            elif token.nesting < 0:
                self.tree.close(token.tag or "aside")
        for text in self._sentences if self._marks else ():
            text.data = unmarked(text.data or "", self._marks)

    def _note(self, mark: str) -> None:
        """Make what was opened last a note, if it has a mark."""
        if mark:
            self._marks.add(mark)
            self.tree.here.attrs = {"role": "doc-footnote", "data-mark": mark}

    def _line(self, opening: Token, tokens: Sequence[Token], in_item: bool) -> None:
        """Write a heading or a paragraph. in_item: it is the first of a list's item."""
        breaks = _breaks(tokens)
        words = _plain(tokens, breaks)
        line = " ".join(words.split())
        heading = opening.type == "heading_open"
        if heading and opening.markup == "-" and (len(line) > _LONGEST_UNDERLINED or line.endswith((".", ";", ","))):
            heading = False
        if heading:
            self._in_notes, self._in_contents = bool(_NOTES.fullmatch(line)), bool(CONTENTS.fullmatch(line))
        elif in_item and self._in_contents:
            self._listed.add(bare(line))
        elif "|" in words and any(map(_ROW.match, words.split("\n"))):
            self._rows(words.split("\n"))
            return
        listed = not (in_item or heading or "\n" in words) and bare(line) in self._listed
        self.tree.open(opening.tag if heading else "h1" if listed else "span" if opening.hidden else "p")
        if alert := _ALERT.match(words):
            self.tree.text(alert[1].capitalize())
            self.tree.element("br")
        texts = self._inline(tokens, breaks)
        if alert:
            texts[0].data = _ALERT.sub("", texts[0].data or "")
        if not heading and not listed:
            self._sentences += texts
            if self._in_notes and not in_item and (note := _NOTE_LINE.match(texts[0].data or "")):
                self._note(note[1])
                texts[0].data = (texts[0].data or "")[note.end() :]
        self.tree.close(self.tree.here.name)

    def _rows(self, lines: Sequence[str]) -> None:
        """Write a paragraph some of whose lines are rows of a table, without the rule that makes it one."""
        for barred, group in groupby(lines, lambda line: _ROW.match(line) is not None):
            self.tree.open("table" if barred else "p")
            for line in group:
                cells = line.strip().removeprefix("|").removesuffix("|").split("|")
                note = _NOTE_CELL.fullmatch(cells[0].strip()) if self._in_notes and barred else None
                self.tree.open("p" if note else "tr" if barred else "span")
                if note:
                    self._note(note[1])
                    self.tree.text(" ".join(cells[1:]))
                elif barred:
                    for cell in cells:
                        self.tree.element("td", cell)
                else:
                    self._sentences.append(self.tree.text(line))
                    self.tree.element("br")
                self.tree.close(self.tree.here.name)
            self.tree.close("table" if barred else "p")

    def _inline(self, tokens: Sequence[Token], breaks: Sequence[str]) -> list[Text]:
        """Write a line of text, with the breaks and tags that a reader sees; return its words that are no code."""
        tags, softbreaks = _Tags(tokens), iter(breaks)
        texts: list[Text] = []
        words: list[str] = []
        for at, token in enumerate(tokens):
            if token.type == "text":
                words.append(_words(token))
            elif token.type == "softbreak" and next(softbreaks, " ") == " ":
                words.append("\n")  # a blank, but not between Han or kana
            else:
                if words:
                    texts.append(self.tree.text("".join(words)))
                    words = []
                self._element(tokens, at, tags)
        return [*texts, self.tree.text("".join(words))]

    def _element(self, tokens: Sequence[Token], at: int, tags: _Tags) -> None:
        """Write what is no text in a line of text."""
        token = tokens[at]
        if token.type in ("hardbreak", "softbreak"):
            self.tree.element("br")
        elif token.type == "code_inline":
            self.tree.text(token.content)
        elif token.type == "image":
            self.tree.text(_plain(token.children or []))
            self.tree.element("img")
        elif token.type == "html_inline":
            self._tag(token.content, tags)
        elif token.type == "link_open":
            if at and tokens[at - 1].type == "link_close":
                self.tree.text(" ")  # a row of buttons
            self.tree.open("a", _link(token, tokens[at + 1 :]))
        elif token.type == "link_close":
            self.tree.close("a")
        elif token.type == "footnote_ref" and "label" not in token.meta:
            self.tree.open("span")
            self._note(str(token.meta["id"] + 1))
            self._inline(self._noted[token.meta["id"]]["tokens"], ())
            self.tree.close("span")

    def _tag(self, tag: str, tags: _Tags) -> None:
        """Write what a reader sees of a tag, and those that mean something to the words around them."""
        found = _TAG.fullmatch(tag)
        if not found:
            return  # a comment or a declaration
        name, closes = found[2].lower(), found[1] != ""
        attributes = {key.lower(): one or two or three for key, one, two, three in _ATTRIBUTE.findall(found[3])}
        if not tags.is_one(name, closes, found[3]):
            self.tree.text(tag)
        elif name in ("a", "sup", "sub"):
            self.tree.close(name) if closes else self.tree.open(name, attributes)
        elif name == "br":
            self.tree.element("br")
        elif name == "img":
            self.tree.text(attributes.get("alt", ""))
            self.tree.element("img")


class _Tags:
    """Tells a paragraph's tags from what only looks like one, as the type in "a list of <T>"."""

    def __init__(self, tokens: Sequence[Token]) -> None:
        self._open = Counter[str]()
        self._closing = Counter(token.content[2:-1].strip().lower() for token in tokens
                                if token.type == "html_inline" and token.content.startswith("</"))

    def is_one(self, name: str, closes: bool, attributes: str) -> bool:
        closed = name in VOID or name == "p" or self._closing[name] > self._open[name]
        if closes:
            self._open[name] -= 1
            return name in _ELEMENTS and self._open[name] >= 0
        if name in _ELEMENTS and (closed or "=" in attributes):
            self._open[name] += 1
            return True
        return False


def _link(token: Token, behind: Sequence[Token]) -> dict[str, str]:
    """Return its attributes as the HTML reader knows them: links to notes and back are no words of the sentence."""
    href = str(token.attrs.get("href", ""))
    end = next((at for at, other in enumerate(behind) if other.type == "link_close"), 0)
    words = _plain(behind[:end]).strip()
    kind = "doc-backlink" if _BACK.fullmatch(words) else ""
    if _NOTE_LINK.match(href) and _NOTE_MARK.fullmatch(words):
        kind = "doc-noteref"
    return {"href": href, "role": kind}


def _is_field(tokens: Sequence[Token]) -> bool:
    """Return whether a line begins with a "**Name:**"."""
    shown = [token for token in tokens if token.type != "text" or token.content]
    return len(shown) > 1 and shown[0].type == "strong_open" and shown[1].content.endswith(":")


def _breaks(tokens: Sequence[Token]) -> list[str]:
    """Return what each line end of a paragraph's source is: a blank, or a line break where it is not wrapped by hand,
    around a row of a table and before a field."""
    places = [at for at, token in enumerate(tokens) if token.type == "softbreak"]
    if not places:
        return []
    lines = _plain(tokens, ["\v"] * len(places)).split("\v")
    wrapped = max(map(len, lines)) <= _LONG_LINE
    return ["\n" if _ROW.match(line) or _ROW.match(last) or not (wrapped or line[:1].islower())
            or _is_field(tokens[at + 1 : at + 4]) else " "
            for at, (last, line) in zip(places, pairwise(lines), strict=True)]


def _plain(tokens: Sequence[Token], breaks: Sequence[str] = ()) -> str:
    """Return the words without their tags."""
    softbreaks = iter(breaks)
    out: list[str] = []
    for token in tokens:
        if token.type == "softbreak":
            out.append(next(softbreaks, " "))
        elif token.type == "hardbreak":
            out.append("\n")
        elif token.type != "html_inline":
            out.append(_plain(token.children) if token.children else _words(token))
    return "".join(out)


def _words(token: Token) -> str:
    return _UNDEFINED_NOTE.sub("", token.content) if token.type == "text" and "[^" in token.content else token.content
