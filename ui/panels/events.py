"""How a panel's events reach Python: what all of them are registered with, and what becomes of a refusal."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from triforce_core import TriForceError

from ..state.tab_view import TabView

PRIVATE: dict[str, Any] = {"api_visibility": "private", "show_progress": "hidden"}


def safely(view: TabView, work: Callable[[], Any]) -> Any:
    """Do it, or put a card on the page that says why not."""
    try:
        return work()
    except TriForceError as error:
        view.notice = ("error", error.message.rstrip("."), " ".join(
            part for part in (error.allowed, error.remedy) if part))
        return None
