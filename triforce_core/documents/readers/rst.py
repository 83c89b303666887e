"""reStructuredText by docutils: its tree as text. Nothing of it reaches outside the file: no inclusion, no raw output.

Directives and roles that docutils does not know (Sphinx's, a project's own) are read for their words."""

from __future__ import annotations

import io
import re
import warnings
from collections import defaultdict
from collections.abc import Callable
from typing import Any, ClassVar

from docutils import frontend, nodes, utils
from docutils.parsers.rst import Directive, Parser, directives, languages, roles
from docutils.statemachine import StringList

from ..sections import placed, split_sections
from .blocks import Blocks
from .html import html_text, tidy
from .inline_html import raised
from .plain_text import decode_text, numbered
from .source import Raw, Source
from .text_lines import text_blocks

_DIRECTIVE = re.compile(r"^[ \t]*\.\.[ \t]+(?:\|[^|\n]{1,200}\|[ \t]+)?([\w:+.-]{1,80})[ ]?::(?:\s|$)", re.MULTILINE)
_ROLE = re.compile(r":([\w:+.-]{1,80}):`|`:([\w:+.-]{1,80}):")
_HEADER = re.compile(r"\A\s*[A-Za-z][\w-]*: \S.*\n(?:[ \t]+\S|[A-Za-z][\w-]*: )")  # as of a letter or a PEP
_TARGET = re.compile(r"(?<!\s)\s*+<[^<>]+>\Z")
_OTHER_FILES = re.compile(
    r"^[ \t]*(?:\.\.[ \t]+(?:\|[^|\n]{1,200}\|[ \t]+)?(?:literal)?include::|:file:|:url:)", re.MULTILINE
)
_CODE = ("code code-block sourcecode literalinclude doctest testcode testoutput testsetup prompt productionlist "
         "graphviz mermaid plantuml ipython console digraph graph").split()
_UNSEEN = "index currentmodule default-domain highlight tabularcolumns include".split()
_SAYS = {"versionadded": "Added in version", "versionchanged": "Changed in version",
         "deprecated": "Deprecated since version", "versionremoved": "Removed in version"}
_STARTS = re.compile(r"(?:^|\s)[*`|_:]\S")
_TABLE = re.compile(r"^[ \t]*(?:\+[-=]{2}|={2,} +=)", re.MULTILINE)  # its cells are read one by one
_MOST_STARTS = 5_000  # in a paragraph: the time for marks that are not closed grows with the square of their number
_LOST = 3  # from this level on, docutils leaves the source of what it could not read in its message
_LETTERS = "abcdefghijklmnopqrstuvwxyz"


def read_rst(source: Source) -> Raw:
    text, warning = decode_text(source.path.read_bytes(), source.name)
    source.check_characters(len(text))
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    told = [warning] if warning else []
    if _OTHER_FILES.search(text):
        told.append("This file includes other files, which were not read.")
    title = ""
    try:
        if any(sum(1 for _ in _STARTS.finditer(part)) > _MOST_STARTS for part in text.split("\n\n")
               if not _TABLE.search(part)):
            raise ValueError("more marks in a paragraph than docutils reads in reasonable time")
        blocks, title = rst_blocks(text)
    except (RecursionError, ArithmeticError, AttributeError, LookupError, TypeError, ValueError):
        blocks = text_blocks(text)  # nested too deeply, or stranger than docutils expects
        told.append("The markup of this file could not be understood: it was read as plain text.")
    body, headings = blocks.finish()
    sections = split_sections(body, {words for words, _ in headings})
    return Raw("rst", "rst", title or next((words for words, _ in headings), ""), numbered(sections), warnings=told,
               headings=placed(headings, sections), laid_out=True)


def rst_blocks(text: str) -> tuple[Blocks, str]:
    """The blocks of a text, and its title as its header has it ("": none). Raises what docutils raises."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        settings = frontend.get_default_settings(Parser)
    for name, value in {
        "report_level": 5, "halt_level": 6, "warning_stream": io.StringIO(), "file_insertion_enabled": False,
        "raw_enabled": False, "syntax_highlight": "none", "line_length_limit": max(10_000, len(text)),
        "trim_footnote_reference_space": True,
    }.items():  # fmt: skip
        setattr(settings, name, value)
    document = utils.new_document("document", settings)
    _make_known(text, document)
    Parser(rfc2822=_HEADER.match(text) is not None).parse(text, document)
    layout = _Layout(document)
    layout.children(document)
    return layout.blocks, layout.title


def _make_known(text: str, document: nodes.document) -> None:
    """Every directive and role that the text uses and docutils lacks gets a reading of its own."""
    english = languages.get_language("en")
    for name in {*_CODE, *_UNSEEN, "raw"}:
        kind = _Code if name in _CODE else _Markup if name == "raw" else _Unseen
        directives.register_directive(name, kind)
    for name in {name.lower() for name in _DIRECTIVE.findall(text)}:
        if directives.directive(name, english, document)[0] is None:
            directives.register_directive(name, _Anything)
    for name in ("pep", "rfc"):
        roles.register_local_role(name, _numbered_role)
    for name in {(before or behind).lower() for before, behind in _ROLE.findall(text)}:
        if roles.role(name, english, 0, document.reporter)[0] is None:
            roles.register_local_role(name, _words_of_role)


def _words_of_role(name: str, rawtext: str, text: str, lineno: int, inliner: Any, options: Any = None,
                   content: Any = None) -> tuple[list[nodes.Node], list[nodes.Node]]:
    """:ref:`Words <target>` -> Words; :class:`~package.Name` -> Name."""
    words = _TARGET.sub("", utils.unescape(text)) or text
    if words.startswith("~"):
        words = words.rpartition(".")[2].lstrip("~")
    return [nodes.inline(rawtext, words.removeprefix("!"))], []


def _numbered_role(name: str, rawtext: str, text: str, lineno: int, inliner: Any, options: Any = None,
                   content: Any = None) -> tuple[list[nodes.Node], list[nodes.Node]]:
    """:pep:`668#section` -> PEP 668."""
    words = utils.unescape(text)
    own = _TARGET.search(words) is not None
    return [nodes.inline(rawtext, _TARGET.sub("", words) if own else f"{name.upper()} {words.partition('#')[0]}")], []


class _Anything(Directive):
    """A directive that docutils does not know: what it is given, then what stands in it."""

    optional_arguments = 1
    final_argument_whitespace = True
    has_content = True
    option_spec: ClassVar[Any] = defaultdict(lambda: directives.unchanged, any=directives.unchanged)

    def given(self) -> tuple[str, list[str]]:
        """What stands on the directive's own line, and the lines below it that docutils takes for its argument, for no
        blank line stands before them."""
        lines = "\n".join(self.arguments).split("\n") if self.arguments else []
        on_its_line = self.block_text.partition("\n")[0].partition("::")[2].strip() != ""
        return (lines[0], lines[1:]) if on_its_line and lines else ("", lines)

    def run(self) -> list[nodes.Node]:
        said, below = self.given()
        if self.name in _SAYS:
            version, _, rest = " ".join([said, *below]).partition(" ")
            said, below = f"{_SAYS[self.name]} {version}: {rest}".rstrip(": "), []
        elif said:
            said, below = "\n".join([said, *below]), []
        found: list[nodes.Node] = []
        if said:
            words, _ = self.state.inline_text(said, self.lineno)
            found.append(nodes.paragraph(said, "", *words))
        inside = nodes.container()
        content = StringList([*below, *([""] if below else []), *self.content], source="")
        self.state.nested_parse(content, self.content_offset, inside)
        return [*found, inside]


class _Code(_Anything):
    def run(self) -> list[nodes.Node]:
        _, below = self.given()  # on the line itself stands a language or a file
        code = "\n".join([*below, *([""] if below and self.content else []), *self.content])
        caption = self.options.get("caption") or ""
        found: list[nodes.Node] = [nodes.paragraph(caption, caption)] if caption else []
        return [*found, nodes.literal_block(code, code)] if code.strip() else found


class _Markup(_Anything):
    def run(self) -> list[nodes.Node]:
        words = tidy(html_text("\n".join(self.content)).text()) if "html" in self.arguments else ""
        return [nodes.paragraph(part, part) for part in words.split("\n\n") if part]


class _Unseen(_Anything):
    def run(self) -> list[nodes.Node]:
        return []


class _Layout:
    """Walks over the tree of a document."""

    def __init__(self, document: nodes.document) -> None:
        self.blocks, self.title = Blocks(), ""
        self._document = document
        self._level = 0
        self._item = ""  # marker of the item whose first line is still to come
        self._numbered = 0  # notes that number themselves
        self._kinds: dict[str, Callable[[Any], None]] = {
            "section": self._section, "title": self._heading, "subtitle": self._heading, "paragraph": self._paragraph,
            "rubric": self._paragraph, "attribution": self._paragraph, "caption": self._paragraph,
            "bullet_list": self._list, "enumerated_list": self._list, "term": self._term, "field": self._field,
            "option_list_item": self._field, "literal_block": self._code, "doctest_block": self._code,
            "math_block": self._code, "line_block": self._lines, "table": self._table, "footnote": self._note,
            "citation": self._note, "image": self._image, "reference": self._paragraph,
            "system_message": self._message, "comment": self._nothing, "substitution_definition": self._nothing,
            "target": self._nothing, "pending": self._nothing, "label": self._nothing, "raw": self._nothing,
            "meta": self._nothing, "docinfo": self.children,
        }  # fmt: skip

    def children(self, node: nodes.Element) -> None:
        for child in node.children:
            if isinstance(child, nodes.Element):
                self._kinds.get(type(child).__name__, self.children)(child)

    def _nothing(self, node: nodes.Element) -> None: ...

    def _section(self, node: nodes.Element) -> None:
        self._level += 1
        self.children(node)
        self._level -= 1

    def _heading(self, node: nodes.Element) -> None:
        if isinstance(node.parent, nodes.section):
            self.blocks.heading(self._words(node), self._level)
        else:  # of a topic, a sidebar or an admonition
            self._paragraph(node)

    def _paragraph(self, node: nodes.Element) -> None:
        words = self._words(node)
        if self._item:
            self.blocks.item(self._item, words)
            self._item = ""
        else:
            self.blocks.paragraph(words)

    def _list(self, node: nodes.Element) -> None:
        for number, item in enumerate(node.children, int(node.get("start", 1))):
            self._item = "-" if isinstance(node, nodes.bullet_list) else _marker(node, number)
            self.children(item)
        self._item = ""

    def _term(self, node: nodes.Element) -> None:
        beside = [self._words(other) for other in node.parent.children if isinstance(other, nodes.classifier)]
        self.blocks.term(" : ".join([self._words(node), *beside]))

    def _field(self, node: nodes.Element) -> None:
        name, body = (self._all_words(child) for child in node.children[:2])
        mark = ":" if isinstance(node, nodes.field) else ""
        if name.lower() == "title" and not self._level:
            self.title = self.title or body
        self.blocks.field(f"{name}{mark} {body}")

    def _code(self, node: nodes.Element) -> None:
        self.blocks.code(self._words(node, lines=True).split("\n"))

    def _lines(self, node: nodes.Element) -> None:
        self.blocks.paragraph("\n".join(self._words(line) for line in node.findall(nodes.line)))

    def _table(self, node: nodes.Element) -> None:
        for title in node.findall(nodes.title):
            self._paragraph(title)
        for number, row in enumerate(node.findall(nodes.row)):
            self.blocks.row([self._all_words(entry) for entry in row.children], first=not number)

    def _note(self, node: nodes.Element) -> None:
        label = next((child.astext() for child in node.children if isinstance(child, nodes.label)), "")
        if not label and not node["names"]:
            self._numbered += 1
        mark = label or (node["names"][0] if node["names"] else str(self._numbered))
        body = [self._all_words(child) for child in node.children if not isinstance(child, nodes.label)]
        self.blocks.note(mark, " ".join(body))

    def _image(self, node: nodes.Element) -> None:
        self.blocks.paragraph(node.get("alt", ""))

    def _message(self, node: nodes.Element) -> None:
        if node.get("level", 0) >= _LOST:
            for source in node.findall(nodes.literal_block):
                self.blocks.code(source.astext().split("\n"))

    def _all_words(self, node: nodes.Node) -> str:
        """On one line, whatever stands in it."""
        if not isinstance(node, nodes.Element) or isinstance(node, (nodes.system_message, nodes.comment)):
            return ""
        if isinstance(node, nodes.option):
            return node.astext()
        if isinstance(node, nodes.TextElement):
            return " ".join(self._words(node).split())
        return " ".join(filter(None, map(self._all_words, node.children)))

    def _words(self, node: nodes.Node, lines: bool = False) -> str:
        """The text of a paragraph. lines: as its line breaks have it."""
        out: list[str] = []
        self._collect(node, out)
        text = "".join(out)
        return text if lines else text.replace("\n", " ")

    def _collect(self, node: nodes.Node, out: list[str]) -> None:
        for child in node.children:
            if isinstance(child, nodes.Text):
                out.append(child.astext())
            elif isinstance(child, nodes.substitution_reference):
                name = child.get("refname", "")
                known = self._document.substitution_defs
                found = known.get(name) or known.get(self._document.substitution_names.get(name.lower(), ""))
                out.append(f"|{child.astext()}|" if found is None else found.astext())
            elif isinstance(child, nodes.citation_reference):
                out.append(f"[{child.astext()}]")
            elif isinstance(child, nodes.superscript):
                out.append(raised(child.astext(), out[-1] if out else ""))
            elif isinstance(child, nodes.image):
                out.append(child.get("alt", ""))
            elif not isinstance(child, (nodes.footnote_reference, nodes.raw, nodes.system_message)):
                self._collect(child, out)


def _marker(node: nodes.Element, number: int) -> str:
    kind = node.get("enumtype", "arabic")
    name = str(number)
    if kind.endswith("alpha") and number <= len(_LETTERS):
        name = _LETTERS[number - 1]
    elif kind.endswith("roman"):
        name = _roman(min(number, 999))
    name = name.upper() if kind.startswith("upper") else name
    return f"{node.get('prefix', '')}{name}{node.get('suffix', '.')}"


def _roman(number: int) -> str:
    """3 -> "iii"."""
    steps = ((100, "c"), (90, "xc"), (50, "l"), (40, "xl"), (10, "x"), (9, "ix"), (5, "v"), (4, "iv"), (1, "i"))
    digits = []
    for value, sign in steps:
        digits.append(sign * (number // value))
        number %= value
    return "".join(digits)
