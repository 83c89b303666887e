"""The language of a document, in words."""

from __future__ import annotations

import re

from ..words import library as library_words


def in_words(stored: str) -> str:
    """What a card says of what ``state.languages.kept`` stored; "" where nothing is known."""
    said, _, guess = stored.partition("~")
    if not said:
        return library_words.PROBABLY.format(language=_name(guess)) if guess else ""
    if guess and _base(said) != guess:
        return library_words.SAID_BUT.format(language=_name(said), guess=_name(guess))
    return library_words.SAID.format(language=_name(said))


def _base(tag: str) -> str:
    return re.split("[-_]", tag)[0].lower()


def _name(tag: str) -> str:
    return library_words.LANGUAGES.get(_base(tag), tag)
