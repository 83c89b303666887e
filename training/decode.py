"""Greedy answers with a cache, many questions after one document, free or held to verbatim quotations."""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from training.model import Llama
from training.text import Encoder
from triforce_core.evidence.bm25 import BM25, telling

Cache = list[tuple[Tensor, Tensor]]


class Verbatim:
    """What may stand inside a quotation: sentences of the document, whole and in their order.

    A quotation starts where a sentence starts, goes on as the document does, and may close where a sentence ends; there
    it may also go on into the next sentence of the same line. Where several sentences are possible, `prior` times
    their BM25 is added.
    """

    def __init__(self, ids: Sequence[int], sentences: np.ndarray, encoder: Encoder) -> None:
        self.ids = np.append(np.asarray(ids, np.int64), encoder.newline)
        self.starts, self.prior = sentences[:, 0], 0.0
        texts = [encoder.decode(list(ids[first:end])) for first, end in sentences.tolist()]
        self._index = BM25([telling(text) for text in texts])
        self.ends = np.zeros(len(self.ids) + 1, bool)
        self.ends[sentences[:, 1]] = True
        self.open, self.close = encoder.open_quote, encoder.close_quote
        self.stops = np.array([encoder.newline, encoder.end_doc, encoder.doc, encoder.page])
        self._scores: dict[str, np.ndarray] = {}  # by question; the copies of ``with_prior`` know them too

    def with_prior(self, prior: float) -> Verbatim:
        """The same document with another weight of the prior."""
        other = copy(self)
        other.prior = prior
        return other

    def scores(self, question: str) -> np.ndarray:
        """BM25 of each sentence."""
        if question not in self._scores:
            self._scores[question] = self._index.scores(question)
        return self._scores[question]


class Quotation:
    """The state of one answer: outside a quotation, or at some places of the document."""

    def __init__(self, verbatim: Verbatim, question: str) -> None:
        self.verbatim = verbatim
        self.at: np.ndarray | None = None
        # Of the quotations that stand at `at`.
        self.weights = verbatim.prior * verbatim.scores(question)
        self.quoted = False

    def allowed(self) -> np.ndarray | None:
        """The tokens that may come next; None allows all."""
        if self.at is None:
            return None
        following = np.unique(self.verbatim.ids[self.at])
        following = following[~np.isin(following, self.verbatim.stops)]
        if self.verbatim.ends[self.at].any() and self.at is not self.verbatim.starts:
            following = np.append(following, self.verbatim.close)
        return following

    def preferred(self, allowed: np.ndarray) -> np.ndarray:
        """What to add to the scores of ``allowed``."""
        added = np.zeros(len(allowed))
        if self.at is None or self.quoted or len(allowed) < 2 or len(self.at) < 2:
            return added
        following = self.verbatim.ids[self.at]
        closing = self.verbatim.ends[self.at]
        for place, token in enumerate(allowed):
            same = closing if token == self.verbatim.close else following == token
            added[place] = np.logaddexp.reduce(self.weights[same]) - np.log(same.sum())
        return added

    def advance(self, token: int) -> None:
        """Takes the chosen token into account."""
        if token == self.verbatim.open:
            self.at = self.verbatim.starts
        elif self.at is not None and token == self.verbatim.close:
            self.at, self.quoted = None, True
        elif self.at is not None:
            same = self.verbatim.ids[self.at] == token
            self.at = self.at[same] + 1
            if not self.quoted:
                self.weights = self.weights[same]


def attend(q: Tensor, k: Tensor, v: Tensor, start: int) -> Tensor:
    """Causal attention of queries that stand at `start` and after, over keys from the beginning."""
    if start == 0:
        return F.scaled_dot_product_attention(q, k, v, is_causal=True)
    mask = torch.ones(q.shape[-2], k.shape[-2], dtype=torch.bool, device=q.device).tril(start)
    return F.scaled_dot_product_attention(q, k, v, attn_mask=mask)


@torch.no_grad()
def prefill(model: Llama, ids: Tensor, chunk: int = 1024) -> tuple[Cache, Tensor]:
    """Keys and values of a document [head, token, width], and the last layer's output of its tokens."""
    whole = len(ids) if ids.is_cuda else chunk
    caches: list[tuple[list[Tensor], list[Tensor]]] = [([], []) for _ in model.blocks()]
    outputs: list[Tensor] = []
    for start in range(0, len(ids), whole):
        part = ids[None, start : start + whole]
        cos, sin = model.angles(torch.arange(start, start + part.shape[1], device=ids.device))
        x = model.model.embed_tokens(part)
        for layer, (keys, values) in zip(model.blocks(), caches, strict=True):
            q, k, v = layer.self_attn.project(layer.input_layernorm(x), cos, sin)
            keys.append(k)
            values.append(v)
            if len(keys) > 1:
                keys[:], values[:] = [torch.cat(keys, 2)], [torch.cat(values, 2)]
            x = layer.after_attention(x, attend(q, keys[0], values[0], start))
        outputs.append(x[0])
    return [(keys[0][0], values[0][0]) for keys, values in caches], torch.cat(outputs)


# large: one answer, step by step
@torch.no_grad()
def answer(
    model: Llama, cache: Cache, prompts: Sequence[Sequence[int]], stops: Sequence[int],
    verbatim: Verbatim | None = None, questions: Sequence[str] = (), longest: int = 72,
) -> list[list[int]]:  # fmt: skip
    """Greedy answers to questions that each follow the document directly; `questions` in words, for a prior."""
    device = cache[0][0].device
    document, count, heads = cache[0][0].shape[1], len(prompts), model.shape.heads
    lengths = torch.tensor([len(prompt) for prompt in prompts], device=device)
    width = int(lengths.max())
    ids = torch.zeros(count, width, dtype=torch.long, device=device)
    for row, prompt in enumerate(prompts):
        ids[row, : len(prompt)] = torch.tensor(prompt, device=device)
    quotations = [Quotation(verbatim, question) for question in questions] if verbatim else []
    for quotation, prompt in zip(quotations, prompts, strict=False):
        quotation.advance(prompt[-1])
    own = [torch.zeros(2, count, heads, width + longest, model.shape.head, device=device) for _ in cache]
    slots = torch.arange(width + longest, device=device)
    answers: list[list[int]] = [[] for _ in prompts]
    live = [True] * count
    filled = 0
    for _ in range(longest):
        new = ids.shape[1]
        first = filled == 0
        positions = document + (slots[:new].expand(count, new) if first else (lengths + filled - width)[:, None])
        cos, sin = model.angles(positions)
        end = filled + new
        seen = slots[:end]
        real = (seen[None] < lengths[:, None]) | (seen[None] >= width)
        causal = seen[None] <= (filled + slots[:new])[:, None]
        mask = (real[:, None] & causal[None])[:, None]
        x = model.model.embed_tokens(ids)
        for layer, (keys, values), mine in zip(model.blocks(), cache, own, strict=True):
            q, k, v = layer.self_attn.project(layer.input_layernorm(x), cos, sin)
            mine[0][:, :, filled:end], mine[1][:, :, filled:end] = k, v
            flat = q.transpose(0, 1).reshape(heads, count * new, -1)
            far = (flat @ keys.mT).view(heads, count, new, document).transpose(0, 1)
            near = (q @ mine[0][:, :, :end].mT).masked_fill(~mask, float("-inf"))
            share = (torch.cat((far, near), -1) * model.shape.head**-0.5).softmax(-1)
            spread = share[..., :document].transpose(0, 1).reshape(heads, count * new, document) @ values
            mixed = spread.view(heads, count, new, -1).transpose(0, 1) + share[..., document:] @ mine[1][:, :, :end]
            x = layer.after_attention(x, mixed)
        last = x[torch.arange(count, device=device), lengths - 1] if first else x[:, -1]
        scores = model.logits(last).float().cpu().numpy()
        chosen: list[int] = []
        for row in range(count):
            allowed = quotations[row].allowed() if quotations and live[row] else None
            if allowed is None:
                best = int(scores[row].argmax())
            else:
                best = int(allowed[(scores[row][allowed] + quotations[row].preferred(allowed)).argmax()])
            if live[row] and quotations:
                quotations[row].advance(best)
            live[row] = live[row] and best not in stops
            if live[row]:
                answers[row].append(best)
            chosen.append(best)
        filled = end
        ids = torch.tensor(chosen, device=device)[:, None]
        if not any(live):
            break
    return answers
