"""The large kernels fit into a program's shared memory on every kind of GPU that is named, compiled for each of them:
no such card need be there. What does not fit would end in an error at the first token."""

from __future__ import annotations

import pytest
import torch

pytest.importorskip("triton")

from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource, compile

from triforce_core.kernels import (
    KV_BITS,
    row_bytes,
    triton_attention,
    triton_dense,
    triton_indexed,
    triton_linear,
    triton_narrow,
    triton_parts,
    triton_products,
)

# Bytes a program may have (CUDA C++ Programming Guide, technical specifications by compute capability):
# A100; RTX 3090; RTX 4090; H100 and H200.
MOST = {80: 163 * 1024, 86: 99 * 1024, 89: 99 * 1024, 90: 227 * 1024}
ROWS = {"bf16": 128, **{kind: row_bytes(128, bits) for kind, bits in KV_BITS.items()}}  # numbers, or bytes of a row
ATTENDED = "queries:bf16 keys:{0} values:{0} mixed:fp32 spans:fp32 sums:fp16 maxima:fp32 length:i32"
SHARED = {"DIM": 128, "ON_DEVICE": True, "TREE": False, "GROUP": 4}


def shared_bytes(kernel, pointers: str, constants: dict, arch: int, warps: int, number: str = "") -> int:
    """pointers: "name:type ..."; all other arguments are int32, ``number`` fp32; constants None: absent tensors."""
    kinds = dict(pair.split(":") for pair in pointers.split())
    constants = {**constants, "EARLY": arch >= 90}
    signature = {name: "constexpr" if name in constants else "*" + kinds[name] if name in kinds
                 else "fp32" if name == number else "i32" for name in kernel.arg_names}
    aligned = {(i,): [["tt.divisibility", 16]] for i, name in enumerate(kernel.arg_names)
               if name in kinds or name in ("query_stride", "inputs", "outputs")}
    made = compile(ASTSource(kernel, signature, constants, aligned), target=GPUTarget("cuda", arch, 32),
                   options={"num_warps": warps})
    return made.metadata.shared


@pytest.mark.parametrize("arch", MOST)
@pytest.mark.parametrize("kind", ROWS)
def test_attention_over_everything(arch: int, kind: str) -> None:
    kept = "bf16" if kind == "bf16" else "i8"
    tiles = triton_parts.Tiles.choose(torch.bfloat16 if kind == "bf16" else torch.int8, torch.device("cpu"))
    constants = {**SHARED, "ROWS": tiles.rows, "SLOTS": tiles.slots, "STAGES": tiles.stages, "WATCH": True,
                 "GRANULE": 8, "STEP": 1, "PRECISION": "tf32", "PAIRED": kind == "int8" and arch == 90, "mask": None,
                 "WIDTH": ROWS[kind]}
    used = shared_bytes(triton_attention._attend, ATTENDED.format(kept), constants, arch, tiles.warps, "scale")
    assert 0 < used <= MOST[arch]


@pytest.mark.parametrize("rows", [16, 32])
def test_attention_of_few_rows_over_bytes(rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """As many programs as shall share a multiprocessor fit into one."""
    monkeypatch.setattr(triton_parts, "is_hopper", lambda device: True)
    tiles = triton_parts.Tiles.choose(torch.int8, torch.device("cpu"))
    assert tiles.programs == 4
    constants = {**SHARED, "ROWS": rows, "SLOTS": tiles.slots, "STAGES": tiles.stages, "WATCH": True, "GRANULE": 8,
                 "STEP": 1, "mask": None, "WIDTH": ROWS["int8"]}
    used = shared_bytes(triton_narrow.attend, ATTENDED.format("i8"), constants, 90, tiles.warps, "scale")
    assert 0 < used <= MOST[90] // tiles.programs


@pytest.mark.parametrize("arch", MOST)
@pytest.mark.parametrize("rows", [4, 64])
@pytest.mark.parametrize("kind", ROWS)
def test_attention_over_chosen_chunks(arch: int, rows: int, kind: str) -> None:
    tiles = triton_indexed.choose_tiles(rows, 128, torch.bfloat16)
    constants = {**SHARED, "ROWS": tiles.rows, "SLOTS": tiles.slots, "STAGES": tiles.stages, "CHUNK": 8, "mask": None,
                 "PRECISION": "tf32", "WIDTH": ROWS[kind]}
    kept = "bf16" if kind == "bf16" else "i8"
    used = shared_bytes(triton_indexed._attend, f"queries:bf16 keys:{kept} values:{kept} chunks:i32 bounds:i32 "
                        "mixed:fp32 spans:fp32 length:i32", constants, arch, tiles.warps, "scale")
    assert 0 < used <= MOST[arch]


@pytest.mark.parametrize("arch", MOST)
@pytest.mark.parametrize(("rows", "stages"), [(16, 5), (64, 3)])
def test_products_with_weights_as_they_are(arch: int, rows: int, stages: int) -> None:
    constants = {"PARTS": 4, "ROWS": rows, "BLOCK": triton_dense._BLOCK, "STEP": triton_dense._STEP, "STAGES": stages,
                 "bias": None}
    used = shared_bytes(triton_dense._product, "x:bf16 weight:bf16 out:bf16 partial:fp32 tickets:i32", constants, arch,
                        4)
    assert 0 < used <= MOST[arch]


# Bits, inputs that share a scale (0: all), whether there are offsets, groups of a super-block (1: there are no
# subscales): as this app rounds, then as checkpoints do.
FORMS = [(8, 0, False, 1), (4, 128, False, 1), (4, 32, False, 1), (4, 32, True, 1), (4, 32, True, 8), (4, 64, True, 1),
         (4, 128, True, 1), (8, 16, False, 16), (8, 16, True, 16), (8, 32, False, 1), (8, 32, True, 8),
         (8, 128, True, 1)]


@pytest.mark.parametrize("arch", MOST)
@pytest.mark.parametrize(("bits", "share", "offsets", "above"), FORMS)
@pytest.mark.parametrize(("tiles", "stages"), [(2, triton_linear.STAGES), (4, triton_linear.WIDE_STAGES)])
def test_products_with_weights_in_few_bits(arch: int, bits: int, share: int, offsets: bool, above: int, tiles: int,
                                           stages: int) -> None:
    absent = [name for name, there in (("offsets", offsets), ("subs", above > 1)) if not there]
    for outputs in (4096, 4032):
        constants = {"END": "plain", "SUMS": 1, "PAIRED": False, "TILES": tiles, "BITS": bits, "SHARE": share,
                     "BLOCK": triton_linear.block_of(outputs), "ABOVE": above, "PARTS": 4, "STAGES": stages,
                     **dict.fromkeys(("squares", *triton_linear._ENDS, *absent))}
        pointers = (f"x:bf16 weights:{'i8' if bits == 8 else 'u8'} scales:fp32 offsets:fp32 subs:i32 out:bf16 "
                    "partial:fp32 tickets:i32")
        used = shared_bytes(triton_products.product, pointers, constants, arch, triton_linear.WARPS, "eps")
        assert 0 < used <= MOST[arch]
