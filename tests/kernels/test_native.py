"""The CPU's own kernels against the specification, against themselves in other company, and where they are missing.

The first part runs for each of the ``LEVELS`` in ``conftest``. Without a C compiler it is skipped;
TRIFORCE_KERNELS=native makes that an error."""

from __future__ import annotations

import ctypes
import random
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from model.tiny import VOCAB, tiny_llama

from triforce_core import native_build
from triforce_core.config import SamplingParams
from triforce_core.engine.pipeline import AttentionMass
from triforce_core.kernels import (
    REFERENCE,
    choose_kernels,
    compiled,
    native,
    native_check,
    reference,
    values_transposed,
)
from triforce_core.kernels import cpu as torch_kernels
from triforce_core.kernels.library import CACHE, SETTING, Compiled
from triforce_core.kv_cache.full import FullCache
from triforce_core.model import Llama
from triforce_core.native_build import compilers
from triforce_core.research.chunk_means import LastQueries
from triforce_core.sampling import Sampler

needs_library = pytest.mark.usefixtures("level")
BF16 = torch.bfloat16


def library() -> ctypes.CDLL:
    found = compiled().library
    assert found is not None
    return found


def drawn(heads: int, slots: int, dim: int, g: torch.Generator) -> tuple[torch.Tensor, torch.Tensor]:
    return (torch.randn(heads, slots, dim, generator=g).to(BF16), torch.randn(heads, slots, dim, generator=g).to(BF16))


def attend(*given: Any) -> tuple[torch.Tensor, torch.Tensor | None]:
    return native.attention(library(), *given)


@needs_library
@pytest.mark.parametrize("seed", range(24))
def test_attention_of_any_shape(seed: int) -> None:
    """Tails of blocks and of parts, one row and wide passes, chains and trees, chunks that fill blocks and others."""
    chance, g = random.Random(seed), torch.Generator().manual_seed(seed)
    heads, group, dim = chance.choice((1, 2, 3)), chance.choice((1, 2, 7)), chance.choice((16, 32, 48, 64, 80, 128))
    n = chance.choice((1, 2, 5, 6, 7, 26, 64, 65, 130))
    length = n + chance.choice((0, 1, 63, 128, 190, native.PART - 3, native.PART, native.PART + 129))
    keys, values = drawn(heads, length + chance.choice((0, 1, 50)), dim, g)
    keys[:, length:] = values[:, length:] = float("nan")  # what is not filled is not read
    queries = torch.randn(n, heads * group, dim, generator=g).to(BF16).float() * chance.choice((1, 4))
    mask = None
    if chance.random() < 0.5:
        earlier = chance.choice((0, min(3, length - n)))
        mask = torch.cat((torch.rand(n, earlier, generator=g) < 0.7,
                          (torch.rand(n, n, generator=g) < 0.5).tril() | torch.eye(n, dtype=torch.bool)), 1)
    rows, chunk = chance.choice((0, 1, 4, n)), chance.choice((4, 8, 16, 10))
    expected, mass = REFERENCE.attention(queries, keys[:, :length], values[:, :length], length, mask, min(rows, n),
                                         chunk)
    found, own = attend(queries, keys, values, length, mask, min(rows, n), chunk)
    assert found.dtype == BF16 and found.shape == expected.shape
    torch.testing.assert_close(found.float(), expected, atol=2e-2, rtol=2e-2)
    if not rows:
        assert own is None
    elif mask is None or mask.shape[1] == n:  # mass is of chunks before the staged tail
        assert own is not None and mass is not None
        torch.testing.assert_close(own, mass, atol=1e-3, rtol=1e-3)


@needs_library
@pytest.mark.parametrize("seed", range(8))
def test_the_heaviest_chunks(seed: int) -> None:
    """Any count, numbers above 1, equal ones (the first stay), and fewer that are positive than wanted."""
    chance, g = random.Random(seed), torch.Generator().manual_seed(seed)
    count = chance.choice((1, 15, 16, 17, 300, 3736))
    wanted = chance.randint(1, count)
    mass = torch.rand(2, 3, count + 2, generator=g) ** 20 * chance.choice((1, 30))
    if seed % 2:
        mass = (mass * 8).round() / 8
    cut = mass[..., 1:-1]
    found = native.heaviest(cut, wanted)
    assert torch.equal(found, cut.sort(dim=-1, descending=True, stable=True).indices[..., :wanted].sort(-1).values)
    best = reference.heaviest(cut, wanted)
    assert torch.equal(cut.gather(-1, found).sort(-1).values, cut.gather(-1, best).sort(-1).values)


@needs_library
@pytest.mark.parametrize("dtype", [BF16, torch.int8, torch.float32])
def test_copies_of_chunks(dtype: torch.dtype) -> None:
    g = torch.Generator().manual_seed(0)
    source = torch.randint(-100, 100, (3, 203, 34), generator=g).to(dtype)
    chunks = torch.randint(0, 25, (3, 7), generator=g)
    found, expected = torch.zeros(2, 3, 60, 34).to(dtype)
    native.gather_chunks(found, source, chunks, 8)
    reference.gather_chunks(expected, source, chunks, 8)
    assert torch.equal(found, expected)
    assert torch.equal(found[1, 8:16], source[1, chunks[1, 1] * 8 :][:8])


def test_chunks_without_a_library(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(native, "compiled", lambda: Compiled(None, "none"))
    chunks = native.heaviest(torch.tensor([[0.0, 3.0, 1.0, 2.0]]), 2)
    assert sorted(chunks[0].tolist()) == [1, 3]
    source, found = torch.arange(8.0).view(1, 8, 1), torch.zeros(1, 4, 1)
    native.gather_chunks(found, source, torch.tensor([[3, 1]]), 2)
    assert found.flatten().tolist() == [6, 7, 2, 3]


@needs_library
@pytest.mark.parametrize("cached", [0, 100, native.PART - 20, 2 * native.PART])
def test_a_row_is_the_same_in_any_company(cached: int) -> None:
    g = torch.Generator().manual_seed(cached)
    keys, values = drawn(2, cached + 64, 64, g)
    queries = torch.randn(64, 4, 64, generator=g) * 2
    alone = torch.cat([attend(queries[i : i + 1], keys, values, cached + i + 1, None, 0, 1)[0] for i in range(64)])
    for n in (2, 6, 7, 26, 64):
        assert torch.equal(attend(queries[:n], keys, values, cached + n, None, min(n, 16), 8)[0], alone[:n]), n


@needs_library
def test_results_do_not_depend_on_the_number_of_threads() -> None:
    g = torch.Generator().manual_seed(0)
    keys, values = drawn(3, 9000, 64, g)
    queries, before = torch.randn(9, 6, 64, generator=g), torch.get_num_threads()
    found = []
    try:
        for threads in (1, 2, 5, 1):
            torch.set_num_threads(threads)
            found.append(attend(queries, keys, values, 8999, None, 9, 8))
    finally:
        torch.set_num_threads(before)
    assert all(torch.equal(out, found[0][0]) and torch.equal(mass, found[0][1]) for out, mass in found)


@needs_library
@pytest.mark.parametrize("kind", ["dense", "bias", "int8", "int8 without -128"])
@pytest.mark.parametrize(("outputs", "inputs"), [(64, 32), (70, 2), (1, 258), (130, 352), (200, 514)])
def test_products_of_any_shape(outputs: int, inputs: int, kind: str) -> None:
    g = torch.Generator().manual_seed(outputs)
    data, scale = torch.randn(outputs, inputs, generator=g).to(BF16), None
    if kind.startswith("int8"):
        data = torch.randint(-127 if "without" in kind else -128, 128, (outputs, inputs), generator=g, dtype=torch.int8)
        scale = torch.rand(outputs, generator=g) / 127
    bias = torch.randn(outputs, generator=g) if kind == "bias" else None
    linear = native.NativeLinear(library(), data, scale, bias)
    assert linear.struct.bounded == (kind.startswith("int8") and bool((data > -128).all()))
    x = torch.randn(200, inputs, generator=g).to(BF16)
    expected = REFERENCE.make_linear(data, scale, bias, torch.float32)(x.float())
    alone = torch.cat([linear(x[i : i + 1]) for i in range(200)])
    torch.testing.assert_close(alone, expected, atol=1e-3 * inputs**0.5, rtol=1e-3)
    for n in (2, 3, 4, 5, 6, 13, 64):
        assert torch.equal(linear(x[:n]), alone[:n])
    for n in (65, 96, 193, 200):  # by the matrix unit, where there is one
        torch.testing.assert_close(linear(x[:n]), expected[:n], atol=1e-3 * inputs**0.5, rtol=1e-3)


def cache_of(model: Llama) -> FullCache:
    c = model.config
    return FullCache(c.num_layers, c.num_kv_heads, c.head_dim, max_tokens=400, dtype=BF16, slots=64)


SHAPES: list[dict[str, Any]] = [
    {}, {"num_key_value_heads": 1}, {"tie_word_embeddings": False, "intermediate_size": 80},
]


@needs_library
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_a_whole_pass_is_its_ops(shape: dict[str, Any]) -> None:
    """A chain that grows its cache, an observed one, a tree, a prefill: logits, keys, values, mass and queries."""
    model = tiny_llama(BF16, hidden_size=64, **shape)
    assert model._native is not None
    ids = torch.randint(VOCAB, (200,), generator=torch.Generator().manual_seed(0))
    mask = torch.tensor([[1, 0, 0], [0, 1, 0], [1, 0, 1]], dtype=torch.bool)
    told = []
    for whole in (True, False):
        if not whole:
            model._native = None
        cache, observer = cache_of(model), LastQueries(8, 4)
        model.forward(ids[:150], cache, logits_rows=0)
        cache.commit()
        logits = [model.forward(ids[150:157], cache, logits_rows=2, observer=observer)]
        cache.keep(range(4))
        cache.commit()
        logits.append(model.forward(ids[160:163], cache, logits_rows=3, depths=[0, 0, 1], staged_mask=mask))
        cache.keep([0, 2])
        cache.commit()
        cache.check_integrity()
        told.append((*logits, *(cache.layers[-1].keys.float(), cache.layers[-1].values.float()),
                     observer.latest, observer.latest_queries.float()))
    for one, other in zip(*told, strict=True):
        assert one.shape == other.shape
        assert float((one - other).norm() / other.norm()) < 0.03


@needs_library
def test_verification_is_plain_decoding_to_the_last_bit() -> None:
    model = tiny_llama(BF16, hidden_size=64, num_key_value_heads=2)
    ids = torch.randint(VOCAB, (90,), generator=torch.Generator().manual_seed(1))
    together, alone = cache_of(model), cache_of(model)
    for cache in (together, alone):
        model.forward(ids[:50], cache, logits_rows=0)
        cache.commit()
    expected = torch.cat([model.forward(ids[i : i + 1], alone, logits_rows=1) for i in range(50, 90)])
    assert torch.equal(model.forward(ids[50:], together, logits_rows=40, observer=AttentionMass(8, 16)), expected)


@pytest.fixture
def afresh(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Path]:
    """As in a new process, with an empty folder for the library."""
    monkeypatch.delenv(SETTING, raising=False)
    monkeypatch.setenv(CACHE, str(tmp_path / "kernels"))
    monkeypatch.setattr(native_build, "find_spec", lambda name: None)
    monkeypatch.setattr(native_build, "AHEAD", tmp_path / "none")
    compiled.cache_clear()
    yield tmp_path
    compiled.cache_clear()


def torchs(reason: str) -> None:
    """The app says why, and computes all the same."""
    assert compiled().library is None and reason in compiled().summary, compiled().summary
    assert values_transposed(torch.device("cpu"), BF16)
    ops = choose_kernels(torch.device("cpu"))
    weight, x = torch.randn(32, 64).to(BF16), torch.randn(3, 64)
    torch.testing.assert_close(ops.make_linear(weight, None, None, BF16)(x).float(), x @ weight.float().T, atol=0.3,
                               rtol=0.05)
    assert tiny_llama(BF16, hidden_size=64)._native is None


def compiler(folder: Path, script: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The only one on the PATH."""
    path = folder / "cc"
    path.write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", str(folder))


def test_told_to_do_without(afresh: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SETTING, "torch")
    torchs(SETTING)
    assert not (afresh / "kernels").exists()


def test_no_compiler(afresh: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(afresh))
    torchs("no C compiler")


def brings(afresh: Path, library: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    """As installed from a wheel with such a library, where there is no compiler."""
    (afresh / "ahead").mkdir()
    monkeypatch.setattr(native_build, "AHEAD", afresh / "ahead")
    for level in native_build.LEVELS:
        native_build._ahead(afresh / "ahead", level).write_bytes(library)
    monkeypatch.setenv("PATH", str(afresh))


@pytest.fixture
def made() -> bytes:
    """The library that this machine's compiler makes of it, from the folder that other tests use too."""
    command = next(compilers(), None)
    if command is None:
        pytest.skip("no C compiler")
    return native_build.built(command).read_bytes()


@pytest.mark.skipif(not native_build._has_levels(), reason="compiled ahead for Linux on x86 alone")
def test_what_a_wheel_brings_needs_no_compiler(made: bytes, afresh: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if "avx2" not in native_build._cpu():
        pytest.skip("a CPU of no usual level")
    brings(afresh, made, monkeypatch)
    assert compiled().library is not None and "compiled ahead for a" in compiled().summary


@pytest.mark.skipif(not native_build._has_levels(), reason="compiled ahead for Linux on x86 alone")
def test_what_a_wheel_brings_may_be_of_no_use(afresh: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a system with older libraries than the wheel's."""
    brings(afresh, b"nonsense", monkeypatch)
    torchs("no C compiler")
    assert len(list((afresh / "ahead").iterdir())) == 4  # other machines may share them


def test_insisted_on_and_missing(afresh: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compiler(afresh, "exit 1", monkeypatch)
    monkeypatch.setenv(SETTING, "native")
    with pytest.raises(RuntimeError, match="native"):
        compiled()


def test_a_compiler_that_fails(afresh: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compiler(afresh, "echo out of luck >&2; exit 1", monkeypatch)
    torchs("out of luck")
    assert not list((afresh / "kernels").iterdir())


def test_a_compiler_that_writes_nonsense(afresh: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compiler(afresh, 'while [ "$1" != -o ]; do shift; done; echo nonsense > "$2"', monkeypatch)
    torchs("failed")


def test_a_folder_that_cannot_be_made(afresh: Path) -> None:
    if next(compilers(), None) is None:
        pytest.skip("no C compiler")
    (afresh / "kernels").write_text("a file", encoding="utf-8")
    torchs("failed")


@needs_library
def test_wrong_results_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    assert native_check.wrong(library()) == ""
    monkeypatch.setattr(native, "panels", lambda _, data: torch.zeros(4096 + data.numel() * 4, dtype=data.dtype))
    assert native_check.wrong(library()) == "products"


def test_what_has_no_form_is_torchs() -> None:
    """Odd heads, other types, values that are stored turned."""
    g = torch.Generator().manual_seed(0)
    ops, torch_only = choose_kernels(torch.device("cpu")), torch_kernels.Attention()
    for dim, dtype in ((8, BF16), (16, torch.float32)):
        keys, values = torch.randn(2, 2, 40, dim, generator=g).to(dtype)
        queries = torch.randn(3, 2, dim, generator=g)
        assert torch.equal(ops.attention(queries, keys, values, 30)[0], torch_only(queries, keys, values, 30)[0])
    keys, values = drawn(2, 40, 16, g)
    turned = values.transpose(1, 2).contiguous().transpose(1, 2)
    queries = torch.randn(3, 2, 16, generator=g)
    torch.testing.assert_close(ops.attention(queries, keys, turned, 30)[0].float(),
                               REFERENCE.attention(queries, keys, values, 30)[0], atol=3e-2, rtol=3e-2)


LAWS = [SamplingParams(temperature=1.0), SamplingParams(temperature=0.6, top_p=0.9),
        SamplingParams(temperature=1.3, top_k=3), SamplingParams(temperature=0.7, top_k=40, top_p=0.5),
        SamplingParams(temperature=0.9, top_k=1_000_000, top_p=0.99), SamplingParams(temperature=0.1, top_p=1e-6)]


@needs_library
@pytest.mark.parametrize("params", LAWS, ids=str)
@pytest.mark.parametrize("width", [1, 5, 16, 50, 8192, 32_001])
def test_laws_without_sorting(params: SamplingParams, width: int) -> None:
    """Those of ``Sampler``. Sums in another order may find the bar some tokens further on, so which tokens stay is held
    to the law in float64. A row is the same bits in any company."""
    kernels = choose_kernels(torch.device("cpu"))
    logits = torch.randn(4, width, generator=torch.Generator().manual_seed(width)) * 3
    logits[0, width // 2 + 1 :] = -torch.inf  # masked
    usual, sampler = Sampler(params).distributions(logits, (1,)), Sampler(params, faster=kernels)
    found = sampler.distributions(logits, (1,))
    assert found.dtype == torch.float32 and not found[0, width // 2 + 1 :].any()
    assert float((found - usual).abs().sum(-1).max()) <= 1e-4
    for row, kept in zip(logits.double() / params.temperature, found > 0, strict=True):
        exact = row.sort(descending=True).values
        top_k = exact[: min(params.top_k or width, width)].softmax(0).cumsum(0)
        stay = int(kept.sum())
        assert torch.equal(row[kept].sort(descending=True).values, exact[:stay])  # the likeliest
        assert stay == 1 or float(top_k[stay - 2]) < params.top_p + 1e-6  # the last one is needed for top_p,
        assert float(top_k[stay - 1]) >= min(params.top_p, 1) - 1e-6  # and with it there is enough
    assert torch.equal(sampler.distributions(logits[2:3], (1,))[0], found[2])


@needs_library
def test_of_equals_all_stay() -> None:
    probs = Sampler(SamplingParams(temperature=1.0, top_p=0.5), faster=choose_kernels(torch.device("cpu")))
    found = probs.distributions(torch.tensor([[2.0, 2.0, 2.0, -9.0, 1.0]]), (1,))
    assert torch.allclose(found, torch.tensor([[1 / 3, 1 / 3, 1 / 3, 0.0, 0.0]]))
