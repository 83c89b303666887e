"""Sections that requests name."""

from __future__ import annotations

import pytest

from triforce_core.documents.document import Chapter, Document, Page
from triforce_core.evidence.outline import Outline
from triforce_core.evidence.passages import Text

CONTRACT = """1. Definitions

A tenant is who rents the house.

2. Fees

The fee is ten euros a month. It is due on the first day.

2.1 Late payment

Who pays late pays two euros more.

3. Confidentiality of data

Nobody may pass the names of tenants on. The duty lasts five years."""
BOOK = ("CONTENTS\n\nAll that follows.", "Chapter I. The Door\n\nMr. Ash found a door. It was shut.",
        "Chapter II. Dr. Wren's Letter\n\nA letter came from Dr. Wren. It was long.",
        "Chapter III. The Search for the Key\n\nThey searched all night. The key was gone.",
        "COLOPHON\n\nSet in type by hand.")


def contract() -> Outline:
    text = Text.of(Document("Lease", "txt", (Page("1", CONTRACT),), "test"))
    return Outline(text, text.units("Lease"))


def book() -> Outline:
    titles = [page.split("\n")[0] for page in BOOK]
    chapters = tuple(Chapter(title, 1, at + 1, at + 1) for at, title in enumerate(titles))
    pages = tuple(Page(str(at), page) for at, page in enumerate(BOOK))
    text = Text.of(Document("Book", "txt", pages, "test", (), chapters))
    return Outline(text, text.units("Book"))


@pytest.mark.parametrize(("request_", "title"), [
    ("summarise section 2", "2. Fees"),
    ("what does section 2.1 say about interest?", "2.1 Late payment"),
    ("summarise section three", "3. Confidentiality of data"),
    ("what does § 3 say?", "3. Confidentiality of data"),
    ("Give me the gist of the section on fees", "2. Fees"),
    ("the confidentiality section, in short", "3. Confidentiality of data"),
    ('the section called "Late payment"', "2.1 Late payment"),
    ("the last section", "3. Confidentiality of data"),
    ("Summarise 2.1", "2.1 Late payment"),
    ("what does 2.1 say about interest?", "2.1 Late payment"),
])  # fmt: skip
def test_headings_of_the_text_are_found_by_number_and_words(request_: str, title: str) -> None:
    named = contract().named(request_, bare=True)
    assert named is not None and named.section is not None and named.section.title == title


@pytest.mark.parametrize(("request_", "title"), [
    ("Summarise chapter 2", "Chapter II. Dr. Wren's Letter"),
    ("summarise chapter III please", "Chapter III. The Search for the Key"),
    ("what happens in chapter two?", "Chapter II. Dr. Wren's Letter"),
    ("what happens in the chapter on Dr. Wren?", "Chapter II. Dr. Wren's Letter"),
    ("Summarise the chapter about the search for the key in a few words", "Chapter III. The Search for the Key"),
    ("the second chapter", "Chapter II. Dr. Wren's Letter"),
])  # fmt: skip
def test_chapters_of_the_outline_are_found(request_: str, title: str) -> None:
    named = book().named(request_, bare=True)
    assert named is not None and named.section is not None and named.section.title == title


def test_sections_whose_own_titles_were_read_as_text_are_those_of_their_parts() -> None:
    titles = [("1. Rope", 1), ("1.1. Knots", 2), ("2.1. Oars", 2), ("2.2. Sails", 2), ("3. Tar", 1), ("3.1. Pitch", 2)]
    found = outline_of(titles, "\n\n".join(f"{title}\n\nHere are {title[:3]} words." for title, _ in titles))
    named = found.named("summarise section 2", bare=True)
    assert named is not None and named.section is not None
    assert (named.section.first, named.section.last) == (2, 4)


def test_a_title_that_begins_with_the_name_comes_first() -> None:
    titles = ("/etc/opt : Files for /opt", "/opt : Add-on application software packages")
    found = outline_of([(title, 1) for title in titles], "\n\n".join(f"{one}\n\nHere it is." for one in titles))
    named = found.named("the section on /opt", bare=False)
    assert named is not None and named.section is not None and named.section.title == titles[1]


def test_the_chapter_of_a_number_comes_before_the_one_at_its_place() -> None:
    titles = ("Chapter 2\n\nSails", "Chapter 3\n\nTar", "A. Words of old sailors")
    chapters = [("Ropes", 1), ("Sails", 1), ("Tar", 1), ("Words of old sailors", 1)]
    found = outline_of(chapters, "\n\n".join(f"{one}\n\nHere it is." for one in ("Ropes", *titles)))
    assert [named.section.title for request_ in ("the second chapter", "summarise chapter 1")
            if (named := found.named(request_, bare=True)) and named.section] == ["Sails", "Ropes"]


LICENCE = "\n\n".join(
    ["0. This licence holds for the work and for all that is made of it."]
    + [f"{number}. You may {verb} the work if you say who made it. You must not {verb} it for money."
       for number, verb in enumerate(("copy", "change", "sing", "print", "lend"), 1)])


def outline_of(chapters: list[tuple[str, int]], text: str) -> Outline:
    """chapters: (title, level), all on one page."""
    listed = tuple(Chapter(title, level, 1, 1) for title, level in chapters)
    read = Text.of(Document("D", "txt", (Page("1", text),), "test", (), listed))
    return Outline(read, read.units("D"))


MANUAL_UNITS = ["It is short.", "Ropes hold.", "Knots of ropes hold.", "Sails pull.", "Knots of sails hold.",
                "Tar is old."]
MANUAL = outline_of(
    [("Preface", 1), ("Ropes", 1), ("Knots", 2), ("Sails", 1), ("Knots", 2), ("A history of tar", 1)],
    "Preface\n\nIt is short.\n\nChapter 1\n\nRopes\n\nRopes hold.\n\n1.1 Knots\n\nKnots of ropes hold.\n\nChapter 2\n\n"
    "Sails\n\nSails pull.\n\n2.1 Knots\n\nKnots of sails hold.\n\nA. A history of tar\n\nTar is old.")


@pytest.mark.parametrize(("request_", "words"), [
    ("summarise chapter 2", "Sails pull."), ("the first chapter", "Ropes hold."),
    ("section 2.1", "Knots of sails hold."),
    ("what does section 1 of chapter 2 say?", "Knots of sails hold."), ("appendix A", "Tar is old."),
    ("the section on knots in chapter 2", "Knots of sails hold."), ("the preface", "It is short."),
    ("summarise the sails", "Sails pull."), ("what does the section “A history of tar” say?", "Tar is old."),
])  # fmt: skip
def test_numbers_above_and_before_a_title_count_where_the_outline_has_none(request_: str, words: str) -> None:
    named = MANUAL.named(request_, bare="summarise" in request_)
    assert named is not None and named.section is not None
    assert MANUAL_UNITS[named.section.first] == words


@pytest.mark.parametrize(("request_", "number"), [("summarise section 4", "4"), ("what does article zero say?", "0")])
def test_numbered_paragraphs_are_sections_where_nothing_else_is(request_: str, number: str) -> None:
    named = outline_of([], LICENCE).named(request_, bare=True)
    assert named is not None and named.section is not None and named.section.title.startswith(f"{number}. ")


@pytest.mark.parametrize(("request_", "title", "words"), [
    ("Summarise section 2.0", "2.0 Rights of those who hold it here", "Who holds it may copy it and lend it. "),
    ("What does section 2 say?", "2.0 Rights of those who hold it here", ""),
    ("Summarise item 2.1 about lending", "2.1 Copies may be lent for a year.", "After that they come back"),
    ("What does section 3.2 say?", "3.2 Who gives it on says so.", "It may be sold."),
])
def test_paragraphs_with_dotted_numbers_are_sections(request_: str, title: str, words: str) -> None:
    text = """1.0 What this covers in all places.

1.1 It holds for the work. See 3.1 as well.

### 2.0 Rights of those who hold it here

Who holds it may copy it and lend it.

- 2.1 Copies may be lent for a year.

After that they come back. In 1997 nobody knew.

2.2 No copy is sold.

3.1 Who changes it says what was changed.

3.2 Who gives it on says so. It may be sold."""
    held = Text.of(Document("Terms", "txt", (Page("1", text),), "terms"))
    units = held.units("Terms")
    found = Outline(held, units).named(request_, bare=False)
    assert found and found.section and found.section.title == title
    inside = [held.sentences[at] for unit in units[found.section.first : found.section.last] for at in unit.sentences]
    assert words.strip() in " ".join(inside) and ("3.1" in " ".join(inside)) is False


def test_items_of_a_list_are_no_sections() -> None:
    text = f"1. Rules\n\nThey are old. {'It is so. ' * 40}\n\n1. copy it;\n\n2. sing it;\n\n3. lend it;\n\n4. keep it."
    named = outline_of([], text).named("what does section 3 say?", bare=False)
    assert named is not None and named.section is None


@pytest.mark.parametrize("request_", ["summarise section 9", "the section on bananas", "summarise chapter 12"])
def test_a_section_that_is_not_there_is_named_and_not_found(request_: str) -> None:
    named = contract().named(request_, bare=True)
    assert named is not None and named.section is None and named.phrase in request_


@pytest.mark.parametrize("request_", [
    "When is the fee due?", "which section did they mean?", "the part I like", "Who pays late?", "what is this about?",
    "the next section"])
def test_other_requests_name_none(request_: str) -> None:
    assert contract().named(request_, bare=True) is None


def test_a_section_holds_the_passages_up_to_the_next_of_its_level() -> None:
    outline = contract()
    named = outline.named("section 2", bare=False)
    assert named is not None and named.section is not None
    assert (named.section.first, named.section.last) == (1, 3), "2.1 is a part of it"


def test_a_chapter_begins_at_its_title_not_at_its_page() -> None:
    page = "The end of the first part is here.\n\nPart Two\n\nThe second part begins."
    chapters = (Chapter("Part One", 1, 1, 2), Chapter("Part Two", 1, 2, 2))
    document = Document("Two", "txt", (Page("1", "Part One\n\nIt begins."), Page("2", page)), "test", (), chapters)
    text = Text.of(document)
    units = text.units("Two")
    first, second = Outline(text, units).sections
    held = [text.sentences[unit.sentences[0]] for unit in units[second.first : second.last]]
    assert held == ["The second part begins."]
    assert first.last == second.first == 2


def test_parts_leave_contents_and_colophon_out() -> None:
    outline = book()
    assert [part.title[:11] for part in outline.parts(0, 5)] == ["Chapter I. ", "Chapter II.", "Chapter III"]
