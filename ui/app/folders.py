"""The app's folders, private to the person (mode 0700), and how their files are written."""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from filelock import FileLock, Timeout
from platformdirs import PlatformDirs

from triforce_core import MEASUREMENTS, READINGS, NotEnoughDiskError, TriForceError

DISK_FULL = "The disk is full: nothing more can be saved in {folder}"
DISK_FULL_REMEDY = "Free some space on it, or start the app with --data-dir on another disk."
NOT_WRITABLE = "{path} cannot be used ({why})"
NOT_WRITABLE_REMEDY = "Allow this user to read and write there, or start the app with another --data-dir."
IN_ITS_PLACE = "{path} is a file, and the app needs a folder there"
IN_ITS_PLACE_REMEDY = "Move that file away, or start the app with another --data-dir."
IN_USE = "The data folder {folder} is in use by the TriForce Chat at {url}"
IN_USE_STARTING = "The data folder {folder} is in use by another TriForce Chat, which is only just starting"
IN_USE_REMEDY = "Use that one, or start another with a --data-dir of its own."

FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
APP = "triforce-chat"


class FolderError(TriForceError):
    """The app's own folder, or a file of the app's in it, cannot be used."""


class InUseError(FolderError):
    """Another instance holds the folder. url: where it answers; "" while it starts."""

    url = ""


@dataclass
class Folders:
    """data: library and chats. cache: saved readings, uploads under way, and other files that can be made again.
    state: secrets."""

    data: Path
    cache: Path
    state: Path

    def __post_init__(self) -> None:
        self.library = self.data / "library"
        self.database = self.data / "triforce-chat.sqlite"
        self.settings = self.data / "settings.json"
        self.model = self.data / "model.json"
        self.saved_readings = self.cache / READINGS
        self.measurements = self.cache / MEASUREMENTS
        self.uploads = self.cache / "uploads"
        self.vectors = self.cache / "passages"


def make_folders(data_dir: Path | None = None) -> Folders:
    """Create and return the app's folders; ``data_dir`` puts all three in one place."""
    if data_dir is not None:
        root = data_dir.expanduser().resolve()
        folders = Folders(root / "data", root / "cache", root / "state")
    else:
        places = PlatformDirs(APP, appauthor=False)
        folders = Folders(places.user_data_path, places.user_cache_path, places.user_state_path)
    for folder in (folders.data, folders.cache, folders.state, folders.library, folders.saved_readings, folders.vectors,
                   folders.uploads):
        with plainly(folder):
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            os.chmod(folder, 0o700)
    return folders


@contextlib.contextmanager
def plainly(path: Path) -> Iterator[None]:
    """Raise the disk's refusals while ``path`` is made or written as NotEnoughDiskError or FolderError."""
    try:
        yield
    except OSError as error:
        raise refusal(error, path) from error


def refusal(error: OSError, path: Path) -> TriForceError:
    """Return an error of the disk in words that say what to do."""
    if error.errno in FULL:
        return NotEnoughDiskError(DISK_FULL.format(folder=path.parent), remedy=DISK_FULL_REMEDY)
    if error.errno in (errno.EEXIST, errno.ENOTDIR):
        file = next((place for place in (path, *path.parents) if place.is_file()), path)
        return FolderError(IN_ITS_PLACE.format(path=file), remedy=IN_ITS_PLACE_REMEDY)
    return FolderError(NOT_WRITABLE.format(path=path, why=error.strerror or type(error).__name__),
                       remedy=NOT_WRITABLE_REMEDY)


def write_private(path: Path, text: str) -> None:
    """Write a file whole or not at all, readable by the person alone. Raises NotEnoughDiskError, FolderError."""
    partial = path.with_suffix(".partial")
    with plainly(path):
        try:
            partial.write_text(text, encoding="utf-8")
            os.chmod(partial, 0o600)
            os.replace(partial, path)
        except OSError:
            partial.unlink(missing_ok=True)
            raise


class Hold:
    """One instance's hold of the data folder: the system's own lock, which ends with the process."""

    def __init__(self, folders: Folders) -> None:
        """Raises InUseError, and what ``plainly`` does."""
        self._address = folders.state / "address"
        self._lock = FileLock(folders.state / "lock", timeout=0, mode=0o600)
        try:
            self._lock.acquire()
        except Timeout:
            url = ""
            with contextlib.suppress(OSError):
                url = self._address.read_text(encoding="utf-8").strip()
            error = InUseError((IN_USE if url else IN_USE_STARTING).format(folder=folders.data, url=url),
                               remedy=IN_USE_REMEDY)
            error.url = url
            raise error from None
        except OSError as error:
            raise refusal(error, folders.state / "lock") from error
        with plainly(self._address):
            self._address.unlink(missing_ok=True)

    def announce(self, url: str) -> None:
        """Leave the address of this instance to whoever comes later."""
        write_private(self._address, url)

    def release(self) -> None:
        self._lock.release()


def secret(folders: Folders) -> str:
    """Return the key under which the browser remembers which conversation was open, the same after a restart."""
    path = folders.state / "secret"
    if not path.exists():
        write_private(path, secrets.token_hex(16))
    with plainly(path):
        return path.read_text()
