"""python -m triforce_core.bench.host_attention: would it pay if the CPU attended a part of an offloaded cache?

A cache in host memory is streamed to the GPU pass by pass. The CPU could attend some of it where it lies meanwhile, and
the two results be merged by their log-sum-exp. That pays as far as the CPU reads keys and values fast enough *while*
the link reads the same memory. Measured here: the link alone, the CPU alone, both at once; what follows for a
pass is modelled (the work divided so that both end together).
"""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Sequence
from time import perf_counter

import torch
from torch import Tensor

from .. import flags
from ..device.capability import choose_threads, read_capability
from ..kernels import choose_kernels
from .kernels import HEADS

_DIM = 128
_SECONDS = 1.5  # of each measurement


class Link:
    """Copies pinned memory to the GPU, over and over."""

    def __init__(self, mebibytes: int = 512) -> None:
        self._host = torch.ones(mebibytes * 2**20, dtype=torch.uint8).pin_memory()
        self._there = torch.empty_like(self._host, device="cuda")
        self._stream = torch.cuda.Stream()

    def rate(self, until: threading.Event | None = None) -> float:
        """GB/s, for ``_SECONDS`` or until somebody says so."""
        begun, copied = perf_counter(), 0
        with torch.cuda.stream(self._stream):
            while not (until.is_set() if until else perf_counter() - begun > _SECONDS):
                self._there.copy_(self._host, non_blocking=True)
                copied += self._host.numel()
                self._stream.synchronize()
        return copied / (perf_counter() - begun) / 1e9


def attention_rate(layers: Sequence[tuple[Tensor, Tensor]], rows: int, group: int) -> float:
    """GB/s of keys and values [H, N, D] that the CPU attends for ``rows`` tokens, layer after layer."""
    attention = choose_kernels(torch.device("cpu")).attention
    heads, tokens, dim = layers[0][0].shape
    queries = torch.randn(rows, heads * group, dim)
    attention(queries, *layers[0], tokens)
    begun, read = perf_counter(), 0
    while perf_counter() - begun < _SECONDS:
        for keys, values in layers:
            attention(queries, keys, values, tokens)
            read += keys.nbytes + values.nbytes
    return read / (perf_counter() - begun) / 1e9


def together(link: Link, layers: Sequence[tuple[Tensor, Tensor]], rows: int, group: int) -> tuple[float, float]:
    """The same two rates, at the same time."""
    done, rates = threading.Event(), []
    copier = threading.Thread(target=lambda: rates.append(link.rate(done)))
    copier.start()
    try:
        attended = attention_rate(layers, rows, group)
    finally:
        done.set()
        copier.join()
    return rates[0], attended


def main(argv: Sequence[str] | None = None) -> int:
    parser = flags.Parser(prog="python -m triforce_core.bench.host_attention", description=__doc__.splitlines()[0])
    parser.add_argument("--kind", choices=tuple(HEADS), default="mha", help="heads as in llama2-7b or llama3-8b")
    parser.add_argument("--tokens", type=int, default=32_768, metavar="N")
    parser.add_argument("--layers", type=int, default=6, metavar="N", help="that take turns, so that none is in the L3")
    parser.add_argument("--rows", type=int, nargs="+", default=[1, 9, 33], metavar="N", help="tokens of a pass")
    parser.add_argument("--threads", type=int, default=0, metavar="N", help="default: a thread per core")
    given = parser.parse_args(argv)
    if not torch.cuda.is_available():
        print("triforce_core.bench.host_attention: torch sees no GPU, so there is no link to compare with",
              file=sys.stderr)
        return 2
    torch.set_num_threads(given.threads or choose_threads(read_capability()))
    heads, group = HEADS[given.kind]
    layers = [(torch.randn(heads, given.tokens, _DIM, dtype=torch.bfloat16),
               torch.randn(heads, given.tokens, _DIM, dtype=torch.bfloat16)) for _ in range(given.layers)]
    link = Link()
    alone = link.rate()
    print(f"{torch.get_num_threads()} threads; link alone {alone:.1f} GB/s")
    readings = []
    for rows in given.rows:
        cpu = attention_rate(layers, rows, group)
        shared_link, shared_cpu = together(link, layers, rows, group)
        gain = (shared_link + shared_cpu) / alone
        readings.append({"rows": rows, "cpu_alone": cpu, "link_beside_cpu": shared_link, "cpu_beside_link": shared_cpu,
                         "modelled_gain": gain})
        print(f"{rows:3} rows: CPU attends {cpu:.1f} GB/s alone; at once link {shared_link:.1f}, CPU {shared_cpu:.1f}; "
              f"modelled: a pass at most {gain:.2f}x as fast", flush=True)
    print(json.dumps({"kind": given.kind, "tokens": given.tokens, "threads": torch.get_num_threads(),
                      "link_alone": alone, "readings": readings}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
