"""Every fast twin against its specification, and the specification against itself written out."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from triforce_core.kernels import REFERENCE, Kernels, choose_kernels, torch_ops, values_transposed
from triforce_core.kernels import cpu as cpu_kernels
from triforce_core.kernels.reference import visible

torch.set_num_threads(1)  # products this small only wait for each other
CPU = choose_kernels(torch.device("cpu"))
GPU = replace(REFERENCE, rms_norm=torch_ops.rms_norm, rotate=torch_ops.rotate, swiglu=torch_ops.swiglu)  # runs here too
DTYPES = {torch.float32: 1e-5, torch.bfloat16: 3e-2}


def assert_near(found: torch.Tensor, expected: torch.Tensor, tolerance: float) -> None:
    assert found.shape == expected.shape
    assert (found.float() - expected.float()).abs().max() <= tolerance * expected.float().abs().max().clamp_min(1)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("fast", [CPU, GPU], ids=["cpu", "gpu"])
def test_small_ops(dtype: torch.dtype, fast: Kernels) -> None:
    g = torch.Generator().manual_seed(0)
    x = torch.randn(5, 48, generator=g).to(dtype)
    weight = torch.rand(48, generator=g)
    assert_near(fast.rms_norm(x, weight, 1e-5), REFERENCE.rms_norm(x, weight, 1e-5), DTYPES[dtype])
    assert_near(fast.rms_norm(x * 0, weight, 1e-5), torch.zeros(5, 48), 0)
    assert_near(fast.swiglu(x), REFERENCE.swiglu(x), DTYPES[dtype])
    heads = x.view(5, 3, 16)
    cos, sin = torch.randn(2, 5, 1, 16, generator=g)
    before = heads.clone()
    assert_near(fast.rotate(heads, cos, sin), REFERENCE.rotate(heads, cos, sin), DTYPES[dtype])
    assert torch.equal(heads, before)
    assert_near(fast.rms_norm(heads, weight[:16], 1e-5), REFERENCE.rms_norm(heads, weight[:16], 1e-5), DTYPES[dtype])
    for addend in (None, x):
        hidden = torch.randn(5, 48, generator=g)
        streams = [hidden.clone(), hidden.clone()]
        norms = [ops.add_rms_norm(stream, addend, weight, 1e-5, dtype)
                 for ops, stream in zip((fast, REFERENCE), streams, strict=True)]
        assert_near(*norms, DTYPES[dtype])
        assert torch.equal(streams[0], hidden if addend is None else hidden + x)
        assert torch.equal(*streams)


def test_rotating_and_writing_is_rotating_then_writing() -> None:
    g = torch.Generator().manual_seed(0)
    qkv, (cos, sin) = torch.randn(3, 8, 16, generator=g), torch.randn(2, 3, 1, 16, generator=g)
    keys, values = torch.zeros(2, 2, 9, 16)
    queries = REFERENCE.rotate_and_write(qkv, cos, sin, keys, values, torch.tensor([4, 5, 8]))
    rotated = REFERENCE.rotate(qkv, cos, sin)
    assert torch.equal(queries, rotated[:, :4])
    for row, slot in enumerate((4, 5, 8)):
        assert torch.equal(keys[:, slot], rotated[row, 4:6]) and torch.equal(values[:, slot], qkv[row, 6:])
    assert not keys[:, [0, 1, 2, 3, 6, 7]].any() and not values[:, [0, 1, 2, 3, 6, 7]].any()


@pytest.mark.parametrize("rows", [1, 4, 16, 17, 40])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("kind", ["dense", "bias", "int8"])
def test_linear(kind: str, dtype: torch.dtype, rows: int) -> None:
    g = torch.Generator().manual_seed(rows)
    x = torch.randn(rows, 64, generator=g)
    bias = torch.randn(32, generator=g) if kind == "bias" else None
    data, scale = torch.randn(32, 64, generator=g), None
    if kind == "int8":
        data = torch.randint(-127, 128, (32, 64), generator=g, dtype=torch.int8)
        scale = torch.rand(32, generator=g) / 127
    expected = REFERENCE.make_linear(data, scale, bias, torch.float32)(x)
    for kernels in (CPU, REFERENCE):
        assert_near(kernels.make_linear(data, scale, bias, dtype)(x), expected, DTYPES[dtype])


def test_int8_rows_do_not_depend_on_their_company() -> None:
    """Verification of up to 16 rows then computes what plain decoding computes."""
    g = torch.Generator().manual_seed(0)
    data = torch.randint(-127, 128, (96, 64), generator=g, dtype=torch.int8)
    linear = CPU.make_linear(data, torch.rand(96, generator=g), None, torch.bfloat16)
    x = torch.randn(16, 64, generator=g)
    together = linear(x)
    assert all(torch.equal(together[i : i + 1], linear(x[i : i + 1])) for i in range(16))


def test_attention_rows_do_not_depend_on_their_company() -> None:
    g = torch.Generator().manual_seed(0)
    keys, values = random_view(torch.bfloat16, 4, 1400, 64, g)
    for _ in range(20):
        queries = torch.randn(9, 4, 64, generator=g) * 2
        together, _ = CPU.attention(queries, keys, values, 1300)
        alone = [CPU.attention(queries[i : i + 1], keys, values, 1300 - 8 + i)[0] for i in range(9)]
        assert torch.equal(together, torch.cat(alone))


def random_view(dtype: torch.dtype, heads: int, slots: int, dim: int, g: torch.Generator) -> list[torch.Tensor]:
    keys = torch.randn(heads, slots, dim, generator=g).to(dtype)
    values = torch.randn(heads, slots, dim, generator=g).to(dtype)
    if values_transposed(torch.device("cpu"), dtype):
        values = values.transpose(1, 2).contiguous().transpose(1, 2)
    return [keys, values]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("group", "n"), [(1, 1), (1, 9), (2, 1), (2, 5), (4, 3), (1, 40), (2, 70)])
@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("blocks", [False, True])
def test_attention(dtype: torch.dtype, group: int, n: int, masked: bool, blocks: bool,
                   monkeypatch: pytest.MonkeyPatch) -> None:
    if blocks:  # as in wide passes over long contexts: a few query rows at a time
        monkeypatch.setattr(cpu_kernels, "_BLOCK_SCORES", 2 * group * 3 * 80)
    g = torch.Generator().manual_seed(n)
    keys, values = random_view(dtype, 2, 80, 16, g)
    queries = torch.randn(n, 2 * group, 16, generator=g)
    mask = (torch.rand(n, n, generator=g) < 0.5).tril() | torch.eye(n, dtype=torch.bool) if masked else None
    for length in (n, max(n, 61), 80):
        for mass_rows in (0, 1, 4, n):
            expected, expected_mass = REFERENCE.attention(queries, keys, values, length, mask, mass_rows, 8)
            for attention in (CPU.attention, torch_ops.attention):
                found, mass = attention(queries, keys, values, length, mask, mass_rows, 8)
                assert_near(found, expected, DTYPES[dtype])
                if mass_rows == 0:
                    assert mass is None and expected_mass is None
                else:
                    assert mass.shape == (2, (length - n) // 8)
                    assert torch.allclose(mass, expected_mass, atol=DTYPES[dtype], rtol=DTYPES[dtype])


def test_attention_written_out() -> None:
    """The specification, token by token."""
    g = torch.Generator().manual_seed(3)
    keys, values = random_view(torch.float32, 2, 12, 4, g)
    queries = torch.randn(3, 4, 4, generator=g)
    found, mass = REFERENCE.attention(queries, keys, values, 10, None, 2, 3)
    expected_mass = torch.zeros(2, 2)
    for i in range(3):
        for head in range(4):
            reach = 10 - 3 + i + 1
            probs = (keys[head // 2, :reach] @ queries[i, head] / 2).softmax(0)
            assert torch.allclose(found[i, head * 4 : head * 4 + 4], probs @ values[head // 2, :reach], atol=1e-5)
            if i >= 1:
                expected_mass[head // 2] += probs[:6].view(2, 3).sum(1)
    assert torch.allclose(mass, expected_mass, atol=1e-5)


def test_results_do_not_share_scratch_memory() -> None:
    g = torch.Generator().manual_seed(0)
    keys, values = random_view(torch.bfloat16, 2, 64, 16, g)
    queries = torch.randn(9, 2, 16, generator=g)
    first, mass = CPU.attention(queries, keys, values, 60, None, 9, 4)
    copies = first.clone(), mass.clone()
    CPU.attention(-queries, keys, values, 60, None, 9, 4)
    assert torch.equal(first, copies[0]) and torch.equal(mass, copies[1])


def test_visible() -> None:
    assert visible(2, 4, None, torch.device("cpu")).tolist() == [[True, True, True, False], [True] * 4]


def test_look_ahead_written_out() -> None:
    mass = torch.tensor([[8.0, 0.0, 0.0, 4.0, 0.0, 0.0, 0.0], [0.0, 0.0, 0.0, 0.0, 0.0, 1.0, 3.0]])
    expected = [[8.0, 7.2, 6.48, 5.832, 5.2488, 3.24, 2.916], [0.0, 0.0, 0.0, 0.0, 0.0, 1.0, 3.0]]
    torch.testing.assert_close(REFERENCE.look_ahead(mass), torch.tensor(expected))
    torch.testing.assert_close(REFERENCE.look_ahead(mass[:, :2]), torch.tensor([[8.0, 7.2], [0.0, 0.0]]))
