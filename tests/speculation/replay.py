"""Answers that were recorded once, drafted again with any lengths: what a controller gains, without a model or a clock.

traces/*.json: by workload and temperature, the answers of the built-in pair at 30,000 tokens (Moby Dick, Bleak House
too where it goes on or is asked; for code and table what the benchmark makes), token by token. forced: the document
left one choice. right: how likely the full cache accepts what the retrieval tier drafts there, with the true text
before it, once for each of ``AGO``: so many tokens after its chunks were chosen. below: how likely the retrieval tier
accepts the small model's token. At temperature 0 both are 0 or 1, above it the share of the two laws that is common to
both (the chance of rejection sampling). sure: how sure the retrieval tier was, for each row of right (see
``Draft.confidence``). Base64's letters are 0 to 63 of 63."""

from __future__ import annotations

import json
import random
from dataclasses import dataclass
from pathlib import Path

from triforce_core.speculation.draft_length import Controller, Costs, RoundSeen, Selection
from triforce_core.speculation.model_drafter import MAX_GUIDED

WORKLOADS = ("continue", "questions", "summary", "code", "table")
TEMPERATURES = (0.0, 0.6, 1.0)
AGO = (0, 2, 5, 10, 17, 27)
LIMIT = 128  # tokens of an answer, unless it ended itself
LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
# Two cores of a Zen 5 EPYC, bf16, 30,000 tokens, medians of nine.
# By gamma1, milliseconds of a step; each costs' own is the one that the engine takes.
STEPS = {0: 3.5, 1: 4.6, 2: 5.6, 3: 6.4, 4: 8.4, 6: 10.0}
STEPS_ON_A_GPU = {1: 2.95, 2: 3.08, 4: 3.32}
MEASURED = Costs(
    plain=27.2,
    verify=((1, 27.2), (2, 30.5), (3, 34.0), (5, 38.5), (7, 45.0), (9, 48.5), (11, 52.8), (15, 61.0), (21, 73.0),
                  (29, 86.0), (33, 92.0), (41, 110.0), (61, 131.0)),
    step=5.6, choose=4.7)
# An H200, bf16, 124,000 tokens, the pair grown to llama3-8b.
ON_A_GPU = Costs(plain=8.2, verify=((3, 8.6), (18, 10.0), (33, 10.6)), step=3.32, choose=3.0)


@dataclass(frozen=True, slots=True)
class Trace:
    """One answer. See the module for the fields."""

    guided: list[bool]
    right: list[list[float]]
    below: list[float]
    sure: list[list[float]]

    @classmethod
    def of(cls, workload: str, temperature: float) -> list[Trace]:
        found = json.loads((Path(__file__).parent / "traces" / f"{workload}.json").read_text())[f"{temperature:.1f}"]
        return [cls([letter == "1" for letter in each["forced"]], [_shares(row) for row in each["right"]],
                    _shares(each["below"]), [_shares(row) for row in each["sure"]]) for each in found]

    def __len__(self) -> int:
        return len(self.guided)

    @property
    def ends_itself(self) -> bool:
        return len(self) < LIMIT

    def odds(self, began: int, place: int) -> float:
        """Return the odds that a token at ``place`` is right, drafted in a round that began at ``began``."""
        return self.right[_row(began, place)][place % len(self)]

    def confidence(self, began: int, place: int) -> float:
        """Return how sure the tier was of such a token."""
        return self.sure[_row(began, place)][place % len(self)]

    def run(self, place: int) -> int:
        """Tokens from there on that the document forces."""
        count = 0
        while count < MAX_GUIDED and self.guided[(place + count) % len(self)]:
            count += 1
        return count


class Replay:
    """One answer, written by rounds of any lengths."""

    def __init__(self, trace: Trace, seed: int, costs: Costs = MEASURED, gamma1: int = 2) -> None:
        """costs: with the step of such a chain."""
        self._trace, self._costs, self._gamma1 = trace, costs, gamma1
        self._chance, self._at = random.Random(seed), 0

    def spend(self, lengths: Selection | Controller) -> float:
        """Milliseconds of the whole answer."""
        spent = 0.0
        while self._at < len(self._trace):
            choice = lengths if isinstance(lengths, Selection) else lengths.next()
            seen = self._round(choice)
            spent += seen.milliseconds
            if isinstance(lengths, Controller):
                lengths.learn(seen)
        return spent

    def _round(self, choice: Selection) -> RoundSeen:
        trace, costs, left = self._trace, self._costs, len(self._trace) - self._at
        wanted = choice.gamma2 if trace.ends_itself else min(choice.gamma2, left - 1)
        guided, right, sure, steps = self._draft(choice, wanted, left)
        if choice.most is not None:
            del guided[choice.most :], right[choice.most :]
        accepted = right.index(False) if False in right else len(right)
        self._at += min(accepted + 1, left)
        spent = steps * costs.step + costs.verifying(len(guided) + 1) + costs.choose if wanted else costs.plain
        return RoundSeen(choice, guided, min(accepted + 1, len(guided)), accepted, steps, spent, sure)

    def _draft(self, choice: Selection, wanted: int, left: int) -> tuple[list[bool], list[bool], list[float], int]:
        """Return whether each drafted token was forced and is right, how sure its tier was of the others, and the
        middle tier's passes."""
        trace, place = self._trace, self._at
        guided: list[bool] = []
        right: list[bool] = []
        sure: list[float] = []
        steps = 0
        while len(guided) < wanted and not (trace.ends_itself and len(guided) >= left and all(right[:left])):
            if steps and choice.keep_going is not None and not choice.keep_going(sure, len(guided), steps, 0):
                break
            run = trace.run(place)
            count = run or 1
            if not run:
                steps += 1
                while count <= self._gamma1 and not trace.guided[(place + count - 1) % len(trace)]:
                    if not self._happens(trace.below[(place + count - 1) % len(trace)]):
                        break
                    count += 1
            guided += [bool(run)] * count
            sure += [] if run else [trace.confidence(self._at, place + i) for i in range(count)]
            right += [bool(run) or self._happens(trace.odds(self._at, place + i)) for i in range(count)]
            place += count
        if trace.ends_itself and all(right[:left]):
            del guided[left:], right[left:]
        return guided, right, sure, steps

    def _happens(self, odds: float) -> bool:
        return self._chance.random() < odds


def _row(began: int, place: int) -> int:
    return min(range(len(AGO)), key=lambda number: abs(AGO[number] - (place - began)))


def _shares(letters: str) -> list[float]:
    return [LETTERS.index(letter) / 63 for letter in letters]
