"""Parse markup as browsers do (justhtml follows the HTML standard's algorithm, with no recursion), or build its tree.

Two things are mended before: a tag that hides what stands in it but is never closed would hide the rest of the
document, and XHTML's way to close an empty element means nothing to an HTML parser."""

from __future__ import annotations

import html
import re
from collections import Counter
from collections.abc import Iterator
from string import ascii_lowercase

from justhtml import JustHTML
from justhtml.dom import Node, Text

# What stands in them is not read, or is not taken as markup.
_HIDING = "nav|button|object|select|noscript|template|iframe|title|textarea|audio|video|canvas|dialog"
_HIDING_TAG = re.compile(rf"<(/?)({_HIDING})(?=[\s/>])[^<>]*>", re.IGNORECASE)
_XHTML = re.compile(r"<\?xml|xmlns\s*=\s*[\"']http://www\.w3\.org/1999/xhtml", re.IGNORECASE)
_SELF_CLOSED = re.compile(r"""<([A-Za-z][\w:.-]*+)((?:[^<>"']|"[^"<]*"|'[^'<]*')*?)/>""")
_CDATA = re.compile(r"<!\[CDATA\[((?:[^\]]|\](?!\]>))*+)(\]\]>)?")  # one that is open to the end is read once
VOID = frozenset("area base br col embed hr img input link meta param source track wbr".split())
_HEAD = 4096
_ROMAN = ((1000, "m"), (900, "cm"), (500, "d"), (400, "cd"), (100, "c"), (90, "xc"), (50, "l"), (40, "xl"), (10, "x"),
          (9, "ix"), (5, "v"), (4, "iv"), (1, "i"))


def parse(markup: str) -> Node:
    """Return the document node."""
    if _XHTML.search(markup[:_HEAD]):
        markup = _SELF_CLOSED.sub(_opened_and_closed, markup)
        markup = _CDATA.sub(lambda found: html.escape(found[1]) if found[2] else found[0], markup)
    return JustHTML(_without_unclosed(markup), sanitize=False, scripting_enabled=False).root


class Builder:
    """Builds the tree that would come of HTML, for the readers of other formats."""

    def __init__(self, name: str = "body", attributes: dict[str, str] | None = None) -> None:
        self.root = self.here = Node(name, {**attributes} if attributes else None)

    def open(self, name: str, attributes: dict[str, str] | None = None) -> None:
        node = Node(name, {**attributes} if attributes else None)
        node.parent = self.here
        self.here.children.append(node)  # type: ignore[union-attr]
        self.here = node

    def close(self, name: str) -> None:
        """Close the innermost open element of that name, with all that stands in it; nothing if there is none."""
        found: Node | None = self.here
        while found is not None and found.name != name:
            found = found.parent
        if found is not None and found.parent is not None:
            self.here = found.parent

    def text(self, data: str) -> Text:
        node = Text(data)
        node.parent = self.here
        self.here.children.append(node)  # type: ignore[union-attr]
        return node

    def element(self, name: str, data: str = "") -> None:
        self.open(name)
        if data:
            self.text(data)
        self.close(name)

    def graft(self, root: Node) -> None:
        """Put a whole tree here."""
        root.parent = self.here
        self.here.children.append(root)  # type: ignore[union-attr]


def breaks_off_in_script(markup: str) -> bool:
    """Return whether a script or style sheet is never closed: no parser can tell the text behind it from the script."""
    lower = markup.lower()
    return any(lower.rfind(f"<{tag}") > lower.rfind(f"</{tag}") for tag in ("script", "style"))


def below(node: Node) -> Iterator[Node]:
    """Yield the node and all beneath it, in document order, without recursion."""
    waiting = [iter([node])]  # no list of children is copied: often only the first few nodes are asked for
    while waiting:
        found = next(waiting[-1], None)
        if found is None:
            waiting.pop()
            continue
        yield found
        if found.name != "#text" and found.children:
            waiting.append(iter(found.children))


def text_of(node: Node, most: int) -> str | None:
    """Return the words of a small part of the tree; None if it has more than ``most`` nodes."""
    words: list[str] = []
    for count, found in enumerate(below(node)):
        if count >= most:
            return None
        if found.name == "#text":
            words.append(str(found.data))
    return "".join(words)


def words_in(node: Node) -> int:
    return sum(len(str(found.data).split()) for found in below(node)
               if found.name == "#text" and (found.parent is None or found.parent.name not in ("script", "style")))


def attribute(node: Node, name: str) -> str:
    return (node.attrs.get(name) if node.name != "#text" and node.attrs else None) or ""


def whole_number(text: str, usual: int = 0) -> int:
    """Return an attribute's number, or the usual one where it has none of at most six digits."""
    return int(text) if text.isascii() and text.isdigit() and len(text) < 7 else usual


def _opened_and_closed(found: re.Match[str]) -> str:
    return found[0] if found[1].lower() in VOID else f"<{found[1]}{found[2]}></{found[1]}>"


def _without_unclosed(markup: str) -> str:
    """Return the markup without the tags of each kind of which more are opened than closed, and no endless comment."""
    end = markup.rfind("-->")
    if markup.find("<!--", max(end, 0)) >= 0:
        behind = max(end, 0)
        markup = markup[:behind] + markup[behind:].replace("<!--", "")
    opened: Counter[str] = Counter()
    for found in _HIDING_TAG.finditer(markup):
        opened[found[2].lower()] += -1 if found[1] else 1
    unclosed = {tag for tag, count in opened.items() if count > 0}
    if not unclosed:
        return markup
    return _HIDING_TAG.sub(lambda found: "" if found[2].lower() in unclosed else found[0], markup)


def numeral(number: int, kind: str) -> str:
    """Return a number as lists write it. kind: "lowerLetter", "upperRoman" (Word), "loweralpha" (docutils) and the
    like; digits for all others, and for numbers that they cannot write."""
    written = str(number)
    if kind[5:].lower() in ("letter", "alpha") and number > 0:
        written = (ascii_lowercase[(number - 1) % 26] * ((number - 1) // 26 + 1))[:4]
    elif kind[5:].lower() == "roman" and 0 < number < 4000:
        written = ""
        for size, letters in _ROMAN:
            written += letters * (number // size)
            number %= size
    return written.upper() if kind.startswith("upper") else written
