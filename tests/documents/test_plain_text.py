"""Plain text: paragraphs joined by what stands around them, everything else as it is."""

from __future__ import annotations

import textwrap
import time
from pathlib import Path

import pytest

from triforce_core.documents import read_document
from triforce_core.documents.readers.plain_text import text_raw

SENTENCES = (
    "The whale is the largest animal that has ever lived, and every sailor who has met one knows it well enough to "
    "keep away from it; but in the year 1851 a mate rowed up to one. Nobody believed him when he came back.")


def text_of(text: str) -> str:
    return "\n\n".join(page.text for page in text_raw(text, []).pages)


def wrapped(text: str = SENTENCES, width: int = 72, indent: str = "") -> str:
    return textwrap.fill(text, width, initial_indent=indent, subsequent_indent=indent, break_on_hyphens=False)


@pytest.mark.parametrize("long", [
    "A heading or a note that is one very long line, much longer than any other line of this file, for it has no break "
    "in it although it goes on and on.", "https://example.org/" + "a" * 150])
def test_one_long_line_leaves_the_others_paragraphs(long: str) -> None:
    text = text_of(f"{wrapped()}\n\n{long}\n\n{wrapped()}\n\n{wrapped()}\n")
    assert text == f"{SENTENCES}\n\n{long}\n\n{SENTENCES}\n\n{SENTENCES}"


def test_a_long_line_inside_a_paragraph() -> None:
    lines = wrapped().split("\n")
    lines[1:1] = ["and here is https://example.org/a/link/that/nobody/can/wrap/" + "x" * 90 + " in it, of all things,"]
    text = text_of(f"{wrapped()}\n\n" + "\n".join(lines) + f"\n\n{wrapped()}\n")
    assert "\n".join(lines).replace("\n", " ") in text


def test_lines_that_nobody_wrapped_stay_apart() -> None:
    lines = [f"{SENTENCES} Number {number}." for number in range(9)] + ["A short line", "and another in lower case"]
    assert [line for line in text_of("\n".join(lines)).split("\n") if line] == lines


@pytest.mark.parametrize(("end", "start", "elsewhere", "expected"), [
    ("must", "revalidate", "It says must-revalidate twice.", "must-revalidate"),
    ("must", "revalidate", "They must say it.", "must-revalidate"),
    ("alpha", "betic", "An alphabetic list.", "alphabetic"),
    ("alpha", "betic", "Nothing else.", "alphabetic"),
    ("first", "and", "Of the first and last.", "first- and"),
    ("Anglo", "Saxon", "Nothing else.", "Anglo-Saxon"),
])
def test_hyphens_at_line_ends(end: str, start: str, elsewhere: str, expected: str) -> None:
    lead = "The whale is the largest animal that has ever lived, they say, and so"
    text = f"{wrapped()}\n\n{lead} {end}-\n{start} is what stands behind the end of the line, you see.\n\n{elsewhere}"
    assert f"{expected} is what" in text_of(text) or f"{expected} what" in text_of(text)


def test_code_keeps_its_indentation_and_prose_loses_it(tmp_path: Path) -> None:
    yaml = "server:\n  port: 80\n  hosts:\n    - a\n    - b"
    code = "def f(x):\n    if x:\n        return 1\n\n    return 2"
    prose = wrapped(indent="   ")
    shown = "\n\n".join([prose, textwrap.indent(yaml, "      "), prose, textwrap.indent(code, "   "), prose])
    (tmp_path / "a.txt").write_text(shown)
    (page,) = read_document(tmp_path / "a.txt").pages
    assert page.text == "\n\n".join([SENTENCES, yaml, SENTENCES, code, SENTENCES])


def test_verse_items_and_fields_keep_their_lines() -> None:
    verse = "In Xanadu did Kubla Khan\nA stately pleasure-dome decree:\nWhere Alph, the sacred river, ran"
    fields = "Title: Of Whales and Ships and Men and the Sea, in Three Volumes\nAuthor: Somebody"
    items = "   o  an item which is long enough to be wrapped over to a second line,\n      as here\n   o  another"
    assert text_of(f"{wrapped()}\n\n{verse}\n\n{wrapped()}\n\n{fields}\n\n{items}\n\n{wrapped()}") == "\n\n".join([
        SENTENCES, verse, SENTENCES, fields,
        "- an item which is long enough to be wrapped over to a second line, as here\n- another", SENTENCES])


def test_an_initial_at_a_line_start_is_no_item() -> None:
    text = ("On that day he went, as everybody had told him he should, to see old Mr\n"
            "D. White, who lived behind the church and had never seen a whale, thought\n"
            "I. But he had.")
    assert text_of(f"{wrapped()}\n\n{text}\n\n{wrapped()}").split("\n\n")[1] == text.replace("\n", " ")


def test_first_lines_that_are_set_in_begin_paragraphs() -> None:
    paragraphs = [wrapped(f"{number}th: {SENTENCES}", 70) for number in range(4)]
    text = text_of("\n".join(f"   {paragraph}" for paragraph in paragraphs))
    assert text == "\n\n".join(paragraph.replace("\n", " ") for paragraph in paragraphs)


def test_tables() -> None:
    assert text_of("""+------+-------+
| Name | Value |
+------+-------+
| a    | 1     |
| b    | 2     |
+------+-------+

Name     Value   Meaning
======   =====   ==========
alpha    1       the first
                 of all
beta     2       the second

I. Of size ............ 3
II. Of food ........... 12
III. Of men ........... 140""") == """Name | Value
a | 1
b | 2

Name | Value | Meaning
alpha | 1 | the first of all
beta | 2 | the second

I. Of size | 3
II. Of food | 12
III. Of men | 140"""
    diagram = " 0                   1\n+-+-+-+-+-+-+-+-+-+-+\n|  Type |   Code    |\n+-+-+-+-+-+-+-+-+-+-+"
    assert text_of(diagram) == diagram.replace("\n 0", "\n0")


def test_notes_and_their_marks() -> None:
    assert text_of(f"{wrapped()}\n\nHe was a dyer.[3] He lived [3] on. See a[4].\n\n    [3] A note,\n    wrapped.") == (
        f"{SENTENCES}\n\nHe was a dyer. He lived [3] on. See a[4].\n\n[3] A note, wrapped.")


def test_pages_of_a_memo(tmp_path: Path) -> None:
    """Heads and feet go, a sentence goes on over the border, and headings give chapters."""
    names = "Ahab Bildad Coffin Daggoo Elijah Fedallah Gardiner Hosea Ishmael Jonah Mapple Peleg".split()
    whole = [" ".join(f"{word} {name}" for word in SENTENCES.lower().rstrip(".").split()) for name in names]
    cut = [wrapped(text, indent="   ").split("\n") for text in whole]
    pages = []
    for number in range(len(names)):
        head = f"RFC 9999{'Of Whales'.center(50)}April 2026\n\n\n" if number else "\n\n\n"
        before = "\n".join(cut[number - 1][3:]) + "\n\n" if number else ""
        body = [f"{number + 1}.  Part the {chr(65 + number)}", wrapped(indent="   "), f"{number + 1}.1.  Deeper",
                "\n".join(cut[number][:3])]
        foot = f"{'Ishmael'.ljust(30)}Informational{f'[Page {number + 1}]'.rjust(27)}"
        pages.append(head + before + "\n\n".join(body) + f"\n\n\n\n\n{foot}\n")
    (tmp_path / "with.txt").write_text("\f".join(pages))
    (tmp_path / "without.txt").write_text("\n".join(pages))
    for name in ("with.txt", "without.txt"):
        document = read_document(tmp_path / name)
        text = "\n\n".join(page.text for page in document.pages)
        assert "[Page" not in text and "Informational" not in text and text.count("RFC 9999") == 0
        assert all(paragraph in text for paragraph in whole[:-1])
        titles = [(chapter.title, chapter.level) for chapter in document.chapters]
        assert titles[:3] == [("1. Part the A", 1), ("1.1. Deeper", 2), ("2. Part the B", 1)] and len(titles) == 24


@pytest.mark.parametrize("headings", [
    ["CHAPTER I", "CHAPTER II", "CHAPTER III"], ["I\n\nOF WHALES", "II\n\nOF SHIPS", "III\n\nOF MEN"],
    ["CHAPTER 1. Loomings", "CHAPTER 2. The Bag", "Epilogue\n========"], ["PREFACE", "OF WHALES", "OF SHIPS AND MEN"],
    ["Chapter One\nOf Whales", "Chapter Two\nOf Ships", "Appendix A"],
    ["Of whales\n---------", "Of ships\n--------", "A\n-"], ["1. Of whales", "2. Of ships", "10. Of men"],
    ["Preface", "I. Of whales", "II. Of ships"]])
def test_headings_give_chapters(tmp_path: Path, headings: list[str]) -> None:
    body = "\n\n".join([wrapped()] * 16)
    (tmp_path / "a.txt").write_text("\n\n\n".join(f"{heading}\n\n{body}" for heading in headings))
    document = read_document(tmp_path / "a.txt")
    lines = [heading.replace("\n\n", " ").split("\n=")[0].split("\n-")[0].replace("\n", " ") for heading in headings]
    wanted = [line for line in lines if line != "A"]
    assert [chapter.title for chapter in document.chapters] == wanted
    for chapter in document.chapters:
        assert f"{chapter.title}\n\nThe whale" in document.pages[chapter.first - 1].text


@pytest.mark.parametrize("line", [
    "1. Take the cup from the table.", "SECTION 3 of the act provides that nobody may own a whale, whatever he says.",
    "C. S. Lewis", "*** START ***", "12 men", "Section 3 of the act", "3.5 is the mean,"])
def test_what_is_no_heading(line: str) -> None:
    assert text_raw(f"{wrapped()}\n\n{line}\n\n{wrapped()}", []).headings == []


@pytest.mark.parametrize("run", ["a", "ab-\n", "a ", ". . ", "a  b  c\n", "=== ", "CHAPTER I\n\n", "1.1 A\n\n", "a\f",
                                 "|", "x [Page 1]\n", "AB\n\n", "[1] ", "  x\n", "-", "- "])
def test_long_runs_are_read_in_time(run: str) -> None:
    begin = time.perf_counter()
    text_of(f"{run * (30_000 // len(run))} b-\nc\n\n[1] The end.")
    assert time.perf_counter() - begin < 60  # one or two on a quiet machine; the square takes minutes


def test_a_form_feed_begins_a_page(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("\f".join(f"Page {number} stands here." for number in range(1, 4)))
    assert [page.text for page in read_document(tmp_path / "a.txt").pages] == [
        f"Page {number} stands here." for number in range(1, 4)]


_PROSE = ("The keeper of the lamp went down to the harbour every evening at six, and he counted the boats that lay "
          "there before he lit the fire, for the harbour master wanted to know how many had not come back by then.")


@pytest.mark.parametrize("indent", ["", "     "], ids=["apart", "indented"])
@pytest.mark.parametrize("blanks", [1, 2])
def test_double_spaced_lines_are_one_paragraph(blanks: int, indent: str) -> None:
    paragraphs = [_PROSE, _PROSE.replace("keeper", "clerk")]
    wrapped = [textwrap.wrap(text, 62, initial_indent=indent) for text in paragraphs]
    spaced = ("\n" * (blanks + 1)).join
    between = "\n" * (blanks + 1) if indent else "\n" * (2 * blanks + 2)
    raw = text_raw(between.join(map(spaced, wrapped)), [])
    assert raw.pages[0].text.split("\n\n") == paragraphs or raw.pages[0].text.split("\n") == paragraphs


def test_single_lines_that_are_no_paragraph_stay_apart() -> None:
    lines = ["Bring the lamp.", "Count all of the boats in the harbour.", "Light the fire at six.", "Go home.",
             "Tell the harbour master how many boats there are.", "Sleep."]
    raw = text_raw("\n\n".join(lines), [])
    assert [line for line in raw.pages[0].text.split("\n") if line] == lines
