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


class Headings:
    """Which groups of lines begin with a heading. base: the usual indentation of the text."""

    def __init__(self, groups: Sequence[Sequence[str]], base: int) -> None:
        self._groups, self._base = groups, base
        self._found: dict[int, tuple[str, int]] = {}  # of each group that has one
        self._taken: dict[int, int] = {}
        self._rules: list[str] = []  # signs that underline, in the order of their first use
        number = 0
        while number < len(groups):
            number += self._look(number)
        self._without_title_pages()

    def of(self, number: int) -> tuple[str, int] | None:
        """(words, level) of the heading with which this group begins, if it does."""
        return self._found.get(number)

    def taken(self, number: int) -> int:
        """Lines of this group that belong to a heading."""
        return self._taken.get(number, 0)

    def _look(self, number: int) -> int:
        """Note the heading of a group; says how many groups it takes."""
        lines = self._groups[number]
        first = lines[0].strip()
        if len(first) > _LONGEST or _LEADERS.search(first):
            return 1
        if len(lines) > 1 and (rule := _RULE.fullmatch(lines[1].strip())) and len(lines[1].strip()) * 2 >= len(first):
            if not _RULE.fullmatch(first):
                self._note(number, first, self._underlined(rule[1]), 2)
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
            self._taken[number + 1] = len(after)
            return 2
        if level:
            self._note(number, whole, level, len(lines))
        return 1

    def _level(self, words: str, lines: Sequence[str]) -> int:
        """0 for what is no heading."""
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

    def _underlined(self, sign: str) -> int:
        if sign not in self._rules:
            self._rules.append(sign)
        return self._rules.index(sign) + 1

    def _note(self, number: int, words: str, level: int, lines: int) -> None:
        self._found[number], self._taken[number] = (words, level), lines

    def _without_title_pages(self) -> None:
        """Lines in capitals with hardly a word between them make a title page; and numbered ones a list."""
        for number, (words, level) in list(self._found.items()):
            after = number + 1
            if level != _SECTIONS or words.upper() != words or after >= len(self._groups):
                continue
            followed = sum(map(len, self._groups[after])) >= _TEXT or self._found.get(after, ("", level))[1] != level
            if not followed:
                del self._found[number], self._taken[number]
        if not any(level < _SECTIONS and not _KNOWN.fullmatch(words) for words, level in self._found.values()):
            for number, (words, level) in self._found.items():  # no chapters: a preface stands beside sections
                self._found[number] = (words, max(level, _SECTIONS))
        titled = {number: _value(found[1]) for number, (words, level) in self._found.items()
                  if level in (_CHAPTERS, _SECTIONS) and (found := _ROMAN_TITLE.fullmatch(words))}
        values = set(titled.values())
        for number, value in titled.items():
            if not {value - 1, value + 1} & values:  # the initial of a name
                del self._found[number], self._taken[number]
        listed = {number for number, (words, _) in self._found.items() if _SINGLE.match(words)}
        for number in listed:
            if number + 1 in listed or number - 1 in listed:
                del self._found[number], self._taken[number]


def _value(roman: str) -> int:
    digits = [_DIGITS[sign] for sign in roman]
    return sum(-one if one < max(digits[at:]) else one for at, one in enumerate(digits))


def _is_bare(words: str) -> bool:
    """Only "CHAPTER I", without a title."""
    return len(words.rstrip(".:").split()) == 2


def _is_title(lines: Sequence[str], chapter: bool) -> bool:
    """Whether lines may be the title below a chapter's number: in capitals, or, below the word, a short line."""
    words = " ".join(line.strip() for line in lines)
    if len(words) > _LONGEST or not any(map(str.isalpha, words)):
        return False
    if words.upper() == words:
        return True
    return chapter and len(lines) == 1 and words[0].isupper() and not words.endswith((",", ";", ":"))
