"""Two drafters in one block: who writes first, and under whose name what becomes of it counts."""

from __future__ import annotations

import pytest

from triforce_core.config import SamplingParams
from triforce_core.research.cascade import HorizontalCascade
from triforce_core.sampling import Sampler
from triforce_core.speculation.drafter import Draft, Drafter
from triforce_core.speculation.prompt_lookup import NGRAM, PromptLookupDrafter, TextIndex

DOCUMENT = [*range(10, 60), 5, 6, 7] * 2
GREEDY = Sampler(SamplingParams())


class Fixed(Drafter):
    """Writes the same tokens whatever came before."""

    tier = "draft"

    def __init__(self, *token_ids: int) -> None:
        self._token_ids = token_ids
        self.asked = 0

    def propose(self, context, num_draft_tokens, sampler):
        self.asked += 1
        written = list(self._token_ids[:num_draft_tokens])
        return Draft(written, [None] * len(written), [self.tier] * len(written))

    def settle(self, context, *, committed):
        pass

    def reset(self):
        pass


def cascade(*token_ids: int, more: int = 4) -> tuple[HorizontalCascade, Fixed]:
    first = Fixed(*token_ids)
    return HorizontalCascade(first, PromptLookupDrafter(TextIndex(DOCUMENT)), more), first


def test_the_cheaper_one_goes_on_where_the_better_one_stops():
    both, _ = cascade(10, 11)
    draft = both.propose(DOCUMENT, 2, GREEDY)
    assert draft.token_ids == [10, 11, 12, 13, 14] and draft.proposers == ["draft"] * 2 + [NGRAM] * 3
    assert draft.sources == draft.proposers and both.tier == "draft"


def test_nothing_follows_the_end_of_an_answer_or_no_guess():
    for first in ((10, 11), ()):
        both, _ = cascade(*first)
        sampler = Sampler(SamplingParams(), stop=frozenset({11}))
        assert both.propose(DOCUMENT, 2, sampler).token_ids == list(first)


@pytest.mark.parametrize("wrong", [(99, 98), (10, 98)])
def test_who_is_right_more_often_writes_first(wrong):
    """The first drafter errs, copies are right: soon they come alone, and the other is not even asked."""
    both, first = cascade(*wrong)
    context = list(DOCUMENT)
    for _ in range(12):
        draft = both.propose(context, 2, GREEDY)
        truth = DOCUMENT[(len(context) - len(DOCUMENT)) % 53 :][: len(draft.token_ids) + 1]
        kept = next((i for i, (a, b) in enumerate(zip(draft.token_ids, truth, strict=False)) if a != b),
                    len(draft.token_ids))
        context += truth[: kept + 1]
        both.settle(context, committed=True)
    assert first.asked < 8 and draft.proposers == [NGRAM] * len(draft.token_ids) and len(draft.token_ids) == 4


def test_a_beginning_of_a_draft_is_a_draft():
    both, _ = cascade(10, 11)
    draft = both.propose(DOCUMENT, 2, GREEDY)
    assert draft.first(3) == Draft([10, 11, 12], [None] * 3, ["draft", "draft", NGRAM], ["draft", "draft", NGRAM])
    assert draft.first(99) is draft and draft.first(0) == Draft()
