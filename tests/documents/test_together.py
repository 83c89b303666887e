"""Several documents as one: every page in its order, labels that tell them apart and fit into a page marker."""

from __future__ import annotations

from dataclasses import replace

import pytest

from triforce_core.documents import Document, Page
from triforce_core.documents.document import (
    LONGEST_LABEL,
    MOST_CHAPTERS,
    MOST_LEVELS,
    Chapter,
    short_names,
    together,
)


def book(title: str, pages: int = 2, label: str = "{}", chapters: tuple[Chapter, ...] = ()) -> Document:
    return Document(title, "txt", tuple(Page(label.format(n), f"{title} page {n}") for n in range(1, pages + 1)), "t",
                    (f"about {title}",), chapters)


def test_all_pages_in_order_with_the_documents_as_chapters() -> None:
    first = book("Moby Dick", 3, chapters=(Chapter("Loomings", 1, 1, 2), Chapter("Deep", 3, 3, 3)))
    whole = together([first, book("Middlemarch", 2, "i{}")])
    texts = [page.text for part in (first, book("Middlemarch")) for page in part.pages]
    assert [page.text for page in whole.pages] == texts
    assert [page.label for page in whole.pages] == ["Moby Dick, 1", "Moby Dick, 2", "Moby Dick, 3", "Middlemarch, i1",
                                                    "Middlemarch, i2"]
    assert whole.chapters == (Chapter("Moby Dick", 1, 1, 3), Chapter("Loomings", 2, 1, 2),
                              Chapter("Middlemarch", 1, 4, 5))
    assert whole.warnings == ("Moby Dick: about Moby Dick", "Middlemarch: about Middlemarch")
    noted = together([replace(first, notes=("3 pictures were not read.",)), book("Middlemarch")])
    assert noted.notes == ("Moby Dick: 3 pictures were not read.",)
    assert whole.id != together([book("Middlemarch", 2, "i{}"), first]).id


def test_chapters_stay_few_enough_to_choose_from() -> None:
    many = tuple(Chapter(f"c{n}", 1 + n % MOST_LEVELS, 1, 1) for n in range(MOST_CHAPTERS - 1))
    whole = together([book("A", chapters=many), book("B", chapters=many)])
    assert [chapter.title for chapter in whole.chapters] == ["A", "B"]
    assert max(chapter.level for chapter in together([book("A", chapters=many), book("B")]).chapters) <= MOST_LEVELS


@pytest.mark.parametrize("titles", [
    ["The same"] * 12, ["x" * 500] * 3, ["", " ", "\n"], ["A very long title, in two volumes", "A very long title"],
    ["One, two"] * 2, ["Report (2)", "Report", "Report"],
])
def test_names_are_short_and_no_two_the_same(titles: list[str]) -> None:
    for label in ("{}", "appendix-{}", "p" * 39):
        documents = [book(title, label=label) for title in titles]
        names = short_names(documents)
        assert len(set(names)) == len(names) and all(name.strip() == name and name for name in names)
        if len(label) < 20:  # the number of the page is never cut off
            assert all(len(page.label) <= LONGEST_LABEL for page in together(documents).pages)
