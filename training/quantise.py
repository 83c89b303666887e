"""Int8 weight files: `python -m training.quantise CHECKPOINT triforce_core/assets/builtin/target`.

A matrix NAME becomes NAME (int8) and NAME.scale (fp32, one per output channel); norms stay fp32. The model is what the
files say: int8 * scale. Checkpoints are what `training.train` and `training.distil` write.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor

from training.model import SHAPES, Llama, ModelShape

FORMAT = "triforce-int8-v1"


def quantise_rows(weight: Tensor, candidates: int = 12) -> tuple[Tensor, Tensor]:
    """Int8 values and scales; of a few clipping widths each row takes the one with the least square error."""
    weight = weight.detach().float()
    widest = weight.abs().amax(1).clamp(min=1e-8) / 127
    best_error = torch.full_like(widest, float("inf"))
    best_scale = widest.clone()
    for step in range(candidates):
        scale = widest * (1 - 0.03 * step)
        rounded = (weight / scale[:, None]).round().clamp(-127, 127)
        error = (rounded * scale[:, None] - weight).square().sum(1)
        better = error < best_error
        best_error = torch.where(better, error, best_error)
        best_scale = torch.where(better, scale, best_scale)
    values = (weight / best_scale[:, None]).round().clamp(-127, 127).to(torch.int8)
    return values, best_scale


def quantise_state(state: dict[str, Tensor]) -> dict[str, Tensor]:
    """The tensors of the int8 file."""
    out: dict[str, Tensor] = {}
    for name, tensor in state.items():
        if tensor.ndim == 2:
            out[name], out[f"{name}.scale"] = quantise_rows(tensor)
        else:
            out[name] = tensor.detach().float()
    return {name: tensor.contiguous().cpu() for name, tensor in out.items()}


def dequantise_state(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """Fp32 weights of an int8 file."""
    state: dict[str, Tensor] = {}
    for name, tensor in tensors.items():
        if tensor.dtype == torch.int8:
            state[name] = tensor.float() * tensors[f"{name}.scale"][:, None]
        elif not name.endswith(".scale"):
            state[name] = tensor.float()
    return state


def write_folder(state: dict[str, Tensor], shape: ModelShape, folder: Path) -> None:
    """`config.json` and `model.safetensors`."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(shape.to_config(), indent=2) + "\n")
    save_file(quantise_state(state), folder / "model.safetensors", {"format": FORMAT})


def load_folder(folder: Path) -> tuple[ModelShape, dict[str, Tensor]]:
    """Shape and fp32 weights of a folder that `write_folder` wrote."""
    path = folder / "model.safetensors"
    with safe_open(path, "pt") as opened:
        if (opened.metadata() or {}).get("format") != FORMAT:
            raise ValueError(f"{path} is not a {FORMAT} file")
    shape = ModelShape.from_config(json.loads((folder / "config.json").read_text()))
    return shape, dequantise_state(load_file(path))


def load_model(path: Path) -> Llama:
    """A model from an int8 folder, or from a checkpoint file."""
    if path.is_dir():
        shape, state = load_folder(path)
    else:
        saved = torch.load(path, map_location="cpu", weights_only=True)
        shape, state = ModelShape.from_config(saved["config"]), saved["model"]
    model = Llama(shape)
    model.load_state_dict({name: tensor.float() for name, tensor in state.items()})
    return model.eval()


def save_checkpoint(model: Llama, path: Path) -> None:
    """Shape and fp32 weights in one file, replaced in one step."""
    path.parent.mkdir(parents=True, exist_ok=True)
    state = {name: tensor.detach().cpu() for name, tensor in model.state_dict().items()}
    torch.save({"config": model.shape.to_config(), "model": state}, path.with_suffix(".new"))
    path.with_suffix(".new").replace(path)


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("checkpoint", type=Path, nargs="?", help="left out: random weights")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--random", choices=sorted(SHAPES), help="write random weights of this shape instead")
    options = parser.parse_args()
    torch.manual_seed(0)
    model = Llama(SHAPES[options.random]) if options.random else load_model(options.checkpoint)
    write_folder(model.state_dict(), model.shape, options.folder)
    size = (options.folder / "model.safetensors").stat().st_size
    print(f"{options.folder}: {sum(p.numel() for p in model.parameters()) / 1e6:.1f} M weights, {size / 1e6:.1f} MB")


if __name__ == "__main__":
    main()
