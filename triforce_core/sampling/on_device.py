"""The sampler's rules as data on a device that must not wait for the host. Letters: m rows, V vocabulary."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor


class TensorChance(Protocol):
    """Name a ``Chance`` whose decisions stay where the odds are."""

    def happens(self, probabilities: Tensor) -> Tensor:
        """Return bool [n] of n independent events with these odds [n]."""
        ...

    def pick(self, weights: Tensor) -> Tensor:
        """Return int64 [1], an index drawn in proportion to the non-negative weights [V].

        [m] of weights [m, V], any index where a row has no weight."""
        ...


class FasterSampling(Protocol):
    """Name what ``kernels.Kernels`` has of sampling for a device; None: as it is written here."""

    @property
    def probs(self) -> Callable[[Tensor, Tensor], Tensor] | None: ...

    @property
    def pick(self) -> Callable[[Tensor, Tensor], Tensor] | None: ...

    @property
    def reject(self) -> Callable[[Tensor, Tensor, Tensor, Tensor], Tensor] | None: ...


class DrawnChance:
    """Spend numbers that were drawn beforehand, float64 [n] in [0, 1): one per decision, in order."""

    def __init__(self, numbers: Tensor, faster: FasterSampling | None = None) -> None:
        self._numbers, self._spent = numbers, 0
        self._pick, self._reject = (faster.pick, faster.reject) if faster else (None, None)

    def happens(self, probabilities: Tensor) -> Tensor:
        return self._spend(probabilities.shape[0]) < probabilities

    def pick(self, weights: Tensor) -> Tensor:
        numbers = self._spend(weights.numel() // weights.shape[-1])
        if self._pick is not None:
            return self._pick(weights, numbers)
        cumulative = weights.double().cumsum(-1)
        total = cumulative[..., -1:]
        # Rounding may lift the point to the total itself, behind the last token that has any weight.
        point = torch.minimum(numbers.view_as(total) * total,
                              torch.nextafter(total, torch.zeros_like(total)))
        return torch.searchsorted(cumulative, point, right=True).clamp_max(weights.shape[-1] - 1).view(-1)

    def reject(self, drafted: Tensor, probs: Tensor, target: Tensor) -> Tensor | None:
        """Return what ``speculation.verifier.reject_on_tensors`` does; None where there is no faster way."""
        if self._reject is None:
            return None
        return self._reject(drafted, probs, target, self._spend(len(target)))

    def _spend(self, count: int) -> Tensor:
        self._spent += count
        assert self._spent <= self._numbers.shape[0]
        return self._numbers[self._spent - count : self._spent]


@dataclass(frozen=True, slots=True)
class SamplingKind:
    """Hold what of a sampler's rules decides which operations run, and so belongs to a captured graph."""

    coupled: bool
    greedy: bool
    filtered: bool  # top-k or top-p leaves tokens out


class DeviceSampling:
    """Do what a ``Sampler`` without masks does, by parameters float64 [3]: see ``Sampler.parameters``."""

    def __init__(self, kind: SamplingKind, parameters: Tensor, faster: FasterSampling | None = None) -> None:
        self.kind, self._parameters = kind, parameters
        self._probs = faster.probs if faster else None

    def draws(self, logits: Tensor, noise: Tensor) -> Tensor:
        """Return int64 [m] of logits [m, V]; noise [m, V] of the rows' positions, unread if greedy."""
        return self.scores(logits, noise).argmax(-1)

    def distributions(self, logits: Tensor) -> Tensor:
        return self._filtered(logits).softmax(-1) if self._probs is None else self._probs(logits, self._parameters)

    def scores(self, logits: Tensor, noise: Tensor) -> Tensor:
        return logits if self.kind.greedy else self._filtered(logits) + noise

    def _filtered(self, logits: Tensor) -> Tensor:
        temperature, top_k, top_p = self._parameters.unbind()
        scores = logits / temperature.to(logits.dtype)
        if not self.kind.filtered:
            return scores
        ordered, order = scores.sort(dim=-1, descending=True)
        weak = ordered < ordered.gather(-1, (top_k.long() - 1).expand(len(ordered), 1))
        mass = ordered.masked_fill(weak, -torch.inf).softmax(-1)
        drop = weak | (mass.cumsum(-1) - mass >= top_p)
        return scores.masked_fill(drop.scatter(-1, order, drop), -torch.inf)


def confidence(logits: Tensor) -> Tensor:
    """Return fp32 [m], the greatest probability of each row of logits [m, V] at temperature 1, unmasked."""
    rows = logits.float()
    return (rows.amax(-1) - rows.logsumexp(-1)).exp()
