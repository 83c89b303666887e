"""Copies straight for the full cache, or another drafter: who writes a round, and what each is told of it."""

from __future__ import annotations

import pytest

from tests.research.test_cascade import GREEDY, Fixed
from tests.speculation.test_prompt_lookup import Fussy
from triforce_core.config import SamplingParams
from triforce_core.sampling import Sampler
from triforce_core.speculation.prompt_lookup import NGRAM, PromptLookupDrafter, Router, TextIndex

LONG = [*range(10, 90), 5, 6, 7]
REPEATED = [*LONG, *LONG]


def either(document: list[int], *token_ids: int, price: float = 0.25, lengths: tuple[int, ...] = ()) -> Router:
    return Router(Fixed(*token_ids), PromptLookupDrafter(TextIndex(document), 16), 16, price, lengths)


def round_of(drafter: Router, context: list[int], truth: list[int]) -> list[str]:
    """Return who gave the tokens of a round after which the context goes on with ``truth``."""
    draft = drafter.propose(context, 4, GREEDY)
    drafter.settle([*context, *truth], committed=True)
    return draft.proposed_by(drafter.tier)


def test_copies_prove_themselves_in_rounds_that_another_writes() -> None:
    drafter, context = either(LONG, 99, 98, 97, 96), list(LONG)
    wrote = []
    for start in range(0, 60, 2):  # the text repeats itself, two tokens a round
        wrote.append(round_of(drafter, context, LONG[start : start + 2])[0])
        context += LONG[start : start + 2]
    assert wrote[0] == "draft" and wrote[-1] == NGRAM
    known = wrote[wrote.index(NGRAM) :]
    assert known.count("draft") <= len(known) // 9, "once they are known to be right they write nearly every round"
    asked = drafter.first.asked
    assert round_of(drafter, context, LONG[60:62])[0] == NGRAM and drafter.first.asked == asked


def test_copies_that_are_wrong_never_write() -> None:
    drafter, context = either(LONG, 1, 2, 3, 4), list(LONG)
    for number in range(40):
        new = [*range(1000 + 5 * number, 1004 + 5 * number), 10 + number % 50]
        assert NGRAM not in round_of(drafter, context, new)
        context += new


def test_one_bad_round_is_not_the_last_of_the_other() -> None:
    """Copies that are right for two tokens write at first, then the other is tried again, and brings more."""
    drafter, context = either(LONG, 1, 2, 3, 4, price=0.1), list(LONG)
    wrote = []
    for number in range(30):
        new = [10, 11, 1000 + number, 5, 6, 7] if number else [10]
        wrote.append(round_of(drafter, context, new)[0])
        context += new
    copied = wrote.index(NGRAM)
    again = wrote.index("draft", copied)
    assert again - copied <= 9 and set(wrote[again:]) == {"draft"}, wrote


@pytest.mark.parametrize(("price", "writer"), [(0.0, "draft"), (1.0, NGRAM)])
def test_the_dearer_the_other_is_the_sooner_copies_write(price: float, writer: str) -> None:
    drafter, context = either(LONG, 1, 2, 3, 4, price=price), list(LONG)
    for start in range(0, 40, 4):
        round_of(drafter, context, LONG[start : start + 4])
        context += LONG[start : start + 4]
        drafter.copies.estimator.learn(6, 8, 6)
    assert round_of(drafter, [*context], LONG[40:45])[0] == writer


@pytest.mark.parametrize(("temperature", "writer"), [(0.0, NGRAM), (1.0, "draft")])
def test_copies_may_be_left_to_answers_that_are_decided_by_draws(temperature: float, writer: str) -> None:
    drafter = Router(Fixed(1), PromptLookupDrafter(TextIndex(LONG), 16), 16, 4.0, coupled_only=True)
    sampler, context = Sampler(SamplingParams(temperature=temperature)), list(LONG)
    for start in range(0, 60, 2):
        draft = drafter.propose(context, 4, sampler)
        context += LONG[start : start + 2]
        drafter.settle(context, committed=True)
    assert draft.proposed_by(drafter.tier)[0] == writer


def test_a_copy_has_one_of_the_given_lengths() -> None:
    drafter, context = either(LONG, 1, lengths=(8, 3)), list(LONG)
    seen = set()
    for start in range(0, 60, 2):
        draft = drafter.propose(context, 4, GREEDY)
        if draft.proposed_by("draft")[0] == NGRAM:
            seen.add(len(draft.token_ids))
        drafter.settle([*context, *LONG[start : start + 2]], committed=True)
        context += LONG[start : start + 2]
    assert seen == {8} or seen == {3, 8}


def test_where_words_are_held_to_the_document_copies_are_not_asked() -> None:
    """Both know the forced tokens, and little is open."""
    sampler = Sampler(SamplingParams(), masks=Fussy())
    drafter, context = either(LONG, 99, price=1e6), [*LONG, *LONG[:6]]
    assert set(drafter.propose(context, 4, GREEDY).proposed_by("draft")) == {NGRAM}
    assert drafter.propose(context, 4, sampler).proposed_by("draft") == ["draft"]


def test_while_the_other_rests_only_proven_copies_are_made() -> None:
    drafter, context = either(LONG, 99, 98), list(LONG)
    assert drafter.begin(0) == 16
    wrote = []
    for start in range(0, 60, 2):
        wrote += round_of(drafter, context, LONG[start : start + 2])[:1] or ["nobody"]
        context += LONG[start : start + 2]
    assert wrote[0] == "nobody" and wrote[-1] == NGRAM and wrote.count(NGRAM) > 10
    assert not drafter.first.asked
    drafter.copies.reset()
    assert round_of(drafter, context, LONG[60:62]) == []
    assert drafter.propose(LONG[:6], 4, Sampler(SamplingParams(), masks=Fussy())).token_ids == []
