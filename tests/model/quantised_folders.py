"""Hugging Face folders with weights in few bits, written here number by number as each format's own tool packs them:
nothing is shared with the code that reads them. Each comes with the plain weights that it stands for."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

GROUP = 32
Packed = tuple[dict[str, Tensor], Tensor]  # what follows the product's name -> stored; and the weight [out, in]


def _grouped(weight: Tensor, bits: int = 4, symmetric: bool = False) -> tuple[Tensor, Tensor, Tensor]:
    """Unsigned numbers [out, in], zeros and scales [out, groups]."""
    out, inputs = weight.shape
    parts = weight.view(out, -1, GROUP)
    low, high = parts.amin(2), parts.amax(2)
    if symmetric:
        scale = (parts.abs().amax(2) / (2 ** (bits - 1) - 1)).half().float()
        zero = torch.full_like(scale, 2 ** (bits - 1))
    else:
        scale = ((high - low) / (2**bits - 1)).half().float()
        zero = torch.round(-low / scale).clamp(1, 2**bits - 1)
    numbers = torch.round(parts / scale[:, :, None] + zero[:, :, None]).clamp(0, 2**bits - 1)
    return numbers.view(out, inputs).int(), zero.int(), scale


def _stand_for(numbers: Tensor, zero: Tensor, scale: Tensor) -> Tensor:
    whole = (numbers.view(len(numbers), -1, GROUP) - zero[:, :, None]) * scale[:, :, None]
    return whole.view(numbers.shape)


def _into_int32(columns: list[Tensor], bits: int = 4) -> Tensor:
    packed = torch.zeros_like(columns[0], dtype=torch.int64)
    for at, column in enumerate(columns):
        packed |= column.long() << bits * at
    return torch.where(packed >= 2**31, packed - 2**32, packed).int()


def awq(weight: Tensor, symmetric: bool = False) -> Packed:
    numbers, zero, scale = _grouped(weight, symmetric=symmetric)

    def pack(rows: Tensor) -> Tensor:  # [.., out]: eight columns to a number, in AWQ's order
        return torch.stack([_into_int32([rows[:, at + column] for column in (0, 2, 4, 6, 1, 3, 5, 7)])
                            for at in range(0, rows.shape[1], 8)], 1)

    return {"qweight": pack(numbers.T), "qzeros": pack(zero.T), "scales": scale.T.half().contiguous()}, _stand_for(
        numbers, zero, scale)


def gptq(weight: Tensor, order: bool = False, less: int = 1, bits: int = 4, symmetric: bool = False) -> Packed:
    """order: inputs belong to groups in a shuffled way. less: what the first format takes off zeros."""
    inputs, per = weight.shape[1], 32 // bits
    mixed = torch.randperm(inputs, generator=torch.Generator().manual_seed(0)) if order else torch.arange(inputs)
    numbers, zero, scale = _grouped(weight[:, mixed], bits, symmetric)
    plain = torch.empty_like(weight)
    plain[:, mixed] = _stand_for(numbers, zero, scale)
    groups, back = torch.empty(inputs, dtype=torch.int32), torch.empty_like(numbers)
    groups[mixed], back[:, mixed] = torch.arange(inputs, dtype=torch.int32) // GROUP, numbers
    rows = back.T
    qweight = torch.stack([_into_int32([rows[at + row] for row in range(per)], bits) for at in range(0, inputs, per)])
    zeros = (zero - less).T
    qzeros = torch.stack([_into_int32([zeros[:, at + column] for column in range(per)], bits)
                          for at in range(0, zeros.shape[1], per)], 1)
    return {"qweight": qweight, "qzeros": qzeros, "scales": scale.T.half().contiguous(), "g_idx": groups}, plain


def fp8(weight: Tensor, kind: str) -> Packed:
    if kind == "block":
        tall = -(-weight.shape[0] // 128) * 128
        wide = -(-weight.shape[1] // 128) * 128
        padded = torch.zeros(tall, wide)
        padded[: weight.shape[0], : weight.shape[1]] = weight
        scale = padded.view(tall // 128, 128, wide // 128, 128).abs().amax((1, 3)) / 448
        full = torch.kron(scale, torch.ones(128, 128))[: weight.shape[0], : weight.shape[1]]
    else:
        scale = weight.abs().amax(1, keepdim=True) / 448 if kind == "row" else weight.abs().amax() / 448
        full = scale
    data = (weight / full).to(torch.float8_e4m3fn)
    name = "weight_scale_inv" if kind == "block" else "weight_scale"
    return {"weight": data, name: scale.contiguous(), "input_scale": torch.ones(())}, data.float() * full


def packed_int(weight: Tensor, bits: int, group: int = 0) -> Packed:
    """group 0: GROUP; a whole row has one of its own."""
    out, per, most = weight.shape[0], 32 // bits, 2 ** (bits - 1)
    parts = weight.view(out, -1, group or GROUP)
    scale = (parts.abs().amax(2) / (most - 1)).bfloat16().float()
    numbers = torch.round(parts / scale[:, :, None]).clamp(-most, most - 1).view(weight.shape)
    shifted = (numbers + most).int()
    packed = torch.stack([_into_int32([shifted[:, at + i] for i in range(per)], bits)
                          for at in range(0, weight.shape[1], per)], 1)
    meant = (numbers.view(parts.shape) * scale[:, :, None]).view(weight.shape)
    return {"weight_packed": packed, "weight_scale": scale.bfloat16(), "weight_shape": torch.tensor(weight.shape)
            }, meant


def rows_int8(weight: Tensor, bitsandbytes: bool) -> Packed:
    most = weight.abs().amax(1)
    data = torch.round(weight / most[:, None] * 127).to(torch.int8)
    if bitsandbytes:
        return {"weight": data, "SCB": most, "weight_format": torch.tensor(0, dtype=torch.uint8)}, (
            data.float() * (most / 127)[:, None])
    return {"weight": data, "weight_scale": (most / 127)[:, None].contiguous()}, data.float() * (most / 127)[:, None]


def four_bit_floats(weight: Tensor, nested: bool) -> Packed:
    """nf4's blocks of 64, with a table of chance; nested: scales in 8 bits of another table."""
    chance = torch.Generator().manual_seed(1)
    table = torch.cat((torch.linspace(-1, 1, 15), torch.zeros(1))).sort().values
    blocks = weight.flatten().view(-1, 64)
    scale, stored = blocks.abs().amax(1), {}
    if nested:
        codes, offset = torch.rand(256, generator=chance).sort().values, 0.125
        per = torch.ones(-(-len(scale) // 256)) * 2.5
        number = (((scale - offset) / 2.5)[:, None] - codes).abs().argmin(1).to(torch.uint8)
        scale = codes[number.long()] * 2.5 + offset
        stored = {"weight.absmax": number, "weight.nested_absmax": per, "weight.nested_quant_map": codes}
    else:
        stored = {"weight.absmax": scale}
    numbers = ((blocks / scale[:, None])[:, :, None] - table).abs().argmin(2)
    about = {"quant_type": "nf4", "blocksize": 64, "shape": list(weight.shape), "dtype": "float16",
             **({"nested_blocksize": 256, "nested_offset": 0.125} if nested else {})}
    flat, state = numbers.flatten().to(torch.uint8), list(json.dumps(about).encode())
    stored |= {"weight": (flat[0::2] << 4 | flat[1::2])[:, None], "weight.quant_map": table,
               "weight.quant_state.bitsandbytes__nf4": torch.tensor(state, dtype=torch.uint8)}
    return stored, (table[numbers] * scale[:, None]).view(weight.shape)


def _tensors(kind: str, form: str, **weights: Any) -> dict[str, Any]:
    return {"quant_method": "compressed-tensors", "format": form,
            "config_groups": {"group_0": {"weights": {"type": kind, "symmetric": True, **weights}}}}


FORMS: dict[str, tuple[dict[str, Any], Callable[[Tensor], Packed]]] = {
    "awq": ({"quant_method": "awq", "bits": 4, "group_size": GROUP, "version": "gemm", "zero_point": True}, awq),
    "awq-sym": ({"quant_method": "awq", "bits": 4, "group_size": GROUP, "version": "gemm", "zero_point": False},
                lambda weight: awq(weight, symmetric=True)),
    "gptq": ({"quant_method": "gptq", "bits": 4, "group_size": GROUP, "desc_act": False, "sym": False}, gptq),
    "gptq-act-order": ({"quant_method": "gptq", "bits": 4, "group_size": GROUP, "desc_act": True},
                       lambda weight: gptq(weight, order=True)),
    "gptq-v2": ({"quant_method": "gptq", "bits": 4, "group_size": GROUP, "sym": False, "checkpoint_format": "gptq_v2"},
                lambda weight: gptq(weight, less=0)),
    "gptq-sym": ({"quant_method": "gptq", "bits": 4, "group_size": GROUP, "sym": True},
                 lambda weight: gptq(weight, symmetric=True)),
    "gptq-8-bits": ({"quant_method": "gptq", "bits": 8, "group_size": GROUP, "sym": False},
                    lambda weight: gptq(weight, bits=8)),
    "fp8-block": ({"quant_method": "fp8", "weight_block_size": [128, 128]}, lambda weight: fp8(weight, "block")),
    "fp8-row": ({"quant_method": "fbgemm_fp8"}, lambda weight: fp8(weight, "row")),
    "fp8-tensor": ({"quant_method": "fp8", "activation_scheme": "static"}, lambda weight: fp8(weight, "tensor")),
    "compressed-fp8": (_tensors("float", "float-quantized", num_bits=8, strategy="channel"),
                       lambda weight: fp8(weight, "row")),
    "compressed-w4a16": (_tensors("int", "pack-quantized", num_bits=4, strategy="group", group_size=GROUP),
                         lambda weight: packed_int(weight, 4)),
    "compressed-w8a16": (_tensors("int", "pack-quantized", num_bits=8, strategy="channel"),
                         lambda weight: packed_int(weight, 8, weight.shape[1])),
    "compressed-int8": (_tensors("int", "int-quantized", num_bits=8, strategy="channel"),
                        lambda weight: rows_int8(weight, False)),
    "bnb-int8": ({"quant_method": "bitsandbytes", "load_in_8bit": True}, lambda weight: rows_int8(weight, True)),
    "bnb-nf4": ({"quant_method": "bitsandbytes", "load_in_4bit": True, "bnb_4bit_quant_type": "nf4"},
                lambda weight: four_bit_floats(weight, False)),
    "bnb-nf4-nested": ({"quant_method": "bitsandbytes", "load_in_4bit": True, "bnb_4bit_quant_type": "nf4"},
                       lambda weight: four_bit_floats(weight, True)),
}


def write_form(folder: Path, form: str, out: Path, plain: Path) -> None:
    """The checkpoint in ``folder`` with its layers' products in ``form``, and what that stands for."""
    about, pack = FORMS[form]
    raw = json.loads((folder / "config.json").read_text())
    stored, meant = {}, {}
    for name, tensor in load_file(str(folder / "model.safetensors")).items():
        if "_proj.weight" not in name:
            stored[name] = meant[name] = tensor
            continue
        tensors, meant[name] = pack(tensor.float())
        stored |= {f"{name.removesuffix('.weight')}.{suffix}": item for suffix, item in tensors.items()}
    for where, weights, more in ((out, stored, {"quantization_config": about}), (plain, meant, {})):
        where.mkdir(parents=True, exist_ok=True)
        (where / "config.json").write_text(json.dumps(raw | more))
        save_file({name: tensor.contiguous() for name, tensor in weights.items()}, str(where / "model.safetensors"))
        for path in folder.iterdir():
            if path.name not in ("config.json", "model.safetensors") and path.is_file():
                (where / path.name).write_bytes(path.read_bytes())
