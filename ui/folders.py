"""Where the app keeps things, all of it private to the person (mode 0700)."""

from __future__ import annotations

import os
import secrets
from dataclasses import dataclass
from pathlib import Path

from platformdirs import PlatformDirs

from triforce_core import MEASUREMENTS, READINGS

APP = "triforce-chat"


@dataclass(frozen=True)
class Folders:
    """data: library and chats. cache: what can be made again (saved readings, uploads under way). state: secrets."""

    data: Path
    cache: Path
    state: Path

    @property
    def library(self) -> Path:
        return self.data / "library"

    @property
    def database(self) -> Path:
        return self.data / "triforce-chat.sqlite"

    @property
    def settings(self) -> Path:
        return self.data / "settings.json"

    @property
    def model(self) -> Path:
        return self.data / "model.json"

    @property
    def saved_readings(self) -> Path:
        return self.cache / READINGS

    @property
    def measurements(self) -> Path:
        return self.cache / MEASUREMENTS

    @property
    def uploads(self) -> Path:
        return self.cache / "uploads"


def make_folders(data_dir: Path | None = None) -> Folders:
    """Create and return the app's folders; ``data_dir`` puts all three in one place."""
    if data_dir is not None:
        root = data_dir.expanduser().resolve()
        folders = Folders(root / "data", root / "cache", root / "state")
    else:
        places = PlatformDirs(APP, appauthor=False)
        folders = Folders(places.user_data_path, places.user_cache_path, places.user_state_path)
    for folder in (folders.data, folders.cache, folders.state, folders.library, folders.saved_readings,
                   folders.uploads):
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        os.chmod(folder, 0o700)
    return folders


def secret(folders: Folders) -> str:
    """The key under which the browser remembers which conversation was open: fixed, so that a restart keeps it."""
    path = folders.state / "secret"
    if not path.exists():
        handle = os.open(path, os.O_WRONLY | os.O_CREAT, 0o600)
        with os.fdopen(handle, "w") as file:
            file.write(secrets.token_hex(16))
    return path.read_text()
