"""DOCX: word/document.xml and what belongs to it, written as a tree of HTML, page by page where Word left its breaks.

Footnotes stand behind their paragraph, endnotes at the end, page headers and footers once. Comments, tracked deletions
and hidden text are left out and counted."""

from __future__ import annotations

import email
import posixpath
import re
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

from justhtml.dom import Node

from ...errors import DamagedDocumentError, UnknownFormatError
from ..sections import placed, split_sections
from .archive import GuardedZip, elements, parse_xml, resolve
from .docx_styles import Numbering, Styles, is_on, local, read_numbering, read_styles, roman, value
from .html import HtmlText, decode_html
from .html_tree import Builder, attribute, parse, text_of
from .plain_text import numbered
from .source import Raw, Source
from .unread import Unread

_BREAK = "\f"
_MAIN = "word/document.xml"
_RELATIONS, _SETTINGS = "word/_rels/document.xml.rels", "word/settings.xml"
_CORE, _DC_TITLE = "docProps/core.xml", "http://purl.org/dc/elements/1.1/ title"
_LONGEST_REPEATED = 80  # of a cell that spans rows: short ones stand in each of them
_ANY_LIST = "?"
_ALL = 1 << 60  # nodes
_READ = 1 << 62  # one of several versions was
_HEX = re.compile(r"[0-9A-Fa-f]{1,5}")
_HTML = re.compile(r"<(?:!doctype\s+html|html|head|body|p|div)\b", re.IGNORECASE)
_PAGE_NUMBER = re.compile(r"(?:page|seite|p)?[0-9ivxlc]*(?:(?:of|von)[0-9]*)?")
_DECIMAL_ENDNOTES = re.compile(rb"<w:endnotePr>.{0,300}?<w:numFmt w:val=\"decimal\"", re.DOTALL)
_GREEK = dict(zip("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ",
                  "αβχδεφγηιϕκλμνοπθρστυϖωξψζΑΒΧΔΕΦΓΗΙϑΚΛΜΝΟΠΘΡΣΤΥςΩΞΨΖ", strict=True))
_SYMBOLS = {0xA3: "≤", 0xA5: "∞", 0xAE: "→", 0xB0: "°", 0xB1: "±", 0xB3: "≥", 0xB4: "×", 0xB7: "•", 0xB8: "÷",
            0xB9: "≠", 0xBB: "≈", 0xDE: "⇒", 0xE5: "∑", 0xD6: "√"}
_DINGBATS = {0x6F: "☐", 0xA8: "☐", 0x78: "☒", 0xFD: "☒", 0xFE: "☑", 0xFC: "✓", 0xE0: "→"}

_Attributes = dict[str, str]
_Link = tuple[str, str]
_Chunk = Callable[[str], Node | None]


def read_docx(source: Source) -> Raw:
    archive = GuardedZip(source)
    raw = Raw("docx", "docx-3", _title(archive, source), [], laid_out=True)
    page = HtmlText(_read_parts(archive, source, raw))
    raw.unread.add(page.unread)
    text = page.text()
    source.check_characters(len(text))
    parts = [part.strip() for part in text.split(_BREAK)]
    if len(list(filter(None, parts))) > 1:
        sections = parts if parts[-1] else parts[:-1]
    else:
        sections = split_sections(text.replace(_BREAK, ""))
    raw.pages = numbered(sections)
    raw.headings = placed(page.headings, sections)
    return raw


def _read_parts(archive: GuardedZip, source: Source, raw: Raw, nested: bool = False) -> Node:
    """The body, and around it what stands in other parts; what could not be read is a warning of ``raw``."""
    data = archive.read(_MAIN)
    links = _links(archive, source)
    chunks = _Chunks(archive, source, raw, links, nested)
    body = _Body(read_styles(archive, source), read_numbering(archive, source), raw.unread, chunks.tree)
    body.has_pages = not nested
    for kind in ("footnote", "endnote"):
        _notes(archive, source, body, links, kind, raw)
    settings = archive.read(_SETTINGS) if _SETTINGS in archive.names else b""
    body.roman_endnotes = not _DECIMAL_ENDNOTES.search(data) and not _DECIMAL_ENDNOTES.search(settings)
    parse_xml(data, source, body.start, body.end, body.text)
    for note in body.endnotes:
        body.tree.graft(note)
    root = body.tree.root
    solid = _solid(root)
    for node in reversed(_around(archive, source, body, links, "header", raw)):
        if _solid(node) not in solid:
            node.parent = root
            root.children = [node, *(root.children or [])]
    for node in _around(archive, source, body, links, "footer", raw):
        if _solid(node) not in solid:
            body.tree.graft(node)
    raw.unread.comments += _comments(archive, source, links)
    return root


def _solid(node: Node) -> str:
    return "".join(filter(str.isalnum, text_of(node, _ALL) or "")).lower()


@dataclass
class _Paragraph:
    """One that is open. node: its element, from its first words on; list: to which its mark belongs ("": no item)."""

    node: Node | None = None
    level: int | None = None  # of a heading
    list: str = ""
    depth: int = 0
    hidden: bool = False
    drop_cap: bool = False


# large: how far the reading is, in a file that is read as a stream
class _Body:
    """Collects text; a handler for each element that means something, named after it."""

    def __init__(self, styles: Styles, numbering: Numbering, unread: Unread, chunk: _Chunk) -> None:
        self.tree = Builder()
        self.notes: dict[str, dict[str, Node]] = {"footnote": {}, "endnote": {}}
        self.endnotes: list[Node] = []
        self.has_pages = True
        self.roman_endnotes = True
        self._styles, self._numbering, self._unread, self._chunk = styles, numbering, unread, chunk
        self._skip = self._properties = 0  # depth inside something that is not read, inside properties
        self._in_text = self._in_run = False
        self._is_raised = self._run_hidden = False  # the current run
        self._raised: list[str] = []
        self._written_since_break = False  # text after the last page break: Word marks one break twice
        self._drop_cap: Node | None = None  # the paragraph that goes on behind its large first letter
        self._got = 0  # words and pictures so far
        self._paragraphs: list[_Paragraph] = []
        self._outer: list[Builder] = []  # around the boxes that are being read
        self._tables: list[dict[int, str]] = []  # of each the last text of the columns that merge downwards
        self._columns: list[int] = []  # of each, in the current row
        self._behind: list[Node] = []  # text boxes, then notes of the current paragraph
        self._alternatives: list[int] = []  # of each what there was before the one that is being read
        self._numbers: Counter[str] = Counter()

    def beside(self) -> _Body:
        """One for a part beside the main text."""
        body = _Body(self._styles, self._numbering, self._unread, lambda _: None)
        body.has_pages = False
        return body

    def start(self, name: str, attributes: dict[str, str]) -> None:
        if self._skip:
            self._skip += 1
            return
        handler = getattr(self, f"_start_{local(name)}", None)
        if handler is not None:
            handler(attributes)

    def end(self, name: str) -> None:
        if self._skip:
            self._skip -= 1
            return
        handler = getattr(self, f"_end_{local(name)}", None)
        if handler is not None:
            handler()

    def text(self, data: str) -> None:
        if self._in_text and not self._skip:
            self._put(data)

    # -- paragraphs and runs

    def _start_p(self, _: _Attributes) -> None:
        self._paragraphs.append(_Paragraph())

    def _start_pStyle(self, attributes: _Attributes) -> None:
        key = value(attributes)
        if self._paragraphs:
            paragraph = self._paragraphs[-1]
            paragraph.level, paragraph.hidden = self._styles.level(key), self._styles.hidden(key)
            paragraph.list, paragraph.depth = self._styles.numbering(key) or ("", 0)

    def _start_outlineLvl(self, attributes: _Attributes) -> None:
        if self._paragraphs and value(attributes) in set("012345678"):
            self._paragraphs[-1].level = int(value(attributes)) + 1

    def _start_numPr(self, _: _Attributes) -> None:
        if self._paragraphs and not self._in_run:
            paragraph = self._paragraphs[-1]
            paragraph.list = paragraph.list or _ANY_LIST

    def _start_numId(self, attributes: _Attributes) -> None:
        if self._paragraphs:
            self._paragraphs[-1].list = "" if value(attributes) == "0" else value(attributes)

    def _start_ilvl(self, attributes: _Attributes) -> None:
        if self._paragraphs and value(attributes) in set("012345678"):
            self._paragraphs[-1].depth = int(value(attributes))

    def _start_framePr(self, attributes: _Attributes) -> None:
        if self._paragraphs:
            self._paragraphs[-1].drop_cap = value(attributes, "dropCap") in ("drop", "margin")

    def _end_p(self) -> None:
        self._flush_raised()
        paragraph = self._paragraphs.pop()
        if paragraph.node is not None:
            self.tree.here = paragraph.node.parent or self.tree.root
            if self.tree.here.name == "ul":
                self.tree.close("ul")
            if paragraph.drop_cap:
                self._drop_cap = paragraph.node
        self._put_behind()

    def _put_behind(self) -> None:
        """What the paragraph or table just read had beside it: text boxes, then notes."""
        if not self._paragraphs and not self._tables:
            for node in sorted(self._behind, key=lambda node: node.name == "aside"):
                self.tree.graft(node)
            self._behind = []

    def _start_r(self, _: _Attributes) -> None:
        self._in_run, self._is_raised = True, False
        self._run_hidden = bool(self._paragraphs) and self._paragraphs[-1].hidden

    def _end_r(self) -> None:
        self._in_run = self._is_raised = self._run_hidden = False

    def _start_vanish(self, attributes: _Attributes) -> None:
        if self._in_run:  # else it is the mark at the paragraph's end
            self._run_hidden = is_on(attributes)

    def _start_rStyle(self, attributes: _Attributes) -> None:
        if self._in_run and self._styles.hidden(value(attributes)):
            self._run_hidden = True

    def _start_vertAlign(self, attributes: _Attributes) -> None:
        self._is_raised = self._in_run and value(attributes) == "superscript"

    def _start_t(self, _: _Attributes) -> None:
        self._in_text = True

    def _end_t(self) -> None:
        self._in_text = False

    def _put(self, data: str) -> None:
        if self._run_hidden:
            self._unread.hidden += len(data.split())
            return
        self._got += bool(data.strip())
        if self._is_raised:
            self._raised.append(data)
            return
        self._flush_raised()
        self._words(data)

    def _words(self, data: str) -> None:
        if data.strip():
            self._begin()
            self._written_since_break = True
        self.tree.text(data.replace(_BREAK, " "))

    def _begin(self) -> None:
        """The first words of a paragraph: now it is known what it is."""
        if not self._paragraphs or self._paragraphs[-1].node is not None:
            return
        paragraph = self._paragraphs[-1]
        mark = self._numbering.mark(paragraph.list, paragraph.depth).strip() if paragraph.list else ""
        before = (self.tree.here.children or [None])[-1]
        if self._drop_cap is not None:
            self.tree.here, self._drop_cap = self._drop_cap, None
        elif paragraph.level is not None:
            self.tree.open("p", {"role": "heading", "aria-level": str(paragraph.level + 1)})
            self.tree.text(f"{mark} " if mark else "")
        elif paragraph.list:
            if before is not None and before.name == "ul":
                self.tree.here = before
            else:
                self.tree.open("ul")
            self.tree.open("li", {"data-mark": mark})
        else:
            self.tree.open("p")
        paragraph.node = self.tree.here

    def _flush_raised(self) -> None:
        if self._raised:
            text, self._raised = "".join(self._raised), []
            self._begin()
            self._written_since_break = True
            self.tree.element("sup", text)

    # -- single characters and breaks

    def _start_tab(self, _: _Attributes) -> None:
        if self._in_run:
            self._put(" ")

    _start_ptab = _start_tab

    def _start_noBreakHyphen(self, _: _Attributes) -> None:
        self._put("-")

    def _start_br(self, attributes: _Attributes) -> None:
        if value(attributes, "type") == "page" and not self._tables and not self._outer:
            self._break_page()
        elif self._paragraphs and self._paragraphs[-1].level is not None:
            self._put(" ")
        else:
            self._flush_raised()
            self.tree.element("br")

    def _start_cr(self, _: _Attributes) -> None:
        self._start_br({})

    def _start_lastRenderedPageBreak(self, _: _Attributes) -> None:
        if not self._tables and not self._outer and self._written_since_break:
            self._break_page()

    def _start_pageBreakBefore(self, attributes: _Attributes) -> None:
        if is_on(attributes):
            self._start_lastRenderedPageBreak(attributes)

    def _break_page(self) -> None:
        self._flush_raised()
        if self.has_pages:
            self.tree.open("wbr", {"class": "page-break"})
            self.tree.close("wbr")
        self._written_since_break = False

    def _start_sym(self, attributes: _Attributes) -> None:
        written, font = value(attributes, "char"), value(attributes, "font").lower()
        code = int(written, 16) if _HEX.fullmatch(written) else 0
        low = code & 0xFF if code >= 0xF000 else code
        if font == "symbol":
            self._put(_SYMBOLS.get(low) or _GREEK.get(chr(low)) or (chr(low) if 32 < low < 127 else ""))
        elif font.startswith("wingdings"):
            self._put(_DINGBATS.get(low, ""))
        elif 32 < code < 0xD800:
            self._put(chr(code))

    def _start_sup(self, _: _Attributes) -> None:  # of formulas, as the next two
        self._put("^")

    def _start_sub(self, _: _Attributes) -> None:
        self._put("_")

    def _start_den(self, _: _Attributes) -> None:
        self._put("/")

    # -- notes, and what is not read

    def _start_footnoteReference(self, attributes: _Attributes) -> None:
        self._note("footnote", attributes)

    def _start_endnoteReference(self, attributes: _Attributes) -> None:
        self._note("endnote", attributes)

    def _note(self, kind: str, attributes: _Attributes) -> None:
        self._flush_raised()
        self.tree.open("a", {"role": "doc-noteref", "href": "#"})
        self.tree.close("a")
        mark = "*"
        if not value(attributes, "customMarkFollows") or not is_on({"val": value(attributes, "customMarkFollows")}):
            self._numbers[kind] += 1
            number = self._numbers[kind]
            mark = roman(number) if kind == "endnote" and self.roman_endnotes and number < 4000 else str(number)
        note = self.notes[kind].pop(value(attributes, "id"), None)
        if note is not None:
            note.attrs = {"role": "doc-footnote", "data-mark": mark}
            (self._behind if kind == "footnote" else self.endnotes).append(note)

    def _start_del(self, attributes: _Attributes) -> None:
        if self._properties:  # of a paragraph's mark
            return
        self._unread.deletions += 1
        self._skip = 1

    def _start_moveFrom(self, attributes: _Attributes) -> None:
        if not self._properties:  # it stands where it was moved to
            self._skip = 1

    def _start_rPr(self, _: _Attributes) -> None:
        self._properties += 1

    def _end_rPr(self) -> None:
        self._properties -= 1

    _start_pPr = _start_trPr = _start_tcPr = _start_rPr
    _end_pPr = _end_trPr = _end_tcPr = _end_rPr

    def _start_pPrChange(self, _: _Attributes) -> None:  # how it looked before
        self._skip = 1

    _start_rPrChange = _start_sectPrChange = _start_pPrChange
    _start_tblPrChange = _start_tcPrChange = _start_trPrChange = _start_pPrChange

    def _start_blip(self, _: _Attributes) -> None:
        self._unread.pictures += 1
        self._got += 1

    _start_imagedata = _start_chart = _start_relIds = _start_blip

    # -- one of several versions, text boxes, embedded parts

    def _start_AlternateContent(self, _: _Attributes) -> None:
        self._alternatives.append(-1)

    def _start_Choice(self, _: _Attributes) -> None:
        if self._alternatives and self._alternatives[-1] == _READ:
            self._skip = 1
        elif self._alternatives:
            self._alternatives[-1] = self._got

    def _end_Choice(self) -> None:
        if self._alternatives:
            self._alternatives[-1] = _READ if self._got > self._alternatives[-1] else -1

    _start_Fallback, _end_Fallback = _start_Choice, _end_Choice

    def _end_AlternateContent(self) -> None:
        self._alternatives.pop()

    def _start_txbxContent(self, _: _Attributes) -> None:
        self._flush_raised()
        self._outer.append(self.tree)
        self.tree = Builder()

    def _end_txbxContent(self) -> None:
        self._behind.append(self.tree.root)
        self.tree = self._outer.pop()

    def _start_altChunk(self, attributes: _Attributes) -> None:
        if (part := self._chunk(value(attributes, "id"))) is not None:
            self._written_since_break = True
            self.tree.graft(part)

    # -- tables

    def _start_tbl(self, _: _Attributes) -> None:
        self.tree.open("table")
        self._tables.append({})
        self._columns.append(0)

    def _end_tbl(self) -> None:
        self.tree.close("table")
        self._tables.pop()
        self._columns.pop()
        self._put_behind()

    def _start_tr(self, _: _Attributes) -> None:
        if self._tables:
            self.tree.open("tr")
            self._columns[-1] = 0

    def _end_tr(self) -> None:
        self.tree.close("tr")

    def _start_tc(self, _: _Attributes) -> None:
        self.tree.open("td")

    def _start_gridSpan(self, attributes: _Attributes) -> None:
        if self._tables and value(attributes).isascii() and value(attributes).isdigit():
            self.tree.here.attrs = {"colspan": value(attributes)[:3]}

    def _start_vMerge(self, attributes: _Attributes) -> None:
        if self._tables:
            self.tree.here.attrs = {**(self.tree.here.attrs or {}), "data-merge": value(attributes) or "continue"}

    def _end_tc(self) -> None:
        cell = self.tree.here
        self.tree.close("td")
        if not self._tables or cell.name != "td":
            return
        above, column, merge = self._tables[-1], self._columns[-1], attribute(cell, "data-merge")
        words = " ".join((text_of(cell, _ALL) or "").split())
        if merge == "continue" and not words and above.get(column):
            self.tree.here = cell
            self.tree.text(above[column])
            self.tree.close("td")
        elif merge:
            above[column] = words if len(words) <= _LONGEST_REPEATED else ""
        self._columns[-1] += int(attribute(cell, "colspan") or 1)


class _Chunks:
    """Documents of other kinds that stand inside this one (w:altChunk)."""

    def __init__(self, archive: GuardedZip, source: Source, raw: Raw, links: dict[str, _Link], nested: bool) -> None:
        self._archive, self._source, self._raw, self._links, self._nested = archive, source, raw, links, nested

    def tree(self, key: str) -> Node | None:
        """Return it as a tree; None, and a warning, where it cannot be read."""
        _, name = self._links.get(key, ("", ""))
        try:
            found = self._read(name) if name in self._archive.names else None
        except (DamagedDocumentError, UnknownFormatError):
            found = None
        if found is None:
            self._raw.warnings.append(f"An embedded part ({name or key or 'without a name'}) could not be read: its "
                                      "text is missing.")
        return found

    def _read(self, name: str) -> Node | None:
        data = self._archive.read(name)
        if data.startswith(b"PK"):
            inner = None if self._nested else GuardedZip(self._source, data)
            return None if inner is None else _read_parts(inner, self._source, self._raw, nested=True)
        if data.startswith(b"{\\rtf"):
            return None
        if data[:200].lstrip().lower().startswith(b"mime-version"):
            parts = email.message_from_bytes(data).walk()
            pages = [part.get_payload(decode=True) for part in parts if part.get_content_type() == "text/html"]
            if not pages or not isinstance(pages[0], bytes):
                return None
            data = pages[0]
        markup, _ = decode_html(data, self._source.name)
        if _HTML.search(markup[:4096]) or name.lower().endswith(("htm", "html")):
            return parse(markup)
        plain = Builder()
        plain.element("pre", markup.strip())
        return plain.root


def _links(archive: GuardedZip, source: Source) -> dict[str, _Link]:
    """Of word/document.xml: id -> kind of what it leads to, name of the part ("": outside the file)."""
    links: dict[str, _Link] = {}
    for name, attributes, _ in elements(archive.read(_RELATIONS), source) if _RELATIONS in archive.names else ():
        if local(name) == "Relationship" and attributes.get("TargetMode") != "External":
            target = attributes.get("Target", "")
            part = resolve("", target.lstrip("/")) if target.startswith("/") else resolve("word", target)
            links[attributes.get("Id", "")] = (posixpath.basename(attributes.get("Type", "")), part)
    return links


def _parts(archive: GuardedZip, links: dict[str, _Link], kind: str) -> list[str]:
    return list(dict.fromkeys(name for found, name in links.values() if found == kind and name in archive.names))


def _notes(archive: GuardedZip, source: Source, body: _Body, links: dict[str, _Link], kind: str, raw: Raw) -> None:
    """Every footnote or endnote as one line."""
    reader = body.beside()
    current = ""

    def start(name: str, attributes: dict[str, str]) -> None:
        nonlocal current
        if local(name) == kind:
            current = value(attributes, "id") if value(attributes, "type") in ("", "normal") else ""
            reader.tree = Builder("aside")
        else:
            reader.start(name, attributes)

    def end(name: str) -> None:
        if local(name) != kind:
            reader.end(name)
        elif current:
            body.notes[kind][current] = reader.tree.root

    for part in _parts(archive, links, f"{kind}s"):
        try:
            parse_xml(archive.read(part), source, start, end, reader.text)
        except DamagedDocumentError:
            raw.warnings.append(f"The {kind}s of {source.name} are damaged: some or all of them are missing.")


def _around(
    archive: GuardedZip, source: Source, body: _Body, links: dict[str, _Link], kind: str, raw: Raw
) -> list[Node]:
    """All page headers or footers, each once; page numbers are none."""
    found: dict[str, Node] = {}
    for part in _parts(archive, links, kind):
        reader = body.beside()
        try:
            parse_xml(archive.read(part), source, reader.start, reader.end, reader.text)
        except DamagedDocumentError:
            raw.warnings.append(f"A page {kind} of {source.name} is damaged and could not be read.")
        solid = _solid(reader.tree.root)
        if not _PAGE_NUMBER.fullmatch(solid):
            found.setdefault(solid, reader.tree.root)
    return list(found.values())


def _comments(archive: GuardedZip, source: Source, links: dict[str, _Link]) -> int:
    return sum(local(name) == "comment" for part in _parts(archive, links, "comments")
               for name, _, _ in elements(archive.read(part), source))


def _title(archive: GuardedZip, source: Source) -> str:
    found = elements(archive.read(_CORE), source) if _CORE in archive.names else ()
    return next((words.strip() for name, _, words in found if name == _DC_TITLE), "")
