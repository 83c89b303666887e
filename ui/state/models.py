"""Which models there are and which one is chosen. Looking and fetching run in processes of their own, so that the page
stays light and Cancel ends them at once; a fetch that was ended goes on where it stopped. Knows no Gradio, no HTML.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

from triforce_core import (
    EngineClient,
    EngineConfig,
    LoadProgress,
    ModelFound,
    ModelOffer,
    TriForceError,
)

from .arguments import Arguments
from .folders import write_private

LOOK, OFFER, FETCH = (f"triforce_core.models.{name}" for name in ("survey:Survey", "hub:Offer", "hub:Fetch"))


def model_is_open(arguments: Arguments) -> bool:
    """Whether the command line leaves it to the models tab which one runs."""
    return (arguments.model is None and arguments.draft_model == "auto"
            and arguments.engine not in ("scripted", "remote"))


class Errand(Protocol):
    """A process that looks around: an ``EngineClient`` with another maker than the engine's."""

    def check(self) -> Iterable[Any]: ...
    def close(self) -> None: ...


def send(config: EngineConfig, errand: str) -> Errand:
    return EngineClient(config, factory=errand)


# large: what was found, what is fetched, and what was asked for
class Models:
    """Public attributes are read by the page at any time; ``version`` grows whenever one changes. One errand at a time.

    errand: "" or what runs: LOOK, OFFER or FETCH. looked: whether ``found`` was ever filled."""

    def __init__(self, kept: Path, config: Callable[[], EngineConfig],
                 send: Callable[[EngineConfig, str], Errand] = send) -> None:
        """kept: the file with the chosen model. config: how a model would run now."""
        self._kept, self._config, self._send = kept, config, send
        self._lock = threading.Lock()
        self._running: Errand | None = None
        self.version = 0
        self.folder = ""
        self.found: tuple[ModelFound, ...] = ()
        self.offer: ModelOffer | None = None
        self.progress: LoadProgress | None = None
        self.errand, self.problem, self.looked = "", "", False

    # -- the choice

    def remembered(self, config: EngineConfig) -> EngineConfig:
        """With the model that was chosen last; a kept file that cannot be read counts as none."""
        try:
            kept = json.loads(self._kept.read_text(encoding="utf-8"))
            self.folder = str(kept.get("folder", ""))
            return replace(config, model=str(kept["model"]), draft_model=str(kept["draft"]))
        except (OSError, ValueError, KeyError, AttributeError):
            return config

    def keep(self, model: str, draft: str) -> None:
        """Raises NotEnoughDiskError, FolderError."""
        write_private(self._kept, json.dumps({"model": model, "draft": draft, "folder": self.folder}))

    # -- errands

    def look(self, folder: str | None = None) -> None:
        """List what is in the cache, and in ``folder`` (None: the one of the last time)."""
        if folder is not None:
            self.folder = folder.strip()
        self._go(LOOK, replace(self._config(), model_folders=(self.folder,) if self.folder else ()))

    def ask_hub(self, repo: str) -> None:
        """Size and licence of a repo: this goes out to the hub, and only because a person asked for it."""
        self.offer = None
        self._go(OFFER, replace(self._config(), model=repo.strip(), allow_download=True))

    def fetch(self) -> None:
        """What was offered."""
        if self.offer is not None:
            self._go(FETCH, replace(self._config(), model=self.offer.repo, allow_download=True))

    def cancel(self) -> None:
        with self._lock:
            running, self._running, self.errand = self._running, None, ""
        self.progress = None
        self._changed()
        if running is not None:
            running.close()

    close = cancel

    def _go(self, errand: str, config: EngineConfig) -> None:
        with self._lock:
            if self.errand:
                return
            self.errand, self.problem, self.progress = errand, "", None
            running = self._running = self._send(config, errand)
        self._changed()
        threading.Thread(target=self._run, args=(running, errand), name="models", daemon=True).start()

    def _run(self, running: Errand, errand: str) -> None:
        problem, found = "", []
        try:
            for event in running.check():
                if isinstance(event, ModelFound):
                    found.append(event)
                elif isinstance(event, ModelOffer):
                    self.offer = event
                elif isinstance(event, LoadProgress):
                    self.progress = event
                self._changed()
        except TriForceError as error:
            problem = str(error)
        running.close()
        with self._lock:
            if self._running is not running:  # cancelled
                return
            self._running, self.errand, self.problem, self.progress = None, "", problem, None
            if errand == LOOK and not problem:
                self.found, self.looked = tuple(found), True
            elif errand == FETCH and not problem:
                self.offer = None
        self._changed()
        if errand == FETCH and not problem:
            self.look()

    def _changed(self) -> None:
        self.version += 1
