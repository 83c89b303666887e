"""An intermediate tier that follows no full cache: it lives on what it computes itself."""

from __future__ import annotations

from collections.abc import Sequence

from ..speculation.hierarchical import HierarchicalDrafter


class IndependentTier(HierarchicalDrafter):
    """Keeps what it has staged as far as it is right, and reads the rest."""

    def settle(self, context: Sequence[int], *, committed: bool) -> None:
        self.model.agree(context)
        if committed:
            self.model.commit()
            self.model.keep_up(context)
        self.drafter.settle(context, committed=committed)
