"""DOCX: word/document.xml and what belongs to it, page by page where Word left its page breaks.

Footnotes stand behind their paragraph, endnotes at the end, page headers and footers once. Comments, tracked deletions
and hidden text are left out and counted."""

from __future__ import annotations

import email
import posixpath
import re
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

from ...errors import DamagedDocumentError, UnknownFormatError
from ..sections import placed, split_sections
from .archive import GuardedZip, parse_xml, resolve
from .docx_styles import Numbering, Styles, is_on, local, read_numbering, read_styles, roman, value
from .flow import LINE, PARAGRAPH, Flow
from .html import decode_html, html_text
from .plain_text import numbered
from .source import Raw, Source
from .superscripts import raised_text
from .tables import Table
from .unread import Unread

_BREAK = "\f"
_MAIN = "word/document.xml"
_RELATIONS, _SETTINGS = "word/_rels/document.xml.rels", "word/settings.xml"
_MOST_HEADINGS = 20_000
_LONGEST_REPEATED = 80  # of a cell that spans rows: short ones stand in each of them
_ANY_LIST = "?"
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
_Chunk = Callable[[str], tuple[str, list[tuple[str, int]]]]


def read_docx(source: Source) -> Raw:
    archive = GuardedZip(source)
    raw = Raw("docx", "docx-2", _title(archive, source), [])
    body = _read_parts(archive, source, raw)
    text = body.flow.text()
    source.check_characters(len(text))
    parts = [part.strip("\n") for part in text.split(_BREAK)]
    if len([part for part in parts if part.strip()]) > 1:
        sections = parts[:-1] if not parts[-1].strip() else parts
    else:
        sections = split_sections(text.replace(_BREAK, ""))
    raw.pages = numbered(sections)
    raw.headings = placed(body.headings, sections)
    return raw


def _read_parts(archive: GuardedZip, source: Source, raw: Raw, nested: bool = False) -> _Body:
    """The body, and around it what stands in other parts; what could not be read is a warning of ``raw``."""
    data = archive.read(_MAIN)
    links = _links(archive, source)
    chunks = _Chunks(archive, source, raw, links, nested)
    body = _Body(read_styles(archive, source), read_numbering(archive, source), raw.unread, chunks.text)
    for kind in ("footnote", "endnote"):
        _notes(archive, source, body, links, kind, raw)
    settings = archive.read(_SETTINGS) if _SETTINGS in archive.names else b""
    body.roman_endnotes = not _DECIMAL_ENDNOTES.search(data) and not _DECIMAL_ENDNOTES.search(settings)
    parse_xml(data, source, body.start, body.end, body.text)
    for note in body.endnotes:
        body.flow.paragraph(note)
    solid = _solid(body.flow.text())
    for text in reversed(_around(archive, source, body, links, "header", raw)):
        if _solid(text) not in solid:
            body.flow.pieces[:0] = [text, "\n\n"]
    for text in _around(archive, source, body, links, "footer", raw):
        if _solid(text) not in solid:
            body.flow.paragraph(text)
    raw.unread.comments += _comments(archive, source, links)
    return body


def _solid(text: str) -> str:
    return "".join(filter(str.isalnum, text)).lower()


@dataclass
class _Paragraph:
    """One that is open. at: how many pieces its flow held before; list: to which its mark belongs ("": no item)."""

    flow: Flow
    at: int
    level: int | None = None  # of a heading
    list: str = ""
    depth: int = 0
    hidden: bool = False
    drop_cap: bool = False
    begun: bool = False


@dataclass
class _Cell:
    columns: int = 1
    merge: str = ""  # "restart", "continue": with the cells below or above


# large: how far the reading is, in a file that is read as a stream
class _Body:
    """Collects text; a handler for each element that means something, named after it."""

    def __init__(self, styles: Styles, numbering: Numbering, unread: Unread, chunk: _Chunk) -> None:
        self.flow = Flow()
        self.headings: list[tuple[str, int]] = []
        self.notes: dict[str, dict[str, str]] = {"footnote": {}, "endnote": {}}
        self.endnotes: list[str] = []
        self.roman_endnotes = True
        self._styles, self._numbering, self._unread, self._chunk = styles, numbering, unread, chunk
        self._skip = self._properties = 0  # depth inside something that is not read, inside properties
        self._in_text = self._in_run = False
        self._is_raised = self._run_hidden = False  # the current run
        self._raised: list[str] = []
        self._written_since_break = False  # text after the last page break: Word marks one break twice
        self._drop_cap = False
        self._got = 0  # words and pictures so far
        self._paragraphs: list[_Paragraph] = []
        self._outer: list[Flow] = []  # around the cells and boxes that are being read
        self._tables: list[Table] = []
        self._cells: list[_Cell] = []
        self._above: list[dict[int, str]] = []  # of each table the last text of the columns that merge downwards
        self._boxes: list[str] = []  # text boxes of the current paragraph
        self._behind: list[str] = []  # notes of the current paragraph
        self._alternatives: list[int] = []  # of each what there was before the one that is being read
        self._numbers: Counter[str] = Counter()

    def beside(self) -> _Body:
        """One for a part beside the main text."""
        return _Body(self._styles, self._numbering, self._unread, lambda _: ("", []))

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
        self._paragraphs.append(_Paragraph(self.flow, len(self.flow.pieces)))

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
        written = "".join(paragraph.flow.pieces[paragraph.at :]).replace(_BREAK, " ")
        if paragraph.level is not None and written.strip():
            self.flow.apart = True
            if len(self.headings) < _MOST_HEADINGS:
                self.headings.append((" ".join(written.split())[:300], paragraph.level))
        if paragraph.drop_cap and written.strip():
            self._drop_cap = True
        elif written.strip():
            self.flow.separate(LINE if paragraph.list else PARAGRAPH)
        if not self._paragraphs and not self._tables:
            self._put_behind()

    def _put_behind(self) -> None:
        """What the paragraph or table just read had beside it: text boxes, then notes."""
        for text in (*self._boxes, *self._behind):
            self.flow.paragraph(text)
        self._boxes, self._behind = [], []

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
        self.flow.words(data.replace(_BREAK, " "))

    def _begin(self) -> None:
        """The first words of a paragraph: now its mark is due, and a blank line before it."""
        if not self._paragraphs or self._paragraphs[-1].begun:
            return
        paragraph = self._paragraphs[-1]
        paragraph.begun = True
        if self._drop_cap:  # the paragraph goes on behind its large first letter
            self._drop_cap = False
        elif paragraph.list:
            self.flow.separate(LINE)
            self.flow.prefix = self._numbering.mark(paragraph.list, paragraph.depth)
        else:
            self.flow.separate(PARAGRAPH)

    def _flush_raised(self) -> None:
        if self._raised:
            text, self._raised = "".join(self._raised), []
            raised = raised_text(text.strip(), self.flow.tail())
            if raised == "":
                self.flow.drop()
            else:
                self._words(text if raised is None else raised)

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
            self.flow.line_break()

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
        self.flow.page_break()
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
        self.flow.drop()
        mark = "*"
        if not value(attributes, "customMarkFollows") or not is_on({"val": value(attributes, "customMarkFollows")}):
            self._numbers[kind] += 1
            number = self._numbers[kind]
            mark = roman(number) if kind == "endnote" and self.roman_endnotes and number < 4000 else str(number)
        words = self.notes[kind].pop(value(attributes, "id"), "")
        if words:
            (self._behind if kind == "footnote" else self.endnotes).append(f"[{mark}] {words}")

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
        self._outer.append(self.flow)
        self.flow = Flow()

    def _end_txbxContent(self) -> None:
        text, self.flow = self.flow.text(), self._outer.pop()
        if text.strip():
            self._boxes.append(text)

    def _start_altChunk(self, attributes: _Attributes) -> None:
        text, headings = self._chunk(value(attributes, "id"))
        self.headings += headings
        if text.strip():
            self._written_since_break = True
            self.flow.paragraph(text)

    # -- tables

    def _start_tbl(self, _: _Attributes) -> None:
        self.flow.separate(PARAGRAPH)
        self._tables.append(Table())
        self._above.append({})

    def _end_tbl(self) -> None:
        self._tables.pop()
        self._above.pop()
        self.flow.separate(PARAGRAPH)
        self.flow.apart = True  # where it stands in the cell of another
        if not self._paragraphs and not self._tables:
            self._put_behind()

    def _start_tc(self, _: _Attributes) -> None:
        self._outer.append(self.flow)
        self.flow = Flow()
        self._cells.append(_Cell())

    def _start_gridSpan(self, attributes: _Attributes) -> None:
        if self._cells and value(attributes).isascii() and value(attributes).isdigit():
            self._cells[-1].columns = int(value(attributes)[:3])

    def _start_vMerge(self, attributes: _Attributes) -> None:
        if self._cells:
            self._cells[-1].merge = value(attributes) or "continue"

    def _end_tc(self) -> None:
        flow, self.flow, cell = self.flow, self._outer.pop(), self._cells.pop()
        if not self._tables:
            return
        table, above = self._tables[-1], self._above[-1]
        column = sum(columns for _, _, columns in table.row)
        if cell.merge == "continue" and not flow.pieces and above.get(column):
            flow.put(above[column])
        elif cell.merge:
            above[column] = flow.line() if len(flow.text()) <= _LONGEST_REPEATED else ""
        table.add(flow, columns=cell.columns)

    def _end_tr(self) -> None:
        if self._tables:
            self._tables[-1].end_row(self.flow)


class _Chunks:
    """Documents of other kinds that stand inside this one (w:altChunk)."""

    def __init__(self, archive: GuardedZip, source: Source, raw: Raw, links: dict[str, _Link], nested: bool) -> None:
        self._archive, self._source, self._raw, self._links, self._nested = archive, source, raw, links, nested

    def text(self, key: str) -> tuple[str, list[tuple[str, int]]]:
        """Its text and headings; nothing, and a warning, where it cannot be read."""
        _, name = self._links.get(key, ("", ""))
        try:
            found = self._read(name) if name in self._archive.names else None
        except (DamagedDocumentError, UnknownFormatError):
            found = None
        if found is None:
            self._raw.warnings.append(f"An embedded part ({name or key or 'without a name'}) could not be read: its "
                                      "text is missing.")
        return found or ("", [])

    def _read(self, name: str) -> tuple[str, list[tuple[str, int]]] | None:
        data = self._archive.read(name)
        if data.startswith(b"PK"):
            if self._nested:
                return None
            body = _read_parts(GuardedZip(self._source, data), self._source, self._raw, nested=True)
            return body.flow.text().replace(_BREAK, "\n\n"), body.headings
        if data.startswith(b"{\\rtf"):
            return None
        if data[:200].lstrip().lower().startswith(b"mime-version"):
            parts = email.message_from_bytes(data).walk()
            pages = [part.get_payload(decode=True) for part in parts if part.get_content_type() == "text/html"]
            if not pages or not isinstance(pages[0], bytes):
                return None
            data = pages[0]
        markup, _ = decode_html(data, self._source.name)
        if not _HTML.search(markup[:4096]) and not name.lower().endswith(("htm", "html")):
            return markup.strip(), []
        page = html_text(markup)
        self._raw.unread.add(page.unread)
        return page.text(), page.headings


def _links(archive: GuardedZip, source: Source) -> dict[str, _Link]:
    """Of word/document.xml: id -> kind of what it leads to, name of the part ("": outside the file)."""
    links: dict[str, _Link] = {}

    def start(name: str, attributes: dict[str, str]) -> None:
        if local(name) == "Relationship" and attributes.get("TargetMode") != "External":
            target = attributes.get("Target", "")
            part = resolve("", target.lstrip("/")) if target.startswith("/") else resolve("word", target)
            links[attributes.get("Id", "")] = (posixpath.basename(attributes.get("Type", "")), part)

    if _RELATIONS in archive.names:
        parse_xml(archive.read(_RELATIONS), source, start)
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
            reader.flow = Flow()
        else:
            reader.start(name, attributes)

    def end(name: str) -> None:
        if local(name) != kind:
            reader.end(name)
        elif current:
            body.notes[kind][current] = reader.flow.line()

    for part in _parts(archive, links, f"{kind}s"):
        try:
            parse_xml(archive.read(part), source, start, end, reader.text)
        except DamagedDocumentError:
            raw.warnings.append(f"The {kind}s of {source.name} are damaged: some or all of them are missing.")


def _around(
    archive: GuardedZip, source: Source, body: _Body, links: dict[str, _Link], kind: str, raw: Raw
) -> list[str]:
    """The texts of all page headers or footers, each once; page numbers are none."""
    found: dict[str, str] = {}
    for part in _parts(archive, links, kind):
        reader = body.beside()
        try:
            parse_xml(archive.read(part), source, reader.start, reader.end, reader.text)
        except DamagedDocumentError:
            raw.warnings.append(f"A page {kind} of {source.name} is damaged and could not be read.")
        text = reader.flow.text().replace(_BREAK, " ")
        if not _PAGE_NUMBER.fullmatch(_solid(text)):
            found.setdefault(_solid(text), text)
    return list(found.values())


def _comments(archive: GuardedZip, source: Source, links: dict[str, _Link]) -> int:
    count = 0

    def start(name: str, _: dict[str, str]) -> None:
        nonlocal count
        count += local(name) == "comment"

    for part in _parts(archive, links, "comments"):
        parse_xml(archive.read(part), source, start)
    return count


def _title(archive: GuardedZip, source: Source) -> str:
    if "docProps/core.xml" not in archive.names:
        return ""
    words: list[str] = []
    inside = False

    def start(name: str, _: dict[str, str]) -> None:
        nonlocal inside
        inside = name == "http://purl.org/dc/elements/1.1/ title"

    def end(_: str) -> None:
        nonlocal inside
        inside = False

    parse_xml(
        archive.read("docProps/core.xml"), source, start, end, lambda data: words.append(data) if inside else None
    )
    return "".join(words).strip()
