"""Verbatim quotation of one model's answers: which rules hold an answer to its document, and what evidence was found
for it. ``prompt`` lays documents out and ``evidence`` ranks their sentences; only this file knows both."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from weakref import WeakKeyDictionary

import numpy as np

from ..events import QuoteEvent, QuoteOccurrence, QuotePlace, Turn
from ..evidence.answering import Answering, AnswerPlan
from ..evidence.sentence_index import SentenceIndex
from ..evidence.sentence_prior import SentencePrior
from ..evidence.vectors import WordVectors
from ..prompt.builder import DocumentPrompt, PromptBuilder, QuoteFormat
from ..sampling.quote_matcher import QuoteConstraint, QuoteIndex


class Quoting:
    """The quotation rules of all documents that one builder lays out."""

    def __init__(self, builder: PromptBuilder) -> None:
        self.builder = builder
        self._answering: WeakKeyDictionary[DocumentPrompt, Answering] = WeakKeyDictionary()
        # Documents but for their own quotation marks.
        self._unquoted: WeakKeyDictionary[DocumentPrompt, QuoteIndex] = WeakKeyDictionary()

    def answering(self, prompt: DocumentPrompt) -> Answering:
        """Return the finder of the document's sentences. It is remembered as long as its prompt."""
        if prompt not in self._answering:
            quotes, decode = prompt.quotes, self.builder.tokenizer.decode
            sentences = [" ".join(decode(part.tolist()).split()) for part in quotes.sentences]
            index = SentenceIndex(sentences, quotes.line_of_sentences, WordVectors.shipped())
            self._answering[prompt] = Answering(index, SentencePrior.shipped())
        return self._answering[prompt]

    def rules(self, prompt: DocumentPrompt, question: str, history: Sequence[Turn] = (),
              typographic: bool = False) -> tuple[QuoteConstraint | None, AnswerPlan | None]:
        """Return the constraint and the plan of an answer by a model whose prompt.json names quotation marks.

        Other models have no plan, and a constraint only where ``typographic`` asks for one and their vocabulary has
        such marks."""
        form, builder = self.builder.quote_format, self.builder
        if form is None:
            return (self._typographic(prompt) if typographic else None), None
        last = history[-1] if history else Turn("", ())
        said = last.answer or builder.tokenizer.decode(list(last.answer_token_ids))
        plan = self.answering(prompt).plan(builder.normalise(question), builder.normalise(last.question), said)
        whole, index, prior = prompt.quotes, prompt.quotes, None
        if plan.choices:
            index = whole.passages(plan.choices)
            prior = form.prior * np.append(np.array(plan.weights), 0.0)[index.sentence_of]
        return QuoteConstraint(index, form.open_id, form.close_id, form.unit, form.must_open, form.end_ids, prior,
                               script=self._script(prompt, plan, form), whole=whole), plan

    def sentences_around(self, prompt: DocumentPrompt, start: int, end: int) -> tuple[str, str, str]:
        """Return the sentences before and after context tokens [start, end), of the same line; and the line that
        introduces the list, or the first row of the table, in which they stand ("" for models that write free
        words)."""
        before, after = prompt.quotes.around(start, end)
        lead_in, decode = "", self.builder.tokenizer.decode
        if self.builder.quote_format is not None:
            lead_in = self.answering(prompt).index.lead_in(prompt.quotes.sentence_at(start))
        return decode(before).strip(), decode(after).strip(), lead_in

    def _script(self, prompt: DocumentPrompt, plan: AnswerPlan, form: QuoteFormat) -> tuple[int, ...]:
        """Return the tokens of what a plan says and quotes, each quotation in a paragraph of its own."""
        if not plan.words and not plan.spans:
            return ()
        line_feed = self.builder.tokenizer.token_id("<0x0A>")  # as a byte: the piece for it ends answers
        ids = self.builder.tokenizer.encode(plan.words)
        for first, last in plan.spans:
            ids += [line_feed] * 2 if ids else []
            ids += [form.open_id, *prompt.quotes.passage(first, last), form.close_id]
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
                           tuple(QuoteOccurrence(*span, self._places(*span)) for span in spans[:_MOST_OCCURRENCES]),
                           *(self._around(*spans[0]) if closed and spans else ("", "", "")))
        self._newest[self._number] = event
        return event
