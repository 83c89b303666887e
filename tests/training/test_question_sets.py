"""Documents and questions that the word vectors and the sentence prior are fitted on."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

zstandard = pytest.importorskip("zstandard")
pytest.importorskip("sentencepiece")

from training.digests import SECTION, WHOLE, digest_documents  # noqa: E402
from training.question_sets import (  # noqa: E402
    ARTICLE,
    LONGEST_TEXT,
    Places,
    article_documents,
    held_out,
    left_out,
    natural_documents,
    split,
    stretch,
)

MILL = "The mill turns at dawn. Mr. Hale owns it.\n\nIts wheel is oak. It rained for a week."
SHARED = "The long line about the harbour stands in two of the sets and " + "so on " * 20 + "ends here."


def write(file: Path, records: list[dict]) -> None:
    """Packed if its name says so."""
    data = "".join(json.dumps(record) + "\n" for record in records).encode()
    file.write_bytes(zstandard.compress(data) if file.suffix == ".zst" else data)


def written(context: str, question: str, answer: str, **more: object) -> dict:
    """A record of qa-train."""
    return {"source": "squad-v1.1", "title": "Mills", "doc_id": "squad:Mills:0", "type": "extractive",
            "context": context, "question": question, "answer": answer, "answer_start": context.index(answer), **more}


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    """A corpus of a mill and a harbour, with the folder of natural questions in it."""
    write(tmp_path / "prose-train.jsonl.zst", [{"id": "mill", "text": MILL}, {"id": "tested", "text": SHARED}])
    write(tmp_path / "books-train.jsonl.zst", [{"id": "unasked", "text": "Nobody asks."}])
    asked = {"doc_id": "mill", "paragraph": 0, "type": "fact"}
    write(tmp_path / "questions-train.jsonl", [
        {**asked, "question": "Who has the mill?", "gold": "Mr. Hale owns it."},
        {**asked, "question": "What is it made of?", "gold": "Its wheel is oak.", "history": "What turns?"},
        {**asked, "question": "Who built it?", "gold": None, "type": "unanswerable"},
        {**asked, "question": "Lost?", "gold": "This stands nowhere in the text."},
        {**asked, "doc_id": "tested", "question": "Where?", "gold": SHARED},
        {**asked, "doc_id": "missing", "question": "Where?", "gold": "Here."},
    ])  # fmt: skip
    return tmp_path


def test_natural_questions_find_their_sentences(corpus: Path) -> None:
    (mill,) = natural_documents(corpus, corpus, {"tested"}, None)
    assert mill.sentences == ["The mill turns at dawn.", "Mr. Hale owns it.", "Its wheel is oak.",
                              "It rained for a week."]
    assert mill.lines == [0, 0, 2, 2]
    assert [(query.golds, query.before) for query in mill.queries] == [((1,), ""), ((2,), "What turns?"), ((), "")]
    assert mill.natural


def test_a_limit_counts_documents(corpus: Path) -> None:
    assert [document.name for document in natural_documents(corpus, corpus, (), None)] == ["mill", "tested"]
    assert [document.name for document in natural_documents(corpus, corpus, (), 1)] == ["mill"]


def test_paragraphs_of_an_article_make_one_document(corpus: Path) -> None:
    """Also where typography moves the characters behind it."""
    first, second = "“Turn”—it said…  Then it turned. Wind blew.", "Ann came. Bob left at noon. Then it was still."
    write(corpus / "qa-train.jsonl.zst", [
        written(second, "When did Bob leave?", "noon", doc_id="squad:Mills:1"),
        written(first, "What blew?", "Wind"),
        written(first, "How?", "", type="abstractive", answer_start=None),
        written(first, "Who?", "", type="abstractive", answer_start=None, evidence_start=first.index("Then")),
    ])  # fmt: skip
    (article,) = article_documents(corpus, (), None)
    found = {query.text: [article.sentences[gold] for gold in query.golds] for query in article.queries}
    assert found == {"When did Bob leave?": ["Bob left at noon."], "What blew?": ["Wind blew."],
                     "Who?": ["Then it turned."]}
    assert {query.kind for query in article.queries} == {ARTICLE} and not article.natural
    assert article.lines == [0, 0, 0, 1, 1, 1]


def test_written_questions_on_text_of_a_test_document_are_left_out(corpus: Path) -> None:
    """A textbook's chapter is in prose-train and, by another name, in qa-train."""
    plain = "One. Two. Three. Four things were found here."
    write(corpus / "qa-train.jsonl.zst", [written(SHARED + "\nIt is long.", "What?", "harbour"),
                                          written(plain, "How many?", "Four")])
    assert [query.text for query in article_documents(corpus, {"tested"}, None)[0].queries] == ["How many?"]
    assert len(article_documents(corpus, (), None)[0].queries) == 2


def test_digests_know_whether_they_are_of_a_section(corpus: Path) -> None:
    asked = {"doc_id": "mill", "question": "What is it?", "gold": ["The mill turns at dawn.", "Its wheel is oak."]}
    write(corpus / "multi-train.jsonl", [
        {**asked, "type": "about"}, {**asked, "type": "main-points", "scope": "Wheels"}, {**asked, "type": "list"},
        {**asked, "type": "about", "gold": ["It rained for a week."]},
    ])  # fmt: skip
    (mill,) = digest_documents(corpus, corpus, (), None)
    assert [(query.kind, query.golds) for query in mill.queries] == [(WHOLE, (0, 2)), (SECTION, (0, 2))]


def test_where_a_quotation_stands() -> None:
    places = Places(["It rains.", "The mill, at dawn, turns slowly round.", "It rains!", "Yes."])
    assert places.of("It rains.") == (0, 2)
    assert places.of("“The mill at dawn turns slowly round” It rains.") == (1,)
    assert places.of("the mill at dawn") == (1,)
    assert places.of("...") == places.of("It snows.") == ()


def test_each_sentence_starts_where_it_says() -> None:
    text = " One thing. Mr. Two came.\n\n  Three?  \nFour."
    sentences, lines, starts = split(text)
    assert [text[start : start + len(sentence)] for start, sentence in zip(starts, sentences, strict=True)] == sentences
    assert (sentences, lines) == (["One thing.", "Mr. Two came.", "Three?", "Four."], [0, 0, 2, 3])


def test_of_a_long_book_the_stretch_around_its_questions() -> None:
    paragraphs = [f"{number} " + "x" * 3000 for number in range(400)]
    text = "\n\n".join(paragraphs)
    kept = stretch(text, [{"paragraph": 250}, {"paragraph": 190}, {}]).split("\n\n")
    assert kept[0] == paragraphs[170] and paragraphs[250] in kept
    assert LONGEST_TEXT - 4000 < sum(map(len, kept)) <= LONGEST_TEXT
    few = [paragraph[:1500] for paragraph in paragraphs]
    assert stretch("\n\n".join(few), [{"paragraph": 30}, {"paragraph": 60}]).split("\n\n") == few[10:260]
    assert stretch("short", []) == "short"


def test_the_held_out_tenth(tmp_path: Path) -> None:
    names = [f"document {number}" for number in range(200)]
    assert held_out(names) == held_out(reversed(names)) and len(held_out(names)) == 20
    file = tmp_path / "docs.json"
    file.write_text(json.dumps([{"in_training_text": ["a", "b"]}, {}, {"in_training_text": None}]))
    assert left_out(file) == {"a", "b"} and left_out(None) == frozenset()
