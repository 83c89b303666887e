"""Products with what is around them, against the ops one by one; and a model that computes with them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import pytest
import torch
from model.tiny import LIKE_A_GPU, VOCAB, Watch, tiny_llama
from torch import Tensor

from triforce_core.kernels import KV_BITS, REFERENCE, Dense, Linear, PreNorm, reference
from triforce_core.kernels.fused import FusedDense
from triforce_core.kv_cache.full import FullCache, RowsCache
from triforce_core.model import Llama
from triforce_core.model.graphs import DeviceSlots

EPS = 1e-5


def fused_dense(linear: Dense, kind: str, pair: int = 0) -> Linear:
    rounded = REFERENCE.quantize_linear(linear, kind)
    assert isinstance(rounded, Dense)
    return rounded if rounded is linear else FusedDense(rounded.weight, rounded.bias)


def but_the_head(linear: Dense, kind: str, pair: int = 0) -> Linear:
    return fused_dense(linear, kind) if len(linear.weight) != VOCAB else REFERENCE.quantize_linear(linear, kind)


def test_a_norm_in_two_halves_is_a_norm() -> None:
    hidden, norm = torch.randn(3, 256), torch.rand(256)
    before, after = FusedDense(torch.randn(256, 128)), FusedDense(torch.randn(64, 256))
    x = torch.randn(3, 128)
    expected_hidden = hidden + before(x)
    found = before.added(x, hidden, norm, EPS)
    assert torch.equal(hidden, expected_hidden)
    expected = after(reference.rms_norm(expected_hidden, norm, EPS))
    torch.testing.assert_close(after.normed(found), expected, atol=1e-4, rtol=1e-4)
    torch.testing.assert_close(after.gated(found), reference.swiglu(expected), atol=1e-4, rtol=1e-3)
    normed = PreNorm(reference.rms_norm(expected_hidden, norm, EPS), None, EPS)
    assert torch.equal(after.normed(normed), expected)


def staged(model: Llama, rows: int, kind: Callable[..., FullCache] = FullCache) -> tuple[Tensor, Tensor]:
    """A pass of three rows on the device behind twenty: logits of so many, and the last layer's new keys."""
    c = model.config
    cache = kind(c.num_layers, c.num_kv_heads, c.head_dim, max_tokens=64, dtype=torch.float32, slots=64)
    ids = torch.randint(VOCAB, (20,), generator=torch.Generator().manual_seed(0))
    model.forward(ids, cache, logits_rows=1)
    steps = torch.arange(20, 23)
    model.rope.reserve(23)
    slots = DeviceSlots(cache, steps, torch.tensor([23], dtype=torch.int32))
    logits = model.forward_on_device(ids[:3], steps, slots, rows)
    return logits, cache.layers[-1].keys[:, 20:23].clone()


@pytest.mark.parametrize("rounds", [fused_dense, but_the_head])
@pytest.mark.parametrize("shape", [{}, {"num_key_value_heads": 2}, {"tie_word_embeddings": False}], ids=str)
def test_a_copy_computes_the_same_fused(shape: dict[str, int], rounds: Callable[..., Linear],
                                        monkeypatch: pytest.MonkeyPatch) -> None:
    shape = {"hidden_size": 128, "intermediate_size": 256, **shape}
    kernels = replace(LIKE_A_GPU, device_lengths=(32,))
    usual = tiny_llama(kernels=kernels, **shape).quantized("int8")
    fused = tiny_llama(kernels=replace(kernels, quantize_linear=rounds), **shape).quantized("int8")
    assert isinstance(fused.weights.head, FusedDense) == (rounds is fused_dense)
    assert usual._fused is None and fused._fused is not None
    calls, rotated = [], FusedDense.rotated
    monkeypatch.setattr(FusedDense, "rotated", lambda *given: (calls.append(given), rotated(*given))[1])
    for one, other in zip(staged(usual, 1), staged(fused, 1), strict=True):  # not logits of all rows: one by one
        assert torch.equal(one, other)
    for kind in KV_BITS:  # nor rows
        rounded = partial(RowsCache, kind=kind)
        for one, other in zip(staged(usual, 3, rounded), staged(fused, 3, rounded), strict=True):
            assert torch.equal(one, other)
    assert not calls
    for one, other in zip(staged(usual, 3), staged(fused, 3), strict=True):
        torch.testing.assert_close(one, other, atol=1e-4, rtol=1e-3)
    assert len(calls) == fused.config.num_layers
    fewer = fused.with_layers(fused.layers[1:])
    assert fewer._fused is not None and [layer.index for layer in fewer._fused] == [0]
    assert torch.isfinite(staged(fewer, 3)[0]).all()


@pytest.mark.parametrize("masked", [False, True])
def test_a_pass_as_usual_rounds_as_one_on_the_device(masked: bool) -> None:
    """Whatever is captured and whoever looks on: else a verification would round unlike plain decoding."""
    kernels = replace(LIKE_A_GPU, device_lengths=(32,), max_rows=8, quantize_linear=fused_dense)
    model = tiny_llama(kernels=kernels, hidden_size=128, intermediate_size=256).quantized("int8")
    ids = torch.randint(VOCAB, (23,), generator=torch.Generator().manual_seed(0))
    mask = torch.ones(3, 3, dtype=torch.bool).tril() if masked else None
    found, watches = [], (None, Watch())
    for watch in watches:
        cache = FullCache(2, 4, 32, max_tokens=64, dtype=torch.float32, slots=64)
        model.forward(ids[:20], cache, logits_rows=1)
        cache.commit()
        found.append(model.forward(ids[20:], cache, logits_rows=3, observer=watch, staged_mask=mask))
        assert cache.num_staged == 3
        cache.check_integrity()
    slots = DeviceSlots(cache, torch.arange(20, 23), torch.tensor([23], dtype=torch.int32), mask)
    found.append(model.forward_on_device(ids[20:], torch.arange(20, 23), slots, 3))
    assert torch.equal(found[0], found[1]) and torch.equal(found[0], found[2])
    assert watches[1] is not None and [layer for layer, _, _ in watches[1].seen] == [0, 1]
    usual = tiny_llama(kernels=replace(kernels, quantize_linear=LIKE_A_GPU.quantize_linear), hidden_size=128,
                       intermediate_size=256).quantized("int8")
    cache, watch = FullCache(2, 4, 32, max_tokens=64, dtype=torch.float32, slots=64), Watch()
    usual.forward(ids[:20], cache, logits_rows=1)
    cache.commit()
    logits = usual.forward(ids[20:], cache, logits_rows=3, observer=watch, staged_mask=mask)
    torch.testing.assert_close(found[0], logits, atol=1e-4, rtol=1e-3)
    for (_, asked, mass), (_, asked2, mass2) in zip(watches[1].seen, watch.seen, strict=True):
        torch.testing.assert_close(asked, asked2, atol=1e-4, rtol=1e-3)
        torch.testing.assert_close(mass[:, : mass2.shape[1]], mass2, atol=1e-4, rtol=1e-3)


def test_what_is_not_rounded_is_not_fused() -> None:
    """The model itself, and a copy with a width that is not of whole groups."""
    kernels = replace(LIKE_A_GPU, device_lengths=(32,), quantize_linear=fused_dense)
    model = tiny_llama(kernels=kernels, hidden_size=128, intermediate_size=200)
    assert model._fused is None and model.quantized("int8")._fused is None
