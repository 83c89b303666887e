"""Guided decoding of verbatim quotations: inside one only what continues a passage of the document is allowed.

The engine renormalises the target's probabilities over ``allowed()`` and stays lossless with respect to that masked
distribution. numpy only; states are immutable, so a drafter may run ahead on one.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from enum import IntFlag
from functools import cached_property
from typing import Literal

import numpy as np

from .sampler import Masks

Unit = Literal["sentence", "word"]
GAP = -1  # no token: a line's end, which no quotation crosses


class Mark(IntFlag):
    """Mark what one token of the context is to a quotation. 0: a marker or a newline, left out of quotations."""

    TEXT = 1
    SENTENCE_START = 2
    SENTENCE_END = 4  # the last token of a sentence
    WORD_START = 8
    LINE_END = 16  # the last text token before a break; not set where a sentence goes on over a page break
    NOTE = 32  # of a note that stands between the two parts of such a sentence


class QuoteIndex:
    """Hold the quotable tokens of one context, markers left out, with a gap at every line end."""

    def __init__(self, token_ids: np.ndarray, marks: np.ndarray) -> None:
        """token_ids and marks: [n], from a DocumentPrompt."""
        assert token_ids.shape == marks.shape and token_ids.ndim == 1
        text = np.flatnonzero(marks & Mark.TEXT)
        text = text[np.argsort(marks[text] & Mark.NOTE, kind="stable")]  # behind all else: a sentence is in one piece
        kinds = marks[text]
        gaps = np.flatnonzero(kinds & Mark.LINE_END) + 1
        if len(text) and (not len(gaps) or gaps[-1] != len(text)):
            gaps = np.append(gaps, len(text))
        self.content = np.insert(token_ids[text].astype(np.int32), gaps, GAP)
        self.places = np.insert(text.astype(np.int32), gaps, GAP)  # where in the context each stands
        self._marks = np.insert(kinds.astype(np.uint8), gaps, 0)

    @cached_property
    def _first_places(self) -> np.ndarray:
        """Return where in ``content`` each sentence begins."""
        return np.flatnonzero(self._marks & Mark.SENTENCE_START)

    @cached_property
    def _ends(self) -> dict[Unit, np.ndarray]:
        inside = self.content != GAP
        return {"sentence": self._after((self._marks & Mark.SENTENCE_END) != 0) | ~inside,
                "word": (((self._marks & Mark.WORD_START) != 0) & self._after(inside)) | ~inside}

    def ends(self, unit: Unit) -> np.ndarray:
        """Return bool [len(content)]: whether a quotation may close before each place."""
        return self._ends[unit]

    def runs(self, tokens: Sequence[int]) -> list[list[int]]:
        """Return the token ids at these places of the context as stretches that a quotation can be: cut at the end of a
        line, and wherever they do not follow each other."""
        order = np.argsort(self.places, kind="stable")
        at = order[np.searchsorted(self.places, tokens, sorter=order)]
        return [self.content[part].tolist() for part in np.split(at, np.flatnonzero(np.diff(at) != 1) + 1) if len(part)]

    def starts(self, unit: Unit) -> _Starts:
        """Return where a quotation may begin."""
        if unit not in self._starts:
            inside = self.content != GAP
            first = inside & ~self._after(inside)  # a line's first token starts a word however it is spelt
            words = first | ((self._marks & Mark.WORD_START) != 0)
            places = self._first_places if unit == "sentence" else np.flatnonzero(words)
            self._starts[unit] = _Starts(self.content, places)
        return self._starts[unit]

    @cached_property
    def _starts(self) -> dict[Unit, _Starts]:
        return {}

    @staticmethod
    def _after(flags: np.ndarray) -> np.ndarray:
        """Return the flags moved one place on; nothing comes before the first."""
        return np.concatenate((np.zeros(1, bool), flags[:-1])) if len(flags) else flags


class _Starts:
    """Hold places where a quotation may begin, sorted by the token that stands there."""

    def __init__(self, content: np.ndarray, places: np.ndarray) -> None:
        order = np.argsort(content[places], kind="stable")
        self._places = places[order].astype(np.int32)
        self._sorted = content[self._places]
        self.tokens = np.unique(self._sorted).astype(np.int64)

    def of(self, token_id: int) -> np.ndarray:
        low, high = np.searchsorted(self._sorted, (token_id, token_id + 1))
        return self._places[low:high]


@dataclass(frozen=True, eq=False)
class QuoteConstraint:
    """Hold the rules of one conversation.

    must_open: an answer begins with the opening mark. end_ids: if any, a closed quotation is followed by one of them or
    by another quotation only. also_open: other tokens that write the opening mark, such as one with a space before it.
    script: the tokens with which the answer begins, each the only one allowed."""

    index: QuoteIndex
    open_id: int
    close_id: int
    unit: Unit = "sentence"
    must_open: bool = False
    end_ids: tuple[int, ...] = ()
    also_open: frozenset[int] = frozenset()
    script: tuple[int, ...] = ()

    @property
    def opening(self) -> frozenset[int]:
        return self.also_open | {self.open_id}

    def initial(self) -> QuoteState:
        """Return the state before an answer's first token; a document without any sentence constrains nothing."""
        must_open = self.must_open and len(self.starts.tokens) > 0 and not self.script
        return QuoteState(self, "start" if must_open else "outside")

    @property
    def starts(self) -> _Starts:
        return self.index.starts(self.unit)

    @property
    def ends(self) -> np.ndarray:
        return self.index.ends(self.unit)


@dataclass(frozen=True, eq=False)
class QuoteState:
    """Hold where an answer stands between its tokens. Never changes; ``advance`` gives the next one.

    phase: "start" (the opening mark must come), "outside", "opened" (the mark stands, no token yet), "inside",
    "closed" (only after a quotation, where the rules name end_ids). positions: while inside, the places in
    ``index.content`` where the next token may stand, ascending by start. length: tokens of the open quotation; written:
    of the whole answer."""

    rules: QuoteConstraint
    phase: Literal["start", "outside", "opened", "inside", "closed"] = "outside"
    positions: np.ndarray = field(default_factory=lambda: np.empty(0, np.int32))
    length: int = 0
    last: tuple[tuple[int, int], ...] = ()
    written: int = 0

    def advance(self, token_id: int) -> QuoteState:
        """Return the state after one more token; one that was not allowed leaves the quotation."""
        rules, written = self.rules, self.written + 1
        if self.phase in ("start", "outside", "closed"):
            opens = token_id in rules.opening and len(rules.starts.tokens) > 0
            return QuoteState(rules, "opened" if opens else "outside", last=self.last, written=written)
        if self.phase == "inside" and token_id == rules.close_id:
            return QuoteState(rules, "closed" if rules.end_ids else "outside",
                              last=self._spans(self._closable), written=written)
        if self.phase == "opened":
            matching = rules.starts.of(token_id)
        else:
            matching = self.positions[rules.index.content[self.positions] == token_id]
        if not len(matching):
            return QuoteState(rules, last=self.last, written=written)
        return QuoteState(rules, "inside", matching + 1, self.length + 1, self.last, written)

    def allowed(self) -> np.ndarray | None:
        """Return the ids that may come next, ascending, never empty, shared: do not write; None: everything."""
        return self._allowed

    @cached_property
    def _allowed(self) -> np.ndarray | None:
        rules = self.rules
        if self.written < len(rules.script):
            return np.array([rules.script[self.written]], np.int64)
        if self.phase == "outside":
            return None
        if self.phase == "start":
            return np.array([rules.open_id], np.int64)
        if self.phase == "closed":
            return np.unique(np.array([rules.open_id, *rules.end_ids], np.int64))
        if self.phase == "opened":
            return rules.starts.tokens
        following = np.unique(rules.index.content[self.positions])
        following = following[following != GAP].astype(np.int64)
        return np.union1d(following, [rules.close_id]) if len(self._closable) else following

    @property
    def _closable(self) -> np.ndarray:
        """Return the positions before which the quotation may close."""
        closable: np.ndarray = self.positions[self.rules.ends[self.positions]]
        return closable

    def guided(self, limit: int, stop: Collection[int] = ()) -> list[int]:
        """Return the longest run of next tokens that each are the only one allowed; ``stop`` ends it."""
        run: list[int] = []
        state = self
        while len(run) < limit:
            if state.phase == "inside" and len(state.positions) == 1 and state.written >= len(state.rules.script):
                state = state._follow(run, limit, stop)
                if len(run) >= limit or (run and run[-1] in stop):
                    break
            choices = state._allowed
            if choices is None or len(choices) != 1:
                break
            run.append(int(choices[0]))
            if run[-1] in stop:
                break
            state = state.advance(run[-1])
        return run

    def _follow(self, run: list[int], limit: int, stop: Collection[int]) -> QuoteState:
        """Append what stands at the one place left, up to the first place where the quotation may close."""
        index, at = self.rules.index, int(self.positions[0])
        room = limit - len(run)
        ahead = index.content[at : at + room]
        shut = self.rules.ends[at : at + room]
        count = int(shut.argmax()) if shut.any() else len(ahead)
        taken = [int(token) for token in ahead[:count]]
        taken = taken[: next((number for number, token in enumerate(taken, start=1) if token in stop), count)]
        run += taken
        return QuoteState(self.rules, "inside", self.positions + len(taken), self.length + len(taken), self.last,
                          self.written + len(taken))

    def spans(self) -> tuple[tuple[int, int], ...]:
        """Return the context tokens [start, end) that the open quotation, or the one closed last, may stand for.

        In the document's order; markers inside a span are part of it."""
        return self._spans(self.positions) if self.phase == "inside" else self.last

    def _spans(self, positions: np.ndarray) -> tuple[tuple[int, int], ...]:
        places = self.rules.index.places
        return tuple((int(places[p - self.length]), int(places[p - 1]) + 1) for p in np.sort(positions))


class QuoteMasks(Masks):
    """Follow an answer's quotations along whatever tokens a tier asks about.

    Tiers ask about contexts that share all but a few last tokens, so states are kept along the last one asked."""

    def __init__(self, constraint: QuoteConstraint, answer_start: int, stop: frozenset[int]) -> None:
        """answer_start: context position of the answer's first token."""
        self._answer_start, self._stop = answer_start, stop
        self._tokens: list[int] = []
        self._states: list[QuoteState] = [constraint.initial()]  # _states[i]: after _tokens[:i]

    def allowed(self, context: Sequence[int], draft: Sequence[int]) -> list[np.ndarray | None]:
        return [state.allowed() for state in self._along(context, draft)]

    def guided(self, context: Sequence[int], limit: int) -> list[int]:
        return self._along(context, ())[-1].guided(limit, self._stop)

    def _along(self, context: Sequence[int], draft: Sequence[int]) -> list[QuoteState]:
        """Return the states after the context and after each drafted token."""
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
        return self._states[len(self._states) - len(draft) - 1 :]
