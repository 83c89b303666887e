"""Products with weights in groups of few bits: the CPU's own kernels against the numbers that the weights stand for."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
import torch
from model.tiny import VOCAB, tiny_llama
from torch.utils._python_dispatch import TorchDispatchMode

from triforce_core.kernels import LEVELS, REFERENCE, Grouped, grouped_bytes, join_grouped, native, to_groups
from triforce_core.kernels.quantized import dequantize, quantize
from triforce_core.kv_cache.full import FullCache
from triforce_core.model.checkpoint import joined_bytes
from triforce_core.model.weights import Form

needs_library = pytest.mark.usefixtures("level")
BF16 = torch.bfloat16


def drawn(bits: int, outputs: int, inputs: int, group: int, offsets: bool, g: torch.Generator,
          super_block: int = 1) -> Grouped:
    low = -128 + outputs % 2 if bits == 8 else 0 if bits < 6 and offsets else -(2 ** (bits - 1))
    high = 2 ** (bits if low == 0 else bits - 1)
    shape = outputs, inputs // group // super_block
    weight = Grouped(bits, torch.randint(low, high, (outputs, inputs), generator=g, dtype=torch.int8),
                     torch.rand(shape, generator=g) / 20, torch.randn(shape, generator=g) if offsets else None)
    if super_block == 1:
        return weight
    subscales = torch.randint(-128, 128, (2, outputs, inputs // group), generator=g, dtype=torch.int8)
    return replace(weight, scale=weight.scale / 64, subscale=subscales[0], suboffset=subscales[1] if offsets else None)


@needs_library
@pytest.mark.parametrize("seed", range(24))
def test_products_of_any_shape(seed: int) -> None:
    """Few rows: the same bits in any company; many: the product with the weights in bfloat16."""
    chance, g = random.Random(seed), torch.Generator().manual_seed(seed)
    group = chance.choice((16, 32, 64, 128, 256))
    weight = drawn((4, 6, 5, 8)[seed // 2 % 4], chance.choice((1, 64, 70, 200)), group * chance.choice((1, 2, 3, 9)),
                   group, seed % 2 == 0, g)
    inputs = weight.steps.shape[1]
    bias = torch.randn(len(weight.steps), generator=g) if chance.random() < 0.3 else None
    linear, x = native.make_grouped(weight, bias, BF16), torch.randn(200, inputs, generator=g).to(BF16)
    assert isinstance(linear, native.NativeLinear)
    expected = REFERENCE.make_grouped(weight, bias, torch.float32)(x.float())
    alone = torch.cat([linear(x[i : i + 1]) for i in range(64)])
    torch.testing.assert_close(alone, expected[:64], atol=2e-3 * inputs**0.5, rtol=1e-3)
    for n in (2, 5, 6, 7, 26, 32, 33, 64):
        assert torch.equal(linear(x[:n]), alone[:n]), n
    wide = native.make_linear(weight.numbers().to(BF16), None, bias, BF16)
    torch.testing.assert_close(linear(x), wide(x), atol=1e-4 * inputs**0.5, rtol=1e-3)


@needs_library
@pytest.mark.parametrize("offsets", [False, True])
@pytest.mark.parametrize(("bits", "group", "super_block"),
                         [(4, 32, 8), (5, 32, 8), (8, 32, 8), (6, 16, 16), (4, 64, 2), (8, 16, 32)])
def test_scales_in_few_bits_are_what_they_stand_for(bits: int, group: int, super_block: int, offsets: bool) -> None:
    """To the last bit."""
    g = torch.Generator().manual_seed(0)
    weight, x = drawn(bits, 70, 1536, group, offsets, g, super_block), torch.randn(200, 1536, generator=g).to(BF16)
    found, expected = (native.make_grouped(each, None, BF16) for each in (weight, weight.without_subscales()))
    for n in (1, 2, 5, 6, 26, 32, 33, 64, 65, 200):
        assert torch.equal(found(x[:n]), expected(x[:n])), n
    assert torch.equal(weight.numbers(), weight.without_subscales().numbers())


@needs_library
@pytest.mark.parametrize("offsets", [False, True])
@pytest.mark.parametrize("group", [16, 64])
@pytest.mark.parametrize("bits", [4, 5, 6])
def test_steps_are_the_same_in_fewer_bits(bits: int, group: int, offsets: bool) -> None:
    """To the last bit, alone and in passes that unpack them."""
    g = torch.Generator().manual_seed(0)
    weight, x = drawn(bits, 70, 768, group, offsets, g), torch.randn(200, 768, generator=g).to(BF16)
    weight.steps[:, : 2**bits] = torch.arange(2**bits) + weight.least  # each that there can be
    found, expected = (native.make_grouped(each, None, BF16) for each in (weight, replace(weight, bits=8)))
    for n in (1, 2, 3, 4, 5, 6, 26, 33, 65, 200):
        assert torch.equal(found(x[:n]), expected(x[:n])), n


@needs_library
@pytest.mark.parametrize("super_block", [1, 8])
@pytest.mark.parametrize("group", [16, 32, 64])
def test_uneven_steps_are_the_same_in_four_bits(group: int, super_block: int) -> None:
    """To the last bit, alone and in passes that unpack them."""
    g = torch.Generator().manual_seed(0)
    even, x = drawn(4, 70, 1536, group, False, g, super_block), torch.randn(200, 1536, generator=g).to(BF16)
    even.steps[:, :16] = torch.arange(16) - 8  # each that there can be
    weight = replace(even, steps=torch.tensor(LEVELS, dtype=torch.int8)[even.steps.int() + 8], uneven=True)
    assert torch.equal(weight.numbered, even.numbered)
    found, expected = (native.make_grouped(each, None, BF16) for each in (weight, weight.in_bytes()))
    for n in (1, 2, 3, 4, 5, 6, 26, 32, 33, 64, 65, 200):
        assert torch.equal(found(x[:n]), expected(x[:n])), n
    joined = join_grouped([weight, weight.in_order(lambda part: part.flip(0)), even])
    assert joined.bits == 8 and not joined.uneven and torch.equal(joined.numbers()[:70], weight.numbers())
    alike = join_grouped([weight, weight])
    assert alike.bits == 4 and alike.uneven and torch.equal(alike.numbers()[70:], weight.numbers())


@needs_library
@pytest.mark.parametrize("super_block", [1, 8])
@pytest.mark.parametrize("bits", [4, 5, 6, 8])
def test_what_lies_in_memory(bits: int, super_block: int) -> None:
    for offsets in (False, True):
        weight = drawn(bits, 128, 256, 32, offsets, torch.Generator().manual_seed(0), super_block)
        linear = native.make_grouped(weight, None, BF16)
        assert isinstance(linear, native.NativeLinear)
        held = sum(part.nbytes for part in linear._held if part is not None)
        assert held == 128 * 256 * grouped_bytes(bits, 32, offsets, super_block)


@needs_library
@pytest.mark.parametrize("bits", [4, 5, 6, 8])
def test_panels_are_filled_without_torchs_threads(bits: int) -> None:
    """On a busy machine they wait for each other, a model of experts 12,000 times: 0.34 s an expert, not 0.03."""
    g = torch.Generator().manual_seed(0)
    parts = [drawn(bits, 70, 256, 32, False, g, 8) for _ in range(2)]
    with Ops() as seen:
        native.make_grouped(join_grouped(parts), None, BF16)
    assert seen.names and not seen.names - {"aten.empty.memory_format", "aten.new_empty.default", "aten.squeeze.dim",
                                            "aten.view.default", "aten.detach.default", "aten.lift_fresh.default"}


class Ops(TorchDispatchMode):
    """Notes which of torch's operators run."""

    def __init__(self) -> None:
        super().__init__()
        self.names: set[str] = set()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.names.add(str(func))
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("group", [8, 24, 48])
def test_groups_without_a_form_are_multiplied_as_numbers(group: int) -> None:
    weight = drawn(8, 20, 2 * group, group, True, torch.Generator().manual_seed(group))
    x = torch.randn(3, 2 * group)
    torch.testing.assert_close(native.make_grouped(weight, None, BF16)(x).float(), x @ weight.numbers().T, atol=0.5,
                               rtol=0.05)


@pytest.mark.parametrize("kinds", [((4, 32, True), (8, 16, False)), ((4, 32, False), (4, 128, False)),
                                   ((4, 32, True), (4, 32, False)), ((8, 64, False), (8, 32, True)),
                                   ((4, 32, True, 8), (8, 16, False, 16)), ((4, 32, True, 8), (4, 32, True, 8)),
                                   ((8, 32, False, 8), (8, 32, False)), ((4, 32, True, 8), (6, 16, False, 16)),
                                   ((4, 32, True, 8), (5, 32, True, 8)), ((5, 32, True, 8), (6, 16, False, 16)),
                                   ((4, 32, False), (6, 16, False, 16)), ((5, 32, True), (8, 32, False)),
                                   ((4, 32, False, 8, True), (4, 32, False, 8, True)),
                                   ((4, 32, False, 8, True), (5, 32, True, 8))], ids=str)
def test_joined_without_loss(kinds: tuple[tuple[int, int, bool, int], ...]) -> None:
    g = torch.Generator().manual_seed(0)
    forms = [Form(*kind) for kind in kinds]
    parts = [drawn(form.bits, 10, 256, form.group, form.offsets, g, form.super_block) for form in forms]
    levels = torch.tensor(LEVELS, dtype=torch.int8)
    parts = [replace(part, steps=levels[part.numbered.int()], uneven=True) if form.uneven else part
             for form, part in zip(forms, parts, strict=True)]
    joined = join_grouped(parts)
    scales = (joined.scale, joined.offset, joined.subscale, joined.suboffset)
    size = sum(part.nbytes for part in scales if part is not None)
    assert size / joined.steps.numel() + joined.bits / 8 == joined_bytes(forms)
    assert torch.equal(joined.numbers(), torch.cat([part.numbers() for part in parts]))
    assert joined.bits == (8 if any(form.bits == 8 for form in forms) or len({form.uneven for form in forms}) > 1 else
                           6 if len({form.offsets for form in forms}) > 1 else max(form.bits for form in forms))
    assert joined.bits == 8 or (int(joined.numbered.min()) >= 0 and int(joined.numbered.max()) < 2**joined.bits)
    wide = joined.in_bytes()
    assert size / joined.steps.numel() + wide.bits / 8 == joined_bytes(forms, in_bytes=True)
    assert torch.equal(wide.numbers(), joined.numbers())


def test_rounded_to_four_bits_as_everywhere() -> None:
    weight = torch.randn(30, 256, generator=torch.Generator().manual_seed(0))
    assert torch.equal(to_groups(weight).numbers(), dequantize(quantize(weight, "int4")))


@needs_library
def test_a_model_in_four_bits_decodes_as_it_verifies() -> None:
    """A whole pass, bit by bit; the wide one that reads is near it."""
    model = tiny_llama(BF16, hidden_size=128, intermediate_size=256, rounding="int4")
    assert model._native is not None
    c, ids = model.config, torch.randint(VOCAB, (90,), generator=torch.Generator().manual_seed(1))
    caches = [FullCache(c.num_layers, c.num_kv_heads, c.head_dim, max_tokens=200, dtype=BF16) for _ in range(3)]
    for cache in caches[:2]:
        model.forward(ids[:50], cache, logits_rows=0)
        cache.commit()
    expected = torch.cat([model.forward(ids[i : i + 1], caches[0], logits_rows=1) for i in range(50, 90)])
    assert torch.equal(model.forward(ids[50:], caches[1], logits_rows=40), expected)
    wide = model.forward(ids, caches[2], logits_rows=40)
    assert float((wide - expected).norm() / expected.norm()) < 0.1
