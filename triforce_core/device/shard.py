"""One rank's place among several that hold a model together (tensor parallelism), and what they say to each other.

Every rank is a process that runs the same engine on the same requests (SPMD). The other way, rank 0 dictating passes
and cache operations, would need a twin of everything that has a cache; so whatever the engine does (graphs, drafters,
retrieval, saved readings) each rank does with its own heads, unchanged. It works because all ranks decide alike:
decisions come from logits, whose bytes are equal everywhere (``gather``), and from sampled numbers, which are rank 0's
(``same``), as sums on a GPU may differ in the last bit from rank to rank. Nothing may be decided by a clock.
"""

from __future__ import annotations

import os
import socket
from dataclasses import dataclass
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import Tensor

from ..errors import ConfigError

_LOCAL = "127.0.0.1"
_TIMEOUT = timedelta(seconds=300)  # of one collective: far above a pass, and an end to waiting for nobody


@dataclass(frozen=True, slots=True)
class Shard:
    """Rank ``rank`` of ``world``. splits_layers False: every rank holds whole layers and a part of the head only."""

    rank: int = 0
    world: int = 1
    splits_layers: bool = True

    def span(self, size: int) -> tuple[int, int]:
        """This rank's part [start, stop) of ``size`` equal things."""
        return size * self.rank // self.world, size * (self.rank + 1) // self.world

    def sum(self, part: Tensor) -> Tensor:
        """The sum of every rank's ``part`` (which may be overwritten), in fp32. Can be captured in a CUDA graph."""
        if self.world == 1:
            return part
        total = part.float()
        dist.all_reduce(total)
        return total

    def gather(self, part: Tensor, size: int) -> Tensor:
        """Each rank's columns ``span(size)`` -> all columns [rows, size], the same bytes on every rank: added to zeros
        they do not depend on the order of addition."""
        if self.world == 1:
            return part
        start, stop = self.span(size)
        whole = torch.zeros(part.shape[0], size, device=part.device)
        whole[:, start:stop] = part
        return self.sum(whole)

    def same(self, numbers: list[int]) -> list[int]:
        """Rank 0's numbers, on every rank (as many everywhere)."""
        if self.world == 1:
            return numbers
        shared = torch.tensor(numbers, dtype=torch.int64)
        dist.broadcast(shared, 0)
        return shared.tolist()

    def same_on_device(self, numbers: Tensor) -> Tensor:
        """``same`` for numbers of the device, in place; nobody waits. Can be captured in a CUDA graph."""
        if self.world > 1:
            dist.broadcast(numbers, 0)
        return numbers

    def least(self, number: int) -> int:
        """The smallest of every rank's numbers."""
        if self.world == 1:
            return number
        found = torch.tensor(number, dtype=torch.int64)
        dist.all_reduce(found, dist.ReduceOp.MIN)
        return int(found)


ALONE = Shard()


def require_gpus(wanted: int, on_cpu: bool) -> None:
    """Raises ConfigError unless there is a GPU for each rank (on_cpu: none is needed, it is a dry run)."""
    present = torch.cuda.device_count()
    if wanted > 1 and not dist.is_available():
        raise ConfigError(f"gpus is {wanted}, and this torch was built without torch.distributed", allowed="1")
    if wanted > max(present, 1) and not on_cpu:
        raise ConfigError(f"gpus is {wanted}, and torch sees {present or 'none'}",
                          allowed=f"1 to {present}" if present > 1 else "1")


def open_meeting() -> tuple[socket.socket, int]:
    """Open the place where the ranks will find each other: a socket that only this machine can reach, and its port."""
    listener = socket.socket()
    listener.bind((_LOCAL, 0))
    listener.listen()
    return listener, int(listener.getsockname()[1])


def meet(rank: int, world: int, port: int, on_gpu: bool, listener: socket.socket | None = None) -> Shard:
    """Wait for the other ranks; rank 0 brings the ``listener``. Raises RuntimeError kinds when they do not come."""
    for name in ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME"):
        os.environ.setdefault(name, _loopback())
    if listener is None:
        store = dist.TCPStore(_LOCAL, port, world, False, _TIMEOUT)
    else:
        store = dist.TCPStore(_LOCAL, port, world, True, _TIMEOUT, wait_for_workers=False,
                              master_listen_fd=listener.detach())
    if on_gpu:
        torch.cuda.set_device(rank)
    dist.init_process_group("cpu:gloo,cuda:nccl" if on_gpu else "gloo", store=store, rank=rank, world_size=world,
                            timeout=_TIMEOUT)
    shard = Shard(rank, world)
    # Connections are made by the first collective, which must not be one that a graph captures.
    shard.sum(torch.zeros(1, device="cuda" if on_gpu else "cpu"))
    shard.least(0)
    return shard


def _loopback() -> str:
    """The network interface that leads nowhere else: nobody outside shall reach the ranks' sockets."""
    import psutil

    return next(name for name, addresses in psutil.net_if_addrs().items()
                if any(address.address == _LOCAL for address in addresses))
