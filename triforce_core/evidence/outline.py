"""Find the section of a document that a request names: by the outline that the page shows, then by the headings in the
text, by numbers and words."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import takewhile

from ..documents.chapters import numbers, solid
from ..documents.document import Chapter
from .bm25 import telling
from .passages import Text, Unit

_KINDS = {"chapter": "chapter", "kapitel": "chapter", "chapitre": "chapter", "capítulo": "chapter", "part": "part",
          "teil": "part", "partie": "part", "parte": "part", "section": "section", "subsection": "section",
          "abschnitt": "section", "sección": "section", "article": "article", "artikel": "article",
          "artículo": "article", "appendix": "appendix", "annex": "appendix", "anhang": "appendix",
          "annexe": "appendix", "anexo": "appendix", "clause": "clause", "exhibit": "exhibit"}
# Words that are mostly no sections: only where a title begins with them.
_RARE = {name: name for name in ("title", "book", "rule", "schedule", "item", "step", "letter", "question", "volume")}
_KIND = "|".join(sorted({**_KINDS, **_RARE}, key=len, reverse=True))
_SPELT = {word: number for number, word in enumerate(
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen "
    "eighteen nineteen twenty".split())}
_TENS = {word: 10 * number for number, word in enumerate(
    "twenty thirty forty fifty sixty seventy eighty ninety".split(), 2)}
_SPELT |= _TENS | {f"{ten}-{word}": tens + number for ten, tens in _TENS.items() for word, number in _SPELT.items()
                   if 0 < number < 10}
_ORDINALS = {word: number for number, word in enumerate(
    "zeroth first second third fourth fifth sixth seventh eighth ninth tenth eleventh twelfth".split())}
_ORDINALS |= {"opening": 1, "last": -1, "final": -1, "closing": -1}
_NUMBER = rf"\d{{1,3}}(?:\.\d{{1,3}})*|[ivxlcdm]+|{'|'.join(sorted(_SPELT, key=len, reverse=True))}"
# The label at the beginning of a title: "Chapter XVII.", "7 Fees", "IV. Argument", "A.2 Tables".
_LABEL = re.compile(
    rf"(?:(?P<kind>{_KIND}|§)\s*(?P<of>{_NUMBER}|[a-z](?:\.\d+)*)\b|"
    r"(?P<plain>\d{1,3}(?:\.\d{1,3})*|[a-z](?:\.\d+)+)\b|"
    r"(?P<marked>[ivxlcdm]+(?=[.):]\s)|[a-z](?=[.):]\s)|(?-i:[IVXLC]+(?=\s+[A-Z]))))[.):]?\s*(?P<rest>.*)",
    re.IGNORECASE | re.DOTALL)
_ASKED = re.compile(
    rf"(?:\b(?P<kind>{_KIND})s?\s+(?:number\s+|no\.?\s*)?|§\s*)(?P<number>{_NUMBER}|[a-z](?:\.\d{{1,3}})*)\b(?!['’])",
    re.IGNORECASE)
_BARE = re.compile(r"(?:\bsummari[sz]e|\bdoes|\b(?:gist|points|summary|overview) of)\s+(?P<number>(?:[a-z]|\d{1,3})"
                   r"(?:\.\d{1,3})+)(?![\w.]*\w)", re.IGNORECASE)
_SAID = re.compile(r"\s+(?:am|was|have|had|do|did|like|want|need|read|mean|meant|asked|said|can|could|would|should|"
                   r"think|just|don|didn|saw|know|quoted)\b", re.IGNORECASE)
_PLACED = re.compile(rf"\b(?P<place>{'|'.join(_ORDINALS)}|\d{{1,2}}(?:st|nd|rd|th))\s+(?P<kind>chapter|part|section|"
                     r"article|book|appendix|letter)\b", re.IGNORECASE)
_QUOTED = re.compile(r"[\"“«„']([^\"”»“]{3,120})[\"”»“'](?!\w)")
_TITLED = re.compile(
    r"\b(?:chapter|section|part|subsection|article|appendix|clause|heading)s?\s+(?:(?:on|about|called|titled|entitled|"
    r"named|headed|covering|discussing|describing|dealing with|that (?:deals with|covers|discusses|describes|is about))"
    r"\s+(?:the\s+|an?\s+)?|(?=[\"“«„]))(?P<name>.{2,100})", re.IGNORECASE)
_NAMED = re.compile(r"\b(?:the|its|their|your)\s+(?P<name>(?:[\w’'/&,-]+\s+){1,7}?)(?:chapter|section|part|"
                    r"subsection|appendix|clause|article)\b", re.IGNORECASE)
_SAYS = re.compile(
    r"\bwhat (?:does|do|did) (?:the |its )?(?P<name>.{3,80}?) (?:say|cover|contain|discuss|describe|state|argue|"
    r"recommend|conclude|explain)s?\b|(?:\b(?:in|from|of|under)\s|\A)(?:the|its)\s(?P<where>[\w-]+)", re.IGNORECASE)
# Where a section's name may end, from the farthest to the nearest.
_STOPS = tuple(re.compile(pattern, re.IGNORECASE) for pattern in (
    r"[?!;:]|\.\s*\Z",
    r"[?!;:]|\.\s*\Z|,\s|(?<!\s)\s+(?:says?|said|tells?|covers?|requires?|please|briefly|means?|describes?|"
    r"explains?|states?|argues?|up to)\b",
    r"[?!;:.]|,\s|(?<!\s)\s+(?:says?|said|tells?|in|of|from|for|as|covers?|requires?|please|briefly|means?|describes?|"
    r"explains?|states?|argues?|up to)\b"))
_USUAL = frozenset("introduct conclus abstract prefac foreword prologu epilogu summari specif rational background "
                   "preambl motiv discuss method result appendix glossari overview recommend acknowledg scope definit "
                   "refer note argument analysi".split())
_WITHOUT_NAME = frozenset("next previous same other whole entire following above below relevant which this that each "
                          "main first second last final opening closing".split())
# Sections that nobody means who asks for the last one, or for what a document says.
_ASIDE = re.compile(r"\W*(?:table of contents|contents|(?:un|half )?copyright.*|colophon|imprint|title ?page|cover|"
                    r"index|references|bibliography|notes|endnotes|acknowledge?ments?|dedication|"
                    r"list of (?:figures|tables).*|about (?:this|the) (?:ebook|e-book|author)s?|status of this memo|"
                    r"authors?['’]? address(?:es)?|further reading|external links|change ?log|revision history)\W*",
                    re.IGNORECASE)
_FRONT = re.compile(r"\W*(?:preface|foreword|title page|about (?:this|the) .*)\W*", re.IGNORECASE)
_REQUEST = frozenset("summaris summari summar sum gist recap outlin overview main point key short brief nutshell "
                     "give tell me pleas describ explain list idea find tl dr wrap document text report paper".split())
_PARAGRAPH = re.compile(r"\W*(?:(?:Section|Article)\s)?(?:(\d{1,3})[.)]|(\d{1,3}(?:\.\d{1,3})+)[.)]?)\s")
_OF_PARAGRAPHS = ("section", "article", "clause")
_FEWEST, _TITLE_WORDS = 4, 8  # numbered paragraphs; words of their titles
_FITS = 0.5  # share of words
_BEGINS = 0.25  # beside these shares for a title that begins with the name
_TOO_LARGE = 0.7  # share of the whole that a part of it may have


@dataclass(frozen=True, slots=True)
class Section:
    """units: numbers of the passages [first, last) that it holds; level: 1 for the largest; kind, number: what it is
    called by, such as ("chapter", "7"), in its title or before it in the text; place: its number in the outline."""

    title: str
    level: int
    first: int
    last: int
    kind: str = ""
    number: str = ""
    place: str = ""


@dataclass(frozen=True, slots=True)
class Named:
    """A section that a request speaks of: how it calls it, the section (None: there is none), and the request without
    that. by_kind: whether it is called by a word such as "chapter"."""

    phrase: str
    section: Section | None
    rest: str
    by_kind: bool = True


class Outline:
    """The sections of one document."""

    def __init__(self, text: Text, units: Sequence[Unit]) -> None:
        self.sections = list(_of_chapters(text, units))
        self.headings = list(_of_headings(units))
        numbered = {one.number for one in (*self.sections, *self.headings) if one.number}
        self._paragraphs = _of_paragraphs(text, units, dotted=len(numbered) > 1)
        self._words = [(section, telling(_label(section.title)[2]) or telling(section.title))
                       for section in (*self.sections, *self.headings)]

    def parts(self, first: int, last: int) -> list[Section]:
        """Return sections that make up most of passages [first, last), the largest that are no more than a share of it;
        contents, notes and the like are left out; [] where there are no two."""
        whole = last - first
        for sections in (self.sections, self.headings):
            inside = [one for one in sections if first <= one.first < one.last <= last and one.last - one.first < whole]
            found = [one for one in inside if one.last - one.first <= _TOO_LARGE * whole and not any(
                other.first <= one.first and one.last <= other.last and other.last - other.first <= _TOO_LARGE * whole
                and (other.level < one.level) for other in inside)]
            kept = [one for one in found if not _ASIDE.fullmatch(one.title)]
            if len(kept) > 1 and 2 * sum(one.last - one.first for one in kept) > whole:
                return kept
        return []

    def named(self, request: str, bare: bool) -> Named | None:
        """Return the section that a request names. bare: a title alone counts, without a word such as "chapter"."""
        for find in (self._by_number, self._by_place, self._by_name):
            if found := find(request):
                return found
        return self._by_title(request) if bare else self._by_place_in_words(request)

    def _by_number(self, request: str) -> Named | None:
        asked = [found for found in _ASKED.finditer(request) if _is_number(found)]
        asked = [found for found in asked if (found["kind"] or "section").lower() not in _RARE
                 or self._numbered(*_wanted(found))]
        if not asked:
            bare = _BARE.search(request)
            called = self._numbered("section", bare["number"].lower()) if bare else []
            if bare is None or not called:
                return None
            return Named(bare[0], called[0], request[: bare.start()] + request[bare.end() :])
        first, *others = asked
        inside = self._numbered(*_wanted(first))
        for other in others[:1]:  # "section 2 of chapter 3", "book two, chapter 3"
            if {*request[first.end() : other.start()].lower().replace(",", " ").split()} <= {"of", "in", "from", "the"}:
                theirs = self._numbered(*_wanted(other))
                nested = [one for one in inside for around in theirs if _holds(around, one) or _holds(one, around)]
                parts = [(one, around) for one in nested for around in theirs if _holds(one, around)]
                inside = [around for _, around in parts[:1]] or nested
                if not inside and theirs:
                    inside = [one for one in self.sections for around in theirs
                              if _holds(around, one) and one.place == f"{around.place}.{_wanted(first)[1]}"]
                first = other if inside else first
        start, end = asked[0].start(), max(first.end(), asked[0].end())
        title = _TITLED.search(request, 0, start)
        if title and inside:  # "the section on fees in chapter 3"
            name = telling(re.split(r"\s(?:in|of|from)\b", title["name"])[0])
            within = self._fits(name, inside[0])
            if name and within:
                return Named(title[0], within, request[: title.start()] + request[end:])
        return Named(request[start:end].strip(), inside[0] if inside else None, f"{request[:start]} {request[end:]}")

    def _numbered(self, kind: str, wanted: str) -> list[Section]:
        """Return the sections that are called by a number, those of the outline first."""
        every = [*self.sections, *self.headings]
        found = [one for one in every if one.kind == kind and one.number == wanted]
        if kind == "appendix" and not found:
            lettered = len(wanted) == 1 and wanted.isalpha()
            found = [one for one in every if lettered and one.number == wanted and not one.kind]
            back = self._behind_chapters()
            place = ord(wanted) - ord("a") if lettered else len(back)
            return found or back[place : place + 1] or [one for one in back if one.number == wanted]
        found = found or [one for one in every if not one.kind and one.number == wanted]
        own = [one for one in self.sections if one.number.startswith(f"{wanted}.")]
        if own and not set(found).intersection(self.sections):  # its title was read as text, not theirs
            found = [Section(f"{own[0].title} – {own[-1].title}", 1, own[0].first, own[-1].last, kind, wanted)]
        called = (one for one in self.sections if one.number[:1].isdigit() and (one.level == 1 or one.kind == kind))
        agree = all(one.number == one.place for one in called)
        if not found and kind not in _RARE and agree:
            found = [one for one in self.sections if one.place == wanted]
        plain = wanted.removesuffix(".0")  # "5.0", of which 5.1 is a part
        return found or [one for one in self._paragraphs
                         if one.number == plain and (kind in _OF_PARAGRAPHS or "." in wanted)]

    def _behind_chapters(self) -> list[Section]:
        """Return the largest sections whose numbers begin anew: appendices that are numbered like chapters."""
        top = [one for one in self.sections if one.level == 1 and one.number.isdigit()]
        again = [at for at, one in enumerate(top) if at and int(one.number) <= int(top[at - 1].number)]
        return top[again[0] :] if again else []

    def _by_place(self, request: str) -> Named | None:
        asked = _PLACED.search(request)
        if asked is None:
            return None
        word, kind = asked["place"].lower(), _KINDS.get(asked["kind"].lower(), asked["kind"].lower())
        place = _ORDINALS[word] if word in _ORDINALS else int(re.sub(r"\D", "", word))
        levels = [one.level for one in self.sections if not _ASIDE.fullmatch(one.title)]
        level = next((number for number in sorted({*levels}) if levels.count(number) > 1), 1)
        largest = [one for one in self.sections if one.level == level]
        numbered = [one for one in largest if one.number.isdigit() and not one.kind]
        top = [one for one in self.sections if one.kind == kind] or numbered or largest or self.headings
        top = [one for one in top if not _ASIDE.fullmatch(one.title)]
        at = next((at for at, one in enumerate(top) if one.number == str(place)),
                  place - 1 if place > 0 else len(top) + place)
        rest = f"{request[: asked.start()]} {request[asked.end() :]}"
        return Named(asked[0], top[at] if 0 <= at < len(top) else None, rest)

    def _by_name(self, request: str) -> Named | None:
        titled = _TITLED.search(request)
        if titled is not None:
            quoted = _QUOTED.match(titled["name"])
            names = [quoted[1]] if quoted else [stop.split(titled["name"])[0] for stop in _STOPS]
            fitting = [(fits, one) for one in names if (fits := self._fits(telling(one)))]
            called = [(fits, one) for fits, one in fitting if telling(_label(fits.title)[2]) == telling(one)]
            found, name = (*called, *fitting, (None, names[-1]))[0]
            at = titled.start("name") + (quoted.end() if quoted else len(name))
            return Named(name.strip(), found, f"{request[: titled.start()]} {request[at:]}")
        named = _NAMED.search(request)
        if named is None or {*named["name"].lower().split()} <= _WITHOUT_NAME:
            return None
        found = self._fits(telling(named["name"]))
        rest = f"{request[: named.start()]} {request[named.end() :]}"
        return Named(named["name"].strip(), found, rest) if found else None

    def _by_place_in_words(self, request: str) -> Named | None:
        """Return the section of "what does the conclusion say" and "in the introduction"."""
        for asked in _SAYS.finditer(request):
            name = telling(asked["name"] or asked["where"])
            usual = name[0] if len(name) == 1 and name[0] in _USUAL else ""
            alone = asked.span() == (0, len(request.rstrip(" .?!")))
            found = self._fits(name, whole=True) if len(name) > 1 or usual or alone else None
            found = found or next((section for section, title in self._words if usual and title[:1] == [usual]), None)
            if found:
                return Named(asked[0], found, f"{request[: asked.start()]} {request[asked.end() :]}", by_kind=False)
        return None

    def _by_title(self, request: str) -> Named | None:
        quoted = _QUOTED.search(request)
        if quoted is not None and (found := self._fits(telling(quoted[1]))):
            return Named(quoted[1], found, f"{request[: quoted.start()]} {request[quoted.end() :]}", by_kind=False)
        said = telling(request)
        whole = [section for section, title in self._words if len(title) > 1 and " ".join(title) in " ".join(said)]
        if whole:
            found = max(whole, key=lambda section: len(section.title))
            return Named(found.title, found, "", by_kind=False)
        words = [word for word in said if word not in _REQUEST]
        if len(words) > 1 or set(words) & _USUAL:
            found = self._fits(words, whole=True)
        else:
            found = next((section for section, title in self._words if words and title == words), None)
        return Named(found.title, found, "", by_kind=False) if found else None

    def _fits(self, name: Sequence[str], within: Section | None = None, whole: bool = False) -> Section | None:
        """Return the section whose title shares most words with a name: half of them at least; all, if ``whole``.
        within: a section that holds it."""
        wanted = set(name)
        best, most = None, 0.0
        for section, title in self._words:
            if within and not _holds(within, section):
                continue
            both = len(wanted & set(title))
            of_name, of_title = both / max(1, len(wanted)), both / max(1, len(set(title)))
            score = of_name + 0.5 * of_title + _BEGINS * (title[: len(name)] == [*name])
            enough = of_name == 1.0 or (not whole and of_name >= _FITS and of_title >= _FITS)
            if enough and (not whole or of_title >= _FITS) and score > most:
                best, most = section, score
        return best


def _of_chapters(text: Text, units: Sequence[Unit]) -> Iterator[Section]:
    """Yield the chapters of the outline, each from the line of its title; from the page where no line is that, but not
    before the one before it."""
    chapters = text.document.chapters
    lines = [text.lines[unit.sentences[0]] for unit in units]
    pages = [text.stretches[unit.sentences[0]][0][0] for unit in units]
    words: dict[int, str] = {}
    for at, line in enumerate(text.lines):
        words[line] = f"{words[line]} {text.sentences[at]}" if line in words else text.sentences[at]
    order = list(words)
    there = {at: bisect_left(order, line) for at, line in text.titles.items()}
    above = {at: (words[order[line]], words[order[line - 1]] if line else "") for at, line in there.items()}
    firsts: list[int] = []
    for at, chapter in enumerate(chapters):
        first = bisect_left(lines, text.titles[at]) if at in text.titles else bisect_left(pages, chapter.first - 1)
        firsts.append(max(first, *firsts[-1:], 0))
    for at, (chapter, place) in enumerate(zip(chapters, _places(chapters), strict=True)):
        last = next((firsts[later] for later in range(at + 1, len(firsts)) if chapters[later].level <= chapter.level
                     and (later in text.titles or firsts[later] > firsts[at])), len(units))
        if last > firsts[at]:
            kind, number = _called(chapter.title, *above.get(at, ("", "")))
            yield Section(chapter.title, chapter.level, firsts[at], last, kind, number, place)


def _called(title: str, line: str, above: str) -> tuple[str, str]:
    """Return kind and number of a chapter by the line of its title, by the title, or by "Chapter 3" above that."""
    lettered = f"Appendix {line}" if solid(line)[1:] == solid(title) else ""
    found = (_label(one)[:2] for one in (line, title, above if len(above.split()) == 2 else "", lettered))
    return next((one for one in found if one[1]), ("", ""))


def _of_paragraphs(text: Text, units: Sequence[Unit], dotted: bool) -> list[Section]:
    """Return the paragraphs of a text that are numbered from 0 or 1, as those of a licence; [] where they are few, or a
    list within the text. dotted: only numbers such as 2.3 count."""
    found: list[tuple[int, tuple[int, ...], str]] = []
    for at, unit in enumerate(units):
        for sentence in (text.sentences[number] for number in unit.sentences):
            start = _PARAGRAPH.match(sentence)
            if start and not (dotted and start[1]):
                number = tuple(map(int, (start[1] or start[2]).removesuffix(".0").split(".")))
                if _follows(number, found[-1][1] if found else ()):
                    named = sentence[max(start.start(1), start.start(2)) :].split()[:_TITLE_WORDS]
                    found.append((at, number, " ".join(named)))
    if len(found) < _FEWEST or 2 * (len(units) - found[0][0]) < len(units):
        return []
    ends = [next((later for later, other, _ in found[place + 1 :] if other[: len(number)] != number), len(units))
            for place, (_, number, _) in enumerate(found)]
    return [Section(title, len(number), at, max(end, at + 1), number=".".join(map(str, number)))
            for (at, number, title), end in zip(found, ends, strict=True)]


def _follows(number: tuple[int, ...], last: tuple[int, ...]) -> bool:
    """Return whether a number comes next, or, behind one that was not seen, after that: 2.4 behind 2.3, 3 or 3.1 behind
    2.4, 2.4.1 behind 2.4."""
    if not last:
        return number in ((0,), (1,), (1, 1))
    same = next((place for place, (one, other) in enumerate(zip(number, last, strict=False)) if one != other),
                min(len(number), len(last)))
    step = number[same] - (last[same] if same < len(last) else 0) if same < len(number) else 0
    return 1 <= step <= 1 + (same == len(last) - 1 > 0) and number[same + 1 :] in ((), (1,))


def _places(chapters: Sequence[Chapter]) -> Iterator[str]:
    """Yield every chapter's number by its place in the outline; what stands before the first chapter has none."""
    aside = sum(1 for _ in takewhile(lambda one: one.level > 1 or _ASIDE.fullmatch(one.title)
                                     or _FRONT.fullmatch(one.title), chapters))
    front = sum(one.level == 1 for one in chapters[:aside])
    for at, counted in enumerate(numbers(chapters)):
        first, dot, behind = counted.partition(".")
        yield "" if at < aside else f"{int(first) - front}{dot}{behind}"


def _of_headings(units: Sequence[Unit]) -> Iterator[Section]:
    """Yield runs of passages below the same heading."""
    open_at: list[tuple[str, int]] = []
    for at, unit in enumerate((*units, Unit((), "", ()))):
        path = unit.headings[1:]
        same = 0
        while same < min(len(path), len(open_at)) and path[same] == open_at[same][0]:
            same += 1
        for level in range(len(open_at) - 1, same - 1, -1):
            title, first = open_at[level]
            yield Section(title, level + 1, first, at, *_label(title)[:2])
        open_at = open_at[:same] + [(heading, at) for heading in path[same:]]


def _holds(around: Section, one: Section) -> bool:
    """Return whether a section is a part of another."""
    return around.first <= one.first and one.last <= around.last and around.last - around.first > one.last - one.first


def _is_number(asked: re.Match[str]) -> bool:
    """Return whether it is one, unlike that of "which section did" and "the part I like"."""
    spelt, (kind, wanted) = asked["number"], _wanted(asked)
    said = spelt == "I" and _SAID.match(asked.string, asked.end())
    return not ((len(wanted) > 1 and wanted.isalpha()) or (spelt in ("a", "i") and kind not in ("appendix", "exhibit"))
                or said)


def _wanted(asked: re.Match[str]) -> tuple[str, str]:
    """Return kind and number that a request asks for."""
    name = (asked["kind"] or "section").lower()
    return _KINDS.get(name, name), _value(asked["number"])


def _label(title: str) -> tuple[str, str, str]:
    """Return (kind, number, the words behind them) of a title."""
    found = _LABEL.match(title.strip())
    if found is None:
        return "", "", title
    number = found["of"] or found["plain"] or found["marked"]
    kind = (found["kind"] or "").lower().replace("§", "section")
    return _KINDS.get(kind, kind), _value(number), found["rest"]


def _value(number: str) -> str:
    """Return a number in one spelling: "7" for "VII" and "seven"; a letter stays one."""
    lowered = number.lower()
    if lowered in _SPELT:
        return str(_SPELT[lowered])
    if re.fullmatch(r"(?=[ivxlc])c{0,3}(?:xc|xl|l?x{0,3})(?:ix|iv|v?i{0,3})", lowered) and lowered not in ("c", "l"):
        values = [{"i": 1, "v": 5, "x": 10, "l": 50, "c": 100}[letter] for letter in lowered]
        return str(sum(-value if value < max(values[at:]) else value for at, value in enumerate(values)))
    return lowered
