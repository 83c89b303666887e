"""Which tree to draft: Sequoia's dynamic programme (arXiv 2402.12374, section 3.1) and its choice for a machine (3.3).

Letters: N nodes (the context's end, which is no drafted token, is one of them), D levels of drafted tokens.
``acceptance[k]``: the share of families, among those whose parent was accepted, in which just the k-th sibling was
accepted. What a tree is worth is then the sum over its nodes of the product of these along the path: expected tokens
per verification, the verifier's own included.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np

from ..speculation import tree


@dataclass(frozen=True)
class TreeShape:
    """Hold which drafted tokens follow which (see ``tree``), level by level, the tokens of a level family by family."""

    parents: tuple[int, ...]

    @property
    def size(self) -> int:
        return len(self.parents)

    @cached_property
    def families(self) -> list[list[int]]:
        return tree.families(self.parents)

    @cached_property
    def widths(self) -> list[int]:
        """Return the rows of each drafting pass: the tokens of a level that have children, the context's end first."""
        depths = [0, *(depth + 1 for depth in tree.depths(self.parents))]
        inner = [depth for depth, children in zip(depths, self.families, strict=True) if children]
        return [inner.count(depth) for depth in range(max(inner, default=-1) + 1)]

    @property
    def depth(self) -> int:
        return len(self.widths)

    def expected_tokens(self, acceptance: Sequence[float]) -> float:
        """Return the tokens per verification; siblings beyond ``acceptance`` are worth nothing."""
        values = [1.0]
        for parent, rank in zip(self.parents, tree.ranks(self.parents), strict=True):
            values.append(values[parent + 1] * (acceptance[rank] if rank < len(acceptance) else 0.0))
        return sum(values)


def chains(count: int, depth: int) -> TreeShape:
    """Return so many chains side by side, as SpecInfer (arXiv 2305.09781; the comparison in Sequoia's figures)."""
    return TreeShape((*[-1] * count, *range(count * (depth - 1))))


def sequoia(acceptance: Sequence[float], size: int, depth: int) -> TreeShape:
    """Return the best tree of at most ``size`` drafted tokens on at most ``depth`` levels."""
    return _Programme.of(tuple(acceptance), size, depth).shape(size, depth)


@dataclass(frozen=True)
class TreeChoice:
    """Hold a tree for a machine. cost: of a round with it, in the unit of the costs given."""

    shape: TreeShape
    expected_tokens: float
    cost: float


def choose(acceptance: Sequence[float], verify: Callable[[int], float], draft: Callable[[int], float], *,
           sizes: Sequence[int], depths: Sequence[int]) -> TreeChoice:
    """Return the tree with the most expected tokens per cost.

    verify, draft: cost of a verification and a drafting pass of so many rows. sizes, depths: drafted tokens and levels
    to choose from; drafting nothing is always one."""
    best = TreeChoice(TreeShape(()), 1.0, verify(1))
    programme = _Programme.of(tuple(acceptance), max(sizes), max(depths))
    for size in sizes:
        for depth in depths:
            shape = programme.shape(size, depth)
            tokens, cost = shape.expected_tokens(acceptance), verify(shape.size + 1) + sum(map(draft, shape.widths))
            if tokens * best.cost > best.expected_tokens * cost:
                best = TreeChoice(shape, tokens, cost)
    return best


class _Programme:
    """Hold Sequoia's tables.

    ``_values[d][N]``: the worth of the best tree of exactly N nodes on at most d levels, -inf where there is none;
    ``_last[d][b][N]``: nodes under the last of its b children; ``_children[d][N]``: b."""

    def __init__(self, acceptance: tuple[float, ...], size: int, depth: int) -> None:
        nodes = np.arange(size + 2)
        rest = nodes[:, None] - nodes[None, :]  # [N, m]: nodes that m of them under the last child leave
        rest[rest < 1] = size + 2  # none: no such tree
        alone = np.where(nodes == 1, 1.0, -np.inf)
        self._values, self._children = [alone], [np.zeros_like(nodes)]
        self._last: list[list[np.ndarray]] = [[]]
        for _ in range(depth):
            by_children, last = [alone], []
            for worth in acceptance[:size]:
                with np.errstate(invalid="ignore"):  # no such tree, and worth nothing
                    under = np.where(np.isfinite(self._values[-1]), worth * self._values[-1], -np.inf)
                total = np.append(by_children[-1], -np.inf)[rest]
                total += under
                last.append(total.argmax(1))
                by_children.append(total[nodes, last[-1]])
            stacked = np.stack(by_children)
            self._last.append(last)
            self._children.append(stacked.argmax(0))
            self._values.append(stacked.max(0))

    @classmethod
    @lru_cache(maxsize=8)
    def of(cls, acceptance: tuple[float, ...], size: int, depth: int) -> _Programme:
        return cls(acceptance, size, depth)

    def shape(self, size: int, depth: int) -> TreeShape:
        parents: list[int] = []
        level = [(-1, int(self._values[depth][: size + 2].argmax()))]  # of each node of a level: itself, nodes under it
        for remaining in range(depth, 0, -1):
            below = []
            for node, count in level:
                sizes = []
                for child in range(int(self._children[remaining][count]) - 1, -1, -1):
                    sizes.append(int(self._last[remaining][child][count]))
                    count -= sizes[-1]
                for under in reversed(sizes):
                    below.append((len(parents), under))
                    parents.append(node)
            level = below
        return TreeShape(tuple(parents))
