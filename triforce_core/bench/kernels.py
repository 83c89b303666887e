"""python -m triforce_core.bench.kernels: attention on this GPU as a share of what a plain copy moves.

"chosen" attends --budget tokens of the cache in place, by an index. Bytes counted: attended keys and values, once. Copy
bandwidth counts bytes read and bytes written. Launches are replayed from a captured graph, so that the figures are the
kernels' own; several caches take turns, so that none stays in the L2.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor

from .. import flags
from ..device.bandwidth import copy_rate, timed
from ..kernels import KV_BITS, choose_kernels, row_bytes, sdpa, to_rows

HEADS = {"mha": (32, 1), "gqa": (8, 4)}  # KV heads, query heads of each: llama2-7b, llama3-8b
_DIM = 128
_TURNS = 4  # caches that take turns
_CHUNK = 8


@dataclass(frozen=True, slots=True)
class Reading:
    """One measurement. share: of the copy bandwidth."""

    kind: str
    kernel: str
    tokens: int
    rows: int
    mass: bool
    microseconds: float
    gigabytes_per_second: float
    share: float


def copy_bandwidth(gibibytes: float = 4.0, repeats: int = 12) -> float:
    """GB/s of a device-to-device copy, read plus written: the median."""
    return copy_rate(int(gibibytes * 2**30), repeats) / 1e9


def attention_seconds(attention: Callable[..., object], kind: str, tokens: int, rows: int, mass_rows: int,
                      repeats: int = 12, kv: str = "same") -> float:
    """Seconds of one layer's attention, from a graph over _TURNS caches."""
    heads, group = HEADS[kind]
    caches = _caches(heads, tokens, kv)
    queries = torch.randn(rows, heads * group, _DIM, device="cuda", dtype=torch.bfloat16)
    return _in_turns(caches, lambda keys, values: attention(queries, keys, values, tokens, None, mass_rows, _CHUNK),
                     repeats)


def chosen_seconds(attention: Callable[..., Tensor], kind: str, tokens: int, rows: int, budget: int,
                   repeats: int = 12, kv: str = "same") -> float:
    """Seconds of one layer's attention over ``budget`` of ``tokens``: a random choice of chunks, the newest 256."""
    heads, group = HEADS[kind]
    newest = (tokens - 256) // _CHUNK * _CHUNK
    held = (budget - (tokens - newest)) // _CHUNK
    caches = _caches(heads, tokens, kv)
    queries = torch.randn(rows, heads * group, _DIM, device="cuda", dtype=torch.bfloat16)
    chunks = torch.rand(heads, newest // _CHUNK, device="cuda").argsort(-1)[:, :held].int().contiguous()
    bounds = torch.tensor([held, newest], dtype=torch.int32, device="cuda")
    return _in_turns(caches, lambda keys, values: attention(queries, keys, values, tokens, chunks, bounds, _CHUNK),
                     repeats)


def _caches(heads: int, tokens: int, kv: str) -> list[Tensor]:
    """Of random numbers, [2, heads, tokens, D] or rows of them."""
    def random() -> Tensor:
        numbers = torch.randn(heads, tokens + 64, _DIM, device="cuda", dtype=torch.bfloat16)
        return numbers if kv == "same" else to_rows(numbers, KV_BITS[kv])

    return [torch.stack([random(), random()]) for _ in range(_TURNS)]


def _in_turns(caches: list[Tensor], one: Callable[[Tensor, Tensor], object], repeats: int) -> float:
    """Seconds of ``one``, from a graph over all caches."""

    def all_caches() -> None:
        for keys, values in caches:
            one(keys, values)

    all_caches()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        all_caches()
    return timed(graph.replay, repeats) / len(caches)


def measure(kind: str, kernel: str, attention: Callable[..., object], tokens: int, rows: int, mass: bool,
            copy: float, kv: str = "same") -> Reading:
    seconds = attention_seconds(attention, kind, tokens, rows, rows if mass else 0, kv=kv)
    return _reading(kind, kernel, tokens, rows, mass, seconds, copy, kv)


def _reading(kind: str, kernel: str, tokens: int, rows: int, mass: bool, seconds: float, copy: float,
             kv: str = "same") -> Reading:
    row = _DIM * 2 if kv == "same" else row_bytes(_DIM, KV_BITS[kv])
    rate = 2 * HEADS[kind][0] * tokens * row / seconds / 1e9
    return Reading(kind, kernel, tokens, rows, mass, seconds * 1e6, rate, rate / copy)


def _print(found: Reading) -> None:
    print(f"{found.kind}  {found.kernel:6}  {found.tokens:7,} tokens  {found.rows:2} rows  "
          f"{'with mass' if found.mass else '':9}  {found.microseconds:8.1f} us  "
          f"{found.gigabytes_per_second:6,.0f} GB/s  {found.share:4.0%}", flush=True)


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
    own = choose_kernels(torch.device("cuda"))
    copy = copy_bandwidth()
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}, bf16, head_dim {_DIM}, kv {given.kv}: "
          f"copy {copy:,.0f} GB/s")
    readings = []
    for kind in HEADS:
        for tokens in given.tokens:
            for rows in given.rows:
                for name, attention, mass in ((own.name, own.attention, False), (own.name, own.attention, True),
                                              ("sdpa", sdpa.attention, False))[: 3 if given.kv == "same" else 2]:
                    readings.append(measure(kind, name, attention, tokens, rows, mass, copy, given.kv))
                    _print(readings[-1])
                if own.indexed_attention is not None and given.budget < tokens:
                    seconds = chosen_seconds(own.indexed_attention, kind, tokens, rows, given.budget,
                                             kv=given.kv)
                    readings.append(_reading(kind, "chosen", given.budget, rows, False, seconds, copy, given.kv))
                    _print(readings[-1])
    result: dict[str, Any] = {"device": torch.cuda.get_device_name(), "copy_gigabytes_per_second": copy,
                              "readings": [asdict(reading) for reading in readings]}
    print(json.dumps(result))
    return 0


if __name__ == "__main__":
    sys.exit(main())
