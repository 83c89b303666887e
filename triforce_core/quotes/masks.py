"""Verbatim quoting for one answer: follows the quotation along whatever tokens a tier asks about, and tells where it
stands in the document."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from ..events import QuoteEvent, QuoteOccurrence, QuotePlace
from ..prompt.builder import DocumentPrompt, PromptBuilder
from .matcher import QuoteConstraint, QuoteState

_TOLD = 8  # occurrences of one quotation that are told with their places


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


class QuoteReport:
    """Tells where an answer's quotations stand. All of it follows from the answer's tokens, so it is the same however
    they were drafted."""

    def __init__(self, constraint: QuoteConstraint, builder: PromptBuilder, prompt: DocumentPrompt) -> None:
        self._state, self._builder, self._prompt = constraint.initial(), builder, prompt
        self._length = self._start = 0  # characters of the answer; those before the quotation
        self._number = -1
        self._single = False  # the quotation that is open has been told of
        self._newest: dict[int, QuoteEvent] = {}

    @property
    def quotes(self) -> tuple[QuoteEvent, ...]:
        """What was told last of each quotation."""
        return tuple(self._newest.values())

    def feed(self, token_ids: Sequence[int], texts: Sequence[str]) -> Iterator[QuoteEvent]:
        """The answer's next tokens, and what each adds to its text."""
        for token, text in zip(token_ids, texts, strict=True):
            before, end = self._state, self._length
            self._state = before.advance(token)
            self._length += len(text)
            if self._state.phase == "opened":
                self._number, self._start, self._single = self._number + 1, self._length, False
            elif before.phase == "inside" and token == before.rules.close_id:
                yield self._tell(self._state.last, end, closed=True)
            elif self._state.phase == "inside" and len(self._state.positions) == 1 and not self._single:
                self._single = True
                yield self._tell(self._state.spans(), self._length, closed=False)

    def end(self) -> Iterator[QuoteEvent]:
        """The answer ends here, maybe inside a quotation."""
        if self._state.phase == "inside":
            yield self._tell(self._state.spans(), self._length, closed=False)

    def _tell(self, spans: Sequence[tuple[int, int]], end: int, closed: bool) -> QuoteEvent:
        told = QuoteEvent(self._number, self._start, end, closed, len(spans),
                          tuple(QuoteOccurrence(*span, self._places(*span)) for span in spans[:_TOLD]))
        self._newest[self._number] = told
        return told

    def _places(self, start: int, end: int) -> tuple[QuotePlace, ...]:
        return tuple(QuotePlace(index + 1, self._prompt.pages[index].label, first, last)
                     for index, first, last in self._builder.places(self._prompt, start, end))
