"""Paragraphs with questions among the prose of books."""

from __future__ import annotations

from random import Random

from training.hidden_questions import Hidden, strewn


def test_all_hidden_paragraphs_are_there_among_as_much_prose_as_fits() -> None:
    prose = [f"book paragraph {number} has exactly seven words" for number in range(100)]
    hidden = [Hidden(f"hidden {number} with five words", "?", "hidden") for number in range(4)]
    text = strewn(prose, hidden, 160, Random(0))
    paragraphs = text.split("\n\n")
    assert 160 <= len(text.split()) < 160 + 7
    assert [one for one in paragraphs if one.startswith("book")] == prose[: len(paragraphs) - 4], "in order, from 0 on"
    assert {one.text for one in hidden} <= set(paragraphs)
    places = [paragraphs.index(one.text) for one in hidden]
    assert max(places) - min(places) > 4, "not all in one place"
