"""Chapters from outlines and headings, also hostile ones, and choices of pages by number and by title."""

from __future__ import annotations

import io
import time
from collections.abc import Iterable
from pathlib import Path

import pytest

from tests.documents import hostile
from triforce_core.documents import Document, Page, read_document
from triforce_core.documents.chapters import (
    chapter_ranges,
    chapters_of,
    merge_ranges,
    numbers,
    page_ranges,
    ranges_text,
)
from triforce_core.documents.document import MOST_CHAPTERS, MOST_LEVELS, Chapter
from triforce_core.documents.readers.source import Heading
from triforce_core.documents.sections import first_places
from triforce_core.errors import PageRangeError

TEXTS = ["Preface of it all.", "1. Whales\nare large", "more of them. Ships are", "large, too. 2 Men", "THE END\nfin"]


def outlined(document: Document) -> list[tuple[str, int, int, int]]:
    return [(chapter.title, chapter.level, chapter.first, chapter.last) for chapter in document.chapters]


def test_a_chapter_ends_where_the_next_of_its_rank_begins() -> None:
    found = chapters_of([Heading("1 Whales", 1, 1), Heading("Ships", 2, 2), Heading("2 Men", 1, 3),
                         Heading("The end", 1, 4)], TEXTS)
    assert found == [Chapter("1 Whales", 1, 2, 4),  # "2 Men" does not open its page: the page belongs to both
                     Chapter("Ships", 2, 3, 4), Chapter("2 Men", 1, 4, 4), Chapter("The end", 1, 5, 5)]
    assert numbers(found) == ["1", "1.1", "2", "3"]


def test_the_books_title_is_no_chapter_and_levels_have_no_gaps() -> None:
    found = chapters_of([Heading("All", 1, 0), Heading("1 Whales", 3, 1), Heading("The end", 6, 4)], TEXTS)
    assert found == [Chapter("1 Whales", 1, 2, 5), Chapter("The end", 2, 5, 5)]
    assert chapters_of([Heading("All", 1, 0)], TEXTS) == chapters_of([], TEXTS) == []


@pytest.mark.parametrize("headings", [
    [Heading("x", 1, page) for page in (-1, 5, 10**9)], [Heading(" \u200b\n", 1, 1)] * 9,
    [Heading(f"entry {n}", 1, n % 5) for n in range(50_000)],
])
def test_what_leads_nowhere_or_is_endless_is_left_out(headings: list[Heading]) -> None:
    assert chapters_of(headings, TEXTS) == []


def test_deep_levels_go_before_the_list_is_too_long() -> None:
    headings = [Heading("a" * 100_000 + "\n\0b", 7 - n % 7, n % 5) for n in range(900)] + [Heading("one", 0, 0)]
    found = chapters_of(headings, TEXTS)
    assert 2 <= len(found) <= MOST_CHAPTERS and all(1 <= chapter.level <= MOST_LEVELS for chapter in found)
    assert all(len(chapter.title) <= 120 and "\n" not in chapter.title for chapter in found)
    assert all(1 <= chapter.first <= chapter.last <= 5 for chapter in found)


DOCUMENT = Document("t", "txt", tuple(Page(str(n), text) for n, text in enumerate(TEXTS, 1)), "test", (), (
    Chapter("Whales", 1, 2, 4), Chapter("Ships, large", 2, 3, 4), Chapter("Men", 1, 4, 4), Chapter("The end", 1, 5, 5)))


@pytest.mark.parametrize(("text", "pages"), [
    ("1", "2-4"), ("1,3", "2-5"), ("2-3", "4-5"), (" 1.1 , 3", "3-5"), ("3", "5"), ("men", "4"), ("the END", "5"),
    ("ships, large", "3-4"), ("1.1 - 2", "3-4"), ("h", ""), ("4", ""), ("0", ""), ("3-1", ""), ("", ""), ("1,x", ""),
])
def test_chapters_by_number_or_title(text: str, pages: str) -> None:
    if pages:
        assert ranges_text(chapter_ranges(text, DOCUMENT)) == pages
        return
    with pytest.raises(PageRangeError, match=r"1\.1 Ships, large \(pages 3-4\); 2 Men"):
        chapter_ranges(text, DOCUMENT)


def test_without_chapters_the_error_says_so() -> None:
    with pytest.raises(PageRangeError, match="no outline"):
        chapter_ranges("1", Document("t", "txt", DOCUMENT.pages, "test"))


@pytest.mark.parametrize(("text", "ranges"), [
    ("1-5", ((1, 5),)), ("3", ((3, 3),)), (" 4 - 5 ,1,2", ((1, 2), (4, 5))), ("2–3, 2", ((2, 3),)),
    ("1-2,3-4", ((1, 4),)),
    ("", ()), ("0-2", ()), ("3-2", ()), ("1-6", ()), ("1.5", ()), ("x", ()), ("1,,2", ()), ("-3", ()), ("9" * 400, ()),
])
def test_page_ranges(text: str, ranges: tuple[tuple[int, int], ...]) -> None:
    if ranges:
        assert page_ranges(text, 5) == ranges
        assert page_ranges(ranges_text(ranges), 5) == ranges
        assert [p.label for p in DOCUMENT.pick(ranges).pages] == [str(n) for a, b in ranges for n in range(a, b + 1)]
        return
    with pytest.raises(PageRangeError, match="1 to 5"):
        page_ranges(text, 5)


def test_merging_keeps_every_page_once() -> None:
    assert merge_ranges([(7, 9), (1, 2), (3, 3), (8, 12), (5, 5)]) == ((1, 3), (5, 5), (7, 12))


# -- from files


def outlined_pdf(entries: Iterable[tuple[str, int | None, int]], pages: int = 6) -> bytes:
    """entries: title, parent (index of an earlier one), page from 0."""
    import pypdf

    writer = pypdf.PdfWriter(clone_from=io.BytesIO(hostile.scanned_pdf(pages, with_text=pages)))
    made: list = []
    for title, parent, page in entries:
        made.append(writer.add_outline_item(
            title=title, page_number=page, parent=None if parent is None else made[parent]))
    out = io.BytesIO()
    writer.write(out)
    return out.getvalue()


def raw_outline(*items: bytes, root: bytes = b"/First 7 0 R/Last 7 0 R/Count 1") -> bytes:
    """A page, and an outline whose objects (from 7 on) are written out."""
    return hostile.pdf([
        b"<</Type/Catalog/Pages 2 0 R/Outlines 6 0 R>>", b"<</Type/Pages/Kids[3 0 R]/Count 1>>",
        b"<</Type/Page/Parent 2 0 R/MediaBox[0 0 612 792]/Contents 4 0 R/Resources<</Font<</F1 5 0 R>>>>>>",
        hostile.stream(b"BT /F1 12 Tf 72 700 Td (The whale is a mammal.) Tj ET"),
        b"<</Type/Font/Subtype/Type1/BaseFont/Helvetica>>", b"<</Type/Outlines%s>>" % root, *items])


def many_siblings(count: int, title: bytes = b"(x)", dest: bytes = b"[3 0 R/Fit]") -> bytes:
    return raw_outline(*(b"<</Title %s/Parent 6 0 R/Dest %s/Next %d 0 R>>" % (title, dest, n + 8)
                         for n in range(count)))


HOSTILE = {
    "a circle of siblings": raw_outline(b"<</Title(a)/Dest[3 0 R/Fit]/Next 8 0 R>>",
                                        b"<</Title(b)/Dest[3 0 R/Fit]/Next 7 0 R>>"),
    "its own child": raw_outline(b"<</Title(a)/Dest[3 0 R/Fit]/First 7 0 R/Next 7 0 R>>"),
    "the root as its child": raw_outline(b"<</Title(a)/Dest[3 0 R/Fit]/First 6 0 R>>"),
    "very deep": raw_outline(*(b"<</Title(%d)/Dest[3 0 R/Fit]/First %d 0 R>>" % (n, n + 8) for n in range(20_000))),
    "thirty thousand": many_siblings(30_000),
    "long titles": many_siblings(2_000, b"(" + b"A" * 20_000 + b")"),
    "pages out of range": raw_outline(b"<</Title(a)/Dest[99999999/Fit]/Next 8 0 R>>",
                                      b"<</Title(b)/Dest[-5/Fit]/Next 9 0 R>>", b"<</Title(c)/Dest[999 0 R/Fit]>>"),
    "titles that are none": raw_outline(b"<</Title 7 0 R/Dest[3 0 R/Fit]/Next 8 0 R>>",
                                        b"<</Title<FEFFD800D800>/Dest[3 0 R/Fit]/Next 9 0 R>>", b"<</Dest 3>>"),
    "no objects": raw_outline(b"null", root=b"/First 99 0 R/Last(x)/Count -999999999"),
    "a script": raw_outline(b"<</Title(a)/A<</S/JavaScript/JS(app.alert\\(1\\))>>/Next 8 0 R>>",
                            b"<</Title(b)/A<</S/Launch/F(/bin/sh)>>>>"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_outline_never_costs_the_text(tmp_path: Path, name: str) -> None:
    path = tmp_path / "o.pdf"
    path.write_bytes(HOSTILE[name])
    started = time.monotonic()
    document = read_document(path)
    assert document.pages[0].text == "The whale is a mammal." and document.reader.startswith("pypdfium2")
    assert len(document.chapters) <= MOST_CHAPTERS and time.monotonic() - started < 60
    assert all(chapter.first == chapter.last == 1 and len(chapter.title) <= 120 for chapter in document.chapters)


def test_an_outline_that_kills_the_reader_is_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The reader dies behind the last page, at every attempt that reads the outline."""
    from triforce_core.documents import read

    path = tmp_path / "o.pdf"
    path.write_bytes(outlined_pdf([("One", None, 0), ("Two", None, 3)]))
    assert len(read_document(path).chapters) == 2
    real = read.ChildProcess
    asked: list[list[int]] = []

    class Dying(real):
        def ask(self, request, last=True):
            asked.append(request["skip"])
            super().ask(request)

        def next(self, timeout):
            message = None if getattr(self, "dead", False) else super().next(timeout)
            self.dead = bool(message) and message.get("at") == 6 and not asked[-1]
            return message

    monkeypatch.setattr(read, "ChildProcess", Dying)
    document = read_document(path)
    assert asked == [[], [6]] and document.chapters == () and not document.warnings
    assert all(page.text for page in document.pages) and len(document.pages) == 6


def test_pdf(tmp_path: Path) -> None:
    (tmp_path / "o.pdf").write_bytes(outlined_pdf([
        ("Of whales", None, 1), ("Of \u202esmall\u200b\nones", 0, 2), ("Of ships", None, 3), ("Page 5", None, 5)]))
    assert outlined(read_document(tmp_path / "o.pdf")) == [
        ("Of whales", 1, 2, 4), ("Of small ones", 2, 3, 4), ("Of ships", 1, 4, 5), ("Page 5", 1, 6, 6)]


WORDS = "\n\n".join(["The whale is a mammal and it is a large one, as everybody knows who has seen it. " * 5] * 12)


def test_markdown_and_html(tmp_path: Path) -> None:
    (tmp_path / "a.md").write_text(f"# Book\n\n{WORDS}\n\n## The *first*\n\n{WORDS}\n\n```\n## not this\n```\n\n"
                                   f"## Second ##\n\n{WORDS}\n\n### Part\n\nThe first\n\n{WORDS}\n")
    document = read_document(tmp_path / "a.md")
    assert [(title, level) for title, level, *_ in outlined(document)] == [("The first", 1), ("Second", 1), ("Part", 2)]
    (tmp_path / "a.html").write_text(
        f"<h1>Book</h1><p>{WORDS}</p><h2>The <i>first</i></h2><p>{WORDS}</p><div hidden><h2>Hidden</h2></div>"
        f"<h2>Second</h2><p>{WORDS}</p><h3>Part</h3><p>The first</p><p>{WORDS}</p>")
    page = read_document(tmp_path / "a.html")
    assert page.title == "Book" and [name for name, *_ in outlined(page)] == ["The first", "Second", "Part"]
    for read in (document, page):
        for chapter in read.chapters:  # each stands on its first page, alone on a line
            assert chapter.title in read.pages[chapter.first - 1].text.split("\n"), chapter
        assert read.chapters[-1].last == len(read.pages) and read.chapters[0].first > 1


def test_docx(tmp_path: Path) -> None:
    def styled(text: str, style: str) -> str:
        return hostile.paragraph(text, f'<w:pPr><w:pStyle w:val="{style}"/></w:pPr>')

    long = "".join(hostile.paragraph(part) for part in WORDS.split("\n\n"))
    (tmp_path / "a.docx").write_bytes(hostile.docx(
        styled("One", "Heading1") + long + styled("Deeper", "Heading2") + long + styled("Two", "Heading1") + long
        + styled("Not one", "Quote")))
    document = read_document(tmp_path / "a.docx")
    assert [(title, level) for title, level, *_ in outlined(document)] == [("One", 1), ("Deeper", 2), ("Two", 1)]
    assert document.chapters[0].last in (document.chapters[2].first, document.chapters[2].first - 1)


NAV = ('<!DOCTYPE html><html><nav epub:type="landmarks"><ol><li><a href="c1.xhtml">Cover</a></li></ol></nav>'
       '<nav epub:type="toc"><ol><li><a href="c1.xhtml">A <b>start</b></a><ol><li><a href="c1.xhtml#x">Inside</a></li>'
       '</ol></li><li><a href="c2.xhtml">An end</a></li><li><a href="../../../etc/passwd">Out</a></li>'
       '<li><a href="http://evil.example/c2.xhtml">Far</a></li><li><a href="http://[">Nowhere</a></li></ol></nav></html>')
NCX = ('<!DOCTYPE ncx PUBLIC "x" "y"><ncx><navMap><navPoint><navLabel><text>A start</text></navLabel>'
       '<content src="c1.xhtml"/><navPoint><navLabel><text>Inside</text></navLabel><content src="c1.xhtml#x"></content>'
       '</navPoint></navPoint><navPoint><navLabel><text>An end</text></navLabel><content src="c2.xhtml"/></navPoint>'
       '</navMap><pageList><pageTarget><navLabel><text>7</text></navLabel><content src="c2.xhtml"/></pageTarget>'
       '</pageList></ncx>')


@pytest.mark.parametrize("kind", ["nav", "ncx", "headings", "endless"])
def test_epub(tmp_path: Path, kind: str) -> None:
    chapters = {"c1.xhtml": f"<h1>Opening</h1><p>{WORDS}</p><h2>Inside</h2><p>{WORDS}</p>",
                "c2.xhtml": f"<h1>Close</h1><p>{WORDS}</p>"}
    ncx = '<item id="n" href="t.xhtml" media-type="application/x-dtbncx+xml"/>'
    nav = '<item id="n" href="t.xhtml" properties="nav" media-type="application/xhtml+xml"/>'
    item = {"nav": nav, "headings": ""}.get(kind, ncx)
    endless = "".join(f'<navPoint id="{n * 7919:x}"><content src="c1.xhtml#{n:x}"/>' for n in range(100_000))
    listing = {"nav": NAV, "ncx": NCX}.get(kind, f"<ncx><navMap>{endless}")
    book = hostile.epub(chapters, {"OEBPS/t.xhtml": listing})
    data = dict_of(book)
    data["OEBPS/book.opf"] = data["OEBPS/book.opf"].replace(b"</manifest>", item.encode() + b"</manifest>")
    (tmp_path / "b.epub").write_bytes(hostile.zipped(data))
    document = read_document(tmp_path / "b.epub")
    names = [(title, level) for title, level, *_ in outlined(document)]
    listed = [("A start", 1), ("Inside", 2), ("An end", 1)]
    assert names == (listed if kind in ("nav", "ncx") else [("Opening", 1), ("Inside", 2), ("Close", 1)])
    start, inside, end = document.chapters
    assert start.first == 1 and "Inside" in document.pages[inside.first - 1].text
    assert document.pages[end.first - 1].label == str(end.first) and end.last == len(document.pages)


@pytest.mark.parametrize("href", ["http://[", "//[x/y"])
def test_a_reference_that_is_none_costs_what_it_names_and_no_more(tmp_path: Path, href: str) -> None:
    book = dict_of(hostile.epub({"c1.xhtml": f"<h1>Opening</h1><p>{WORDS}</p>", "c2.xhtml": f"<p>{WORDS}</p>"}))
    listing = f'<item id="n" href="{href}" properties="nav" media-type="application/xhtml+xml"/></manifest>'
    book["OEBPS/book.opf"] = book["OEBPS/book.opf"].replace(b"</manifest>", listing.encode()).replace(
        b"c2.xhtml", href.encode())
    (tmp_path / "b.epub").write_bytes(hostile.zipped(book))
    assert read_document(tmp_path / "b.epub").pages[0].text.startswith("Opening")


def test_a_list_of_contents_is_looked_up_in_one_go() -> None:
    sections = ["Whales\nThe  Whale\n" + WORDS, "The Whale\nShips\n" + WORDS]
    assert first_places({"The Whale", "Ships", "None", ""}, sections) == {"The Whale": 0, "Ships": 1}


def dict_of(archive: bytes) -> dict[str, bytes]:
    import zipfile

    with zipfile.ZipFile(io.BytesIO(archive)) as opened:
        return {name: opened.read(name) for name in opened.namelist()}
