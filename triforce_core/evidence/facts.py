"""Records of a document's first page: who wrote it, when, for which court, in which version. They stand as passages
beside the others, so that a question about them is found like every other."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator

from .passages import Text, Unit

_FIRST_PAGES, _LINES, _LONGEST = 2, 60, 18  # pages and lines that are looked at; words of a line
_MONTH = (r"(?:jan(?:uary)?|feb(?:ruary)?|mar(?:ch)?|apr(?:il)?|may|june?|july?|aug(?:ust)?|sept?(?:ember)?|"
          r"oct(?:ober)?|nov(?:ember)?|dec(?:ember)?)\.?")
_NAME = r"[A-Z][\w.'’-]*(?:,? (?:[A-Z][\w.'’-]*|and|de|von|van|of|&)){1,20}"
_RECORDS = tuple((name, re.compile(pattern, flags)) for name, pattern, flags in (
    ("Author, who wrote this", r"\A(?i:by|written by|prepared by|submitted by|edited by|reported by|compiled by|"
     rf"(?:authors?|editors?|prepared for|contributors?)\s*:)\s+{_NAME}", 0),
    ("Date, when it was written or published", rf"\b{_MONTH} (?:\d{{1,2}}(?:st|nd|rd|th)?,? )?\d{{4}}\b|"
     rf"\b\d{{1,2}}(?:st|nd|rd|th)?\.? {_MONTH},? \d{{4}}\b|\b\d{{4}}-\d\d-\d\d\b|\b\d{{1,2}}-{_MONTH}-\d{{4}}\b|"
     r"\A(?:published|date|created|updated|posted|effective|filed|decided|argued|issued|last modified)\b.{0,12}\d{4}",
     re.IGNORECASE),
    ("Court that decided this case", r"\b(?:court of (?:appeals?|claims|justice)|supreme court|district court|"
     r"high court|court for the|tribunal|circuit)\b", re.IGNORECASE),
    ("Number of the case or document", r"\A(?:case |docket |document |report |order )?nos?\. ?[\w-]*\d", re.IGNORECASE),
    ("Version of this document", r"\b(?:version|revision|release|edition)\b.{0,12}\d|\bv\d+\.\d|\b(?:first|second|"
     r"third|\d+(?:st|nd|rd|th)) edition\b", re.IGNORECASE),
    ("Publisher, who issued this", r"\A(?i:published by|issued by|a publication of|publisher\s*:)\s+[A-Z]|"
     r"\A(?:Copyright|©|\([cC]\))\W.{0,40}[A-Z]", 0),
    ("Judge who wrote the opinion", r"\bJudges?\b|\bJustice [A-Z]\w+ (?:delivered|filed|announced)\b", 0),
))  # fmt: skip

# The record that a question asks for, and the words that it may hold beside and still speak of the document itself:
# "the letter quoted on page 5" does not.
_ASKED = tuple((record, re.compile(pattern)) for record, pattern in (
    (1, r"\b(?:when|what (?:day|year|month)|how (?:old|recent)|dated?)\b"), (2, r"\b(?:court|tribunal)\b"),
    (6, r"\b(?:judges?|justice|decided|delivered)\b"), (5, r"\b(?:publish\w*|issue[ds]?)\b"),
    (4, r"\b(?:version|edition|revision|release)\b"), (3, r"\b(?:number|docket)\b"),
    (0, r"\b(?:author(?:s|ed)?|writers?|wrote|written|prepared|drafted|compiled|edited)\b")))
_OF_ITSELF = frozenset(
    "who whom when what which how old recent is are was were the a an of this it its by in on from for to did do does "
    "that has have been be and or tell me please name names called give s day year month author authors authored "
    "writer writers wrote written write prepared drafted compiled edited date dated published publish publishes "
    "publisher publishers issued issue released release version edition revision number no docket case court tribunal "
    "decided decide decides heard judge judges justice opinion delivered filed created updated latest last document "
    "text report paper book article guide manual handbook memo agreement contract policy standard specification rfc "
    "file page title cover organisation organization agency body institution person people one behind".split())


def asked_fact(question: str, title: str) -> str:
    """Return the record that a question about the document itself asks for; "" where it asks for something else."""
    line = " ".join(re.findall(r"[^\W_]+", question.lower()))
    if {*line.split()} - _OF_ITSELF - {*re.findall(r"[^\W_]+", title.lower())}:
        return ""
    return next((_RECORDS[at][0] for at, pattern in _ASKED if pattern.search(line)), "")


def facts_of(text: Text, title: str) -> Iterator[Unit]:
    """Yield a passage for each line of the first pages that says such a thing, for each thing the first two."""
    lines: dict[int, list[int]] = defaultdict(list)
    for number, line in enumerate(text.lines):
        if text.stretches[number][0][0] >= _FIRST_PAGES or len(lines) > _LINES:
            break
        lines[line].append(number)
    found: dict[str, int] = defaultdict(int)
    for numbers in lines.values():
        words = " ".join(text.sentences[number] for number in numbers)
        if len(words.split()) > _LONGEST:
            continue
        for name, pattern in _RECORDS:
            if pattern.search(words) and found[name] < 2:
                found[name] += 1
                yield Unit((title, "Title page"), name, tuple(numbers), fact=True)
