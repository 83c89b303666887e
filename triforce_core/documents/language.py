"""Recognise the language of a text: most of its stretches must agree.

A few languages are known by their smallest words or by their letters, which costs nothing; for others the package
``py3langid`` (BSD; a naive Bayes classifier of byte sequences) is loaded, which takes almost a second of computing."""

from __future__ import annotations

import lzma
import os
import re
import sys
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable
from io import BytesIO
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from py3langid.langid import LanguageIdentifier

NAMED = frozenset(
    "af ar az be bg bn ca cs cy da de el en eo es et eu fa fi fr ga gd gl gu he hi hr hu hy id is it ja ka kk km kn ko "
    "ky la lb lt lv mk ml mn mr ms mt my ne nl nn no pa pl ps pt ro ru sk sl sq sr sv sw ta te tg th tl tr ug uk ur uz "
    "vi zh".split())
# Words that no other large language shares much; "" are languages so much alike that the classifier tells them apart.
_SMALL_WORDS = {
    "en": "the of and to is that for with be this are as by not from which it was on have has at or",
    "de": "der und das ist nicht ein eine einen von zu mit den dem des auf für sich wird werden auch im zum zur oder",
    "fr": "les des et une est dans pour que qui pas sur du au par avec sont ce il ou cette aux ne",
    "es": "el los las y una por con para del como más lo su al es este esta si son sin",
    "it": "il di che e per una non è con sono della gli nel del dei viene alla dal come questo questa i",
    "nl": "het een voor zijn niet worden wordt naar van deze aan dat bij ook met als dan is op",
    "": "não uma um com em são pelo pela também ou à ao os as dos das do da para por é",
}
_LANGUAGES = {word: [language for language, words in _SMALL_WORDS.items() if word in words.split()]
              for word in " ".join(_SMALL_WORDS.values()).split()}
_SMALL_SHARE = 0.1  # of all words, at least; and twice as many as of any other language
# Letters of one language among those of ``NAMED``, and which share of a stretch's letters they are at least: Japanese
# writes Han, too.
_LETTERS = {"ja": (re.compile("[\u3040-\u30ff]"), 0.1), "zh": (re.compile("[\u3400-\u9fff]"), 0.5),
            "ko": (re.compile("[\uac00-\ud7a3]"), 0.5), "el": (re.compile("[\u0370-\u03ff]"), 0.5),
            "he": (re.compile("[\u0590-\u05ff]"), 0.5), "th": (re.compile("[\u0e00-\u0e7f]"), 0.5)}
_NO_LANGUAGE = "zxx"  # numbers, code, names of things
_STRETCHES, _LENGTH = 24, 300  # how many, spread over the document, of how many characters
_LINES = 300  # that are looked at
_AGREE = 2 / 3  # of the stretches
_LEAST = 120  # letters of prose that a guess needs
_LINE = 25  # letters of a line of prose
_SIGNS = 3  # letters of an alphabet that a sign of a syllable or a word counts for
_CAPITALS = 0.6  # of the words: more are names or headings
_SYLLABLE = "\u2e80"  # Han, kana and Hangul begin here
_WORD = re.compile(r"\w+")
_NO_PROSE = re.compile(r" \| |\t|[{}=]|;$|[a-z]\(")  # rows of a table, code


def language_of(texts: Iterable[str]) -> str:
    """Return the language of a document's pages, such as "de"; "" where it is not clear, as with tables and lists of
    names, and where too little is written."""
    stretches = _stretches(_prose(texts))
    if not stretches:
        return ""
    if language := _most(stretches, _by_small_words) or _most(stretches, _by_letters):
        return language
    try:
        identifier = _identifier()
        return _most(stretches, lambda stretch: str(identifier.classify(stretch)[0]))
    except MemoryError:  # of the process that reads: no reason to lose its document
        return ""


def _prose(texts: Iterable[str]) -> str:
    """Return lines, spread over the pages, that are sentences rather than rows, names or figures."""
    lines = [line for text in texts for line in text.split("\n") if _SIGNS * len(line) > _LINE]
    kept = []
    for line in lines[:: len(lines) // _LINES + 1]:
        line = line[:_LENGTH]
        words = line.split()
        signs = "".join(words)
        letters = sum(map(str.isalpha, signs)) if line.isascii() else sum(
            unicodedata.category(sign)[0] in "LM" for sign in signs)
        full = letters + (_SIGNS - 1) * _syllables(line) >= _LINE
        named = sum(word[0].isupper() for word in words) > _CAPITALS * len(words)
        if full and not named and not _NO_PROSE.search(line) and 4 * letters >= 3 * len(signs):
            kept.append(" ".join(words))
    return " ".join(kept)


def _syllables(text: str) -> int:
    return 0 if text.isascii() else sum(map(_SYLLABLE.__le__, text))


def _stretches(prose: str) -> list[str]:
    if len(prose) + (_SIGNS - 1) * _syllables(prose) < _LEAST:
        return []
    count = max(1, min(_STRETCHES, len(prose) // _LENGTH))
    step = len(prose) // count
    return [prose[at * step : at * step + max(_LENGTH, step if count < _STRETCHES else 0)] for at in range(count)]


def _most(stretches: list[str], guess: Callable[[str], str]) -> str:
    """Return the language of most stretches; "" where they do not agree. Half are enough if no other one is clear."""
    counts = Counter(map(guess, stretches))
    [(language, count)] = counts.most_common(1)
    share = 1 / 2 if counts.keys() <= {language, ""} else _AGREE
    return language if language != _NO_LANGUAGE and count >= share * len(stretches) else ""


def _by_small_words(stretch: str) -> str:
    words = _WORD.findall(stretch.lower())
    counts = Counter(language for word in words for language in _LANGUAGES.get(word, ()))
    (language, count), (_, second), *_ = (*counts.most_common(2), ("", 0), ("", 0))
    return language if count >= max(2 * second, _SMALL_SHARE * len(words)) else ""


def _by_letters(stretch: str) -> str:
    letters = 0 if stretch.isascii() else sum(map(str.isalpha, stretch))
    return next((language for language, (own, share) in _LETTERS.items()
                 if letters and len(own.findall(stretch)) >= share * letters), "")


def _identifier() -> LanguageIdentifier:
    """Load the classifier, held to the languages that the page can name. The package's own loader writes 68 MB to the
    disk, which a process that reads may not."""
    if "numpy" not in sys.modules:
        os.environ["OPENBLAS_NUM_THREADS"] = "1"  # such a process may start no thread either
    import numpy as np
    from py3langid.langid import MODEL_DIR, MODEL_FILE, LanguageIdentifier
    from py3langid.modelio import _to_array

    with np.load(BytesIO(lzma.decompress((MODEL_DIR / MODEL_FILE).read_bytes()))) as stored:
        identifier = LanguageIdentifier(
            stored["ptc"], stored["pc"], stored["classes"].tolist(), _to_array(stored["nextmove"]),
            stored["out_feat"].tolist(), tk_row=_to_array(stored["nextmove_row"]))
    identifier.set_languages(NAMED.intersection(identifier.labels) | {_NO_LANGUAGE})
    return identifier
