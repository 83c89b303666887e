"""The tables by which the device grows a tree."""

from __future__ import annotations

import numpy as np
import pytest
from speculation.grown import WIDE

from triforce_core.research.tree_schedule import Bounds, plan
from triforce_core.research.tree_shape import TreeShape, sequoia
from triforce_core.speculation import tree


@pytest.mark.parametrize("reread", [1, 3])
@pytest.mark.parametrize("shape", [WIDE, TreeShape((-1,)), TreeShape((-1, -1)), sequoia((0.7, 0.2, 0.1), 300, 12),
                                   TreeShape((*[-1] * 2, *range(198)))], ids=lambda shape: str(shape.size))
def test_every_row_sees_its_ancestors_and_no_other_drafted_token(shape, reread):
    bounds = Bounds(shape.size, shape.depth, max(map(len, shape.families)), reread)
    for levels in (1, 2, shape.depth):
        found = plan(shape, levels, bounds)
        assert len(found.passes) <= bounds.passes and all(width <= bounds.rows for width, _ in found.passes)
        families, above = tree.families(found.parents), tree.ancestry(found.parents)
        at: dict[int, int] = {}  # by slot, whose token was last written there
        drawn: list[int] = []
        for number, (width, siblings) in enumerate(found.passes):
            slots = found.tables["slots"][number, :width]
            assert found.tables["stops"][number] == slots[-1] + 1 and found.slots >= slots[-1]
            first = found.tables["stops"][number] - bounds.columns
            rows = []
            for row, (place, slot) in enumerate(zip(found.tables["places"][number], slots, strict=False)):
                at[int(slot)] = int(place)
                if place != bounds.nowhere:
                    rows.append((row, int(place)))
            for row, place in rows:
                seen = {first + int(column) for column in np.flatnonzero(found.tables["masks"][number, row])}
                assert set(range(first, min(1, int(slots[0])))) <= seen
                if place < reread:
                    assert max(seen) == slots[row] == found.tables["steps"][number, row] == place - reread + 1
                    continue
                node = place - reread
                assert found.tables["steps"][number, row] == above[node].sum()
                mine = {at[slot] - reread for slot in seen if slot > 0}
                assert mine == set(np.flatnonzero(above[node])) and set(range(first, 1)) <= seen
            for row, place in rows:
                node = place - reread
                wanted = [child + reread for child in families[node + 1]] if place >= reread - 1 else []
                targets = found.tables["targets"][number, :siblings, row].tolist()
                given = [target for target in targets if target != bounds.nowhere]
                assert given == wanted
                drawn += given
        assert sorted(drawn) == [node + reread for node in range(len(found.parents))]
        assert found.run == [node for node, children in enumerate(families[1:]) if children]
