"""The Triton kernels against their specifications.

Bounds: relative error 2e-5 in fp32, 1e-2 in bf16, 3e-3 in fp16; weights in few bits, whose products are bf16: 5e-3;
with what is around them, up to three in a row: 1e-2."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from triforce_core.config import SamplingParams
from triforce_core.kernels import REFERENCE, Dense, FusedLinear, Grouped, Linear, choose_kernels, quantized
from triforce_core.kernels.dispatch import groups_missing
from triforce_core.kernels.fused import FusedDense
from triforce_core.sampling import DeviceSampling, DrawnChance, Sampler, confidence
from triforce_core.speculation.verifier import reject_on_tensors

pytest.importorskip("triton")
pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="torch sees no GPU")]
BOUNDS = {torch.float32: 2e-5, torch.bfloat16: 1e-2, torch.float16: 3e-3}
# (KV heads, group, rows, head_dim, slots, length)
SHAPES = [(32, 1, 1, 128, 5000, 4097), (32, 1, 17, 128, 3000, 3000), (8, 4, 1, 128, 9000, 8190),
          (8, 4, 17, 128, 4000, 3333), (8, 4, 64, 128, 2100, 2100), (8, 1, 9, 64, 33000, 32001),
          (4, 2, 64, 64, 300, 64), (2, 1, 1, 64, 64, 1), (4, 1, 5, 32, 700, 131)]


def relative(found: torch.Tensor, expected: torch.Tensor) -> float:
    return float((found.float() - expected.float()).norm() / expected.float().norm())


def draw(dtype: torch.dtype, shape: tuple[int, ...], seed: int) -> tuple[torch.Tensor, ...]:
    """queries, keys, values and a tree mask; unfilled slots hold what earlier passes may have left there."""
    heads, group, n, dim, slots, _ = shape
    g = torch.Generator("cuda").manual_seed(seed)
    keys, values = torch.randn(2, heads, slots, dim, device="cuda", generator=g).to(dtype)
    queries = torch.randn(n, heads * group, dim, device="cuda", generator=g)
    tree = (torch.rand(n, n, device="cuda", generator=g) < 0.5).tril() | torch.eye(n, dtype=torch.bool, device="cuda")
    return queries, keys, values, tree


@pytest.mark.parametrize(("shape", "dtype"), [*((shape, dtype) for shape in SHAPES for dtype in BOUNDS
                                               if dtype != torch.float16 or shape[2] == 17)], ids=str)
def test_chain_and_tree_with_mass(shape: tuple[int, ...], dtype: torch.dtype) -> None:
    n, length = shape[2], shape[5]
    queries, keys, values, tree = draw(dtype, shape, length)
    attention = choose_kernels(keys.device).attention
    for mask, mass_rows, chunk_size in ((None, 0, 1), (None, 16, 8), (tree, n, 8), (tree, 1, 12), (None, 3, 256)):
        expected, expected_mass = REFERENCE.attention(queries.to(dtype), keys, values, length, mask,
                                                      min(n, mass_rows), chunk_size)
        on_device = torch.tensor([length], dtype=torch.int32, device="cuda")
        for size in (length, on_device) if mass_rows == n else (length,):
            found, mass = attention(queries, keys, values, size, mask, mass_rows, chunk_size)
            assert found.shape == expected.shape and found.dtype == dtype
            assert relative(found, expected) <= BOUNDS[dtype]
            if expected_mass is None:
                assert mass is None
                continue
            known = expected_mass.shape[1]
            assert mass.shape[1] == (known if size is length else shape[4] // chunk_size)
            assert not mass[:, known:].any()
            assert torch.allclose(mass[:, :known], expected_mass, rtol=BOUNDS[dtype], atol=BOUNDS[dtype] / 10)


@pytest.mark.parametrize("dtype", BOUNDS, ids=str)
@pytest.mark.parametrize("indexed", [False, True], ids=["all", "chosen chunks"])
def test_a_tree_that_grows_level_by_level(indexed: bool, dtype: torch.dtype) -> None:
    """Rows see some of the tokens that earlier passes staged, too."""
    for n, staged, length in ((1, 7, 1400), (5, 64, 2111), (64, 200, 2999), (17, 17, 2048), (130, 200, 2500),
                              (513, 513, 2999)):
        queries, keys, values, _ = draw(dtype, (8, 4, n, 128, 3000, length), length)
        mask = torch.rand(n, staged, device="cuda") < 0.4
        mask[:, staged - n :].fill_diagonal_(True)
        if indexed:
            newest = (length - 600) // 8 * 8
            chunks = torch.rand(8, newest // 8, device="cuda").argsort(-1)[:, :60].int()
            of = (chunks, torch.tensor([60, newest], dtype=torch.int32, device="cuda"), 8, mask)
            expected = REFERENCE.indexed_attention(queries.to(dtype), keys, values, length, *of)
            found = choose_kernels(keys.device).indexed_attention(queries, keys, values, length, *of)
        else:
            expected = REFERENCE.attention(queries.to(dtype), keys, values, length, mask)[0]
            found = choose_kernels(keys.device).attention(queries, keys, values, length, mask)[0]
        assert relative(found, expected) <= BOUNDS[dtype]


@pytest.mark.parametrize("dtype", BOUNDS, ids=str)
def test_a_mask_may_cover_more_slots_than_are_filled(dtype: torch.dtype) -> None:
    """A captured pass has one mask for every length: its last columns are the last slots."""
    for n, columns, length in ((4, 96, 50), (16, 300, 200), (3, 70, 64)):
        queries, keys, values, _ = draw(dtype, (4, 2, n, 64, 400, length), length)
        mask = torch.rand(n, columns, device="cuda") < 0.4
        mask[:, columns - length] = True
        expected = REFERENCE.attention(queries.to(dtype), keys, values, length, mask)[0]
        for size in (length, torch.tensor([length], dtype=torch.int32, device="cuda")):
            found = choose_kernels(keys.device).attention(queries, keys, values, size, mask)[0]
            assert relative(found, expected) <= BOUNDS[dtype]


def test_queries_may_be_part_of_a_larger_tensor() -> None:
    shape = (4, 2, 5, 64, 500, 400)
    _, keys, values, _ = draw(torch.bfloat16, shape, 0)
    whole = torch.randn(5, 16, 64, device="cuda")
    attention = choose_kernels(keys.device).attention
    assert torch.equal(attention(whole[:, :8], keys, values, 400)[0],
                       attention(whole[:, :8].contiguous(), keys, values, 400)[0])


def test_a_captured_graph_follows_the_length() -> None:
    shape = (8, 4, 3, 128, 3000, 0)
    queries, keys, values, _ = draw(torch.bfloat16, shape, 0)
    attention = choose_kernels(keys.device).attention
    length = torch.tensor([100], dtype=torch.int32, device="cuda")
    attention(queries, keys, values, length, None, 3, 8)  # compiled before capture
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out, mass = attention(queries, keys, values, length, None, 3, 8)
    for now in (101, 700, 2999, 40):
        length.fill_(now)
        graph.replay()
        expected, expected_mass = REFERENCE.attention(queries.bfloat16(), keys, values, now, None, 3, 8)
        assert relative(out, expected) <= BOUNDS[torch.bfloat16]
        assert torch.allclose(mass[:, : expected_mass.shape[1]], expected_mass, rtol=1e-2, atol=1e-3)
        assert not mass[:, expected_mass.shape[1] :].any()


# (KV heads, group, rows, head_dim, slots, length, chunks in the index, held, newest, chunk size)
CHOSEN = [(32, 1, 3, 128, 9000, 8200, 512, 479, 7944, 8), (8, 4, 3, 128, 9000, 8200, 512, 480, 7944, 8),
          (8, 4, 17, 64, 3000, 3000, 40, 39, 2700, 8), (4, 2, 64, 128, 1300, 1280, 30, 29, 1200, 12),
          (2, 1, 1, 64, 64, 1, 8, 0, 0, 8), (4, 1, 5, 32, 700, 690, 60, 1, 600, 5)]


@pytest.mark.parametrize(("shape", "dtype"), [(shape, dtype) for shape in CHOSEN for dtype in BOUNDS], ids=str)
def test_chosen_chunks_where_they_lie(shape: tuple[int, ...], dtype: torch.dtype) -> None:
    heads, length, most, held, newest, size = shape[0], *shape[5:]
    queries, keys, values, _ = draw(dtype, shape[:6], length)
    order = torch.rand(heads, max(most, newest // size), device="cuda").argsort(-1)[:, :most]
    chunks = (order % max(1, newest // size)).int()
    bounds = torch.tensor([held, newest], dtype=torch.int32, device="cuda")
    own = choose_kernels(keys.device).indexed_attention
    expected = REFERENCE.indexed_attention(queries.to(dtype), keys, values, length, chunks, bounds, size)
    for size_of in (length, torch.tensor([length], dtype=torch.int32, device="cuda")):
        found = own(queries, keys, values, size_of, chunks, bounds, size)
        assert found.shape == expected.shape and found.dtype == dtype
        assert relative(found, expected) <= BOUNDS[dtype]


def test_a_captured_graph_follows_the_index() -> None:
    queries, keys, values, _ = draw(torch.bfloat16, (8, 4, 3, 128, 3000, 0), 0)
    own = choose_kernels(keys.device).indexed_attention
    chunks = torch.zeros(8, 64, dtype=torch.int32, device="cuda")
    bounds, length = torch.tensor([1, 8], dtype=torch.int32).cuda(), torch.tensor([100], dtype=torch.int32).cuda()
    own(queries, keys, values, length, chunks, bounds, 8)  # compiled before capture
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = own(queries, keys, values, length, chunks, bounds, 8)
    for now, held, newest in ((2990, 60, 2800), (2991, 61, 2800), (400, 20, 320), (50, 0, 0)):
        chunks.copy_(torch.rand(8, 375, device="cuda").argsort(-1)[:, :64] % max(1, newest // 8))
        bounds.copy_(torch.tensor([held, newest]))
        length.fill_(now)
        graph.replay()
        expected = REFERENCE.indexed_attention(queries.bfloat16(), keys, values, now, chunks, bounds, 8)
        assert relative(out, expected) <= BOUNDS[torch.bfloat16]


def test_a_longer_context_compiles_nothing() -> None:
    from triforce_core.kernels import triton_attention

    queries, keys, values, _ = draw(torch.bfloat16, (4, 1, 4, 64, 4096, 0), 0)
    triton_attention.attention(queries, keys, values, 1000, None, 4, 8)

    def compiled() -> int:
        caches = triton_attention._attend.device_caches.values()
        return sum(len(cache[0]) for cache in caches)

    before = compiled()
    for length in (1001, 1008, 2048, 4095):
        triton_attention.attention(queries, keys, values, length, None, 4, 8)
    for n in (2, 3):
        triton_attention.attention(queries[:n], keys, values, 999, None, n, 8)
    assert compiled() == before


@pytest.mark.parametrize("dtype", BOUNDS)
def test_small_ops(dtype: torch.dtype) -> None:
    own = choose_kernels(torch.device("cuda"))
    for n in (1, 9, 300):
        x = torch.randn(n, 40 * 128, device="cuda").to(dtype)
        heads = x.view(n, 40, 128)[:, :36]  # as queries and keys lie before values
        cos, sin = torch.randn(2, n, 1, 128, device="cuda")
        for found, expected in ((own.rotate(heads, cos, sin), REFERENCE.rotate(heads, cos, sin)),
                                (own.rotate(heads[..., :96], cos[..., :96], sin[..., :96]),
                                 REFERENCE.rotate(heads[..., :96], cos[..., :96], sin[..., :96])),
                                (own.swiglu(x), REFERENCE.swiglu(x)),
                                (own.rms_norm(x, cos.flatten().repeat(40)[:5120], 1e-5),
                                 REFERENCE.rms_norm(x, cos.flatten().repeat(40)[:5120], 1e-5))):
            assert found.shape == expected.shape and relative(found, expected) <= BOUNDS[dtype]


@pytest.mark.parametrize("shape", [(32, 8, 15_616), (2, 3, 1024), (1, 2, 3)], ids=str)
def test_look_ahead(shape: tuple[int, ...]) -> None:
    mass = torch.rand(shape, device="cuda").pow(8)
    torch.testing.assert_close(choose_kernels(mass.device).look_ahead(mass), REFERENCE.look_ahead(mass))


@pytest.mark.parametrize("dtype", BOUNDS)
def test_fused_small_ops(dtype: torch.dtype) -> None:
    own = choose_kernels(torch.device("cuda"))
    for n, heads, group in ((1, 32, 1), (5, 8, 4), (300, 3, 2)):
        hidden, weight = torch.randn(n, 5000, device="cuda"), torch.rand(5000, device="cuda")
        for addend in (None, torch.randn(n, 5000, device="cuda").to(dtype)):
            streams = [hidden.clone(), hidden.clone()]
            norms = [ops.add_rms_norm(stream, addend, weight, 1e-5, dtype)
                     for ops, stream in zip((own, REFERENCE), streams, strict=True)]
            assert norms[0].dtype == dtype and relative(*norms) <= BOUNDS[dtype]
            assert torch.equal(*streams)
        qkv = torch.randn(n, heads * (group + 2), 128, device="cuda").to(dtype)
        cos, sin = torch.randn(2, n, 1, 128, device="cuda")
        slots = torch.randperm(400, device="cuda")[:n]
        caches = torch.zeros(2, 2, heads, 400, 128, device="cuda").to(dtype)
        queries = [ops.rotate_and_write(qkv, cos, sin, keys, values, slots)
                   for ops, (keys, values) in zip((own, REFERENCE), caches, strict=True)]
        assert queries[0].shape == queries[1].shape and relative(*queries) <= BOUNDS[dtype]
        assert relative(caches[0], caches[1]) <= BOUNDS[dtype]
        assert torch.equal(caches[0, 1], caches[1, 1])  # values are moved, not computed


LAWS = [SamplingParams(temperature=1.0), SamplingParams(temperature=0.6, top_p=0.9),
        SamplingParams(temperature=1.3, top_k=3), SamplingParams(temperature=0.7, top_k=40, top_p=0.5),
        SamplingParams(temperature=0.9, top_k=1_000_000, top_p=0.99), SamplingParams(temperature=0.1, top_p=1e-6)]


@pytest.mark.parametrize("params", LAWS, ids=str)
@pytest.mark.parametrize(("rows", "width"), [(1, 8192), (3, 32_000), (9, 50), (2, 128_256)])
def test_laws_without_sorting(params: SamplingParams, rows: int, width: int) -> None:
    """Sums in another order may find the bar one token further on, where masses differ in their last bits."""
    kernels, sampler = choose_kernels(torch.device("cuda")), Sampler(params)
    assert kernels.probs is not None
    logits = torch.randn(rows, width, device="cuda", generator=torch.Generator("cuda").manual_seed(width)) * 3
    logits[0, width // 2 :] = logits[0, 0]  # many that are equally likely
    parameters = torch.tensor(sampler.parameters(width), dtype=torch.float64, device="cuda")
    expected, found = DeviceSampling(sampler.kind, parameters).distributions(logits), kernels.probs(logits, parameters)
    assert found.dtype == torch.float32 and found.shape == expected.shape
    assert torch.allclose(found.sum(-1), torch.ones(rows, device="cuda"), atol=1e-5)
    for mine, theirs in list(zip(found, expected, strict=True))[1 if params.top_p < 1 else 0 :]:  # of equals, all stay
        assert abs(int((mine > 0).sum()) - int((theirs > 0).sum())) <= 1
        assert float((mine - theirs).abs().sum()) <= 1e-4
    least = found[0][found[0] > 0].min()
    assert bool((found[0] >= least).sum() == (logits[0] >= logits[0][found[0] > 0].min()).sum())


@pytest.mark.parametrize(("rows", "width"), [(1, 8192), (4, 50), (3, 32_000), (2, 128_256)])
def test_tokens_are_picked_by_the_same_numbers(rows: int, width: int) -> None:
    pick = choose_kernels(torch.device("cuda")).pick
    assert pick is not None
    g = torch.Generator("cuda").manual_seed(width)
    for turn in range(20):
        weights = torch.rand(rows, width, device="cuda", generator=g)
        weights *= torch.rand(rows, width, device="cuda", generator=g) < 0.2
        weights[:, 3] += 1e-3
        numbers = torch.rand(rows, dtype=torch.float64, device="cuda", generator=g)
        numbers[0] = (0.0, 1 - 2**-53, float(numbers[0]))[turn % 3]
        found = pick(weights, numbers)
        assert torch.equal(found, DrawnChance(numbers).pick(weights))
        assert bool((weights.gather(1, found[:, None]) > 0).all())
        assert torch.equal(pick(weights[0], numbers[:1]), found[:1])
    assert pick(torch.zeros(2, width, device="cuda"), numbers.new_zeros(2)).shape == (2,)  # any token: nothing is left


@pytest.mark.parametrize(("n", "width"), [(0, 50), (3, 50), (5, 24_576), (2, 65_536)])
def test_a_draft_is_judged_by_the_same_numbers(n: int, width: int) -> None:
    kernels = choose_kernels(torch.device("cuda"))
    g = torch.Generator("cuda").manual_seed(width)
    accepted = set()
    for turn in range(40):
        target = (torch.randn(n + 1, width, device="cuda", generator=g) * 3).softmax(-1)
        near = (target[:n].log() + torch.randn(n, width, device="cuda", generator=g) * 0.5).softmax(-1)
        probs = (near, target[:n].clone())[turn % 5 == 0]  # what was drawn from the very same is never refused
        drafted = probs.multinomial(1, generator=g).flatten() if n else torch.zeros(0, dtype=torch.int64, device="cuda")
        numbers = torch.rand(n + 1, dtype=torch.float64, device="cuda", generator=g)
        numbers[n] = (0.0, 1 - 2**-53, float(numbers[n]))[turn % 3]
        expected = reject_on_tensors(drafted, probs, target, DrawnChance(numbers))
        found = reject_on_tensors(drafted, probs, target, DrawnChance(numbers, kernels))
        assert torch.equal(found, expected), (turn, found, expected)
        accepted.add(int(found[0]))
    assert len(accepted) == n + 1 or n > 3


@pytest.mark.parametrize(("rows", "width"), [(1, 50), (3, 8192), (5, 128_256)])
def test_how_sure_each_row_is(rows: int, width: int) -> None:
    found = choose_kernels(torch.device("cuda")).confidence
    assert found is not None
    logits = torch.randn(rows, width, device="cuda", generator=torch.Generator("cuda").manual_seed(width)) * 5
    logits[0, 7] = 60.0  # as sure as can be
    torch.testing.assert_close(found(logits), confidence(logits), atol=1e-6, rtol=1e-4)


def in_few_bits(form: str, shape: tuple[int, int], seed: int, pair: int = 0) -> tuple[Linear, torch.Tensor]:
    """A product, and the numbers its weight stands for, fp32. form: as this app rounds, or "bits, inputs of a group"
    as checkpoints have them, with offsets after a "+", in super-blocks of 256 after a "K"."""
    own, g = choose_kernels(torch.device("cuda")), torch.Generator("cuda").manual_seed(seed)
    if form in quantized.KINDS:
        dense = Dense((torch.randn(shape, device="cuda", generator=g) * shape[1] ** -0.5).bfloat16())
        linear = own.quantize_linear(dense, form, pair)
        return linear, quantized.dequantize(quantized.quantize(dense.weight, form))
    bits, group = map(int, form.rstrip("+K").split(","))
    offsets, blocks = "+" in form, 256 if "K" in form else group
    low, high = (0, 16) if bits == 4 and offsets else (-(2 ** (bits - 1)), 2 ** (bits - 1))
    steps = torch.randint(low, high, shape, device="cuda", generator=g, dtype=torch.int8)
    scale, offset = torch.randn(2, shape[0], shape[1] // blocks, device="cuda", generator=g) * shape[1] ** -0.5
    weight = Grouped(bits, steps, scale / high, offset if offsets else None)
    if "K" in form:
        subs = torch.randint(1, 64, (2, shape[0], shape[1] // group), device="cuda", generator=g, dtype=torch.int8)
        weight = replace(weight, scale=scale / high / 32, subscale=subs[0], suboffset=subs[1] if offsets else None)
    return own.make_grouped(weight, None, torch.bfloat16, pair), weight.numbers()


IN_FEW_BITS = [*quantized.KINDS, "4,32", "4,32+", "4,64+", "4,128", "4,128+", "8,16", "8,32", "8,32+", "8,128+"]
OF_256 = ["4,256+", "4,32+K", "8,16K", "8,16+K", "8,32+K"]  # in whole runs of so many inputs


@pytest.mark.parametrize(("form", "shape"), [
    # (out, in): one part and several, blocks of 128 and of 64, groups that the parts do not share evenly
    *((form, shape) for form in IN_FEW_BITS for shape in (
        (12288, 4096), (4096, 11008), (6144, 1408), (192, 128), (64, 3968))),
    *((form, shape) for form in OF_256 for shape in ((12288, 4096), (4096, 11008), (6144, 1280), (192, 256)))], ids=str)
def test_products_with_weights_in_few_bits(form: str, shape: tuple[int, int]) -> None:
    linear, expected = in_few_bits(form, shape, shape[0])
    assert not isinstance(linear, Dense)
    for n in (1, 2, 7, 16, 17, 64, 65):
        x = torch.randn(n, shape[1], device="cuda", generator=torch.Generator("cuda").manual_seed(n))
        wanted = x.bfloat16().double() @ expected.double().T
        found = linear(x)
        assert found.dtype == torch.bfloat16 and relative(found.double(), wanted) <= 5e-3
        assert torch.equal(found, linear(x))  # whoever adds the parts up


@pytest.mark.parametrize(("form", "shape", "pair"), [
    *((form, shape, pair) for form in IN_FEW_BITS for shape, pair in (((6144, 1408), 0), ((6144, 1408), 64))),
    *((form, shape, pair) for form in OF_256 for shape, pair in (((6144, 1280), 64), ((192, 256), 32)))], ids=str)
def test_weights_in_few_bits_are_unpacked_for_wide_passes(form: str, shape: tuple[int, int], pair: int) -> None:
    from triforce_core.kernels.triton_linear import QuantizedLinear

    linear, expected = in_few_bits(form, shape, 0, pair)
    assert isinstance(linear, QuantizedLinear)
    unpacked = linear.unpacked()
    if "+" in form:  # a product and a sum may be rounded once or twice
        torch.testing.assert_close(unpacked, expected.bfloat16(), atol=1e-6, rtol=2**-7)
    else:
        assert torch.equal(unpacked, expected.bfloat16())
    x = torch.randn(300, shape[1], device="cuda")
    assert torch.equal(linear(x), torch.nn.functional.linear(x.bfloat16(), unpacked))


def test_weights_in_few_bits_have_a_bias_and_are_captured() -> None:
    own = choose_kernels(torch.device("cuda"))
    dense = Dense(torch.randn(4096, 4096, device="cuda").bfloat16(), torch.randn(4096, device="cuda").bfloat16())
    linear = own.quantize_linear(dense, "int4")
    x = torch.randn(3, 4096, device="cuda").bfloat16()
    linear(x)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        once = linear(x)
        twice = linear(once)
    for _ in range(3):
        x.normal_()
        graph.replay()
        assert torch.equal(once, linear(x)) and torch.equal(twice, linear(once))
    expected = quantized.dequantize(quantized.quantize(dense.weight, "int4"))
    assert relative(once, x.float() @ expected.T + dense.bias) <= 5e-3


@pytest.mark.parametrize(("form", "heads", "group", "dim", "width"), [
    *((form, *sizes) for form in IN_FEW_BITS for sizes in ((32, 1, 128, 4096), (8, 4, 64, 1408), (4, 2, 32, 256))),
    *((form, 8, 4, 64, 1280) for form in OF_256)])
def test_products_with_what_is_around_them(form: str, heads: int, group: int, dim: int, width: int) -> None:
    """Against the same weights in plain torch in fp32; each row's results are the same bits in any company."""

    def pair(outputs: int, inputs: int, half: int = 0) -> tuple[FusedLinear, FusedDense]:
        found, weight = in_few_bits(form, (outputs, inputs), width + half, half)
        assert isinstance(found, FusedLinear)
        return found, FusedDense(weight)

    into, out_of = pair(width, 2 * width), pair(2 * width, width, width)
    qkv = pair(heads * (group + 2) * dim, width, dim // 2)
    x, stream = torch.randn(17, 2 * width, device="cuda").bfloat16(), torch.randn(17, width, device="cuda")
    norm = torch.rand(width, device="cuda") + 0.5
    cos, sin = torch.randn(2, 17, 1, dim, device="cuda")
    slots = torch.randperm(400, device="cuda")[:17]
    alone: dict[str, torch.Tensor] = {}
    for n in (17, 16, 3, 1):
        found: list[dict[str, torch.Tensor]] = []
        for number, precise in enumerate((False, True)):
            hidden = stream[:n].clone()
            y = into[number].added(x[:n].float() if precise else x[:n], hidden, norm, 1e-5)
            caches = torch.zeros(2, heads, 400, dim, device="cuda").to(torch.float32 if precise else torch.bfloat16)
            queries = qkv[number].rotated(y, cos[:n], sin[:n], *caches, slots[:n])
            found.append({"hidden": hidden, "gated": out_of[number].gated(y), "normed": out_of[number].normed(y),
                          "queries": queries, "keys": caches[0][:, slots[:n]], "values": caches[1][:, slots[:n]],
                          "plain": out_of[number](y.values)})
            assert torch.count_nonzero(caches) <= 2 * heads * n * dim
        for name, each in found[0].items():
            assert relative(each, found[1][name]) <= 1e-2, name
            if n == 16:
                alone[name] = each
            elif n < 16:
                among = alone[name][:, :n] if name in ("keys", "values") else alone[name][:n]
                assert torch.equal(each, among), name


def test_the_check_of_this_card_passes() -> None:
    assert groups_missing(torch.device("cuda")) == ""
    assert choose_kernels(torch.device("cuda")).quantized_types == (torch.bfloat16,)


def test_groups_that_fit_no_blocks_are_unpacked() -> None:
    own = choose_kernels(torch.device("cuda"))
    for outputs, inputs in ((100, 128), (128, 160)):
        steps = torch.randint(-8, 8, (outputs, inputs), device="cuda", dtype=torch.int8)
        weight = Grouped(4, steps, torch.rand(outputs, inputs // 32, device="cuda"))
        linear = own.make_grouped(weight, None, torch.bfloat16)
        assert isinstance(linear, Dense) and torch.equal(linear.weight, weight.numbers().bfloat16())


def test_what_does_not_fit_stays_as_it_is() -> None:
    own = choose_kernels(torch.device("cuda"))
    for weight in (torch.ones(100, 128), torch.ones(128, 100), torch.ones(128, 128).float()):
        dense = Dense(weight.cuda() if weight.dtype == torch.float32 and weight.shape == (128, 128)
                      else weight.bfloat16().cuda())
        assert own.quantize_linear(dense, "int4") is dense


def test_wide_passes_take_torchs_kernel() -> None:
    shape = (8, 4, 200, 128, 1000, 900)
    queries, keys, values, _ = draw(torch.bfloat16, shape, 0)
    expected, _ = REFERENCE.attention(queries.bfloat16(), keys, values, 900)
    assert relative(choose_kernels(keys.device).attention(queries, keys, values, 900)[0], expected) <= 1e-2
