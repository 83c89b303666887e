"""One tab's screen as a list of panels, each redrawn only when what it shows has changed.

A tab runs one long-lived loop over this (``layout.live``); handlers change the view and return nothing. So a reload,
a second tab and an answer that goes on while nobody looks need no code of their own.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Any

from .services import View


@dataclass(frozen=True)
class Panel:
    """One output of the loop. key: cheap, changes whenever ``draw`` would give something else.

    every: seconds that must lie between two redraws, whatever changes."""

    name: str
    key: Callable[[View], Hashable]
    draw: Callable[[View], Any]
    every: float = 0.1


class Painter:
    """Remembers what one tab was last sent."""

    def __init__(self, panels: Sequence[Panel], view: View, clock: Callable[[], float] = time.monotonic) -> None:
        self._panels, self._view, self._clock = panels, view, clock
        self._keys: dict[str, Hashable] = {}
        self._drawn: dict[str, Any] = {}
        self._at: dict[str, float] = {}

    def changes(self) -> dict[str, Any]:
        """Panel name -> new value, for those that have changed since the last call and may be redrawn now."""
        now, found = self._clock(), {}
        for panel in self._panels:
            if now - self._at.get(panel.name, -1e9) < panel.every:
                continue
            key = panel.key(self._view)
            if panel.name in self._keys and self._keys[panel.name] == key:
                continue
            value = panel.draw(self._view)
            self._keys[panel.name], self._at[panel.name] = key, now
            if panel.name not in self._drawn or self._drawn[panel.name] != value:
                self._drawn[panel.name] = found[panel.name] = value
        return found
