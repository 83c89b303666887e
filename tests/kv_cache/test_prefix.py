"""How far two texts begin alike."""

from __future__ import annotations

import pytest

from triforce_core.kv_cache.prefix import shared_prefix


@pytest.mark.parametrize(("one", "other", "count"), [
    ([1, 2, 3], [1, 2, 4], 2), ([1, 2], [1, 2, 3], 2), ([1, 2, 3], [1, 2], 2), ([], [1], 0), ([2, 1], [1, 2], 0),
    ([1, 9, 3], [1, 8, 3], 1)])
def test_up_to_the_first_difference_or_the_shorter_ones_end(one, other, count):
    assert shared_prefix(one, other) == count
