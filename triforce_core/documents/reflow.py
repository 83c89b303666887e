"""Join hard-wrapped lines, and take running headers, footers and page numbers away. Works on text alone.

A line is taken as wrapped when the next word would not have fitted into the usual line width."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

_FULL = 0.8  # proportional type: a full line may have that share of the usual characters ...
_FULL_SENTENCE = 0.95  # ... and, where it ends a sentence and the next begins one, this share
NARROWEST = 28  # no paragraph is set narrower: below it, lines are a list or a table
ITEM = re.compile(r"(?:[•◦▪‣●○*+·–—-]|o(?=  )|\(?(?:\d{1,3}|[a-zA-Z]|[ivx]{1,5})[.)])\s")
SENTENCE_END = re.compile(r"[.!?:;。！？：；][\"'”’)\]」』）]*\Z")
_HYPHEN = re.compile(r"[^\W\d_]-\Z")
_TIED = re.compile(r"[^\W_][\u2010\u2011\u2013]\Z|\d-\Z")
_DIVIDED = re.compile(r"(?<![^\W\d_])([^\W\d_]+)-\n[ \t]*([^\W\d_]+)")
_WIDE = ("[\u2e80-\u2fff\u3001-\u30ff\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\uff01-\uff65"
         "\U00020000-\U0003ffff]")
# Han, kana and their marks stand without blanks between them, two columns wide each. Expressions that name them take
# 10 ms to compile, so they are compiled where there are any.
_FIRST_WIDE = "\u2e80"
UNSPACED_BREAK = rf"(?<={_WIDE})[ \t]*\n\s*(?={_WIDE})"
_WORD = re.compile(r"[^\W\d_]+(?:-[^\W\d_]+)*")
_FIRST = re.compile(r"[^\W\d_]+")
_LAST = re.compile(r"(?<![^\W\d_])[^\W\d_]++-\Z")
_LONGEST_WORD = 80
_SUSPENDED = frozenset("and or to nor und oder bis et ou y o".split())  # "first- and second-class"
_SHARE = 0.6
_FEWEST = 3
_ROUNDS = 3  # a header may have several lines
_FEW_LINES = 5  # of most pages: these are nearly empty
_Key = tuple[str, int | None]
_BARE = "#"
_PAGED = "\v"  # any words with a page number that stands apart: the head names the chapter
_NUMBER = re.compile(r"[0-9]{1,6}")
_ROMAN = re.compile(r"[ivxlc]{1,7}", re.IGNORECASE)
_LONGEST = 120
_TEXT = "x" * (_LONGEST + 1)  # too long to run
_LABEL = "\t"  # before the words of a key such as "question"
# A number that counts the pages stands alone at one end of the line, apart from its words, or with a word for "page".
# That of "Question 7" does not.
_PAGE_NUMBER = re.compile(
    r"\A[\W_]*([0-9]{1,6})(?![\w%°]|[.,:)]+\s*\w)"
    r"|(?:\s\s|[|•·]\s?|\s[–—/-]\s?)([0-9]{1,6})(?:\s?(?:/|of|von|de|sur|di)\s?[0-9]{1,6})?[\W_]*\Z"
    r"|(?<![^\W\d_])(?:pages?|pg|pp?|s|seite|blatt|página|pagina|pág|pag|side|sida|sivu|strona|strana|str|oldal|folio"
    r"|slide|стр|страница|σελίδα|σελ|sayfa)\.?\s?([0-9]{1,6})(?!\w)|([0-9]{1,6})\s?(?:页|頁|ページ|쪽)")


@dataclass(frozen=True)
class Vocabulary:
    """Hold how often each word of a text comes (lower case, words with hyphens as a whole), and whether its line ends
    divide words, and not only at hyphens that stand there anyway."""

    counts: Mapping[str, int]
    divides: bool


def vocabulary(lines: Iterable[str], divides: bool = False) -> Vocabulary:
    """Return the words of a text. divides: taken to be so where the text does not show it."""
    text = "\n".join(line.rstrip() for line in lines).lower()
    if "-\n" not in text:
        return Vocabulary({}, divides)
    counts = Counter(_WORD.findall(_DIVIDED.sub(" ", text)))  # the halves of a divided word are no words
    pairs = _DIVIDED.findall(text)
    joined = sum(first + second in counts for first, second in pairs)
    hyphenated = sum(f"{first}-{second}" in counts for first, second in pairs)
    return Vocabulary(counts, joined > hyphenated if joined != hyphenated else divides)


def median(values: Iterable[float]) -> float:
    """Return the middle one of some values. The library's takes longer to import than all of a page to read."""
    ordered = sorted(values)
    return (ordered[(len(ordered) - 1) // 2] + ordered[len(ordered) // 2]) / 2


def columns(line: str) -> int:
    """Return how wide a line is, in letters."""
    narrow = line.isascii() or max(line) < _FIRST_WIDE
    return len(line) if narrow else len(line) + len(re.findall(_WIDE, line))


def _is_wide(letter: str) -> bool:
    return letter >= _FIRST_WIDE and re.match(_WIDE, letter) is not None


def between_lines(last: str, line: str) -> str:
    """Return what stands between two lines of a paragraph that divide no word: nothing between Han or kana, and behind
    a dash that has no blank before it ("1899-" / "1902", "long–" / "term")."""
    unspaced = _is_wide(last[-1:]) and _is_wide(line[:1])
    return "" if unspaced or is_tied(last, line) or last.endswith(("—", "--")) else " "


def is_tied(last: str, line: str) -> bool:
    """Say whether a dash at the end of a line belongs to the first word of the next one."""
    return _TIED.search(last[-2:]) is not None and (line[:1].isdigit() if last[-1] == "-" else line[:1].isalnum())


def fills(last: str, line: str, width: int) -> bool:
    """Say whether ``last`` ends where it does because the first word of ``line`` had no room there."""
    if _HYPHEN.search(last) and line[0].islower():
        return True
    if _is_wide(line[:1]):  # it breaks between any two characters
        return columns(last) + 2 > (_FULL_SENTENCE if SENTENCE_END.search(last) else _FULL) * width
    share = _FULL_SENTENCE if SENTENCE_END.search(last) and not line[0].islower() else _FULL
    if columns(last) + 1 + columns(line.split(None, 1)[0]) > share * width:
        return True
    return line[0].islower() and not SENTENCE_END.search(last) and len(last) > width // 2


def join(pieces: list[str], line: str, words: Vocabulary) -> None:
    """Add a line to a paragraph. words: see ``vocabulary``."""
    end = "".join(pieces[-3:])[-_LONGEST_WORD:]
    if not _HYPHEN.search(end):
        pieces.append(between_lines(end, line))
    elif line[0].islower() and _FIRST.match(line):
        second = _FIRST.match(line)[0]  # type: ignore[index]  # it matches
        if second in _SUSPENDED:
            pieces.append(" ")
        elif not _keeps_hyphen(_LAST.search(end)[0][:-1].lower(), second, words):  # type: ignore[index]
            pieces[-1] = pieces[-1][:-1]
    elif not line[0].isupper():
        pieces.append(" ")
    pieces.append(line)


def _keeps_hyphen(first: str, second: str, words: Vocabulary) -> bool:
    """Say whether "first-" and "second" are two words with a hyphen, as the document has them elsewhere. Where it has
    neither spelling: whether both halves are words of their own, or, in a text that divides no words, one of them."""
    counts = words.counts
    whole, hyphenated = counts.get(first + second, 0), counts.get(f"{first}-{second}", 0)
    if whole or hyphenated:
        return hyphenated >= whole
    known = (first in counts) + (second in counts)
    return known == 2 or (known == 1 and not words.divides)


def strip_running_lines(pages: Sequence[Sequence[str]], removed: Counter[str]) -> list[list[str]]:
    """Return pages as lists of lines, without their running lines, which are counted in ``removed`` by their words.
    Empty lines at the edges go with them."""
    kept = []
    few = median(sum(map(bool, map(str.strip, page))) for page in pages) < _FEW_LINES if pages else False
    masked = [[line if _may_run(page, at) else _TEXT for at, line in enumerate(page)] for page in pages]
    for page, (first, end) in zip(pages, between_running_lines(masked if few else pages), strict=True):
        kept.append(list(page[first:end]))
        removed.update(words_that_run(line) for line in (*page[:first], *page[end:]) if line.strip())
    return kept


def _may_run(page: Sequence[str], at: int) -> bool:
    """Say whether a line of a nearly empty page may be a running one: it is blank, has the page's number, or stands
    farther from the others than these from each other."""
    line = page[at].strip().casefold()
    if not line or line.strip("-–—|[]() .").isdigit() or _PAGE_NUMBER.search(line):
        return True
    full = [number for number, other in enumerate(page) if other.strip()]
    gaps = [below - above for above, below in pairwise(full)]
    own, *others = gaps[:: 1 if at == full[0] else -1] or [0]
    return at in (full[0], full[-1]) and bool(others) and own > median(others)


def words_that_run(line: str) -> str:
    """Return a running line as it is told of, its numbers left open."""
    return " ".join(_NUMBER.sub("…", line).split())


def between_running_lines(pages: Sequence[Sequence[str]]) -> list[tuple[int, int]]:
    """Return, for each page, the first line that stays and the one behind the last.

    Lines run that stand at the same edge of at least three pages and of more than 60 % of them (or of the left or right
    pages, which often differ), word for word or but for a page number that counts up. The middle of a page is never
    touched."""
    kept = [_trimmed(page, 0, len(page)) for page in pages]
    for edge in (0, -1):
        for _ in range(_ROUNDS):
            if not _strip_once(pages, kept, edge):
                break
    return kept


def _strip_once(pages: Sequence[Sequence[str]], kept: list[tuple[int, int]], edge: int) -> bool:
    """Take the outermost line away where it repeats. Return whether any was."""
    keys = {number: _keys(pages[number][first if edge == 0 else end - 1], number)
            for number, (first, end) in enumerate(kept) if first < end}
    repeated = _repeated(keys)
    numbered = any(key[0] == _BARE and key[1] is not None for key, _ in repeated)
    found = False
    for number, own in keys.items():
        first, end = kept[number]
        running = any((key, number % 2) in repeated and key != (_BARE, None) for key in own)
        if (running or (numbered and (_BARE, None) in own)) and end - first > 1:
            kept[number] = _trimmed(pages[number], first + (edge == 0), end - (edge != 0))
            found = True
    return found


def _repeated(keys: Mapping[int, set[_Key]]) -> set[tuple[_Key, int]]:
    """Return the keys that come often enough, on the left (0) or the right (1) pages or on all. keys: by page. What may
    be a label must come on one side only, as the head of a book does."""
    repeated: set[tuple[_Key, int]] = set()
    for side in (0, 1):
        for group in (list(keys), [number for number in keys if number % 2 == side]):
            counts = Counter(key for number in group for key in keys[number])
            repeated |= {(key, side) for key, count in counts.items()
                         if count >= _FEWEST and count > _SHARE * len(group)}
    return {(key, side) for key, side in repeated if not key[0].startswith(_LABEL) or (key, 1 - side) not in repeated}


def _keys(line: str, page: int) -> set[_Key]:
    """Return a line's words, or its words with its page number open, by which it is like those of other pages.

    A bare number also has the key (_BARE, None), so that roman front matter goes where arabic numbers do."""
    laid_out, line = line.strip().casefold(), " ".join(line.split()).casefold()
    if not line or len(line) > _LONGEST:
        return set()
    bare = line.strip("-–—|[]() .")
    if _ROMAN.fullmatch(bare) or _NUMBER.fullmatch(bare):
        return {(_BARE, None)} | ({(_BARE, int(bare) - page)} if bare.isdigit() else set())
    keys: set[_Key] = {(line.replace(" ", ""), None)}  # a scan's blanks come and go
    for found in _PAGE_NUMBER.finditer(laid_out):
        first, end = found.span(found.lastindex or 0)
        words = "".join(f"{laid_out[:first]}{_BARE}{laid_out[end:]}".split())
        keys.add((words, int(laid_out[first:end]) - page))
        if found.lastindex == 2 or laid_out[end : end + 2].isspace():
            keys.add((_PAGED, int(laid_out[first:end]) - page))
    if len(keys) == 1 and (label := re.search(r"(?<=[^\W\d_]\s)[0-9]{1,6}\Z", line)):
        keys.add((_LABEL + line[: label.start()], int(label[0]) - page))
    return keys


def _trimmed(lines: Sequence[str], first: int, end: int) -> tuple[int, int]:
    """Return the bounds without empty lines at either end."""
    while first < end and not lines[first].strip():
        first += 1
    while end > first and not lines[end - 1].strip():
        end -= 1
    return first, end
