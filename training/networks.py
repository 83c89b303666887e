"""The small networks of the sentence prior, in torch to fit them and as the arrays that the application reads."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor, nn

from triforce_core.evidence.ranking import Network

NARROWEST = 0.02  # a feature that hardly varies is not blown up


class Layers(nn.Module):
    """ReLU layers over standardised features, with dropout. hidden: their widths; none makes a linear function."""

    def __init__(self, mean: np.ndarray, std: np.ndarray, hidden: Sequence[int], dropped: float = 0.0) -> None:
        super().__init__()
        self.mean = nn.Buffer(torch.as_tensor(mean, dtype=torch.float32))
        self.std = nn.Buffer(torch.as_tensor(std, dtype=torch.float32))
        widths = [len(mean), *hidden, 1]
        self.layers = nn.ModuleList(nn.Linear(width, after) for width, after in pairwise(widths))
        self.dropout = nn.Dropout(dropped)

    def forward(self, features: Tensor) -> Tensor:
        """[..., features] -> [...]"""
        x = ((features - self.mean) / self.std).clamp(-5, 5)
        for layer in self.layers[:-1]:
            x = self.dropout(torch.relu(layer(x)))
        return self.layers[-1](x).squeeze(-1)

    def network(self) -> Network:
        """Its arrays."""
        layers = tuple((layer.weight.detach().numpy().copy(), layer.bias.detach().numpy().copy())
                       for layer in self.layers)
        return Network(self.mean.numpy().copy(), self.std.numpy().copy(), layers)


def standard(features: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(mean, std) of each column, in float32."""
    features = features.astype(np.float32)
    return features.mean(0), np.maximum(features.std(0), NARROWEST)


def descend(net: Layers, size: int, batch: int, epochs: int, loss: Callable[[Tensor], Tensor],
            optimiser: torch.optim.Optimizer, rates: torch.optim.lr_scheduler.LRScheduler | None = None) -> float:
    """Steps through `size` examples in random batches; returns the mean loss of the last epoch."""
    losses: list[float] = []
    net.train()
    for _ in range(epochs):
        losses = []
        for numbers in torch.randperm(size).split(batch):
            value = loss(numbers)
            optimiser.zero_grad()
            value.backward()
            optimiser.step()
            if rates is not None:
                rates.step()
            losses.append(float(value.detach()))
    net.eval()
    return float(np.mean(losses))


def merged(networks: Sequence[Network]) -> Network:
    """One network whose output is the mean of several of the same shape over the same standardised features."""
    count = len(networks)
    assert all(np.array_equal(net.mean, networks[0].mean) for net in networks), "they see the same features"
    layers = []
    for at in range(len(networks[0].layers)):
        blocks, biases = zip(*(net.layers[at] for net in networks), strict=True)
        if at == 0:
            joined, bias = np.concatenate(blocks), np.concatenate(biases)
        else:  # each sees what it had before
            rows, columns = blocks[0].shape
            joined, bias = np.zeros((rows * count, columns * count), np.float32), np.concatenate(biases)
            for number, block in enumerate(blocks):
                joined[number * rows : (number + 1) * rows, number * columns : (number + 1) * columns] = block
        layers.append((joined, bias))
    weights, bias = layers.pop()  # [count, hidden]: one output each
    layers.append((weights.mean(0, keepdims=True), bias.mean(keepdims=True)))
    return Network(networks[0].mean, networks[0].std, tuple(layers))


def stored(name: str, network: Network) -> dict[str, np.ndarray]:
    """The arrays that `Network.from_stored` reads under this name."""
    arrays = {f"{name}.mean": network.mean, f"{name}.std": network.std}
    for at, (weights, bias) in enumerate(network.layers, 1):
        arrays |= {f"{name}.w{at}": weights, f"{name}.b{at}": bias}
    return {key: np.asarray(array, np.float32) for key, array in arrays.items()}
