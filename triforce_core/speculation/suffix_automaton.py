"""Every substring of a growing text, and where it first stood (Blumer et al., 1985; online as in Crochemore, 1986).

A state stands for substrings that occur at the same places; its link leads to the longest suffix of theirs that occurs
elsewhere too. Extending by a token costs O(1) amortised, and so does following a text along: no search, ever.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


class Match(NamedTuple):
    """The longest suffix of what was read that stands in the text. end: behind its earliest occurrence."""

    state: int
    length: int
    end: int


class _Undo(NamedTuple):
    """What one token changed of older states. moved: (state, where its step led); relinked: likewise of a link."""

    num_states: int
    last: int
    moved: list[tuple[int, int | None]]
    relinked: tuple[int, int] | None


class SuffixAutomaton:
    """Of ``text``. What stands there from the start is kept for good; what is added later may be taken back."""

    def __init__(self, token_ids: Sequence[int] = ()) -> None:
        self.text: list[int] = []
        self._next: list[dict[int, int]] = [{}]
        self._link = [-1]
        self._longest = [0]
        self._end = [0]
        self._last = 0
        self._undo: list[_Undo] = []  # of the newest tokens; the first len(text) - len(_undo) stay
        for token in token_ids:
            self._add(token)

    def extend(self, token_ids: Sequence[int]) -> None:
        for token in token_ids:
            num_states, last = len(self._next), self._last
            moved: list[tuple[int, int | None]] = []
            relinked = self._add(token, moved)
            self._undo.append(_Undo(num_states, last, moved, relinked))

    def truncate(self, length: int) -> None:
        """Take back tokens from ``length`` on, but none of those from the start."""
        while len(self.text) > length and self._undo:
            token, undo = self.text.pop(), self._undo.pop()
            if undo.relinked is not None:
                state, link = undo.relinked
                self._link[state] = link
            for state, led in reversed(undo.moved):
                if led is None:
                    del self._next[state][token]
                else:
                    self._next[state][token] = led
            for states in (self._next, self._link, self._longest, self._end):
                del states[undo.num_states :]  # type: ignore[attr-defined]
            self._last = undo.last

    @property
    def match(self) -> Match:
        """The longest suffix of the text that also occurs earlier in it."""
        state = max(0, self._link[self._last])
        return Match(state, self._longest[state], self._end[state])

    def advance(self, match: Match, token: int) -> Match:
        """After one more token of what is read; the text does not grow. Valid until it does."""
        state, length = match.state, match.length
        while state > 0 and token not in self._next[state]:
            state = self._link[state]
            length = self._longest[state]
        state = self._next[state].get(token, -1)
        return Match(state, length + 1, self._end[state]) if state > 0 else Match(0, 0, 0)

    def _add(self, token: int, moved: list[tuple[int, int | None]] | None = None) -> tuple[int, int] | None:
        """One token. moved: filled in as ``_Undo`` wants it; -> its ``relinked``."""
        following, links = self._next, self._link
        self.text.append(token)
        new, state = len(following), self._last
        self._append({}, 0, self._longest[state] + 1, len(self.text))
        self._last = new
        while state >= 0 and token not in following[state]:
            following[state][token] = new
            if moved is not None:
                moved.append((state, None))
            state = links[state]
        if state < 0:
            return None
        known = following[state][token]
        if self._longest[state] + 1 == self._longest[known]:
            links[new] = known
            return None
        # The shorter substrings of that state now occur here as well, the longer do not: they part.
        parted = len(following)
        self._append(dict(following[known]), links[known], self._longest[state] + 1, self._end[known])
        while state >= 0 and following[state].get(token) == known:
            following[state][token] = parted
            if moved is not None:
                moved.append((state, known))
            state = links[state]
        relinked = known, links[known]
        links[known] = links[new] = parted
        return relinked

    def _append(self, following: dict[int, int], link: int, longest: int, end: int) -> None:
        self._next.append(following)
        self._link.append(link)
        self._longest.append(longest)
        self._end.append(end)
