"""One tab's screen as a list of panels, each redrawn only when what it shows has changed.

A tab runs one long-lived loop over this (``panels.layout``); handlers change the view and return nothing. So a reload,
a second tab and an answer that goes on while nobody looks need no code of their own.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from ..state.tab_view import TabView
from .pace import BRISK, Pace


@dataclass(frozen=True)
class Panel:
    """One output of the loop. key, and news of the engine's work: cheap, change whenever ``draw`` would give something
    else. every: seconds that must lie between two redraws, whatever changes; where it is only the news, as many as
    ``pace`` says for what is ``told``."""

    name: str
    key: Callable[[TabView], Hashable]
    draw: Callable[[TabView], Any]
    every: float = 0.1
    news: Callable[[TabView], Hashable] = lambda view: None
    told: Literal["words", "aside"] = "aside"


class Painter:
    """Remembers what one tab was last sent."""

    def __init__(self, panels: Sequence[Panel], view: TabView, pace: Callable[[], Pace] = lambda: BRISK,
                 clock: Callable[[], float] = time.monotonic) -> None:
        """pace: of now."""
        self._panels, self._view, self._pace, self._clock = panels, view, pace, clock
        self._keys: dict[str, tuple[Hashable, Hashable]] = {}
        self._drawn: dict[str, Any] = {}
        self._at: dict[str, float] = {}

    def changes(self) -> dict[str, Any]:
        """Panel name -> new value, for those that have changed since the last call and may be redrawn now."""
        found = {}
        for panel, key, now in self._due():
            value = panel.draw(self._view)
            self._keys[panel.name], self._at[panel.name] = key, now
            if panel.name not in self._drawn or self._drawn[panel.name] != value:
                self._drawn[panel.name] = found[panel.name] = value
        return found

    def _due(self) -> Iterator[tuple[Panel, tuple[Hashable, Hashable], float]]:
        """(panel, its key and news, now) of what has changed and may be redrawn."""
        now, pace = self._clock(), self._pace()
        for panel in self._panels:
            since = now - self._at.get(panel.name, -1e9)
            if since < panel.every:
                continue
            key, before = (panel.key(self._view), panel.news(self._view)), self._keys.get(panel.name)
            slowly = before is not None and before[0] == key[0]
            if before != key and not (slowly and since < (pace.words if panel.told == "words" else pace.aside)):
                yield panel, key, now
