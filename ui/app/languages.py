"""Which language a document is in: what its file says, and what a count of its commonest words suggests.

The count knows seven languages and says nothing of others, nor where it is not clear. It is a guess, and called one.
"""

from __future__ import annotations

import re
from itertools import islice

from triforce_core import Document

_WORD = re.compile(r"[^\W\d_]+")
_SAMPLE = 20_000  # words that are counted, from the middle of the document on
_FEWEST = 50  # words that a guess needs
_LEAST, _LEAD = 0.12, 1.5  # share of the words that must be common ones, and how far ahead of the next language
_DIFFERENT = 6  # common words that must occur: other languages have one or two that look alike
_COMMON = {
    "en": "the of and to in is that it was for with as his he be not by but this which from had have they",
    "de": "der die und das ist nicht den zu von mit sich auf des dem ein eine auch es als wie wird nach noch war",
    "fr": "le la les de et des est une que dans pour qui sur pas au du il elle avec plus ce cette sont mais",
    "es": "el la los las de y que en un una es por con para no se del al lo como más pero sus fue",
    "it": "il lo la i gli le di e che è un una per con non si del della nel alla sono anche come ma",
    "pt": "o a os as de e que do da em um uma é por com para não se no na mais como mas foi",
    "nl": "de het een en van ik te dat die niet zijn was op aan met voor er maar om had ook als bij naar",
}
_SETS = {code: frozenset(words.split()) for code, words in _COMMON.items()}


def kept(document: Document) -> str:
    """What the library stores: the file's own tag, then "~" and the guess, of which either may be missing."""
    guess = guessed(document)
    return document.language + (f"~{guess}" if guess else "")


def guessed(document: Document) -> str:
    """"de", or "" where the count is not clear."""
    middle = len(document.pages) // 3
    words = (match[0].lower() for page in (*document.pages[middle:], *document.pages[:middle])
             for match in _WORD.finditer(page.text))
    sample = list(islice(words, _SAMPLE))
    if len(sample) < _FEWEST:
        return ""
    shares = sorted(((sum(word in common for word in sample) / len(sample), code) for code, common in _SETS.items()),
                    reverse=True)
    (best, code), (second, _) = shares[:2]
    different = len(_SETS[code].intersection(sample))
    return code if best >= _LEAST and best >= _LEAD * second and different >= _DIFFERENT else ""


