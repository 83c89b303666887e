"""Find what a question asks for, and which of its words name its subject."""

from __future__ import annotations

import re
from enum import IntEnum

WORD = re.compile(r"[a-z]+(?:'[a-z]+)?|\d+(?:[.,]\d+)*")
_SPELT = re.compile(r"[A-Za-z][A-Za-z']*|\d+(?:[.,]\d+)*")


class Asks(IntEnum):
    """Name the kind of answer that a question wants, by its first words that show it."""

    OTHER = 0
    WHO = 1
    WHEN = 2
    WHERE = 3
    NUMBER = 4
    WHY = 5
    HOW = 6
    DEFINITION = 7
    REQUIREMENT = 8
    YES_NO = 9
    WHICH = 10


_ASKS = (
    (Asks.WHY, r"\bwhy\b|\bhow come\b|\breasons?\b|\bwhat (?:makes|made|led|caused|prompted)\b|\bcauses?\b|"
               r"\bpurpose\b|\bwhat(?:'s| is| was| are) the (?:point|idea|use|downside|harm|matter|problem)\b|"
               r"\bwhat .{0,200}\bfor\?*$"),
    (Asks.NUMBER, r"\bhow (?:many|much|long|often|far|old|fast|big|large|high|tall|deep|soon|late|early)\b|"
                  r"\b(?:number|amount|percentage?|share|rate|cost|price|size|limit|cap|total|population) of\b|"
                  r"\bwhat (?:percentage?|share|number|amount|rate|age|size|sum|fraction)\b|\b(?:cost|price|salary)\b"),
    (Asks.WHEN, r"\bwhen\b|\bwhat (?:year|date|day|month|time)\b|\b(?:which|in what) year\b|\bdate of\b|\bsince when\b|"
                r"\bdeadline\b"),
    (Asks.WHO, r"\bwho(?:m|se|'s)?\b|\b(?:which|what) (?:person|company|agency|people|author|president|king|group)\b|"
               r"\bname of the (?:person|man|woman|author)\b"),
    (Asks.WHERE, r"\bwhere\b|\b(?:which|what) (?:place|city|country|state|town|section|directory|folder|file)\b"),
    (Asks.DEFINITION, r"\bdefin|\bmean(?:s|t|ing)?\b|\bwhat(?:'s| is| are| was| were|s) (?:an? |the )?(?:term "
                      r")?[\w'\"“-]+"
                      r"(?: [\w'\"”-]+){0,3}\s*\?*$|\bstands? for\b|\bcalled\b|\bknown as\b|\bexplain\b|\brefers?\b"),
    (Asks.REQUIREMENT, r"\b(?:must|shall|should|may|can|could|allowed|permitted|required?|requirements?|need|needs|"
                       r"have to|"
                       r"has to|supposed|forbidden|prohibited|legal|mandatory|ok|okay|able|free to|obliged|minimum|"
                       r"maximum)\b"),
    (Asks.HOW, r"\bhow\b|\bway to\b|\bsteps?\b|\bmethod\b"),
    (Asks.WHICH, r"\bwhich\b"),
    (Asks.YES_NO, r"^(?:and |but |so )?(?:is|are|was|were|do|does|did|has|have|had|will|would)\b"),
)
_KINDS = tuple((kind, re.compile(pattern)) for kind, pattern in _ASKS)
# They speak of the request, not of its subject: "What happens next?" must not favour sentences that say "next".
REQUEST = frozenset(
    """a about according after again all also am an and answer any are as asked at be because been before being book but
    by came can chapter come comes continue could describe did do document does doing done else even ever exactly
    exist explain explained find follow follows for from get gets give given go got had happen happened happens has have
    having he her here him his how i if in into is it its just know like list made make many may me mean meaning means
    mention mentioned mentions more much must my name next no not of off on one or other our out page paragraph passage
    please quote quoted really report said same say saying says sentence shall she should show so some such tell text
    than that the their them then there these they thing things this those to too under until up upon us use used using
    very want was way we were what what's whats when where which while who whom whose why will with word words would
    write written yes you your kind sort type exactly actually anything something someone anyone there's it's can't
    define defined definition meant don't doesn't didn't isn't wasn't won't author section according table""".split()
)
_POINTS_BACK = re.compile(r"\b(?:it|its|they|them|their|this|that|these|those|he|him|his|she|her|there|then|one|"
                          r"ones)\b")


def asks(question: str) -> Asks:
    """Return the kind of answer that is wanted."""
    lowered = question.lower()
    return next((kind for kind, pattern in _KINDS if pattern.search(lowered)), Asks.OTHER)


def subject_words(question: str) -> list[str]:
    """Its words but for those that speak of the request, lower case, in order, each once; all of them if none is
    left."""
    words = list(dict.fromkeys(WORD.findall(question.lower().replace("’", "'"))))
    return [word for word in words if word not in REQUEST] or words


def names(question: str) -> list[str]:
    """Its numbers, and the words that have a capital without being the first: lower case, without "'s", each once. None
    of a question that is written in capitals."""
    words = _SPELT.findall(question.replace("’", "'"))
    found = [word for place, word in enumerate(words) if word[0].isdigit() or (place and word[0].isupper())]
    found = [word.lower().removesuffix("'s") for word in found if not word.startswith("I'") and word != "I"]
    return list(dict.fromkeys(found)) if 2 * len(found) <= len(words) + 1 else []


def points_back(question: str) -> bool:
    """Whether it needs the question before it to be understood: "And why did he do that?"."""
    words = subject_words(question)
    return (_POINTS_BACK.search(question.lower()) is not None and len(words) <= 6) or len(words) <= 1
