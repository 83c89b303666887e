"""What is quoted, and what the app says itself."""

from __future__ import annotations

import numpy as np
import pytest

from triforce_core.evidence.answering import NOT_FOUND, Answering
from triforce_core.evidence.question import RequestKind
from triforce_core.evidence.ranking import Ranking, SentencePrior
from triforce_core.evidence.sentence_index import SentenceIndex
from triforce_core.evidence.vectors import WordVectors

LINES = [
    "The Harbour of Bristol",
    "This report describes the harbour of Bristol and its trade. It was written in 1904. The trade had grown for "
    "years.",
    "Ships and men",
    "The harbour master, John Arden, counted nine ships that morning. They carried sugar and tobacco from the islands.",
    "Captains must show the papers of the ship before they may unload. The fee is four pounds for each ship.",
    "A brig is a ship with two masts and square sails. Brigs were cheap to build because they needed few men.",
    "Contents ............ 12",
    "[3] Lloyd, Register of Ships, 1904, p. 12.",
]


def first_choice(question: str) -> str:
    whole = answering()
    plan = whole.plan(question)
    first, last = (plan.spans or plan.choices)[int(np.argmax(plan.weights)) if plan.choices else 0]
    return " ".join(whole.index.sentences[first : last + 1])


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
    assert answer in first_choice(question)


def test_headings_contents_and_notes_are_no_answers() -> None:
    whole = answering()
    plan = whole.plan("What about the harbour of Bristol, its contents and the register of ships?")
    quoted = [whole.index.sentences[at] for first, last in (plan.spans or plan.choices)[:3] for at in (first, last)]
    assert not {LINES[0], LINES[2], LINES[6], LINES[7]} & set(quoted)


def test_the_gist_is_several_sentences_in_order() -> None:
    plan = answering().plan("What is this report about?")
    assert plan.kind is RequestKind.SUMMARY and len(plan.spans) >= 3
    assert list(plan.spans) == sorted(plan.spans)
    quoted = [answering().index.sentences[last] for _, last in plan.spans]
    assert any("This report describes" in sentence for sentence in quoted)


def test_what_is_not_there_is_said() -> None:
    plan = answering().plan("Which opera did the queen of Denmark attend in Vienna?")
    assert plan.answerable is False and plan.words == NOT_FOUND and 1 <= len(plan.spans) <= 3
    known = answering().plan("Who counted the ships?").confidence
    assert plan.confidence is not None and known is not None and plan.confidence < known


@pytest.mark.parametrize("line", ["thanks!", "translate this to German", "wie hoch ist die Gebühr?"])
def test_what_no_quotation_answers_is_answered_in_own_words(line: str) -> None:
    plan = answering().plan(line)
    assert plan.words and not plan.spans and plan.answerable is None


def test_more_quotes_what_follows() -> None:
    said = "“The harbour master, John Arden, counted nine ships that morning.”"
    plan = answering().plan("tell me more", "Who counted the ships?", said)
    assert answering().index.sentences[plan.spans[0][0]].startswith("They carried sugar")
    assert answering().plan("tell me more").kind is RequestKind.SENTENCE  # nothing was said before


def test_a_sentence_that_leans_on_the_one_before_brings_it() -> None:
    quoted = first_choice("What did they carry from the islands?")
    assert "John Arden" in quoted and "They carried sugar" in quoted


def test_choices_never_overlap_and_are_no_longer_than_a_quotation_may_be() -> None:
    whole = answering()
    plan = whole.plan("How many ships were counted?")
    places = [at for first, last in plan.choices for at in range(first, last + 1)]
    assert len(places) == len(set(places)) and len(plan.weights) == len(plan.choices)
    assert all(len(" ".join(whole.index.sentences[a : b + 1]).split()) <= 80 for a, b in plan.choices)


@pytest.mark.parametrize("question", ["é?", "½?", "42", "a", "the", "who " * 400, "漢字", "(((", "-- --"])
def test_odd_questions_have_a_plan(question: str) -> None:
    plan = answering().plan(question, "Who counted the ships?", "“It was")
    assert plan.words or plan.spans or plan.choices


@pytest.mark.parametrize("sentences", [["Ships."], ["..."], ["12", "13"], ["Contents ...... 12"]])
def test_documents_of_hardly_anything(sentences: list[str]) -> None:
    small = Answering(SentenceIndex(sentences, range(len(sentences)), WordVectors.shipped()), SentencePrior.shipped())
    for question in ("Who counted the ships?", "What is this about?", "list the ships", "thanks", "go on"):
        small.plan(question, "Who?", "“Ships.”")


@pytest.mark.parametrize(("ahead", "left"), [(3.0, False), (20.0, True)])
def test_a_list_leaves_the_named_section_for_what_is_far_better(ahead: float, left: bool) -> None:
    whole, question = answering(), "What are the reasons for ships and men?"
    scores = np.zeros(whole.index.size, np.float32)
    scores[1] = ahead  # above the heading that the question names
    whole._rankings[question, ""] = Ranking(scores, 0.9)
    plan = whole.plan(question)
    assert plan.kind is RequestKind.SEVERAL and plan.answerable
    assert (plan.spans == ((1, 1),)) is left and any(first > 4 for first, _ in plan.spans) is not left
