"""What is quoted, and what the app says itself."""

from __future__ import annotations

import numpy as np
import pytest

from triforce_core.quotes.answering import NOT_FOUND, Answering
from triforce_core.quotes.request_kind import RequestKind
from triforce_core.quotes.sentence_index import SentenceIndex
from triforce_core.quotes.sentence_prior import SentencePrior
from triforce_core.quotes.word_vectors import WordVectors

LINES = [
    "The Harbour of Bristol",
    "This report describes the harbour of Bristol and its trade. It was written in 1904. The trade had grown for years.",
    "Ships and men",
    "The harbour master, John Arden, counted nine ships that morning. They carried sugar and tobacco from the islands.",
    "Captains must show the papers of the ship before they may unload. The fee is four pounds for each ship.",
    "A brig is a ship with two masts and square sails. Brigs were cheap to build because they needed few men.",
    "Contents ............ 12",
    "[3] Lloyd, Register of Ships, 1904, p. 12.",
]


def answering() -> Answering:
    sentences, lines = [], []
    for number, line in enumerate(LINES):
        for sentence in line.replace(". ", ".\n").split("\n"):
            sentences.append(sentence)
            lines.append(number)
    return Answering(SentenceIndex(sentences, lines, WordVectors.shipped()), SentencePrior.shipped())


@pytest.mark.parametrize(("question", "answer"), [
    ("Who counted the ships?", "John Arden"), ("What is a brig?", "two masts"), ("How much is the fee?", "four pounds"),
    ("What must captains show?", "papers"), ("Why were brigs cheap?", "few men"),
])
def test_the_prior_prefers_the_answer(question: str, answer: str) -> None:
    plan = answering().plan(question)
    assert answer in answering().index.sentences[int(plan.scores.argmax())]


def test_headings_contents_and_notes_are_no_answers() -> None:
    plan = answering().plan("What about the harbour of Bristol, its contents and the register of ships?")
    order = [answering().index.sentences[number] for number in np.argsort(-plan.scores)]
    assert {order[-1], order[-2], order[-3]} == {LINES[0], LINES[2], LINES[6]}


def test_the_gist_is_several_sentences_in_order() -> None:
    plan = answering().plan("What is this report about?")
    assert plan.kind is RequestKind.SUMMARY and len(plan.spans) >= 3
    assert list(plan.spans) == sorted(plan.spans)
    quoted = [answering().index.sentences[last] for _, last in plan.spans]
    assert any("This report describes" in sentence for sentence in quoted)


def test_what_is_not_there_is_said() -> None:
    plan = answering().plan("Which opera did the queen of Denmark attend in Vienna?")
    assert plan.answerable is False and plan.words == NOT_FOUND and 1 <= len(plan.spans) <= 3
    assert plan.confidence is not None and plan.confidence < (answering().plan("Who counted the ships?").confidence or 0)


@pytest.mark.parametrize("line", ["thanks!", "translate this to German", "what's the weather like today?"])
def test_what_no_quotation_answers_is_answered_in_own_words(line: str) -> None:
    plan = answering().plan(line)
    assert plan.words and not plan.spans and plan.answerable is None


def test_more_quotes_what_follows() -> None:
    said = "“The harbour master, John Arden, counted nine ships that morning.”"
    plan = answering().plan("tell me more", "Who counted the ships?", said)
    assert [answering().index.sentences[first] for first, _ in plan.spans][0].startswith("They carried sugar")
    assert answering().plan("tell me more").kind is RequestKind.SENTENCE  # nothing was said before


def test_a_sentence_that_leans_on_the_one_before_brings_it() -> None:
    plan = answering().plan("What did they carry from the islands?")
    first, last = plan.spans[0] if plan.spans else (int(plan.scores.argmax()),) * 2
    assert answering().index.sentences[last].startswith("They carried") and first == last - 1


def test_the_same_question_has_the_same_plan() -> None:
    one, other = answering().plan("Who counted?"), answering().plan("Who counted?")
    assert np.array_equal(one.scores, other.scores) and one.spans == other.spans
