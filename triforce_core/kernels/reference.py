"""Every op of the decoder in plain torch: the specification that fast paths are tested against.

Letters: n rows (tokens of a pass), H KV heads, G query heads per KV head, D head_dim, C slots.
Numbers in, numbers out: knows nothing of models, caches or devices.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from . import quantized
from .kv_rows import write_rows

AddNorm = Callable[[Tensor, "Tensor | None", Tensor, float, torch.dtype], Tensor]
Linear = Callable[[Tensor], Tensor]  # [n, in] in any float type -> [n, out], fp32 or the product type


def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """x [..., d] divided by its root mean square, times weight [d]; fp32 inside and out (arXiv 1910.07467)."""
    x = x.float()
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps) * weight


def adding(norm: Callable[[Tensor, Tensor, float], Tensor]) -> AddNorm:
    """add_rms_norm made of an rms_norm: (hidden, addend, weight, eps, dtype) -> norm of hidden + addend.

    hidden fp32 [n, d], the residual stream, takes ``addend`` [n, d] (None: nothing) up in its own memory. dtype: what
    the norm will be multiplied in; it may come in that type already (products round it anyway)."""

    def add_rms_norm(hidden: Tensor, addend: Tensor | None, weight: Tensor, eps: float, dtype: torch.dtype) -> Tensor:
        return norm(hidden if addend is None else hidden.add_(addend), weight, eps)

    return add_rms_norm


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotary embedding, half-split pairs: x [n, heads, D] -> fp32 [n, heads, D].

    cos and sin [n, 1, D]; the first half of sin is negated, so that a swap of halves is all the mixing there is."""
    x = x.float()
    return x * cos + x.roll(x.shape[-1] // 2, dims=-1) * sin


def rotate_and_write(qkv: Tensor, cos: Tensor, sin: Tensor, keys: Tensor, values: Tensor, slots: Tensor) -> Tensor:
    """Rotate and write between product and attention; return rotated queries [n, H * G, D], in the type of keys.

    qkv [n, H * G + 2 H, D]: queries, keys, values. Rotated keys and values go to ``slots`` (int64 [n], on the device)
    of keys, values [H, C, D], or of rows of bytes (then queries come in fp32 or bfloat16, to which attention over rows
    rounds them). cos, sin: see ``rotate``."""
    heads = keys.shape[0]
    rotated = rotate(qkv[:, :-heads], cos, sin)
    if keys.dtype == torch.int8:
        write_rows(keys, slots, rotated[:, -heads:])
        write_rows(values, slots, qkv[:, -heads:])
        return rotated[:, :-heads]
    rotated = rotated.to(keys.dtype)
    for own, new in ((keys, rotated[:, -heads:]), (values, qkv[:, -heads:])):
        own.index_copy_(1, slots, new.transpose(0, 1).to(own.dtype))
    return rotated[:, :-heads]


def swiglu(gate_up: Tensor) -> Tensor:
    """gate_up [n, 2f] -> silu(gate) * up, fp32 [n, f] (arXiv 2002.05202)."""
    gate, up = gate_up.float().chunk(2, dim=-1)
    return F.silu(gate) * up


def geglu(gate_up: Tensor) -> Tensor:
    """gate_up [n, 2f] -> gelu(gate) * up, fp32 [n, f], gelu by its tanh form (arXiv 1606.08415)."""
    gate, up = gate_up.float().chunk(2, dim=-1)
    return F.gelu(gate, approximate="tanh") * up


@dataclass(frozen=True, slots=True)
class Dense:
    """A ``Linear`` with its weight [out, in] and bias [out] as they are multiplied."""

    weight: Tensor
    bias: Tensor | None = None

    def __call__(self, x: Tensor) -> Tensor:
        return F.linear(x.to(self.weight.dtype), self.weight, self.bias)


def make_linear(data: Tensor, scale: Tensor | None, bias: Tensor | None, dtype: torch.dtype) -> Linear:
    """x -> x @ W.T + bias. data [out, in]: the weight, or int8 with scale [out] (W = data * scale[:, None])."""
    weight = (data.float() * scale.float()[:, None] if scale is not None else data).to(dtype).contiguous()
    return Dense(weight, None if bias is None else bias.to(dtype))


def make_grouped(weight: quantized.Grouped, bias: Tensor | None, dtype: torch.dtype, pair: int = 0) -> Linear:
    """``make_linear`` of a weight whose inputs are in groups. pair: see ``quantize_linear``."""
    return make_linear(weight.numbers(), None, bias, dtype)


def quantize_linear(linear: Dense, kind: str, pair: int = 0) -> Linear:
    """Make the same product with a weight that has been through ``kind`` (see ``quantized``), unless it does not fit
    it. pair: of each 2 * pair outputs, i and i + pair are used together (0: no two are); how to store
    them, if at all."""
    if not quantized.fits(linear.weight, kind):
        return linear
    rounded = quantized.quantize(linear.weight, kind)
    return Dense(quantized.dequantize(rounded).to(linear.weight.dtype), linear.bias)


def visible(n: int, length: int, staged_mask: Tensor | None, device: torch.device) -> Tensor:
    """bool [n, length]: what each of the n newest tokens sees. All of the prefix; of the staged tail what
    ``staged_mask`` [n, m] says of the last m slots (m > length: its last columns count), or, without one, everything
    up to itself."""
    seen = torch.ones(n, length, dtype=torch.bool, device=device)
    tail = torch.ones(n, n, dtype=torch.bool, device=device).tril() if staged_mask is None else staged_mask
    seen[:, max(0, length - tail.shape[1]) :] = tail[:, max(0, tail.shape[1] - length) :]
    return seen


def probabilities(queries: Tensor, keys: Tensor, length: int, staged_mask: Tensor | None, rows: int) -> Tensor:
    """Return probabilities of the last ``rows`` of n queries [n, H * G, D] over slots [0, length): fp32
    [H, G, rows, length]."""
    n, num_heads, dim = queries.shape
    heads = keys.shape[0]
    assert num_heads % heads == 0 and length >= n >= rows, (queries.shape, keys.shape, length, rows)
    grouped = queries[n - rows :].float().view(rows, heads, num_heads // heads, dim).permute(1, 2, 0, 3)
    scores = grouped @ keys[:, None, :length].float().transpose(-1, -2) * dim**-0.5
    seen = visible(n, length, staged_mask, queries.device)[n - rows :]
    return scores.masked_fill(~seen, float("-inf")).softmax(-1)


def chunk_mass(probs: Tensor, chunks: int, chunk_size: int) -> Tensor:
    """probs [H, G, rows, C] summed over G, rows and the slots of each chunk -> fp32 [H, chunks].

    Rows first: the long axis stays vectorised."""
    per_slot = probs[..., : chunks * chunk_size].sum((1, 2), dtype=torch.float32)
    return per_slot.view(probs.shape[0], chunks, chunk_size).sum(-1)


def attention(
    queries: Tensor, keys: Tensor, values: Tensor, length: int, staged_mask: Tensor | None = None,
    mass_rows: int = 0, chunk_size: int = 1,
) -> tuple[Tensor, Tensor | None]:
    """Grouped-query attention over slots [0, length) of whole buffers, scaled by 1 / sqrt(D).

    queries [n, H * G, D] belong to the last n filled slots; keys, values [H, C, D].
    Returns ([n, H * G * D] fp32 or the type of keys, mass). mass, when mass_rows > 0: fp32 [H, chunks], the
    probabilities of the last mass_rows rows summed over rows, the group's heads and the chunk_size slots of each
    chunk; chunks are the whole ones among the slots before the staged tail.
    """
    n, num_heads, dim = queries.shape
    probs = probabilities(queries, keys, length, staged_mask, n)
    out = (probs @ values[:, None, :length].float()).permute(2, 0, 1, 3).reshape(n, num_heads * dim)
    if not mass_rows:
        return out, None
    return out, chunk_mass(probs[:, :, max(0, n - mass_rows) :], (length - n) // chunk_size, chunk_size)


def indexed_attention(
    queries: Tensor, keys: Tensor, values: Tensor, length: int, chunks: Tensor, bounds: Tensor, chunk_size: int,
    staged_mask: Tensor | None = None,
) -> Tensor:
    """``attention`` over a part of slots [0, length): per KV head its first k chunks of ``chunks`` [H, at least k]
    (chunk i is slots from i * chunk_size), then all slots from ``newest`` on; bounds = (k, newest), int [2].

    queries [n, H * G, D] belong to the last n slots, which are among the newest."""
    held, newest = bounds.tolist()
    steps = torch.arange(chunk_size, device=keys.device)
    chosen = (chunks[:, :held, None].long() * chunk_size + steps).flatten(1)
    tail = torch.arange(newest, length, device=keys.device).expand(len(chosen), -1)
    slots = torch.cat((chosen, tail), 1)[:, :, None].expand(-1, -1, keys.shape[2])
    return attention(queries, keys.gather(1, slots), values.gather(1, slots), slots.shape[1], staged_mask)[0]


def heaviest(scores: Tensor, wanted: int) -> Tensor:
    """scores fp32 [..., chunks], none negative -> int64 [..., wanted]: which are greatest, in no order."""
    return scores.topk(wanted, dim=-1, sorted=False).indices


def gather_chunks(own: Tensor, source: Tensor, chunks: Tensor, chunk_size: int) -> None:
    """Chunks of source [H, C, D] (int64 [H, k]; chunk i is slots from i * chunk_size) to the first k * chunk_size slots
    of own [H, slots, D]. A chunk of one head is one run of memory."""
    heads, k = chunks.shape
    whole, run = source.shape[1] // chunk_size, chunk_size * source.shape[2]
    if source.is_cuda:  # one launch costs more than its copy: all heads at once
        table = source[:, : whole * chunk_size].unflatten(1, (whole, chunk_size)).flatten(2)
        rows = table.gather(1, chunks[:, :, None].expand(heads, k, run))
        own[:, : k * chunk_size] = rows.view(heads, k * chunk_size, -1)
        return
    for head in range(heads):
        table = source[head, : whole * chunk_size].view(whole, run)
        torch.index_select(table, 0, chunks[head], out=own[head, : k * chunk_size].view(k, run))


def look_ahead(mass: Tensor, chunks: int = 4, fade: float = 0.9) -> Tensor:
    """mass [..., chunks]: let each chunk lend its mass, fading, to those right behind it.

    Text that is being copied goes on: what the last pass attended shows where the copy stood, and the next draft
    needs what follows. Without it, quoting without forced tokens loses a quarter of the drafts (see README)."""
    ahead = mass.clone()
    for distance in range(1, min(chunks, mass.shape[-1] - 1) + 1):
        torch.maximum(ahead[..., distance:], mass[..., :-distance] * fade**distance, out=ahead[..., distance:])
    return ahead
