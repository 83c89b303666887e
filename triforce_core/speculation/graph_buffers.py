"""What the device loop's rounds read and write: numbers in fixed device memory, moved to and from the host whole.

Letters: g tokens drafted per round, V vocabulary, room: tokens that one draft may come to. Tokens are counted from the
context's last one: step 0 is that token, step i the i-th token that the loop has written (or will).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from ..device.streams import later
from ..sampling import Sampler, SamplingKind

# Of the newest tokens, how many the small model's first pass of a round reads. Two of them may not be in its cache yet:
# its own last guess if all were right, and the token that followed. One more after a whole accepted draft.
REREAD = 3
_COUNT, _ROUND, _TESTED, _ACCEPTED, _LAST, _TALLY = 0, 1, 2, 3, 4, 5
_STARTS = 4  # position and slot of step 0, of each of two tiers
_PARAMETERS = 3


@dataclass(frozen=True, slots=True)
class Tally:
    """Of one draft. last: drafted tokens that its last round kept."""

    rounds: int
    tested: int
    accepted: int
    last: int


@dataclass(frozen=True, slots=True)
class Written:
    """Since ``GraphBuffers.write``. kept: of each token whether it was drafted and let stand; sure: the checking
    tier's confidence in it."""

    tally: Tally
    token_ids: list[int]
    kept: list[bool]
    sure: list[float]

    @classmethod
    def nothing(cls) -> Written:
        return cls(Tally(0, 0, 0, 0), [], [], [])


# large: each is a tensor in fixed memory that captured rounds read or write
class GraphBuffers:
    """Plain tensors: every method but ``write`` and ``read`` may be captured."""

    def __init__(self, room: int, gamma: int, vocabulary: int, device: torch.device) -> None:
        self._room, self._gamma, self._vocabulary, self._device = room, gamma, vocabulary, device
        with torch.inference_mode(False):
            self._book = torch.zeros(_TALLY + _STARTS + REREAD + 3 * room, dtype=torch.int64, device=device)
            self._odds = torch.zeros(_PARAMETERS + room * (2 * gamma + 1), dtype=torch.float64, device=device)
            self._ramp = torch.arange(-REREAD, gamma + 2, device=device)
            self.drafted = torch.zeros(gamma, dtype=torch.int64, device=device)
            self.draft_probs = torch.zeros(gamma, vocabulary, device=device)
            self.probs = torch.zeros(room, vocabulary, device=device)  # of written tokens
            self._noise: Tensor | None = None
        self._written: list[tuple[Tensor, Tensor]] = []
        self._tally, rest = self._book[:_TALLY], self._book[_TALLY:]
        self.starts = rest[:_STARTS].view(-1, 2)
        self._tokens, self._kept, sure = rest[_STARTS:].split((REREAD + room, room, room))
        self._sure = sure.view(torch.float64)
        self.parameters, self._numbers = self._odds[:_PARAMETERS], self._odds[_PARAMETERS:].view(room, 2 * gamma + 1)

    def holds(self, room: int) -> bool:
        return room <= self._room

    def write(self, context: Sequence[int], starts: Sequence[tuple[int, int]], sampler: Sampler, room: int) -> None:
        """Begin a draft of up to ``room`` tokens after ``context``. The host does not wait."""
        places = [number for start in (starts[0], starts[-1]) for number in start]
        book = torch.tensor([*[0] * _TALLY, *places, *context[-REREAD:]])
        odds = torch.tensor(sampler.parameters(self._vocabulary), dtype=torch.float64)
        if not sampler.coupled:
            # A round writes a token at least, so there are no more rounds than tokens.
            odds = torch.cat((odds, sampler.chance.numbers(room * (2 * self._gamma + 1))))
        self._written = [(book, self._book), (odds, self._odds)]
        if sampler.coupled and not sampler.kind.greedy:
            if self._noise is None:
                with torch.inference_mode(False):
                    self._noise = torch.zeros(self._room, self._vocabulary, device=self._device)
            self._written.append((sampler.noise(len(context), room, self._vocabulary), self._noise))
        self.rewrite()

    def rewrite(self) -> None:
        """Begin the same draft again."""
        for values, to in self._written:
            # From pinned memory: other copies wait for all that the device has to do.
            to[: len(values)].copy_(values.pin_memory() if to.is_cuda else values, non_blocking=True)

    def read(self) -> Written:
        """Waits for all that the device has to do."""
        return self.look()()

    def look(self) -> Callable[[], Written]:
        """What is written once the device has done what it was given so far; only that is waited for."""
        book = later(self._book)
        return lambda: _written(book())

    def ramp(self, n: int) -> Tensor:
        """0 ... n - 1, for n up to g + 2."""
        return self._ramp[REREAD : REREAD + n]

    def steps(self, start: int, stop: int) -> Tensor:
        """Steps of tokens [start, stop) counted from the newest."""
        return self._tally[:1] + self._ramp[REREAD + start : REREAD + stop]

    def newest(self, n: int) -> Tensor:
        """The last n tokens."""
        return self._tokens.index_select(0, self.steps(1 - n, 1) + (REREAD - 1))

    @property
    def count(self) -> Tensor:
        """[1]: tokens written; the next round moves it."""
        return self._tally[:1]

    @property
    def round(self) -> Tensor:
        """[1]: rounds done."""
        return self._tally[_ROUND : _ROUND + 1]

    def noise_of(self, steps: Tensor, kind: SamplingKind) -> Tensor:
        """[m, V] for drawing what follows each of steps [m]; greedy reads none."""
        if kind.greedy:
            return self.probs[:0]
        assert self._noise is not None
        return self._noise.index_select(0, steps)

    def numbers_of_round(self) -> Tensor:
        """[2g + 1]: to draw g tokens, to test them, and to draw the one that follows."""
        return self._numbers.index_select(0, self._tally[_ROUND : _ROUND + 1])[0]

    def emit(self, tokens: Tensor, accepted: Tensor, probs: Tensor | None, *, alone: bool = False,
             tested: Tensor | None = None, sure: Tensor | None = None) -> None:
        """End a round: of tokens [m] the first accepted [1] were drafted and kept, the next is the checking tier's;
        what lies behind is noise and will be written over. alone: nobody checked, all are drafted. tested [1]: tokens
        for which something was drafted, if that was not a chain of g. sure [m]: see ``read``."""
        m = tokens.shape[0]
        steps = self.steps(0, m)
        self._tokens.index_copy_(0, steps + REREAD, tokens)
        self._kept.index_copy_(0, steps, (self.ramp(m) < accepted).long())
        if sure is not None:
            self._sure.index_copy_(0, steps, sure.double())
        if probs is not None:
            self.probs.index_copy_(0, steps, probs)
        if alone:
            self._tally[: _ROUND + 1].add_(1)
            return
        one = torch.ones_like(accepted)
        tested = (accepted + 1).clamp_max(self._gamma) if tested is None else tested
        self._tally[:_LAST].add_(torch.cat((accepted + 1, one, tested, accepted)))
        self._tally[_LAST:].copy_(accepted)


def _written(book: Tensor) -> Written:
    tally, (tokens, kept, sure) = book[:_TALLY].tolist(), book[_TALLY + _STARTS + REREAD :].view(3, -1)
    count = tally[_COUNT]
    return Written(Tally(tally[_ROUND], tally[_TESTED], tally[_ACCEPTED], tally[_LAST]), tokens[:count].tolist(),
                   kept[:count].bool().tolist(), sure.view(torch.float64)[:count].tolist())
