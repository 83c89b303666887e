"""Attention of wide causal passes behind a long context (a prefill's) on a GPU, by the fastest kernel that is here.

torch's own FlashAttention-2 kernel always is. cuDNN's comes with torch too, and is nearly twice as fast on an H200. But
its causal mask begins at the first key, and planning a shape that it has not met takes it 40 ms. So it attends what
stands before a pass in blocks of few sizes, without a mask, then the pass's own keys with one; where blocks do not
reach up to those, torch's kernel attends all that is left. Parts are merged by their log-sum-exp (FlashAttention-2,
arXiv 2307.08691, section 2.3.1). The package ``flash-attn`` (2, 3 or 4) takes the
whole pass where somebody has installed it.

Which one is used is measured once per process. Letters: n rows, H KV heads, G query heads per KV head, D head_dim, C
slots.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from time import perf_counter

import torch
from torch import Tensor

Attend = Callable[[Tensor, Tensor, Tensor, int], Tensor]

_LONG = 16_384  # cached tokens from which on the choice matters: below, it saves less than cuDNN's plans take
_ROWS = 1024  # of a pass, or a multiple: a shape that comes again, unlike a document's last pass
_BLOCKS = tuple(1024 * 2**i for i in range(6, 0, -1))  # tokens, 2,048 to 65,536: each is a plan of its own
# What is measured: few query heads fill no card, and more KV heads take memory (16 of them 150 MB).
_SAMPLE_ROWS, _SAMPLE_TOKENS, _SAMPLE_HEADS = 2048, 18_432, 16
_REPEATS = 5
_ALIKE = 1e-2  # relative error: bf16 kernels differ by a third of it
# Modules that ``flash-attn`` 2, 3 and 4 bring, and the distributions that they come in, the newest first.
_PACKAGES = (("flash_attn.cute", "flash-attn-4"), ("flash_attn_interface", "flash-attn-3"),
             ("flash_attn", "flash-attn"))


@dataclass(frozen=True, slots=True)
class WideAttention:
    """attend: (queries [n, H * G, D], keys, values [H, C, D], length) -> [n, H * G, D] of the same type, causal.
    summary: its name and rate, and the others', fit to show."""

    name: str
    attend: Attend
    summary: str


def attention(queries: Tensor, keys: Tensor, values: Tensor, length: int) -> Tensor:
    """Causal, of 16-bit numbers on a GPU: see ``WideAttention.attend``."""
    n, heads, dim = queries.shape
    if length - n < _LONG or n % _ROWS:
        return by_torch(queries, keys, values, length)
    return choose_wide_attention(keys.device, keys.dtype, heads // keys.shape[0], dim).attend(
        queries, keys, values, length)


def by_torch(queries: Tensor, keys: Tensor, values: Tensor, length: int) -> Tensor:
    """FlashAttention-2 as torch has it; on cards that it is not made for, whatever torch has."""
    from torch.nn.attention.bias import causal_lower_right  # with it comes torch's compiler: a second of start-up

    # A rule instead of a table: only so does torch take its flash kernel.
    return torch.nn.functional.scaled_dot_product_attention(
        _heads_first(queries), keys[None, :, :length], values[None, :, :length],
        attn_mask=causal_lower_right(queries.shape[0], length), enable_gqa=queries.shape[1] != keys.shape[0],
    )[0].transpose(0, 1)


def by_cudnn(queries: Tensor, keys: Tensor, values: Tensor, length: int) -> Tensor:
    """cuDNN's kernel as far as blocks reach; on an H200 a pass's own 2,048 keys with it made reading 125,000 tokens 9 %
    faster than with torch's. Raises RuntimeError where there is none."""
    n, start = queries.shape[0], 0
    parts: list[tuple[Tensor, Tensor]] = []
    for block in _BLOCKS:
        while start + block <= length - n:
            parts.append(_attend_block(queries, keys, values, start, block))
            start += block
    if start == length - n:
        parts.append(_attend_block(queries, keys, values, start, n, causal=True))
    else:
        parts.append(_attend_rest(queries, keys, values, start, length))
    return merged(parts)


def _attend_block(queries: Tensor, keys: Tensor, values: Tensor, start: int, size: int, *,
                  causal: bool = False) -> tuple[Tensor, Tensor]:
    out, spans = torch.ops.aten._scaled_dot_product_cudnn_attention(
        _heads_first(queries), keys[None, :, start : start + size], values[None, :, start : start + size], None, True,
        0.0, causal, False)[:2]
    return out[0].transpose(0, 1), spans.view(-1, queries.shape[0]).T


def _attend_rest(queries: Tensor, keys: Tensor, values: Tensor, start: int, length: int) -> tuple[Tensor, Tensor]:
    # This operator's mask ends at the last key.
    out, spans = torch.ops.aten._scaled_dot_product_flash_attention(
        _heads_first(queries), keys[None, :, start:length], values[None, :, start:length], 0.0, True, False)[:2]
    return out[0].transpose(0, 1), spans.view(-1, queries.shape[0]).T


def merged(parts: list[tuple[Tensor, Tensor]]) -> Tensor:
    """Attention over all keys from attention over parts of them: (output [n, heads, D], log-sum-exp [n, heads])."""
    if len(parts) == 1:
        return parts[0][0]
    shares = torch.stack([spans for _, spans in parts]).softmax(0)
    mixed = parts[0][0].float().mul_(shares[0, ..., None])
    for (out, _), share in zip(parts[1:], shares[1:], strict=True):
        mixed.addcmul_(out, share[..., None])
    return mixed.to(parts[0][0].dtype)


def by_package(module: str) -> Attend:
    """``flash-attn``'s kernel. Raises ImportError and whatever else a broken package raises."""
    attend = import_module(module).flash_attn_func

    def attended(queries: Tensor, keys: Tensor, values: Tensor, length: int) -> Tensor:
        found = attend(queries[None], *(part[None, :, :length].transpose(1, 2) for part in (keys, values)), causal=True)
        return (found[0] if isinstance(found, tuple) else found)[0]  # 3 and 4 may return the log-sum-exp as well

    return attended


@cache
def choose_wide_attention(device: torch.device, dtype: torch.dtype, group: int, dim: int) -> WideAttention:
    """The fastest of those that compute what torch's own computes, measured here and now."""
    g = torch.Generator(device).manual_seed(0)
    shape = 2, max(1, _SAMPLE_HEADS // group), _SAMPLE_TOKENS, dim
    keys, values = torch.randn(shape, device=device, generator=g, dtype=dtype)
    queries = torch.randn(_SAMPLE_ROWS, shape[1] * group, dim, device=device, generator=g, dtype=dtype)
    expected = by_torch(queries, keys, values, _SAMPLE_TOKENS).float()
    found: list[tuple[float, str, Attend]] = []
    failed: list[str] = []
    for name, make in _candidates():
        try:
            attend = make()
            out = attend(queries, keys, values, _SAMPLE_TOKENS).float()
            if float((out - expected).norm() / expected.norm()) > _ALIKE:
                failed.append(f"{name} computes something else")
                continue
            found.append((_seconds(attend, queries, keys, values), name, attend))
        except Exception as error:  # of any library that may be installed: reading goes on without it
            failed.append(f"{name} does not run here ({type(error).__name__})")
    found.sort(key=lambda one: one[0])
    work = 4 * queries.shape[1] * dim * _SAMPLE_ROWS * (_SAMPLE_TOKENS - _SAMPLE_ROWS / 2)
    rates = [f"{name} ({work / seconds / 1e12:.0f} TFLOP/s)" for seconds, name, _ in found]
    summary = f"long documents are read with {rates[0]}"
    others = [*(f"{rate} is slower" for rate in rates[1:]), *failed]
    return WideAttention(found[0][1], found[0][2], "; ".join([summary, *others]))


def _candidates() -> list[tuple[str, Callable[[], Attend]]]:
    """Names, and what makes each."""
    found: list[tuple[str, Callable[[], Attend]]] = [
        ("torch's FlashAttention-2", lambda: by_torch), ("cuDNN's attention", lambda: by_cudnn)]
    for module, distribution in _PACKAGES:
        try:
            name = f"{distribution} {version(distribution)}"
        except PackageNotFoundError:
            continue
        found.append((name, lambda module=module: by_package(module)))  # type: ignore[misc]
    return found


def _seconds(attend: Attend, queries: Tensor, keys: Tensor, values: Tensor) -> float:
    """The median of a few passes; the first has been made."""
    times = []
    for _ in range(_REPEATS):
        torch.cuda.synchronize(keys.device)
        started = perf_counter()
        attend(queries, keys, values, keys.shape[1])
        torch.cuda.synchronize(keys.device)
        times.append(perf_counter() - started)
    return sorted(times)[_REPEATS // 2]


def _heads_first(queries: Tensor) -> Tensor:
    return queries.transpose(0, 1)[None]
