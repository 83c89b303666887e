"""Look up a DOCX's styles, which may be headings or hidden, and count its lists."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from xml.etree.ElementTree import Element

from .html_tree import numeral, whole_number

_HEADING_ID = re.compile(r"[Hh]eading\s?([1-6])")  # where a file has no styles.xml
_HEADING_NAME = re.compile(r"heading ([1-9])", re.IGNORECASE)  # so named in every language; the ids are translated
OFF = ("0", "false", "off", "none")
_CODE_NAME = re.compile(r"(?:source |program )?code(?: block| listing| text)?|source|(?:html )?preformatted(?: text)?"
                        r"|listing|macro(?: text)?|verbatim", re.IGNORECASE)
_FIXED = re.compile(r"courier|consol|mono|menlo|typewriter|fixed|inconsolata|terminal|source code",
                    re.IGNORECASE)
_DEEPEST = 20  # styles based on one another
_PLACE = re.compile(r"%([1-9])")


def value(element: Element, path: str = ".", name: str = "val") -> str:
    """Return an attribute of the first element at a path; "" if there is none."""
    found = element.find(path)
    return "" if found is None else found.get(name, "")


def is_on(element: Element, path: str) -> bool:
    """Return whether a property is there and not switched off."""
    found = element.find(path)
    return found is not None and found.get("val", "") not in OFF


@dataclass(frozen=True)
class Style:
    """level: of a heading, from 1; 0 for the document's title; None for other paragraphs. list: the id of the list that
    a paragraph is an item of, "" for none; depth: in that list, from 0. code: its lines stay as they are; fixed: its
    font has one pitch; script: how it is raised or lowered ("superscript")."""

    level: int | None = None
    hidden: bool = False
    list: str = ""
    depth: int = 0
    code: bool = False
    fixed: bool = False
    script: str = ""


class Styles:
    """The styles of word/styles.xml by their ids."""

    def __init__(self, root: Element) -> None:
        self._elements = {style.get("styleId", ""): style for style in root.iter("style")}
        self._resolved: dict[str, Style] = {}
        ordinary = [style for style in root.iter("style") if value(style, "name").lower() == "normal"]
        fonts = [found for place in (*ordinary, root.find("docDefaults/rPrDefault"))
                 if place is not None and (found := place.find("rPr/rFonts")) is not None]
        self.typed = bool(fonts) and is_fixed(fonts[0])  # all of the document, as by a typewriter

    def resolved(self, key: str) -> Style:
        """Return a style with what it takes over from those that it is based on."""
        if key not in self._resolved:
            self._resolved[key] = self._resolve(key)
        return self._resolved[key]

    def _resolve(self, key: str) -> Style:
        if key not in self._elements:
            found = _HEADING_ID.fullmatch(key)
            return Style(int(found[1]) if found else None)
        chain: list[Element] = []
        while key in self._elements and len(chain) < _DEEPEST:
            chain.append(self._elements[key])
            key = value(chain[-1], "basedOn")
        hidden = any(is_on(style, "rPr/vanish") for style in chain)
        listed = next((style for style in chain if value(style, "pPr/numPr/numId")), Element(""))
        fonts = [font for style in chain if (font := style.find("rPr/rFonts")) is not None]
        script = next(filter(None, (value(style, "rPr/vertAlign") for style in chain)), "")
        return Style(_level(chain), hidden, value(listed, "pPr/numPr/numId"),
                     min(whole_number(value(listed, "pPr/numPr/ilvl")), 8),
                     any(_CODE_NAME.fullmatch(value(style, "name")) for style in chain if not self.typed),
                     bool(fonts) and is_fixed(fonts[0]), script)


def is_fixed(font: Element) -> bool:
    """Return whether a font (w:rFonts) is of fixed pitch, by its name."""
    return _FIXED.search(font.get("ascii") or font.get("hAnsi") or "") is not None


def _level(chain: Sequence[Element]) -> int | None:
    for style in chain:
        name, outline = value(style, "name"), style.find("pPr/outlineLvl")
        if found := _HEADING_NAME.fullmatch(name):
            return int(found[1])
        if name.lower() == "title":
            return 0
        if outline is not None:
            return level + 1 if (level := whole_number(value(outline))) < 9 else None
    return None


@dataclass(frozen=True)
class _Level:
    """How the numbers of one level of a list look ("%1.%2."), and where they begin."""

    kind: str = "decimal"
    text: str = "%1."
    start: int = 1


class Numbering:
    """The lists of word/numbering.xml, and how far each has come; lists of one kind count on."""

    def __init__(self, root: Element) -> None:
        self._lists = {number.get("numId", ""): value(number, "abstractNumId") for number in root.iter("num")}
        self._levels = {
            kind.get("abstractNumId", ""): {min(whole_number(level.get("ilvl", "")), 8): _read_level(level)
                                            for level in kind.iter("lvl")}
            for kind in root.iter("abstractNum")
        }
        self._counts: dict[str, list[int | None]] = {}

    def mark(self, key: str, depth: int) -> str:
        """Return what stands before the next item of a list: "-", "2.1"."""
        kind = self._lists.get(key, "")
        levels = self._levels.get(kind, {})
        level = levels.get(depth)
        if level is None or level.kind == "bullet":
            return "-"
        counts = self._counts.setdefault(kind, [None] * 9)
        last = counts[depth]
        counts[depth] = level.start if last is None else last + 1
        counts[depth + 1 :] = [None] * (8 - depth)
        if level.kind == "none":
            return ""

        def number(found: re.Match[str]) -> str:
            place = int(found[1]) - 1
            other, count = levels.get(place, _Level()), counts[place]
            return numeral(other.start if count is None else count, other.kind)

        return _PLACE.sub(number, level.text[:40]).strip()


def _read_level(element: Element) -> _Level:
    given = {field: found.get("val", "") for field, tag in (("kind", "numFmt"), ("text", "lvlText"), ("start", "start"))
             if (found := element.find(tag)) is not None}
    return _Level(given.get("kind", "decimal"), given.get("text", "%1."), whole_number(given.get("start", "1")))
