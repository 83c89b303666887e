"""Left: upload, the documents, and the open document's conversations."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import gradio as gr

from triforce_core import TriForceError

from ..page.panel import PRIVATE, Panel, block, safely
from ..state.library import EXTENSIONS, Entry
from ..state.services import Services
from ..state.tab_view import TabView
from ..state.tabs import Tabs
from ..view.library import about, listing, room_line, undo_offer
from ..words import library as library_words
from .conversations import build_search, results


def build() -> tuple[gr.File, gr.HTML, gr.Textbox]:
    """The upload, the list, and the line to search conversations with."""
    upload = gr.File(label=library_words.DROP_HERE, file_count="multiple", file_types=list(EXTENSIONS), height=112,
                     elem_id="upload", show_label=False)
    sought = build_search()
    listing = block("documents", clicks=True)
    return upload, listing, sought


def panels(services: Services) -> list[Panel]:
    def rows() -> list[tuple[Entry, str]]:
        return [(entry, services.phase(entry)) for entry in services.library.entries()]

    def key(view: TabView) -> tuple[object, ...]:
        return (view.sought, services.snapshots.refresh(), services.library.version, services.conversations.version,
                view.document, view.conversation, view.listed,
                tuple(phase for _, phase in rows()))

    def draw(view: TabView) -> str:
        if view.sought:
            return results(services, view)
        own = services.conversations.of(view.document, view.listed + 1) if view.document else []
        entry, model = services.library.get(view.document), services.queue.model
        details = about(entry, services.snapshots.size(entry.readings), model.name if model else "",
                        time.time(), services.library.parts(entry)) if entry else ""
        room = services.snapshots.space()
        return listing(rows(), view.document, own, view.conversation, details, room_line(room) if room.used else "",
                       view.listed)

    def draw_undo(view: TabView) -> str:
        deleted = services.trash.items()
        return undo_offer(deleted[0].title) if deleted else ""

    return [Panel("documents", key, draw, 0.2), Panel("undo", lambda view: services.trash.items(), draw_undo)]


def wire(services: Services, tabs: Tabs, upload: gr.File, sought: gr.Textbox) -> None:
    def add(files: list[dict[str, Any]] | None, request: gr.Request) -> None:
        """Take in what was uploaded: the page lets no other path through."""
        view, paths = tabs.get(request.session_hash), [Path(file["path"]) for file in files or ()]
        try:
            safely(view, lambda: take(view, paths))
        finally:
            for path in paths:  # the library has its own copy
                if path.is_file():
                    path.unlink()

    def take(view: TabView, paths: list[Path]) -> None:
        others = [path.name for path in paths if path.suffix.lower() not in EXTENSIONS]
        if others:  # from no browser: the component asks there
            raise TriForceError(library_words.DROP_OTHER.format(names=", ".join(others)))
        services.add(view, [(path, path.name) for path in paths])

    def search(words: str, request: gr.Request) -> None:
        tabs.get(request.session_hash).sought = words.strip()

    # Not preprocessed: Gradio would leave an empty file for each upload, and the upload itself where it refuses one.
    added = upload.upload(add, [upload], None, queue=False, preprocess=False, **PRIVATE)
    added.then(lambda: None, None, [upload], queue=False, **PRIVATE)
    # Not ``input``: Gradio keeps that of an emptied line to itself. The last is sent, in the order of typing.
    sought.change(search, [sought], None, queue=False, trigger_mode="always_last", **PRIVATE)
