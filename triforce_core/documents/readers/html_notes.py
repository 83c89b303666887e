"""Find the elements of a page that are footnotes or endnotes, and the links that only lead to them.

A page says it in one of many ways: roles (``doc-noteref``), ``epub:type``, classes, or nothing but a raised number that
leads to a paragraph further down, with a link back."""

from __future__ import annotations

import posixpath
import re
from dataclasses import dataclass, field
from itertools import islice
from urllib.parse import unquote

from justhtml.dom import Node

from .html_tree import attribute, below, text_of

MARK = re.compile(r"[\[(]?\s*(\d{1,4}|[a-z]|[ivxlc]{1,6}|[*†‡§¶]{1,3}|note \d{1,4})\s*[\])]?[.,:]?", re.IGNORECASE)
_BRACKETED = re.compile(r"\[[^\]]{1,9}\]|\([^)]{1,9}\)|[*†‡§]{1,3}")
_NOTE_NAME = re.compile(r"_?(?:foot|end)?note|_?(?:ft|ed)n|fn|en\d|cite_note", re.IGNORECASE)
_REFERENCE_CLASSES = frozenset("footnote-ref footnote-reference footnoteref footnote noteref note-ref fnref fnanchor "
                               "endnote-ref endnoteref endnote reference citation_reference".split())
_NOTE_CLASSES = frozenset("footnote endnote msofootnotetext msoendnotetext footnote-text footnotetext".split())
_LIST_CLASSES = frozenset("footnotes endnotes footnote footnote-list footnotes-list references".split())
_INLINE_CLASSES = frozenset("footnote sidenote marginnote inline-footnote ltx_role_footnote".split())
_NOTE_TYPES = frozenset("doc-footnote doc-endnote footnote endnote rearnote".split())
_LIST_TYPES = frozenset("doc-endnotes endnotes footnotes rearnotes".split())
_REFERENCE_TYPES = frozenset({"doc-noteref", "noteref"})
_BODIES = frozenset("p li div aside dd dt section blockquote".split())
_WRAPPERS = frozenset("sup span b i em small".split())
_HEADINGS = frozenset("h1 h2 h3 h4 h5 h6".split())
_LONGEST = 2_000  # nodes in a note; what is larger is a part of the document
_MARK_NODES = 12
_LONGEST_MARK = 12


def kinds(node: Node) -> set[str]:
    """Return what the page says that it is: its roles and its types."""
    return set(f"{attribute(node, 'role')} {attribute(node, 'epub:type')}".lower().split())


def classes(node: Node) -> set[str]:
    return set(attribute(node, "class").lower().split())


@dataclass
class Links:
    """Hold the links of all files of a book, read so far. marks: file -> place in it -> the mark that leads there;
    origins: "file#id" of the marks themselves, which notes link back to."""

    marks: dict[str, dict[str, str]] = field(default_factory=dict)
    origins: set[str] = field(default_factory=set)


@dataclass
class Notes:
    """Hold the notes of one page, as id() of its elements. references: links to a note, which are no words of the
    sentence; back: links from a note to its reference; bodies: each note -> its mark, "" where nothing leads to it."""

    references: set[int] = field(default_factory=set)
    back: set[int] = field(default_factory=set)
    bodies: dict[int, str] = field(default_factory=dict)


def find_notes(root: Node, links: Links, file: str = "") -> Notes:
    """Return a page's notes; ``links`` grows. file: what the book calls this page."""
    notes = Notes()
    places: dict[str, Node] = {}
    waiting: list[tuple[Node, list[int] | None]] = [(root, None)]  # with the number of notes in the list around it
    while waiting:
        node, listed = waiting.pop()
        if node.name == "#text":
            continue
        if node.attrs:
            for name in ("id", "name"):
                if key := attribute(node, name):
                    places.setdefault(key, node)
            if node.name == "a":
                _link(node, notes, links, file)
            elif listed != []:
                listed = _marked(node, notes, listed)
        if node.name == "li" and listed:
            listed[0] += 1
            notes.bodies.setdefault(id(node), str(listed[0]))
            listed = []  # what stands in a note is no other note
        waiting.extend((child, listed) for child in reversed(node.children or ()))
    for place, mark in links.marks.get(file, {}).items():
        body = _body(places[place]) if place in places else None
        above = body.parent if body is not None else None
        for _ in range(4):  # a note may be marked as one further out
            if above is not None and id(above) in notes.bodies:
                body = above
            above = above.parent if above is not None else None
        if body is not None:
            notes.bodies[id(body)] = mark
    return notes


def _marked(node: Node, notes: Notes, listed: list[int] | None) -> list[int] | None:
    """Return [] if the page says that this is a note, a count from 0 if it says that it is a list of notes."""
    said, named = kinds(node), classes(node)
    note = bool(said & _NOTE_TYPES) or (node.name in _BODIES and bool(named & _NOTE_CLASSES))
    if node.name == "span" and named & _INLINE_CLASSES:
        words = text_of(node, _MARK_NODES)
        note = words is None or len(words.strip()) > _LONGEST_MARK
    if note and not (node.name in ("div", "section") and _has_items(node)):
        notes.bodies[id(node)] = ""
        return []
    if listed is not None:
        return listed
    if note or said & _LIST_TYPES or (named & _LIST_CLASSES and node.name not in ("a", "sup", "span")):
        return [0]
    return None


def _has_items(node: Node) -> bool:
    return any(inner.name == "li" for inner in islice(below(node), _LONGEST))


def _link(node: Node, notes: Notes, links: Links, file: str) -> None:
    path, hash_, fragment = attribute(node, "href").partition("#")
    target, fragment = _file(file, path), unquote(fragment)
    if "doc-backlink" in kinds(node) or (hash_ and f"{target}#{fragment}" in links.origins):
        notes.back.add(id(node))
        return
    words = text_of(node, _MARK_NODES)
    if not hash_ or words is None:
        return
    words = " ".join(words.split())
    mark = MARK.fullmatch(words)
    looks = mark is not None and (_raised(node) or bool(classes(node) & _REFERENCE_CLASSES)
                                  or bool(_BRACKETED.fullmatch(words) and _NOTE_NAME.match(fragment)))
    if not looks and not (kinds(node) & _REFERENCE_TYPES and len(words) <= _LONGEST_MARK):
        return
    notes.references.add(id(node))
    around = [node, *islice(below(node), 1, _MARK_NODES)]
    above = node.parent
    while above is not None and above.name in _WRAPPERS and len(around) < 2 * _MARK_NODES:
        around.append(above)
        above = above.parent
    links.origins |= {f"{file}#{key}" for near in around for name in ("id", "name") if (key := attribute(near, name))}
    links.marks.setdefault(target, {}).setdefault(fragment, mark[1] if mark else words.strip("[]() "))


def _file(file: str, path: str) -> str:
    """Return the part that a link in the part ``file`` of a book leads to."""
    return posixpath.normpath(posixpath.join(posixpath.dirname(file), unquote(path))) if path else file


def _raised(node: Node) -> bool:
    above = node.parent
    for _ in range(3):
        if above is None or above.name in _BODIES:
            break
        if above.name == "sup":
            return True
        above = above.parent
    return any(inner.name == "sup" for inner in islice(node.children or (), _MARK_NODES))


def _body(place: Node) -> Node | None:
    """Return the note in which a link's target stands; None if that is a part of the document."""
    found: Node | None = place
    for _ in range(4):
        if found is None or found.name in _BODIES or (found.name == "table" and "footnote" in classes(found)):
            break
        found = found.parent
    if found is None or (found.name not in _BODIES and found.name != "table"):
        return None
    if text_of(found, _LONGEST) is None or any(inner.name in _HEADINGS for inner in below(found)):
        return None
    return found
