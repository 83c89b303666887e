"""An EPUB's table of contents: the navigation document of EPUB 3 or the NCX of EPUB 2, whichever the book brings.

Both are read by the lenient HTML parser: most declare a document type there, which ``parse_xml`` refuses.
"""

from __future__ import annotations

from dataclasses import dataclass
from html.parser import HTMLParser

_MOST = 20_000
_LONGEST = 300


@dataclass(frozen=True)
class Entry:
    """title, its depth from 1, and the reference as the book writes it ("text/c3.xhtml#a")."""

    title: str
    level: int
    reference: str


def contents(markup: str) -> list[Entry]:
    """Entries in the book's order; those without words or reference are left out."""
    parser = _Contents()
    parser.feed(markup)
    parser.close()
    return [Entry(title, level, reference) for words, level, reference in parser.found
            if (title := " ".join("".join(words).split())[:_LONGEST].rstrip()) and reference]


class _Contents(HTMLParser):
    """nav: only inside <nav epub:type="toc"> (or without a type), depth by <ol>. ncx: depth by <navPoint>."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.found: list[tuple[list[str], int, str]] = []
        self._depth = 0
        self._inside = False  # a list of contents, not one of pages or landmarks
        self._words: list[str] | None = None

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        names = {name: value or "" for name, value in attrs}
        if tag in ("nav", "navmap"):
            self._inside, self._depth = names.get("epub:type", "toc") == "toc", 0
        elif not self._inside or len(self.found) >= _MOST:
            return
        elif tag in ("ol", "navpoint"):
            self._depth += 1
        if tag == "navpoint":
            self._words = []
            self.found.append((self._words, self._depth, ""))
        elif tag == "a":
            self._words = []
            self.found.append((self._words, self._depth, names.get("href", "")))
        elif tag == "content" and self.found:
            words, level, _ = self.found[-1]
            self.found[-1] = (words, level, names.get("src", ""))
            self._words = None

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "content":
            self.handle_starttag(tag, attrs)

    def handle_endtag(self, tag: str) -> None:
        if tag in ("nav", "navmap"):
            self._inside = False
        elif tag in ("ol", "navpoint"):
            self._depth = max(0, self._depth - 1)
        elif tag in ("a", "navlabel"):
            self._words = None

    def handle_data(self, data: str) -> None:
        if self._words is not None and len(self._words) < _LONGEST:
            self._words.append(data[:_LONGEST])
