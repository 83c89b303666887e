"""DOCX: word/document.xml and what belongs to it, written as a tree of HTML, page by page where Word left its breaks.

Footnotes stand behind their paragraph, endnotes at the end, page headers and footers once. Comments, tracked deletions
and hidden text are left out and counted."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable
from xml.etree.ElementTree import Element

from justhtml.dom import Node

from ...errors import DamagedDocumentError, UnknownFormatError
from ..chapters import solid
from ..sections import placed, split_sections
from .archive import GuardedZip, parse_xml, resolve
from .docx_body import ALL, BREAK, Writer
from .docx_styles import Numbering, Styles, value
from .html import HtmlText, decode_html
from .html_tree import Builder, parse, text_of
from .mail import body_of, opened
from .plain_text import numbered
from .source import Raw, Source

_MAIN = "word/document.xml"  # so named by nearly all programs
_DECIMAL_ENDNOTES = re.compile(rb"<w:endnotePr>.{0,300}?<w:numFmt w:val=[\"']decimal[\"']", re.DOTALL)
_HTML = re.compile(r"<(?:!doctype\s+html|html|head|body|p|div)\b", re.IGNORECASE)
_PAGE_NUMBER = re.compile(r"(?:page|seite|p)?[0-9ivxlc]*(?:(?:of|von)[0-9]*)?")


def read_docx(source: Source) -> Raw:
    archive = GuardedZip(source)
    title = archive.xml_if_any("docProps/core.xml").findtext("title") or ""
    raw = Raw("docx", "docx-6", title.strip(), [], laid_out=True)
    page = HtmlText(_Package(archive, source, raw).tree())
    raw.unread.add(page.unread)
    text = page.text()
    source.check_characters(len(text))
    parts = [part.strip() for part in text.split(BREAK)]
    if len(list(filter(None, parts))) > 1:
        sections = parts if parts[-1] else parts[:-1]
    else:
        sections = split_sections(text.replace(BREAK, ""))
    raw.pages = numbered(sections)
    raw.headings = placed(page.headings, sections)
    return raw


class _Package:
    """The parts of a file. What is missing or damaged is a warning of ``raw``; without its main part nothing is read.

    nested: it stands inside another DOCX."""

    def __init__(self, archive: GuardedZip, source: Source, raw: Raw, nested: bool = False) -> None:
        self._archive, self._source, self._raw, self._nested = archive, source, raw, nested
        self._main = next((name for kind, name in self._relations("").values()
                           if kind == "officeDocument" and name in archive.names), _MAIN)
        self._links = self._relations(self._main)
        self._styles = Styles(self._part("styles"))
        self._numbering = Numbering(self._part("numbering"))

    def _relations(self, name: str) -> dict[str, tuple[str, str]]:
        """Return what a part ("": the file as a whole) leads to: by id, the kind and the name of the other part."""
        folder, file = posixpath.split(name)
        found: dict[str, tuple[str, str]] = {}
        for link in self._archive.xml_if_any(posixpath.join(folder, "_rels", f"{file}.rels")).iter("Relationship"):
            if link.get("TargetMode") != "External":
                target = link.get("Target", "")
                part = resolve("" if target.startswith("/") else folder, target.lstrip("/"))
                found[link.get("Id", "")] = (posixpath.basename(link.get("Type", "")), part)
        return found

    def _part(self, kind: str) -> Element:
        """Return the only part of a kind, where programs put it if nothing names it; an empty element for none."""
        folder = posixpath.dirname(self._main)
        return self._archive.xml_if_any(next(iter(self._parts(kind)), posixpath.join(folder, f"{kind}.xml")))

    def tree(self) -> Node:
        """Return the main text, with page headers before it and endnotes and page footers behind."""
        data = self._archive.read(self._main)
        writer = self._writer(self._embedded)
        writer.has_pages = not self._nested
        for kind, notes in writer.notes.items():
            notes.update(self._notes(kind))
        settings = self._part("settings").iter("endnotePr")
        writer.roman_endnotes = not (_DECIMAL_ENDNOTES.search(data)
                                     or any(value(each, "numFmt") == "decimal" for each in settings))
        parse_xml(data, self._source, block=writer.write)
        root = writer.tree.root
        for note in writer.endnotes:
            writer.tree.graft(note)
        solid = _solid(root)
        for node in reversed(self._around("header")):
            if _solid(node) not in solid:
                node.parent = root
                root.children = [node, *(root.children or [])]
        for node in self._around("footer"):
            if _solid(node) not in solid:
                writer.tree.graft(node)
        self._raw.unread.comments += sum(1 for part in self._parts("comments")
                                         for _ in self._archive.xml(part).iter("comment"))
        return root

    def _writer(self, embedded: Callable[[str], Node | None] = lambda _: None) -> Writer:
        return Writer(self._styles, self._numbering, self._raw, embedded)

    def _parts(self, kind: str) -> list[str]:
        return list(dict.fromkeys(name for found, name in self._links.values()
                                  if found == kind and name in self._archive.names))

    def _beside(self, kind: str, damage: str) -> list[Element]:
        """Return the parts of one kind; ``damage`` is the warning where one is damaged and only its start was read."""
        found = []
        for part in self._parts(kind):
            problems: list[DamagedDocumentError] = []
            found.append(self._archive.xml(part, problems))
            self._raw.warnings += [damage] * len(problems)
        return found

    def _notes(self, kind: str) -> dict[str, Node]:
        """Return every footnote or endnote by its id."""
        damage = f"The {kind}s of {self._source.name} are damaged: some or all of them are missing."
        notes, writer = {}, self._writer()
        for part in self._beside(f"{kind}s", damage):
            for note in part.iter(kind):
                if note.get("type", "normal") == "normal":
                    writer.tree = Builder("aside")
                    writer.children(note)
                    notes[note.get("id", "")] = writer.tree.root
        return notes

    def _around(self, kind: str) -> list[Node]:
        """Return all page headers or footers, each once, without those that only number pages."""
        found: dict[str, Node] = {}
        damage = f"A page {kind} of {self._source.name} is damaged and could not be read."
        for part in self._beside(kind, damage):
            writer = self._writer()
            writer.children(part)
            solid = _solid(writer.tree.root)
            if not _PAGE_NUMBER.fullmatch(solid):
                found.setdefault(solid, writer.tree.root)
        return list(found.values())

    def _embedded(self, key: str) -> Node | None:
        """Return a document of another kind that stands inside this one (w:altChunk); None, and a warning, where it
        cannot be read."""
        _, name = self._links.get(key, ("", ""))
        try:
            found = self._read_embedded(name) if name in self._archive.names else None
        except (DamagedDocumentError, UnknownFormatError):
            found = None
        if found is None:
            self._raw.warnings.append(f"An embedded part ({name or key or 'without a name'}) could not be read: its "
                                      "text is missing.")
        return found

    def _read_embedded(self, name: str) -> Node | None:
        data = self._archive.read(name)
        if data.startswith(b"PK"):
            inner = None if self._nested else GuardedZip(self._source, data)
            return None if inner is None else _Package(inner, self._source, self._raw, nested=True).tree()
        if data.startswith(b"{\\rtf"):
            return None
        is_mail = data[:200].lstrip().lower().startswith(b"mime-version")
        markup, _ = body_of(opened(data), name)[1:] if is_mail else decode_html(data, self._source.name)
        if _HTML.search(markup[:4096]) or name.lower().endswith(("htm", "html")):
            return parse(markup)
        plain = Builder()
        plain.element("pre", markup.strip())
        return plain.root


def _solid(node: Node) -> str:
    return solid(text_of(node, ALL) or "")
