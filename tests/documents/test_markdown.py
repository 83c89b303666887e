"""Markdown as text: nothing lost, no marks, notes and rows on lines of their own."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from triforce_core.documents import read_document
from triforce_core.documents.readers.html import HtmlText
from triforce_core.documents.readers.markdown import markdown_tree


def text_of(markup: str) -> str:
    return HtmlText(markdown_tree(markup)).text()


@pytest.mark.parametrize(("markup", "expected"), [
    ("A `Map<K, V>` and `__init__` here", "A Map<K, V> and __init__ here"),
    ("See <https://example.org/a_b_c>.", "See https://example.org/a_b_c."),
    ("An a <b and c> d and a list of <T>, Vec<A>", "An a <b and c> d and a list of <T>, Vec<A>"),
    ("2<sup>30</sup>, m<sup>2</sup>, x<sup>n+1</sup>, the 1<sup>st</sup>", "2^30, m^2, x^(n+1), the 1st"),
    ("It ended.<sup>1</sup> The word<sup>12</sup> goes on.", "It ended.^1 The word^12 goes on."),
    ("Whales&mdash;large&nbsp;ones &lt;here&gt;", "Whales—large ones <here>"),
    ("A <kbd>Ctrl</kbd> <b>bold</b> word<!-- no -->", "A Ctrl bold word"),
    ("one<br>two", "one\ntwo"),
    ("*a* **b** ~~c~~ __d__ [e](f) ![g](h.png) \\*i\\* ``j`k``", "a b c d e g *i* j`k"),
    ("[e][1] and [f]\n\n[1]: http://x 'y'\n[f]: z", "e and f"),
    ("[One](a)[Two](b)", "One Two"),
    ("> a quotation\n> that wraps\n\n> > and another", "a quotation that wraps\n\nand another"),
    ("> [!WARNING]\n> Hot.", "Warning\nHot."),
    ("- one\n  wraps\n- two\n\n3. three\n4) four", "- one wraps\n- two\n\n3. three\n\n4) four"),
    ("Term\n: what it means\n  and more", "Term\nwhat it means and more"),
    ("|a|b|\n|-|-|\n|1 *x*|2|\n||3|\n\n|c|\n|-|\n|4|", "a | b\n1 x | 2\n| 3\n\nc\n4"),
    ("| a | b\n| 1 | 2 |\nA paragraph.", "a | b\n1 | 2\n\nA paragraph."),
    ("```py\ndef f():\n\treturn 1\n```", "def f():\n    return 1"),
    ("Text:\n\n    a:\n      b: 1", "Text:\n\na:\n  b: 1"),
    ("Intro.\n\n<table><tr><td>1</td><td>2</td></tr></table>", "Intro.\n\n1 | 2"),
    ("**Type:** A\n**No.:** 2", "Type: A\nNo.: 2"),
    ("wrapped\nby *hand*\nhere", "wrapped by hand here"),
    (f"A box\n{'Its long line. ' * 20}\nAnother", f"A box\n{('Its long line. ' * 20).strip()}\nAnother"),
])  # fmt: skip
def test_what_is_shown(markup: str, expected: str) -> None:
    assert text_of(markup) == expected


def test_notes_stand_apart() -> None:
    text = text_of("One[^1] two[^long]. Three^[inside *it*] four[^9].\n\n[^1]: First\n    note.\n\n[^long]: Long.\n\n"
                   "    Its second part.\n\nEnd. A class [^1a] stays.")
    assert text == ("One two. Three four.\n\n[1] First note.\n\n[long] Long. Its second part.\n\n"
                    "End. A class [^1a] stays.".replace("[1] First", "[3] inside it\n\n[1] First"))


def test_notes_at_the_end_and_their_marks() -> None:
    text = text_of('They are "memorials."9 Some are old.[\\[10\\]](#fn10) See 3.9 The end."2\n\n# Footnotes\n\n'
                   "| 9. | A note. \n| 10. | Another. \n\n1. Item ↩\n\n# More\n\n1. An item")
    assert text == ('They are "memorials." Some are old. See 3.9 The end."2\n\nFootnotes\n\n[9] A note.\n\n'
                    "[10] Another.\n\n[1] Item\n\nMore\n\n1. An item")
    assert text_of('<p id="footnote-7">7. See <a href="x">this</a>. <a href="#r">↩︎</a></p>') == "[7] See this."


def test_what_stands_between_two_rules_at_the_top() -> None:
    assert text_of("---\nA first paragraph of prose\nthat goes on.\n---\n\nThen more.") == (
        "A first paragraph of prose that goes on.\n\nThen more.")
    settings = "---\ntitle: The Whale\ntags:\n  - sea\n---\n\nText."
    assert text_of(settings) == "title: The Whale\ntags:\n  - sea\n\nText."


def test_headings_and_title(tmp_path: Path) -> None:
    words = "The whale is a mammal. " * 90
    (tmp_path / "a.md").write_text(f"---\ntitle: X\n---\n\nContents\n========\n\n- [Of size](#a)\n- [Of food](#b)\n"
                                   f"\n{words}\n\nOf size\n\n{words}\n\nOf food\n\n{words}\n\nAn end\n---\n\n{words}\n")
    document = read_document(tmp_path / "a.md")
    assert [chapter.title for chapter in document.chapters] == ["Contents", "Of size", "Of food", "An end"]
    assert document.title == "Contents"
    for chapter in document.chapters[1:]:  # with its text, not at the foot of the page before
        assert f"{chapter.title}\n\nThe whale" in document.pages[chapter.first - 1].text


def test_code_keeps_its_indentation_through_the_reader(tmp_path: Path) -> None:
    (tmp_path / "a.md").write_text("Prose\n  set in.\n\n```yaml\na:\n  b:   1\n```\n")
    assert read_document(tmp_path / "a.md").pages[0].text == "Prose set in.\n\na:\n  b:   1"


@pytest.mark.parametrize("run", [
    "[", "*", "_", ">", "> ", "`", "~", "![", "[a](", "<", "<a ", "<b>", "&", "- ", "[^1]", "^[", "*a ", "|", "#", "\\",
    "a[^1]: ", "<!--", "<sup>1", "[a][b", "| a "])
def test_long_runs_of_marks_are_read_in_time(run: str) -> None:
    begin = time.perf_counter()
    text_of(f"{run * (30_000 // len(run))}\n\nThe end.")
    assert time.perf_counter() - begin < 60  # two on a quiet machine; what grows with the square takes minutes


@pytest.mark.parametrize("marks", ["> " * 500, "- " * 500, "> - " * 300])
def test_what_is_nested_too_deeply_is_not_lost(marks: str) -> None:
    assert "the words" in text_of(f"{marks}the words")
