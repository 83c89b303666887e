"""python -m triforce_core.bench.passes: passes of a grown model on this GPU, as a share of what a plain copy moves.

Three kinds: over the full cache with the model's weights (plain decoding, verification), and over a retrieved part of
it with them or with a copy of them in few bits (the retrieval tier). Bytes counted: weights, keys and values that are
read, once. Replayed from a captured graph; weights and caches hold more than the L2.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass

import torch

from .. import flags
from ..assets import BUILTIN_FOLDER
from ..device.bandwidth import timed
from ..kernels import WEIGHT_KINDS
from ..kv_cache.full import FullCache
from ..kv_cache.retrieval_indexed import IndexedRetrievalCache
from ..kv_cache.staging import StagingCache
from ..model import Llama
from ..model.graphs import CudaCapture, DeviceSlots
from .grow import grow
from .kernels import copy_bandwidth
from .shapes import SHAPES, TARGETS

_CHUNK = 8


@dataclass(frozen=True, slots=True)
class Reading:
    """One measurement. tokens: attended; share: of the copy bandwidth."""

    weights: str
    tokens: int
    rows: int
    milliseconds: float
    gigabytes: float
    share: float


def weight_bytes(model: Llama, kind: str) -> int:
    """Read by one pass: of the embedding, a few rows only."""
    c = model.config
    dense = c.matrix_weights * model.dtype.itemsize
    return dense if kind == "same" else model.quantized_bytes(kind)


def pass_seconds(model: Llama, cache: StagingCache, rows: int, repeats: int = 12) -> float:
    """Seconds of one captured pass of ``rows`` tokens behind the committed ones."""
    first, device = cache.next_slot, model.device
    positions = torch.arange(cache.length, cache.length + rows, device=device)
    model.rope.reserve(cache.length + rows)
    slots = DeviceSlots(cache, torch.arange(first, first + rows, device=device),
                        torch.tensor([first + rows], dtype=torch.int32, device=device))
    ids = torch.arange(10, 10 + rows, device=device)
    repeat, _ = CudaCapture()(lambda: model.forward_on_device(ids, positions, slots, rows))
    return timed(repeat, repeats)


def main(argv: Sequence[str] | None = None) -> int:
    parser = flags.Parser(prog="python -m triforce_core.bench.passes", description=__doc__.splitlines()[0])
    parser.add_argument("--grow", choices=TARGETS, default="llama2-7b", metavar="SHAPE")
    parser.add_argument("--tokens", type=int, nargs="+", default=[32_768], metavar="N", help="in the full cache")
    parser.add_argument("--rows", type=int, nargs="+", default=[1, 11], metavar="N", help="of a full pass")
    parser.add_argument("--budget", type=int, default=4096, metavar="N", help="tokens of the retrieved part")
    parser.add_argument("--retrieval-rows", type=int, nargs="+", default=[1, 3, 8], metavar="N")
    given = parser.parse_args(argv)
    if not torch.cuda.is_available():
        print("triforce_core.bench.passes: torch sees no GPU", file=sys.stderr)
        return 2
    copy = copy_bandwidth()
    model = grow(BUILTIN_FOLDER / "target", SHAPES[given.grow], device="cuda", dtype=torch.bfloat16,
                 max_context=max(given.tokens) + 64)
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}, {given.grow}, bf16: copy {copy:,.0f} GB/s")
    c, readings = model.config, []

    def read(kind: str, computing: Llama, cache: StagingCache, tokens: int, rows: int) -> None:
        seconds = pass_seconds(computing, cache, rows)
        moved = (weight_bytes(model, kind) + tokens * c.kv_bytes_per_token(model.dtype.itemsize)) / 1e9
        found = Reading(kind, tokens, rows, seconds * 1e3, moved, moved / seconds / copy)
        readings.append(found)
        print(f"weights {kind:4}  {tokens:7,} tokens attended  {rows:2} rows  {found.milliseconds:7.2f} ms  "
              f"{moved:6.2f} GB  {found.share:4.0%}", flush=True)

    for tokens in given.tokens:
        full = FullCache(c.num_layers, c.num_kv_heads, c.head_dim, max_tokens=tokens + 64, dtype=model.dtype,
                         device=model.device, slots=tokens + 64)
        for keys, values in full.restore(tokens):
            keys.normal_()
            values.normal_()
        for rows in given.rows:
            read("same", model, full, tokens, rows)
    part = IndexedRetrievalCache(full, budget=given.budget, chunk_size=_CHUNK, recent=256)
    part.select(torch.rand(c.num_layers, c.num_kv_heads, part.num_chunks, device=model.device))
    for kind in ("same", *WEIGHT_KINDS):
        computing = model if kind == "same" else model.quantized(kind)
        for rows in given.retrieval_rows:
            read(kind, computing, part, given.budget, rows)
    print(json.dumps({"model": given.grow, "device": torch.cuda.get_device_name(), "copy_gigabytes_per_second": copy,
                      "readings": [asdict(reading) for reading in readings]}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
