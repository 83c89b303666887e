"""The verbatim mask against its definition, spelt out by brute force on small random documents."""

from __future__ import annotations

import random
import time

import numpy as np
import pytest

from triforce_core.sampling.quote_matcher import Mark, QuoteConstraint, QuoteIndex

OPEN, CLOSE, MARKER, NEWLINE = 90, 91, 92, 93


def small_document(chance: random.Random, words: int = 4):
    """Lines of sentences over a tiny alphabet (so that many places match); some sentences run over a page break."""
    tokens: list[int] = []
    marks: list[int] = []
    for _ in range(chance.randint(1, 6)):
        for sentence in range(chance.randint(1, 3)):
            length = chance.randint(1, 5)
            for at in range(length):
                mark = Mark.TEXT
                if at == 0:
                    mark |= Mark.SENTENCE_START | Mark.WORD_START
                elif chance.random() < 0.6:
                    mark |= Mark.WORD_START
                if at == length - 1:
                    mark |= Mark.SENTENCE_END
                tokens.append(chance.randrange(words))
                marks.append(mark)
                if at < length - 1 and chance.random() < 0.1:  # a page break inside the sentence
                    tokens += [NEWLINE, MARKER, NEWLINE]
                    marks += [0, 0, 0]
            del sentence
        marks[-1] |= Mark.LINE_END
        tokens.append(NEWLINE)
        marks.append(0)
    return np.array(tokens, np.int32), np.array(marks, np.uint8)


def passages(tokens, marks, unit):
    """Every quotable run, by definition: {token tuple: set of (start, end)} and the set of all their beginnings."""
    lines, line = [], []
    for at, (token, mark) in enumerate(zip(tokens, marks, strict=True)):
        if mark & Mark.TEXT:
            line.append((at, int(token), int(mark)))
            if mark & Mark.LINE_END:
                lines.append(line)
                line = []
    found: dict[tuple[int, ...], set[tuple[int, int]]] = {}
    begun: set[tuple[int, ...]] = {()}
    for line in lines:
        for first, (start, _, mark) in enumerate(line):
            begins = mark & Mark.SENTENCE_START if unit == "sentence" else (mark & Mark.WORD_START or first == 0)
            if not begins:
                continue
            for last in range(first, len(line)):
                run = tuple(token for _, token, _ in line[first : last + 1])
                begun.add(run)
                final = last + 1 == len(line)
                ends = line[last][2] & Mark.SENTENCE_END if unit == "sentence" else line[last + 1 : last + 2]
                if unit == "word" and ends:
                    ends = ends[0][2] & Mark.WORD_START
                if ends or final:
                    found.setdefault(run, set()).add((start, line[last][0] + 1))
    return found, begun


@pytest.mark.parametrize("unit", ["sentence", "word"])
@pytest.mark.parametrize("seed", range(60))
def test_allowed_equals_the_definition(seed: int, unit: str) -> None:
    chance = random.Random(seed)
    tokens, marks = small_document(chance)
    found, begun = passages(tokens, marks, unit)
    rules = QuoteConstraint(QuoteIndex(tokens, marks), OPEN, CLOSE, unit, must_open=seed % 2 == 0)
    for _ in range(8):
        state, prefix = rules.initial(), ()
        if rules.must_open:
            assert state.allowed().tolist() == [OPEN]
        else:
            assert state.allowed() is None and state.advance(3).allowed() is None
        state = state.advance(OPEN)
        while True:
            expected = sorted(
                {run[len(prefix)] for run in begun if run[: len(prefix)] == prefix and len(run) > len(prefix)}
            )
            if prefix in found:
                expected.append(CLOSE)
            assert state.allowed().tolist() == expected and expected
            run = state.guided(12)
            check_forced(state, run)
            choice = chance.choice(expected)
            state = state.advance(choice)
            if choice == CLOSE:
                assert set(state.spans()) == found[prefix]
                assert state.allowed() is None
                break
            prefix += (choice,)


def check_forced(state, run) -> None:
    """Each token of the run was the only one allowed, and after it there is a choice (or the limit)."""
    for token in run:
        assert state.allowed().tolist() == [token]
        state = state.advance(token)
    allowed = state.allowed()
    assert len(run) == 12 or allowed is None or len(allowed) > 1


def test_forced_respects_limit_and_stop() -> None:
    tokens = np.arange(10, dtype=np.int32)
    marks = np.full(10, Mark.TEXT, np.uint8)
    marks[0] |= Mark.SENTENCE_START
    marks[9] |= Mark.SENTENCE_END | Mark.LINE_END
    state = QuoteConstraint(QuoteIndex(tokens, marks), OPEN, CLOSE, must_open=True).initial()
    assert state.guided(100) == [OPEN, *range(10), CLOSE]
    assert state.guided(4) == [OPEN, 0, 1, 2]
    assert state.guided(100, stop={5}) == [OPEN, 0, 1, 2, 3, 4, 5]
    assert state.guided(0) == []


def test_states_do_not_change_and_a_refused_token_leaves_the_quotation() -> None:
    tokens, marks = small_document(random.Random(5))
    state = QuoteConstraint(QuoteIndex(tokens, marks), OPEN, CLOSE).initial().advance(OPEN)
    before = state.allowed().tolist()
    state.advance(before[0]).advance(CLOSE)
    assert state.allowed().tolist() == before
    assert state.advance(80).allowed() is None


def test_a_document_without_sentences_constrains_nothing() -> None:
    index = QuoteIndex(np.array([MARKER], np.int32), np.zeros(1, np.uint8))
    state = QuoteConstraint(index, OPEN, CLOSE, must_open=True).initial()
    assert state.allowed() is None and state.advance(OPEN).allowed() is None and state.guided(5) == []


def test_a_million_tokens_build_and_step_fast() -> None:
    chance = np.random.default_rng(0)
    tokens = chance.integers(0, 8000, 1_000_000).astype(np.int32)
    marks = np.full(len(tokens), Mark.TEXT, np.uint8)
    marks[::25] |= int(Mark.SENTENCE_START)
    marks[24::25] |= int(Mark.SENTENCE_END | Mark.LINE_END)
    begin = time.perf_counter()
    state = QuoteConstraint(QuoteIndex(tokens, marks), OPEN, CLOSE).initial().advance(OPEN)
    state.allowed()
    built = time.perf_counter() - begin
    begin = time.perf_counter()
    steps = 0
    for start in range(0, 50_000, 250):
        walk = state.advance(int(tokens[start]))
        while walk.phase == "inside":
            steps += 1
            walk = walk.advance(int(walk.allowed()[0]))
    each = (time.perf_counter() - begin) / steps
    assert built < 2 and each < 1e-3, (built, each)


def test_where_answers_are_quotations_only_a_closed_one_is_followed_by_the_end_or_by_another():
    tokens = np.array([1, 2, NEWLINE], np.int32)
    first = Mark.TEXT | Mark.SENTENCE_START | Mark.WORD_START
    marks = np.array([first, Mark.TEXT | Mark.SENTENCE_END | Mark.LINE_END, 0], np.uint8)
    rules = QuoteConstraint(QuoteIndex(tokens, marks), OPEN, CLOSE, must_open=True, end_ids=(NEWLINE,))
    state = rules.initial()
    assert state.guided(10) == [OPEN, 1, 2, CLOSE]  # a document of one sentence leaves no choice at all
    for token in (OPEN, 1, 2, CLOSE):
        state = state.advance(token)
    assert state.allowed().tolist() == [OPEN, NEWLINE] and state.spans() == ((0, 2),)
    assert state.advance(OPEN).allowed().tolist() == [1]
    assert state.advance(NEWLINE).allowed() is None
