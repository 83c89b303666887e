"""Attention over chosen chunks where they lie in a long cache, in Triton: a new choice is a new index, not a copy.

Letters as in ``triton_attention``, whose parts, packed rows and merging these kernels share; k chunks held per KV head.
What is attended gets slots of its own, numbered without gaps: the held chunks in the order of the index, then the run
of newest tokens. A program reads each slot's place from the index just before its key; a chunk of one head is one run
of memory (8 tokens of 128 features in bf16: 2 KiB), so scattered chunks are read about as fast as neighbours.
"""

from __future__ import annotations

import torch
import triton  # type: ignore[import-not-found, import-untyped]
import triton.language as tl  # type: ignore[import-not-found, import-untyped]
from torch import Tensor

from . import reference
from .triton_attention import HEAD_DIMS, MAX_ROWS, _merge
from .triton_launch import early, lead, wait
from .triton_parts import Tiles
from .triton_rows import load_tile, number_type


def choose_tiles(rows: int, dim: int, dtype: torch.dtype) -> Tiles:
    """For n * G rows, as measured on an H200. A program has few blocks: more programs hide each other's beginnings."""
    if dtype == torch.float32:
        return Tiles(32, 2, 8, 2, 16)
    return Tiles(64, 4, 4, 4, 16) if rows <= 16 else Tiles(64, 5, 4, 2, 64)


def attention(queries: Tensor, keys: Tensor, values: Tensor, length: int | Tensor, chunks: Tensor, bounds: Tensor,
              chunk_size: int, staged_mask: Tensor | None = None) -> Tensor:
    """See reference.indexed_attention; the result has the type of keys, which may be rows of bytes as in
    ``triton_attention.attention``. length may be an int32 tensor [1] on the
    device. Wider passes than 64 rows without a mask, and shapes these kernels are not made for, are gathered first."""
    n, num_heads, dim = queries.shape
    heads, capacity, width = keys.shape
    if (n > MAX_ROWS and staged_mask is None) or dim not in HEAD_DIMS:
        assert isinstance(length, int) and width == dim, "lengths on the device, and rows of bytes: up to 64 rows"
        return reference.indexed_attention(queries, keys, values, length, chunks, bounds, chunk_size,
                                           staged_mask).to(keys.dtype)
    group = num_heads // heads
    rows = n * group
    tiles = choose_tiles(rows, dim, keys.dtype)
    tile_rows = min(tiles.rows, max(16, triton.next_power_of_2(rows)))
    row_tiles = triton.cdiv(rows, tile_rows)
    most = triton.next_power_of_2(triton.cdiv(chunks.shape[1] * chunk_size, tiles.slots))  # no part below a tile
    splits = min(tiles.splits(keys.device, heads * row_tiles), most)
    queries = queries if queries.stride(2) == 1 and queries.stride(1) == dim else queries.contiguous()
    mask = None if staged_mask is None else staged_mask.to(keys.device).contiguous().view(torch.int8)
    mixed = keys.new_empty((splits, heads, rows, dim), dtype=torch.float32)
    spans = keys.new_empty((splits, heads, rows), dtype=torch.float32)
    _attend[(row_tiles, heads, splits)](
        queries, keys, values, mask, chunks, bounds, mixed, spans, length, capacity, chunks.stride(0),
        queries.stride(0), dim**-0.5 * 1.4426950408889634, n, n if mask is None else mask.shape[1], GROUP=group,
        DIM=dim, ROWS=tile_rows, SLOTS=tiles.slots, STAGES=tiles.stages, CHUNK=chunk_size,
        WIDTH=width, ON_DEVICE=isinstance(length, Tensor), TREE=mask is not None,
        PRECISION="ieee" if keys.dtype == torch.float32 else "tf32", **early(keys.device),
        num_warps=tiles.warps)
    out = keys.new_empty((n, num_heads * dim), dtype=number_type(keys, dim))
    _merge[(rows, heads)](mixed, spans, out, None, splits, 0, GROUP=group, DIM=dim, WATCH=False,
                          PARTS=triton.next_power_of_2(splits), **early(keys.device), num_warps=4)
    return out


@triton.jit(do_not_specialize=["length", "capacity", "chunk_stride", "tokens", "tail_size"])
def _attend(queries, keys, values, mask, chunks, bounds, mixed, spans, length, capacity, chunk_stride, query_stride,
            scale, tokens, tail_size, GROUP: tl.constexpr, DIM: tl.constexpr, ROWS: tl.constexpr, SLOTS: tl.constexpr,
            STAGES: tl.constexpr, CHUNK: tl.constexpr, WIDTH: tl.constexpr, ON_DEVICE: tl.constexpr,
            TREE: tl.constexpr, PRECISION: tl.constexpr, EARLY: tl.constexpr):
    """One row tile, one KV head, one part of the slots -> mixed [S, H, n G, D], spans (log2-sum-exp2) [S, H, n G]."""
    wait(EARLY)
    head, part = tl.program_id(1), tl.program_id(2)
    filled = tl.load(length) if ON_DEVICE else length
    held, newest = tl.load(bounds) * CHUNK, tl.load(bounds + 1)
    total = held + filled - newest
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    dims = tl.arange(0, DIM)
    count = tokens * GROUP
    token = rows // GROUP
    at = token * query_stride + (head * GROUP + rows % GROUP) * DIM
    query = tl.load(queries + at[:, None] + dims[None, :], mask=rows[:, None] < count, other=0.0)
    query = query.to(keys.dtype.element_ty if WIDTH == DIM else tl.bfloat16)
    keys += head.to(tl.int64) * capacity * WIDTH
    values += head.to(tl.int64) * capacity * WIDTH
    chunks += head * chunk_stride

    blocks = tl.cdiv(total, SLOTS)
    parts = tl.num_programs(2)
    first, stop = part * blocks // parts, (part + 1) * blocks // parts
    tail = total - tail_size  # the first slot that not all rows may see
    plain = tl.maximum(first, tl.minimum(stop, tail // SLOTS))  # blocks that all rows see whole
    top = tl.full((ROWS,), float("-inf"), tl.float32)
    sums = tl.zeros((ROWS,), tl.float32)
    acc = tl.zeros((ROWS, DIM), tl.float32)
    for block in tl.range(first, plain, num_stages=STAGES):
        top, sums, acc = _block(block, query, top, sums, acc, keys, values, mask, chunks, held, newest, total, tail,
                                rows, token, scale, tail_size, count, DIM, SLOTS, CHUNK, WIDTH, False, TREE, PRECISION)
    for block in tl.range(plain, stop, num_stages=1):
        top, sums, acc = _block(block, query, top, sums, acc, keys, values, mask, chunks, held, newest, total, tail,
                                rows, token, scale, tail_size, count, DIM, SLOTS, CHUNK, WIDTH, True, TREE, PRECISION)
    lead(EARLY)
    seen = sums > 0.0  # a row may see nothing of a part
    to = (part * tl.num_programs(1) + head) * count + rows
    tl.store(spans + to, tl.where(seen, top + tl.log2(tl.where(seen, sums, 1.0)), float("-inf")), mask=rows < count)
    tl.store(mixed + to[:, None] * DIM + dims[None, :], acc / tl.where(seen, sums, 1.0)[:, None],
             mask=rows[:, None] < count)


@triton.jit
def _block(block, query, top, sums, acc, keys, values, mask, chunks, held, newest, total, tail, rows, token, scale,
           tail_size, count, DIM: tl.constexpr, SLOTS: tl.constexpr, CHUNK: tl.constexpr, WIDTH: tl.constexpr,
           EDGE: tl.constexpr, TREE: tl.constexpr, PRECISION: tl.constexpr):
    """SLOTS slots folded into the running (top, sums, acc). EDGE: staged or missing slots are among them."""
    slots = block * SLOTS + tl.arange(0, SLOTS)
    chunk = tl.load(chunks + slots // CHUNK, mask=slots < held, other=0)
    place = tl.where(slots < held, chunk * CHUNK + slots % CHUNK, newest + slots - held)
    key = load_tile(keys, place, slots < total, DIM, WIDTH, EDGE)
    scores = tl.dot(query, tl.trans(key), input_precision=PRECISION) * scale
    if EDGE:
        staged = slots - tail
        if TREE:
            inside = (staged >= 0) & (staged < tail_size)
            shown = tl.load(mask + token[:, None] * tail_size + staged[None, :],
                            mask=inside[None, :] & (rows[:, None] < count), other=0)
            scores = tl.where((staged[None, :] < 0) | (shown != 0), scores, float("-inf"))
        else:
            scores = tl.where(staged[None, :] <= token[:, None], scores, float("-inf"))
    highest = tl.maximum(top, tl.max(scores, 1))
    base = tl.where(highest == float("-inf"), 0.0, highest) if EDGE else highest
    probs = tl.exp2(scores - base[:, None])
    fade = tl.exp2(top - base)
    value = load_tile(values, place, slots < total, DIM, WIDTH, EDGE)
    acc = tl.dot(probs.to(value.dtype), value, acc * fade[:, None], input_precision=PRECISION)
    return highest, sums * fade + tl.sum(probs, 1), acc
