"""Saved readings: the prefilled KV of a document on disk, so that opening it again takes a second.

One file per reading, named by its key's digest; ``snapshot_header`` says how it is laid out. Its header holds the
whole key, every tensor's place, shape and CRC-32, and what the reading cost. A file is written beside its place,
synced and renamed, so a reader sees all of it or nothing. Whatever does not match in every part - key, format, size,
checksum - is removed and the document is read again: a saved reading may be lost, never mistaken for another.
Checksums find damage, not forgery: the folder is the person's own (0700).

Knows no cache kind and no model: it stores named tensors. Imports torch only to move tensors, so that the
parent process can list and delete.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import itertools
import json
import logging
import math
import mmap
import os
import shutil
import struct
import time
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from ..errors import NotEnoughDiskError
from . import shared_prefix, snapshot_header
from .snapshot_header import FORMAT, DamagedSnapshot

if TYPE_CHECKING:
    from torch import Tensor

KV_VERSION = 1  # raise it when the same ids and weights would give other keys or values
PROMPT_VERSION = 1  # raise it when the same document would give other ids
# Fingerprints of the built-in target's files, oldest first; the last is the one that is there. Add each new one.
BUILTIN_TARGETS = ("9507493e073fa47a0993667ef8dc0daa", "c743958106aaacfd7e0736124de732c7",
                   "3d8d5532337004532c79d3aee1b83bf6")
log = logging.getLogger(__name__)
_RESERVE_BYTES = 512 * 1024**2  # left free on the disk for everything else
_STALE_SECONDS = 3600.0
_BLOCK = 4 * 1024**2
_RESTORED_PER_SECOND = 10**9  # bytes, checksum included: a beginning that was computed in less time is not fetched


@dataclass(frozen=True, slots=True)
class SnapshotKey:
    """Everything that decides the KV's values. Two equal keys promise the same bytes.

    document: Document.id; tokens: ``token_digest`` of the prefilled ids; model, tokenizer: fingerprints of
    their files; prompt_version: of the layout around the pages; settings: what else the model's computation
    depends on (rope scaling, chunk of the prefill, kernel version ...), as sorted pairs.
    """

    document: str
    tokens: str
    model: str
    tokenizer: str
    dtype: str
    prompt_version: str
    settings: tuple[tuple[str, str], ...] = ()

    @property
    def digest(self) -> str:
        return hashlib.sha256(json.dumps(_plain(self), sort_keys=True).encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class SnapshotInfo:
    """One saved reading, as a list shows it."""

    path: Path
    document: str
    title: str
    tokens: int
    bytes: int
    read_seconds: float
    last_used: float  # seconds since the epoch


def is_dead(key: Mapping[str, Any]) -> bool:
    """Return whether a reading of this key (as its header has it) can never be opened again: an earlier version of what
    this program computes, or an earlier built-in model. A checkpoint that is not there may be wanted again tomorrow; a
    version that is newer, or no number, is another program's."""
    return (key["model"] in BUILTIN_TARGETS[:-1] or _older(key["prompt_version"], PROMPT_VERSION)
            or _older(dict(key["settings"]).get("kv", ""), KV_VERSION))


def _older(kept: str, now: int) -> bool:
    return kept.isdecimal() and int(kept) < now


def token_digest(token_ids: Sequence[int]) -> str:
    return hashlib.blake2b(struct.pack(f"<{len(token_ids)}q", *token_ids), digest_size=16).hexdigest()


def prefix_digests(token_ids: Sequence[int], chunk: int) -> list[str]:
    """Return digests of the first chunk of tokens, the first two, and so on; what is left over at the end has none."""
    digest, found = hashlib.blake2b(digest_size=16), []
    for end in range(chunk, len(token_ids) + 1, chunk):
        digest.update(struct.pack(f"<{chunk}q", *token_ids[end - chunk : end]))
        found.append(digest.hexdigest())
    return found


def fingerprint_files(paths: Sequence[Path]) -> str:
    """Digest names and contents of files; for one over 256 MiB size, time of change, first and last MiB instead."""
    digest = hashlib.blake2b(digest_size=16)
    for path in sorted(paths, key=lambda p: p.name):
        facts = path.stat()
        digest.update(f"{path.name}\x00{facts.st_size}\x00".encode())
        with path.open("rb") as file:
            if facts.st_size <= 256 * 1024**2:
                while block := file.read(_BLOCK):
                    digest.update(block)
            else:
                digest.update(f"{facts.st_mtime_ns}\x00".encode())
                digest.update(file.read(1024**2))
                file.seek(-(1024**2), os.SEEK_END)
                digest.update(file.read())
    return digest.hexdigest()


class Snapshot:
    """An opened saved reading: header checked, tensors checked one by one as they are handed out.

    Tensors are views of the mapped file: copy them; they die with ``close``. Use as a context manager."""

    def __init__(self, path: Path, header: dict[str, Any], mapped: mmap.mmap,
                 discard: Callable[[Path, str], DamagedSnapshot]) -> None:
        """discard: removes a damaged file, and returns what is then raised."""
        self.path, self._discard = path, discard
        self.num_layers: int = header["layers"]
        self.tokens: int = header["tokens"]
        self.read_seconds: float = header["read_seconds"]
        self._entries: dict[str, dict[str, Any]] = {entry["name"]: entry for entry in header["tensors"]}
        self._mapped = mapped

    def layers(self) -> Iterator[tuple[Tensor, Tensor]]:
        """Keys and values [H, n, D] of each layer in order. Raises DamagedSnapshot at the first bad one."""
        names = snapshot_header.tensor_names(self.num_layers)
        with ThreadPoolExecutor(2) as pool:  # checksums run ahead of the caller's copies
            sound: list[Future[bool]] = [pool.submit(self._sound, name) for name in names]
            try:
                for i in range(0, len(names), 2):
                    pair = [self._checked(names[j], sound[j].result()) for j in (i, i + 1)]
                    yield pair[0], pair[1]
            finally:
                for future in sound:
                    future.cancel()

    def damaged(self, why: str) -> DamagedSnapshot:
        """Remove the file, in which more was found to be wrong. Returns what is to be raised."""
        return self._discard(self.path, why)

    def close(self) -> None:
        with contextlib.suppress(BufferError):  # a tensor still looks into it: the mapping ends with the tensor
            self._mapped.close()

    def __enter__(self) -> Snapshot:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _sound(self, name: str) -> bool:
        entry = self._entries[name]
        with memoryview(self._mapped) as whole, whole[entry["offset"] : entry["offset"] + entry["bytes"]] as part:
            return zlib.crc32(part) == int(entry["crc32"], 16)

    def _checked(self, name: str, sound: bool) -> Tensor:
        import torch

        if not sound:
            raise self.damaged(f"checksum of {name}")
        entry = self._entries[name]
        dtype, count = getattr(torch, entry["dtype"]), math.prod(entry["shape"])
        if count == 0:
            return torch.empty(entry["shape"], dtype=dtype)
        flat = torch.frombuffer(self._mapped, dtype=dtype, count=count, offset=entry["offset"])
        return flat.view(entry["shape"])


class SnapshotStore:
    """Keep the folder of saved readings. Safe for several processes at once; the least recently used goes first."""

    def __init__(self, folder: Path, quota_bytes: int) -> None:
        self.folder, self.quota_bytes = Path(folder), quota_bytes
        self.damaged = 0  # readings that were found to be damaged here, and removed

    # -- restore

    def load(self, key: SnapshotKey) -> Snapshot | None:
        """Return the reading of this key, or None. What is damaged or of another format is removed on the way."""
        path = self._path(key)
        try:
            with path.open("rb") as file:
                header = snapshot_header.read_header(file)
            if header is None or header["key"] != _plain(key):
                path.unlink(missing_ok=True)
                return None
        except DamagedSnapshot as error:
            self._discard(path, str(error))
            return None
        except OSError:
            return None
        return self._opened(path, header)

    def load_beginning(self, key: SnapshotKey, prefixes: Sequence[str],
                       more_than: int = 0) -> tuple[Snapshot, int] | None:
        """Return the reading, of any document, that begins most like this one, and how many ``prefixes`` they share:
        its keys and values up to there are this one's too. prefixes: ``prefix_digests`` of this one's tokens. None
        where none shares ``more_than`` so many, or where reading these tokens again is as quick as fetching them."""
        wanted, best, most = _kind(_plain(key)), None, more_than
        for info, header in self._headers():
            if not header or _kind(header["key"]) != wanted:
                continue
            shared = shared_prefix(prefixes, header["prefixes"])
            share = shared / max(1, len(header["prefixes"]))
            if shared > most and info.read_seconds * share > info.bytes / _RESTORED_PER_SECOND:
                best, most = (info.path, header), shared
        snapshot = self._opened(*best) if best else None
        return (snapshot, most) if snapshot else None

    # -- save

    def save_steps(self, key: SnapshotKey, layers: Sequence[tuple[Tensor, Tensor]], *, read_seconds: float,
                   title: str = "", prefixes: Sequence[str] = (), unfinished: bool = False, tokens: int | None = None
                   ) -> Iterator[float]:
        """Write every layer's keys and values [H, n, D], in steps that yield the fraction done; dropping the iterator
        abandons the file. prefixes: ``prefix_digests`` of the tokens, so that documents that begin alike find them.
        tokens: how many they are, where no layer holds all of them. unfinished: the tokens are but a beginning, of use
        until more of them is saved. Raises NotEnoughDiskError; then nothing changed on disk but that older readings may
        have been evicted."""
        tensors = dict(zip(snapshot_header.tensor_names(len(layers)), itertools.chain(*layers), strict=True))
        most = max((keys.shape[1] for keys, _ in layers), default=0)
        header: dict[str, Any] = {"format": FORMAT, "key": _plain(key), "title": title, "layers": len(layers),
                                  "tokens": most if tokens is None else tokens, "read_seconds": read_seconds,
                                  "prefixes": list(prefixes), "unfinished": unfinished,
                                  "tensors": snapshot_header.plan(tensors)}
        size = snapshot_header.place(header)
        temporary = self.folder / f".{key.digest}.{os.getpid()}.{time.monotonic_ns()}.tmp"
        try:
            self._prepare_folder()
            with self._locked():
                self._make_room(size, keep=self._path(key))
            with open(os.open(temporary, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "wb", buffering=0) as file:
                for done, entry in enumerate(header["tensors"], start=1):
                    file.seek(entry["offset"])
                    entry["crc32"] = f"{_write_tensor(file, tensors[entry['name']]):08x}"
                    yield done / (len(header["tensors"]) + 1)
                file.truncate(size)
                file.seek(0)
                _write_all(file, snapshot_header.encode(header))
                os.fsync(file.fileno())
            with self._locked():
                os.replace(temporary, self._path(key))
            _sync_folder(self.folder)
            self._drop_beginnings(key, prefixes)
            yield 1.0
        except OSError as error:
            if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
                raise NotEnoughDiskError(f"Saving this reading needs {_gib(size)} and the disk is full",
                                         remedy="Free some space or choose another --data-dir.") from error
            raise NotEnoughDiskError(f"This reading cannot be saved in {str(self.folder)!r} ({error})",
                                     remedy="Mend the folder or choose another --data-dir.") from error
        finally:
            with contextlib.suppress(OSError):  # where it could not be made either
                temporary.unlink(missing_ok=True)

    # -- housekeeping

    def list(self) -> tuple[SnapshotInfo, ...]:
        """Return every readable reading, most recently used first."""
        return tuple(info for info, header in reversed(list(self._headers())) if header)

    def dead(self) -> tuple[SnapshotInfo, ...]:
        """Return those that can never be opened again, as ``is_dead`` says or because they are damaged."""
        return tuple(info for info, header in reversed(list(self._headers())) if not header or is_dead(header["key"]))

    def remove_dead(self) -> tuple[SnapshotInfo, ...]:
        """Remove them. Returns what was removed."""
        removed = []
        for info in self.dead():
            with contextlib.suppress(OSError):
                info.path.unlink()
                removed.append(info)
        return tuple(removed)

    def delete(self, document: str | None = None) -> int:
        """Remove the readings of one document (Document.id), or all. Returns how many."""
        if document is None:
            doomed = [path for path, _, _ in self._files()]
        else:
            doomed = [info.path for info in self.list() if info.document == document]
        for path in doomed:
            path.unlink(missing_ok=True)
        return len(doomed)

    def _drop_beginnings(self, key: SnapshotKey, prefixes: Sequence[str]) -> None:
        """Remove the unfinished readings of which all stands in the one that was just saved."""
        for info, header in self._headers():
            if (info.path != self._path(key) and header.get("unfinished") and _kind(header["key"]) == _kind(_plain(key))
                    and header["prefixes"] == list(prefixes[: len(header["prefixes"])])):
                with contextlib.suppress(OSError):
                    info.path.unlink()

    def _path(self, key: SnapshotKey) -> Path:
        return self.folder / f"{key.digest}.kv"

    def _prepare_folder(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        for stale in self.folder.glob(".*.tmp"):
            with contextlib.suppress(OSError):
                if time.time() - stale.stat().st_mtime > _STALE_SECONDS:
                    stale.unlink()

    def _headers(self) -> Iterator[tuple[SnapshotInfo, dict[str, Any]]]:
        """Yield every reading of this format with its header, least recently used first; {} where it is damaged: which
        document it holds cannot be known."""
        for path, size, used in self._files():
            try:
                with path.open("rb") as file:
                    header = snapshot_header.read_header(file)
            except DamagedSnapshot:
                yield SnapshotInfo(path, "", "", 0, size, 0.0, used), {}
            except OSError:
                continue
            else:
                if header is not None:
                    yield SnapshotInfo(path, header["key"]["document"], header["title"], header["tokens"], size,
                                       header["read_seconds"], used), header

    def _discard(self, path: Path, why: str) -> DamagedSnapshot:
        log.warning("the saved reading %s is damaged (%s): it is removed", path, why)
        self.damaged += 1
        path.unlink(missing_ok=True)
        return DamagedSnapshot(f"{path.name}: {why}")

    def _opened(self, path: Path, header: dict[str, Any]) -> Snapshot | None:
        """Open the file of this header, used just now; None if it went meanwhile."""
        try:
            with path.open("rb") as file:
                mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)
            os.utime(path)
        except (OSError, ValueError):  # ValueError: it is empty
            return None
        return Snapshot(path, header, mapped, self._discard)

    def _files(self) -> Sequence[tuple[Path, int, float]]:
        """Return (path, bytes, last used), least recently used first."""
        files = []
        for path in self.folder.glob("*.kv"):
            with contextlib.suppress(OSError):
                facts = path.stat()
                files.append((path, facts.st_size, facts.st_mtime))
        return sorted(files, key=lambda file: file[2])

    def _make_room(self, size: int, keep: Path) -> None:
        """Evict until quota and disk take ``size`` more bytes. An older file of the same key counts as gone."""
        if size > self.quota_bytes:
            raise NotEnoughDiskError(f"This reading takes {_gib(size)}, over the quota of {_gib(self.quota_bytes)}",
                                     remedy="Raise the quota to keep it for the next time.")
        files = [file for file in self._files() if file[0] != keep]
        used = sum(bytes_ for _, bytes_, _ in files)
        evictable = used + shutil.disk_usage(self.folder).free
        if evictable < size + _RESERVE_BYTES:
            raise NotEnoughDiskError(f"Saving this reading needs {_gib(size)} and {_gib(evictable)} are free",
                                     remedy="Free some space or choose another --data-dir.")
        for path, bytes_, _ in files:
            free = shutil.disk_usage(self.folder).free
            if used + size <= self.quota_bytes and free >= size + _RESERVE_BYTES:
                break
            path.unlink(missing_ok=True)
            used -= bytes_

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        """Let one process evict or rename at a time. Where there is no flock, renames are still atomic."""
        with open(os.open(self.folder / ".lock", os.O_CREAT | os.O_RDWR, 0o600), "rb") as lock:
            with contextlib.suppress(ImportError):
                import fcntl

                fcntl.flock(lock, fcntl.LOCK_EX)
            yield


def _kind(key: dict[str, Any]) -> dict[str, Any]:
    """Return a key without what it says about the document: readings of one kind that begin alike hold alike."""
    return {name: value for name, value in key.items() if name not in ("document", "tokens")}


def _plain(key: SnapshotKey) -> dict[str, Any]:
    return {**asdict(key), "settings": [list(pair) for pair in key.settings]}


def _write_tensor(file: BinaryIO, tensor: Tensor) -> int:
    """Write and return the CRC-32. Row by row of the first axis: a slice [:, :n] of a buffer is not copied whole."""
    import torch

    crc = 0
    rows = tensor.detach().unbind(0) if tensor.dim() > 1 else [tensor.detach()]
    for row in rows:
        if row.numel():
            data = row.cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data
            crc = zlib.crc32(data, crc)
            _write_all(file, data)
    return crc


def _write_all(file: BinaryIO, data: bytes | memoryview) -> None:
    rest = memoryview(data)
    while rest:  # an unbuffered write may take only a part
        rest = rest[file.write(rest) :]


def _sync_folder(folder: Path) -> None:
    if os.name == "posix":
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def _gib(count: int) -> str:
    return f"{count / 1024**3:.1f} GiB"
