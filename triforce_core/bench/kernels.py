"""python -m triforce_core.bench.kernels: attention on this GPU as a share of what a plain copy moves.

"chosen" attends --budget tokens of the cache in place, by an index. Bytes counted: attended keys and values, once. Copy
bandwidth counts bytes read and bytes written. Launches are replayed from a captured graph, so that the figures are the
kernels' own; several caches take turns, so that none stays in the L2.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from .. import flags
from ..device.bandwidth import copy_rate, timed
from ..kernels import KV_BITS, choose_kernels, row_bytes, to_rows, torch_ops

HEADS = {"mha": (32, 1), "gqa": (8, 4)}  # KV heads, query heads of each: llama2-7b, llama3-8b
_DIM = 128
_TURNS = 4  # caches that take turns
_CHUNK = 8
_REPEATS = 12


def attention_seconds(attention: Callable[..., object], kind: str, tokens: int, rows: int, mass_rows: int,
                      kv: str = "same") -> float:
    """Measure one layer's attention over ``tokens`` in a cache of kind ``kv``."""
    heads, group = HEADS[kind]
    queries = torch.randn(rows, heads * group, _DIM, device="cuda", dtype=torch.bfloat16)
    return _in_turns(heads, tokens, kv, lambda keys, values: attention(
        queries, keys, values, tokens, None, mass_rows, _CHUNK))


def chosen_seconds(attention: Callable[..., Tensor], kind: str, tokens: int, rows: int, budget: int,
                   kv: str = "same") -> float:
    """Measure one layer's attention over ``budget`` of ``tokens``: a random choice of chunks, the newest 256."""
    heads, group = HEADS[kind]
    newest = (tokens - 256) // _CHUNK * _CHUNK
    held = (budget - (tokens - newest)) // _CHUNK
    queries = torch.randn(rows, heads * group, _DIM, device="cuda", dtype=torch.bfloat16)
    chunks = torch.rand(heads, newest // _CHUNK, device="cuda").argsort(-1)[:, :held].int().contiguous()
    bounds = torch.tensor([held, newest], dtype=torch.int32, device="cuda")
    return _in_turns(heads, tokens, kv, lambda keys, values: attention(
        queries, keys, values, tokens, chunks, bounds, _CHUNK))


def _in_turns(heads: int, tokens: int, kv: str, one: Callable[[Tensor, Tensor], object]) -> float:
    """Return the seconds of ``one``, from a graph over _TURNS caches of random numbers."""
    def random() -> Tensor:
        numbers = torch.randn(heads, tokens + 64, _DIM, device="cuda", dtype=torch.bfloat16)
        return numbers if kv == "same" else to_rows(numbers, KV_BITS[kv])

    caches = [torch.stack([random(), random()]) for _ in range(_TURNS)]

    def all_caches() -> None:
        for keys, values in caches:
            one(keys, values)

    all_caches()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        all_caches()
    return timed(graph.replay, _REPEATS) / len(caches)


def main(argv: Sequence[str] | None = None) -> int:
    parser = flags.Parser(prog="python -m triforce_core.bench.kernels", description=__doc__.splitlines()[0])
    parser.add_argument("--tokens", type=int, nargs="+", default=[32_768, 124_928], metavar="N")
    parser.add_argument("--budget", type=int, default=4096, metavar="N", help="tokens of chosen chunks, for retrieval")
    parser.add_argument("--rows", type=int, nargs="+", default=[1, 7, 17], metavar="N", help="query rows of a pass")
    parser.add_argument("--kv", choices=("same", *KV_BITS), default="same", help="of the caches (default: same, bf16)")
    given = parser.parse_args(argv)
    if not torch.cuda.is_available():
        print("triforce_core.bench.kernels: torch sees no GPU", file=sys.stderr)
        return 2
    own, copy = choose_kernels(torch.device("cuda")), copy_rate(4 * 2**30, _REPEATS) / 1e9
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}, bf16, head_dim {_DIM}, kv {given.kv}: "
          f"copy {copy:,.0f} GB/s")
    row = _DIM * 2 if given.kv == "same" else row_bytes(_DIM, KV_BITS[given.kv])
    readings = []

    def add(kind: str, kernel: str, tokens: int, rows: int, seconds: float) -> None:
        rate = 2 * HEADS[kind][0] * tokens * row / seconds / 1e9
        readings.append({"kind": kind, "kernel": kernel, "tokens": tokens, "rows": rows,
                         "microseconds": seconds * 1e6, "gigabytes_per_second": rate, "share": rate / copy})
        print(f"{kind}  {kernel:16}  {tokens:7,} tokens  {rows:2} rows  {seconds * 1e6:8.1f} us  {rate:6,.0f} GB/s  "
              f"{rate / copy:4.0%}", flush=True)

    for kind, tokens, rows in ((kind, tokens, rows) for kind in HEADS for tokens in given.tokens
                               for rows in given.rows):
        kernels = [(own.name, own.attention, 0), (f"{own.name}, with mass", own.attention, rows)]
        for name, attention, mass in kernels + ([("sdpa", torch_ops.attention, 0)] if given.kv == "same" else []):
            add(kind, name, tokens, rows, attention_seconds(attention, kind, tokens, rows, mass, given.kv))
        if own.indexed_attention is not None and given.budget < tokens:
            add(kind, "chosen", given.budget, rows,
                 chosen_seconds(own.indexed_attention, kind, tokens, rows, given.budget, given.kv))
    print(json.dumps({"device": torch.cuda.get_device_name(), "copy_gigabytes_per_second": copy,
                      "readings": readings}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
