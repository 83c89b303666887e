"""Questions and documents of the benchmark: documents cut to length, made ones, hidden needles, questions."""

from __future__ import annotations

from pathlib import Path

import pytest
from bench.steady_engine import BOOK

from triforce_core.bench.workload import cut, hide, made_document, made_needle, questions_about, read_questions
from triforce_core.documents.document import Document, Page
from triforce_core.errors import ConfigError


@pytest.mark.parametrize("tokens", [100, 1000, 5000])
def test_a_cut_document_is_as_long_as_allowed(tokens: int) -> None:
    def count(document: Document) -> int:
        return sum(len(page.text) // 4 + 3 for page in document.pages)

    short = cut(BOOK, tokens, count)
    assert 0.97 * tokens - 10 <= count(short) <= tokens
    assert BOOK.pages[0].text.startswith(short.pages[0].text)
    assert cut(BOOK, 10**6, count) == BOOK


def test_questions_come_from_the_whole_document_and_never_change() -> None:
    questions = questions_about(BOOK, 3)
    assert questions == questions_about(BOOK, 3)
    assert len(set(questions)) == 3 and all("about Nant" in question for question in questions)
    assert questions_about(Document("t", "txt", (Page("1", "no names."),), "text"), 3)


def test_questions_from_a_file(tmp_path: Path) -> None:
    path = tmp_path / "q.jsonl"
    path.write_text('{"question": "Why?"}\n\n{"question": "Who?"}\n')
    assert read_questions(path) == ["Why?", "Who?"]
    path.write_text('{"question": "Why?"}\nnonsense\n')
    with pytest.raises(ConfigError, match="line 2"):
        read_questions(path)
    with pytest.raises(ConfigError, match="cannot be read"):
        read_questions(tmp_path / "none")


@pytest.mark.parametrize("kind", ["summary", "code", "table"])
def test_made_documents_never_change_and_differ_from_each_other(kind: str) -> None:
    assert made_document(kind, 9000) == made_document(kind, 9000) != made_document(kind, 9000, 1)
    assert made_document(kind, 9000).characters >= 9000


def test_needles_are_hidden_at_even_depths_between_sentences() -> None:
    needles = [made_needle(number) for number in range(4)]
    assert needles == [made_needle(number) for number in range(4)] and len(set(needles)) == 4
    text = " ".join(f"This is sentence {number} of a page." for number in range(40))
    pages = tuple(Page(str(number), text) for number in range(5))
    hidden = hide(Document("t", "txt", pages, "text"), needles)
    whole = "".join(page.text for page in hidden.pages)
    depths = [whole.index(needle.passage) / len(whole) for needle in needles]
    assert depths == pytest.approx([0.125, 0.375, 0.625, 0.875], abs=0.03)
    for needle in needles:
        at = whole.index(needle.passage)
        assert whole[at - 2 : at] == ". " and whole.count(needle.passage) == 1
        whole = whole.replace(" " + needle.passage, "")
    assert whole == text * 5 and hide(Document("t", "txt", pages, "text"), []).pages == pages
    bare = hide(Document("t", "txt", (Page("1", "no end"),), "text"), needles[:1])
    assert bare.pages[0].text == f"no end {needles[0].passage}"
