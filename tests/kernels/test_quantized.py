"""What rounding weights to few bits does to them."""

from __future__ import annotations

import pytest
import torch

from triforce_core.kernels import LEVELS, REFERENCE, Dense, Grouped, bytes_per_weight, quantized
from triforce_core.kernels.cpu import PackedLinear

KINDS = list(quantized.KINDS)


def draw(outputs: int = 96, inputs: int = 384) -> torch.Tensor:
    weight = torch.randn(outputs, inputs, generator=torch.Generator().manual_seed(0)) * 0.02
    weight[:, 7] *= 4  # as in real models: a few inputs with large weights
    return weight


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(("kind", "bound"), [("int8", 0.02), ("int4", 0.13)])
def test_error_is_that_of_the_bits(kind: str, bound: float, dtype: torch.dtype) -> None:
    """Relative to all weights: a step of int8 is a 254th of an output's range, of int4 a 16th of a group's."""
    weight = draw().to(dtype)
    found = quantized.dequantize(quantized.quantize(weight, kind))
    assert found.shape == weight.shape and found.dtype == torch.float32
    error = float((found - weight).norm() / weight.float().norm())
    assert bound / 4 < error < bound


def test_int8_errors_are_at_most_half_a_step() -> None:
    weight = draw()
    rounded = quantized.quantize(weight, "int8")
    assert ((quantized.dequantize(rounded) - weight).abs() <= rounded.scale[:, None] / 2 * 1.0001).all()


@pytest.mark.parametrize("kind", KINDS)
def test_what_can_be_held_is_held_exactly(kind: str) -> None:
    g = torch.Generator().manual_seed(1)
    bits = quantized.KINDS[kind]
    top = 2 ** (bits - 1)
    steps = torch.randint(1 - top, top, (32, 256), generator=g)
    steps[:, ::64] = -8 if kind == "int4" else 127  # each group, and each output, reaches its end
    weight = steps * 2.0**-5
    assert torch.equal(quantized.dequantize(quantized.quantize(weight, kind)), weight)


@pytest.mark.parametrize("kind", KINDS)
def test_zeros_stay_zeros_and_signs_stay(kind: str) -> None:
    weight = draw()
    weight[3] = 0.0
    weight[5, :128] = 0.0
    found = quantized.dequantize(quantized.quantize(weight, kind))
    assert not found[3].any() and not found[5, :128].any() and bool(torch.isfinite(found).all())
    assert not (found * weight < 0).any()


def test_groups_do_not_share_their_range() -> None:
    weight = draw()
    weight[:, :128] *= 100
    found = quantized.dequantize(quantized.quantize(weight, "int4"))[:, 128:]
    assert float((found - weight[:, 128:]).norm() / weight[:, 128:].norm()) < 0.13


def test_cutting_off_extremes_leaves_less_error(monkeypatch: pytest.MonkeyPatch) -> None:
    weight = draw()

    def error() -> float:
        return float((quantized.dequantize(quantized.quantize(weight, "int4")) - weight).norm())

    best = error()
    monkeypatch.setattr(quantized, "_SHRINK", (1.0,))
    assert best < error()


def test_many_outputs_are_rounded_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = quantized.quantize(draw(), "int4")
    monkeypatch.setattr(quantized, "_TOGETHER", 40)
    parts = quantized.quantize(draw(), "int4")
    assert torch.equal(whole.data, parts.data) and torch.equal(whole.scale, parts.scale)


@pytest.mark.parametrize("kind", KINDS)
def test_size(kind: str) -> None:
    rounded = quantized.quantize(draw(512, 1024), kind)
    size = rounded.data.nbytes + rounded.scale.nbytes
    assert size == pytest.approx(512 * 1024 * bytes_per_weight(kind), rel=0.01)


@pytest.mark.parametrize("kind", KINDS)
def test_reference_product(kind: str) -> None:
    dense = Dense(draw(), torch.randn(96))
    x = torch.randn(3, 384)
    expected = x @ quantized.dequantize(quantized.quantize(dense.weight, kind)).T + dense.bias
    assert torch.allclose(REFERENCE.quantize_linear(dense, kind)(x), expected, atol=1e-5)
    odd = Dense(torch.randn(8, 100))
    assert REFERENCE.quantize_linear(odd, kind) is odd


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("inputs", [256, 96])
@pytest.mark.parametrize(("bits", "uneven"), [(8, False), (6, False), (5, False), (4, False), (4, True)])
def test_weights_stay_packed_without_kernels(bits: int, uneven: bool, inputs: int, dtype: torch.dtype) -> None:
    """The product of their numbers, in about their bytes."""
    g = torch.Generator().manual_seed(bits)
    low = 0 if bits < 6 and not uneven else -(2 ** (bits - 1))
    steps = torch.randint(low, low + 2**bits, (70, inputs), generator=g, dtype=torch.int8)
    if uneven:
        steps = torch.tensor(LEVELS, dtype=torch.int8)[steps.long() - low]
    scale, few = torch.rand(70, inputs // 32, generator=g), {} if uneven or bits > 5 else {"offset": torch.rand(70, 1)}
    few = {name: part.expand(70, inputs // 32).contiguous() for name, part in few.items()}
    weight, bias, x = Grouped(bits, steps, scale, **few, uneven=uneven), torch.rand(70), torch.randn(9, inputs)
    packed = PackedLinear(weight, bias, dtype)
    expected = REFERENCE.make_grouped(weight, bias, torch.float32)(x.to(dtype))
    found = packed(x)
    assert found.dtype == dtype and float((found.float() - expected).norm() / expected.norm()) < 0.01
    half = bits == 4 and not uneven and inputs % 128 == 0
    assert packed.weight.steps.nbytes == 70 * inputs // (2 if half else 1)
