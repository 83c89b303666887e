"""Find what kind of line a sentence stands on from the text alone: readers of every format write headings, table rows,
list items and notes alike (``documents.readers.source``), and so do most plain texts."""

from __future__ import annotations

import re
from collections.abc import Sequence
from enum import IntEnum

LONGEST_HEADING = 14  # words


class Role(IntEnum):
    """Kinds of lines. CONTENTS: of a table of contents or an index. NOTE: foot- and endnotes, bibliographies."""

    PROSE = 0
    HEADING = 1
    ITEM = 2
    ROW = 3
    NOTE = 4
    CONTENTS = 5
    CODE = 6


_NOTE = re.compile(r"\[[^\]\s]{1,24}\]\s|\d{1,3}\. \| |\^?\d{1,3}\s?(?:See|Ibid|Id\.|Cf\.)\b|(?:Ibid|Id)\.,?\s")
_ITEM = re.compile(r"(?:[-*+•◦▪‣●○·]|\(?(?:\d{1,3}|[a-zA-Z]|[ivxIVX]{1,5})[.)])\s+\S")
_LEADERS = re.compile(r"(?:\.\s?){5}|…{2,}|(?:\s·){3}")
_PAGE_NUMBER = re.compile(r"\S\s+(?:\d{1,4}|[ivxlc]{1,6})\Z")
_CODE = re.compile(
    r"[;{}]\Z|\A(?:\$|>>>|#!|//|/\*|<\?|@)|\A(?:def|class|import|from|return|var|const|let|func|fn|public|private|SELECT|"
    r"INSERT|PRAGMA)\b.*[(:;=]|\A(?:while|for|if|elif|with|try|else)\b.*:\Z|\A</?\w++[^>]*+>\Z|\A[\w.\[\]'\"-]+\s*(?::=|=|\+=|->)\s*\S|\A(?=.*?\w\().*\)\Z"
)
_NUMBERED = re.compile(r"(?:\d{1,2}(?:\.\d{1,3})*\.?|[IVXLC]{1,7}\.|[A-Z](?:\.\d{1,3})*\.?|Chapter|CHAPTER|Section|"
                       r"Part|PART|Appendix|APPENDIX|Table|Figure)\s+\S")
_FIELD = re.compile(r"[A-Z][\w() /-]{1,30}: \S")  # "Published: 2 May 2011"
_ENDED = re.compile(r"[.!?:;,][\"'”’)\]]*\Z")
_REFERENCE = re.compile(r"https?://|\bdoi\b|\bet al\b|\(\d{4}\)|\bpp?\.\s?\d|\bvol\.|\bRFC \d+, ", re.IGNORECASE)


def line_roles(lines: Sequence[str]) -> list[Role]:
    """Return the role of each line (without the white space around it) of one document, in its order."""
    roles = [_role(line) for line in lines]
    for at, (line, role) in enumerate(zip(lines, roles, strict=True)):
        # A lone line of contents is a heading that ends in a number ("Act of 1996"); contents come in runs.
        if role is Role.CONTENTS and not _LEADERS.search(line):
            near = roles[max(0, at - 2) : at] + roles[at + 1 : at + 3]
            if near.count(Role.CONTENTS) < 2:
                roles[at] = Role.HEADING if len(line.split()) <= LONGEST_HEADING else Role.PROSE
        # So is a lone item that ends without a mark ("2. Fees"); lists have two.
        elif role is Role.ITEM and _is_numbered_title(line):
            beside = (other for other in (at - 1, at + 1) if 0 <= other < len(lines) and roles[other] is Role.ITEM)
            if not any(lines[other][0].isdigit() == line[0].isdigit() for other in beside):
                roles[at] = Role.HEADING
    return roles


def _is_numbered_title(line: str) -> bool:
    words = line.split()
    return (len(words) <= LONGEST_HEADING and _NUMBERED.match(line) is not None and words[1][0].isupper()
            and not _ENDED.search(line))


def _titled(words: Sequence[str]) -> bool:
    """Return whether all but small words begin with a capital: "Review and Takedowns", "5 - Term of the Licence"."""
    words = [word for word in words if word[0].isalpha() or word[0] in "([\"“"]
    return bool(words) and words[0][0].isupper() and all(not word[0].islower() or len(word) < 5 for word in words)


def _role(line: str) -> Role:
    if _LEADERS.search(line):
        return Role.CONTENTS
    if _NOTE.match(line):
        return Role.NOTE
    if " | " in line:
        return Role.ROW
    words = line.split()
    short = len(words) <= LONGEST_HEADING
    if short and _NUMBERED.match(line) and line[-1] in ".:" and _titled(words[1:]):
        return Role.HEADING
    if _ITEM.match(line) and not _CODE.search(line[:-1]):
        return Role.ITEM
    if _CODE.search(line) and not (len(words) > 5 and _ENDED.search(line) and not _CODE.search(line[:-1])):
        return Role.CODE
    if _FIELD.match(line):
        return Role.PROSE
    if short and _PAGE_NUMBER.search(line) and len(words) > 1 and not _ITEM.match(line):
        return Role.CONTENTS
    if short and not _ENDED.search(line) and (line[0].isupper() or _NUMBERED.match(line) or line[0].isdigit()):
        return Role.HEADING
    if len(words) < 60 and len(_REFERENCE.findall(line)) >= 2:
        return Role.NOTE
    if _ITEM.match(line):
        return Role.ITEM
    return Role.PROSE
