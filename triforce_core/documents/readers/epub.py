"""Read EPUB: the chapters of the spine in order, long ones split into sections, and the book's table of contents."""

from __future__ import annotations

import posixpath
from itertools import islice
from urllib.parse import unquote, urlsplit

from ...errors import DamagedDocumentError, EncryptedDocumentError, UnknownFormatError
from ..sections import first_places, placed, split_sections
from .archive import GuardedZip, damaged, resolve
from .html import SCRIPT_LOST, decode_html, html_text
from .html_notes import Links
from .html_tree import attribute, below, breaks_off_in_script, parse, text_of
from .source import Heading, Raw, RawPage, Source, Unread

_FONT_SCRAMBLING = ("http://www.idpf.org/2008/embedding", "http://ns.adobe.com/pdf/enc#RC")
_NCX = "application/x-dtbncx+xml"
_HEAD = 4096
_MOST_ENTRIES = 20_000
_LONGEST_TITLE = 300  # characters, and elements that hold them


def read_epub(source: Source) -> Raw:
    archive = GuardedZip(source)
    _refuse_drm(archive, source)
    package = _package_name(archive, source)
    title, language, chapters, listing = _spine(archive, package, source)
    book = Raw("epub", "epub-6", title, [], language=language, laid_out=True)
    files: dict[str, tuple[int, list[str]]] = {}  # part of the archive -> pages before it, its sections
    links = Links()
    lost: list[str] = []
    size = 0
    for number, name in enumerate(chapters):
        source.at_page(number, len(chapters))
        markup = _markup(archive, name, source, book.unread)
        if markup is None:
            lost.append(name)
        if not markup:
            continue
        if breaks_off_in_script(markup):
            book.warnings.append(f"{posixpath.basename(name)[:80]} {SCRIPT_LOST}")
        page = html_text(markup, links, name)
        book.unread.add(page.unread)
        sections = split_sections(page.text())
        if sections:
            files.setdefault(name, (len(book.pages), sections))
            book.headings += placed(page.headings, sections, len(book.pages))
        size += sum(map(len, sections))
        source.check_characters(size)
        for text in sections:  # numbered through, as the places in the reader, the pages to choose and the strip are
            book.pages.append(RawPage(str(len(book.pages) + 1), text))
    if lost and not book.pages:
        raise damaged(source, "its chapters are missing")
    if lost:
        names = ", ".join(posixpath.basename(name)[:60] for name in lost[:5]) + (", ..." if len(lost) > 5 else "")
        parts = "part of the book is" if len(lost) == 1 else "parts of the book are"
        book.warnings.append(f"{len(lost)} {parts} missing or damaged and could not be read: {names}.")
    book.headings = (_listed(archive, listing, files, source) if listing in archive.names else []) or book.headings
    return book


def _markup(archive: GuardedZip, name: str, source: Source, unread: Unread) -> str | None:
    """Return the markup of a part of the book, whatever the book calls its kind; "" for a picture, None for a part that
    is lost."""
    if name not in archive.names:
        return None
    try:
        markup, _ = decode_html(archive.read(name), source.name)
    except DamagedDocumentError:
        return None
    except UnknownFormatError:  # it is not text
        markup = "<svg"
    head = markup[:_HEAD].lower()
    if "<svg" in head and "<html" not in head and "<body" not in head:
        unread.picture_pages += 1
        return ""
    return markup


def _listed(
    archive: GuardedZip, listing: str, files: dict[str, tuple[int, list[str]]], source: Source
) -> list[Heading]:
    """Return the book's own table of contents, each entry where its title stands in its file or else at the start."""
    try:
        markup, _ = decode_html(archive.read(listing), source.name)
    except DamagedDocumentError:  # a book is readable without one
        return []
    folder = posixpath.dirname(listing)
    entries = [(title, level, name, "#" in reference) for title, level, reference in contents(markup)
               if (name := _part(folder, reference)) in files]
    # Each file is searched once: a book may be one file, and its list may have thousands of entries.
    places = {wanted: first_places({title for title, _, name, inside in entries if name == wanted and inside},
                                   files[wanted][1]) for wanted in {name for _, _, name, _ in entries}}
    return [Heading(title, level, files[name][0] + (places[name].get(title, 0) if inside else 0))
            for title, level, name, inside in entries]


def contents(markup: str) -> list[tuple[str, int, str]]:
    """Return (title, depth from 1, reference) of each entry of a navigation document (EPUB 3) or an NCX (EPUB 2).

    Both are read as HTML: most declare a document type, which ``parse_xml`` refuses."""
    found: list[tuple[str, int, str]] = []
    waiting = [(parse(markup), 0, False)]  # element, lists around it, whether they are of contents
    while waiting and len(found) < _MOST_ENTRIES:
        node, depth, inside = waiting.pop()
        if node.name in ("nav", "navmap"):
            depth, inside = 0, attribute(node, "epub:type") in ("", "toc")
        depth += inside and node.name in ("ol", "navpoint")
        entry, reference = node, attribute(node, "href")
        if node.name == "navpoint":
            parts = {part.name: part for part in reversed(node.children or ())}
            entry = parts.get("navlabel", node)
            reference = next((attribute(part, "src") for part in islice(below(node), _LONGEST_TITLE)
                              if part.name == "content"), "")
        if inside and reference and node.name in ("a", "navpoint"):
            title = " ".join((text_of(entry, _LONGEST_TITLE) or "").split())[:_LONGEST_TITLE].rstrip()
            found += [(title, depth, reference)] if title else []
        if node.name != "#text":
            waiting.extend((child, depth, inside) for child in reversed(node.children or ()))
    return found


def _part(folder: str, reference: str) -> str:
    """Return the name of the part that a reference inside a part in ``folder`` leads to; "" for none."""
    try:
        path = unquote(urlsplit(reference).path)
    except ValueError:  # such as "http://["
        return ""
    return resolve(folder, path) if path else ""


def _refuse_drm(archive: GuardedZip, source: Source) -> None:
    if "META-INF/rights.xml" not in archive.names and "META-INF/encryption.xml" not in archive.names:
        return
    methods = archive.xml_if_any("META-INF/encryption.xml").iter("EncryptionMethod")
    locked = any(method.get("Algorithm") not in _FONT_SCRAMBLING for method in methods)
    if locked or "META-INF/rights.xml" in archive.names:
        raise EncryptedDocumentError(
            f"{source.name} is locked by copy protection (DRM), which no password opens",
            remedy="Use a copy without DRM.",
        )


def _package_name(archive: GuardedZip, source: Source) -> str:
    found = [resolve("", file.get("full-path", "")) for file in archive.xml("META-INF/container.xml").iter("rootfile")]
    if not found or found[0] not in archive.names:
        raise damaged(source, "it does not say where its book is")
    return found[0]


def _spine(archive: GuardedZip, package: str, source: Source) -> tuple[str, str, list[str], str]:
    """Return the book's title, its language, the names of its chapters in reading order, and of its table of contents
    ("": none)."""
    root = archive.xml(package)
    items: dict[str, str] = {}
    listings: list[str] = []
    navigations: set[str] = set()
    for item in root.iter("item"):
        key, file = item.get("id", ""), item.get("href", "")
        navigation = "nav" in item.get("properties", "").split()
        if navigation or item.get("media-type") == _NCX:
            listings.insert(0 if navigation else len(listings), file)
        if navigation:
            navigations.add(key)
        else:
            items[key] = file
    order = [reference.get("idref", "") for reference in root.iter("itemref")]
    title, language = (next((words for found in root.iter(name) if (words := (found.text or "").strip())), "")
                       for name in ("title", "language"))
    folder = posixpath.dirname(package)
    # What leads nowhere stays in the list, so that it is missed.
    chapters = [_part(folder, items.get(key, "")) or key for key in order if key not in navigations]
    source.check_pages(len(chapters))
    if not chapters:
        raise damaged(source, "it names no chapters")
    listing = _part(folder, listings[0]) if listings else ""
    return title, language, chapters, listing
