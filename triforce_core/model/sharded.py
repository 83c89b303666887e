"""A decoder split over ranks, as Megatron-LM does (Shoeybi et al. 2019, arXiv 1909.08053, section 3).

q, k, v, gate and up are split by rows (a rank's heads and MLP features), o_proj and down by the columns that read them;
the ranks' outputs of those two add up to the whole one's: one sum after attention and one after the MLP. The head is
split by rows and its logits gathered; the embedding is whole everywhere. int8 scales belong to output channels: rows
take theirs along, columns keep all, and every part scaled by them adds up to the whole scaled.
"""

from __future__ import annotations

from dataclasses import replace

from torch import Tensor

from ..device.shard import Shard
from ..errors import ConfigError
from ..kernels import Grouped
from .config import ModelConfig
from .weights import Matrix, Part, WeightSource

_ROWS = ("q_proj", "k_proj", "v_proj", "gate_proj", "up_proj")
_COLUMNS = ("o_proj", "down_proj")


def local_config(config: ModelConfig, shard: Shard) -> ModelConfig:
    """The decoder that one rank runs: fewer heads and MLP features. Raises ConfigError if they cannot be shared out."""
    if shard.world == 1 or not shard.splits_layers:
        return config
    world = shard.world
    if config.num_kv_heads % world or config.intermediate_size % world:
        allowed = [str(n) for n in range(1, config.num_kv_heads + 1)
                   if config.num_kv_heads % n == 0 and config.intermediate_size % n == 0]
        raise ConfigError(f"gpus is {world}, and this model has {config.num_kv_heads} KV heads and "
                          f"{config.intermediate_size} MLP features to share out", allowed=", ".join(allowed))
    return replace(config, num_heads=config.num_heads // world, num_kv_heads=config.num_kv_heads // world,
                   intermediate_size=config.intermediate_size // world)


class ShardedWeights:
    """A ``WeightSource``: asked for one rank's shapes, it reads that rank's part of each tensor and no more."""

    def __init__(self, whole: WeightSource, shard: Shard, vocab_size: int) -> None:
        self._whole, self._shard, self._vocab_size = whole, shard, vocab_size

    def tensor(self, name: str, shape: tuple[int, ...]) -> Tensor:
        return self._whole.tensor(name, *self._part(name, shape))

    def matrix(self, name: str, shape: tuple[int, int]) -> Matrix:
        (rows, columns), part = self._part(name, shape)
        return self._whole.matrix(name, (rows, columns), part)

    def grouped(self, name: str, shape: tuple[int, int]) -> Grouped | None:
        return None

    def ignore(self, name: str) -> None:
        self._whole.ignore(name)

    def finish(self) -> None:
        self._whole.finish()

    def _part(self, name: str, shape: tuple[int, ...]) -> tuple[tuple[int, ...], Part | None]:
        """The whole tensor's shape, and what of it is this rank's (None: all)."""
        if name == "lm_head.weight":
            return (self._vocab_size, *shape[1:]), Part(0, *self._shard.span(self._vocab_size))
        kind = name.split(".")[-2]
        if not self._shard.splits_layers or kind not in (*_ROWS, *_COLUMNS):
            return shape, None
        axis = 0 if kind in _ROWS else 1
        size = shape[axis] * self._shard.world
        return (*shape[:axis], size, *shape[axis + 1 :]), Part(axis, *self._shard.span(size))
