"""Snapshots (saved readings) on disk, as the library lists them: how large each document's are, what room there is."""

from __future__ import annotations

import shutil
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from triforce_core import SnapshotStore


@dataclass(frozen=True)
class SnapshotSpace:
    """Bytes: what all snapshots take, the most they may take, and what the disk has free."""

    used: int
    quota: int
    free: int


class Snapshots:
    """Looks at the folder again only when something in it came, went or was used."""

    def __init__(self, folder: Path, quota: int) -> None:
        self._saved, self._seen = SnapshotStore(folder, quota), 0.0
        self._sizes: Counter[str] = Counter()
        self.version = 0

    def refresh(self) -> int:
        """Look whether anything changed; a number that grows with every change."""
        changed = self._saved.folder.stat().st_mtime if self._saved.folder.exists() else 0.0
        if changed != self._seen:
            self._seen, self._sizes = changed, Counter()
            for info in self._saved.list():
                self._sizes[info.document] += info.bytes
            self.version += 1
        return self.version

    def size(self, documents: tuple[str, ...]) -> int:
        """Bytes of the snapshots of these (``Document.id``)."""
        return sum(self._sizes[document] for document in documents)

    def space(self) -> SnapshotSpace:
        free = shutil.disk_usage(self._saved.folder).free if self._saved.folder.exists() else 0
        return SnapshotSpace(sum(self._sizes.values()), self._saved.quota_bytes, free)

    def remove_dead(self) -> tuple[int, int]:
        """Remove those that can never be opened again: how many, and their bytes."""
        removed = self._saved.remove_dead()
        return len(removed), sum(info.bytes for info in removed)

    def delete(self, documents: tuple[str, ...]) -> None:
        for document in documents:
            self._saved.delete(document)
        self.refresh()
