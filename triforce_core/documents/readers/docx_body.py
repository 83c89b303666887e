"""The words of one part of a DOCX, written as a tree of HTML."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from xml.etree.ElementTree import Element

from justhtml.dom import Node

from .docx_formulas import formula
from .docx_styles import OFF, Numbering, Style, Styles, is_fixed, is_on, value
from .html_tree import Builder, numeral, text_of, whole_number
from .source import Raw

BREAK = "\f"
ALL = 1 << 60  # nodes
_LONGEST_REPEATED = 80  # characters of a cell that spans rows: short ones stand in each of them
_ANY_LIST = "?"
_LEVELS = frozenset("012345678")
_HEX = re.compile(r"[0-9A-Fa-f]{1,5}")
_GREEK = dict(zip("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ",
                  "αβχδεφγηιϕκλμνοπθρστυϖωξψζΑΒΧΔΕΦΓΗΙϑΚΛΜΝΟΠΘΡΣΤΥςΩΞΨΖ", strict=True))
_SYMBOLS = {0xA3: "≤", 0xA5: "∞", 0xAE: "→", 0xB0: "°", 0xB1: "±", 0xB3: "≥", 0xB4: "×", 0xB7: "•", 0xB8: "÷",
            0xB9: "≠", 0xBB: "≈", 0xDE: "⇒", 0xE5: "∑", 0xD6: "√"}
_DINGBATS = {0x6F: "☐", 0xA8: "☐", 0x78: "☒", 0xFD: "☒", 0xFE: "☑", 0xFC: "✓", 0xE0: "→"}
_CHARACTERS = {"tab": "\t", "ptab": "\t", "noBreakHyphen": "-"}  # elements that stand for them
_SCRIPTS = {"superscript": "sup", "subscript": "sub"}
_LONGEST_CODE = 200  # characters of a line that nothing but its font says to be code
_INDENT = " " * 4  # a tab in code
_PICTURES = frozenset("blip imagedata chart relIds".split())
# Properties are looked up where they are needed; text that was moved stands where it was moved to.
_UNREAD = frozenset("pPr rPr trPr tcPr tblPr sectPr moveFrom".split())


def _is_typed(paragraph: Element, styles: Styles) -> bool:
    """Return whether all words of a short paragraph are set in a font of fixed pitch, and other paragraphs are not."""
    size = 0
    for run in () if styles.typed else paragraph.iter("r"):
        words = sum(len(text.text or "") for text in run.findall("t"))
        if words and not _font_is_fixed(run, styles):
            return False
        size += words
    return 0 < size <= _LONGEST_CODE


def _font_is_fixed(run: Element, styles: Styles) -> bool:
    font = run.find("rPr/rFonts")
    return is_fixed(font) if font is not None else styles.resolved(value(run, "rPr/rStyle")).fixed


@dataclass
class _Paragraph:
    """One that is open. style: its style's, with its own properties; node: its element, from its first words on;
    runs_on: the mark at its end was deleted, so that the next goes on with it."""

    style: Style = field(default_factory=Style)
    drop_cap: bool = False
    runs_on: bool = False
    node: Node | None = None


@dataclass
class _Table:
    """One that is open. above: the last text of each column whose cells merge downwards; column: the current one."""

    above: dict[int, str] = field(default_factory=dict)
    column: int = 0


class Writer:
    """Writes the elements of one part as a tree of HTML, by the table ``_WRITE``; the content of elements that it does
    not name is written as if it stood in their place."""

    def __init__(self, styles: Styles, numbering: Numbering, raw: Raw, embedded: Callable[[str], Node | None]) -> None:
        self.tree = Builder()
        self.notes: dict[str, dict[str, Node]] = {"footnote": {}, "endnote": {}}
        self.endnotes: list[Node] = []
        self.has_pages, self.roman_endnotes = False, True
        self._styles, self._numbering, self._unread, self._embedded = styles, numbering, raw.unread, embedded
        self._script, self._hidden = "", False  # the current run: "sup", "sub" or ""
        self._run_on: _Paragraph | None = None  # whose end was deleted
        self._unmarked: Node | None = None  # a note whose mark follows as text
        self._written_since_break = False  # text after the last page break: Word marks one break twice
        self._drop_cap: Node | None = None  # the paragraph that goes on behind its large first letter
        self._got = 0  # words and pictures so far
        self._paragraphs: list[_Paragraph] = []
        self._tables: list[_Table] = []
        self._boxes = 0  # text boxes around what is read
        self._behind: list[Node] = []  # text boxes and notes of the current paragraph
        self._numbers: Counter[str] = Counter()

    def children(self, element: Element) -> None:
        for child in element:
            self.write(child)

    def write(self, element: Element) -> None:
        tag = element.tag
        write = _WRITE.get(tag)
        if write is not None:
            write(self, element)
            return
        if tag in _UNREAD:
            return
        if tag in _CHARACTERS:
            self._put(_CHARACTERS[tag])
        elif tag in _PICTURES:
            self._unread.pictures += 1
            self._got += 1
        self.children(element)

    # -- paragraphs and runs

    def _paragraph(self, element: Element) -> None:
        properties = element.find("pPr")
        paragraph = _Paragraph() if properties is None else self._opened(properties)
        if not paragraph.style.code and _is_typed(element, self._styles):
            paragraph.style = replace(paragraph.style, code=True)
        if self._run_on is not None and self._run_on.node is not None:
            paragraph = replace(self._run_on, runs_on=paragraph.runs_on)
            self.tree.here = self._run_on.node
        self._run_on = paragraph if paragraph.runs_on else None
        self._paragraphs.append(paragraph)
        if properties is not None and is_on(properties, "pageBreakBefore"):
            self._rendered_break(element)
        self.children(element)
        self._paragraphs.pop()
        if paragraph.node is not None:
            self.tree.here = paragraph.node.parent or self.tree.root
            if self.tree.here.name == "ul":
                self.tree.close("ul")
            if paragraph.drop_cap:
                self._drop_cap = paragraph.node
        elif (last := self._last()) is not None and last.name == "pre":
            (last.children or [])[-1].data += "\n"
        self._put_behind()

    def _opened(self, properties: Element) -> _Paragraph:
        """Return a paragraph with these properties, which take precedence over those of its style."""
        style = self._styles.resolved(value(properties, "pStyle"))
        if (level := value(properties, "outlineLvl")) in _LEVELS:
            style = replace(style, level=int(level) + 1)
        if (item := properties.find("numPr")) is not None:
            number, depth = value(item, "numId"), value(item, "ilvl")
            style = replace(style, list="" if number == "0" else number or style.list or _ANY_LIST,
                            depth=int(depth) if depth in _LEVELS else style.depth)
        return _Paragraph(style, value(properties, "framePr", "dropCap") in ("drop", "margin"),
                          any(properties.find(f"rPr/{tag}") is not None for tag in ("del", "moveFrom")))

    def _put_behind(self) -> None:
        """Write what the paragraph or table just read had beside it: text boxes, then notes."""
        if not self._paragraphs and not self._tables:
            for node in sorted(self._behind, key=lambda node: node.name == "aside"):
                self.tree.graft(node)
            self._behind = []

    def _run(self, element: Element) -> None:
        outer = self._script, self._hidden
        self._script, self._hidden = "", bool(self._paragraphs) and self._paragraphs[-1].style.hidden
        for properties in element.findall("rPr"):
            if style := value(properties, "rStyle"):
                resolved = self._styles.resolved(style)
                self._hidden = self._hidden or resolved.hidden
                self._script = _SCRIPTS.get(resolved.script, "")
            if properties.find("vanish") is not None:  # also one that is switched off
                self._hidden = is_on(properties, "vanish")
            if script := value(properties, "vertAlign"):
                self._script = _SCRIPTS.get(script, "")
        self.children(element)
        self._script, self._hidden = outer

    def _text(self, element: Element) -> None:
        self._put(element.text or "")

    def _put(self, data: str) -> None:
        if not data:
            return
        if self._hidden:
            self._unread.hidden += len(data.split())
            return
        if self._unmarked is not None:
            self._unmarked.attrs = {**(self._unmarked.attrs or {}), "data-mark": data.strip() or "*"}
            self._unmarked = None
            return
        self._got += bool(data.strip())
        code = bool(self._paragraphs) and self._paragraphs[-1].style.code
        if data.strip() or self._script or code:
            self._begin()
            self._written_since_break = True
        last = self._last()
        if not self._script:
            self.tree.text(data.replace(BREAK, " ").replace("\t", _INDENT if code else " "))
        elif last is not None and last.name == self._script:  # one number in several runs
            (last.children or [])[0].data += data
        else:
            self.tree.element(self._script, data)

    def _last(self) -> Node | None:
        """Return what was written last in the open element."""
        return (self.tree.here.children or [None])[-1]

    def _begin(self) -> None:
        """Open the paragraph's element before its first words: now it is known what it is."""
        if not self._paragraphs or self._paragraphs[-1].node is not None:
            return
        paragraph = self._paragraphs[-1]
        style = paragraph.style
        mark = self._numbering.mark(style.list, style.depth) if style.list else ""
        before = self._last()
        if self._drop_cap is not None:
            self.tree.here, self._drop_cap = self._drop_cap, None
        elif style.code and style.level is None and not style.list:
            if before is not None and before.name == "pre":
                self.tree.here = before
                self.tree.text("\n")
            else:
                self.tree.open("pre")
        elif style.level is not None:
            self.tree.open("p", {"role": "heading", "aria-level": str(style.level + 1)})
            self.tree.text(f"{mark} " if mark else "")
        elif style.list:
            if before is not None and before.name == "ul":
                self.tree.here = before
            else:
                self.tree.open("ul")
            self.tree.open("li", {"data-mark": mark})
        else:
            self.tree.open("p")
        paragraph.node = self.tree.here

    # -- formulas and readings

    def _formulas(self, element: Element) -> None:
        for found in element.iter("oMath"):
            self._formula(found, block=True)

    def _formula(self, element: Element, block: bool = False) -> None:
        if self._hidden:
            return
        self._begin()
        self._got += 1
        self._written_since_break = True
        self.tree.graft(formula(element, block))

    def _ruby(self, element: Element) -> None:
        for base in element.findall("rubyBase"):
            self.children(base)
        self.tree.open("rt")
        reading = self.tree.here
        for found in element.findall("rt"):
            self.children(found)
        self.tree.here = reading.parent or self.tree.root

    # -- breaks and symbols

    def _line_break(self, element: Element) -> None:
        if element.get("type") == "page" and not self._tables and not self._boxes:
            self._break_page()
        elif self._paragraphs and self._paragraphs[-1].style.level is not None:
            self._put(" ")
        else:
            self.tree.element("br")

    def _rendered_break(self, _: Element) -> None:
        if not self._tables and not self._boxes and self._written_since_break:
            self._break_page()

    def _break_page(self) -> None:
        if self.has_pages:
            self.tree.open("wbr", {"class": "page-break"})
            self.tree.close("wbr")
        self._written_since_break = False

    def _symbol(self, element: Element) -> None:
        written, font = element.get("char", ""), element.get("font", "").lower()
        code = int(written, 16) if _HEX.fullmatch(written) else 0
        low = code & 0xFF if code >= 0xF000 else code
        if font == "symbol":
            self._put(_SYMBOLS.get(low) or _GREEK.get(chr(low)) or (chr(low) if 32 < low < 127 else ""))
        elif font.startswith("wingdings"):
            self._put(_DINGBATS.get(low, ""))
        elif 32 < code < 0xD800:
            self._put(chr(code))

    # -- notes, deletions, one of several versions, text boxes, embedded parts

    def _note(self, element: Element) -> None:
        self.tree.open("a", {"role": "doc-noteref", "href": "#"})
        self.tree.close("a")
        kind, mark = element.tag.removesuffix("Reference"), "*"
        if element.get("customMarkFollows", "off") in OFF:
            self._numbers[kind] += 1
            form = "lowerRoman" if kind == "endnote" and self.roman_endnotes else "decimal"
            mark = numeral(self._numbers[kind], form)
        note = self.notes[kind].pop(element.get("id", ""), None)
        if note is not None:
            self._unmarked = note if mark == "*" else None
            note.attrs = {"role": "doc-footnote", "data-mark": mark}
            (self._behind if kind == "footnote" else self.endnotes).append(note)

    def _deletion(self, _: Element) -> None:
        self._unread.deletions += 1

    def _alternatives(self, element: Element) -> None:
        """Write the first version that holds words or pictures."""
        before = self._got
        for version in element:
            if self._got == before:
                self.write(version)

    def _box(self, element: Element) -> None:
        outer, self.tree = self.tree, Builder()
        self._hidden, self._script, self._run_on = False, "", None
        self._boxes += 1
        self.children(element)
        self._boxes -= 1
        self._run_on = None
        self._behind.append(self.tree.root)
        self.tree, self._drop_cap = outer, None

    def _embed(self, element: Element) -> None:
        if (part := self._embedded(element.get("id", ""))) is not None:
            self._written_since_break = True
            self.tree.graft(part)

    # -- tables

    def _table(self, element: Element) -> None:
        self.tree.open("table")
        self._tables.append(_Table())
        self._drop_cap = self._run_on = None
        self.children(element)
        self._tables.pop()
        self.tree.close("table")
        self._put_behind()

    def _row(self, element: Element) -> None:
        if self._tables:
            self._tables[-1].column = 0
        self.tree.open("tr")
        self.children(element)
        self.tree.close("tr")

    def _cell(self, element: Element) -> None:
        properties = element.find("tcPr")
        columns = 1 if properties is None else whole_number(value(properties, "gridSpan"), 1) or 1
        merge = None if properties is None else properties.find("vMerge")
        self.tree.open("td", {"colspan": str(columns)})
        cell = self.tree.here
        self.children(element)
        self.tree.here, self._run_on = cell, None
        if self._tables:
            table = self._tables[-1]
            if merge is not None:
                self._merge(table, cell, begins=value(merge) not in ("", "continue"))
            table.column += columns
        self.tree.close("td")

    def _merge(self, table: _Table, cell: Node, begins: bool) -> None:
        """Repeat the short text of a cell in those below that continue it."""
        words = " ".join((text_of(cell, ALL) or "").split())
        above = table.above.get(table.column)
        if above and not words and not begins:
            self.tree.text(above)
        else:
            table.above[table.column] = words if len(words) <= _LONGEST_REPEATED else ""


_WRITE: dict[str, Callable[[Writer, Element], None]] = {
    "p": Writer._paragraph, "r": Writer._run, "t": Writer._text, "br": Writer._line_break,
    "cr": Writer._line_break, "lastRenderedPageBreak": Writer._rendered_break, "sym": Writer._symbol,
    "footnoteReference": Writer._note, "endnoteReference": Writer._note, "del": Writer._deletion,
    "AlternateContent": Writer._alternatives, "txbxContent": Writer._box, "altChunk": Writer._embed,
    "tbl": Writer._table, "tr": Writer._row, "tc": Writer._cell, "ruby": Writer._ruby,
    "oMath": Writer._formula, "oMathPara": Writer._formulas,
}  # fmt: skip
