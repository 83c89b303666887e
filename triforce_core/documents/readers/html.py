"""Read HTML: what a reader of the page would see, from the tree that a browser would build, without recursion."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cached_property

from justhtml.dom import Node

from ..sections import placed, split_sections
from .encodings import declared_in, decode_file, decode_text
from .flow import LINE, PARAGRAPH, SPACE, Flow, Table, lowered_text, raised_text
from .html_notes import Links, classes, find_notes, kinds
from .html_tree import attribute, below, breaks_off_in_script, parse, text_of, whole_number, words_in
from .plain_text import numbered
from .source import Raw, Source, Unread

_UNREAD = frozenset(
    "script style template datalist rp colgroup head frameset noframes annotation annotation-xml".split()
)
_DRAWN = frozenset("text image title desc metadata style script".split())  # what is no text of a drawing
_CONTROLS = frozenset("nav button select noscript textarea".split())
_OBJECTS = frozenset("img video audio canvas object embed iframe".split())
_BLOCKS = frozenset(
    "p div section article header footer main aside ul ol dl table caption blockquote figure figcaption form fieldset "
    "address hr body html details summary dialog legend hgroup menu center search".split()
)
_HEADINGS = frozenset("h1 h2 h3 h4 h5 h6".split())
_LEVELS = frozenset(map(str, range(1, 11)))
_MOST_HEADINGS, _LONGEST_HEADING = 20_000, 300
_HIDING = re.compile(r"display\s*:\s*none|visibility\s*:\s*hidden|font-size\s*:\s*0(?![.\d])", re.IGNORECASE)
_PAGE_NUMBERS = frozenset("pagenum pageno page-number pagebreak doc-pagebreak ltx_note_mark".split())
_LONGEST_ASIDE = 200  # characters of decoration that is hidden from readers aloud
SCRIPT_LOST = "breaks off inside a script or style sheet: what stands behind it was not read."
_ANCHORS = frozenset({"¶", "#", "§", "🔗", "\uf0c1", "link"})
_ANY_MARK = re.compile(r"[\[(]([\w*†‡§¶]{1,5})[\])][.:]?\s*|(\d{1,3}(?=[.:)]?\s|[^\W\d_])|[*†‡§¶]{1,3})[.:)]?\s*")
_LEFT_OF_MARK = re.compile(r"\A(?:[\s^↑.:]|\[\s*\]|\(\s*\))+")  # of a note, where its link back stood
_BACK = re.compile("(?<!\\s)\\s*+[\u21a9\u2191\u2934]\ufe0e?\ufe0f?\\Z")  # an arrow from a note back to its mark
_SMALL = 40  # nodes
# What stands before each part of a formula's element; the last one also before those that follow.
_FORMULAS = {
    "msup": ("", "^"), "msub": ("", "_"), "msubsup": ("", "_", "^"), "munder": ("", "_"), "munderover": ("", "_", "^"),
    "mpre": ("_", "^", ""), "mfrac": ("", "/"), "mroot": ("^", "√"), "mtr": ("", " "),
    "mtable": ("", "; "),
}  # fmt: skip
_SET_APART = _FORMULAS.keys() - {"mtr"} | {"msqrt", "math"}  # on paper by the height of their parts
_APART_BEFORE = frozenset("mfrac mtable mpre mroot".split())
_ENDS_SOLID = re.compile(r"[\w)\]}]\Z")
_NUMBER = re.compile(r"[-−–+]?\d[\d.,]*")
_SUPER = re.compile(r"vertical-align\s*:\s*(super|sub)\b", re.IGNORECASE)
_SCRIPTS = {"super": "sup", "sup": "sup", "superscript": "sup", "sub": "sub", "subscript": "sub"}
_REFERENCES = re.compile(r"(?:foot|end)?notes?|references|bibliography|works cited", re.IGNORECASE)
_INVISIBLE_OPERATORS = dict.fromkeys(range(0x2061, 0x2065))


class HtmlText:
    """The text of a page: blank lines between paragraphs, a line for each item or row of a table, notes as paragraphs
    "[mark] text"."""

    def __init__(self, root: Node, links: Links | None = None, file: str = "") -> None:
        """links, file: of the book whose part this is."""
        self.title, self.language = "", ""
        self.headings: list[tuple[str, int]] = []  # words, level
        self.unread = Unread()
        self._root = root
        self._notes = find_notes(root, Links() if links is None else links, file)
        self._flows = [Flow()]
        self._tables: list[Table] = []
        self._lists: list[list[int] | None] = []  # of each open one the last number; None: it has none
        self._deferred: list[str] = []  # notes that stand inside a paragraph
        self._open_notes: list[str] = []  # the marks of those that are being read
        self._in_heading = 0
        self._list_begins = self._after_term = self._drawing_counted = False
        self._formula = ""  # the element of one that has just ended
        self._walk(root)

    def text(self) -> str:
        return tidy(self._flows[0].text())

    def raw(self, kind: str, reader: str, title: str, warnings: list[str], keep_titles: bool = False) -> Raw:
        """Return it as a file's only part, in sections. keep_titles: no section ends with a heading."""
        sections = split_sections(self.text(), {words for words, _ in self.headings} if keep_titles else frozenset())
        return Raw(kind, reader, title, numbered(sections), warnings=warnings, unread=self.unread, laid_out=True,
                   headings=placed(self.headings, sections), language=self.language)

    @property
    def _flow(self) -> Flow:
        return self._flows[-1]

    def _walk(self, root: Node) -> None:
        waiting: list[tuple[Node | str, bool]] = [(root, True)]  # False: its end
        while waiting:
            node, begins = waiting.pop()
            if isinstance(node, str):
                self._words(node)
            elif not begins:
                self._leave(node)
                if node.name in _SET_APART:
                    self._formula = "block" if attribute(node, "display") == "block" else node.name
            elif node.name == "#text":
                data = str(node.data)
                self._words(data if data.isascii() else data.translate(_INVISIBLE_OPERATORS))
            elif (script := _script_of(node)) and (figures := self._figures(node, script)) is not None:
                self._flow.words(figures)
            elif not self._skipped(node):
                self._enter(node)
                waiting.append((node, False))
                waiting.extend(reversed([(child, True) for child in _children(node)]))

    def _words(self, data: str) -> None:
        """Add words; those right behind a part of a formula that stands apart on paper do so here."""
        if self._formula and data:
            solid = data[0].isalnum() or data[0] == "√" or (self._formula in ("mfrac", "block") and data[0] in "([{")
            if solid and self._formula != "math":  # "the nth"
                self._flow.separate(SPACE)
            self._formula = ""
        self._flow.words(data)

    # -- what is not read

    def _skipped(self, node: Node) -> bool:
        """Return whether nothing beneath this node is part of the text; what is left out is counted."""
        name = node.name
        if name in ("#comment", "!doctype"):
            return True
        if name == "title" and not self.title and node.namespace != "svg":
            self.title = (text_of(node, 9) or "")[:500].strip()
        if name == "head":
            title = next((inner for inner in node.children or () if inner.name == "title"), None)
            return title is None or self._skipped(title)
        if name in _UNREAD or name == "title":
            return True
        if name in _OBJECTS:
            self.unread.pictures += not {attribute(node, "width"), attribute(node, "height")} & {"0", "1"}
            return True
        if node.namespace == "svg" and name in _DRAWN:
            self.unread.pictures += name in ("text", "image") and not self._drawing_counted
            self._drawing_counted = self._drawing_counted or name in ("text", "image")
            return True
        if name in _CONTROLS and not (name == "button" and self._in_heading):
            self.unread.controls += words_in(node)
            return True
        return (bool(node.attrs) or name == "dialog") and (self._hidden(node) or self._is_mark(node))

    def _hidden(self, node: Node) -> bool:
        names = node.attrs or {}
        hidden = "hidden" in names or (node.name == "dialog" and "open" not in names)
        if not hidden and _HIDING.search(attribute(node, "style")):
            hidden = True
        if not hidden and attribute(node, "aria-hidden").lower() == "true":
            words = text_of(node, 2_000)
            hidden = words is not None and len(words) <= _LONGEST_ASIDE
        if hidden:
            self.unread.hidden += words_in(node)
        return hidden

    def _is_mark(self, node: Node) -> bool:
        """Return whether it is a link to a note or back, a printed page's number or a link to a heading itself."""
        if node.name == "a":
            if id(node) in self._notes.references:
                self._flow.dropped = True
                return True
            back = id(node) in self._notes.back and self._open_notes != [""]  # there it is all that says the mark
            words = text_of(node, 12) if back or self._in_heading else None
            return words is not None and (words.strip() in _ANCHORS or (back and len(words.strip()) <= 20))
        if (kinds(node) | classes(node)) & _PAGE_NUMBERS:
            words = text_of(node, 12)
            return words is not None and len(words) <= 20
        return False

    # -- what is read

    def _enter(self, node: Node) -> None:
        if node.name == "html" and not self.language:
            self.language = attribute(node, "lang") or attribute(node, "xml:lang")
        if not self._begin_flow(node):
            self._enter_element(node)

    def _begin_flow(self, node: Node) -> bool:
        """Begin a text of its own for a note, a heading, code or a cell; return whether the element is one of these."""
        name, level = node.name, _level(node)
        if id(node) in self._notes.bodies and name == "dt":
            self._flow.separate(PARAGRAPH)
            self._flow.prefix = f"[{self._notes.bodies[id(node)]}] "
            self._flows.append(Flow())
        elif id(node) in self._notes.bodies or level:
            self._flows.append(Flow())
            self._in_heading += bool(level)
            if id(node) in self._notes.bodies:
                self._open_notes.append(attribute(node, "data-mark") or self._notes.bodies[id(node)])
        elif name == "pre":
            self._flows.append(Flow(raw=True))
        elif name in ("td", "th") and self._tables:
            self._flows.append(Flow())
        else:
            return False
        return True

    def _enter_element(self, node: Node) -> None:
        name = node.name
        if name == "math" and (self._formula or attribute(node, "display") == "block"):
            self._flow.separate(LINE if self._formula == "block" else SPACE)
        elif name in _APART_BEFORE and _ENDS_SOLID.search(self._flow.tail()):
            self._flow.separate(SPACE)
        elif name == "table":
            self._flow.separate(PARAGRAPH)
            self._tables.append(Table())
        elif name in ("ul", "ol", "menu"):
            self._flow.separate(LINE if self._lists else PARAGRAPH)
            self._list_begins = not self._lists
            self._lists.append([whole_number(attribute(node, "start"), 1) - 1] if name == "ol" else None)
        elif name == "li":
            if not self._list_begins and not self._flow.prefix:
                self._flow.gap = LINE  # items stand close, even if they are paragraphs
            self._list_begins = False
            self._flow.prefix = self._item(node)
        elif name == "dt":
            self._in_heading += 1
            self._flow.separate(LINE if self._after_term else PARAGRAPH)
        elif name == "dd":
            self._after_term = False
            self._flow.keep_close()
        elif name == "br":
            self._flow.line_break()
        elif name == "wbr" and "page-break" in classes(node):
            self._flow.page_break()
        elif name == "svg":
            self._drawing_counted = False
        elif name in _BLOCKS:
            self._in_heading += name == "summary"
            self._flow.separate(PARAGRAPH)
        elif name in ("q", "rt"):
            self._flow.words("“" if name == "q" else " (")

    def _leave(self, node: Node) -> None:
        name = node.name
        level = _level(node)
        if id(node) in self._notes.bodies and name == "dt":
            self._flows.pop()
        elif id(node) in self._notes.bodies:
            self._in_heading -= bool(level)
            self._end_note(node, self._open_notes.pop())
        elif level:
            self._in_heading -= 1
            self._end_heading(level)
        elif name == "pre":
            code = self._flows.pop().text().strip("\n").rstrip()
            if code.strip():
                self._flow.separate(PARAGRAPH)
                self._flow.put(code.expandtabs(4))
                self._flow.separate(PARAGRAPH)
                self._flow.apart = self._flow.apart or "\n" in code
        elif name in ("td", "th") and self._tables:
            cell = self._flows.pop()
            rows, columns = (whole_number(attribute(node, name).strip(), 1) for name in ("rowspan", "colspan"))
            self._tables[-1].add(cell, rows, columns)
        elif name == "tr" and self._tables:
            self._tables[-1].end_row(self._flow)
        elif name == "table":
            self._tables.pop()
            self._flow.separate(PARAGRAPH)
            self._flow.apart = self._flow.apart or bool(self._tables)
        elif name in ("ul", "ol", "menu"):
            self._lists.pop()
            self._flow.separate(LINE if self._lists else PARAGRAPH)
        elif name == "li":
            self._flow.prefix = ""
            self._flow.separate(LINE)
        elif name in ("dt", "dd"):
            self._after_term = name == "dt"
            self._in_heading -= name == "dt"
            self._flow.separate(LINE)
        elif name in _BLOCKS:
            self._in_heading -= name == "summary"
            self._flow.separate(PARAGRAPH)
            self._put_deferred()
        elif name in ("q", "rt"):
            self._flow.gap = 0
            self._flow.words("”" if name == "q" else ")")

    def _item(self, node: Node) -> str:
        if node.attrs and "data-mark" in node.attrs:  # the mark as the file prints it, "" for none
            printed = attribute(node, "data-mark")
            return f"{printed} " if printed else ""
        numbers = self._lists[-1] if self._lists else None
        if numbers is None:
            return "- "
        numbers[0] = whole_number(attribute(node, "value"), numbers[0] + 1)
        kind = attribute(node.parent, "type") if node.parent is not None else ""
        if kind in ("a", "A") and 0 < numbers[0] <= 26:
            return f"{chr(ord(kind) + numbers[0] - 1)}. "
        return f"{numbers[0]}. "

    def _figures(self, node: Node, script: str) -> str | None:
        """Return what a raised or lowered text adds: a power ("2^30"), an index, "" for a note's mark; None: it is read
        like any text."""
        text = text_of(node, _SMALL)
        if text is None:
            return None
        marks = [inner for inner in below(node) if id(inner) in self._notes.references]
        text = text.strip()
        if marks:
            linked = "".join(text_of(mark, _SMALL) or "" for mark in marks)
            if sum(map(str.isalnum, linked)) == sum(map(str.isalnum, text)):
                self._flow.dropped = True
                return ""
            return None
        if self._flow.dropped and text and not any(map(str.isalnum, text)):
            return ""  # the comma between two marks
        tail = self._flow.tail()
        if not text or not tail or any(id(inner) in self._notes.back for inner in below(node)):
            return None
        if script == "sub":
            return lowered_text(text, tail)
        raised = raised_text(text, tail, self._marks)
        if not raised:
            self._flow.dropped = True
        return raised

    @cached_property
    def _marks(self) -> set[str]:
        """Return the marks of all notes, and of what only its place says to be one: a paragraph that begins with a
        raised figure, an item below the heading "References"."""
        marks = set(self._notes.bodies.values())
        listed = begins = False
        count = 0
        for node in below(self._root):
            if node.name == "#text":
                begins = begins and not str(node.data).strip()
                continue
            if id(node) in self._notes.bodies or (node.name == "li" and listed):
                count += 1
                found = _ANY_MARK.match((text_of(node, _SMALL) or "").lstrip())
                marks |= {str(count)} if found is None else {str(count), found[1] or found[2]}
            elif node.name == "sup" and begins:
                marks.add((text_of(node, _SMALL) or "").strip(" [].)"))
            elif _level(node):
                listed, count = _REFERENCES.fullmatch(" ".join((text_of(node, _SMALL) or "").split())) is not None, 0
            begins = begins or node.name in _BLOCKS or node.name in ("li", "td")
        return marks

    def _end_note(self, node: Node, mark: str) -> None:
        words = _BACK.sub("", self._flows.pop().line())
        if attribute(node, "data-mark"):
            own = None
        elif mark:
            words = _LEFT_OF_MARK.sub("", words)
            behind = r"\s+" if mark[-1].isalpha() else r"(?:\s+|(?=\D))"
            own = re.match(rf"[\[(]?\s*{re.escape(mark)}\s*(?:[\])]?\s*[.:,)]\s+|[\])]\s*|{behind})", words)
        elif own := _ANY_MARK.match(words := _LEFT_OF_MARK.sub("", words)):
            mark = own[1] or own[2]
        words = words[own.end() :] if own else words
        if not any(map(str.isalnum, words)):
            return
        note = f"[{mark or '*'}] {words}"
        if node.name in _BLOCKS or node.name in ("li", "p", "table", "dd"):
            self._flow.paragraph(note)
        else:
            self._flow.dropped = True
            self._deferred.append(note)

    def _put_deferred(self) -> None:
        if len(self._flows) == 1 and self._deferred:
            for note in self._deferred:
                self._flow.paragraph(note)
            self._deferred = []

    def _end_heading(self, level: int) -> None:
        words = self._flows.pop().line().rstrip(" ¶")
        if not words:
            return
        self._flow.paragraph(words)
        self._flow.apart = True
        if len(self.headings) < _MOST_HEADINGS:
            self.headings.append((words[:_LONGEST_HEADING], level))


def _children(node: Node) -> Sequence[Node | str]:
    """Return what is read of an element's content, in order."""
    children = node.children or ()
    signs = _FORMULAS.get(node.name)
    if node.name == "msqrt":
        return ["√(", *children, ")"]
    if signs is None:
        return children
    parts = [child for child in children if child.name != "#text"]
    if node.name == "mroot":  # the index stands behind in the tree, before the root on paper
        parts.reverse()
    pieces: list[Node | str] = []
    for number, part in enumerate(parts):
        words = "…" if (found := text_of(part, _SMALL)) is None else found.translate(_INVISIBLE_OPERATORS).strip()
        whole = node.name in ("mtr", "mtable") or _is_whole(part, words, first=not number)
        if words:
            pieces += [signs[min(number, len(signs) - 1)], "" if whole else "(", part, "" if whole else ")"]
    return pieces


def _is_whole(part: Node, words: str, first: bool) -> bool:
    """Return whether a part of a formula needs no brackets. first: it is a base or what is divided."""
    if words[:1] in "([{" and min(map(words.find, ")]}"), key=lambda at: at < 0) == len(words) - 1:
        return True
    for _ in range(_SMALL):
        inner = [child for child in part.children or () if child.name != "#text"]
        if len(inner) != 1:
            break
        part = inner[0]
    number = _NUMBER.fullmatch(words) is not None and (words[0].isdigit() or not first)
    return not inner and (number or words.isalnum() or len(words) == 1)


def _script_of(node: Node) -> str:
    """Return "sup" or "sub" for an element that is raised or lowered, else ""."""
    if node.name in ("sup", "sub"):
        return node.name
    if node.name != "span" or not node.attrs:
        return ""
    found = _SUPER.search(attribute(node, "style"))
    names = [found[1].lower()] if found else classes(node)
    return next((_SCRIPTS[name] for name in names if name in _SCRIPTS), "")


def _level(node: Node) -> int:
    """Return the level of a heading, 0 for all else."""
    if node.name in _HEADINGS:
        return int(node.name[1])
    if node.attrs and attribute(node, "role") == "heading":
        level = attribute(node, "aria-level")
        return int(level) if level in _LEVELS else 2
    return 0


def html_text(markup: str, links: Links | None = None, file: str = "") -> HtmlText:
    return HtmlText(parse(markup), links, file)


def decode_html(data: bytes, name: str) -> tuple[str, str]:
    """Return the text of a page inside another file, and a warning."""
    return decode_text(data, name, declared_in(data))


def read_html(source: Source) -> Raw:
    with source.path.open("rb") as file:
        declared = declared_in(file.read(4096))
    markup, warnings = decode_file(source, declared)
    if breaks_off_in_script(markup):
        warnings.append(f"{source.name} {SCRIPT_LOST}")
    page = html_text(markup)
    title = page.title or next((words for words, level in page.headings if level < 3), "")
    return page.raw("html", "html-5", title, warnings)


def tidy(text: str) -> str:
    """Return a text without blanks at line ends, with at most one blank line in a row."""
    return re.sub(r"\n{3,}", "\n\n", "\n".join(line.rstrip(" \t") for line in text.split("\n"))).strip("\n")
