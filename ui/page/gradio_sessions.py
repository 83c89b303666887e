"""What Gradio keeps of browser tabs: nothing here, for a tab's state is its ``TabView``, and every panel is drawn
from it.

Gradio's own keeping would grow for ever. Each session has a copy of the whole page (0.4 MB), which outlives the tab;
and each value that follows an unchanged one (``gr.skip``) stays in it beside those before it, whole transcripts among
them. This reaches into Gradio's own tables; ``tests/ui/page/test_memory.py`` fails where another version has others.
"""

from __future__ import annotations

from copy import copy
from typing import Any

import gradio as gr
from gradio.state_holder import SessionState, StateHolder


class _OneEvent(SessionState):
    """The page as it was built, for as long as one event is handled: Gradio puts the component that it changes here and
    takes it out again."""

    def __init__(self, page: gr.Blocks) -> None:
        # Not Gradio's: it would describe every component of the page anew.
        self.blocks_config = copy(page.default_config)
        self.config_values: dict[int, Any] = {}
        self.state_data: dict[int, Any] = {}
        self.is_closed = False

    def __setitem__(self, key: int, value: Any) -> None:
        self.blocks_config.blocks[key] = value

    def _update_config(self, key: int) -> None: ...

    def _update_value_in_config(self, key: int, value: Any) -> None: ...


class _NoSessions(StateHolder):
    def __init__(self, page: gr.Blocks) -> None:
        super().__init__()
        self.set_blocks(page)

    def __getitem__(self, session_id: str) -> SessionState:
        return _OneEvent(self.blocks)


class Sessions:
    """The tabs of a page that listen to its queue."""

    def __init__(self, page: gr.Blocks) -> None:
        self._page = page

    def keep_nothing(self) -> None:
        """Of a page that was launched, and has no ``gr.State``."""
        self._page.app.state_holder = _NoSessions(self._page)

    def listens(self, session: str) -> bool:
        """Whether the tab is still there to hear what the queue sends it."""
        return session in self._page._queue.pending_messages_per_session

    def forget(self, session: str) -> None:
        """Of a tab that was closed: which events it waited for. And of any that left unheard, as one does whose last
        event ended while its connection broke."""
        queue = self._page._queue
        for one in list(queue.pending_event_ids_session):
            if one == session or not self.listens(one):
                queue.pending_event_ids_session.pop(one, None)
