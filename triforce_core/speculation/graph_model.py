"""A model on its cache, led by numbers on the device: where a drafter that runs without the host sits."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from ..model.graphs import DeviceSlots
from ..sampling import DeviceSampling, DrawnChance, SamplingKind, confidence
from .model_drafter import ModelOnCache


class GraphModel:
    """One tier's model on its cache, led by numbers on the device."""

    def __init__(self, on: ModelOnCache, reread: int) -> None:
        """reread: tokens up to the newest that a draft's first pass stages (again)."""
        self.on, self.cache, self._reread = on, on.cache, reread
        self.model = on.model
        self._faster = self.model.faster_sampling

    @property
    def addresses(self) -> tuple[int, ...]:
        return self.cache.addresses

    def begin(self, context: Sequence[int], n: int) -> tuple[int, int]:
        """Make ready for n tokens behind ``context``; -> position and slot of its last token."""
        pending = context[self.on.length :]
        if len(pending) > self._reread:
            self.on.feed(pending[:-1], 0)
            pending = pending[-1:]
        self.cache.begin(len(pending) + n)  # buffers that must grow do it now
        ahead = len(pending) - 1
        self.model.rope.reserve(self.cache.length + ahead + n)
        return self.cache.length + ahead, self.cache.next_slot + ahead

    def token_probs(self, kind: SamplingKind, parameters: Tensor) -> DeviceSampling:
        return DeviceSampling(kind, parameters, self._faster)

    def chance(self, numbers: Tensor) -> DrawnChance:
        return DrawnChance(numbers, self._faster)

    def confidence(self, logits: Tensor) -> Tensor:
        """See sampling.confidence."""
        return (self.model.kernels.confidence or confidence)(logits)

    def logits(self, token_ids: Tensor, start: Tensor, steps: Tensor, rows: int) -> Tensor:
        """[rows, V] after the last of token_ids [n]; steps [n]: how far behind the context's last token each is;
        start [2]: that token's position and slot."""
        slots = start[1:] + steps
        place = DeviceSlots(self.cache, slots, (slots[-1:] + 1).int())
        return self.model.forward_on_device(token_ids, start[:1] + steps, place, rows)
