"""The sampler of one answer, on the host, and its chance. Letters: m rows, V vocabulary."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from ..config import SamplingParams
from .on_device import FasterSampling, SamplingKind
from .penalties import Penalties


class Chance(Protocol):
    """Name where randomness comes from. Tests replace it by one that walks every branch."""

    def happens(self, probability: float) -> bool: ...

    def pick(self, weights: Tensor) -> int:
        """Return an index drawn in proportion to the non-negative weights [V]."""
        ...

    def numbers(self, count: int) -> Tensor:
        """Return float64 [count] in [0, 1) for decisions on a device: see ``DrawnChance``."""
        ...


class SeededChance:
    """Draw from a generator of its own: nothing else in the process moves it."""

    def __init__(self, seed: int) -> None:
        self._generator = np.random.Generator(np.random.Philox(seed))

    def happens(self, probability: float) -> bool:
        return self._generator.random() < probability

    def pick(self, weights: Tensor) -> int:
        # float64: a 150k-entry float32 running sum would lose the tail that sampling is about.
        cumulative = weights.double().cumsum(-1)
        point = self._generator.random() * cumulative[-1]
        index = int(torch.searchsorted(cumulative, point.reshape(1), right=True))
        return min(index, int(weights.nonzero()[-1]))

    def numbers(self, count: int) -> Tensor:
        return torch.from_numpy(self._generator.random(count))


class SharedChance:
    """Give several processes one generator's outcomes: their probabilities may differ in the last bit."""

    def __init__(self, chance: Chance, same: Callable[[list[int]], list[int]]) -> None:
        """same: gives every process the first one's numbers."""
        self._chance, self._same = chance, same

    def happens(self, probability: float) -> bool:
        return bool(self._same([self._chance.happens(probability)])[0])

    def pick(self, weights: Tensor) -> int:
        return self._same([self._chance.pick(weights)])[0]

    def numbers(self, count: int) -> Tensor:
        return self._chance.numbers(count)


class Masks:
    """Say which tokens may follow, row by row; this one leaves every token."""

    def allowed(self, context: Sequence[int], draft: Sequence[int]) -> list[np.ndarray | None]:
        """Return the allowed token ids after ``context`` and after each drafted token; None: all."""
        return [None] * (len(draft) + 1)

    def guided(self, context: Sequence[int], limit: int) -> list[int]:
        """Return the tokens after ``context`` that are each the only allowed one, at most ``limit``."""
        return []


def chances(logits: Tensor, token_ids: Sequence[int], count: int) -> list[tuple[float, list[tuple[int, float]]]]:
    """Return each row's probability of its token and its ``count`` likeliest (token, probability), of logits [m, V].

    At temperature 1 and without masks. The host waits once."""
    rows = logits.float()
    rows = rows - rows.logsumexp(-1, keepdim=True)
    own = rows.gather(1, torch.tensor(token_ids, device=rows.device)[:, None])
    best = rows.topk(min(count, rows.shape[-1]), dim=-1)
    # float64 holds every token id.
    read = torch.cat((torch.cat((own, best.values), 1).exp().double(), best.indices.double()), 1).tolist()
    n = best.values.shape[-1]
    return [(row[0], [(int(token), p) for p, token in zip(row[1 : n + 1], row[n + 1 :], strict=True)]) for row in read]


def _greatest(scores: Tensor) -> list[int]:
    """Return the greatest of each row [m, V]; on the host by numpy, in a seventh of the time that torch takes."""
    found: list[int] = (scores.argmax(-1) if scores.is_cuda else scores.numpy().argmax(-1)).tolist()
    return found


def _only(logits: Tensor, allowed: Sequence[np.ndarray | None]) -> Tensor:
    """Return logits [m, V] with -inf for all but each row's allowed ids.

    Rows without stay. All rows at once: row by row, a GPU would wait for the host again and again."""
    held = [(row, ids) for row, ids in enumerate(allowed) if ids is not None]
    places = np.concatenate([row * logits.shape[-1] + np.asarray(ids, dtype=np.int64) for row, ids in held])
    index = torch.from_numpy(places).to(logits.device)
    kept = logits.reshape(-1)[index]
    rows = torch.tensor([row for row, _ in held], device=logits.device)
    masked = logits.index_fill(0, rows, -torch.inf).contiguous()
    masked.view(-1)[index] = kept
    return masked


def _outside(scores: Tensor, top_p: float) -> Tensor:
    """Return bool [m, V]: what top-p leaves out. A token stays if the mass before it is below top_p.

    On the host the likeliest ``_LIKELY`` are tried first, which takes a sixth of the time of sorting all. Each row goes
    its own way, whatever company it has."""
    if scores.is_cuda or scores.shape[-1] <= 2 * _LIKELY:
        return _outside_of_sorted(scores, top_p)
    likely, order = scores.softmax(-1).topk(_LIKELY)
    before = likely.cumsum(-1) - likely
    outside = torch.ones_like(scores, dtype=torch.bool).scatter_(-1, order, before >= top_p)
    wide = torch.nonzero(before[:, -1] < top_p).flatten()  # these may need more tokens than that
    if len(wide):
        outside[wide] = _outside_of_sorted(scores[wide], top_p)
    return outside


def _outside_of_sorted(scores: Tensor, top_p: float) -> Tensor:
    ordered, order = scores.sort(dim=-1, descending=True)
    mass = ordered.softmax(-1)
    drop = mass.cumsum(-1) - mass >= top_p
    return drop.scatter(-1, order, drop)


_LIKELY = 1024  # tokens
_ROWS = 64  # sorted at once: of a large vocabulary, what sorting takes for a tree's rows would be gigabytes


class Sampler:
    """Choose the tokens of one answer; shared by every tier, so that all speak of the same distributions."""

    def __init__(self, params: SamplingParams, *, verifier: str = "rejection", masks: Masks | None = None,
                 chance: Chance | None = None, stop: frozenset[int] = frozenset(), answer_start: int = 0,
                 same: Callable[[list[int]], list[int]] | None = None, faster: FasterSampling | None = None) -> None:
        """stop: tokens that end the answer. answer_start: see ``Penalties``. faster: kernels of the device that logits
        lie on. same: where several processes take every step together, gives them the first one's numbers: a running
        sum over probabilities has no fixed order on a GPU. Greedy choices need it not."""
        self.params, self.stop = params, stop
        self.masks = masks
        self._penalties = Penalties(params, answer_start) if params.reweighs else None
        self.coupled = params.temperature == 0 or verifier == "coupled"
        self.chance: Chance = chance or SeededChance(params.seed)
        self.same: Callable[[list[int]], list[int]] = same or (lambda numbers: numbers)
        if same is not None:
            self.chance = SharedChance(self.chance, same)
        self.faster, self._parameters = faster, torch.empty(0)
        self._noise: OrderedDict[int, Tensor] = OrderedDict()

    @property
    def host_leads(self) -> bool:
        """Return whether a row's rules are not those of ``DeviceSampling`` alone: they follow from tokens before it."""
        return self.masks is not None or self._penalties is not None

    @property
    def kind(self) -> SamplingKind:
        greedy = self.params.temperature == 0
        return SamplingKind(self.coupled, greedy, not greedy and (self.params.top_k > 0 or self.params.top_p < 1))

    def parameters(self, vocabulary: int) -> list[float]:
        """Return temperature, top-k and top-p for ``DeviceSampling``; what is off leaves no token out."""
        top_k = self.params.top_k if 0 < self.params.top_k < vocabulary else vocabulary
        # A sum of rounded probabilities may pass 1 before the last token.
        return [self.params.temperature, top_k, self.params.top_p if self.params.top_p < 1 else 2.0]

    def noise(self, first: int, count: int, vocabulary: int) -> Tensor:
        """Return fp32 [count, V]: the Gumbel noise of positions from ``first``, on the host."""
        return torch.stack([self._gumbel(first + i, vocabulary) for i in range(count)])

    def guided(self, context: Sequence[int], limit: int) -> list[int]:
        return self.masks.guided(context, limit) if self.masks else []

    def num_allowed(self, context: Sequence[int], draft: Sequence[int]) -> int:
        """Return how many of the draft's first tokens may follow ``context``."""
        if self.masks is None or not draft:
            return len(draft)
        rows = self.masks.allowed(context, draft)[:-1]
        refused = (i for i, (token, ids) in enumerate(zip(draft, rows, strict=True))
                   if ids is not None and token not in ids)
        return next(refused, len(draft))

    def draws(self, logits: Tensor, context: Sequence[int], draft: Sequence[int] = ()) -> list[int]:
        """Return each row's token, of logits [m, V]; row i follows ``context`` and the first i of ``draft``."""
        drawn = _greatest(self.scores(logits, context, draft))
        return drawn if self.params.temperature == 0 else self.same(drawn)

    def distributions(self, logits: Tensor, context: Sequence[int], draft: Sequence[int] = ()) -> Tensor:
        """Return the probabilities [m, V] of each row (see ``draws``). Needs temperature > 0."""
        assert self.params.temperature > 0
        masked = self._masked(logits, context, draft)
        if self.faster is None or self.faster.probs is None:
            return self._filtered(masked).softmax(-1)
        if not len(self._parameters):
            self._parameters = torch.tensor(self.parameters(logits.shape[-1]), dtype=torch.float64).to(logits.device)
        return self.faster.probs(masked, self._parameters)

    def scores(self, logits: Tensor, context: Sequence[int], draft: Sequence[int] = ()) -> Tensor:
        """Return [m, V], the greatest of which is each row's draw; -inf where nothing may be drawn."""
        logits = self._masked(logits, context, draft)
        if self.params.temperature == 0:
            return logits
        scores = self._filtered(logits)
        return scores + self.noise(len(context), len(logits), logits.shape[-1]).to(scores.device)

    def _masked(self, logits: Tensor, context: Sequence[int], draft: Sequence[int]) -> Tensor:
        if self._penalties is not None:
            logits = self._penalties.applied(logits, context, draft)
        if self.masks is None:
            return logits
        allowed = self.masks.allowed(context, draft)
        assert len(allowed) == len(logits)
        if all(ids is None for ids in allowed):
            return logits
        return _only(logits, allowed)

    def _filtered(self, logits: Tensor) -> Tensor:
        """Apply temperature, then top-k, then top-p (as transformers' generate); removed tokens are -inf."""
        if len(logits) > _ROWS:
            return torch.cat([self._filtered(part) for part in logits.split(_ROWS)])
        scores = logits.float() if logits.dtype in (torch.float16, torch.bfloat16) else logits
        scores = scores / self.params.temperature
        if 0 < self.params.top_k < scores.shape[-1]:
            floor = scores.topk(self.params.top_k, dim=-1).values[..., -1:]
            scores = scores.masked_fill(scores < floor, -torch.inf)
        return scores if self.params.top_p >= 1 else scores.masked_fill(_outside(scores, self.params.top_p), -torch.inf)

    def _gumbel(self, position: int, vocabulary: int) -> Tensor:
        """Return noise [V] that seed and position decide; kept a while, as every tier asks for it."""
        if position not in self._noise:
            key = np.random.SeedSequence((self.params.seed, position)).generate_state(2, np.uint64)
            uniform = np.random.Generator(np.random.Philox(key=key)).random(vocabulary)
            self._noise[position] = torch.from_numpy(-np.log(-np.log(np.clip(uniform, 1e-300, None)))).float()
            if len(self._noise) > 512:
                self._noise.popitem(last=False)
        return self._noise[position]
