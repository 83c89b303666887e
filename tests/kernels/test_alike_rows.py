"""A row of a pass is the same bits in a pass of any width, in the types that are decoded in: a verification then rounds
as plain decoding does."""

from __future__ import annotations

import pytest
import torch

from triforce_core.kernels import Dense, choose_kernels

pytest.importorskip("triton")
pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="torch sees no GPU")]
WIDTHS = (2, 5, 11, 16, 17, 32, 33, 64)


# (KV heads, group, head_dim, cached tokens): the fourth stands just before parts of the cache begin elsewhere; in the
# passes of some, rows are the first to see a block of slots whole
@pytest.mark.parametrize(("shape", "dtype"), [
    ((32, 1, 128, 9000), torch.bfloat16), ((8, 4, 128, 9000), torch.bfloat16), ((8, 4, 128, 70_000), torch.bfloat16),
    ((32, 1, 128, 4090), torch.bfloat16), ((2, 7, 64, 63), torch.bfloat16), ((32, 1, 128, 9000), torch.float16),
    ((8, 4, 128, 9000), torch.float32)], ids=str)
def test_attention_of_a_row_in_any_company(shape: tuple[int, int, int, int], dtype: torch.dtype) -> None:
    heads, group, dim, cached = shape
    kernels = choose_kernels(torch.device("cuda"))
    assert kernels.batch_invariant_rows is not None
    g = torch.Generator("cuda").manual_seed(cached)
    keys, values = torch.randn(2, heads, cached + 64, dim, device="cuda", generator=g).to(dtype)
    queries = torch.randn(64, heads * group, dim, device="cuda", generator=g).to(dtype)
    alike = kernels.batch_invariant_rows(cached, heads, dtype, keys.device)
    assert 1 <= alike <= 64
    alone = torch.cat([kernels.attention(queries[i : i + 1], keys, values, cached + i + 1)[0] for i in range(alike)])
    for n in sorted({alike, *(n for n in WIDTHS if n < alike)}):
        length = torch.tensor([cached + n], dtype=torch.int32, device="cuda")
        for size, mass_rows in ((cached + n, 0), (length, 0), (length, n)):
            found, _ = kernels.attention(queries[:n], keys, values, size, None, mass_rows, 8)
            assert torch.equal(found, alone[:n]), (n, mass_rows)
    # Filled up behind its own rows, as captured passes are.
    filled, _ = kernels.attention(queries[:64], keys, values, cached + 64)
    assert torch.equal(filled[:alike], alone)


def test_where_parts_begin_moves_seldom_and_is_known() -> None:
    batch_invariant_rows = choose_kernels(torch.device("cuda")).batch_invariant_rows
    assert batch_invariant_rows is not None
    for heads in (4, 8, 32):
        given = [batch_invariant_rows(length, heads, torch.bfloat16, torch.device("cuda"))
                 for length in range(120_000, 126_000)]
        ends = [i for i, rows in enumerate(given) if rows == 1]
        assert 1 <= len(ends) <= 3  # about every 2,048 tokens
        for end in ends:
            assert given[end - 40 : end + 1] == list(range(41, 0, -1)) and given[end + 1] == 64


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
# (out, in): one part and several, parts that share the inputs unevenly
@pytest.mark.parametrize("shape", [(12288, 4096), (4096, 4096), (4096, 11008), (6144, 4096), (192, 128), (64, 3968)],
                         ids=str)
def test_products_of_a_row_in_any_company(shape: tuple[int, int], dtype: torch.dtype) -> None:
    g = torch.Generator("cuda").manual_seed(shape[1])
    weight = (torch.randn(shape, device="cuda", generator=g) * shape[1] ** -0.5).to(dtype)
    bias = torch.randn(shape[0], device="cuda", generator=g).to(dtype)
    x = torch.randn(65, shape[1], device="cuda", generator=g).to(dtype)
    for offset in (None, bias):
        linear = choose_kernels(weight.device).make_linear(weight, None, offset, dtype)
        assert isinstance(linear, Dense) and type(linear) is not Dense and linear.weight.data_ptr() == weight.data_ptr()
        expected = x.double() @ weight.double().T + (0 if offset is None else offset.double())
        alone = torch.cat([linear(x[i : i + 1]) for i in range(65)])
        assert float((alone.double() - expected).norm() / expected.norm()) <= 5e-3
        for n in (1, *WIDTHS):
            assert torch.equal(linear(x[:n]), alone[:n])
        wide = linear(x)  # prefill: torch's own
        assert float((wide.double() - expected).norm() / expected.norm()) <= 5e-3


def test_shapes_that_are_no_whole_blocks_are_torchs() -> None:
    make = choose_kernels(torch.device("cuda")).make_linear
    for weight in (torch.ones(100, 128).bfloat16(), torch.ones(128, 100).bfloat16(), torch.ones(128, 128)):
        assert type(make(weight.cuda(), None, None, weight.dtype)) is Dense
