"""What a DOCX says of its paragraphs elsewhere: which styles are headings or hidden, how its lists count."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from .archive import GuardedZip, elements
from .source import Source

_STYLES, _NUMBERING = "word/styles.xml", "word/numbering.xml"
_HEADING_ID = re.compile(r"[Hh]eading\s?([1-6])")  # where a file has no styles.xml
_HEADING_NAME = re.compile(r"heading ([1-9])", re.IGNORECASE)  # so named in every language; the ids are translated
_DEEPEST = 20  # styles based on one another
_ROMAN = ((1000, "m"), (900, "cm"), (500, "d"), (400, "cd"), (100, "c"), (90, "xc"), (50, "l"), (40, "xl"), (10, "x"),
          (9, "ix"), (5, "v"), (4, "iv"), (1, "i"))
_PLACE = re.compile(r"%([1-9])")


def local(name: str) -> str:
    """A name without its namespace."""
    return name.rpartition(" ")[2]


def value(attributes: dict[str, str], wanted: str = "val") -> str:
    return next((text for name, text in attributes.items() if local(name) == wanted), "")


def is_on(attributes: dict[str, str]) -> bool:
    return value(attributes) not in ("0", "false", "off", "none")


@dataclass
class Style:
    name: str = ""
    based_on: str = ""
    outline: int | None = None
    hidden: bool = False
    numbering: str = ""  # the list that its paragraphs belong to
    depth: int = 0


@dataclass
class Styles:
    known: dict[str, Style] = field(default_factory=dict)

    def level(self, key: str) -> int | None:
        """Of a heading, from 1; 0 for the document's title; None: it is none."""
        if key not in self.known:
            found = _HEADING_ID.fullmatch(key)
            return int(found[1]) if found else None
        for style in self._chain(key):
            if found := _HEADING_NAME.fullmatch(style.name):
                return int(found[1])
            if style.name.lower() == "title":
                return 0
            if style.outline is not None:
                return style.outline + 1 if style.outline < 9 else None
        return None

    def hidden(self, key: str) -> bool:
        return any(style.hidden for style in self._chain(key))

    def numbering(self, key: str) -> tuple[str, int] | None:
        return next(((style.numbering, style.depth) for style in self._chain(key) if style.numbering), None)

    def _chain(self, key: str) -> list[Style]:
        found: list[Style] = []
        while key in self.known and len(found) < _DEEPEST:
            found.append(self.known[key])
            key = found[-1].based_on
        return found


def read_styles(archive: GuardedZip, source: Source) -> Styles:
    styles = Styles()
    style = Style()
    for name, attributes, _ in elements(archive.read(_STYLES), source) if _STYLES in archive.names else ():
        tag = local(name)
        if tag == "style":
            style = styles.known.setdefault(value(attributes, "styleId"), Style())
        elif tag == "name":
            style.name = value(attributes)
        elif tag == "basedOn":
            style.based_on = value(attributes)
        elif tag == "outlineLvl":
            style.outline = _number(value(attributes))
        elif tag == "vanish":
            style.hidden = is_on(attributes)
        elif tag == "numId":
            style.numbering = value(attributes)
        elif tag == "ilvl":
            style.depth = min(_number(value(attributes)), 8)
    return styles


@dataclass
class Level:
    """Of a list: how its numbers look ("%1.%2."), and where they begin."""

    kind: str = "decimal"
    text: str = "%1."
    start: int = 1


@dataclass
class Numbering:
    """levels: of each list. counts: how far each has come; lists of one kind count on."""

    lists: dict[str, str] = field(default_factory=dict)  # numId -> abstractNumId
    levels: dict[str, dict[int, Level]] = field(default_factory=dict)
    counts: dict[str, list[int | None]] = field(default_factory=dict)

    def mark(self, key: str, depth: int) -> str:
        """What stands before the next item: "- ", "2.1 "."""
        kind = self.lists.get(key, "")
        level = self.levels.get(kind, {}).get(depth)
        if level is None or level.kind == "bullet":
            return "- "
        counts = self.counts.setdefault(kind, [None] * 9)
        last = counts[depth]
        counts[depth] = level.start if last is None else last + 1
        counts[depth + 1 :] = [None] * (8 - depth)
        if level.kind == "none":
            return ""

        def number(found: re.Match[str]) -> str:
            place = int(found[1]) - 1
            below = self.levels[kind].get(place, Level())
            count = counts[place]
            return _written(below.start if count is None else count, below.kind)

        text = _PLACE.sub(number, level.text[:40]).strip()
        return f"{text} " if text else ""


def read_numbering(archive: GuardedZip, source: Source) -> Numbering:
    numbering = Numbering()
    kind, key, level = "", "", Level()
    for name, attributes, _ in elements(archive.read(_NUMBERING), source) if _NUMBERING in archive.names else ():
        tag = local(name)
        if tag == "abstractNum":
            kind = value(attributes, "abstractNumId")
        elif tag == "num":
            key = value(attributes, "numId")
        elif tag == "abstractNumId":
            numbering.lists[key] = value(attributes)
        elif tag == "lvl" and not key:
            level = Level()
            numbering.levels.setdefault(kind, {})[min(_number(value(attributes, "ilvl")), 8)] = level
        elif tag == "numFmt":
            level.kind = value(attributes)
        elif tag == "lvlText" and not key:
            level.text = value(attributes)
        elif tag == "start" and not key:
            level.start = _number(value(attributes))
    return numbering


def _number(text: str) -> int:
    return int(text) if text.isascii() and text.isdigit() and len(text) < 7 else 0


def _written(number: int, kind: str) -> str:
    if kind in ("lowerLetter", "upperLetter") and number > 0:
        letters = chr(ord("a") + (number - 1) % 26) * ((number - 1) // 26 + 1)
        return letters[:4].upper() if kind == "upperLetter" else letters[:4]
    if kind in ("lowerRoman", "upperRoman") and 0 < number < 4000:
        return roman(number).upper() if kind == "upperRoman" else roman(number)
    return str(number)


def roman(number: int) -> str:
    """1-3999, in small letters."""
    letters = ""
    for size, name in _ROMAN:
        letters += name * (number // size)
        number %= size
    return letters
