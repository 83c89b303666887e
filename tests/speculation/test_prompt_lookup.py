"""The suffix automaton against brute force, what the n-gram drafter copies, and when it leaves off."""

from __future__ import annotations

import random

import numpy as np
import pytest

from triforce_core.config import SamplingParams
from triforce_core.sampling import Sampler
from triforce_core.speculation.prompt_lookup import (
    NGRAM,
    AcceptanceEstimator,
    PromptLookupDrafter,
    SuffixAutomaton,
    TextIndex,
)

GREEDY = Sampler(SamplingParams())


def longest_match(context: list[int], known: int) -> tuple[int, int]:
    """By trying: length of the longest suffix that also ends earlier, within the first ``known`` tokens, and where its
    earliest occurrence there ends."""
    best = 0, 0
    for end in range(1, min(known, len(context) - 1) + 1):
        length = 0
        while length < end and context[end - 1 - length] == context[-1 - length]:
            length += 1
        if length > best[0]:
            best = length, end
    return best


def found(automaton: SuffixAutomaton, ahead: list[int]) -> tuple[int, int]:
    match = automaton.match
    for token in ahead:
        match = automaton.advance(match, token)
    return match.length, match.end if match.length else 0


@pytest.mark.parametrize("vocabulary", [1, 2, 3, 20])
@pytest.mark.parametrize("seed", range(6))
def test_the_longest_match_is_the_one_that_brute_force_finds(vocabulary, seed):
    rng = random.Random(seed)
    text = [rng.randrange(vocabulary) for _ in range(rng.randrange(1, 120))]
    automaton = SuffixAutomaton(text)
    for _ in range(30):
        if rng.random() < 0.4:
            automaton.truncate(rng.randint(len(text), len(automaton.text)))
        automaton.extend([rng.randrange(vocabulary) for _ in range(rng.randrange(8))])
        ahead = [rng.randrange(vocabulary) for _ in range(rng.randrange(6))]
        assert found(automaton, ahead) == longest_match([*automaton.text, *ahead], len(automaton.text))


@pytest.mark.parametrize("seed", range(8))
def test_what_was_taken_back_leaves_no_trace(seed):
    rng = random.Random(seed)
    text, later = ([rng.randrange(3) for _ in range(60)] for _ in range(2))
    automaton, fresh = SuffixAutomaton(text), SuffixAutomaton(text)
    automaton.extend(later)
    automaton.truncate(0)  # what stood there from the start stays
    assert vars(automaton) == vars(fresh)


def test_an_index_follows_the_conversation_and_keeps_the_document():
    document = [random.Random(1).randrange(50) for _ in range(400)]
    index = TextIndex(document)
    for tail in ([7, 8, 9, 7, 8], [7, 8, 1], [], [3] * 20):
        context = [*document, *tail]
        index.agree(context)
        index.grow([*context, 4, 4])
        expected = TextIndex(document)
        expected.grow([*context, 4, 4])
        assert vars(index._automaton)["text"] == vars(expected._automaton)["text"]
        assert index.guess([*context, 4, 4], 8) == expected.guess([*context, 4, 4], 8)


def draft(document: list[int], ahead: list[int], count: int = 6) -> list[int]:
    drafter = PromptLookupDrafter(TextIndex(document))
    for _ in range(4):  # so that all of it pays
        drafter.estimator.learn(0, 30, 30)
        for kind in range(1, 7):
            drafter.estimator.learn(kind, 30, 30)
    made = drafter.propose([*document, *ahead], count, GREEDY)
    assert made.probs == [None] * len(made.token_ids) and made.sources == [NGRAM] * len(made.token_ids)
    return made.token_ids


def test_it_copies_what_followed_the_longest_match():
    document = [1, 2, 3, 40, 41, 42, 9, 2, 3, 50, 51, 52, 8]
    assert draft(document, [2, 3]) == [40, 41, 42, 9, 2, 3]
    assert draft(document, [9, 2, 3], 3) == [50, 51, 52]  # longer than the earlier one


def test_a_copy_that_reaches_its_own_beginning_goes_in_circles():
    assert draft([5, 6, 7, 5, 6], [], 8) == [7, 5, 6, 7, 5, 6, 7, 5]


def test_without_a_match_the_documents_own_bigrams_guess():
    assert draft([1, 2, 9, 1, 3, 8, 1, 3, 7], [1], 2) == [3, 7]  # 3 follows 1 more often than 2; then the smaller
    assert draft([1, 2, 3], [77]) == []


def test_drafts_end_with_the_answer():
    document = [1, 2, 3, 4, 5, 6]
    drafter = PromptLookupDrafter(TextIndex(document))
    sampler = Sampler(SamplingParams(), stop=frozenset({4}))
    assert drafter.propose([*document, 1, 2], 8, sampler).token_ids == [3, 4]


class Fussy:
    """After 3 come 40 or 42; after 40 nothing but 41 and then 43."""

    def allowed(self, context, drafted):
        whole = [*context, *drafted]
        rows = [whole[: len(context) + i] for i in range(len(drafted) + 1)]
        return [np.array([40, 42]) if row[-1] == 3 else np.array([41]) if row[-1] == 40 else None for row in rows]

    def guided(self, context, limit):
        return [41, 43][:limit] if context[-1] == 40 else []


def test_masks_cut_a_copy_and_what_they_force_is_added():
    sampler = Sampler(SamplingParams(), masks=Fussy())
    made = PromptLookupDrafter(TextIndex([1, 2, 3, 40, 55, 56])).propose([1, 2, 3, 40, 55, 56, 2, 3], 8, sampler)
    assert made.token_ids == [40, 41, 43] and made.sources == [NGRAM, "quote", "quote"]
    made = PromptLookupDrafter(TextIndex([1, 2, 3, 50, 55, 56])).propose([1, 2, 3, 50, 55, 56, 2, 3], 8, sampler)
    assert made.token_ids == []


def answers(right: float, rounds: int) -> tuple[list[int], list[int]]:
    """Drafted and accepted per round, where a text repeats itself and each guessed token holds with odds ``right``."""
    rng = random.Random(0)
    document = [rng.randrange(1000) for _ in range(300)] * 2
    index = TextIndex(document)
    drafter, context = PromptLookupDrafter(index), list(document[:330])
    drafted, accepted = [], []
    for _ in range(rounds):
        at = rng.randrange(280)
        context = [*document, *document[at : at + 4]]
        index.agree(document)
        made = drafter.propose(context, 16, GREEDY).token_ids
        kept = 0
        while kept < len(made) and rng.random() < right:
            kept += 1
        drafter.settle([*context, *made[:kept], 5000], committed=False)
        drafted.append(len(made))
        accepted.append(kept)
    return drafted, accepted


def test_a_hopeless_ngram_is_switched_off_and_tried_again_seldom():
    drafted, accepted = answers(0.0, 1500)
    assert drafted[0] > 0 and sum(accepted) == 0
    assert sum(drafted[:500]) < 60
    assert 0 < sum(drafted[500:]) < 0.06 * 1000  # tokens per round; each costs PRICE of a pass


def test_a_good_one_drafts_long():
    drafted, _ = answers(1.0, 200)
    assert sum(drafted[20:]) > 15.8 * 180  # but where another kind of match comes for the first time


def test_a_gate_opens_again_when_the_text_changes():
    gate = AcceptanceEstimator()
    for _ in range(200):
        if gate.length(1, 8):
            gate.learn(1, 1, 0)
    grown = 0
    for _ in range(400):
        length = gate.length(1, 8)
        if length:
            gate.learn(1, length, length)
        grown = max(grown, length)
    assert grown == 8


def test_nothing_is_built_before_a_guess_is_wanted():
    text = [*range(10, 40), 5, 6] * 2
    late, early = TextIndex(text), TextIndex(text)
    early.guess(text, 1)
    for index in (late, early):
        index.agree([*text, 1, 2])
        index.grow([*text, 1, 2, 3, 4])
        index.agree([*text, 10, 11])
        index.grow([*text, 10, 11, 12])
    assert early._is_built and not late._is_built
    assert late.guess([*text, 10, 11, 12, 13], 6) == early.guess([*text, 10, 11, 12, 13], 6)
    assert late._automaton.text == early._automaton.text == [*text, 10, 11, 12]
