"""Models on this machine and on the hub, and the chosen one.

Looking and fetching run in processes of their own, so that the page stays light and Cancel ends them at once; a fetch
that was ended goes on where it stopped.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from time import monotonic
from typing import Any

from triforce_core import (
    CuratedModel,
    EngineClient,
    EngineConfig,
    LoadProgress,
    ModelFound,
    ModelOffer,
    ServedModel,
    TriForceError,
    is_repo_id,
    local_servers,
    repo_and_file,
    stays_here,
)

from .arguments import KV_KINDS, WEIGHTS, Arguments
from .folders import write_private

NO_FOLDER = "There is no folder {folder}. Give the full path of one, or leave the line empty."
NO_REPO = ("“{given}” is no repository of the hub: OWNER/NAME is needed, such as Qwen/Qwen3-4B-Instruct-2507. Nothing "
           "was sent.")
BUSY = "{what} has to wait: {doing}. Press the button again when that is done, or cancel it."
LARGER = ("{repo} is larger on the hub than you agreed to, so the download was stopped. Look it up above to see its "
          "size and licence as they are now.")

LOOK, OFFER, FETCH, TRY = (f"triforce_core.{name}" for name in (
    "models.survey:Survey", "models.hub:Offer", "models.hub:Fetch", "engine.promise:Measure"))
DOING = {LOOK: "Looking for models", OFFER: "Asking the hub", FETCH: "Downloading", TRY: "Trying a draft model"}
_FRESH = 30.0  # seconds: looking takes some, so that going to and fro does not start it again and again
_MORE = 1.1  # times the size that a person agreed to: the hub has something else by now, and is asked about again


def model_is_open(arguments: Arguments) -> bool:
    """Return whether the command line leaves it to the models tab which one runs."""
    return arguments.model is None and arguments.draft_model == "auto" and arguments.engine != "remote"


def remembered(kept: Path, config: EngineConfig, *, own: bool = False) -> EngineConfig:
    """Return ``config`` with the model that was chosen last, and its form if ``config`` asks for none.

    kept: the file with the choice; one that cannot be read counts as none. own: whether our engine is to answer, so
    that the choice of a server is none."""
    choice = _choice(kept)
    server = str(choice.get("server", ""))
    if not {"model", "draft"} <= choice.keys() or (server and own):
        return config
    if server and stays_here(server):
        return replace(config, model=str(choice["model"]), server=server)
    usual = (("weights", "same", WEIGHTS), ("kv", "auto", KV_KINDS))
    forms = {name: choice[name] for name, unset, allowed in usual
             if choice.get(name) in allowed and getattr(config, name) == unset}
    return replace(config, model=str(choice["model"]), draft_model=str(choice["draft"]), **forms)


def _choice(kept: Path) -> dict[str, Any]:
    try:
        choice = json.loads(kept.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return choice if isinstance(choice, dict) else {}


def repos(model: CuratedModel) -> tuple[str, ...]:
    """Return what can be fetched of a listed model, the form that is offered here first."""
    both = (model.form.repo, model.repo, model.gguf.repo if model.gguf else "")
    return tuple(repo for repo in dict.fromkeys(both) if repo)


def drafter_and_bytes(model: CuratedModel, repo: str) -> tuple[str, int]:
    """Return the draft model that is fetched beside one of its ``repos``, "" for none, and the bytes of both."""
    if model.gguf and model.gguf.repo == repo:
        return model.gguf.drafter, model.gguf.total
    return model.drafter, model.downloads[0][1] + model.drafter_nbytes


class Models:
    """Models on this machine and on the hub. Public attributes are read by the page at any time; ``version`` grows
    whenever one changes. One errand at a time.

    errand: "" or the one that runs (LOOK, OFFER, FETCH, TRY). fetching: the repo. wanted: of the list, a person is
    asked whether to download it; wish: its repo, or NAME:KIND of its GGUF file. problem: why the last errand
    failed. refused: why the last wish is not done. served: what servers of this machine have, None: nobody has
    looked yet. choosing: a person chooses a first chat model. trying: the model and draft model that are tried, or
    were last. on_here: called with one that was downloaded to be used."""

    def __init__(self, kept: Path, config: Callable[[], EngineConfig],
                 send: Callable[..., EngineClient] = EngineClient) -> None:
        """kept: the file with the chosen model. config: returns how a model would run now. send: makes the process
        that runs an errand."""
        self._kept, self._config, self._send = kept, config, send
        self._lock = threading.Lock()
        self._running: EngineClient | None = None
        self._agreed = 0  # bytes
        self._looked: float | None = None  # when ``found`` was filled last, by ``monotonic``
        self.version = 0
        self.folder = str(_choice(kept).get("folder", ""))
        self.found: tuple[ModelFound, ...] = ()
        self.served: tuple[ServedModel, ...] | None = None
        self.listed: tuple[CuratedModel, ...] = ()
        self.wanted: CuratedModel | None = None
        self.offer: ModelOffer | None = None
        self.progress: LoadProgress | None = None
        self.choosing, self._use = False, ""
        self.trying = ("", "")
        self.on_here: Callable[[ModelFound], None] = lambda found: None
        self.errand = self.fetching = self.problem = self.refused = self.wish = ""

    def keep(self, model: str, draft: str, weights: str = "", kv: str = "", *, server: str = "") -> None:
        """Keep a choice. weights, kv: "" where none was chosen. server: whose model it is. Raises NotEnoughDiskError,
        FolderError."""
        write_private(self._kept, json.dumps({"model": model, "draft": draft, "weights": weights, "kv": kv,
                                              "server": server, "folder": self.folder}))

    @property
    def stale(self) -> bool:
        """Return whether nobody has looked yet, or so long ago that files may have come since."""
        return self._looked is None or monotonic() - self._looked > _FRESH

    def look(self, folder: str | None = None, trying: tuple[str, str] = ("", "")) -> None:
        """List the models in the cache, and in ``folder`` (None: the one of the last time). trying: the pair of which
        this shows what was found."""
        if folder is not None:
            self.folder = folder.strip()
        self.refused = ""
        threading.Thread(target=self._look_at_servers, name="servers", daemon=True).start()
        if self.folder and not Path(self.folder).expanduser().is_dir():
            self.refused = NO_FOLDER.format(folder=self.folder)
        self._go(LOOK, replace(self._config(), model_folders=(self.folder,) if self.folder else ()), trying=trying)

    def ask_hub(self, repo: str) -> None:
        """Ask the hub for size and licence of a repo, or of one of its GGUF files, because a person wants to."""
        self.offer = self.wanted = None
        repo, self.refused = repo.strip(), ""
        if not is_repo_id(repo_and_file(repo)[0]):
            self.refused = NO_REPO.format(given=repo)
            return self._changed()
        self._go(OFFER, replace(self._config(), model=repo, allow_download=True), repo)

    def want(self, repo: str | None) -> None:
        """Note that a person thinks of downloading one of the list (None: no). Nothing is sent."""
        self.wanted, self.refused, self.wish = None, "", repo or ""
        if repo:
            self.wanted = next((model for model in self.listed if repo in repos(model)), None)
        self._changed()

    def choose_first(self, choosing: bool = True) -> None:
        """Show what a first chat model is chosen from, looked for on this machine; or no longer."""
        self.choosing = choosing
        if choosing and (self.stale or not self.listed):
            return self.look()
        self._changed()

    def get(self, repo: str) -> None:
        """Download one of the first chat models, to be used when it is here."""
        wanted = next((one.gguf for one in self.listed if one.first and one.gguf and one.gguf.repo == repo), None)
        if wanted is not None:
            self.refused, self._agreed = "", wanted.total
            self._fetch(repo, wanted.drafter)

    def fetch(self) -> None:
        """Download the wanted model with its draft model, or the offered one."""
        self.refused = ""
        if self.wanted is not None:
            repo, (draft, self._agreed) = self.wish, drafter_and_bytes(self.wanted, self.wish)
        elif self.offer is not None:
            chosen = f":{self.offer.file}" if self.offer.file else ""
            repo, draft, self._agreed = f"{self.offer.repo}{chosen}", "", self.offer.nbytes
        else:
            return
        self._fetch(repo, draft)

    def _fetch(self, repo: str, draft: str) -> None:
        self._go(FETCH, replace(self._config(), model=repo, draft_model=draft or "none", allow_download=True), repo)

    def try_draft(self, model: str, draft: str) -> None:
        """Load a pair beside the engine for a moment, and measure what the one brings as draft model of the other."""
        self.refused = ""
        self._go(TRY, replace(self._config(), model=model, draft_model=draft, server=""), draft, (model, draft))

    def cancel(self) -> None:
        with self._lock:
            running, self._running, self.errand = self._running, None, ""
        self.progress, self.fetching, self._use, self.trying = None, "", "", ("", "")
        self._changed()
        if running is not None:
            running.close()

    close = cancel

    def _go(self, errand: str, config: EngineConfig, what: str = "", trying: tuple[str, str] = ("", "")) -> None:
        """Start an errand unless another one is under way; ``what``, the repo, is refused then. trying: the pair that
        it is about."""
        with self._lock:
            if self.errand:
                if what:
                    self.refused = BUSY.format(what=what, doing=DOING[self.errand])
                return self._changed()
            self.errand, self.problem, self.progress, self.trying = errand, "", None, trying
            self.fetching = what if errand == FETCH else ""
            running = self._running = self._send(config, factory=errand)
        self._changed()
        threading.Thread(target=self._run, args=(running, errand), name="models", daemon=True).start()

    def _run(self, running: EngineClient, errand: str) -> None:
        problem, found, listed, offered = "", [], [], 0
        try:
            for event in running.check():
                if isinstance(event, ModelFound):
                    found.append(event)
                elif isinstance(event, CuratedModel):
                    listed.append(event)
                elif isinstance(event, ModelOffer) and errand == FETCH:
                    problem = self._weigh(event, offered)
                    if problem:
                        break
                    offered += event.nbytes
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
            self._running, self.errand, self.problem, self.progress, self.fetching = None, "", problem, None, ""
            if errand == LOOK and not problem:
                self.found, self.listed, self._looked = tuple(found), tuple(listed), monotonic()
            elif errand == FETCH and not problem:
                self.offer = self.wanted = None
        self._changed()
        if errand in (FETCH, TRY) and not problem:
            self.look(trying=self.trying)
        elif problem:
            self._use = ""
        elif errand == LOOK:
            self._hand_over()

    def _weigh(self, offer: ModelOffer, before: int) -> str:
        """Note which file is used once it is here, where one is chosen for that, and return why it is not fetched.
        before: bytes of offers before it: its draft model's comes second."""
        if not before:
            self._use = f"{offer.repo}/{offer.file}" if self.choosing and offer.file else ""
        return LARGER.format(repo=offer.repo) if before + offer.nbytes > self._agreed * _MORE else ""

    def _hand_over(self) -> None:
        """Have the model used that was downloaded for that."""
        wanted, self._use = self._use, ""
        for one in self.found:
            if one.name == wanted and one.info is not None:
                self.choosing = False
                self.on_here(one)
            elif one.name == wanted:
                self.problem = one.problem
        self._changed()

    def _look_at_servers(self) -> None:
        self.served = tuple(local_servers())
        self._changed()

    def _changed(self) -> None:
        self.version += 1
