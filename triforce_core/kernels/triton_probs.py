"""From logits to a distribution, and from distributions to a token or a verdict, in Triton: one launch each, without
sorting.

Where chance decides, every token that is tried needs a distribution, and every draft a verdict. In torch's own
operations each is some twenty launches, a sort among them. What top-k and top-p leave is all scores over one bar, so
the bar is what is searched for, by halving.

Measured on an H200, torch 2.11, top-p 0.9, a distribution and a token of it, 1 and 3 rows: of 8,192 tokens 22 us (torch
97 and 138), of 32,000 75 and 79 us (torch 122 and 232), of 128,256 325 and 360 us (torch 194 and 585): a row is one
program's, so a single wide one is left to torch.

Letters as in ``sampling``. A program takes one row, in pieces of BLOCK of the vocabulary.
"""

from __future__ import annotations

import torch
import triton  # type: ignore[import-not-found, import-untyped]
import triton.language as tl  # type: ignore[import-not-found, import-untyped]
from torch import Tensor

from .triton_launch import early, follow

MOST = 65_536  # tokens of a vocabulary up to which this is the faster way
_PIECE = 32_768, 8192  # of the vocabulary, at most, for distributions and picks


def probs(logits: Tensor, parameters: Tensor) -> Tensor:
    """See sampling.DeviceSampling.distributions; fp32. Tokens as likely as the last one that stays all stay."""
    m, width = logits.shape
    out = torch.empty(m, width, dtype=torch.float32, device=logits.device)
    _probs[(m,)](logits.contiguous(), parameters, out, width, **_shape(width, _PIECE[0]), **early(logits.device))
    return out


def pick(weights: Tensor, numbers: Tensor) -> Tensor:
    """See sampling.DrawnChance.pick: of weights [V] or [m, V] with float64 numbers [m]."""
    width, m = weights.shape[-1], numbers.shape[0]
    out = torch.empty(m, dtype=torch.int64, device=weights.device)
    _pick[(m,)](weights.contiguous(), numbers.contiguous(), out, width, **_shape(width, _PIECE[1]),
                **early(weights.device))
    return out


def reject(drafted: Tensor, probs: Tensor, target: Tensor, numbers: Tensor) -> Tensor:
    """See speculation.verifier.reject_on_tensors, with float64 numbers [n + 1] in the order in which ``DrawnChance``
    spends them: int64 [2], both of its results."""
    n, width = drafted.shape[0], target.shape[-1]
    out = torch.empty(2, dtype=torch.int64, device=target.device)
    _reject[(1,)](drafted, probs.contiguous(), target.contiguous(), numbers.contiguous(), out, n, width,
                  **_shape(width, _PIECE[1]), **early(target.device))
    return out


def confidence(logits: Tensor) -> Tensor:
    """See sampling.confidence."""
    m, width = logits.shape
    out = torch.empty(m, dtype=torch.float32, device=logits.device)
    _confidence[(m,)](logits.contiguous(), out, width, **_shape(width, _PIECE[1]), **early(logits.device))
    return out


def _shape(width: int, most: int) -> dict[str, int]:
    """32 tokens a thread."""
    block = min(most, triton.next_power_of_2(width))
    return {"BLOCK": block, "num_warps": max(1, block // 1024)}


@triton.jit
def _scores(logits, first, width, temperature, BLOCK: tl.constexpr):
    at = first + tl.arange(0, BLOCK)
    return tl.load(logits + at, mask=at < width, other=float("-inf")).to(tl.float32) / temperature


@triton.jit
def _over(logits, width, temperature, top, bar, BLOCK: tl.constexpr):
    """Count the scores over the bar, and add up their mass. The bar is counted from the top."""
    count = tl.zeros((), tl.float32)
    mass = tl.zeros((), tl.float32)
    for first in tl.range(0, width, BLOCK):
        score = _scores(logits, first, width, temperature, BLOCK) - top
        count += tl.sum((score > bar).to(tl.float32), 0)
        mass += tl.sum(tl.where(score > bar, tl.exp(score), 0.0), 0)
    return count, mass


@triton.jit
def _raise(logits, width, temperature, top, bar, count, mass, wanted, BY_MASS: tl.constexpr, BLOCK: tl.constexpr):
    """The bar over which are all whose betters have less than ``wanted``, in number or in mass, and what is over it.
    bar: a lower one, over which there are ``count`` with ``mass``."""
    high = tl.zeros((), tl.float32)
    over_high = tl.zeros((), tl.float32)
    middle = 0.5 * bar
    # Until one token lies between both, or no number does, and so only tokens that are equal.
    while (count - over_high > 1.0) & (middle > bar) & (middle < high):
        found, weighs = _over(logits, width, temperature, top, middle, BLOCK)
        low = (weighs if BY_MASS else found) >= wanted
        bar = tl.where(low, middle, bar)
        high = tl.where(low, high, middle)
        mass = tl.where(low, weighs, mass)
        over_high = tl.where(low, over_high, found)
        count = tl.where(low, found, count)
        middle = 0.5 * (bar + high)
    return bar, count, mass


@triton.jit(do_not_specialize=["width"])
def _probs(logits, parameters, out, width, BLOCK: tl.constexpr, EARLY: tl.constexpr):
    follow(EARLY)
    row = tl.program_id(0).to(tl.int64) * width
    logits += row
    temperature = tl.load(parameters).to(tl.float32)
    top_k = tl.load(parameters + 1).to(tl.float32)
    top_p = tl.load(parameters + 2).to(tl.float32)
    top = tl.full((), float("-inf"), tl.float32)
    for first in tl.range(0, width, BLOCK):
        top = tl.maximum(top, tl.max(_scores(logits, first, width, temperature, BLOCK), 0))
    bar = tl.full((), -100.0, tl.float32)  # e to the power of it is nothing beside 1 in fp32
    count, mass = _over(logits, width, temperature, top, bar, BLOCK)
    if top_k < count:
        bar, count, mass = _raise(logits, width, temperature, top, bar, count, mass, top_k, False, BLOCK)
    if top_p < 1.0:
        bar, count, mass = _raise(logits, width, temperature, top, bar, count, mass, top_p * mass, True, BLOCK)
    for first in tl.range(0, width, BLOCK):
        at = first + tl.arange(0, BLOCK)
        score = _scores(logits, first, width, temperature, BLOCK) - top
        tl.store(out + row + at, tl.where(score > bar, tl.exp(score) / mass, 0.0), mask=at < width)


@triton.jit
def _weights(weights, taken, at, width, TAKES: tl.constexpr):
    """Return what is left of weights once ``taken`` is taken off, not below zero."""
    found = tl.load(weights + at, mask=at < width, other=0.0)
    if TAKES:
        found = tl.maximum(found - tl.load(taken + at, mask=at < width, other=0.0), 0.0)
    return found.to(tl.float64)


@triton.jit
def _total(weights, taken, width, TAKES: tl.constexpr, BLOCK: tl.constexpr):
    total = tl.zeros((), tl.float64)
    for first in tl.range(0, width, BLOCK):
        total += tl.sum(_weights(weights, taken, first + tl.arange(0, BLOCK), width, TAKES), 0)
    return total


@triton.jit
def _at_point(weights, taken, point, width, TAKES: tl.constexpr, BLOCK: tl.constexpr):
    """The token at which the running sum of weights passes the point."""
    before = tl.zeros((), tl.float64)
    found = tl.full((), 2147483647, tl.int32)
    last = tl.zeros((), tl.int32)  # that has any weight: sums in another order may not come to the point
    for first in tl.range(0, width, BLOCK):
        at = first + tl.arange(0, BLOCK)
        weight = _weights(weights, taken, at, width, TAKES)
        passed = (before + tl.cumsum(weight, 0) > point) & (weight > 0.0)
        found = tl.minimum(found, tl.min(tl.where(passed, at, 2147483647), 0))
        last = tl.maximum(last, tl.max(tl.where(weight > 0.0, at, 0), 0))
        before += tl.sum(weight, 0)
    return tl.minimum(found, last).to(tl.int64)


@triton.jit(do_not_specialize=["width"])
def _pick(weights, numbers, out, width, BLOCK: tl.constexpr, EARLY: tl.constexpr):
    follow(EARLY)
    row = tl.program_id(0)
    weights += row.to(tl.int64) * width
    point = tl.load(numbers + row) * _total(weights, weights, width, False, BLOCK)
    tl.store(out + row, _at_point(weights, weights, point, width, False, BLOCK))


@triton.jit(do_not_specialize=["n", "width"])
def _reject(drafted, probs, target, numbers, out, n, width, BLOCK: tl.constexpr, EARLY: tl.constexpr):
    follow(EARLY)
    accepted = tl.zeros((), tl.int64)
    for row in tl.range(0, n):
        at = tl.cast(row, tl.int64) * width + tl.load(drafted + row)
        odds = tl.minimum(tl.load(target + at) / tl.load(probs + at), 1.0)
        kept = tl.load(numbers + row) < odds.to(tl.float64)
        accepted += (kept & (accepted == row)).to(tl.int64)
    target += accepted * width
    probs += accepted * width
    number = tl.load(numbers + n)
    left = tl.zeros((), tl.float64)
    if accepted < n:
        left = _total(target, probs, width, True, BLOCK)
    if left > 0.0:
        own = _at_point(target, probs, number * left, width, True, BLOCK)
    else:  # nothing was refused; or p = q up to rounding: a refusal there has probability zero but for the last bit
        own = _at_point(target, target, number * _total(target, target, width, False, BLOCK), width, False, BLOCK)
    tl.store(out, accepted)
    tl.store(out + 1, own)


@triton.jit(do_not_specialize=["width"])
def _confidence(logits, out, width, BLOCK: tl.constexpr, EARLY: tl.constexpr):
    follow(EARLY)
    row = tl.program_id(0)
    logits += row.to(tl.int64) * width
    top = tl.full((), float("-inf"), tl.float32)
    total = tl.zeros((), tl.float32)
    for first in tl.range(0, width, BLOCK):
        score = _scores(logits, first, width, 1.0, BLOCK)
        higher = tl.maximum(top, tl.max(score, 0))
        total = total * tl.exp(top - higher) + tl.sum(tl.exp(score - higher), 0)
        top = higher
    tl.store(out + row, 1.0 / total)
