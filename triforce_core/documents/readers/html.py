"""HTML with the standard library's parser: flat (no recursion), so that nesting cannot hurt."""

from __future__ import annotations

import re
from html.parser import HTMLParser

from ..sections import placed, split_sections
from .plain_text import decode_text, numbered
from .source import Raw, Source

_SKIPPED = frozenset(
    {"script", "style", "noscript", "template", "svg", "math", "iframe", "object", "select", "button", "nav"}
)
_VOID = frozenset("area base br col embed hr img input link meta param source track wbr".split())
_BLOCKS = frozenset(
    "p div section article header footer main aside ul ol dl dt dd table caption blockquote figure figcaption form "
    "fieldset address h1 h2 h3 h4 h5 h6 hr body html pre".split()
)
_LINES = frozenset({"li", "tr", "br"})
_HEADINGS = frozenset({"h1", "h2", "h3", "h4", "h5", "h6"})
_MOST_HEADINGS, _LONGEST_HEADING = 20_000, 300
_IMPLIED_END = frozenset("p li dt dd tr td th option".split())  # the next one of its kind ends it
_HIDING = re.compile(r"display\s*:\s*none|visibility\s*:\s*hidden|font-size\s*:\s*0(?![.\d])", re.IGNORECASE)
_CHARSET = re.compile(rb"<meta[^>]{0,200}charset\s*=\s*[\"']?\s*([\w-]{2,30})", re.IGNORECASE)
_SPACES = re.compile(r"\s+")


class TextExtractor(HTMLParser):
    """Feeds on markup, collects what a reader would see: blank lines between paragraphs, a line per item or row."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.title, self.language = "", ""
        self.headings: list[tuple[str, int]] = []  # words, level
        self._out: list[str] = []
        self._skip = ""  # the tag whose content is being skipped
        self._skip_depth = 0
        self._in_title = False
        self._heading: list[str] | None = None  # words of the one that is being read
        self._pre = 0
        self._space = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if self._skip and tag == self._skip and tag in _IMPLIED_END:
            self._skip = ""
        if self._skip:
            self._skip_depth += tag == self._skip
            return
        if tag in _VOID and tag not in _LINES and tag not in _BLOCKS:
            return
        names = dict(attrs)
        if tag in _SKIPPED or (tag not in _VOID and ("hidden" in names or _HIDING.search(names.get("style") or ""))):
            self._skip, self._skip_depth = tag, 1
        elif tag == "title":
            self._in_title = not self.title
        else:
            if tag == "html":
                self.language = names.get("lang") or names.get("xml:lang") or ""
            self._break(tag)
            if tag in _HEADINGS:
                self._heading = []
            self._pre += tag == "pre"
            if tag == "li":
                self._out.append("- ")
            elif tag in ("td", "th"):
                self._cell()

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if not self._skip:
            self._break(tag)

    def handle_endtag(self, tag: str) -> None:
        if self._skip:
            self._skip_depth -= tag == self._skip
            if not self._skip_depth:
                self._skip = ""
            return
        if tag == "title":
            self._in_title = False
        elif tag in _HEADINGS and self._heading is not None:
            if len(self.headings) < _MOST_HEADINGS:
                self.headings.append((" ".join("".join(self._heading).split())[:_LONGEST_HEADING], int(tag[1])))
            self._heading = None
        self._pre = max(0, self._pre - (tag == "pre"))
        if tag not in _LINES:
            self._break(tag)

    def handle_data(self, data: str) -> None:
        if self._skip:
            return
        if self._in_title:
            self.title += data[:500]
            return
        if self._pre:
            self._out.append(data)
            return
        words = _SPACES.sub(" ", data)
        if not words.strip():
            self._space = self._space or bool(words)
            return
        ending = self._out[-1][-1:] if self._out else "\n"
        if (self._space or words[0] == " ") and ending not in ("\n", " ", ""):
            self._out.append(" ")
        self._out.append(words.strip())
        self._space = words[-1] == " "
        if self._heading is not None and len(self._heading) < _LONGEST_HEADING:
            self._heading.append(words)

    def text(self) -> str:
        return "".join(self._out)

    def _break(self, tag: str) -> None:
        if tag in _BLOCKS:
            if self._out and self._out[-1] != "\n\n":
                self._out.append("\n\n")
            self._space = False
        elif tag in _LINES:
            self._out.append("\n")
            self._space = False

    def _cell(self) -> None:
        if self._out and not self._out[-1].endswith("\n"):
            self._out.append(" | ")
            self._space = False


def html_text(markup: str) -> TextExtractor:
    extractor = TextExtractor()
    extractor.feed(markup)
    extractor.close()
    return extractor


def decode_html(data: bytes, name: str) -> tuple[str, str]:
    """By byte order mark, by what the page says of itself, or by trying."""
    declared = _CHARSET.search(data[:4096])
    if declared and not data.startswith((b"\xff\xfe", b"\xfe\xff", b"\xef\xbb\xbf")):
        try:
            return data.decode(declared[1].decode()), ""
        except (LookupError, UnicodeDecodeError, ValueError):
            pass
    return decode_text(data, name)


def read_html(source: Source) -> Raw:
    markup, warning = decode_html(source.path.read_bytes(), source.name)
    source.check_characters(len(markup))
    extractor = html_text(markup)
    sections = split_sections(tidy(extractor.text()))
    title = extractor.title.strip() or next((words for words, level in extractor.headings if level < 3), "")
    return Raw("html", "html", title, numbered(sections), warnings=[warning] if warning else [],
               headings=placed(extractor.headings, sections), language=extractor.language)


def tidy(text: str) -> str:
    """No blanks at line ends, at most one blank line."""
    return re.sub(r"\n{3,}", "\n\n", "\n".join(line.strip() for line in text.split("\n"))).strip()
