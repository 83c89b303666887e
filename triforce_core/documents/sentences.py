"""Find where sentences begin and end, in every language: a full stop is often the mark of an abbreviation."""

from __future__ import annotations

import re
from collections.abc import Iterator

from .reflow import ITEM

SENTENCE_BREAK = (
    r"[.!?…؟।۔][\"'”’“‘»›)\]]*\s+(?=[\"'“‘„‚«‹(\[¿¡]*[^\W_a-z])"  # up to the next word; a lower-case one begins none
    r"|[。！？｡]+[\"'”’」』】》）)\]]*\s*(?=[^\s」』】》）と])"  # no blank stands between these and what follows
)
LONGEST = 80  # words: more is no quotation
NOTE = re.compile(r"\[[^\s\[\]]{1,5}\] ")  # how a line that is a note begins; notes stand behind a page's text
# Abbreviations, in lower case and without the full stop: first those that stand before something in every case.
_ALWAYS = frozenset(
    "mr mrs ms messrs dr dra prof gen col capt lt rev hon sgt maj gov sen mme mmes mlle mgr mm hr fr frl dipl sr "
    "sra srta sres dña lic ing gral sig dott v vs cf e.g i.e viz vgl bzw sog n.b inkl exkl zzgl einschl geb ee ej "
    "avda fa pr".split())
# Before what they count: a figure, a letter, or the next abbreviation.
_NUMBERED = frozenset(
    "no nos nr nrs núm n nn sec secs art arts artt fig figs p pp pg pág págs pag pagg ch chap chs cap kap vol vols "
    "bd eq eqs tab tbl par para paras párr abs abschn ziff rn rdnr rz anm abb lit ex exs dkt doc docs tr cl tit ver "
    "app op c t id ibid reg order bk pt pts l ll fn ann fracc str tel jan feb mar apr jun jul aug sep sept oct nov "
    "dec env ill ind cal tex mass pa va wash fla ga mich minn wis conn del md okla ariz colo ala ark kan ky mo mont "
    "neb nev tenn vt wyo az rdn hs sp u est janv févr juil déc inst civ".split())
# Before anything but a word that begins sentences.
_OFTEN = frozenset(
    "st ste mt ft jr esq inc co corp ltd ltda cía bros hnos al approx ca aprox av ave blvd supp stat fed civ crim "
    "proc evid cong sess pub cir ct dist div dep't dept ass'n assn gov't int'l nat'l comm'n univ ed eds éd hrsg aufl "
    "trans rep pres mio mrd jh phil phys chem sci lett acad soc natl am hist ph.d uu ud uds gebr trad coll "
    "reg treas".split())
_STARTERS = frozenset(
    "the this that these those it its he she they we you i there here in on at by for from to of as if when while "
    "after before since because although though however but and so then thus therefore moreover furthermore also a "
    "an no not some many most all each every both what who why how where which is are was were do does did has have "
    "had can will would should may must let my his her their our your under with during until nor such another other "
    "several one two der die das dem den ein eine einer es er sie wir man dies diese dieser dieses im am auf bei mit "
    "nach aus für wenn als weil dann doch aber und oder auch nur nicht kein keine hier daher jedoch seit les un une "
    "il elle ils elles nous vous ce cet cette ces en dans sur pour par avec mais et si quand el los las una ella "
    "ellos se por con para pero y este esta estos como cuando".split())
_HOURS = ("a.m", "p.m")  # what ends a sentence as often as not
_CITING = frozenset("cf vgl id ibid".split())  # abbreviations that begin sentences
_LABELLED = frozenset(  # a letter behind these is their name, and no initial
    "vitamin plan appendix exhibit section part type class group option figure table schedule annex grade level "
    "category hepatitis phase article chapter anhang anlage gruppe annexe partie anexo parte grupo".split())
_HEADED = frozenset("sec art ch chap rule clause chapitre título artikel artículo capítulo kapitel abschnitt".split())
_BEFORE_ORDINAL = frozenset("der dem den des das die vom zum im beim bis seit zur ins".split())
_MONTHS = frozenset(
    "januar jänner februar märz april mai juni juli august september oktober november dezember jahrhundert "
    "jahrhunderts".split())
_OPENING = "\"'“‘„‚«‹([¿¡§"
_LONGEST_BEFORE, _LONGEST_MARKER = 80, 20  # characters before a full stop that are looked at; of "Section 5"
_WORD = re.compile(r"\S+")
_CLAUSE = re.compile(r"[;:,]\s")
_ELIDED = re.compile(r"\A(?:l|d|qu)['’]")
_INITIALS = re.compile(r"(?:[^\W\d_]\.-?)+[^\W\d_]")
_COUNTED = re.compile(r"[A-Z]?\d|[IVXLC]{2,}\b|[A-Z]\b(?! [a-z])|§")
_NEXT = re.compile(r"[\"'“‘„‚«‹(\[¿¡]*([^\W_]+)(\.?)")
_ENDED = re.compile(r"[.!?:؟।۔。！？][\"'”’)\]」』]*\Z")
_BREAK = re.compile(SENTENCE_BREAK)


def sentence_spans(line: str) -> Iterator[tuple[int, int]]:
    """Yield (start, end) of each sentence of one line, in characters. One of more than LONGEST words is cut where a
    clause ends."""
    start = 0
    for found in _BREAK.finditer(line):
        following = _NEXT.match(line, found.end())
        if following and (following[1][0].islower() or (
                line[found.start()] == "." and _goes_on(line, start, found.start(), following))):
            continue
        yield from _clauses(line, start, len(line[: found.end()].rstrip()))
        start = found.end()
    yield from _clauses(line, start, len(line.rstrip()))


def _goes_on(line: str, start: int, stop: int, following: re.Match[str]) -> bool:
    """Say whether the full stop at ``stop`` belongs to the last word before it. start: of the sentence."""
    before = line[max(start, stop - _LONGEST_BEFORE) : stop]
    if stop - start < _LONGEST_MARKER and (ITEM.fullmatch(f"{before.lstrip()}. ") or _is_numbering(before)):
        return True
    *_, ahead, last = ["", "", *before.rsplit(None, 2)[-2:]]
    ahead, word = ahead.lstrip(_OPENING).lower(), last.lstrip(_OPENING)
    lowered, after = _ELIDED.sub("", word.lower()), following[1]
    begins = after.lower() in (_CITING if following[2] else _STARTERS)
    if word.isdigit():
        ordinal = ahead in _BEFORE_ORDINAL and not begins and after[0].isalpha()
        return len(word) < 3 and (after.lower() in _MONTHS or ordinal)
    if len(word) == 1 and word.isalpha() and _is_initial(word, ahead, following):
        return not begins or ahead.endswith((",", ";", ":")) or (word.islower() and ahead.endswith("."))
    if lowered in _ALWAYS or (lowered in _NUMBERED and _COUNTED.match(following.string, following.start(1))):
        return True
    if lowered in _NUMBERED and following[2] and (after.lower() in _NUMBERED | _OFTEN or len(after) == 1):
        return True
    if lowered in _HOURS:
        return False
    return not begins and (lowered in _OFTEN or _INITIALS.fullmatch(word) is not None)


def _is_numbering(before: str) -> bool:
    """Say whether this is no more than what numbers a heading or a clause: "Section 5", "Appendix A", "§ 12"."""
    words = before.split()
    return (len(words) == 2 and (words[0] == "§" or words[0].lower().rstrip(".") in _LABELLED | _HEADED)
            and (words[1][0].isdigit() or words[1].isupper()))


def _is_initial(letter: str, ahead: str, following: re.Match[str]) -> bool:
    """Say whether a letter with a full stop stands for a name or another word. ahead: the word before it."""
    beside = re.fullmatch(r"[^\W\d_]\.", ahead) is not None or (following[2] != "" and len(following[1]) == 1)
    if letter.islower():
        return beside or ahead.endswith((".", ";", ":"))  # "z. B.", "i. V. m.", "of this licence. c. If"
    return beside or (letter != "I" and ahead not in _LABELLED)


def runs_on(last_line: str, next_line: str) -> bool:
    """Say whether a sentence that stops at the foot of a page goes on at the head of the next.

    Cautious: a page's last line that looks like a heading or a finished sentence is not joined."""
    if not last_line or not next_line or _ENDED.search(last_line):
        return False
    return next_line[0].islower() or (len(last_line) > 60 and next_line[0].isalnum())


def _clauses(line: str, start: int, end: int) -> Iterator[tuple[int, int]]:
    """Yield one sentence, or its parts of at most LONGEST words each: up to the last semicolon or colon that leaves
    half of that, else the last comma, else between two words."""
    while end > start:
        words = [word.span() for word in _WORD.finditer(line, start, end)]
        if len(words) <= LONGEST:
            yield start, end
            return
        middle, last = words[LONGEST // 2][0], words[LONGEST - 1][1]
        ends = [found.start() + 1 for found in _CLAUSE.finditer(line, middle, last)]
        strong = [at for at in ends if line[at - 1] != ","]
        cut = (strong or ends or [last])[-1]
        yield start, cut
        start = next(word[0] for word in words if word[0] >= cut)
