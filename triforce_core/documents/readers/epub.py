"""EPUB: the chapters of the spine in order, long ones split into sections ("3.1", "3.2")."""

from __future__ import annotations

import posixpath
from urllib.parse import unquote, urlsplit

from ...errors import DamagedDocumentError, EncryptedDocumentError
from ..sections import first_places, placed, split_sections
from .archive import GuardedZip, damaged, parse_xml, resolve
from .epub_contents import contents
from .html import decode_html, html_text, tidy
from .source import Heading, Raw, RawPage, Source

_FONT_SCRAMBLING = ("http://www.idpf.org/2008/embedding", "http://ns.adobe.com/pdf/enc#RC")
_DUBLIN_CORE = "http://purl.org/dc/elements/1.1/"
_NCX = "application/x-dtbncx+xml"
_MARKUP = ("application/xhtml+xml", "text/html", "application/xml", "text/x-oeb1-document")


def read_epub(source: Source) -> Raw:
    archive = GuardedZip(source)
    _refuse_drm(archive, source)
    package = _package_name(archive, source)
    title, language, chapters, listing = _spine(archive, package, source)
    pages: list[RawPage] = []
    headings: list[Heading] = []
    files: dict[str, tuple[int, list[str]]] = {}  # part of the archive -> pages before it, its sections
    missing: list[str] = []
    size = chapter = 0
    for number, name in enumerate(chapters):
        source.at_page(number, len(chapters))
        if name not in archive.names:
            missing.append(name)
            continue
        markup, _ = decode_html(archive.read(name), source.name)
        extractor = html_text(markup)
        sections = split_sections(tidy(extractor.text()))
        if sections:
            files.setdefault(name, (len(pages), sections))
            headings += placed(extractor.headings, sections, len(pages))
        size += sum(map(len, sections))
        source.check_characters(size)
        chapter += bool(sections)
        for part, text in enumerate(sections):
            pages.append(RawPage(f"{chapter}.{part + 1}" if len(sections) > 1 else str(chapter), text))
    if missing and not pages:
        raise damaged(source, "its chapters are missing")
    warnings = [f"{len(missing)} chapters named in {source.name} are missing from it."] if missing else []
    listed = _listed(archive, listing, files, source) if listing in archive.names else []
    return Raw("epub", "epub", title, pages, warnings=warnings, headings=listed or headings,
               language=language)


def _listed(
    archive: GuardedZip, listing: str, files: dict[str, tuple[int, list[str]]], source: Source
) -> list[Heading]:
    """The book's own table of contents: each entry where its title stands in the file it leads to, or at its start."""
    try:
        markup, _ = decode_html(archive.read(listing), source.name)
    except DamagedDocumentError:  # a book is readable without one
        return []
    folder = posixpath.dirname(listing)
    entries = [(entry, name) for entry in contents(markup) if (name := _part(folder, entry.reference)) in files]
    inside: dict[str, set[str]] = {}
    for entry, name in entries:
        if "#" in entry.reference:
            inside.setdefault(name, set()).add(entry.title)
    # Each file is searched once: a book may be one file, and its list may have thousands of entries.
    places = {name: first_places(titles, files[name][1]) for name, titles in inside.items()}
    return [Heading(entry.title, entry.level,
                    files[name][0] + (places[name].get(entry.title, 0) if "#" in entry.reference else 0))
            for entry, name in entries]


def _part(folder: str, reference: str) -> str:
    """The name of the part that a reference inside a part in ``folder`` leads to; "" for none."""
    try:
        path = unquote(urlsplit(reference).path)
    except ValueError:  # such as "http://["
        return ""
    return resolve(folder, path) if path else ""


def _refuse_drm(archive: GuardedZip, source: Source) -> None:
    if "META-INF/rights.xml" not in archive.names and "META-INF/encryption.xml" not in archive.names:
        return
    methods: list[str] = []

    def start(name: str, attributes: dict[str, str]) -> None:
        if name.endswith(" EncryptionMethod"):
            methods.append(attributes.get("Algorithm", ""))

    if "META-INF/encryption.xml" in archive.names:
        parse_xml(archive.read("META-INF/encryption.xml"), source, start)
    if any(method not in _FONT_SCRAMBLING for method in methods) or "META-INF/rights.xml" in archive.names:
        raise EncryptedDocumentError(
            f"{source.name} is locked by copy protection (DRM), which no password opens",
            remedy="Use a copy without DRM.",
        )


def _package_name(archive: GuardedZip, source: Source) -> str:
    found: list[str] = []

    def start(name: str, attributes: dict[str, str]) -> None:
        if name.endswith(" rootfile") and "full-path" in attributes:
            found.append(resolve("", attributes["full-path"]))

    parse_xml(archive.read("META-INF/container.xml"), source, start)
    if not found or found[0] not in archive.names:
        raise damaged(source, "it does not say where its book is")
    return found[0]


def _spine(archive: GuardedZip, package: str, source: Source) -> tuple[str, str, list[str], str]:
    """The book's title, its language, the names of its chapters in reading order, and of its table of contents ("":
    none)."""
    items: dict[str, tuple[str, str]] = {}
    order: list[str] = []
    said: dict[str, list[str]] = {"title": [], "language": []}  # of each the first
    listings: list[str] = []
    inside = ""

    def start(name: str, attributes: dict[str, str]) -> None:
        nonlocal inside
        local = name.rpartition(" ")[2]
        navigation = "nav" in attributes.get("properties", "").split()
        if local == "item" and (navigation or attributes.get("media-type") == _NCX):
            listings.insert(0 if navigation else len(listings), attributes.get("href", ""))
        if local == "item" and "navigation" not in attributes and not navigation:
            items[attributes.get("id", "")] = (attributes.get("href", ""), attributes.get("media-type", ""))
        elif local == "itemref":
            order.append(attributes.get("idref", ""))
        inside = local if name == f"{_DUBLIN_CORE} {local}" and local in said and not said[local] else ""

    def end(_: str) -> None:
        nonlocal inside
        inside = ""

    parse_xml(archive.read(package), source, start, end, lambda data: said[inside].append(data) if inside else None)
    folder = posixpath.dirname(package)
    chapters = []
    for key in order:
        reference, media = items.get(key, ("", ""))
        name = _part(folder, reference)
        if name and media in _MARKUP:
            chapters.append(name)
    source.check_pages(len(chapters))
    if not chapters:
        raise damaged(source, "it names no chapters")
    listing = _part(folder, listings[0]) if listings else ""
    return "".join(said["title"]).strip(), "".join(said["language"]).strip(), chapters, listing
