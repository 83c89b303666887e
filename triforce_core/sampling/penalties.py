"""What an answer's own tokens, and a request, add to logits before they become a distribution. Letters: m rows, V
vocabulary."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from math import log

import torch
from torch import Tensor

from ..config import SamplingParams


class Penalties:
    """Weigh logits by how often the answer has each token, by a request's biases, and drop what is too unlikely.

    Each row counts what stands before it, a draft's tokens too: so it is plain decoding's row, whichever tier asks."""

    def __init__(self, params: SamplingParams, answer_start: int) -> None:
        """answer_start: context position of the answer's first token. Only its tokens count: a document's words are
        there to be said again."""
        self._params, self._start = params, answer_start

    def applied(self, logits: Tensor, context: Sequence[int], draft: Sequence[int]) -> Tensor:
        """Return other logits [m, V], in float32 at least; row i follows ``context`` and the first i of ``draft``."""
        params = self._params
        kind = torch.promote_types(logits.dtype, torch.float32)
        logits = logits.to(kind, copy=True, memory_format=torch.contiguous_format)
        if params.repeat_penalty != 1 or params.frequency_penalty or params.presence_penalty:
            self._repeated(logits, context, draft)
        if params.logit_bias:
            tokens, biases = zip(*params.logit_bias, strict=True)
            logits[:, list(tokens)] += torch.tensor(biases, dtype=logits.dtype, device=logits.device)
        if params.min_p and params.temperature:
            floor = logits.amax(-1, keepdim=True) + params.temperature * log(params.min_p)
            logits = logits.masked_fill(logits < floor, -torch.inf)
        return logits

    def _repeated(self, logits: Tensor, context: Sequence[int], draft: Sequence[int]) -> None:
        """Lower what was said before, in place, all rows at once: row by row a GPU would wait for the host."""
        counts, places, times = Counter(context[self._start :]), list[int](), list[int]()
        for row in range(len(logits)):
            if row:
                counts[draft[row - 1]] += 1
            places += [row * logits.shape[-1] + token for token in counts]
            times += counts.values()
        index = torch.tensor(places, dtype=torch.int64, device=logits.device)
        number = torch.tensor(times, dtype=logits.dtype, device=logits.device)
        said, params = logits.view(-1)[index], self._params
        said = torch.where(said > 0, said / params.repeat_penalty, said * params.repeat_penalty)
        logits.view(-1)[index] = said - number * params.frequency_penalty - params.presence_penalty
