"""Where checkpoints lie: the built-in pair, the Hugging Face cache, folders. Reads no weights and judges nothing."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from ..config import BUILTIN
from ..engine.checkpoints import BUILTIN_FOLDER

_DEEPEST = 2  # folders below a given one in which checkpoints are looked for


@dataclass(frozen=True, slots=True)
class Place:
    """A checkpoint. model: what ``EngineConfig.model`` (or ``draft_model``) takes; tokenizer: the folder of its own."""

    name: str
    model: str
    folder: Path
    tokenizer: Path
    source: Literal["built-in", "cache", "folder"]

    @property
    def nbytes(self) -> int:
        return sum(path.stat().st_size for path in self.folder.iterdir() if path.is_file())


def builtin(role: Literal["target", "draft"]) -> Place:
    return Place(f"built-in {role}" if role == "draft" else BUILTIN, BUILTIN, BUILTIN_FOLDER / role, BUILTIN_FOLDER,
                 "built-in")


def places(folders: Sequence[str]) -> Iterator[Place]:
    """Every checkpoint once, the built-in target first. A folder counts if it holds a config.json."""
    seen = {builtin("target").folder, builtin("draft").folder}
    yield builtin("target")
    for place in (*_cached(), *(found for folder in folders for found in _below(Path(folder).expanduser(), _DEEPEST))):
        if place.folder.resolve() not in seen:
            seen.add(place.folder.resolve())
            yield place


def _cached() -> Iterator[Place]:
    """Repos of the cache, each in the revision that its name leads to, or else its newest."""
    from huggingface_hub import scan_cache_dir
    from huggingface_hub.errors import CacheNotFound

    try:
        repos = scan_cache_dir().repos
    except CacheNotFound:  # nothing was ever fetched
        return
    for repo in sorted(repos, key=lambda repo: repo.repo_id):
        revisions = [revision for revision in repo.revisions if (revision.snapshot_path / "config.json").is_file()]
        if repo.repo_type != "model" or not revisions:
            continue
        best = max(revisions, key=lambda revision: ("main" in revision.refs, revision.last_modified))
        named = repo.repo_id if "main" in best.refs else str(best.snapshot_path)
        yield Place(repo.repo_id, named, best.snapshot_path, best.snapshot_path, "cache")


def _below(folder: Path, depth: int) -> Iterator[Place]:
    if (folder / "config.json").is_file():
        yield Place(folder.name, str(folder), folder, folder, "folder")
        return
    try:
        children = sorted(child for child in folder.iterdir() if child.is_dir() and not child.name.startswith("."))
    except OSError:  # not there, or not ours to read: holds no model for us
        return
    for child in children if depth else ():
        yield from _below(child, depth - 1)
