"""Read reStructuredText by docutils, its tree written as one of HTML, without inclusions or raw output.

Directives and roles that docutils does not know (Sphinx's, a project's own) are read for their words."""

from __future__ import annotations

import io
import re
import warnings
from collections import defaultdict
from dataclasses import replace
from typing import Any, ClassVar

from docutils import frontend, nodes, utils
from docutils.parsers.rst import Directive, Parser, directives, languages, roles
from docutils.statemachine import StringList
from justhtml.dom import Node

from .html import HtmlText, html_text
from .html_tree import Builder, numeral
from .plain_text import decoded, text_raw
from .source import Raw, Source

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
_ELEMENTS = {
    "paragraph": "p", "rubric": "p", "attribution": "p", "caption": "p", "bullet_list": "ul", "list_item": "li",
    "definition_list": "dl", "term": "dt", "definition": "dd", "literal_block": "pre", "doctest_block": "pre",
    "math_block": "pre", "table": "table", "row": "tr", "entry": "td", "superscript": "sup", "subscript": "sub",
}  # fmt: skip
_NOTHING = frozenset("comment substitution_definition pending label raw meta footnote_reference".split())


def read_rst(source: Source) -> Raw:
    text, notices = decoded(source)
    if _OTHER_FILES.search(text):
        notices.append("This file includes other files, which were not read.")
    title = ""
    try:
        if any(sum(1 for _ in _STARTS.finditer(part)) > _MOST_STARTS for part in text.split("\n\n")
               if not _TABLE.search(part)):
            raise ValueError("more marks in a paragraph than docutils reads in reasonable time")
        root, title = rst_tree(text)
        page = HtmlText(root)
    except (RecursionError, ArithmeticError, AttributeError, LookupError, TypeError, ValueError):
        notices.append("The markup of this file could not be understood: it was read as plain text.")
        return replace(text_raw(text, notices), kind="rst", reader="rst 3")
    title = title or next((words for words, _ in page.headings), "")
    return page.raw("rst", "rst 3", title, notices, keep_titles=True)


def rst_tree(text: str) -> tuple[Node, str]:
    """Return a text as a tree of HTML, and its title as its header has it ("": none). Raises what docutils raises."""
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
    writer = _Writer(document)
    writer.children(document)
    return writer.tree.root, writer.title


def _make_known(text: str, document: nodes.document) -> None:
    """Give every directive and role that the text uses and docutils lacks a reading of its own."""
    english = languages.get_language("en")
    for name in {*_CODE, *_UNSEEN, "raw"}:
        directives.register_directive(name, _Reading)
    for name in {name.lower() for name in _DIRECTIVE.findall(text)}:
        if directives.directive(name, english, document)[0] is None:
            directives.register_directive(name, _Reading)
    for name in ("pep", "rfc"):
        roles.register_local_role(name, _role)
    for name in {(before or behind).lower() for before, behind in _ROLE.findall(text)}:
        if roles.role(name, english, 0, document.reporter)[0] is None:
            roles.register_local_role(name, _role)


def _role(name: str, rawtext: str, text: str, lineno: int, inliner: Any, options: Any = None,
          content: Any = None) -> tuple[list[nodes.Node], list[nodes.Node]]:
    """:ref:`Words <target>` -> Words; :class:`~package.Name` -> Name; :pep:`668#section` -> PEP 668."""
    target = utils.unescape(text)
    words = _TARGET.sub("", target)
    if name.lower() in ("pep", "rfc"):
        words = words if words != target else f"{name.upper()} {target.partition('#')[0]}"
    else:
        words = words or text
        words = words.rpartition(".")[2].lstrip("~") if words.startswith("~") else words.removeprefix("!")
    return [nodes.inline(rawtext, words)], []


class _Reading(Directive):
    """A directive that docutils does not know, or knows as something else than words."""

    optional_arguments = 1
    final_argument_whitespace = True
    has_content = True
    option_spec: ClassVar[Any] = defaultdict(lambda: directives.unchanged, any=directives.unchanged)

    def run(self) -> list[nodes.Node]:
        name = self.name.lower()
        if name in _UNSEEN:
            return []
        if name == "raw":
            words = html_text("\n".join(self.content)).text() if "html" in self.arguments else ""
            return [nodes.paragraph(part, part) for part in words.split("\n\n") if part]
        # docutils takes lines below the directive for its argument where no blank line stands before them.
        lines = "\n".join(self.arguments).split("\n") if self.arguments else []
        own = 1 if self.block_text.partition("\n")[0].partition("::")[2].strip() else 0
        return self._code(lines[own:]) if name in _CODE else self._words(name, "".join(lines[:own]), lines[own:])

    def _code(self, below: list[str]) -> list[nodes.Node]:
        """Return code below its caption. On the directive's own line stands a language or a file."""
        code = "\n".join([*below, *([""] if below and self.content else []), *self.content])
        caption = self.options.get("caption") or ""
        found: list[nodes.Node] = [nodes.paragraph(caption, caption)] if caption else []
        return [*found, nodes.literal_block(code, code)] if code.strip() else found

    def _words(self, name: str, argument: str, below: list[str]) -> list[nodes.Node]:
        """Return what the directive is given as a paragraph, then what stands in it."""
        if name in _SAYS:
            version, _, rest = " ".join([argument, *below]).partition(" ")
            argument, below = f"{_SAYS[name]} {version}: {rest}".rstrip(": "), []
        elif argument:
            argument, below = "\n".join([argument, *below]), []
        found: list[nodes.Node] = []
        if argument:
            words, _ = self.state.inline_text(argument, self.lineno)
            found.append(nodes.paragraph(argument, "", *words))
        inside = nodes.container()
        content = StringList([*below, *([""] if below else []), *self.content], source="")
        self.state.nested_parse(content, self.content_offset, inside)
        return [*found, inside]


class _Writer:
    """Writes the tree of a document as a tree of HTML."""

    def __init__(self, document: nodes.document) -> None:
        self.tree, self.title = Builder(), ""
        self._document = document
        self._level = 0  # of sections
        self._flat = 0  # inside fields, which are a line each
        self._numbered = 0  # notes that number themselves

    def children(self, node: nodes.Element, name: str = "", attributes: dict[str, str] | None = None) -> None:
        """Write what stands in a node, in an element of that name if it has one."""
        if name:
            self.tree.open(name, attributes)
            element = self.tree.here
        for child in node.children:
            self._write(child)
        if name:
            self.tree.here = element.parent or self.tree.root

    def _write(self, node: Any) -> None:
        kind = type(node).__name__
        own = getattr(self, f"_{kind}", None)
        if own is not None:
            own(node)
        elif kind not in _NOTHING:
            name = _ELEMENTS.get(kind, "")
            self.children(node, "" if self._flat else name)
            if name and self._flat:
                self.tree.text(" ")

    def _Text(self, node: nodes.Text) -> None:
        self.tree.text(node.astext())

    def _section(self, node: nodes.Element) -> None:
        self._level += 1
        self.children(node)
        self._level -= 1

    def _title(self, node: nodes.Element) -> None:  # also of a topic, a sidebar, a table or an admonition
        self.children(node, f"h{min(self._level, 6)}" if isinstance(node.parent, nodes.section) else "p")

    _subtitle = _title

    def _enumerated_list(self, node: nodes.Element) -> None:
        self.tree.open("ol")
        for number, item in enumerate(node.children, int(node.get("start", 1))):
            written = numeral(number, node.get("enumtype", "arabic"))
            self.children(item, "li", {"data-mark": f"{node.get('prefix', '')}{written}{node.get('suffix', '.')}"})
        self.tree.close("ol")

    def _classifier(self, node: nodes.Element) -> None:
        list_item = self.tree.here
        if not self._flat:
            self.tree.here = (list_item.children or [])[-1]  # it stands behind its term
        self.tree.text(" : ")
        self.children(node)
        self.tree.here = list_item

    def _field_list(self, node: nodes.Element) -> None:
        self.tree.open("p")
        for field in node.children:
            name, body = field.children[:2]
            if name.astext().lower() == "title" and not self._level:
                self.title = self.title or " ".join(body.astext().split())
            self._flat += 1
            self.children(name)
            self.tree.text(": " if isinstance(field, nodes.field) else " ")
            self.children(body)
            self._flat -= 1
            self.tree.element("br")
        self.tree.close("p")

    _option_list = _field_list

    def _option(self, node: nodes.Element) -> None:
        self.tree.text(f"{node.astext()} ")

    def _line_block(self, node: nodes.Element) -> None:
        self.children(node, "" if isinstance(node.parent, nodes.line_block) else "p")

    def _line(self, node: nodes.Element) -> None:
        self.children(node)
        self.tree.element("br")

    def _footnote(self, node: nodes.Element) -> None:
        label = next((child.astext() for child in node.children if isinstance(child, nodes.label)), "")
        if not label and not node["names"]:
            self._numbered += 1
        mark = label or (node["names"][0] if node["names"] else str(self._numbered))
        self.children(node, "aside", {"role": "doc-footnote", "data-mark": mark})

    _citation = _footnote

    def _image(self, node: nodes.Element) -> None:
        block = not isinstance(node.parent, nodes.TextElement)
        self.tree.open("p" if block else "span")
        self.tree.text(node.get("alt", ""))
        self.tree.element("img")
        self.tree.close(self.tree.here.name)

    def _system_message(self, node: nodes.Element) -> None:
        lost = node.get("level", 0) >= _LOST and not isinstance(node.parent, nodes.entry)
        for source in node.findall(nodes.literal_block) if lost else ():
            self.tree.element("pre", source.astext())

    def _substitution_reference(self, node: nodes.Element) -> None:
        known, name = self._document.substitution_defs, node.get("refname", "")
        found = known.get(name) or known.get(self._document.substitution_names.get(name.lower(), ""))
        self.tree.text(f"|{node.astext()}|" if found is None else found.astext())

    def _citation_reference(self, node: nodes.Element) -> None:
        self.tree.text(f"[{node.astext()}]")
