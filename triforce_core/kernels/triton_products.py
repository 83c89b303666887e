"""Kernels of ``triton_linear``: products of few rows with weights in 8 or 4 bits, what comes next to their sums, and
weights unpacked. Letters as there.
"""

# mypy: disable-error-code="assignment"
# Tuples grow in kernels, by one tensor for each eight rows.

from __future__ import annotations

import triton  # type: ignore[import-not-found, import-untyped]
import triton.language as tl  # type: ignore[import-not-found, import-untyped]

from .triton_launch import ASM, lead, wait
from .triton_rows import APART


@triton.jit
def _nibbles(packed):
    """Bytes -> 128 + low half, 128 + high half, as bf16: there a half is in the last bits."""
    if ASM:  # called impure, so that compilers do not order x as they would for bytes, in fours
        low, high = tl.inline_asm_elementwise(
            """{
            .reg .b32 a, b, c, d;
            prmt.b32 a, $4, 0, 0x4140;
            prmt.b32 b, $4, 0, 0x4342;
            shr.u32 c, a, 4;
            shr.u32 d, b, 4;
            lop3.b32 $0, a, 0x000F000F, 0x43004300, 0xEA;
            lop3.b32 $1, b, 0x000F000F, 0x43004300, 0xEA;
            lop3.b32 $2, c, 0x000F000F, 0x43004300, 0xEA;
            lop3.b32 $3, d, 0x000F000F, 0x43004300, 0xEA;
            }""", "=&r,=&r,=&r,=&r,r", [packed], dtype=(tl.bfloat16, tl.bfloat16), is_pure=False, pack=4)
    else:
        low, high = (packed & 15).to(tl.float32) + 128.0, (packed >> 4).to(tl.float32) + 128.0
        low, high = low.to(tl.bfloat16), high.to(tl.bfloat16)
    return low, high


_BYTES = tl.constexpr(f"""{{
            .reg .b32 a, b, c, d, one;
            mov.b32 one, 0x3F803F80;{APART}
            fma.rn.bf16x2 $0, c, one, a;
            fma.rn.bf16x2 $1, d, one, b;
            }}""")


@triton.jit
def _bytes(steps):
    """int8 -> bf16."""
    if ASM:  # as above
        numbers = tl.inline_asm_elementwise(_BYTES, "=&r,=&r,r", [steps], dtype=tl.bfloat16, is_pure=False, pack=4)
    else:
        numbers = steps.to(tl.bfloat16)
    return numbers


@triton.jit
def _in_order(outs, pair):
    """Which outputs lie at these places, where those used in pairs lie side by side."""
    return outs // 2 // pair * 2 * pair + outs % 2 * pair + outs // 2 % pair


@triton.jit
def unpack(weights, scales, offsets, subs, out, units, pair, BLOCK: tl.constexpr, BITS: tl.constexpr,
            SHARE: tl.constexpr, ABOVE: tl.constexpr, PAIRED: tl.constexpr):
    """One unit of BLOCK outputs; see QuantizedLinear for the order of weights, scales."""
    HELD: tl.constexpr = 512 // BITS  # inputs of a unit
    block, unit = tl.program_id(0), tl.program_id(1)
    column, at = tl.arange(0, BLOCK), tl.arange(0, 64)
    weights += (block.to(tl.int64) * units + unit) * BLOCK * 64
    some = _in_rows(tl.load(weights + column[:, None] * 64 + at[None, :]), BLOCK)
    outs = block * BLOCK + column
    to = _in_order(outs, pair) if PAIRED else outs
    out += to.to(tl.int64)[:, None] * units * HELD + unit * HELD + at[None, :]
    first = (block * units + unit) * HELD
    if BITS == 4:
        less: tl.constexpr = 8 if offsets is None else 0
        low, high = (some & 15).to(tl.float32) - less, (some >> 4).to(tl.float32) - less
        tl.store(out, _number(low, scales, offsets, subs, first, column, HELD, SHARE, ABOVE, BLOCK))
        tl.store(out + 64, _number(high, scales, offsets, subs, first + 64, column, HELD, SHARE, ABOVE, BLOCK))
    elif SHARE == 0:
        tl.store(out, some.to(tl.float32) * tl.load(scales + outs)[:, None])
    else:
        tl.store(out, _number(some.to(tl.float32), scales, offsets, subs, first, column, HELD, SHARE, ABOVE, BLOCK))


@triton.jit
def _number(steps, scales, offsets, subs, first, column, HELD: tl.constexpr, SHARE: tl.constexpr, ABOVE: tl.constexpr,
            BLOCK: tl.constexpr):
    """Return the numbers of steps [BLOCK, 64], whose inputs are those from ``first`` on, counted over all blocks."""
    RUNS: tl.constexpr = 64 // SHARE if SHARE < 64 else 1
    group = first // SHARE + tl.arange(0, RUNS)
    at = (group // ABOVE * BLOCK)[None, :] + column[:, None]
    scale = tl.load(scales + at)
    if subs is not None:
        scale *= _subs_of(subs, group, 0, column, HELD // SHARE, offsets is not None, BLOCK)
    numbers = tl.reshape(steps, (BLOCK, RUNS, 64 // RUNS)) * scale[:, :, None]
    if offsets is not None:
        offset = tl.load(offsets + at)
        if subs is not None:
            offset *= _subs_of(subs, group, HELD // SHARE, column, HELD // SHARE, True, BLOCK)
        numbers += offset[:, :, None]
    return tl.reshape(numbers, (BLOCK, 64))


@triton.jit
def _subs_of(subs, group, BEHIND: tl.constexpr, column, GROUPS: tl.constexpr, BOTH: tl.constexpr, BLOCK: tl.constexpr):
    """Subscales of groups, or what is BEHIND them, as fp32 [BLOCK, groups]; see ``_words``."""
    count: tl.constexpr = (GROUPS * (2 if BOTH else 1) + 3) // 4
    which = group % GROUPS + BEHIND
    at = (group // GROUPS * count + which // 4)[None, :] * BLOCK + column[:, None]
    return (tl.load(subs + at) << (24 - which % 4 * 8)[None, :] >> 24).to(tl.float32)


@triton.jit
def _words(subs, unit, column, GROUPS: tl.constexpr, BOTH: tl.constexpr, BLOCK: tl.constexpr):
    """A unit's subscales and, if BOTH, suboffsets behind them: int8, by fours in words [BLOCK]."""
    words = ()
    if subs is not None:
        count: tl.constexpr = (GROUPS * (2 if BOTH else 1) + 3) // 4
        for word in tl.static_range(count):
            words += (tl.load(subs + (unit * count + word) * BLOCK + column),)
    return words


@triton.jit
def _sub(words, AT: tl.constexpr):
    """One of the int8 in words, as fp32."""
    return (words[AT // 4] << (24 - AT % 4 * 8) >> 24).to(tl.float32)


@triton.jit
def _of_group(scales, offsets, words, unit, WHICH: tl.constexpr, column, HELD: tl.constexpr, SHARE: tl.constexpr,
              ABOVE: tl.constexpr, BLOCK: tl.constexpr):
    """Scale and offset (0: none) of a unit's group, [BLOCK, 1]: its own, or a super-block's times its own."""
    # A unit lies within one super-block, whose scale is loaded once.
    at = (unit * HELD // SHARE + WHICH if len(words) == 0 else unit * HELD // (SHARE * ABOVE)) * BLOCK + column
    scale, offset = tl.load(scales + at)[:, None], 0.0
    if offsets is not None:
        offset = tl.load(offsets + at)[:, None]
    if len(words) > 0:
        scale *= _sub(words, WHICH)[:, None]
        if offsets is not None:
            offset *= _sub(words, HELD // SHARE + WHICH)[:, None]
    return scale, offset


@triton.jit
def is_last(ticket, PARTS: tl.constexpr):
    """Return whether all PARTS programs have stored their sums; then the ticket is as new."""
    tl.debug_barrier()  # all threads' sums are written before one thread says so
    last = tl.atomic_add(ticket, 1, sem="acq_rel") == PARTS - 1
    if last:
        tl.store(ticket, 0)
    return last


@triton.jit
def add_up(partial, to, real, size, PARTS: tl.constexpr):
    """All parts' sums, in fixed order."""
    acc = tl.zeros(to.shape, tl.float32)
    for other in tl.static_range(PARTS):
        acc += tl.load(partial + other * size + to, mask=real, other=0.0, cache_modifier=".cg")
    return acc


@triton.jit
def _in_rows(unit, BLOCK: tl.constexpr):
    """A unit's numbers as they lie -> [outputs, inputs], see ``_in_fragments``; none moves to another thread."""
    unit = tl.reshape(unit, (BLOCK // 64, 2, 4, 8, 4, 4, 2, 2))
    return tl.reshape(tl.permute(unit, (0, 2, 1, 3, 5, 6, 4, 7)), (BLOCK, 64))


@triton.jit
def _halves(numbers):
    """[outputs, inputs] -> of the first half of the inputs, of the second."""
    both = tl.reshape(numbers, (numbers.shape[0], 2, numbers.shape[1] // 2))
    return tl.split(tl.permute(both, (0, 2, 1)))


@triton.jit
def _rows(x, rows, inputs, INPUTS: tl.constexpr, FROM: tl.constexpr, TO: tl.constexpr, TILES: tl.constexpr):
    """TILES times eight rows of x, INPUTS of each from where x points, zeros but FROM to TO: [INPUTS, 8]."""
    tiles = ()
    at = tl.arange(0, INPUTS)
    for tile in tl.static_range(TILES):
        row = tile * 8 + tl.arange(0, 8)
        real = row[:, None] < rows
        if FROM > 0 or TO < INPUTS:
            real = real & ((at >= FROM) & (at < TO))[None, :]
        tiles += (tl.trans(tl.load(x + row[:, None] * inputs + at[None, :], mask=real, other=0.0)),)
    return tiles


@triton.jit
def _run(accs, numbers, x, scale, offset, MORE: tl.constexpr, LESS: tl.constexpr):
    """accs, each [BLOCK, 8 rows], and numbers [BLOCK, inputs], one or two of them, times x: inputs that share a scale.
    MORE: whether there is an offset; LESS: what the numbers are too large by."""
    new = ()
    if LESS:
        offset -= LESS * scale
    for tile in tl.static_range(len(accs)):
        product = tl.dot(numbers[0], x[0][tile])
        if len(numbers) > 1:
            product = tl.dot(numbers[1], x[1][tile], product)
        acc = accs[tile] + product * scale
        if MORE or LESS:
            ones = tl.full(numbers[0].shape, 1.0, tl.float32).to(tl.bfloat16)
            total = tl.dot(ones, x[0][tile])
            if len(numbers) > 1:
                total = tl.dot(ones, x[1][tile], total)
            acc += total * offset
        new += (acc,)
    return new


@triton.jit
def _runs(accs, numbers, x, rows, inputs, scales, offsets, words, unit, WHICH: tl.constexpr, column, LESS: tl.constexpr,
          HELD: tl.constexpr, SHARE: tl.constexpr, ABOVE: tl.constexpr, BLOCK: tl.constexpr):
    """Fold in numbers, as ``_run`` does, from a unit's group WHICH on, in runs that share a scale; x from where it
    points. Groups of 16 are multiplied by twos, each with zeros for the other's inputs."""
    WIDE: tl.constexpr = numbers.shape[1]
    if WIDE > SHARE and WIDE > 32:
        left, right = _halves(numbers)
        accs = _runs(accs, left, x, rows, inputs, scales, offsets, words, unit, WHICH, column, LESS, HELD, SHARE, ABOVE,
                     BLOCK)
        accs = _runs(accs, right, x + WIDE // 2, rows, inputs, scales, offsets, words, unit, WHICH + WIDE // 2 // SHARE,
                     column, LESS, HELD, SHARE, ABOVE, BLOCK)
    else:
        LONG: tl.constexpr = WIDE if WIDE < SHARE else SHARE
        for run in tl.static_range(WIDE // LONG):
            some = _rows(x, rows, inputs, WIDE, run * LONG, run * LONG + LONG, len(accs))
            scale, offset = _of_group(scales, offsets, words, unit, WHICH + run, column, HELD, SHARE, ABOVE, BLOCK)
            accs = _run(accs, (numbers,), (some,), scale, offset, offsets is not None, LESS)
    return accs


@triton.jit
def _unit(accs, weights, x, rows, inputs, scales, offsets, subs, unit, column, TILES: tl.constexpr, BITS: tl.constexpr,
          SHARE: tl.constexpr, ABOVE: tl.constexpr, BLOCK: tl.constexpr):
    """accs and a unit's numbers times x, both from where they point. SHARE 0: without the scale."""
    HELD: tl.constexpr = 512 // BITS  # inputs of a unit
    LESS: tl.constexpr = 136 if offsets is None else 128
    words = _words(subs, unit, column, HELD // SHARE if SHARE else 0, offsets is not None, BLOCK)
    data = tl.load(weights)
    if SHARE == 0:
        new, numbers, tiles = (), _in_rows(_bytes(data), BLOCK), _rows(x, rows, inputs, 64, 0, 64, TILES)
        for tile in tl.static_range(TILES):
            new += (tl.dot(numbers, tiles[tile], accs[tile]),)
        accs = new
    elif BITS == 8:
        accs = _runs(accs, _in_rows(_bytes(data), BLOCK), x, rows, inputs, scales, offsets, words, unit, 0, column, 0,
                     HELD, SHARE, ABOVE, BLOCK)
    else:
        low, high = _nibbles(data)
        low, high = _in_rows(low, BLOCK), _in_rows(high, BLOCK)
        if SHARE == 128:
            left, right = _rows(x, rows, inputs, 64, 0, 64, TILES), _rows(x + 64, rows, inputs, 64, 0, 64, TILES)
            scale, offset = _of_group(scales, offsets, words, unit, 0, column, HELD, SHARE, ABOVE, BLOCK)
            accs = _run(accs, (low, high), (left, right), scale, offset, offsets is not None, LESS)
        else:
            accs = _runs(accs, low, x, rows, inputs, scales, offsets, words, unit, 0, column, LESS, HELD, SHARE, ABOVE,
                         BLOCK)
            accs = _runs(accs, high, x + 64, rows, inputs, scales, offsets, words, unit, 64 // SHARE, column, LESS,
                         HELD, SHARE, ABOVE, BLOCK)
    return accs


@triton.jit(do_not_specialize=["rows", "capacity"])
def product(x, weights, scales, offsets, subs, out, partial, tickets, rows, outputs, groups, pair,
             squares, sums, eps, cos, sin, keys, cache, slots, hidden, weight, found, capacity, kv_heads,
             END: tl.constexpr, SUMS: tl.constexpr, PAIRED: tl.constexpr, TILES: tl.constexpr, BLOCK: tl.constexpr,
             BITS: tl.constexpr, SHARE: tl.constexpr, ABOVE: tl.constexpr, PARTS: tl.constexpr, STAGES: tl.constexpr,
             EARLY: tl.constexpr):
    """BLOCK outputs of x [n, in] over one part of the inputs; see QuantizedLinear for the order of weights, scales."""
    block, part = tl.program_id(0), tl.program_id(1)
    UNITS: tl.constexpr = BITS // 4  # of a group
    first, stop = part * groups // PARTS * UNITS, (part + 1) * groups // PARTS * UNITS
    column, at = tl.arange(0, BLOCK), tl.arange(0, 64)
    weights += (block.to(tl.int64) * groups * UNITS + first) * (BLOCK * 64) + column[:, None] * 64 + at[None, :]
    wait(EARLY)
    inputs = groups * 128
    accs = ()
    for _ in tl.static_range(TILES):
        accs += (tl.zeros((BLOCK, 8), tl.float32),)
    for unit in tl.range(first, stop, num_stages=STAGES):
        accs = _unit(accs, weights + (unit - first) * (BLOCK * 64), x + unit * (512 // BITS), rows, inputs, scales,
                     offsets, subs, block * groups * UNITS + unit, column, TILES, BITS, SHARE, ABOVE, BLOCK)
    lead(EARLY)
    outs = block * BLOCK + column
    if SHARE == 0:
        scale = tl.load(scales + outs)[:, None]
        new = ()
        for tile in tl.static_range(TILES):
            new += (accs[tile] * scale,)
        accs = new
    if PARTS > 1 or END == "add":  # there rows' squares are added up, in the order of what comes from memory
        size = rows * outputs
        for tile in tl.static_range(TILES):
            row = tile * 8 + tl.arange(0, 8)
            tl.store(partial + part * size + outs[:, None] + row[None, :] * outputs, accs[tile],
                     mask=row[None, :] < rows)
        if is_last(tickets + block, PARTS):
            accs = _added_up(partial, outs, rows, outputs, PARTS, TILES)
            _finish(accs, out, block, rows, outputs, groups, pair, squares, sums, eps, cos, sin, keys, cache, slots,
                    hidden, weight, found, capacity, kv_heads, END, SUMS, PAIRED, BLOCK)
    else:
        _finish(accs, out, block, rows, outputs, groups, pair, squares, sums, eps, cos, sin, keys, cache, slots, hidden,
                weight, found, capacity, kv_heads, END, SUMS, PAIRED, BLOCK)


@triton.jit
def _added_up(partial, outs, rows, outputs, PARTS: tl.constexpr, TILES: tl.constexpr):
    """All parts' sums of each eight rows: [BLOCK, 8]."""
    accs = ()
    for tile in tl.static_range(TILES):
        row = tile * 8 + tl.arange(0, 8)
        accs += (add_up(partial, outs[:, None] + row[None, :] * outputs, row[None, :] < rows, rows * outputs, PARTS),)
    return accs


@triton.jit
def _finish(accs, out, block, rows, outputs, groups, pair, squares, sums, eps, cos, sin, keys, cache, slots, hidden,
            weight, found, capacity, kv_heads, END: tl.constexpr, SUMS: tl.constexpr, PAIRED: tl.constexpr,
            BLOCK: tl.constexpr):
    """Each eight rows' sums."""
    for tile in tl.static_range(len(accs)):
        _finish_rows(accs[tile], out, block, tile * 8 + tl.arange(0, 8), rows, outputs, groups, pair, squares, sums,
                     eps, cos, sin, keys, cache, slots, hidden, weight, found, capacity, kv_heads, END, SUMS, PAIRED,
                     BLOCK)


@triton.jit
def _finish_rows(acc, out, block, row, rows, outputs, groups, pair, squares, sums, eps, cos, sin, keys, cache, slots,
                 hidden, weight, found, capacity, kv_heads, END: tl.constexpr, SUMS: tl.constexpr, PAIRED: tl.constexpr,
                 BLOCK: tl.constexpr):
    """Finish whole sums [BLOCK, 8 rows]; see FusedLinear."""
    real = row[None, :] < rows
    if squares is not None:
        every = tl.arange(0, SUMS)
        some = tl.load(squares + row[:, None] * sums + every[None, :],
                       mask=(row[:, None] < rows) & (every < sums)[None, :], other=0.0)
        acc *= (1.0 / tl.sqrt_rn(tl.sum(some, 1) / (groups * 128) + eps))[None, :]
    outs = block * BLOCK + tl.arange(0, BLOCK)
    if END == "plain":
        if PAIRED:
            outs = _in_order(outs, pair)
        tl.store(out + row[None, :] * outputs + outs[:, None], acc, mask=real)
    elif END == "add":
        at = row[None, :] * outputs + outs[:, None]
        acc += tl.load(hidden + at, mask=real, other=0.0)
        tl.store(hidden + at, acc, mask=real)
        tl.store(out + at, acc * tl.load(weight + outs)[:, None], mask=real)
        tl.store(found + row * (outputs // BLOCK) + block, tl.sum(acc * acc, 0), mask=row < rows)
    else:
        one, other = tl.split(tl.permute(tl.reshape(acc, (BLOCK // 2, 2, acc.shape[1])), (0, 2, 1)))
        both = block * (BLOCK // 2) + tl.arange(0, BLOCK // 2)
        if END == "gate":
            tl.store(out + row[None, :] * pair + both[:, None], one * tl.sigmoid(one) * other, mask=real)
        else:
            _rotate(one, other, both // pair, both % pair, out, row, rows, outputs // (2 * pair), pair, cos, sin, keys,
                    cache, slots, capacity, kv_heads)


@triton.jit
def _rotate(one, other, head, dim, queries, row, rows, num_heads, half, cos, sin, keys, values, slots, capacity,
            kv_heads):
    """Both halves of pieces of heads -> rotated queries; rotated keys, and values as they are, at their slots."""
    real = row[None, :] < rows
    of_queries = num_heads - 2 * kv_heads
    key, value = head - of_queries, head - of_queries - kv_heads
    turned = real & (value < 0)[:, None]
    at = row[None, :] * 2 * half + dim[:, None]
    near, far = tl.load(cos + at, mask=turned, other=1.0), tl.load(cos + at + half, mask=turned, other=1.0)
    left = one * near + other * tl.load(sin + at, mask=turned, other=0.0)
    right = other * far + one * tl.load(sin + at + half, mask=turned, other=0.0)
    asks = real & (key < 0)[:, None]
    to = queries + (row[None, :] * of_queries + head[:, None]) * 2 * half + dim[:, None]
    tl.store(to, left, mask=asks)
    tl.store(to + half, right, mask=asks)
    slot = tl.load(slots + row, mask=row < rows, other=0)[None, :]
    is_key, is_value = real & ((key >= 0) & (value < 0))[:, None], real & (value >= 0)[:, None]
    there = keys + (key.to(tl.int64)[:, None] * capacity + slot) * 2 * half + dim[:, None]
    tl.store(there, left, mask=is_key)
    tl.store(there + half, right, mask=is_key)
    there = values + (value.to(tl.int64)[:, None] * capacity + slot) * 2 * half + dim[:, None]
    tl.store(there, left, mask=is_value)
    tl.store(there + half, right, mask=is_value)
