"""Clean-up by example: deterministic, and cautious."""

from __future__ import annotations

import time
from collections import Counter

import pytest

from triforce_core.documents.cleanup import Words, clean, finish, letters, neutralise
from triforce_core.documents.readers.source import Raw, RawPage
from triforce_core.documents.reflow import strip_running_lines
from triforce_core.documents.sections import split_sections
from triforce_core.prompt.builder import ascii_typography, spelt_letters


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        ("ﬁne oﬃce ﬂow", "fine office flow"),
        ("cafe\u0301", "café"),
        ("alpha\u0002betic", "alphabetic"),
        ("alpha\ufffebetic", "alphabetic"),
        ("a\u00a0 b\t\tc  ", "a b c"),
        ("a\r\n\r\n\r\n\r\nb", "a\n\nb"),
        ("soft\u00adhyphen", "softhyphen"),
        ("bad\ud800surrogate", "bad\ufffdsurrogate"),
        ("“Curly” — stays…", "“Curly” — stays…"),
    ],
)
def test_clean(raw: str, expected: str) -> None:
    assert clean(raw) == (expected, 0)
    assert clean(expected) == (expected, 0)


def test_hidden_characters_are_counted() -> None:
    assert clean("a\u200bb\u202ec\U000e0041\u2066d") == ("abcd", 4)


def test_a_garbled_layer_has_no_letters() -> None:
    assert letters("\ufffd\ufffd \ue001\ue002 a") == 0 and letters("The whale") == 8
    assert letters("The \ufffdha\ufffde \ue001as \ue002\ue003re") == 0  # a third of it
    words = "The harbour master kept his accounts in a green ledger that nobody else was allowed to read. " * 8
    for text in (words, words.upper(), "HTTP XML 12.50 PNG sqrt TCP PDF 7\n" * 9):
        assert letters(text) == len("".join(text.split()))
    code = "\\edef\\snk@width{\\snk@step cm}\\snk@draw{\\snk@length}\\snk@fill\\snk@arc\\snk@rotate\\snk@end" * 9
    assert letters(code) == len("".join(code.split()))
    shifted = "".join(chr(ord(letter) - 29) if letter.isalpha() else letter for letter in words)
    assert letters(shifted) == 0  # glyphs by their numbers, without a map
    before, names = Words(), [f"{one}{two}{three}pq" for one in "bcdfgh" for two in "kmn" for three in "stvw"]
    assert letters(" ".join(names), before) == 0
    before.add(f"The names are {' '.join(names[:30])}, and each of them is a register of the harbour master.")
    assert letters(" ".join(names), before) == 5 * len(names) and letters(shifted, before) == 0


def test_running_lines_go() -> None:
    pages = [["MOBY DICK", f"{n} words", f"text {'x' * n}", f"more {'y' * n}", f"- {n} -"] for n in range(1, 9)]
    pages[0][-1] = "ix"  # front matter is numbered in its own way
    for number, page in enumerate(strip_running_lines(pages, Counter()), 1):
        assert page == [f"text {'x' * number}", f"more {'y' * number}"]
    sides = [[("WHALES" if n % 2 else "OF SHIPS"), "", "word " * (n + 1), f"Page {n} of 10"] for n in range(10)]
    told = Counter[str]()
    assert all(page == ["word " * (n + 1)] for n, page in enumerate(strip_running_lines(sides, told)))
    assert told == {"Page … of …": 10, "WHALES": 5, "OF SHIPS": 5}


@pytest.mark.parametrize(
    "pages",
    [
        [["Title", "a"], ["b", "c"], ["d", "e"], ["12", "f"]],
        [["Same", "a"], ["Same", "b"]],
        [["Only line"]] * 9,
        [
            [f"Total {n * n} of {n * 7}", f"words {'x' * n}", f"{n * n + 3}"] for n in range(9)
        ],  # figures, not page numbers
        [[f"Question {n}", f"words {'x' * n}"] for n in range(1, 9)],
        [["Certificate", f"for {'x' * n}", "The office, 3 May 1911"] for n in range(9)],  # nearly empty
        [[]] * 3,
    ],
)
def test_what_does_not_run_stays(pages: list[list[str]]) -> None:
    assert strip_running_lines(pages, Counter()) == pages


def test_sections_lose_nothing_and_stay_linear() -> None:
    text = "\n\n".join(f"Paragraph {n}. " + "word " * (n % 300) for n in range(400))
    sections = split_sections(text)
    assert "".join("".join(sections).split()) == "".join(text.split())
    assert max(map(len, sections)) <= 6000
    begin = time.perf_counter()
    split_sections("x" * 5_000_000)
    assert time.perf_counter() - begin < 2


def test_typography_and_the_way_back() -> None:
    page = "He said:\u00a0“It’s — 5–6 …  no” 😀.\nNext “line” and “line”"
    plain = ascii_typography(page)
    assert plain == 'He said: "It\'s -- 5-6 ... no" .\nNext "line" and "line"'
    spelt, sources = spelt_letters(page, ascii_typography)
    assert spelt == "".join(plain.split()) and len(sources) == len(spelt)
    start = spelt.index('"It')
    assert page[sources[start] : sources[spelt.index("no") + 2] + 1] == "“It’s — 5–6 …  no”"
    assert page[sources[spelt.index("--")]] == page[sources[spelt.index("--") + 1]] == "—"
    assert spelt_letters(" \n", str) == ("", [])
    assert ascii_typography(plain) == plain


def spelt(text: str) -> list[str]:
    _, warnings = finish(Raw("txt", "test", "", [RawPage("1", text)]), "a.txt")
    return [warning for warning in warnings if "control" in warning]


def test_strings_that_spell_control_tokens_are_counted_and_shown() -> None:
    text = "Say <|im_end|> and </s>, [INST] or <start_of_turn>; <b> and [page 3] are none. <｜end▁of▁sentence｜>"
    (warning,) = spelt(text)
    assert warning.startswith("5 strings that spell control tokens")
    (page,), _ = finish(Raw("txt", "test", "", [RawPage("1", text)]), "a.txt")
    assert "<|im_end|>" in page[1]  # as it stands there; the tokenizer makes no control token of it


def test_neutralised_text_reads_the_same_and_spells_nothing() -> None:
    text = "a <|eot_id|> b <<SYS>> c <S> d"
    assert spelt(text) and not spelt(neutralise(text))
    assert neutralise(text).replace(" ", "") == text.replace(" ", "") and neutralise("1 < 2 | 3 > 2") == "1 < 2 | 3 > 2"
