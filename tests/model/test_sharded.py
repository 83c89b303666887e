"""Two ranks against one: what each reads, that the parts add up, and logits over gloo in two processes."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from tests.model.tiny import tiny_config, tiny_tensors, write_compact
from triforce_core.assets import BUILTIN_FOLDER
from triforce_core.device.shard import Shard, open_meeting, require_gpus
from triforce_core.errors import ConfigError
from triforce_core.model import Checkpoint, Llama, load_model, local_config, read_config

ROOT = Path(__file__).parents[2]
KINDS = {
    "heads": {},
    "grouped": {"num_key_value_heads": 2, "tie_word_embeddings": False},
    "biased-odd-vocabulary": {"architectures": ["Qwen2ForCausalLM"], "num_key_value_heads": 2, "vocab_size": 61},
    "int8": {"num_key_value_heads": 2, "tie_word_embeddings": False},
}


def write(folder: Path, kind: str) -> Path:
    folder.mkdir(parents=True)
    raw = tiny_config(**KINDS[kind])
    (folder / "config.json").write_text(json.dumps(raw))
    tensors = tiny_tensors(raw)
    if raw["architectures"] == ["Qwen2ForCausalLM"]:
        g = torch.Generator().manual_seed(1)
        for i in range(raw["num_hidden_layers"]):
            for x in "qkv":
                at = f"model.layers.{i}.self_attn.{x}_proj"
                tensors[f"{at}.bias"] = torch.randn(tensors[f"{at}.weight"].shape[0], generator=g)
    if kind == "int8":
        write_compact(tensors, folder)
    elif kind == "grouped":
        torch.save(tensors, folder / "pytorch_model.bin")
    else:
        save_file(tensors, str(folder / "model.safetensors"), metadata={"format": "pt"})
    return folder


class Counting(Checkpoint):
    """Adds up the numbers of matrices that were read."""

    count = 0

    def _read(self, name, shape, part=None):
        found = super()._read(name, shape, part)
        self.count += found.numel() if found.dim() == 2 and "embed" not in name else 0
        return found


@pytest.mark.parametrize("kind", KINDS)
def test_the_parts_of_two_ranks_add_up_to_the_whole(kind: str, tmp_path: Path) -> None:
    """Column parts side by side, row parts summed: in float64-like closeness, scales and biases included."""
    folder = write(tmp_path / "model", kind)
    whole = load_model(folder)
    parts = [load_model(folder, shard=Shard(rank, 2)) for rank in range(2)]
    x = torch.randn(5, whole.config.hidden_size, generator=torch.Generator().manual_seed(2))
    close = {"atol": 1e-5, "rtol": 1e-5}
    for layer, *of_rank in zip(whole.layers, *(part.layers for part in parts), strict=True):
        q, kv = (heads * whole.config.head_dim for heads in (whole.config.num_heads, whole.config.num_kv_heads))
        sides = [own.qkv(x).split([q // 2, kv // 2, kv // 2], 1) for own in of_rank]
        together = torch.cat([torch.cat(pair, 1) for pair in zip(*sides, strict=True)], 1)
        torch.testing.assert_close(together, layer.qkv(x), **close)
        attended = torch.randn(5, q, generator=torch.Generator().manual_seed(3))
        summed = sum(own.output(half) for own, half in zip(of_rank, attended.chunk(2, 1), strict=True))
        torch.testing.assert_close(summed, layer.output(attended), **close)
        summed = sum(own.down(whole.kernels.swiglu(own.gate_up(x))) for own in of_rank)
        torch.testing.assert_close(summed, layer.down(whole.kernels.swiglu(layer.gate_up(x))), **close)
    torch.testing.assert_close(torch.cat([part.weights.head(x) for part in parts], 1), whole.weights.head(x), **close)


def test_a_rank_reads_its_own_part_and_no_more(tmp_path: Path) -> None:
    folder = write(tmp_path / "model", "int8")
    config = read_config(folder)
    counts = []
    for shard in (Shard(), Shard(0, 2), Shard(1, 2), Shard(1, 2, splits_layers=False)):
        source = Counting(folder)
        Llama(config, source, shard=shard)
        counts.append(source.count)
    head = config.vocab_size * config.hidden_size
    assert counts[1] == counts[2] == counts[0] / 2 and counts[3] == counts[0] - head / 2


def test_heads_that_cannot_be_shared_out_are_refused_with_what_can(tmp_path: Path) -> None:
    config = read_config(write(tmp_path / "model", "grouped"))
    with pytest.raises(ConfigError, match=r"gpus is 4.*2 KV heads.*Allowed: 1, 2\."):
        local_config(config, Shard(0, 4))
    assert local_config(config, Shard(0, 4, splits_layers=False)) == config
    assert local_config(replace(config, num_kv_heads=4), Shard(0, 4)).num_kv_heads == 1


@pytest.mark.skipif(torch.cuda.device_count() > 1, reason="this machine has several GPUs")
def test_more_gpus_than_there_are() -> None:
    with pytest.raises(ConfigError, match=r"gpus is 2.*Allowed: 1"):
        require_gpus(2, on_cpu=False)
    require_gpus(2, on_cpu=True)


def test_logits_and_attention_mass_of_two_processes_are_those_of_one(tmp_path: Path) -> None:
    """fp32: within 1e-5 of the largest logit, from other orders of addition. bf16, int8 weights: no further from fp32
    than one rank's, by more than half. Both ranks: the same bytes. Mass: each rank's is its own KV heads'."""
    for kind in KINDS:
        write(tmp_path / kind, kind)
    for role in ("target", "draft"):
        (tmp_path / role).symlink_to(BUILTIN_FOLDER / role)
    listener, port = open_meeting()
    given = [str(port), str(tmp_path), str(listener.fileno())]
    ranks = [subprocess.Popen([sys.executable, "-m", "tests.model.rank", str(rank), *given], cwd=ROOT,
                              pass_fds=[listener.fileno()] if rank == 0 else []) for rank in range(2)]
    try:
        assert [process.wait(120) for process in ranks] == [0, 0]
    finally:
        listener.close()
        for process in ranks:
            process.kill()
    from tests.model.rank import results

    alone = results(tmp_path, Shard())
    first, second = (torch.load(tmp_path / f"{rank}.pt") for rank in range(2))
    for name, (logits, mass) in alone.items():
        assert torch.equal(first[name][0], second[name][0]), name
        error = (first[name][0] - logits).abs().max()
        if name.endswith("bfloat16"):
            exact = alone[name.replace("bfloat16", "float32")][0]
            assert (first[name][0] - exact).square().mean() < 1.5**2 * (logits - exact).square().mean(), name
        else:
            assert error < 1e-5 * logits.abs().max(), (name, error)
            torch.testing.assert_close(torch.cat((first[name][1], second[name][1]), 1), mass, atol=1e-5, rtol=1e-4)
