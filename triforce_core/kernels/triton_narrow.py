"""Attention of few query rows over keys and values in 8 bits (see ``kv_rows``), in Triton, for Hopper: keys and values
are the first operand of the tensor cores' products, rows of queries the second.

Few rows cost what unpacking costs. Bytes become bfloat16 in the registers from which they are multiplied; in
``triton_attention``, where they are the second operand, they go through shared memory once more, and a program waits
for each step of that. Parts, packed rows, merging and letters are those of ``triton_attention``; so are the bits of
every result on Hopper, whose tensor cores add 16 products up at once: rows of a pass of any width are alike.

What a thread of a warp needs (PTX ISA, "Register Fragments for wgmma.mma_async.m64nNk16") decides where numbers go. M
index m is (repeat, w 4, h 2, g 8), K index k is (s, hi 2, t 4, lo 2), of which thread (g, t) of warp w holds all of
repeat, h, s, hi, lo. In which order slots and features come is free:

- keys: m is slot (w, g, h), k is feature (t, s, hi, lo): a thread reads words of its own quarter of a key;
- values: m is feature (w, g, repeat, h), k is slot (s, t, lo, hi): a thread reads words of four features, and takes
  those of two slots apart together.

Copied to shared memory in the order in which threads of a warp read, words are read without bank conflicts.

Measured on an H200, 124,928 tokens, one layer, torch 2.11, 26 November 2026, us, in brackets with mass: one new token
over 8 KV heads with 4 query heads each 91 (101), eight 120 (145); before, by the other kernel, 137 (143) and 132 (149).
One over 32 heads 319 (355), before 495 (575).
"""

from __future__ import annotations

from typing import Any

import torch
import triton  # type: ignore[import-not-found, import-untyped]
import triton.language as tl  # type: ignore[import-not-found, import-untyped]

from .triton_launch import is_hopper, wait
from .triton_parts import added_in_pairs, part_of
from .triton_rows import TIMES

_LEAST, MOST = 16, 32  # query rows of a program; with 64 it has no registers left
_DIM = 128  # features of a head, for which threads hold what they multiply


def takes(dim: int, width: int, device: torch.device) -> bool:
    """Return whether it is for such rows of bytes here, if there are few."""
    return dim == _DIM and width > dim and is_hopper(device)


def rows_of(rows: int) -> int:
    """Query rows of a program for n * G rows of a chain; 0: they are too many. (Trees go without: for a pass with a
    mask Triton 3.6 chooses a layout in which mass is summed over lanes that are no neighbours, and takes neighbours.)
    """
    return max(_LEAST, triton.next_power_of_2(rows)) if rows <= MOST else 0


def options(rows: int) -> dict[str, Any]:
    """Return options of a launch: four programs of the fewest rows share a multiprocessor."""
    return {"maxnreg": 128} if rows == _LEAST else {}


@triton.jit(do_not_specialize=["length", "capacity", "num_blocks", "tokens", "tail_size", "watched"])
def attend(queries, keys, values, mask, mixed, spans, sums, maxima, length, capacity, num_blocks, query_stride,
           scale, tokens, tail_size, watched, GROUP: tl.constexpr, DIM: tl.constexpr, ROWS: tl.constexpr,
           SLOTS: tl.constexpr, STAGES: tl.constexpr, WATCH: tl.constexpr, GRANULE: tl.constexpr, WIDTH: tl.constexpr,
           STEP: tl.constexpr, ON_DEVICE: tl.constexpr, TREE: tl.constexpr, EARLY: tl.constexpr):
    """Compute what ``triton_attention._attend`` does, of a chain: no mask, TREE False."""
    wait(EARLY)
    head, part = tl.program_id(1), tl.program_id(2)
    filled = tl.load(length) if ON_DEVICE else length
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    k = tl.arange(0, DIM)
    asked = k // 2 % 4 * (DIM // 4) + k // 16 * 4 + k // 8 % 2 * 2 + k % 2
    count = tokens * GROUP
    token = rows // GROUP
    at = token * query_stride + (head * GROUP + rows % GROUP) * DIM
    query = tl.load(queries + at[None, :] + asked[:, None], mask=rows[None, :] < count, other=0.0).to(tl.bfloat16)
    keys += head.to(tl.int64) * capacity * WIDTH
    values += head.to(tl.int64) * capacity * WIDTH

    first, plain, stop = part_of(filled, tail_size, SLOTS, STEP)
    tail = filled - tail_size  # the first slot that not all rows may see
    top = tl.full((ROWS,), float("-inf"), tl.float32)
    total = tl.zeros((SLOTS, ROWS), tl.float32)
    acc = tl.zeros((DIM, ROWS), tl.float32)
    for block in tl.range(first, plain, num_stages=STAGES):
        top, total, acc = _block(block, query, top, total, acc, keys, values, sums, maxima, filled, tail, rows, token,
                                 head, num_blocks, scale, watched, count, DIM, SLOTS, WATCH, GRANULE, WIDTH, False)
    for block in tl.range(plain, stop, num_stages=1):
        top, total, acc = _block(block, query, top, total, acc, keys, values, sums, maxima, filled, tail, rows, token,
                                 head, num_blocks, scale, watched, count, DIM, SLOTS, WATCH, GRANULE, WIDTH, True)
    whole = added_in_pairs(tl.trans(_by_slot(total)))
    seen = whole > 0.0  # a row may see nothing of a part
    to = (part * tl.num_programs(1) + head) * count + rows
    span = tl.fma(top, scale, tl.log2(tl.where(seen, whole, 1.0)))
    tl.store(spans + to, tl.where(seen, span, float("-inf")), mask=rows < count)
    m = tl.arange(0, DIM)
    feature = m // 16 % 4 * (DIM // 4) + m % 8 * (DIM // 32) + m // 64 * 2 + m // 8 % 2
    tl.store(mixed + to[None, :] * DIM + feature[:, None], acc / tl.where(seen, whole, 1.0)[None, :],
             mask=rows[None, :] < count)


@triton.jit
def _block(block, query, top, total, acc, keys, values, sums, maxima, filled, tail, rows, token, head, num_blocks,
           scale, watched, count, DIM: tl.constexpr, SLOTS: tl.constexpr, WATCH: tl.constexpr, GRANULE: tl.constexpr,
           WIDTH: tl.constexpr, EDGE: tl.constexpr):
    """SLOTS slots folded into the running (top, total, acc). EDGE: staged or unfilled slots are among them."""
    start = block * SLOTS
    scores = tl.dot(_keys(keys, start, filled, SLOTS, DIM, WIDTH, EDGE), query)
    if EDGE:
        staged = start + _slot(SLOTS) - tail
        scores = tl.where(staged[:, None] <= token[None, :], scores, float("-inf"))
    highest = tl.maximum(top, tl.max(scores, 0))
    base = tl.where(highest == float("-inf"), 0.0, highest) if EDGE else highest
    shift = base * scale
    probs = tl.exp2(tl.fma(scores, scale, -shift[None, :]))
    fade = tl.exp2((top - base) * scale)
    if WATCH:
        row = rows - (count - watched)
        inside_watch = (row >= 0) & (rows < count)
        parts: tl.constexpr = SLOTS // GRANULE
        found = tl.sum(tl.reshape(_by_slot(probs), (parts, GRANULE, probs.shape[1])), 1)
        to = (head * num_blocks + block) * watched + row
        tl.store(sums + to[None, :] * parts + tl.arange(0, parts)[:, None], found, mask=inside_watch[None, :])
        tl.store(maxima + to, shift, mask=inside_watch)
    value = _values(values, start, filled, SLOTS, DIM, WIDTH, EDGE)
    acc = tl.dot(value, probs.to(tl.bfloat16), acc * fade[None, :])
    return highest, tl.fma(total, fade[None, :], probs), acc


@triton.jit
def _slot(SLOTS: tl.constexpr):
    """Return the slot of each row (w, h, g) of scores: (w, g, h)."""
    m = tl.arange(0, SLOTS)
    return m // 16 * 16 + m % 8 * 2 + m // 8 % 2


@triton.jit
def _by_slot(x):
    """Rows (w, h, g) in the order of slots; none moves to another thread."""
    x = tl.reshape(x, (x.shape[0] // 16, 2, 8, x.shape[1]))
    return tl.reshape(tl.permute(x, (0, 2, 1, 3)), (x.shape[0] * 16, x.shape[3]))


@triton.jit
def _keys(at, start, filled, SLOTS: tl.constexpr, DIM: tl.constexpr, WIDTH: tl.constexpr, MASKED: tl.constexpr):
    """Keys from slot ``start`` on: bf16 [SLOTS (w, h, g), DIM (s, hi, t, lo)]. MASKED: zeros behind ``filled``."""
    HALF: tl.constexpr = DIM // 64  # sixteen bytes of a thread's quarter
    # Two slots lie together: (w, g's high bits, h), (half, g's low bit, t, word).
    row, column = tl.arange(0, SLOTS // 2)[:, None], tl.arange(0, DIM // 2)[None, :]
    slot = start + row // 2 * 4 + row % 2 + column // 16 % 2 * 2
    word = column // 4 % 4 * (4 * HALF) + column // 32 * 4 + column % 4
    words = _load(at.to(tl.pointer_type(tl.int32)), slot * (WIDTH // 4) + word, slot < filled, MASKED)
    words = tl.permute(tl.reshape(words, (SLOTS // 16, 4, 2, HALF, 2, 4, 4)), (0, 2, 1, 4, 5, 3, 6))
    slot = start + _slot(SLOTS)
    scale = _scales(at, slot, filled, DIM, WIDTH, MASKED)
    scale |= scale << 16
    scale = scale[:, :, None]
    first, second = tl.inline_asm_elementwise(TIMES, "=&r,=&r,r,r,r",
                                              [tl.reshape(words, (SLOTS, DIM // 32, 8)), scale, scale],
                                              dtype=(tl.int32, tl.int32), is_pure=True, pack=1)
    both = tl.reshape(tl.join(_pair(first), _pair(second)), (SLOTS, 4, DIM // 16, 2, 2))  # t, s, lo, hi
    return tl.reshape(tl.permute(both, (0, 2, 4, 1, 3)), (SLOTS, DIM))


@triton.jit
def _values(at, start, filled, SLOTS: tl.constexpr, DIM: tl.constexpr, WIDTH: tl.constexpr, MASKED: tl.constexpr):
    """Read values as ``_keys`` reads keys: bf16 [DIM (repeat, w, h, g), SLOTS (s, hi, t, lo)]."""
    GROUPS: tl.constexpr = DIM // 32
    # Four slots lie together: (s, lo, hi), (w, t, g).
    row, column = tl.arange(0, SLOTS // 4)[:, None], tl.arange(0, DIM)[None, :]
    slot = start + row // 4 * 16 + row % 4 + column // 8 % 4 * 4
    word = column // 32 * 8 + column % 8
    words = _load(at.to(tl.pointer_type(tl.int32)), slot * (WIDTH // 4) + word, slot < filled, MASKED)
    words = tl.permute(tl.reshape(words, (SLOTS // 16, 2, 2, GROUPS, 4, 8)), (0, 2, 4, 3, 5, 1))  # s, hi, t, w, g, lo
    even, odd = tl.split(tl.reshape(words, (SLOTS // 2, GROUPS, 8, 2)))
    scale = _scales(at, start + tl.arange(0, SLOTS), filled, DIM, WIDTH, MASKED)  # s, t, lo, hi
    scale = tl.permute(tl.reshape(scale, (SLOTS // 16, 4, 2, 2, GROUPS)), (0, 3, 1, 4, 2))
    first, second = tl.split(tl.reshape(scale, (SLOTS // 2, GROUPS, 2)))
    both = (first | second << 16)[:, :, None]
    a, b, c, d = tl.inline_asm_elementwise(_ACROSS, "=&r,=&r,=&r,=&r,r,r,r", [even, odd, both],
                                           dtype=(tl.int32, tl.int32, tl.int32, tl.int32), is_pure=True, pack=1)
    all_four = tl.join(tl.join(_pair(a), _pair(b)), tl.join(_pair(c), _pair(d)))  # (s, hi, t), w, g, lo, h, repeat
    return tl.reshape(tl.permute(all_four, (5, 1, 4, 2, 0, 3)), (DIM, SLOTS))


@triton.jit
def _scales(at, slot, filled, DIM: tl.constexpr, WIDTH: tl.constexpr, MASKED: tl.constexpr):
    """[slots, DIM / 32], each a bfloat16's bits in an int32."""
    where = slot[:, None] * (WIDTH // 2) + DIM // 2 + tl.arange(0, DIM // 32)[None, :]
    return _load(at.to(tl.pointer_type(tl.int16)), where, (slot < filled)[:, None], MASKED).to(tl.int32) & 0xFFFF


@triton.jit
def _load(at, where, real, MASKED: tl.constexpr):
    if MASKED:
        found = tl.load(at + where, mask=real, other=0)
    else:
        found = tl.load(at + where)
    return found


@triton.jit
def _pair(both):
    """int32 -> its halves, bfloat16 [..., 2], the low one first: a thread has both in one register."""
    low = (both & 0xFFFF).to(tl.int16).to(tl.bfloat16, bitcast=True)
    return tl.join(low, (both >> 16).to(tl.int16).to(tl.bfloat16, bitcast=True))


def _across() -> str:
    """Four steps of one slot, $4, and of the next, $5, times their scales, the halves of $6: as ``TIMES``, but bytes
    of two words become a pair."""
    lines = ["{", ".reg .b32 a, b, one, none;", "mov.b32 one, 0x3F803F80;", "mov.b32 none, 0x80008000;"]
    for byte in range(4):
        lines += [f"prmt.b32 a, $4, $5, 0x0{4 + byte}0{byte};",
                  "lop3.b32 b, a, 0x00800080, 0xC300C300, 0xEA;",
                  "lop3.b32 a, a, 0x007F007F, 0x43004300, 0xEA;",
                  "fma.rn.bf16x2 a, a, one, b;",
                  f"fma.rn.bf16x2 ${byte}, a, $6, none;"]
    return "\n".join([*lines, "}"])


_ACROSS = tl.constexpr(_across())
