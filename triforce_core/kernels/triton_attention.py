"""Attention of a few query rows over a long cache, in Triton: keys and values are read once, at memory speed.

Letters: n rows of a pass, H KV heads, G query heads per KV head, D head_dim, C slots, R = mass_rows * G, S splits.

One program takes one KV head, one of S equal parts of the filled slots and all n * G query rows of the head (packed,
row = token * G + member): a key read from memory serves every row (flash-decoding, Dao et al. 2023; grouped rows as in
FlashAttention-2's decode path, arXiv 2307.08691). Parts carry their log-sum-exp and are merged by a second kernel.

A row of a chain gets the same bits in a pass of any width, so that a verification rounds as plain decoding does: rows
are computed in tiles of one kind (or in ``triton_narrow``'s, with the same bits), S depends on no width, and where
parts begin depends on the length at which the first row would be alone: see ``triton_parts``. ``batch_invariant_rows``
says when that moves. (With a mask, a tree's, compilers sum in another order: the last bit may differ.)

Attention mass per chunk needs probabilities, which are known only once all parts are: the first kernel leaves sums of
exp(score - running maximum) per granule (a power of two of slots) and row, about a hundredth of the bytes of the keys
and values, and a third kernel turns them into mass.

The length is an argument that nothing is compiled for, or a tensor on the device that a captured graph reads again at
each replay. Scores and sums are fp32, exponents of two; probabilities are rounded to the type of the values.
"""

from __future__ import annotations

from functools import lru_cache

import torch
import torch.nn.attention.bias  # here, for torch_ops: the first wide pass shall not wait for it
import triton  # type: ignore[import-not-found, import-untyped]
import triton.language as tl  # type: ignore[import-not-found, import-untyped]
from torch import Tensor

from . import torch_ops, triton_narrow
from .kv_rows import to_rows
from .triton_launch import early, follow, wait
from .triton_parts import Tiles, added_in_pairs, part_of
from .triton_rows import load_tile, number_type

# Tokens of a pass; wider passes are prefill, where torch's own kernel is limited by arithmetic instead. But for trees:
# with a mask torch would write all scores to memory, and 512 rows still take a fraction of the time in which a layer
# comes through a link. Blocks of rows run side by side and share what each other reads.
MAX_ROWS = 64
HEAD_DIMS = (32, 64, 128)


def attention(
    queries: Tensor, keys: Tensor, values: Tensor, length: int | Tensor, staged_mask: Tensor | None = None,
    mass_rows: int = 0, chunk_size: int = 1,
) -> tuple[Tensor, Tensor | None]:
    """See reference.attention; the result has the type of keys. They may be rows of bytes too (see ``kv_rows``): the
    result is bfloat16 then, for the passes of ``attends_rows``.

    length may be an int32 tensor [1] on the device; then mass covers all C // chunk_size chunks, zero where there is
    none yet. Passes of more than 64 rows without a mask, and shapes these kernels are not made for, go to torch's own
    attention."""
    n, num_heads, dim = queries.shape
    heads, _, width = keys.shape
    prefill = n > MAX_ROWS and staged_mask is None
    if prefill or dim not in HEAD_DIMS or not (keys.is_contiguous() and values.is_contiguous()):
        assert isinstance(length, int) and width == dim, "lengths on the device, and rows of bytes: up to 64 rows"
        return torch_ops.attention(queries, keys, values, length, staged_mask, mass_rows, chunk_size)
    group, few = num_heads // heads, 0
    if staged_mask is None and triton_narrow.takes(dim, width, keys.device):
        few = triton_narrow.rows_of(n * group)
    if few and not _narrow_is_right(heads, group, keys.device):
        few = 0
    return _attention(queries, keys, values, length, staged_mask, mass_rows, chunk_size, few)


def _attention(queries: Tensor, keys: Tensor, values: Tensor, length: int | Tensor, staged_mask: Tensor | None,
               mass_rows: int, chunk_size: int, few: int) -> tuple[Tensor, Tensor | None]:
    """few: rows of a program of ``triton_narrow``; 0: not by that."""
    n, num_heads, dim = queries.shape
    heads, capacity, width = keys.shape
    group = num_heads // heads
    rows = n * group
    tiles = Tiles.choose(keys.dtype, keys.device)
    on_device = isinstance(length, Tensor)
    reach = capacity if isinstance(length, Tensor) else length
    blocks = triton.cdiv(reach, tiles.slots)
    splits = tiles.splits(keys.device, heads)
    queries = queries if queries.stride(2) == 1 and queries.stride(1) == dim else queries.contiguous()
    mask = None if staged_mask is None else staged_mask.to(keys.device).contiguous().view(torch.int8)
    mass_rows = min(n, mass_rows)
    watched = mass_rows * group
    granule = min(tiles.slots, chunk_size & -chunk_size)
    new = keys.new_empty
    mixed = new((splits, heads, rows, dim), dtype=torch.float32)
    spans = new((splits, heads, rows), dtype=torch.float32)
    sums = maxima = totals = None
    if watched:
        small = torch.float32 if keys.dtype == torch.float32 else torch.float16
        sums = new((heads, blocks, watched, tiles.slots // granule), dtype=small)
        maxima = new((heads, blocks, watched), dtype=torch.float32)
        totals = new((heads, watched), dtype=torch.float32)
    kernel, options = (triton_narrow.attend, triton_narrow.options(few)) if few else (
        _attend, {"PRECISION": "ieee" if keys.dtype == torch.float32 else "tf32",
                  "PAIRED": triton_narrow.takes(dim, width, keys.device)})
    kernel[(triton.cdiv(rows, few or tiles.rows), heads, splits)](
        queries, keys, values, mask, mixed, spans, sums, maxima, length, capacity, blocks, queries.stride(0),
        dim**-0.5 * 1.4426950408889634, n, n if mask is None else mask.shape[1], watched,
        GROUP=group, DIM=dim, ROWS=few or tiles.rows, SLOTS=tiles.slots, STAGES=tiles.stages, WATCH=watched > 0,
        GRANULE=granule, WIDTH=width, STEP=tiles.step(splits), ON_DEVICE=on_device, TREE=mask is not None,
        **options, **early(keys.device), num_warps=tiles.warps)
    out = new((n, num_heads * dim), dtype=number_type(keys, dim))
    _merge[(rows, heads)](mixed, spans, out, totals, splits, watched, GROUP=group, DIM=dim, WATCH=watched > 0,
                          PARTS=triton.next_power_of_2(splits), **early(keys.device), num_warps=4)
    if sums is None or maxima is None or totals is None:
        return out, None
    chunks = (capacity if on_device else reach - n) // chunk_size
    return out, _chunk_mass(sums, maxima, totals, length, n, chunks, chunk_size, granule)


@lru_cache(maxsize=64)
def _narrow_is_right(heads: int, group: int, device: torch.device) -> bool:
    """Return whether ``triton_narrow`` gives the bits of the kernel for more rows here: another card, or another
    release of Triton, might add up otherwise. Once a process, with the kernels that answers need."""
    g = torch.Generator().manual_seed(0)
    dim, capacity, chunk = 128, 1024, 8
    keys, values = (to_rows(torch.randn(heads, capacity, dim, generator=g), 8).to(device) for _ in range(2))
    length = torch.tensor([capacity - 37], dtype=torch.int32, device=device)
    for n in {1, max(1, triton_narrow.MOST // group)}:
        queries = torch.randn(n, heads * group, dim, generator=g).bfloat16().to(device)
        few = triton_narrow.rows_of(n * group)
        for mass_rows in (0, n):
            (found, mass), (expected, other) = (
                _attention(queries, keys, values, length, None, mass_rows, chunk, rows) for rows in (few, 0))
            if not torch.equal(found, expected):
                return False
            if mass is not None and other is not None and not torch.allclose(mass, other, rtol=1e-2, atol=1e-4):
                return False
    return True


def _chunk_mass(sums: Tensor, maxima: Tensor, totals: Tensor, length: int | Tensor, n: int, chunks: int,
                chunk_size: int, granule: int) -> Tensor:
    """Mass [H, chunks] from what the first kernel has left of a pass of n tokens."""
    heads, blocks, watched, granules = sums.shape
    per_chunk = chunk_size // granule
    mass = totals.new_empty((heads, chunks * per_chunk))
    if chunks:
        together = max(1, 32 // granules)
        _mass[(triton.cdiv(blocks, together), heads)](
            sums, maxima, totals, mass, length, n, blocks, chunks * per_chunk, per_chunk, watched,
            SLOTS=granules * granule, GRANULE=granule, BLOCKS=together,
            ROWS=min(32, max(8, triton.next_power_of_2(watched))), ON_DEVICE=isinstance(length, Tensor),
            **early(sums.device), num_warps=4)
    return mass if per_chunk == 1 else mass.view(heads, chunks, per_chunk).sum(-1)


def attends_rows(dtype: torch.dtype, rows: int = 1, masked: bool = False, indexed: bool = False) -> bool:
    """See Kernels."""
    return dtype == torch.bfloat16 and (rows <= MAX_ROWS or masked)


def batch_invariant_rows(length: int, heads: int, dtype: torch.dtype, device: torch.device) -> int:
    """Tokens behind ``length`` cached ones whose rows are the same bits in one pass as in passes of their own."""
    tiles = Tiles.choose(dtype, device)
    return min(MAX_ROWS, tiles.alike(length, tiles.splits(device, heads)))


@triton.jit(do_not_specialize=["length", "capacity", "num_blocks", "tokens", "tail_size", "watched"])
def _attend(queries, keys, values, mask, mixed, spans, sums, maxima, length, capacity, num_blocks, query_stride,
            scale, tokens, tail_size, watched, GROUP: tl.constexpr, DIM: tl.constexpr, ROWS: tl.constexpr,
            SLOTS: tl.constexpr, STAGES: tl.constexpr, WATCH: tl.constexpr, GRANULE: tl.constexpr, WIDTH: tl.constexpr,
            STEP: tl.constexpr, ON_DEVICE: tl.constexpr, TREE: tl.constexpr, PRECISION: tl.constexpr,
            PAIRED: tl.constexpr, EARLY: tl.constexpr):
    """One row tile, one KV head, one part of the slots -> mixed [S, H, n G, D], spans (log2-sum-exp2) [S, H, n G].
    PAIRED: with the same bits as ``triton_narrow`` (tensor cores add 16 products up at once)."""
    wait(EARLY)
    head, part = tl.program_id(1), tl.program_id(2)
    filled = tl.load(length) if ON_DEVICE else length
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    dims = tl.arange(0, DIM)
    count = tokens * GROUP
    token = rows // GROUP
    at = token * query_stride + (head * GROUP + rows % GROUP) * DIM
    asked = dims // 4 % 4 * (DIM // 4) + dims // 16 * 4 + dims % 4 if PAIRED else dims
    query = tl.load(queries + at[:, None] + asked[None, :], mask=rows[:, None] < count, other=0.0)
    query = query.to(keys.dtype.element_ty if WIDTH == DIM else tl.bfloat16)
    keys += head.to(tl.int64) * capacity * WIDTH
    values += head.to(tl.int64) * capacity * WIDTH

    first, plain, stop = part_of(filled, tail_size, SLOTS, STEP)
    tail = filled - tail_size  # the first slot that not all rows may see
    top = tl.full((ROWS,), float("-inf"), tl.float32)
    total = tl.zeros((ROWS, SLOTS) if PAIRED else (ROWS,), tl.float32)
    acc = tl.zeros((ROWS, DIM), tl.float32)
    for block in tl.range(first, plain, num_stages=STAGES):
        top, total, acc = _block(block, query, top, total, acc, keys, values, mask, sums, maxima, filled, tail, rows,
                                 token, head, num_blocks, scale, tail_size, watched, count, DIM, SLOTS, WATCH,
                                 GRANULE, WIDTH, False, TREE, PRECISION, PAIRED)
    for block in tl.range(plain, stop, num_stages=1):
        top, total, acc = _block(block, query, top, total, acc, keys, values, mask, sums, maxima, filled, tail, rows,
                                 token, head, num_blocks, scale, tail_size, watched, count, DIM, SLOTS, WATCH,
                                 GRANULE, WIDTH, True, TREE, PRECISION, PAIRED)
    if PAIRED:
        total = added_in_pairs(total)
    seen = total > 0.0  # a row may see nothing of a part
    to = (part * tl.num_programs(1) + head) * count + rows
    span = tl.fma(top, scale, tl.log2(tl.where(seen, total, 1.0)))
    tl.store(spans + to, tl.where(seen, span, float("-inf")), mask=rows < count)
    tl.store(mixed + to[:, None] * DIM + dims[None, :], acc / tl.where(seen, total, 1.0)[:, None],
             mask=rows[:, None] < count)


@triton.jit
def _block(block, query, top, total, acc, keys, values, mask, sums, maxima, filled, tail, rows, token, head, num_blocks,
           scale, tail_size, watched, count, DIM: tl.constexpr, SLOTS: tl.constexpr, WATCH: tl.constexpr,
           GRANULE: tl.constexpr, WIDTH: tl.constexpr, EDGE: tl.constexpr, TREE: tl.constexpr,
           PRECISION: tl.constexpr, PAIRED: tl.constexpr):
    """SLOTS slots folded into the running (top, total, acc). EDGE: staged or unfilled slots are among them."""
    slots = block * SLOTS + tl.arange(0, SLOTS)
    key = load_tile(keys, slots, slots < filled, DIM, WIDTH, EDGE)
    if PAIRED:
        key = tl.reshape(tl.permute(tl.reshape(key, (SLOTS, 4, DIM // 16, 4)), (0, 2, 1, 3)), (SLOTS, DIM))
    scores = tl.dot(query, tl.trans(key), input_precision=PRECISION)
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
    shift = base * scale
    probs = tl.exp2(tl.fma(scores, scale, -shift[:, None]))
    fade = tl.exp2((top - base) * scale)
    if WATCH:
        row = rows - (count - watched)
        inside_watch = (row >= 0) & (rows < count)
        parts: tl.constexpr = SLOTS // GRANULE
        found = tl.sum(tl.reshape(probs, (probs.shape[0], parts, GRANULE)), 2)
        to = (head * num_blocks + block) * watched + row
        tl.store(sums + to[:, None] * parts + tl.arange(0, parts)[None, :], found, mask=inside_watch[:, None])
        tl.store(maxima + to, shift, mask=inside_watch)
    value = load_tile(values, slots, slots < filled, DIM, WIDTH, EDGE)
    acc = tl.dot(probs.to(value.dtype), value, acc * fade[:, None], input_precision=PRECISION)
    total = tl.fma(total, fade[:, None], probs) if PAIRED else tl.fma(total, fade, tl.sum(probs, 1))
    return highest, total, acc


@triton.jit(do_not_specialize=["parts", "watched"])
def _merge(mixed, spans, out, totals, parts, watched, GROUP: tl.constexpr, DIM: tl.constexpr, WATCH: tl.constexpr,
           PARTS: tl.constexpr, EARLY: tl.constexpr):
    """One row of one head: its S parts, weighted by their share of the whole sum, -> out [n, H * G, D]."""
    follow(EARLY)
    row, head = tl.program_id(0), tl.program_id(1)
    count, heads = tl.num_programs(0), tl.num_programs(1)
    part, dims = tl.arange(0, PARTS), tl.arange(0, DIM)
    at = (part * heads + head) * count + row
    span = tl.load(spans + at, mask=part < parts, other=float("-inf"))
    top = tl.max(span, 0)
    weight = tl.exp2(span - top)
    whole = tl.sum(weight, 0)
    some = tl.load(mixed + at[:, None] * DIM + dims[None, :], mask=part[:, None] < parts, other=0.0)
    result = tl.sum(some * weight[:, None], 0) / whole
    to = (row // GROUP) * heads * GROUP + head * GROUP + row % GROUP
    tl.store(out + to * DIM + dims, result)
    if WATCH:
        if row >= count - watched:
            tl.store(totals + head * watched + row - (count - watched), top + tl.log2(whole))


@triton.jit(do_not_specialize=["length", "tokens", "num_blocks", "granules", "per_chunk", "watched"])
def _mass(sums, maxima, totals, mass, length, tokens, num_blocks, granules, per_chunk, watched, SLOTS: tl.constexpr,
          GRANULE: tl.constexpr, BLOCKS: tl.constexpr, ROWS: tl.constexpr, ON_DEVICE: tl.constexpr,
          EARLY: tl.constexpr):
    """BLOCKS blocks of one head: probabilities summed over rows -> mass [H, granules], zero beyond the whole chunks."""
    follow(EARLY)
    head = tl.program_id(1)
    parts: tl.constexpr = SLOTS // GRANULE
    filled = tl.load(length) if ON_DEVICE else length
    block, part = tl.program_id(0) * BLOCKS + tl.arange(0, BLOCKS), tl.arange(0, parts)
    known = block * SLOTS < filled
    found = tl.zeros((BLOCKS, parts), tl.float32)
    for start in range(0, watched, ROWS):
        row = start + tl.arange(0, ROWS)
        at = (head * num_blocks + block[:, None]) * watched + row[None, :]
        real = known[:, None] & (row < watched)[None, :]
        top = tl.load(maxima + at, mask=real, other=float("-inf"))
        share = tl.exp2(top - tl.load(totals + head * watched + row, mask=row < watched, other=0.0)[None, :])
        some = tl.load(sums + at[:, :, None] * parts + part[None, None, :], mask=real[:, :, None], other=0.0)
        found += tl.sum(some.to(tl.float32) * share[:, :, None], 1)
    to = block[:, None] * parts + part[None, :]
    whole = (filled - tokens) // GRANULE // per_chunk * per_chunk
    tl.store(mass + head * granules + to, tl.where(to < whole, found, 0.0), mask=to < granules)
