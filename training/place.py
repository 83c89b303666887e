"""One process of a training run among those that torchrun started."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import nn


@dataclass(frozen=True)
class Place:
    """This process among the others."""

    rank: int
    world: int
    device: torch.device

    @staticmethod
    def find() -> Place:
        """Joins the other processes that torchrun started."""
        rank, world = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
        if not torch.cuda.is_available():
            if world > 1:
                dist.init_process_group("gloo")
            return Place(rank, world, torch.device("cpu"))
        device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", 0)))
        torch.cuda.set_device(device)
        if world > 1:
            dist.init_process_group("nccl", device_id=device)
        return Place(rank, world, device)

    def average(self, parameters: Iterable[nn.Parameter]) -> None:
        """The mean of the gradients of all processes."""
        if self.world == 1:
            return
        gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
        flat = torch.cat([gradient.flatten() for gradient in gradients])
        dist.all_reduce(flat)
        parts = (flat / self.world).split([gradient.numel() for gradient in gradients])
        for gradient, part in zip(gradients, parts, strict=True):
            gradient.copy_(part.view_as(gradient))

    def from_first(self, value: float) -> float:
        """A number that the first process knows."""
        if self.world == 1:
            return value
        shared = torch.tensor([value], dtype=torch.float64, device=self.device)
        dist.broadcast(shared, 0)
        return float(shared)

    def leave(self) -> None:
        """Waits for the other processes, and parts from them."""
        if self.world > 1:
            dist.barrier()
            dist.destroy_process_group()

    def autocast(self) -> torch.autocast:
        """Bfloat16 arithmetic."""
        return torch.autocast(self.device.type, torch.bfloat16)
