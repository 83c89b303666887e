"""Quotations -> their places in the document, looked up by program. Pure.

Both sides are compared in a normal form, in which case, white space, line breaks (none between Han or kana), bars
between cells, hyphenation, ligatures and kinds of quotation marks and dashes do not count. A quotation is found where
all of it stands, or else one run of at least 85 % of it; what is shorter than 12 characters proves nothing and is not
looked up (a Han or Hangul sign counts three).
"""

from __future__ import annotations

import re
import unicodedata
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate
from math import ceil

from triforce_core import Document

LEAST = 12  # characters of a quotation that is looked up
_SIGNS, _SYLLABLES = 3, re.compile("[\u2e80-\U0003ffff]")  # letters that one counts for: Han, kana, Hangul
_UNSPACED = re.compile("[\u2e80-\u31ff\u3400-\u9fff\uf900-\ufaff\uff01-\uff65\U00020000-\U0003ffff]")  # Han, kana
SHARE = 0.85  # of the quotation that must stand there as one run
MOST = 50  # occurrences that are told apart
KEPT_DOCUMENTS = 2  # whose finders are kept

_SAME_LENGTH = str.maketrans(dict.fromkeys("“”„‟«»‹›‘’‚‛′″\"`´", "'") | dict.fromkeys("-‐‑", "\u2010")
                             | dict.fromkeys("‒–—―−", "-"))
_LIGATURES = dict(zip("ﬀﬁﬂﬃﬄﬅﬆ", ("ff", "fi", "fl", "ffi", "ffl", "st", "st"), strict=True)) | {"…": "..."}
_CHANGES = re.compile("|".join((
    "(?P<dash>\\s*[\u2010-]+\\s*)", r"(?P<space>\s+(?:\|\s+)+|\s{2,}|[^\S ])",
    "(?P<gone>[\u00ad\x02](?:[ \\t\\r]*\\n\\s*)?|[\u200b-\u200f\u202a-\u202e\u2060-\u206f\ufeff])",
    f"[{''.join(_LIGATURES)}]")))
_SPOT = re.compile(r"(\d{1,6}):(\d{1,9})-(\d{1,9})")
_EDGES = " '.,;:!?-。、，；：！？．｡،؛؟"
_ELLIPSIS = re.compile(r" ?[\[(]? ?(?:\. ?\. ?\.|…) ?[\])]? ?")  # where white space is a single space
_QUOTATION = re.compile("|".join((
    r"“([^“”]+)”", r"„([^„“”]+)[“”]", r"«([^«»]+)»", r"»([^«»]+)«", r"「([^「」]+)」", r"『([^『』]+)』",
    r'(?<!\w)"(?=\S)([^"]+)(?<=\S)"(?!\w)')))


@dataclass(frozen=True)
class Place:
    """Characters [start, end) of one page's text; pages count from 1."""

    page: int
    start: int
    end: int


@dataclass(frozen=True)
class Found:
    """The occurrences of a quotation, each as its places in the document's order (more than one where it crosses a
    page break or leaves words out). share: of the quotation that was found. more: occurrences that are not listed."""

    occurrences: tuple[tuple[Place, ...], ...]
    share: float
    more: int = 0


def spot(places: Sequence[Place]) -> str:
    """Return places as a click carries them: '3:120-188;4:0-20'."""
    return ";".join(f"{place.page}:{place.start}-{place.end}" for place in places)


def places(text: str) -> tuple[Place, ...]:
    """Return the places that ``spot`` wrote; () for whatever else a click may carry."""
    found = [_SPOT.fullmatch(part) for part in text.split(";")]
    if len(found) > MOST or not all(found):
        return ()
    return tuple(Place(*map(int, match.groups())) for match in found if match)


class Normal:
    """A text in normal form, and the way back to where its characters came from."""

    def __init__(self, text: str) -> None:
        flat = _lower(text.translate(_SAME_LENGTH))
        parts: list[str] = []
        self._starts: list[int] = []  # of each part, in the normal form ...
        self._origins: list[tuple[int, int]] = []  # ... and in the text
        done = length = 0

        def put(part: str, start: int, end: int) -> None:
            nonlocal length
            if part:
                parts.append(part)
                self._starts.append(length)
                self._origins.append((start, end))
                length += len(part)

        for match in _CHANGES.finditer(flat):
            put(flat[done : match.start()], done, match.start())
            put(_changed(match, flat), *match.span())
            done = match.end()
        put(flat[done:], done, len(flat))
        self.text = "".join(parts)

    def origin(self, start: int, end: int) -> tuple[int, int]:
        """Return the stretch of the text that is [start, end) of the normal form, which is not empty."""
        return self._place(start)[0], self._place(end - 1)[1]

    def _place(self, index: int) -> tuple[int, int]:
        part = bisect_right(self._starts, index) - 1
        first, last = self._origins[part]
        after = self._starts[part + 1] if part + 1 < len(self._starts) else len(self.text)
        if last - first != after - self._starts[part]:  # a part that became shorter or longer is one place
            return first, last
        return first + index - self._starts[part], first + index - self._starts[part] + 1


class QuoteFinder:
    """Looks quotations up in one document. Building it reads the text once; a look-up is a few string searches."""

    def __init__(self, document: Document) -> None:
        self._pages = [page.text for page in document.pages]
        self._starts = list(accumulate((len(text) + 1 for text in self._pages), initial=0))[:-1]
        self._normal = Normal("\n".join(self._pages))

    def find(self, quotation: str) -> Found | None:
        """Return where a quotation stands; None where it does not."""
        wanted = normal(quotation)
        if not says_enough(wanted):
            return None
        runs, share = self._runs(wanted)
        if runs:
            return Found(tuple(self._places([run]) for run in runs), share)
        return self._with_gaps(quotation)

    def search(self, words: str, most: int) -> tuple[list[Place], int]:
        """Return where ``words`` begin, the first ``most``, and how often they stand in all."""
        wanted = normal(words)
        if len(wanted) < 2:
            return [], 0
        ends = [(at, at + len(wanted)) for at in occurrences(self._normal.text, wanted, most)]
        return [self._places([run])[0] for run in ends], self._normal.text.count(wanted)

    def _runs(self, wanted: str) -> tuple[list[tuple[int, int]], float]:
        """Return where ``wanted`` stands, or the longest run of it that is long enough; [] if none is."""
        text, size = self._normal.text, len(wanted)
        whole = [(at, at + size) for at in occurrences(text, wanted)]
        if whole:
            return whole, 1.0
        need = max(min(LEAST, size), ceil(SHARE * size))
        first, last = size - need, need  # the middle, which every run of that length holds
        runs: set[tuple[int, int]] = set()
        for at in occurrences(text, wanted[first:last]) if first < last else ():
            low, high, left, right = at, at + last - first, first, last
            while left and low and text[low - 1] == wanted[left - 1]:
                low, left = low - 1, left - 1
            while right < size and high < len(text) and text[high] == wanted[right]:
                high, right = high + 1, right + 1
            if high - low >= need:
                runs.add((low + (text[low] == " "), high - (text[high - 1] == " ")))
        longest = max((high - low for low, high in runs), default=0)
        return sorted(run for run in runs if run[1] - run[0] == longest), longest / size

    def _with_gaps(self, quotation: str) -> Found | None:
        """Return where a quotation with "..." stands: its parts in order, each within a page of the one before."""
        parts = [part for part in map(normal, _ELLIPSIS.split(" ".join(quotation.split()))) if part]
        found = [self._runs(part) for part in parts if says_enough(part)]
        if len(parts) < 2 or not found or not all(runs for runs, _ in found):
            return None
        covered = sum((high - low) for ((low, high), *_), _ in found)
        if covered < SHARE * sum(map(len, parts)):
            return None
        chains = []
        for first in found[0][0]:
            chain = [first]
            for runs, _ in found[1:]:
                end, page = chain[-1][1], self._page(chain[-1][1] - 1)
                near = next((run for run in runs if run[0] >= end and self._page(run[0]) <= page + 1), None)
                if near is None:
                    break
                chain.append(near)
            else:
                chains.append(self._places(chain))
        return Found(tuple(chains), covered / sum(map(len, parts))) if chains else None

    def _page(self, index: int) -> int:
        """Return the page number (from 0) of a character of the normal form."""
        return bisect_right(self._starts, self._normal.origin(index, index + 1)[0]) - 1

    def _places(self, runs: Sequence[tuple[int, int]]) -> tuple[Place, ...]:
        places = []
        for run in runs:
            low, high = self._normal.origin(*run)
            first, last = (bisect_right(self._starts, at) - 1 for at in (low, high - 1))
            for page in range(first, last + 1):
                start = max(0, low - self._starts[page])
                end = min(len(self._pages[page]), high - self._starts[page])
                if start < end:
                    places.append(Place(page + 1, start, end))
        return tuple(places)


class QuoteFinders:
    """The finders of the documents that were looked in last. Thread-safe."""

    def __init__(self) -> None:
        self.of = lru_cache(KEPT_DOCUMENTS)(QuoteFinder)


def normal(text: str) -> str:
    """Return the normal form of a quotation, without the punctuation around it."""
    return Normal(unicodedata.normalize("NFC", text)).text.strip(_EDGES)


def says_enough(words: str) -> bool:
    """Return whether words in normal form are long enough to be looked up."""
    return len(words) + (_SIGNS - 1) * len(_SYLLABLES.findall(words)) >= LEAST


def quotations(text: str) -> Iterator[tuple[int, int]]:
    """Yield [start, end) of each stretch between quotation marks."""
    for match in _QUOTATION.finditer(text):
        yield match.span(match.lastindex or 0)


def _lower(text: str) -> str:
    """Return lower case of the same length (a few letters would become two)."""
    lowered = text.lower()
    return lowered if len(lowered) == len(text) else "".join(c.lower() if len(c.lower()) == 1 else c for c in text)


def _changed(match: re.Match[str], text: str) -> str:
    if match["dash"]:
        # A hyphen inside a word may have come or gone with a line break; a dash may have spaces around it or not.
        before, after = text[match.start() - 1 : match.start()], text[match.end() : match.end() + 1]
        hyphen = match["dash"].rstrip() == "\u2010" and before.isalpha() and after.isalpha()
        return "" if hyphen else "-"
    if match["space"]:
        return "" if _UNSPACED.match(text, match.start() - 1) and _UNSPACED.match(text, match.end()) else " "
    return "" if match["gone"] else _LIGATURES[match[0]]


def occurrences(text: str, wanted: str, most: int = MOST) -> list[int]:
    """Return where ``wanted`` begins, the first ``most``."""
    found: list[int] = []
    at = text.find(wanted)
    while at >= 0 and len(found) < most:
        found.append(at)
        at = text.find(wanted, at + 1)
    return found
