"""Every regular expression of the app takes linear time: each is tried on 20,000 repeats of each of its parts.

Cost is counted in CPU seconds of this process, so that a busy machine changes little: what is linear takes some
milliseconds, what is quadratic a second or more.
"""

from __future__ import annotations

import ast
import importlib
import re
import signal
import time
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import cache
from itertools import groupby
from pathlib import Path
from re import _parser as parser  # type: ignore[attr-defined]
from types import ModuleType
from typing import Any

import pytest

from triforce_core.documents.sentences import SENTENCE_BREAK

ROOT = Path(__file__).parent.parent
PACKAGES = ("triforce_core", "ui")
REPEATS = 20_000
LONGEST = 40_000  # characters of one text
LIMIT, A_CHARACTER = 0.1, 3e-6  # CPU seconds for one text, and for each of its characters
METHODS = ("match", "fullmatch", "search", "finditer", "findall", "sub", "subn", "split")
CHARACTERS = [chr(n) for n in (*range(32, 127), 9, 10, 0xE9, 0x201C)]  # to find one that a set holds
# For expressions that a function makes: values of its own names.
LOCALS: dict[str, Any] = {"mark": "1", "behind": r"\s", "verbs": "published", "labels": "Published",
                          "words": ["a", "b"], "match": ["", "a"], "pieces": ["<a>", "<b>"],
                          "key": "a", "pattern": SENTENCE_BREAK}

Use = tuple[str, re.Pattern[Any], str]  # where it stands, the expression, the method that is called on it


@cache
def trees() -> dict[Path, ast.Module]:
    return {path: ast.parse(path.read_text("utf-8")) for package in PACKAGES
            for path in sorted((ROOT / package).rglob("*.py"))}


@cache
def methods() -> dict[str, set[str]]:
    """Return name -> the methods that are called on it; a private name stands with its file."""
    found: dict[str, set[str]] = {}
    for path, tree in trees().items():
        for node in ast.walk(tree):
            if isinstance(node, ast.Attribute) and node.attr in METHODS and isinstance(node.value, ast.Name):
                found.setdefault(_known_as(path, node.value.id), set()).add(node.attr)
    return found


def uses(path: Path) -> list[Use]:
    """Return every use of an expression in a file. One whose method is not seen, as in a tuple, is searched with."""
    calls = [node for node in ast.walk(trees()[path]) if isinstance(node, ast.Call) and _is_of_re(node.func)]
    name = path.relative_to(ROOT).as_posix()
    module = importlib.import_module(name.removesuffix(".py").replace("/", ".").removesuffix(".__init__"))
    found: list[Use] = []
    for key, value in vars(module).items():
        for pattern in _held(value, module.__name__):
            found += [(key, pattern, method) for method in sorted(methods().get(_known_as(path, key), {"search"}))]
    at_top = {node for statement in trees()[path].body if isinstance(statement, (ast.Assign, ast.AnnAssign))
              for node in ast.walk(statement)}
    called = {node.value: node.attr for node in ast.walk(trees()[path]) if isinstance(node, ast.Attribute)}
    return found + [_inline(call, called.get(call, "search"), name, module) for call in calls if call not in at_top]


def _known_as(path: Path, name: str) -> str:
    return f"{path}:{name}" if name.startswith("_") else name


def _is_of_re(function: ast.expr) -> bool:
    return (isinstance(function, ast.Attribute) and isinstance(function.value, ast.Name)
            and function.value.id == "re" and function.attr in (*METHODS, "compile"))


def _held(value: Any, module: str) -> Iterator[re.Pattern[Any]]:
    """Yield the expressions that a module's value holds, at any depth."""
    if isinstance(value, re.Pattern):
        yield value
    elif isinstance(value, (tuple, list, dict)):
        for each in value.values() if isinstance(value, dict) else value:
            yield from _held(each, module)
    elif isinstance(value, type) and value.__module__ == module:
        yield from _held(dict(vars(value)), module)


def _inline(call: ast.Call, then: str, name: str, module: ModuleType) -> Use:
    """Return the use that a call within a function or class is. then: the method of what it compiles."""
    values = [eval(compile(ast.Expression(each), name, "eval"), vars(module) | LOCALS)
              for each in (call.args[0], *(word.value for word in call.keywords if word.arg == "flags"))]
    assert isinstance(call.func, ast.Attribute)
    method = call.func.attr
    return f"line {call.lineno}", re.compile(*values), then if method == "compile" else method


def attacks(pattern: re.Pattern[Any]) -> Iterator[Any]:
    """Yield texts of 20,000 repeats of each part, as far as LONGEST allows: behind nothing and behind what stands
    before the part, and with a character behind that can hardly match; a single character also without."""
    tree = parser.parse(pattern.pattern, pattern.flags)
    tried = {(start, part) for before, part in _parts(tree) if part.strip(" ") or part == " " for start in ("", before)}
    for start, part in sorted(tried):
        for end in ("", "\x00")[len(part) > 1 :]:
            text = start + part * min(REPEATS, LONGEST // len(part)) + end
            yield text.encode("latin-1", "replace") if isinstance(pattern.pattern, bytes) else text


def _parts(tree: Any, before: str = "") -> Iterator[tuple[str, str]]:
    """Yield (an example of what stands before, an example of the part) for every part at every depth."""
    for whole in (_example(tree), _example(tree, least=True)):
        yield before, whole
        yield before, f"{whole} "  # as a word of its own
    for is_letter, run in groupby(tree, lambda node: node[0] is parser.LITERAL):
        if is_letter:
            word = _example(run)
            yield before, word
            yield before, f"{word} "
    for op, value in tree:
        inner: Sequence[Any] = ()
        if op is parser.IN:
            for letter in _members(value):
                yield before, letter
        elif op in (parser.MAX_REPEAT, parser.MIN_REPEAT, parser.POSSESSIVE_REPEAT):
            inner = [value[2]]
        elif op is parser.SUBPATTERN:
            inner = [value[3]]
        elif op is parser.ATOMIC_GROUP:
            inner = [value]
        elif op is parser.BRANCH:
            inner = value[1]
        elif op in (parser.ASSERT, parser.ASSERT_NOT):
            inner = [value[1]]
        elif op is not parser.LITERAL or not chr(value).isalnum():  # letters are tried in words and in sets
            yield before, _example([(op, value)])
        for each in inner:
            yield from _parts(each, before)
        before += _example([(op, value)])


def _members(items: Any) -> list[str]:
    """Return a character of each member of a set; of one that says what it lacks, some that it has."""
    if items[0][0] is parser.NEGATE:
        return [letter for letter in ("a", "0", " ", "-", "“", "(", "<") if not _is_in(letter, items[1:])]
    return [chr(value) if op is parser.LITERAL else chr(value[0]) if op is parser.RANGE
            else next(letter for letter in CHARACTERS if _is_in(letter, [(op, value)])) for op, value in items]


def _is_in(letter: str, items: Any) -> bool:
    for op, value in items:
        if op is parser.LITERAL and ord(letter) == value:
            return True
        if op is parser.RANGE and value[0] <= ord(letter) <= value[1]:
            return True
        if op is parser.CATEGORY:
            _, kind = str(value).split("_", 1)
            sign = {"DIGIT": r"\d", "SPACE": r"\s", "WORD": r"\w"}[kind.removeprefix("NOT_")]
            if (re.match(sign, letter) is None) == kind.startswith("NOT_"):
                return True
    return False


def _example(tree: Any, least: bool = False) -> str:
    """Return a text that it matches, or nearly; what may be left out stands once, or with ``least`` not at all."""
    made = ""
    for op, value in tree:
        if op is parser.LITERAL:
            made += chr(value)
        elif op is parser.NOT_LITERAL:
            made += "a" if value != ord("a") else "b"
        elif op is parser.ANY:
            made += "x"
        elif op is parser.IN:
            made += (_members(value) or [""])[0]
        elif op in (parser.MAX_REPEAT, parser.MIN_REPEAT, parser.POSSESSIVE_REPEAT):
            made += _example(value[2], least) * min(max(0 if least else 1, value[0]), 100)
        elif op in (parser.SUBPATTERN, parser.ATOMIC_GROUP):
            made += _example(value[3] if op is parser.SUBPATTERN else value, least)
        elif op is parser.BRANCH:
            made += _example(value[1][0], least)
    return made


class _TooLong(Exception):
    pass


def cost(pattern: re.Pattern[Any], method: str, text: Any, most: float = 1.0) -> float:
    """Return the CPU seconds that a method takes on a text; it is broken off after ``most`` where it can be."""
    def stop(*_: object) -> None:
        raise _TooLong

    before = signal.signal(signal.SIGVTALRM, stop)
    signal.setitimer(signal.ITIMER_VIRTUAL, most)
    started = time.process_time()
    with suppress(_TooLong):
        try:
            call = getattr(pattern, method)
            found = call(text[:0], text) if method in ("sub", "subn") else call(text)
            if method == "finditer":
                deque(found, maxlen=0)
        finally:
            signal.setitimer(signal.ITIMER_VIRTUAL, 0)
            signal.signal(signal.SIGVTALRM, before)
    return time.process_time() - started


FILES = [path for package in PACKAGES for path in sorted((ROOT / package).rglob("*.py"))
         if re.search(r"\bre\.[a-z]+\(", path.read_text("utf-8"))]


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_every_expression_takes_linear_time(path: Path) -> None:
    for where, pattern, method in uses(path):
        for text in attacks(pattern):
            most = LIMIT + A_CHARACTER * len(text)
            if cost(pattern, method, text) > most:  # twice: another process may have taken the machine's caches
                took = cost(pattern, method, text)
                assert took < most, f"{where}: {method} of {text[:60]!r}... takes {took:.2f} s: {pattern.pattern!r}"


def test_a_planted_expression_is_found() -> None:
    for planted in (r"\s+x", r"“([^”]*)”", r"\bwhich\b.*\bends\Z", r"a (?:[A-Z]\w* ?){2,}\Z"):
        pattern = re.compile(planted)
        costs = ((cost(pattern, "search", text), LIMIT + A_CHARACTER * len(text)) for text in attacks(pattern))
        assert any(took > most for took, most in costs), planted
