"""Words that texts share with a question."""

from __future__ import annotations

from triforce_core.evidence.bm25 import BM25, telling

TEXTS = ["The keeper counted the ships.", "Ships of the harbour came and went.", "The council paid for lamps."]


def index() -> BM25:
    return BM25([telling(text) for text in TEXTS])


def test_a_rare_word_counts_more_than_a_common_one() -> None:
    scores = index().scores("Which ships did the keeper count?")
    assert scores[0] > scores[1] > scores[2] == 0


def test_small_words_and_endings_do_not_count() -> None:
    assert telling("What was counting the ships?") == telling("count ship") == ["count", "ship"]
    assert index().best("what was the", 3) == []


def test_a_typing_error_finds_the_word_that_was_meant() -> None:
    assert index().scores("Who saw the harbuor?").argmax() == 1
    known = BM25([telling(text) for text in TEXTS], english=frozenset(["counsel"]))
    assert known.scores("counsel").max() == 0, "an English word is none"


def test_what_is_left_out_is_not_found() -> None:
    assert index().best("ships", 3) == [0, 1] and index().best("ships", 3, without=[0]) == [1]


def test_without_texts_nothing_is_found() -> None:
    assert BM25([]).best("ships", 3) == []
