"""Markdown by markdown-it-py (CommonMark, with tables, notes and definition lists): its tokens as text."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

from markdown_it import MarkdownIt
from markdown_it.token import Token
from mdit_py_plugins.deflist import deflist_plugin
from mdit_py_plugins.footnote import footnote_plugin

from ..sections import placed, split_sections
from .blocks import Blocks
from .html import html_text, tidy
from .inline_html import raised, tag_text
from .plain_text import decode_text, numbered
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
_NOTES = re.compile(r"(?:foot|end)?notes?:?", re.IGNORECASE)
_NOTE_LINE = re.compile(r"\[?(\d{1,4})[.)\]]{1,2}\s+(?=\S)")
_NOTE_CELL = re.compile(r"\[?(\d{1,4})[.)\]]{0,2}")
_NOTE_LINK = re.compile(r"#(?:user-content-)?_?(?:fn|foot|note|ftn|end|cite|sdfoot)", re.IGNORECASE)
_NOTE_MARK = re.compile(r"[\[(]?(?:\d{1,4}|[a-z*†‡§])[\])]?")
# An arrow that leads from a note back to its mark.
_BACK = re.compile("(?<!\\s)\\s*+[\u21a9\u2191\u2934]\ufe0e?\ufe0f?")
_HTML_NOTE = re.compile(r"<(?:p|li|div|aside)\b[^>]{0,300}\b(?:id|class)=[\"'][^\"'>]{0,80}(?:note|fn)", re.IGNORECASE)


def read_markdown(source: Source) -> Raw:
    text, warning = decode_text(source.path.read_bytes(), source.name)
    source.check_characters(len(text))
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    blocks = markdown_blocks(text)
    body, headings = blocks.finish()
    sections = split_sections(body, {words for words, _ in headings})
    front = _front_matter(text)
    named = _TITLE.search(front[0]) if front else None
    title = next((words for words, _ in headings), named[1].strip("\"' ") if named else "")
    return Raw("markdown", "markdown 2", title, numbered(sections), warnings=[warning] if warning else [],
               headings=placed(headings, sections), laid_out=True)


def markdown_blocks(text: str) -> Blocks:
    """No marks, links as their words, a paragraph or item a line; headings and code as they stand."""
    blocks = Blocks()
    front = _front_matter(text)
    if front:
        blocks.code(front[0].split("\n"))
        text = text[front[1] :]
    parser = MarkdownIt("commonmark", {"maxNesting": _NESTING}).enable(["table", "strikethrough"])
    parser.use(deflist_plugin).use(footnote_plugin, move_to_end=False)
    environment: dict[str, Any] = {}
    tokens = parser.parse(_DEEP.sub(r"\1", text), environment)
    _Layout(blocks, environment).lay_out(tokens)
    return blocks


def _front_matter(text: str) -> tuple[str, int] | None:
    """Settings between two "---" at the very top, and where the text goes on. Prose that stands there is none."""
    found = _FRONT_MATTER.match(text)
    if not found or not found[1].strip() or len(found[1]) > _LONGEST_FRONT:
        return None
    settings = all(_SETTING.match(line) for line in found[1].split("\n") if line.strip())
    return (found[1], found.end()) if settings else None


class _Layout:
    """Walks over the tokens of a document; those of blocks open and close in pairs around "inline" ones."""

    def __init__(self, blocks: Blocks, environment: dict[str, Any]) -> None:
        self._blocks, self._environment = blocks, environment
        self._item = ""  # marker of the item whose first line is still to come
        self._note: list[str] | None = None  # label and paragraphs of the note that is open
        self._row: list[str] | None = None
        self._first = False  # is the next row the first of its table?
        self._heading, self._underline = 0, ""
        self._term = False
        self._in_notes = False  # below a heading such as "Footnotes"

    def lay_out(self, tokens: Sequence[Token]) -> None:
        by_type: dict[str, Callable[[Token], None]] = {
            "inline": self._words, "heading_open": self._open_heading, "list_item_open": self._open_item,
            "list_item_close": self._close_item, "dd_open": self._close_item, "dt_open": self._open_term,
            "footnote_reference_open": self._open_note, "footnote_reference_close": self._close_note,
            "table_open": self._open_table, "tr_open": self._open_row, "tr_close": self._close_row,
            "fence": self._code, "code_block": self._code, "html_block": self._markup,
        }  # fmt: skip
        for token in tokens:
            if token.type in by_type:
                by_type[token.type](token)

    def _open_heading(self, token: Token) -> None:
        self._heading, self._underline = int(token.tag[1]), token.markup

    def _open_item(self, token: Token) -> None:
        self._item = f"{token.info}{token.markup}" if token.info else "-"

    def _close_item(self, token: Token) -> None:
        self._item = ""

    def _open_term(self, token: Token) -> None:
        self._term = True

    def _open_note(self, token: Token) -> None:
        self._note = [token.meta["label"]]

    def _close_note(self, token: Token) -> None:
        if self._note:
            self._blocks.note(self._note[0], " ".join(self._note[1:]))
        self._note = None

    def _open_table(self, token: Token) -> None:
        self._first = True

    def _open_row(self, token: Token) -> None:
        self._row = []

    def _close_row(self, token: Token) -> None:
        self._add_row(self._row or [])
        self._row = None

    def _code(self, token: Token) -> None:
        if self._note is not None:
            self._note.append(token.content)
        else:
            self._blocks.code(token.content.expandtabs(4).split("\n"))

    def _markup(self, token: Token) -> None:
        extractor = html_text(token.content)
        titles = dict(extractor.headings)
        for part in filter(str.strip, tidy(extractor.text()).split("\n\n")):
            note = _NOTE_LINE.match(part) if _HTML_NOTE.match(token.content.lstrip()[:500]) else None
            if note:
                self._blocks.note(note[1], _BACK.sub("", part[note.end() :]))
            elif part in titles:
                self._blocks.heading(part, titles[part])
            else:
                self._blocks.paragraph(part)

    def _words(self, token: Token) -> None:
        inline = _Inline(self._environment)
        text = inline.text(token.children or [])
        if self._row is not None:
            self._row.append(text)
        elif self._heading:
            self._add_heading(text)
        elif self._term:
            self._blocks.term(text)
            self._term = False
        elif self._note is not None:
            self._note.append(text)
        elif self._item:
            self._add_item(text)
        else:
            self._add_lines(text)
        for mark, words in inline.notes:
            self._blocks.note(mark, words)

    def _add_heading(self, text: str) -> None:
        words = " ".join(text.split())
        if self._underline == "-" and (len(words) > _LONGEST_UNDERLINED or words.endswith((".", ";", ","))):
            self._add_lines(text)
        else:
            self._blocks.heading(words, self._heading)
            self._in_notes = _NOTES.fullmatch(words) is not None
        self._heading = 0

    def _add_item(self, text: str) -> None:
        marker, self._item = self._item, ""
        if self._in_notes and marker[:-1].isdigit():
            self._blocks.note(marker[:-1], _BACK.sub("", text))
        else:
            self._blocks.item(marker, text)

    def _add_row(self, cells: list[str]) -> None:
        note = _NOTE_CELL.fullmatch(cells[0].strip()) if cells else None
        if self._in_notes and note:
            self._blocks.note(note[1], " ".join(cells[1:]))
        else:
            self._blocks.row(cells, self._first)
            self._first = False

    def _add_lines(self, text: str) -> None:
        """A paragraph; its lines that are written as rows of a table (without the rule that makes it one) are rows."""
        prose: list[str] = []
        self._first = True
        for line in text.split("\n"):
            if not line.lstrip().startswith("|"):
                prose.append(line)
                continue
            self._blocks.paragraph("\n".join(prose))
            prose = []
            self._add_row(line.strip().removeprefix("|").removesuffix("|").split("|"))
        if self._in_notes and prose and (note := _NOTE_LINE.match(prose[0])):
            self._blocks.note(note[1], _BACK.sub("", " ".join(prose)[note.end() :]))
        else:
            self._blocks.paragraph("\n".join(prose))


class _Inline:
    """The text of a paragraph. notes: (mark, text) of those that are written inside it."""

    def __init__(self, environment: dict[str, Any]) -> None:
        self._noted = environment.get("footnotes", {}).get("list", {})
        self.notes: list[tuple[str, str]] = []
        self._out: list[str] = []
        self._links: list[tuple[int, str]] = []  # where their words begin in out, and where they lead
        self._raised: list[int] = []  # where superscripts begin in out
        self._open: Counter[str] = Counter()  # HTML elements
        self._closing: Counter[str] = Counter()

    def text(self, tokens: Sequence[Token]) -> str:
        """Line breaks that count are "\\n"; those at which a wrapped paragraph goes on are spaces."""
        self._closing = Counter(token.content[2:-1].strip().lower() for token in tokens
                                if token.type == "html_inline" and token.content.startswith("</"))
        for number, token in enumerate(tokens):
            if token.type in ("text", "code_inline"):
                self._out.append(token.content if token.type == "code_inline" else
                                 _UNDEFINED_NOTE.sub("", token.content))
            elif token.type == "softbreak":
                self._out.append("\n" if _is_field(tokens[number + 1 : number + 4]) else "\v")
            elif token.type == "hardbreak":
                self._out.append("\n")
            elif token.type == "image":
                self._out.append(_Inline({}).text(token.children or []))
            elif token.type == "html_inline":
                self._tag(token.content)
            elif token.type == "link_open":
                if number and tokens[number - 1].type == "link_close":
                    self._out.append(" ")  # a row of buttons
                self._links.append((len(self._out), str(token.attrs.get("href", ""))))
            elif token.type == "link_close" and self._links:
                self._close_link()
            elif token.type == "footnote_ref" and "label" not in token.meta:
                words = _Inline({}).text(self._noted[token.meta["id"]]["tokens"])
                self.notes.append((str(token.meta["id"] + 1), words))
        return _ALERT.sub(lambda found: f"{found[1].capitalize()}\n", _unwrapped("".join(self._out)))

    def _close_link(self) -> None:
        start, href = self._links.pop()
        words = "".join(self._out[start:]).strip()
        if _BACK.fullmatch(words) or (_NOTE_LINK.match(href) and _NOTE_MARK.fullmatch(words)):
            del self._out[start:]

    def _tag(self, tag: str) -> None:
        name, closes, text = tag_text(tag, self._open, self._closing)
        if name == "sup" and not text:
            if not closes:
                self._raised.append(len(self._out))
            elif self._raised:
                start = self._raised.pop()
                before = self._out[start - 1] if start else ""
                self._out[start:] = [raised("".join(self._out[start:]), before)]
        elif name == "a" and not text:
            if not closes:
                href = re.search(r"href\s*=\s*[\"']?([^\"'\s>]*)", tag)
                self._links.append((len(self._out), href[1] if href else ""))
            elif self._links:
                self._close_link()
        else:
            self._out.append(text)


def _is_field(tokens: Sequence[Token]) -> bool:
    """Whether a line begins with a "**Name:**"."""
    shown = [token for token in tokens if token.type != "text" or token.content]
    return len(shown) > 1 and shown[0].type == "strong_open" and shown[1].content.endswith(":")


def _unwrapped(text: str) -> str:
    """"\\v" (a line end in the source) as a space, or as a line break in a paragraph that is not wrapped by hand and
    around a row of a table."""
    lines = text.split("\v")
    wrapped = max(map(len, lines)) <= _LONG_LINE
    out = [lines[0]]
    for last, line in pairwise(lines):
        row = line.lstrip().startswith("|") or last.lstrip().startswith("|")
        out.append("\n" if row or not (wrapped or line[:1].islower()) else " ")
        out.append(line)
    return "".join(out)
