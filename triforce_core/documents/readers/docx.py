"""DOCX: the main text of word/document.xml, page by page where Word left its page breaks."""

from __future__ import annotations

import re

from ..sections import placed, split_sections
from .archive import GuardedZip, parse_xml
from .plain_text import numbered
from .source import Raw, Source

_BREAK = "\f"
_HEADING_STYLE = re.compile(r"[Hh]eading\s?([1-6])")  # so English versions of Word call them
_MOST_HEADINGS = 20_000


def read_docx(source: Source) -> Raw:
    archive = GuardedZip(source)
    body = _Body()
    data = archive.read("word/document.xml")
    parse_xml(data, source, body.start, body.end, body.text)
    text = "".join(body.out)
    source.check_characters(len(text))
    title = _title(archive, source)
    parts = [part.strip("\n") for part in text.split(_BREAK)]
    if len([part for part in parts if part.strip()]) > 1:
        sections = parts[:-1] if not parts[-1].strip() else parts
    else:
        sections = split_sections(text.replace(_BREAK, ""))
    return Raw("docx", "docx", title, numbered(sections), headings=placed(body.headings, sections))


class _Body:
    """Collects text; tables become lines with cells apart by " | "."""

    def __init__(self) -> None:
        self.out: list[str] = []
        self._in_text = False
        self._skip = 0  # inside mc:Fallback, which repeats a text box
        self._cells = 0
        self._tables = 0
        self._paragraph = 0  # where in out the current paragraph starts
        self._written_since_break = False  # text after the last page break: Word marks one break twice
        self._level = 0  # of the current paragraph as a heading; 0: it is none
        self.headings: list[tuple[str, int]] = []

    def start(self, name: str, attributes: dict[str, str]) -> None:  # noqa: C901  # a branch for each element
        local = name.rpartition(" ")[2]
        if local == "Fallback" or self._skip:
            self._skip += 1
            return
        if local == "p":
            self._paragraph, self._level = len(self.out), 0
        elif local == "t":
            self._in_text = True
        elif local in ("tab", "ptab"):
            self._put(" ")
        elif local == "noBreakHyphen":
            self._put("-")
        elif local == "br":
            page = _attribute(attributes, "type") == "page"
            self._put(_BREAK if page and not self._tables else "\n")
        elif local == "cr":
            self._put("\n")
        elif local == "lastRenderedPageBreak":
            if not self._tables and self._written_since_break:
                self._put(_BREAK)
        elif local == "pageBreakBefore":
            if _attribute(attributes, "val") not in ("0", "false") and self._written_since_break:
                self._put(_BREAK)
        elif local == "pStyle":
            match = _HEADING_STYLE.fullmatch(_attribute(attributes, "val"))
            self._level = int(match[1]) if match else 0
        elif local == "numPr":
            self._put("- ")
        elif local == "tbl":
            self._tables += 1
        elif local == "tr":
            self._cells = 0
        elif local == "tc":
            if self._cells:
                self._put(" | ")
            self._cells += 1

    def end(self, name: str) -> None:
        if self._skip:
            self._skip -= 1
            return
        local = name.rpartition(" ")[2]
        if local == "t":
            self._in_text = False
        elif local == "p":
            written = "".join(self.out[self._paragraph :])
            if self._level and not self._tables and len(self.headings) < _MOST_HEADINGS:
                self.headings.append((written.replace(_BREAK, "").strip()[:300], self._level))
            if self._tables:
                self._put(" " if written.strip() else "")
            elif written.startswith("- "):
                self._put("\n")
            else:
                self._put("\n\n")
        elif local == "tr":
            self._put("\n")
        elif local == "tbl":
            self._tables -= 1
            self._put("\n")

    def text(self, data: str) -> None:
        if self._in_text and not self._skip:
            self._put(data.replace(_BREAK, " "))

    def _put(self, piece: str) -> None:
        self.out.append(piece)
        if piece == _BREAK:
            self._written_since_break = False
        elif piece.strip() and piece != "- ":
            self._written_since_break = True


def _attribute(attributes: dict[str, str], wanted: str) -> str:
    return next((value for name, value in attributes.items() if name.rpartition(" ")[2] == wanted), "")


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
