"""Turn a formula of a DOCX (OMML) into the tree that MathML would give, which the HTML reader sets on a line."""

from __future__ import annotations

from xml.etree.ElementTree import Element

from justhtml.dom import Node

from .docx_styles import value
from .html_tree import Builder

_ELEMENTS = {"sSup": "msup", "sSub": "msub", "sSubSup": "msubsup", "sPre": "mpre", "f": "mfrac", "rad": "mroot",
             "limLow": "munder", "limUpp": "mover", "m": "mtable", "eqArr": "mtable", "mr": "mtr", "func": "mtr",
             "nary": "munderover"}
_PARTS = frozenset("e sup sub num den lim fName mr".split())
_BRACKETS = {"begChr": "(", "sepChr": "|", "endChr": ")"}


def formula(element: Element, block: bool = False) -> Node:
    """Return the tree of an oMath element. block: it stands on a line of its own."""
    tree = Builder("math", {"display": "block"} if block else None)
    _write(element, tree)
    return tree.root


def _write(element: Element, tree: Builder) -> None:
    for child in element:
        tag = child.tag
        if tag in _ELEMENTS:
            _structure(child, tree)
        elif tag == "d":
            first, between, last = (_sign(child, f"dPr/{name}", sign) for name, sign in _BRACKETS.items())
            for number, part in enumerate(child.findall("e")):
                tree.text(between if number else first)
                _write(part, tree)
            tree.text(last)
        elif tag == "t":
            tree.element("mi", child.text or "")
        else:
            _write(child, tree)
        if tag == "acc":
            tree.text(_sign(child, "accPr/chr", "\u0302"))


def _structure(element: Element, tree: Builder) -> None:
    """Write an element whose parts have places of their own, such as a fraction."""
    name = _ELEMENTS[element.tag]
    parts = [part for part in element if part.tag in _PARTS]
    behind = parts.pop() if element.tag == "nary" and parts else None  # what is summed
    if name == "mroot":
        parts.append(next(iter(element.findall("deg")), Element("deg")))
    tree.open(name)
    if element.tag == "nary":
        tree.element("mo", _sign(element, "naryPr/chr", "∫"))
    for part in parts:
        if part.tag == "mr":
            _structure(part, tree)
            continue
        tree.open("mrow")
        row = tree.here
        _write(part, tree)
        tree.here = row.parent or tree.root
    tree.close(name)
    if behind is not None:
        tree.text(" ")
        _write(behind, tree)


def _sign(element: Element, path: str, usual: str) -> str:
    """Return the character that a formula names, "" for none; the usual one where it names none."""
    return usual if element.find(path) is None else value(element, path)
