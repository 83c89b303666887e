"""Headings of a plain text: underlined, numbered, in capitals, "CHAPTER I", or set out to the left of the text."""

from __future__ import annotations

import re
from collections.abc import Sequence

_LONGEST = 100
_TEXT = 80  # characters of the text that follows a heading in capitals
_RULE = re.compile(r"([=\-~^*#+_])\1{2,}")
_PART = re.compile(r"(?:VOLUME|Volume|BOOK|Book|PART|Part|ACT|Act)\s+(?:[IVXLC]+|\d{1,3}|[A-Z][A-Za-z]+)\b(?P<rest>.*)")
_CHAPTER = re.compile(
    r"(?:CHAPTER|Chapter|SECTION|Section|SCENE|Scene|APPENDIX|Appendix|LETTER|Letter|CANTO|Canto|STAVE|Stave|ARTICLE|"
    r"Article|ANNEX|Annex)\s+(?:[IVXLC]+|\d{1,3}|[A-Z]|(?:THE )?[A-Z]{3,}|(?:One|Two|Three|Four|Five|Six|Seven|Eight|"
    r"Nine|Ten|Eleven|Twelve|Thirteen|Fourteen|Fifteen|Sixteen|Seventeen|Eighteen|Nineteen|Twenty))\b(?P<rest>.*)"
)
_NUMBER = re.compile(r"((?:\d{1,3}\.)+\d{0,3}|[A-Z]\.\d{1,3}(?:\.\d{1,3})*\.?)\s+(?=[\"“(A-Z0-9À-Þ])(\S.*)")
_SINGLE = re.compile(r"(?:\d{1,3}|[IVXLC]{1,7})\. ")
_ROMAN_TITLE = re.compile(r"([IVXLC]{1,7})\. +(?=[\"“(A-Z0-9À-Þ])(\S.*)")
_DIGITS = {"I": 1, "V": 5, "X": 10, "L": 50, "C": 100}
_ROMAN = re.compile(r"[IVXLC]{1,7}\.?|\d{1,3}\.?")
_KNOWN = re.compile(
    r"(?:THE )?(?:PREFACE|INTRODUCTION|FOREWORD|CONTENTS|APPENDIX|EPILOGUE|PROLOGUE|CONCLUSION|INDEX|BIBLIOGRAPHY|"
    r"NOTES|FOOTNOTES|DEDICATION|ABSTRACT|REFERENCES|SUMMARY|GLOSSARY|ACKNOWLEDG(?:E)?MENTS)\.?"
)
_LEADERS = re.compile(r"\.{4}|(?:\. ){4}|\S {3,}\S|\t")
_PARTS, _CHAPTERS, _SECTIONS = 1, 2, 3  # levels; those of numbers follow


def indent_of(line: str) -> int:
    return len(line) - len(line.lstrip(" "))


def find_headings(groups: Sequence[Sequence[str]],
                  base: int) -> tuple[dict[int, tuple[str, int]], dict[int, int]]:
    """Return (words, level) of the heading with which a group of lines begins, by the group's number; and how many
    lines of each group belong to a heading. base: the usual indentation of the text."""
    finder = _Finder(groups, base)
    number = 0
    while number < len(groups):
        number += finder.look(number)
    finder.drop_title_pages()
    finder.drop_lists()
    return finder.found, finder.taken


class _Finder:
    def __init__(self, groups: Sequence[Sequence[str]], base: int) -> None:
        self._groups, self._base = groups, base
        self.found: dict[int, tuple[str, int]] = {}
        self.taken: dict[int, int] = {}
        self._rules: list[str] = []  # signs that underline, in the order of their first use

    def look(self, number: int) -> int:
        """Note the heading of a group. Return how many groups it takes."""
        lines = self._groups[number]
        first = lines[0].strip()
        if len(first) > _LONGEST or _LEADERS.search(first):
            return 1
        if len(lines) > 1 and (rule := _RULE.fullmatch(lines[1].strip())) and len(lines[1].strip()) * 2 >= len(first):
            if not _RULE.fullmatch(first):
                if rule[1] not in self._rules:
                    self._rules.append(rule[1])
                self._note(number, first, self._rules.index(rule[1]) + 1, 2)
            return 1
        if len(lines) > 3:
            return 1
        whole = " ".join(line.strip() for line in lines)
        level = self._level(whole, lines)
        after = self._groups[number + 1] if number + 1 < len(self._groups) else []
        roman = _ROMAN.fullmatch(whole) is not None
        bare = roman or (level in (_PARTS, _CHAPTERS) and _is_bare(whole))
        if bare and len(lines) == 1 and len(after) <= 2 and after and _is_title(after, not roman):
            title = " ".join([whole, *map(str.strip, after)])
            self._note(number, title, _CHAPTERS if roman else level, len(lines))
            self.taken[number + 1] = len(after)
            return 2
        if level:
            self._note(number, whole, level, len(lines))
        return 1

    def _level(self, words: str, lines: Sequence[str]) -> int:
        """Return the level of a heading, 0 for other words."""
        if len(words) > _LONGEST or words.endswith((",", ";")):
            return 0
        for pattern, level in ((_PART, _PARTS), (_CHAPTER, _CHAPTERS)):
            found = pattern.fullmatch(words)
            if found and (not found["rest"].endswith(".") or len(found["rest"].split()) < 6):
                return level if not found["rest"][:1].islower() and not found["rest"][1:2].islower() else 0
        if len(lines) > 1:
            return 0
        numbered = _NUMBER.fullmatch(words)
        if numbered and indent_of(lines[0]) <= self._base:
            ended = numbered[2].endswith((".", ":", ";", ","))
            return 0 if ended else _CHAPTERS + len(numbered[1].strip(".").split("."))
        roman = _ROMAN_TITLE.fullmatch(words)
        if (_KNOWN.fullmatch(words.upper()) and words[0].isupper()) or (roman and not words.endswith((".", ":"))):
            return _CHAPTERS
        letters = [character for character in words if character.isalpha()]
        if len(letters) > 2 and all(map(str.isupper, letters)) and 2 * len(letters) > len(words) and words[0].isalnum():
            return _SECTIONS
        set_out = self._base > 1 and indent_of(lines[0]) == 0 and len(words) <= 60
        return _SECTIONS if set_out and words[0].isupper() and words[-1].isalnum() else 0

    def _note(self, number: int, words: str, level: int, lines: int) -> None:
        self.found[number], self.taken[number] = (words, level), lines

    def _drop(self, number: int) -> None:
        del self.found[number], self.taken[number]

    def drop_title_pages(self) -> None:
        """Drop lines in capitals with hardly a word between them: they make a title page."""
        for number, (words, level) in list(self.found.items()):
            after = number + 1
            if level == _SECTIONS and words.upper() == words and after < len(self._groups) and not (
                    sum(map(len, self._groups[after])) >= _TEXT or self.found.get(after, ("", level))[1] != level):
                self._drop(number)
        if not any(level < _SECTIONS and not _KNOWN.fullmatch(words) for words, level in self.found.values()):
            for number, (words, level) in self.found.items():  # no chapters: a preface stands beside sections
                self.found[number] = (words, max(level, _SECTIONS))

    def drop_lists(self) -> None:
        """Drop numbered lines right below each other, and the initials of names that look like Roman numbers."""
        titled = {number: _value(match[1]) for number, (words, level) in self.found.items()
                  if level in (_CHAPTERS, _SECTIONS) and (match := _ROMAN_TITLE.fullmatch(words))}
        values = set(titled.values())
        for number, value in titled.items():
            if not {value - 1, value + 1} & values:
                self._drop(number)
        listed = {number for number, (words, _) in self.found.items() if _SINGLE.match(words)}
        for number in listed:
            if {number - 1, number + 1} & listed:
                self._drop(number)


def _value(roman: str) -> int:
    digits = [_DIGITS[sign] for sign in roman]
    return sum(-one if one < max(digits[at:]) else one for at, one in enumerate(digits))


def _is_bare(words: str) -> bool:
    """Say whether a heading is only "CHAPTER I", without a title."""
    return len(words.rstrip(".:").split()) == 2


def _is_title(lines: Sequence[str], chapter: bool) -> bool:
    """Say whether lines may be the title below a chapter's number: in capitals, or, below the word, a short line."""
    words = " ".join(line.strip() for line in lines)
    if len(words) > _LONGEST or not any(map(str.isalpha, words)):
        return False
    if words.upper() == words:
        return True
    return chapter and len(lines) == 1 and words[0].isupper() and not words.endswith((",", ";", ":"))
