"""Muon for the matrices, AdamW for embeddings and norms."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn


def orthogonalise(update: Tensor) -> Tensor:
    """Newton-Schulz steps towards the nearest orthogonal matrices, for a stack of matrices no taller than wide."""
    x = update / (update.norm(dim=(1, 2), keepdim=True) + 1e-7)
    for _ in range(5):
        gram = x @ x.mT
        x = 3.4445 * x + (-4.7750 * gram + 2.0315 * gram @ gram) @ x
    return x


class Optimiser:
    """Both methods behind one step; matrices of one shape are updated as one stack."""

    def __init__(self, model: nn.Module, decay: float, momentum: float = 0.95) -> None:
        self.decay, self.momentum = decay, momentum
        shapes: dict[torch.Size, list[nn.Parameter]] = {}
        others: list[nn.Parameter] = []
        for name, parameter in model.named_parameters():
            if parameter.ndim == 2 and "embed" not in name:
                shapes.setdefault(parameter.shape, []).append(parameter)
            else:
                others.append(parameter)
        self.stacks = list(shapes.values())
        self.buffers = [torch.zeros(len(s), *s[0].shape, device=s[0].device) for s in self.stacks]
        self.adam = torch.optim.AdamW(others, betas=(0.9, 0.95), weight_decay=0.0, fused=others[0].is_cuda)

    @torch.no_grad()
    def step(self, rate: float) -> None:
        """One update; the gradients are cleared."""
        for stack, buffer in zip(self.stacks, self.buffers, strict=True):
            gradient = torch.stack([parameter.grad for parameter in stack if parameter.grad is not None])
            buffer.lerp_(gradient, 1 - self.momentum)
            update = gradient.lerp(buffer, self.momentum).bfloat16()
            tall = update.shape[1] > update.shape[2]
            update = orthogonalise(update.mT if tall else update)
            update = (update.mT if tall else update).float() * (0.2 * math.sqrt(max(update.shape[1:])))
            weights = [parameter.data for parameter in stack]
            torch._foreach_mul_(weights, 1 - rate * self.decay)
            torch._foreach_add_(weights, list(update.unbind(0)), alpha=-rate)
        for group in self.adam.param_groups:
            group["lr"] = rate
        self.adam.step()
        for group in (*self.stacks, *(group["params"] for group in self.adam.param_groups)):
            for parameter in group:
                parameter.grad = None
