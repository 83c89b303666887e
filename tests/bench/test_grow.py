"""A grown model computes what the small one computes, and is what it says in size."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Literal

import pytest
import torch
from engine.tiny import BUILTIN_FOLDER, write_model

from triforce_core.bench.grow import SHAPES, grown_pair
from triforce_core.bench.rows import DRAFT, TARGETS
from triforce_core.config import EngineConfig
from triforce_core.device.shard import Shard
from triforce_core.errors import ConfigError, UnsupportedModelError
from triforce_core.kv_cache.full import FullCache
from triforce_core.model import Checkpoint, Llama, load_model, read_config
from triforce_core.model.grown import GrownWeights, Shape, grow, grown_config

torch.set_num_threads(1)
MULTI_HEAD = Shape(320, 384, 5, 6, 6, 64)
GROUPED = Shape(256, 300, 3, 8, 4, 64)
SAME_SIZE = Shape(128, 256, 2, 4, 4, 32)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_model(tmp_path_factory.mktemp("small") / "target", layers=2, heads=4, seed=5)


def run(model: Llama, ids: torch.Tensor) -> tuple[torch.Tensor, FullCache]:
    """Logits of a prefill of all but four tokens, then of the four in one pass."""
    c = model.config
    cache = FullCache(c.num_layers, c.num_kv_heads, c.head_dim, max_tokens=len(ids), dtype=model.dtype)
    first = model.forward(ids[:-4], cache, logits_rows=3)
    cache.commit()
    return torch.cat((first, model.forward(ids[-4:], cache, logits_rows=4))), cache


@pytest.mark.parametrize("shape", [MULTI_HEAD, GROUPED, SAME_SIZE], ids=str)
def test_same_logits(folder: Path, shape: Shape) -> None:
    ids = torch.randint(3, 8192, (150,), generator=torch.Generator().manual_seed(1))
    expected, _ = run(load_model(folder), ids)
    found, cache = run(grow(folder, shape), ids)
    assert (found - expected).abs().max() < 1e-3
    assert expected.std() > 1  # the comparison says something
    k, v = cache.read(0)
    assert k.shape[0] == shape.num_kv_heads and k.shape[2] == shape.head_dim
    assert k.std(1).min() > 0 and v.std(1).min() > 0  # no feature of the cache is empty


def test_beyond_the_small_models_context_positions_are_interpolated(folder: Path) -> None:
    small = read_config(folder)
    ids = torch.randint(3, 8192, (150,), generator=torch.Generator().manual_seed(1))
    stretched = replace(small, rope=replace(small.rope, kind="linear", factor=4.0), max_context=4 * small.max_context)
    expected, _ = run(Llama(stretched, Checkpoint(folder)), ids)
    found, _ = run(grow(folder, MULTI_HEAD, max_context=4 * small.max_context), ids)
    assert (found - expected).abs().max() < 1e-3
    assert (expected - run(load_model(folder), ids)[0]).abs().max() > 0.1  # it is another function
    assert grown_config(small, MULTI_HEAD, small.max_context // 2).rope == small.rope


def test_the_built_in_draft_model(folder: Path) -> None:
    ids = torch.randint(3, 8192, (60,), generator=torch.Generator().manual_seed(2))
    expected, _ = run(load_model(BUILTIN_FOLDER / "draft"), ids)
    found, _ = run(grow(BUILTIN_FOLDER / "draft", SHAPES["llama-68m"]), ids)
    assert (found - expected).abs().max() < 1e-3


def test_two_ranks_grow_two_halves_of_the_same_numbers(folder: Path) -> None:
    x = torch.randn(3, GROUPED.hidden_size, generator=torch.Generator().manual_seed(3))
    whole, *halves = (grow(folder, GROUPED, shard=shard) for shard in (Shard(), Shard(0, 2), Shard(1, 2)))
    for layer, *parts in zip(whole.layers, *(half.layers for half in halves), strict=True):
        keys = [part.qkv(x).split([256, 128, 128], 1)[1] for part in parts]
        torch.testing.assert_close(torch.cat(keys, 1), layer.qkv(x).split([512, 256, 256], 1)[1])
        mixed = sum(part.down(half.kernels.swiglu(part.gate_up(x))) for part, half in zip(parts, halves, strict=True))
        torch.testing.assert_close(mixed, layer.down(whole.kernels.swiglu(layer.gate_up(x))), atol=1e-5, rtol=1e-4)


def test_added_query_heads_of_a_group_look_where_the_group_looks(folder: Path) -> None:
    class Mass:
        mass_rows, chunk_size = 2, 8

        def __init__(self) -> None:
            self.seen: list[torch.Tensor] = []

        def see(self, layer: int, queries: torch.Tensor, mass: torch.Tensor | None) -> None:
            assert mass is not None
            self.seen.append(mass)

    ids = torch.randint(3, 8192, (90,), generator=torch.Generator().manual_seed(3))
    observed = []
    for model in (load_model(folder), grow(folder, replace(GROUPED, num_layers=2))):
        c, looking = model.config, Mass()
        cache = FullCache(c.num_layers, c.num_kv_heads, c.head_dim, max_tokens=90, dtype=model.dtype)
        model.forward(ids[:80], cache, logits_rows=0)
        cache.commit()
        model.forward(ids[80:], cache, logits_rows=1, observer=looking)
        observed.append(torch.stack(looking.seen))
    small, large = observed
    assert torch.allclose(large, 2 * small, atol=1e-3)


def test_weights_are_the_same_for_the_same_seed_and_random_where_nothing_reads_them(folder: Path) -> None:
    small = read_config(folder)
    config = grown_config(small, MULTI_HEAD)

    def weights(seed: int) -> GrownWeights:
        return GrownWeights(folder, small, config, torch.device("cpu"), torch.bfloat16, seed)

    name, shape = "model.layers.0.mlp.gate_proj.weight", (384, 320)
    first, again, other = (weights(seed).matrix(name, shape).data for seed in (0, 0, 1))
    assert first.dtype == torch.bfloat16 and torch.equal(first, again) and not torch.equal(first, other)
    assert torch.equal(first[:256, :128], other[:256, :128])
    assert (first[:, 128:] != 0).float().mean() > 0.99 and (first[256:] != 0).float().mean() > 0.99
    added = weights(0).matrix("model.layers.1.mlp.down_proj.weight", (320, 384)).data
    assert not added.any()


def test_weights_are_rounded_as_they_are_grown(folder: Path) -> None:
    """int4 keeps groups of 128 inputs, of a shape whose widths they fill."""
    shape = Shape(256, 384, 2, 4, 4, 64)
    ids = torch.randint(3, 8192, (60,), generator=torch.Generator().manual_seed(1))
    whole, _ = run(grow(folder, shape, dtype=torch.bfloat16), ids)
    off = {}
    for rounding in ("int8", "int4"):
        model = grow(folder, shape, dtype=torch.bfloat16, rounding=rounding)
        assert model.in_groups == (rounding == "int4")
        found, _ = run(model, ids)
        off[rounding] = float((found - whole).norm() / whole.norm())
    assert 0 < off["int8"] < off["int4"] < 1.1  # unlike ones: 1.4


@pytest.mark.parametrize("weights", ["same", "int4"])
def test_a_pair_is_planned_for_in_its_bits(weights: Literal["same", "int4"], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(SHAPES, "llama3-1b", Shape(512, 1536, 8, 8, 8, 64))
    monkeypatch.setitem(SHAPES, DRAFT, Shape(256, 768, 2, 4, 4, 64))
    found = grown_pair(EngineConfig(weights=weights, mode="cpu", dtype="bfloat16", max_context=2048), "llama3-1b")
    wish, c = found.planner.wish.target, found.target.config
    head = c.vocab_size * c.hidden_size
    assert wish.shape.hidden_size == 512 and found.draft is not None and not found.draft.in_groups
    assert found.info.pass_bytes == int((c.matrix_weights - head) * (wish.few_bits or 2)
                                        + head * (wish.few_bits_head or 2))
    assert bool(wish.few_bits) == (weights == "int4")
    assert ("int4 by this app" in found.info.weights) == (weights == "int4")


def test_what_cannot_be_exact_is_refused(folder: Path) -> None:
    small = read_config(folder)
    with pytest.raises(UnsupportedModelError, match="norms on queries and keys"):
        grown_config(replace(small, qk_norm=True), MULTI_HEAD)
    with pytest.raises(ConfigError, match="shrink"):
        grown_config(small, replace(MULTI_HEAD, hidden_size=64))
    with pytest.raises(ConfigError, match="do not fit"):
        grown_config(small, replace(MULTI_HEAD, head_dim=48))


def test_named_shapes_have_the_sizes_of_their_models() -> None:
    small = read_config(BUILTIN_FOLDER / "target")
    billions = {name: grown_config(small, SHAPES[name]).num_parameters / 1e9 for name in TARGETS}
    assert billions == pytest.approx({"llama2-7b": 6.68, "llama3-8b": 7.18, "llama3-1b": 1.07, "qwen3-4b": 3.76},
                                     abs=0.01)
