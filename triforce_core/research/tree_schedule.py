"""The growth of a tree in passes of few widths, in tables that change with the tree's shape, not by round.

Letters: S passes, R rows of the widest, K siblings of the largest family, M columns of a mask. The first pass reads the
newest tokens of the context, the last of which is the root; then come the tokens of each level that have children, 64
at a time: a row sees its ancestors, so a level may be divided at will. A pass of one width and one size of families is
the same work whichever tree it belongs to: so shapes may change without a new captured graph.

Places in the list of tokens: [newest of the context, the root last | drafted tokens | one for all that nobody wants].
Slots are counted from the root's; a pass is filled up behind its own, and the next one writes over that.
"""

from __future__ import annotations

from collections.abc import Sequence, Set
from dataclasses import dataclass

import numpy as np

from ..speculation import tree
from .tree_shape import TreeShape

_ROWS = (1, 2, 4, 8, 16, 32, 64)  # widths of passes: up to 16 rows take about the same time


@dataclass(frozen=True, slots=True)
class Bounds:
    """Bound the tables of any tree of one drafter. reread: tokens of the first pass."""

    size: int
    depth: int
    siblings: int
    reread: int

    @property
    def rows(self) -> int:
        return max(self.reread, _at_least(min(self.size, _ROWS[-1])))

    @property
    def passes(self) -> int:
        return 1 + self.depth + self.size // _ROWS[-1]

    @property
    def columns(self) -> int:
        """Return M: every slot behind the root's is covered, the widest pass last."""
        return self.size + self.rows + self.reread

    @property
    def nowhere(self) -> int:
        """Return the place of tokens that nobody wants."""
        return self.reread + self.size

    def tables(self) -> dict[str, np.ndarray]:
        """Return empty tables: places, steps and slots int64 [S, R] of each pass's rows, steps being counted from the
        root; stops int64 [S]; targets int64 [S, K, R], where drawn siblings go; masks bool [S, R, M], see
        ``DeviceSlots``."""
        count, rows = self.passes, self.rows
        return {"places": np.full((count, rows), self.nowhere), "steps": np.zeros((count, rows), dtype=np.int64),
                "slots": np.zeros((count, rows), dtype=np.int64), "stops": np.zeros(count, dtype=np.int64),
                "targets": np.full((count, self.siblings, rows), self.nowhere),
                "masks": np.zeros((count, rows, self.columns), dtype=np.bool_)}

    def hold(self, shape: TreeShape) -> bool:
        return (shape.size <= self.size and shape.depth <= self.depth
                and max(map(len, shape.families)) <= self.siblings)


@dataclass(frozen=True, slots=True)
class TreePlan:
    """Plan a tree's passes.

    passes: rows and siblings of each. parents: of the tokens grown. run: those of them that are read, in the order of
    their slots. slots: in use behind the root's. tables: as many rows of ``Bounds.tables`` as there are passes."""

    passes: list[tuple[int, int]]
    parents: list[int]
    run: list[int]
    slots: int
    tables: dict[str, np.ndarray]

    def living(self, tokens: Sequence[int], stop: Set[int]) -> tuple[list[int], list[int]]:
        """Return which drafted tokens are drafted in truth, and their parents as they are numbered then.

        Left out are -1 (nothing was left to draw) and what follows one of those or the end of an answer."""
        number: dict[int, int] = {-1: -1}
        for node, (token, parent) in enumerate(zip(tokens, self.parents, strict=True)):
            if token >= 0 and parent in number and (parent < 0 or tokens[parent] not in stop):
                number[node] = len(number) - 1
        nodes = list(number)[1:]
        return nodes, [number[self.parents[node]] for node in nodes]


def plan(shape: TreeShape, levels: int, bounds: Bounds) -> TreePlan:
    """Plan the first ``levels`` levels of ``shape``, at least one."""
    assert levels >= 1 and bounds.hold(shape)
    depths = tree.depths(shape.parents)
    parents = [parent for parent, depth in zip(shape.parents, depths, strict=True) if depth < levels]
    families, above = tree.families(parents), tree.ancestry(parents)
    groups = [[-1]]
    for level in range(max(depths[: len(parents)], default=0) + 1):
        inner = [node for node in range(len(parents)) if depths[node] == level and families[node + 1]]
        groups += [inner[at : at + _ROWS[-1]] for at in range(0, len(inner), _ROWS[-1])]
    first = bounds.reread
    tables = {name: table[: len(groups)] for name, table in bounds.tables().items()}
    places, steps, row_slots, stops, targets, masks = tables.values()
    passes: list[tuple[int, int]] = []
    run: list[int] = []
    for number, group in enumerate(groups):
        width = first if number == 0 else _at_least(len(group))
        begin = 1 - first if number == 0 else 1 + len(run)  # the slot of the pass's first row
        ahead = first - 1 if number == 0 else 0  # rows before the group's
        stop = begin + width
        row_slots[number, :width] = np.arange(begin, stop)
        stops[number] = stop
        column = bounds.columns - stop  # of the root's slot
        masks[number, :, : max(0, column + 1)] = True
        if number == 0:
            places[0, :first] = np.arange(first)
            steps[0, :first] = np.arange(begin, 1)
            masks[0, :first, column + begin : column + 1] = np.tri(first, dtype=np.bool_)
        run += group if number else []
        slot_of = {node: slot for slot, node in enumerate(run, start=1)}
        for row, node in enumerate(group, start=ahead):
            if number:
                places[number, row] = first + node
                steps[number, row] = depths[node] + 1
                for other in np.flatnonzero(above[node]):
                    masks[number, row, column + slot_of[int(other)]] = True
            for rank, child in enumerate(families[node + 1]):
                targets[number, rank, row] = first + child
        most = max(len(families[node + 1]) for node in group)
        passes.append((width, min(bounds.siblings, 1 << (most - 1).bit_length())))
    return TreePlan(passes, parents, run, int(stops.max()), tables)


def _at_least(count: int) -> int:
    return next(width for width in _ROWS if width >= count)
