"""Rows of bytes on a GPU: read, written and unpacked as ``int8_rows`` says, to the last bit."""

from __future__ import annotations

import pytest
import torch

from triforce_core.kernels import KV_BITS, REFERENCE, choose_kernels, from_rows, row_bytes, to_rows, write_rows
from triforce_core.kernels.kv_rows import unpack_rows

pytest.importorskip("triton")
pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="torch sees no GPU")]
DIMS = (32, 64, 128)
both = pytest.mark.parametrize("bits", list(KV_BITS.values()))
BOUND = 1e-2  # relative error of bf16
# (KV heads, group, rows, head_dim, slots, length)
SHAPES = [(8, 4, 1, 128, 9000, 8190), (32, 1, 3, 128, 3000, 3000), (8, 4, 17, 128, 4000, 3333),
          (8, 4, 64, 128, 2100, 2100), (8, 1, 9, 64, 33_000, 32_001), (4, 4, 64, 64, 300, 64), (2, 1, 1, 64, 64, 1),
          (4, 1, 5, 32, 700, 131)]


def relative(found: torch.Tensor, expected: torch.Tensor) -> float:
    return float((found.float() - expected.float()).norm() / expected.float().norm())


def draw(shape: tuple[int, ...], seed: int, bits: int) -> tuple[torch.Tensor, ...]:
    """queries, keys and values in rows, a tree mask; unfilled slots hold what earlier passes may have left there."""
    heads, group, n, dim, slots, _ = shape
    g = torch.Generator("cuda").manual_seed(seed)
    keys, values = to_rows(torch.randn(2, heads, slots, dim, device="cuda", generator=g) * 2, bits)
    queries = torch.randn(n, heads * group, dim, device="cuda", generator=g)
    tree = (torch.rand(n, n, device="cuda", generator=g) < 0.5).tril() | torch.eye(n, dtype=torch.bool, device="cuda")
    return queries, keys, values, tree


@both
@pytest.mark.parametrize("dim", DIMS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_rows_are_written_as_a_cpu_writes_them(dim: int, dtype: torch.dtype, bits: int) -> None:
    for n, heads in ((1, 8), (3, 2), (700, 11)):
        x = torch.randn(n, heads + 4, dim, device="cuda") * torch.rand(n, heads + 4, 1, device="cuda") * 100
        x[0, 2], x[-1, 3, :32], x[-1, 2] = 0.0, 1e-37, 3e38
        some = x.to(dtype)[:, 2:-2]  # as values lie behind queries and keys
        rows, slots = torch.zeros(heads, 800, row_bytes(dim, bits), dtype=torch.int8), torch.randperm(800)[:n]
        found = rows.cuda()
        write_rows(found, slots.cuda(), some)
        write_rows(rows, slots, some.cpu())
        assert torch.equal(found.cpu(), rows)
        assert torch.equal(to_rows(some, bits).cpu(), to_rows(some.cpu(), bits))


@both
@pytest.mark.parametrize("dim", DIMS)
def test_a_chain_is_rotated_and_written_in_one_launch(dim: int, bits: int) -> None:
    """Keys as they are rotated by themselves; queries as over a bfloat16 cache."""
    own = choose_kernels(torch.device("cuda"))
    for n, heads, group in ((1, 8, 4), (5, 3, 2), (64, 32, 1)):
        qkv = torch.randn(n, heads * (group + 2), dim, device="cuda").bfloat16()
        cos, sin = torch.randn(2, n, 1, dim, device="cuda")
        slots = torch.randperm(400, device="cuda")[:n]
        found, expected = torch.zeros(2, 2, heads, 400, row_bytes(dim, bits), dtype=torch.int8, device="cuda")
        queries = own.rotate_and_write(qkv, cos, sin, *found, slots)
        write_rows(expected[0], slots, own.rotate(qkv[:, :-heads], cos, sin)[:, -heads:])
        write_rows(expected[1], slots, qkv[:, -heads:])
        assert torch.equal(found, expected)
        plain = torch.zeros(2, heads, 400, dim, device="cuda", dtype=torch.bfloat16)
        assert torch.equal(queries, own.rotate_and_write(qkv, cos, sin, *plain, slots))


@both
@pytest.mark.parametrize("dim", DIMS)
def test_layers_are_unpacked(dim: int, bits: int) -> None:
    rows = to_rows(torch.randn(5, 3000, dim, device="cuda") * 3, bits)
    found, expected = torch.zeros(2, 5, 3100, dim, device="cuda", dtype=torch.bfloat16)
    choose_kernels(rows.device).unpack_rows(rows[:, :2777], found[:, :2777])
    unpack_rows(rows[:, :2777], expected[:, :2777])
    assert torch.equal(found, expected) and torch.equal(found[:, :2777].cpu(), from_rows(rows.cpu()[:, :2777], dim))


@both
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_attention_is_that_over_the_numbers_rows_stand_for(shape: tuple[int, ...], bits: int) -> None:
    """As far as sums in another order are the same."""
    n, dim, length = shape[2], shape[3], shape[5]
    queries, keys, values, tree = draw(shape, length, bits)
    numbers = from_rows(keys, dim), from_rows(values, dim)
    own = choose_kernels(keys.device)
    assert own.attends_rows(torch.bfloat16, n, True)
    on_device = torch.tensor([length], dtype=torch.int32, device="cuda")
    for size, mask, mass_rows, chunk_size in ((length, None, 0, 1), (on_device, None, 16, 8), (on_device, tree, n, 8)):
        given = size, mask, mass_rows, chunk_size  # few of each: every kind of them is compiled
        found, mass = own.attention(queries, keys, values, *given)
        expected, expected_mass = own.attention(queries, *numbers, *given)
        assert found.dtype == torch.bfloat16 and relative(found, expected) <= BOUND
        assert (mass is None) == (expected_mass is None)
        assert mass is None or torch.allclose(mass, expected_mass, rtol=BOUND, atol=BOUND / 10)


# (KV heads, group, rows, head_dim, slots, length, chunks in the index, held, newest, chunk size)
@both
@pytest.mark.parametrize("shape", [
    (8, 4, 3, 128, 9000, 8200, 512, 480, 7944, 8), (32, 1, 17, 64, 3000, 3000, 40, 39, 2700, 8),
    (2, 4, 64, 128, 1300, 1280, 30, 29, 1200, 12), (4, 1, 5, 32, 700, 690, 60, 1, 600, 5)], ids=str)
def test_chosen_chunks_where_they_lie(shape: tuple[int, ...], bits: int) -> None:
    heads, dim, length, most, held, newest, size = shape[0], shape[3], *shape[5:]
    queries, keys, values, tree = draw(shape[:6], length, bits)
    order = torch.rand(heads, max(most, newest // size), device="cuda").argsort(-1)[:, :most]
    chunks = (order % max(1, newest // size)).int()
    bounds = torch.tensor([held, newest], dtype=torch.int32, device="cuda")
    numbers = from_rows(keys, dim), from_rows(values, dim)
    own = choose_kernels(keys.device).indexed_attention
    for mask in (None, tree):
        expected = REFERENCE.indexed_attention(queries.bfloat16(), *numbers, length, chunks, bounds, size, mask)
        size_of = length if mask is not None else torch.tensor([length], dtype=torch.int32, device="cuda")
        found = own(queries, keys, values, size_of, chunks, bounds, size, mask)
        assert found.dtype == torch.bfloat16 and relative(found, expected) <= BOUND


@both
@pytest.mark.parametrize("shape", [(8, 4, 128, 9000), (32, 1, 128, 4090), (2, 7, 64, 63)], ids=str)
def test_a_row_is_the_same_in_any_company(shape: tuple[int, ...], bits: int) -> None:
    heads, group, dim, cached = shape
    own = choose_kernels(torch.device("cuda"))
    assert own.batch_invariant_rows is not None
    queries, keys, values, _ = draw((heads, group, 64, dim, cached + 64, 0), cached, bits)
    alike = own.batch_invariant_rows(cached, heads, torch.int8, keys.device)
    alone = torch.cat([own.attention(queries[i : i + 1], keys, values, cached + i + 1)[0] for i in range(alike)])
    for n in sorted({alike, *(n for n in (2, 5, 16, 17, 33, 64) if n < alike)}):
        length = torch.tensor([cached + n], dtype=torch.int32, device="cuda")
        for size, mass_rows in ((cached + n, 0), (length, n)):
            assert torch.equal(own.attention(queries[:n], keys, values, size, None, mass_rows, 8)[0], alone[:n])


@both
def test_a_captured_graph_writes_and_attends(bits: int) -> None:
    own = choose_kernels(torch.device("cuda"))
    heads, group, n, dim = 8, 4, 3, 128
    _, keys, values, _ = draw((heads, group, n, dim, 3000, 0), 0, bits)
    qkv = torch.randn(n, heads * (group + 2), dim, device="cuda").bfloat16()
    cos, sin = torch.randn(2, n, 1, dim, device="cuda")
    slots, length = torch.arange(n, device="cuda"), torch.tensor([n], dtype=torch.int32, device="cuda")

    def one() -> torch.Tensor:
        return own.attention(own.rotate_and_write(qkv, cos, sin, keys, values, slots), keys, values, length)[0]

    one()  # compiled before capture
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = one()
    for now in (101, 700, 2999):
        qkv.normal_()
        length.fill_(now)
        slots.copy_(torch.arange(now - n, now))
        graph.replay()
        replayed, held = out.clone(), keys[:, now - n : now].clone()
        assert torch.equal(one(), replayed) and torch.equal(keys[:, now - n : now], held)
        rotated = own.rotate(qkv[:, :-heads], cos, sin)[:, -heads:].transpose(0, 1)
        assert torch.equal(held, to_rows(rotated, bits))


@pytest.mark.skipif(not torch.cuda.is_available() or torch.cuda.get_device_capability()[0] != 9, reason="for Hopper")
@pytest.mark.parametrize(("heads", "group"), [(8, 4), (32, 1), (8, 5), (4, 7), (2, 8), (2, 32)])
def test_few_rows_take_a_kernel_of_their_own(heads: int, group: int) -> None:
    """Loading would do without it where its bits were others: slower, and nothing else would tell."""
    from triforce_core.kernels import triton_attention, triton_narrow

    device = torch.device("cuda")
    assert triton_attention._narrow_is_right(heads, group, device)
    assert triton_narrow.takes(128, row_bytes(128, 8), device) and triton_narrow.rows_of(group) in (16, 32)
    assert not triton_narrow.takes(128, row_bytes(128, 4), device) and not triton_narrow.rows_of(33)
