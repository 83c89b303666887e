"""EPUB: the chapters of the spine in order, long ones split into sections ("3.1", "3.2")."""

from __future__ import annotations

import posixpath
from urllib.parse import unquote, urlsplit

from ...errors import EncryptedDocumentError
from ..sections import split_sections
from .archive import GuardedZip, damaged, parse_xml, resolve
from .html import decode_html, html_text, tidy
from .source import Raw, RawPage, Source

_FONT_SCRAMBLING = ("http://www.idpf.org/2008/embedding", "http://ns.adobe.com/pdf/enc#RC")
_MARKUP = ("application/xhtml+xml", "text/html", "application/xml", "text/x-oeb1-document")


def read_epub(source: Source) -> Raw:
    archive = GuardedZip(source)
    _refuse_drm(archive, source)
    package = _package_name(archive, source)
    title, chapters = _spine(archive, package, source)
    pages: list[RawPage] = []
    missing: list[str] = []
    size = chapter = 0
    for number, name in enumerate(chapters):
        source.at_page(number, len(chapters))
        if name not in archive.names:
            missing.append(name)
            continue
        markup, _ = decode_html(archive.read(name), source.name)
        sections = split_sections(tidy(html_text(markup).text()))
        size += sum(map(len, sections))
        source.check_characters(size)
        chapter += bool(sections)
        for part, text in enumerate(sections):
            pages.append(RawPage(f"{chapter}.{part + 1}" if len(sections) > 1 else str(chapter), text))
    if missing and not pages:
        raise damaged(source, "its chapters are missing")
    warnings = [f"{len(missing)} chapters named in {source.name} are missing from it."] if missing else []
    return Raw("epub", "epub", title, pages, warnings=warnings)


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


def _spine(archive: GuardedZip, package: str, source: Source) -> tuple[str, list[str]]:
    """The book's title and the names of its chapters in reading order."""
    items: dict[str, tuple[str, str]] = {}
    order: list[str] = []
    title: list[str] = []
    in_title = False

    def start(name: str, attributes: dict[str, str]) -> None:
        nonlocal in_title
        local = name.rpartition(" ")[2]
        if local == "item" and "navigation" not in attributes and "nav" not in attributes.get("properties", "").split():
            items[attributes.get("id", "")] = (attributes.get("href", ""), attributes.get("media-type", ""))
        elif local == "itemref":
            order.append(attributes.get("idref", ""))
        in_title = name == "http://purl.org/dc/elements/1.1/ title" and not title

    def end(_: str) -> None:
        nonlocal in_title
        in_title = False

    parse_xml(archive.read(package), source, start, end, lambda data: title.append(data) if in_title else None)
    folder = posixpath.dirname(package)
    chapters = []
    for key in order:
        reference, media = items.get(key, ("", ""))
        name = resolve(folder, unquote(urlsplit(reference).path)) if reference else ""
        if name and media in _MARKUP:
            chapters.append(name)
    source.check_pages(len(chapters))
    if not chapters:
        raise damaged(source, "it names no chapters")
    return "".join(title).strip(), chapters
