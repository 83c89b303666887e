"""Attention of wide passes: its parts merge to the whole, and every kernel that is here computes the same."""

from __future__ import annotations

import pytest
import torch

from triforce_core.kernels import REFERENCE, choose_kernels, choose_wide_attention, wide_attention

on_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="torch sees no GPU")


def test_attention_over_parts_merges_to_attention_over_all() -> None:
    g = torch.Generator().manual_seed(0)
    n, heads, dim, length = 5, 3, 8, 40
    queries, keys, values = (torch.randn(count, dim, generator=g) for count in (n * heads, length, length))
    queries = queries.view(n, heads, dim)
    scores = queries @ keys.T * dim**-0.5  # [n, heads, length]
    parts = []
    for start, stop in ((0, 16), (16, 24), (24, 40)):
        spans = scores[..., start:stop].logsumexp(-1)
        parts.append(((scores[..., start:stop] - spans[..., None]).exp() @ values[start:stop], spans))
    assert torch.allclose(wide_attention.merged(parts), scores.softmax(-1) @ values, atol=1e-6)
    assert wide_attention.merged(parts[:1]) is parts[0][0]


def test_a_package_that_returns_more_than_its_output(monkeypatch: pytest.MonkeyPatch) -> None:
    """flash-attn 3 and 4 may; tokens come before heads in what it takes."""
    shapes = []

    class Module:
        @staticmethod
        def flash_attn_func(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, causal: bool) -> object:
            shapes.extend([q.shape, k.shape, v.shape])
            assert causal
            return q * 2, q[..., 0]

    monkeypatch.setattr(wide_attention, "import_module", lambda name: Module)
    queries, keys = torch.ones(4, 6, 8), torch.ones(3, 20, 8)
    found = wide_attention.by_package("flash_attn")(queries, keys, keys, 10)
    assert torch.equal(found, queries * 2)
    assert shapes == [(1, 4, 6, 8), (1, 10, 3, 8), (1, 10, 3, 8)]


# (KV heads, group, head_dim, rows, cached tokens): whole blocks, each rest of one, an odd number in front
@pytest.mark.gpu
@on_gpu
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("shape", [(8, 4, 128, 2048, 16_384), (4, 1, 128, 1024, 36_000), (2, 7, 64, 2048, 49_152)],
                         ids=str)
def test_every_kernel_computes_the_same(shape: tuple[int, ...], dtype: torch.dtype) -> None:
    heads, group, dim, n, past = shape
    g = torch.Generator("cuda").manual_seed(past)
    keys, values = torch.randn(2, heads, past + n + 100, dim, device="cuda", generator=g).to(dtype)
    keys[:, past + n :] = float("nan")  # what lies behind was never written
    queries = torch.randn(n, heads * group, dim, device="cuda", generator=g).to(dtype)
    some = torch.arange(0, n, 97, device="cuda")
    expected = torch.cat([REFERENCE.attention(queries[i : i + 1], keys.nan_to_num(), values, past + int(i) + 1)[0]
                          for i in some])
    made = 0
    for name, make in wide_attention._candidates():
        try:
            attend = make()
        except ImportError:
            continue
        found = attend(queries, keys, values, past + n).reshape(n, -1)[some]
        assert float((found.float() - expected.float()).norm() / expected.float().norm()) <= 1e-2, name
        made += 1
    assert made >= 2  # torch's and cuDNN's
    found, _ = choose_kernels(keys.device).attention(queries, keys, values, past + n)
    assert float((found[some].float() - expected.float()).norm() / expected.float().norm()) <= 1e-2


@pytest.mark.gpu
@on_gpu
def test_the_fastest_is_chosen_and_told() -> None:
    chosen = choose_wide_attention(torch.device("cuda"), torch.bfloat16, 4, 128)
    assert chosen.summary.startswith(f"long documents are read with {chosen.name} (")
    assert "TFLOP/s" in chosen.summary and chosen is choose_wide_attention(torch.device("cuda"), torch.bfloat16, 4, 128)
