"""Report where an answer's quotations stand in the document while it is written."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from ..events import QuoteEvent, QuoteOccurrence, QuotePlace
from ..sampling.quote_matcher import QuoteConstraint

_MOST_OCCURRENCES = 8  # occurrences of one quotation that are reported with their places


class QuoteReport:
    """Tells where an answer's quotations stand. All of it follows from the answer's tokens, so it is the same however
    they were drafted."""

    def __init__(self, constraint: QuoteConstraint, places: Callable[[int, int], tuple[QuotePlace, ...]],
                 around: Callable[[int, int], tuple[str, str, str]] = lambda start, end: ("", "", "")) -> None:
        """places: where tokens [start, end) of the context stand in the document; around: the sentences before and
        after them, and what leads into their list or table."""
        self._state, self._places, self._around = constraint.initial(), places, around
        self._length = self._start = 0  # characters of the answer; those before the quotation
        self._number = -1
        self._single = False  # the quotation that is open has been reported
        self._newest: dict[int, QuoteEvent] = {}

    @property
    def quotes(self) -> tuple[QuoteEvent, ...]:
        """Return the last report of each quotation."""
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
                yield self._report(self._state.last, end, closed=True)
            elif self._state.phase == "inside" and len(self._state.positions) == 1 and not self._single:
                self._single = True
                yield self._report(self._state.spans(), self._length, closed=False)

    def end(self) -> Iterator[QuoteEvent]:
        """The answer ends here, maybe inside a quotation."""
        if self._state.phase == "inside":
            yield self._report(self._state.spans(), self._length, closed=False)

    def _report(self, spans: Sequence[tuple[int, int]], end: int, closed: bool) -> QuoteEvent:
        event = QuoteEvent(self._number, self._start, end, closed, len(spans),
                           tuple(QuoteOccurrence(*span, self._places(*span)) for span in spans[:_MOST_OCCURRENCES]),
                           *(self._around(*spans[0]) if closed and spans else ("", "", "")))
        self._newest[self._number] = event
        return event
