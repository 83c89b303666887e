"""The document's words in an answer: rules that hold it to them, what a script spells, where quotations stand."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from weakref import WeakKeyDictionary

import numpy as np

from ..events import QuoteEvent, QuoteOccurrence, QuotePlace, Script
from ..sampling.quote_matcher import QuoteConstraint, QuoteIndex
from .builder import DocumentPrompt, PromptBuilder, QuoteFormat


class Quoting:
    """The quotation rules of all documents that one builder lays out."""

    def __init__(self, builder: PromptBuilder) -> None:
        self.builder = builder
        # Documents but for their own quotation marks.
        self._unquoted: WeakKeyDictionary[DocumentPrompt, QuoteIndex] = WeakKeyDictionary()

    def rules(self, prompt: DocumentPrompt, typographic: bool = False,
              script: Script | None = None) -> QuoteConstraint | None:
        """Return what holds an answer to the document's words: where the model's prompt.json names quotation marks, or
        else where ``typographic`` asks for it and the vocabulary has such marks.

        script: what a model that quotes is to say; it may quote anything without. Raises NotSpelledError."""
        form = self.builder.quote_format
        if form is None:
            return self._typographic(prompt) if typographic else None
        ids = self._spelt(prompt, script, form) if script is not None else ()
        unit = form.unit if script is None else "word"  # what a script quotes may begin inside a sentence
        return QuoteConstraint(prompt.quotes, form.open_id, form.close_id, unit, form.must_open, form.end_ids,
                               script=ids)

    def _spelt(self, prompt: DocumentPrompt, script: Script, form: QuoteFormat) -> tuple[int, ...]:
        """Return the tokens of a script, each line that it quotes in a paragraph of its own."""
        line_feed = self.builder.tokenizer.token_id("<0x0A>")  # as a byte: the piece for it ends answers
        ids = self.builder.tokenizer.encode(script.words)
        for places in script.quotes:
            at = [token for place in places for token in self.builder.tokens_at(prompt, place)]
            for run in prompt.quotes.runs(at):
                ids += [line_feed] * 2 if ids else []
                ids += [form.open_id, *run, form.close_id]
        return (*ids, *form.end_ids[:1])

    def _typographic(self, prompt: DocumentPrompt) -> QuoteConstraint | None:
        """Return rules for words between “ and ”. The document's own marks end a passage: what stands between an
        answer's is one run."""
        form = self._marks
        if form is None:
            return None
        if prompt not in self._unquoted:
            there = np.unique(prompt.token_ids).tolist()
            marked = [token for token in there if {*"“”"} & {*self.builder.tokenizer.decode([token])}]
            self._unquoted[prompt] = prompt.quotes_without(marked)
        return QuoteConstraint(self._unquoted[prompt], form.open_id, form.close_id, form.unit, also_open=form.also_open)

    @cached_property
    def _marks(self) -> QuoteFormat | None:
        """Return “ and ” as tokens of their own, alone or behind a space; None where the vocabulary lacks them."""
        encode = self.builder.tokenizer.encode
        single = {text: ids[0] for text in ("“", " “", "”") if len(ids := encode(text)) == 1}
        if "“" not in single or "”" not in single:
            return None
        opening, closing = single["“"], single["”"]
        return QuoteFormat(opening, closing, "word", False, also_open=frozenset(single.values()) - {opening, closing})


_MOST_OCCURRENCES = 8  # occurrences of one quotation that are reported with their places


class QuoteReport:
    """Report where an answer's quotations stand. All of it follows from the answer's tokens, so it is the same however
    they were drafted."""

    def __init__(self, constraint: QuoteConstraint, places: Callable[[int, int], tuple[QuotePlace, ...]]) -> None:
        """places: where tokens [start, end) of the context stand in the document."""
        self._state, self._places = constraint.initial(), places
        self._length = self._start = 0  # characters of the answer; those before the quotation
        self._number = -1
        self._single = False  # the quotation that is open has been reported
        self._newest: dict[int, QuoteEvent] = {}

    @property
    def quotes(self) -> tuple[QuoteEvent, ...]:
        """Return the last report of each quotation."""
        return tuple(self._newest.values())

    def feed(self, token_ids: Sequence[int], texts: Sequence[str]) -> Iterator[QuoteEvent]:
        """Yield what the answer's next tokens quote. texts: what each adds to its text."""
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
        """Yield the quotation inside which the answer ends, if any."""
        if self._state.phase == "inside":
            yield self._report(self._state.spans(), self._length, closed=False)

    def _report(self, spans: Sequence[tuple[int, int]], end: int, closed: bool) -> QuoteEvent:
        event = QuoteEvent(self._number, self._start, end, closed, len(spans),
                           tuple(QuoteOccurrence(*span, self._places(*span)) for span in spans[:_MOST_OCCURRENCES]))
        self._newest[self._number] = event
        return event
