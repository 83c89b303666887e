"""Raised and lowered figures of a PDF: powers, charges, isotopes and indices stay, marks of notes go.

Whether a raised number is a note's mark is known only when all notes of the document are: until then it stands between
two control characters in its line."""

from __future__ import annotations

import re
from collections.abc import Collection

from .flow import script

RAISED, RAISED_END = "\x0e", "\x0f"
MARKED = re.compile(f"{RAISED}([^{RAISED}{RAISED_END}]*){RAISED_END}")
_SIGN = r"+±−–\-"
_NOTE_MARK = re.compile(r"(?:\d{1,3}|[*†‡§¶]{1,3}|\[\d{1,3}\]|[a-z])(?:[,–-]\s?(?:\d{1,3}|[*†‡§¶]{1,3}))*,?")
_FIGURE = re.compile(rf"(?!.*[^\W\d_]{{2}})(?:[{_SIGN}]|[({_SIGN}]{{0,2}}[\da-zA-Z][\w{_SIGN}./,()]{{0,15}})")
_INDEX = re.compile(rf"[{_SIGN}]?(?:\d{{1,4}}|[a-zA-Z]{{1,4}})(?:[{_SIGN},]?[a-zA-Z0-9]){{0,4}}")
_CAPITAL = re.compile(r"[A-Z]")  # of a logo
_ORDINAL = re.compile(r"\d*(?:st|nd|rd|th|er|re|e|ème)\.?")
_FRACTION = re.compile(f"(?:(?<=\\d)|(?<![^\\s|])){RAISED}(\\d+){RAISED_END} ?(?=[/⁄] ?\\d)")
_ELEMENT = r"[A-Z][a-z]?(?![^\W_])"
ISOTOPE = re.compile(rf"{RAISED}\d{{1,3}}m?{RAISED_END}{_ELEMENT}")
_POWER_OF_NUMBER = re.compile(r"(?:\A|[^\d.,])(?:10|2)\Z")
# A number, a bracket, a letter, a unit or what stands behind a sign may have a power, or a note.
_BASE = re.compile(r"(?:[\d)\]}]|(?:^|[\s(/*·])(?:[^\W\d_]|[ckm]?m|sec)|[=+*/×·<>(−]\s?[^\W\d_]{1,3})\Z")


def is_raised_figure(text: str) -> bool:
    """Say whether raised characters are a figure or the mark of a note, and no part of a word."""
    return _ORDINAL.fullmatch(text) is None and _CAPITAL.fullmatch(text) is None and (
        _NOTE_MARK.fullmatch(text) is not None or _FIGURE.fullmatch(text) is not None)


def raised(text: str) -> str:
    """Return a raised figure as it stands in a line until ``resolved``."""
    return f"{RAISED}{text}{RAISED_END}"


def lowered(before: str, text: str) -> str:
    """Return ``before`` with a lowered figure or index behind it. The foot of a fraction stays as it is, and so does a
    part of a word."""
    if not (before[-1:].isalnum() or before[-1:] in (*")]}", RAISED_END)) or _INDEX.fullmatch(text) is None:
        return before + text
    return before + script("_", text)


def without_raised(text: str) -> str:
    return MARKED.sub("", text) if RAISED in text else text


def raised_marks(text: str) -> list[str]:
    """Return the marks in a line that could be those of notes."""
    return [mark for found in MARKED.findall(text) for mark in _parts(found)] if RAISED in text else []


def _parts(figure: str) -> list[str]:
    return [part for part in re.split(r"[,\s–-]+", figure.strip("[]")) if part] if _NOTE_MARK.fullmatch(figure) else []


def cited(text: str) -> list[str]:
    """Return the marks in a text that stand where no power does."""
    return [mark for found in MARKED.finditer(text) if not _is_base(text, found) for mark in _parts(found[1])]


def _before(text: str, found: re.Match[str]) -> str:
    return without_raised(text[max(0, found.start() - 16) : found.start()])


def _is_base(text: str, found: re.Match[str]) -> bool:
    return ISOTOPE.match(text, found.start()) is not None or _BASE.search(_before(text, found)) is not None


def resolved(text: str, notes: Collection[str], here: Collection[str], elsewhere: Collection[str]) -> str:
    """Return the text with its raised figures written out: x^2, ^-5, 14C. A mark goes only where there is a note with
    it. What may be a power stays one where the note is on another page, or its mark stands elsewhere.

    notes: the marks of all notes; here: those of this page's notes and of the document's end; elsewhere: the marks that
    stand where no power does, on this page."""

    def written(found: re.Match[str]) -> str:
        figure, before = found[1], _before(text, found)
        comma = "," if figure.endswith(",") else ""
        parts = _parts(figure)
        if _POWER_OF_NUMBER.search(before):
            parts = []
        elif _is_base(text, found):
            parts = [part if part in here and part not in elsewhere else "" for part in parts]
        if parts and all(part in notes for part in parts):
            return comma
        leads = (not before or before[-1].isspace()) and text[found.end() : found.end() + 1].isalpha()
        if leads or figure[0] in "[*†‡§¶":
            return figure
        return f"^{figure}" if _NOTE_MARK.fullmatch(figure) or figure[0] == "(" else script("^", figure)

    if RAISED not in text:
        return text
    text = _FRACTION.sub(lambda found: " " * text[found.start() - 1 : found.start()].isdigit() + found[1], text)
    return re.sub(r"(?<! ) ++([.,;:])(?=\s|\Z)", r"\1", MARKED.sub(written, text))
