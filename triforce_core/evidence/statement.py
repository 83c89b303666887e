"""Read the facts of a statement (numbers with units, dates, names, negations, quantifiers), each in one form however it
is written, and compare them with a passage's."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field

from .bm25 import telling
from .vectors import stem

_ONES = {word: number for number, word in enumerate(
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen "
    "eighteen nineteen".split())}
_TENS = {word: 10 * number for number, word in enumerate(
    "twenty thirty forty fifty sixty seventy eighty ninety".split(), start=2)}
_ORDINALS = {word: number for number, word in enumerate(
    "third fourth fifth sixth seventh eighth ninth tenth eleventh twelfth".split(), start=3)}
_SCALES = {"hundred": 100, "thousand": 1000, "million": 10**6, "billion": 10**9, "trillion": 10**12, "dozen": 12}
_COUNTS = {"single": 1, "once": 1, "sole": 1, "both": 2, "twice": 2, "pair": 2, "couple": 2, "dual": 2, "double": 2,
           "thrice": 3, "triple": 3} | _ORDINALS
_LOOSE = frozenset((0.0, 1.0, 2.0))  # in words they are said without counting: "one may", "both", "on two sides"
_MONTHS = {name[:length]: number for number, name in enumerate(
    "january february march april may june july august september october november december".split(), start=1)
    for length in (3, 4, len(name))}
_UNITS = {word: unit for unit, words in {
    "second": "seconds sec", "minute": "minute minutes min", "hour": "hour hours hr hrs", "day": "day days",
    "week": "week weeks", "month": "month months", "year": "year years yr yrs", "%": "% percent",
    "$": "$ dollar dollars usd", "€": "€ euro euros eur", "£": "£ pound pounds", "m": "m metre metres meter meters",
    "km": "km kilometre kilometres kilometer kilometers", "mile": "mile miles", "foot": "foot feet ft",
    "kg": "kg kilogram kilograms", "byte": "byte bytes", "kb": "kb kilobytes", "mb": "mb megabytes",
    "gb": "gb gigabytes"}.items() for word in words.split()}
_ROMAN = re.compile(r"\b(?:part|title|chapter|section|article|phase|type|class|volume|book|subchapter|war|appendix)\s+"
                    r"([ivx]{1,6})\b", re.IGNORECASE)
_TOKEN = re.compile(r"(?<![a-z\d])\d+(?:,\d{3})+(?:\.\d+)?|(?<![a-z\d])\d+(?:\.\d+)?|[%$€£]|"
                    r"[^\W\d_]+(?:['’][^\W\d_]+)?")
_DATE = re.compile(r"\b(\d{4}|\d\d?)([-./])(\d\d?)\2(\d{4}|\d\d?)\b")
_YEAR = re.compile(r"1[5-9]\d\d|20\d\d")
_WORD = re.compile(r"\w[\w'-]*")
_CAPITAL = re.compile(r"(?<![\w'’-])[A-Z][\w'’&-]*")
_OPENING, _ENDING = " \t\"'“‘([*_>#-", (".", "!", "?", ":", ";", "•", "\n")  # around where a sentence begins
_NO_NAMES = frozenset("i the a an this that these those it its he she they we you and or but if when in on at by for "
                      "from to of as with no not yes there here however".split()) | _MONTHS.keys()
_NEGATIONS = frozenset("not no never without neither nor none nobody nothing cannot hardly".split())
_BEFORE = frozenset("no none nobody nothing neither".split())  # they deny the word before them, too: "has no"
_SCOPE = 3  # telling words behind a negation that it denies
# Words of one class may stand for each other; of two classes that are opposed one may not stand for the other.
_CLASSES = {
    "all": r"all|every|each|always|entire(?:ly)?|whole|wholly|fully|completely|everyone|everything|invariably|any",
    "some": r"some|several|sometimes|often|many|most|mostly|usually|generally|typically|partly|partial(?:ly)?|"
            r"frequently|mainly|primarily|occasionally|rarely|few",
    "none": r"no|none|never|neither|nobody|nothing",
    "only": r"only|solely|exclusively|merely|alone|except|unless|just|limited|sole",
    "at least": r"at least|minimum|no (?:fewer|less) than|not less than|or more|as (?:little|few) as",
    "at most": r"at most|maximum|up to|no (?:more|later) than|not (?:more than|exceed\w*)|or (?:less|fewer)|within|"
               r"as (?:much|many) as",
    "more": r"more|greater|higher|larger|bigger|longer|above|exceed\w*|over|increas\w*|rises?|rose|gr[eo]w\w*|faster",
    "less": r"less|fewer|lower|smaller|shorter|below|under|decreas\w*|declin\w*|fell|falls?|reduc\w*|shrink\w*|slower",
    "must": r"must|shall|requir\w*|mandatory|obliged|have to|has to|needs? to|oblig\w*",
    "may": r"may|can|might|could|optional\w*|permit\w*|allow\w*|possibl\w*|able",
    "before": r"before|prior|until|preced\w*|earlier", "after": r"after|following|since|later|once|subsequent\w*",
    "first": r"first|initial\w*|beginning", "last": r"last|final\w*|end",
    "often": r"often|usually|frequently|commonly|always", "rarely": r"rarely|seldom|never|infrequent\w*",
    "many": r"many|most|numerous|majority|large", "few": r"few|little|minority|hardly|small",
    "enabled": r"enabl\w*|accept\w*|success\w*", "disabled": r"disabl\w*|reject\w*|refus\w*|fail\w*",
}
_CLASS = {name: re.compile(rf"\b(?:{words})\b") for name, words in _CLASSES.items()}
_OPPOSED = (("all", "some"), ("all", "none"), ("some", "none"), ("at least", "at most"), ("more", "less"),
            ("must", "may"), ("before", "after"), ("first", "last"), ("often", "rarely"), ("many", "few"),
            ("enabled", "disabled"))
_STRONG = ("all", "none", "only", "must")
KINDS = ("number", "unit", "name", "negation", "polarity", "opposed", "widened")


@dataclass(frozen=True, slots=True)
class Facts:
    """numbers: values, each with the units that stand beside it; counted: of them those that are no figure of speech;
    months: by number; names: words with a capital, in lower case; denied: stems near a negation; nearest: of them those
    right behind one; stated: those without one; classes: of quantifiers and what is like them; words: all, also the
    parts of those with hyphens; initials: of the names."""

    numbers: dict[float, set[str]]
    counted: frozenset[float]
    months: frozenset[int]
    names: tuple[str, ...]
    denied: frozenset[str]
    nearest: frozenset[str]
    stated: frozenset[str]
    classes: frozenset[str]
    words: frozenset[str] = field(default_factory=frozenset)
    initials: str = ""


def facts(text: str) -> Facts:
    """Read a text. A capital at the beginning of a sentence makes no name."""
    text = text.replace("’", "'")
    lowered = _DATE.sub(r"\1 \3 \4", text.lower()).replace("n't ", " not ").replace("cannot", "can not")
    tokens = _TOKEN.findall(lowered)
    numbers: dict[float, set[str]] = {}
    counted = set[float]()
    for value, unit, word in _numbers(tokens):
        numbers.setdefault(value, set()).add(unit)
        if word[0].isdigit() or (value not in _LOOSE and word not in _COUNTS):
            counted.add(value)
    for found in _ROMAN.finditer(text):
        numbers.setdefault(float(_roman(found[1].lower())), set()).add("")
    denied, nearest, stated = _polarity(tokens)
    capitals = [found[0] for found in _CAPITAL.finditer(text)]
    classes = frozenset(name for name, pattern in _CLASS.items() if pattern.search(lowered))
    words = frozenset(part for word in _WORD.findall(text.lower())
                      for part in (word, word.removesuffix("'s"), *word.split("-"), *word.split("'")))
    return Facts(numbers, frozenset(counted), frozenset(_months(text, tokens)),
                 tuple(dict.fromkeys(_names(text))), denied, nearest, stated, classes, words,
                 "".join(word[0] for word in capitals).lower())


def conflicts(claim: Facts, passage: Facts, around: Collection[str]) -> tuple[float, ...]:
    """Return how many facts of each of ``KINDS`` a passage does not bear out. around: words that may name things beside
    the passage's own: of its headings and of the question."""
    missing = sum(value not in passage.numbers for value in claim.counted) + len(claim.months - passage.months)
    units = sum(bool(own := claim.numbers[value] - {""}) and bool(other := passage.numbers.get(value, set()) - {""})
                and not own & other for value in claim.counted)
    names = sum(not _named(name, passage, around) for name in claim.names)
    negations, polarity = (len((one & passage.stated) - passage.denied) + len((claim.stated & other) - passage.stated
                                                                              - claim.denied)
                           for one, other in ((claim.nearest, passage.nearest), (claim.denied, passage.denied)))
    opposed = sum(one in claim.classes and other not in claim.classes and other in passage.classes
                  and one not in passage.classes for pair in _OPPOSED for one, other in (pair, pair[::-1]))
    widened = sum(name in claim.classes and name not in passage.classes for name in _STRONG)
    return tuple(map(float, (missing, units, names, negations, polarity, opposed, widened)))


def _numbers(tokens: Sequence[str]) -> Iterator[tuple[float, str, str]]:
    """Yield values with what they count, as written in figures, in words or in both, and the first of the words."""
    at = 0
    while at < len(tokens):
        start, value = at, _value(tokens[at])
        at += 1
        if value is None:
            continue
        if value in _TENS.values() and at < len(tokens) and 0 < _ONES.get(tokens[at], 0) < 10:
            value += _ONES[tokens[at]]
            at += 1
        while at < len(tokens) and tokens[at] in _SCALES:
            value *= _SCALES[tokens[at]]
            at += 1
            rest = at + (tokens[at : at + 1] == ["and"])
            if rest < len(tokens) and tokens[rest] in (*_ONES, *_TENS):
                value += _value(tokens[rest]) or 0
                at = rest + 1
        before = _UNITS.get(tokens[start - 1], "") if start and tokens[start - 1] in "$€£" else ""
        beside = next((_UNITS[one] for one in tokens[at : at + 2] if one in _UNITS), "")
        dated = any(one in _MONTHS for one in (*tokens[max(0, start - 2) : start], *tokens[at : at + 1]))
        yield value, before or ("date" if dated or _YEAR.fullmatch(tokens[start]) else beside), tokens[start]


def _value(token: str) -> float | None:
    if token[0].isdigit():
        return float(token.replace(",", ""))
    for known in (_ONES, _TENS, _COUNTS):
        if token in known:
            return float(known[token])
    return 12.0 if token == "dozen" else None


def _roman(digits: str) -> int:
    values = [{"i": 1, "v": 5, "x": 10}[digit] for digit in digits]
    return sum(-one if one < after else one for one, after in zip(values, [*values[1:], 0], strict=True))


def _months(text: str, tokens: Sequence[str]) -> Iterator[int]:
    """Yield months that stand beside a number, and those of dates in figures."""
    for at, token in enumerate(tokens):
        beside = (*tokens[max(0, at - 2) : at], *tokens[at + 1 : at + 2])
        if token in _MONTHS and any(one[0].isdigit() for one in beside):
            yield _MONTHS[token]
    for found in _DATE.finditer(text):
        yield from (int(part) for part in found.group(1, 3, 4) if int(part) <= 12)


def _names(text: str) -> Iterator[str]:
    for found in _CAPITAL.finditer(text):
        word = found[0].lower().removesuffix("'s").rstrip("'-")
        if len(word) < 2 or word in _NO_NAMES or word in _ONES or word in _TENS:
            continue
        if any(letter.isupper() for letter in found[0][1:]) \
                or not (text[max(0, found.start() - 9) : found.start()].rstrip(_OPENING) or "\n").endswith(_ENDING):
            yield word


def _named(name: str, passage: Facts, around: Collection[str]) -> bool:
    """Return whether a name stands there, in another form ("French" for "France") or by its first letters."""
    if name in passage.words or name in around or (len(name) > 1 and name in passage.initials):
        return True
    begins = name[: max(4, len(name) - 3)]
    return len(name) > 3 and any(word.startswith(begins) for words in (passage.words, around) for word in words)


def _polarity(tokens: Sequence[str]) -> tuple[frozenset[str], frozenset[str], frozenset[str]]:
    """Return the stems near a negation, those of them right behind it, and those that stand without one; a stem may be
    of two kinds."""
    denied, nearest, stated = set[str](), set[str](), set[str]()
    left, last = 0, ""
    for token in tokens:
        if token in _NEGATIONS:
            left = _SCOPE
            if token in _BEFORE and last:
                denied.add(last)
        elif telling(token) and not token[0].isdigit():
            last = stem(token.partition("'")[0])
            if left == _SCOPE:
                nearest.add(last)
            (denied if left else stated).add(last)
            left = max(0, left - 1)
    return frozenset(denied), frozenset(nearest), frozenset(stated)
