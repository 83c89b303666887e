"""The one contract of every KV cache.

Letters: n tokens of one pass, H KV heads, C slots (capacity), D head_dim. Batch is 1 throughout.

Life of a pass: ``begin(depths)`` announces n tokens; each layer calls ``stage(layer, k, v)`` and attends the
returned view; ``keep(indices)`` names the staged tokens that survive, ``commit()`` folds survivors in.
Inner rounds only stage and keep; the outer round alone commits, so a sliding window never loses what a
rejection still needs.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True, slots=True)
class ChunkIndex:
    """Which slots of whole buffers one layer attends, where it is not all of them: per KV head, its first k chunks
    (chunk i is slots from i * size), then every slot from ``newest`` on.

    chunks: int32 [H, at least k]; bounds: int32 [2], (k, newest). Both stay where they are; their values change."""

    chunks: Tensor
    bounds: Tensor
    size: int


@dataclass(slots=True)
class KVView:
    """Show what one layer attends in one pass; valid until the next ``stage`` or ``keep`` of the same cache.

    keys, values: whole fixed buffers [H, C, D] (a slice of a bf16 buffer makes CPU products copy).
    length: slots [0, length) are filled, the n staged tokens last, in order; in a captured pass an int32 tensor [1].
    staged_mask: bool [n, m], m >= n: which of the last m staged tokens each of the n sees (also earlier passes' staged
    ones, where a tree grows level by level); None means causal. Slots before these m are seen by all n: those that
    ``index`` names, or all.
    room: where keys and values are rows of bytes and passes unpack them: for bfloat16 buffers [H, C, D] to do so in.
    """

    keys: Tensor
    values: Tensor
    length: int | Tensor
    staged_mask: Tensor | None = None
    index: ChunkIndex | None = None
    room: Callable[[], tuple[Tensor, Tensor]] | None = None


class KVCache(ABC):
    """Keys and values of one model for one conversation.

    ``num_committed``: tokens folded in; ``length`` = committed + staged. Both count *tokens of the context*,
    also where a kind holds only some of them (streaming, retrieval).
    """

    num_committed: int
    length: int
    capturable = True  # buffers stay where they are from pass to pass: one may be captured as a graph
    streams = False  # each pass brings keys and values through a link, layer by layer

    @property
    def streamed_bytes(self) -> int:
        """Brought to the device for passes so far, by a kind that keeps tokens elsewhere."""
        return 0

    @property
    @abstractmethod
    def room(self) -> int:
        """Tokens that can still be staged, however much the buffers grow."""

    @abstractmethod
    def positions(self, n: int, depths: Sequence[int] | None = None) -> Tensor:
        """Rotary positions, int64 [n], of the next n tokens to stage (depths: for a tree, counted from ``length``,
        negative where one follows a token staged before the last; None = a chain).

        Full, retrieval: absolute. Streaming: relative to the cache, as StreamingLLM (arXiv 2309.17453, 3.2).
        """

    @abstractmethod
    def begin(self, n: int, staged_mask: Tensor | None = None) -> None:
        """Announce a pass of n tokens, before its first ``stage``. Grows buffers if it must. staged_mask: see KVView.

        Raises NotEnoughMemoryError / ContextTooLongError when they cannot grow."""

    @abstractmethod
    def stage(self, layer: int, k: Tensor, v: Tensor) -> KVView:
        """Write this pass's k, v [n, H, D] (k already rotated) behind what is there; return what to attend.

        After the last layer's stage, ``length`` has grown by n."""

    @abstractmethod
    def keep(self, indices: Sequence[int]) -> None:
        """Keep these of all staged tokens (ascending; a prefix or a tree path) and forget the others."""

    @abstractmethod
    def commit(self) -> None:
        """Fold the kept tokens in. The only moment at which eviction or a copy elsewhere may happen."""

    @abstractmethod
    def truncate(self, length: int) -> None:
        """Forget back to the first ``length`` tokens, staged ones included.

        A kind that has evicted what it would need raises ValueError unless length is 0."""

    def reset(self) -> None:
        """As new: behaves in every way like a fresh object of the same arguments."""
        self.truncate(0)

    @abstractmethod
    def check_integrity(self) -> None:
        """Assert every invariant that can be checked cheaply. For tests."""
