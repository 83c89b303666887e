"""What a document says of itself: who wrote it, when, in which version, in place of what.

Such questions share hardly a word with the line that answers them ("By Ada Brunt", "Created: 3 May 2019"), and that
line is no sentence. Where the line is not found, they are questions like others.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from .sentence_index import SentenceIndex

_LINES = 80  # sentences at the beginning that may be front matter
_KINDS = (r"(?:document|text|book|report|paper|article|proposal|handbook|guide|manual|speech|agreement|contract|policy|"
          r"standard|specification|rfc|pep|memo|memorandum|letter|opinion|essay|story|novel|publication|study|act|law|"
          r"terms|rules|license|licence|tutorial|thesis|brief|plan)")
# "The letter" may be one that the document tells of.
_ITSELF = (rf"(?:(?:this|these)(?: [\w-]+)? {_KINDS}|the (?:document|text|book|report|paper|article|handbook|guide|"
           r"manual|novel|agreement|contract)|this|it)")
_DATE = r".*\b(?:1[5-9]|20)\d\d\b"
_WROTE = re.compile(rf"\bwho (?:wrote|has written|authored|prepared|compiled) {_ITSELF}\Z|"
                    rf"\bwho (?:is|are|was|were) the (?:authors?|writers?)(?: of {_ITSELF})?\Z|\A(?:the )?authors?\Z|"
                    rf"\bwho(?:m)? (?:is|was) {_ITSELF} (?:written |authored |prepared )?by\Z|"
                    rf"\bby whom (?:is|was) {_ITSELF}(?: written)?\Z")
_BY_LINE = re.compile(r"(?:Authors?|Author\(s\)|Written by|Prepared by|Compiled by|Editors?)(?:\s*[:–—-]\s*|\s+)\S|"
                      r"[Bb]y (?:[A-Z](?:[^\WA-Z]|[.'’-])*+,? ?(?:and |& |de |von |van )?){2,}\Z")
_VERSION = re.compile(rf"\b(?:which|what) (?:[\w.+-]+ )?version(?: of [\w.+-]+)? (?:is|does) {_ITSELF}(?: \w+)?\Z")
_VERSION_LINE = re.compile(r"(?:[\w.+-]+[ -])?[Vv]ersion\s*+(?::\s*+)?\d")
_REPLACES = re.compile(rf"\b(?:which|what)\b.{{0,200}} (?:does|do|did) {_ITSELF} (?:replace|supersede|obsolete|"
                       r"update)\Z")
_REPLACES_LINE = re.compile(rf"(?:Obsoletes|Replaces|Supersedes)\s*:\s*\S|This {_KINDS} (?:obsoletes|replaces|"
                            rf"supersedes)\b", re.IGNORECASE)
_WHEN = re.compile(rf"\b(?:when|what (?:date|day|year)|in (?:what|which) year) (?:was|were|is|did|does|do|has|have) "
                   rf"{_ITSELF} (?:been |first |last |come |go |take |in(?:to)? )*(?P<done>\w+)\Z|"
                   rf"\A(?:what(?:'s| is) )?(?:the )?(?P<label>creation|publication|effective|issue|release) date"
                   rf"(?: of {_ITSELF})?\Z")
# What was done, as a question says it: how a line with the date begins. The last of each does for want of better.
_DONE = {
    "written|created|drafted|creation": r"Created|Written|Drafted|Dated?",
    "published|issued|released|out|publication|issue|release": r"Published|Publication|Issued?|Released?|Dated?",
    "updated|revised|modified|changed|amended": r"(?:Last[ -])?(?:Updated?|Revis(?:ed|ion)|Modified|Changed|Amended)",
    "effect|effective|force|start|apply": r"Effective|In force|Commencement|Start",
}


def says_of_itself(index: SentenceIndex, question: str) -> tuple[int, int] | None:
    """The first and the last sentence that answers a question about the document as a whole; None where it
    is no such question, or no line says it."""
    line = " ".join(question.lower().replace("’", "'").split()).strip(" .!?…,")
    for asked, answers in _rules(line):
        if asked:
            numbers = range(index.size if answers is _REPLACES_LINE.match else min(index.size, _LINES))
            return next(((number, number) for number in numbers if answers(index.sentences[number].strip())), None)
    return None


def _rules(line: str) -> Iterator[tuple[bool, Callable[[str], object]]]:
    """(whether it is asked, what knows an answer)"""
    yield _WROTE.search(line) is not None, _BY_LINE.match
    yield _VERSION.search(line) is not None, _VERSION_LINE.match
    yield _REPLACES.search(line) is not None, _REPLACES_LINE.match
    if when := _WHEN.search(line):
        done = when["done"] or when["label"]
        for verbs, labels in _DONE.items():
            yield re.fullmatch(verbs, done) is not None, re.compile(rf"(?:{labels})\b{_DATE}", re.IGNORECASE).match
