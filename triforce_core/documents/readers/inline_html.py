"""Tags of HTML that stand inside a line of Markdown: what a reader sees of them."""

from __future__ import annotations

import re
from collections import Counter

_NAMES = frozenset(
    "a abbr acronym address area article aside audio b bdi bdo big blockquote br button caption center cite code col "
    "colgroup data datalist dd del details dfn div dl dt em embed fieldset figcaption figure font footer form h1 h2 h3 "
    "h4 h5 h6 header hr i iframe img input ins kbd label legend li link main map mark meta meter nav nobr noscript "
    "object ol optgroup option output p param picture pre progress q rp rt ruby s samp script section select small "
    "source span strike strong style sub summary sup svg table tbody td template textarea tfoot th thead time tr track "
    "tt u ul var video wbr".split()
)
_VOID = frozenset("area br col embed hr img input link meta param source track wbr".split())
_TAG = re.compile(r"<(/?)([A-Za-z][A-Za-z0-9-]*+)(.*?)/?>", re.DOTALL)
_ALT = re.compile(r"\balt\s*=\s*(?:\"([^\"]*)\"|'([^']*)')", re.IGNORECASE)
_ORDINAL = re.compile(r"st|nd|rd|th|er|re|e|o|a|ème|TM|SM|®|™")
_MARK = re.compile(r"\[?(?:\d{1,3}|[*†‡§]{1,3})\]?(?:, ?\[?\d{1,3}\]?)*")
_SIMPLE = re.compile(r"[-+−]?\w+")
_LONG_WORD = re.compile(r"[^\W\d_]{4}\Z")  # no unit, no name of a variable


def tag_text(tag: str, opened: Counter[str], closing: Counter[str]) -> tuple[str, bool, str]:
    """(its name, whether it closes an element, what it shows). What looks like a tag and is none, such as the type in
    "a list of <T>", shows itself. opened: elements that are open, kept here; closing: end tags of the paragraph."""
    found = _TAG.fullmatch(tag)
    if not found:
        return "", False, ""  # a comment or a declaration
    name, attributes = found[2].lower(), found[3]
    if found[1]:
        opened[name] -= 1
        known = name in _NAMES and opened[name] >= 0
        return name, True, "" if known else tag
    if name == "br":
        return name, False, "\n"
    if name not in _NAMES or not (name in _VOID or closing[name] > opened[name] or "=" in attributes or name == "p"):
        return name, False, tag
    opened[name] += 1
    alt = _ALT.search(attributes) if name == "img" else None
    return name, False, (alt[1] or alt[2] or "") if alt else ""


def raised(text: str, before: str) -> str:
    """A superscript: "^30"; "th" as it is; nothing for the mark of a note, which stands behind a word or a stop.
    before: the text that it follows."""
    words = text.strip()
    if not words or _ORDINAL.fullmatch(words):
        return words
    if _MARK.fullmatch(words) and (not before[-1:].isalnum() or _LONG_WORD.search(before)):
        return ""
    return f"^{words}" if _SIMPLE.fullmatch(words) else f"^({words})"
