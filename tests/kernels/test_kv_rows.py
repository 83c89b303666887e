"""Keys and values in few bits: what a row stands for, and that the CPU's own kernels read and write just that."""

from __future__ import annotations

import random
from typing import Any

import pytest
import torch
from model.tiny import VOCAB, tiny_config, tiny_llama

from triforce_core.device.memory_plan import Weights
from triforce_core.kernels import KV_BITS, choose_kernels, compiled, from_rows, native, row_bytes, to_rows
from triforce_core.kernels.kv_rows import GROUP
from triforce_core.kv_cache.full import RowsCache
from triforce_core.model import parse_config

needs_library = pytest.mark.usefixtures("level")
both = pytest.mark.parametrize("bits", list(KV_BITS.values()))
DIMS = (16, 32, 48, 64, 80, 128)


def attend(*given: Any) -> tuple[torch.Tensor, torch.Tensor | None]:
    library = compiled().library
    assert library is not None
    return native.attention(library, *given)


@pytest.mark.parametrize(("dim", "bits"), [(1, 8), *((dim, bits) for dim in (2, 8, 20, *DIMS)
                                                     for bits in KV_BITS.values())])
def test_a_row_stands_for_what_it_was_made_of(dim: int, bits: int) -> None:
    """To half a step of its group (what lies opposite to its extreme in 4 bits: to a whole one), and bfloat16's
    rounding."""
    g = torch.Generator().manual_seed(dim)
    x = torch.randn(3, 50, dim, generator=g) * torch.rand(3, 50, 1, generator=g) * 100
    rows, step = to_rows(x, bits), 1.01 / (127 if bits == 8 else 8)
    assert rows.dtype == torch.int8 and rows.shape == (3, 50, row_bytes(dim, bits))
    found = from_rows(rows, dim)
    assert found.dtype == torch.bfloat16 and found.shape == x.shape
    for first in range(0, dim, GROUP):
        part, own = x[..., first : first + GROUP], found.float()[..., first : first + GROUP]
        most = part.abs().amax(-1, keepdim=True)
        steps = torch.where((part.abs() > 0.9 * most) & (bits == 4), 1.0, 0.5)
        assert bool(((own - part).abs() <= most * (steps * step + 2**-8)).all())
    assert bits == 4 or (int(rows[..., :dim].max()) <= 127 and int(rows[..., :dim].min()) >= -127)
    again = from_rows(to_rows(found, bits), dim).float()
    torch.testing.assert_close(again, found.float(), rtol=2**-6, atol=float(x.abs().max()) / (64 if bits == 8 else 8))


@both
def test_zeros_and_extremes(bits: int) -> None:
    assert not from_rows(torch.zeros(2, row_bytes(64, bits), dtype=torch.int8), 64).any()  # an unfilled slot
    assert not from_rows(to_rows(torch.zeros(2, 64), bits), 64).any()
    for huge in (3e38, -3e38, 1e-38, 1e-45):
        assert bool(from_rows(to_rows(torch.full((1, 32), huge), bits), 32).isfinite().all())


@both
def test_one_loud_group_leaves_the_others_their_steps(bits: int) -> None:
    x = torch.randn(10, 64).clamp_(-3, 3)
    x[:, :GROUP] *= 1000
    quiet = from_rows(to_rows(x, bits), 64)[:, GROUP:].float()
    torch.testing.assert_close(quiet, x[:, GROUP:], atol=0.03 if bits == 8 else 0.4, rtol=0.01)


def test_sixteen_steps_and_their_order() -> None:
    """A group's extreme is -8, whatever its sign; the first of two numbers lies in the low half."""
    for sign in (1, -1):
        x = torch.arange(-8, 8).repeat(2) * sign / 4
        assert torch.equal(from_rows(to_rows(x[None], 4), 32)[0].float(), x)
    assert to_rows(torch.tensor([[-8.0, 3.0]]), 4).view(torch.uint8)[0, 0] == 3 + 8 << 4


@pytest.mark.parametrize("kind", KV_BITS)
def test_the_planner_counts_the_same_bytes(kind: str) -> None:
    for heads, dim in ((4, 16), (2, 48), (3, 64), (1, 80)):
        shape = parse_config(tiny_config(hidden_size=heads * dim, num_attention_heads=heads, head_dim=dim,
                                         num_key_value_heads=heads))
        assert Weights(shape).kv_per_token_in(kind) == 2 * 2 * heads * row_bytes(dim, KV_BITS[kind])
        assert Weights(shape).kv_per_token_in("same") == 2 * 2 * heads * dim * 2


@needs_library
@both
@pytest.mark.parametrize("seed", range(24))
def test_attention_is_that_over_the_numbers_rows_stand_for(seed: int, bits: int) -> None:
    """To the last bit: any widths, tails of blocks and parts, chains and trees, the mass of chunks."""
    chance, g = random.Random(seed), torch.Generator().manual_seed(seed)
    heads, group, dim = chance.choice((1, 2, 3)), chance.choice((1, 2, 7)), chance.choice(DIMS)
    n = chance.choice((1, 2, 5, 6, 7, 26, 64, 65, 130))
    length = n + chance.choice((0, 1, 63, 128, 190, native.PART - 3, native.PART, native.PART + 129))
    slots = length + chance.choice((0, 1, 50))
    keys, values = (to_rows(torch.randn(heads, slots, dim, generator=g) * by, bits) for by in (3, 1))
    keys[:, length:] = values[:, length:] = 127  # what is not filled does not count
    queries = torch.randn(n, heads * group, dim, generator=g)
    mask = (torch.rand(n, n, generator=g) < 0.5).tril() | torch.eye(n, dtype=torch.bool) if seed % 2 else None
    given = (length, mask, min(chance.choice((0, 4)), n), chance.choice((4, 8, 10)))
    found, mass = attend(queries, keys, values, *given)
    expected, own = attend(queries, from_rows(keys, dim), from_rows(values, dim), *given)
    assert found.dtype == torch.bfloat16 and torch.equal(found, expected)
    assert (mass is None) == (own is None) and (mass is None or own is None or torch.equal(mass, own))


@needs_library
@both
@pytest.mark.parametrize("cached", [0, 100, native.PART - 20])
def test_a_row_is_the_same_in_any_company(cached: int, bits: int) -> None:
    g = torch.Generator().manual_seed(cached)
    keys, values = (to_rows(torch.randn(2, cached + 64, 64, generator=g), bits) for _ in range(2))
    queries = torch.randn(64, 4, 64, generator=g) * 2
    alone = torch.cat([attend(queries[i : i + 1], keys, values, cached + i + 1, None, 0, 1)[0]
                       for i in range(64)])
    for n in (2, 7, 26, 64):
        assert torch.equal(attend(queries[:n], keys, values, cached + n, None, 0, 1)[0], alone[:n])


@both
def test_without_the_library_torch_unpacks(bits: int, monkeypatch: pytest.MonkeyPatch) -> None:
    g = torch.Generator().manual_seed(0)
    keys, values = (to_rows(torch.randn(2, 90, 48, generator=g), bits) for _ in range(2))
    queries, ops = torch.randn(5, 4, 48, generator=g), choose_kernels(torch.device("cpu"))
    found, mass = ops.attention(queries, keys, values, 80, None, 2, 8)
    monkeypatch.setattr(native, "compiled", lambda: compiled()._replace(library=None))
    assert not native.attends_rows(torch.float32) and native.attends_rows(torch.bfloat16)
    slow, expected = ops.attention(queries, keys, values, 80, None, 2, 8)
    torch.testing.assert_close(found.float(), slow.float(), atol=2e-2, rtol=2e-2)
    torch.testing.assert_close(mass, expected, atol=2e-2, rtol=2e-2)


@needs_library
@pytest.mark.parametrize("kind", KV_BITS)
@pytest.mark.parametrize("dim", DIMS)
def test_a_whole_pass_writes_the_rows_that_torch_would(dim: int, kind: str) -> None:
    """Of the values, which nothing has touched before: keys are rotated, in another order of operations."""
    model = tiny_llama(torch.bfloat16, hidden_size=64, head_dim=dim)
    assert model._native is not None
    ids, caches = torch.randint(VOCAB, (70,), generator=torch.Generator().manual_seed(0)), []
    for whole in (True, False):
        if not whole:
            model._native = None
        c = model.config
        cache = RowsCache(c.num_layers, c.num_kv_heads, dim, kind=kind, max_tokens=100, dtype=torch.bfloat16, slots=80)
        model.forward(ids, cache, logits_rows=1)
        cache.commit()
        cache.check_integrity()
        caches.append(cache)
    one, other = (cache.layers[0] for cache in caches)
    assert torch.equal(one.values, other.values)
    torch.testing.assert_close(from_rows(one.keys, dim).float(), from_rows(other.keys, dim).float(),
                               atol=0.05 if kind == "int8" else 0.5, rtol=0.02)
