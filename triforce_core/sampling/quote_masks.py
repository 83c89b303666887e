"""Guided decoding of one answer's quotations: follows them along whatever tokens a tier asks about."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from .quote_matcher import QuoteConstraint, QuoteState


class QuoteMasks:
    """``sampling.Masks`` over a ``QuoteConstraint``. answer_start: context position of the answer's first token.

    Tiers ask about contexts that share all but a few last tokens, so states are kept along the last one asked."""

    def __init__(self, constraint: QuoteConstraint, answer_start: int, stop: frozenset[int]) -> None:
        self._answer_start, self._stop = answer_start, stop
        self._tokens: list[int] = []
        self._states: list[QuoteState] = [constraint.initial()]  # _states[i]: after _tokens[:i]

    def state(self, context: Sequence[int], draft: Sequence[int] = ()) -> QuoteState:
        return self._along(context, draft)[-1]

    def allowed(self, context: Sequence[int], draft: Sequence[int]) -> list[np.ndarray | None]:
        states = self._along(context, draft)
        return [state.allowed() for state in states[len(states) - len(draft) - 1 :]]

    def prior(self, context: Sequence[int], draft: Sequence[int]) -> list[np.ndarray | None]:
        states = self._along(context, draft)
        return [state.prior() for state in states[len(states) - len(draft) - 1 :]]

    def guided(self, context: Sequence[int], limit: int) -> list[int]:
        return self.state(context).guided(limit, self._stop)

    def _along(self, context: Sequence[int], draft: Sequence[int]) -> list[QuoteState]:
        """States after every prefix of the answer so far and the draft."""
        tokens = [*context[self._answer_start :], *draft]
        same = 0
        for mine, asked in zip(self._tokens, tokens, strict=False):
            if mine != asked:
                break
            same += 1
        del self._tokens[same:]
        del self._states[same + 1 :]
        for token in tokens[same:]:
            self._tokens.append(token)
            self._states.append(self._states[-1].advance(token))
        return self._states


class AnyWords:
    """``sampling.Masks`` that leave every token: rounds run as those of a held answer do, whose words they are not."""

    def allowed(self, context: Sequence[int], draft: Sequence[int]) -> list[np.ndarray | None]:
        return [None] * (len(draft) + 1)

    def prior(self, context: Sequence[int], draft: Sequence[int]) -> list[np.ndarray | None]:
        return [None] * (len(draft) + 1)

    def guided(self, context: Sequence[int], limit: int) -> list[int]:
        return []
