"""Where checkpoints lie: the built-in pair, the Hugging Face cache, other programs' folders, folders that were named.
Reads no weights and judges nothing."""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from ..assets import BUILTIN_FOLDER
from ..config import BUILTIN
from ..errors import ModelError
from ..gguf import parts_of
from ..model.checkpoint import gguf_files

_DEEPEST = 2  # folders below a given one in which checkpoints are looked for
_DIGEST = re.compile(r"sha256:([0-9a-f]{64})\Z")
_OLLAMA_WEIGHTS = "application/vnd.ollama.image.model"  # the layer of a manifest that is a GGUF file
_LONGEST_MANIFEST = 1 << 20  # bytes


Source = Literal["built-in", "cache", "folder", "LM Studio", "Ollama", "llama.cpp"]


@dataclass(frozen=True, slots=True)
class Place:
    """A checkpoint. model: what ``EngineConfig.model`` (or ``draft_model``) takes. folder: or its GGUF file, the first
    of a split one. tokenizer: the folder or file of its own."""

    name: str
    model: str
    folder: Path
    tokenizer: Path
    source: Source

    @property
    def nbytes(self) -> int:
        files: Iterable[Path] = [self.folder]
        if self.folder.is_dir():
            files = self.folder.iterdir()
        else:
            try:
                files = parts_of(self.folder)
            except ModelError:  # a part is missing: whoever looks closer will say so
                pass
        return sum(path.stat().st_size for path in files if path.is_file())


def builtin(role: Literal["target", "draft"]) -> Place:
    return Place(f"built-in {role}" if role == "draft" else BUILTIN, BUILTIN, BUILTIN_FOLDER / role, BUILTIN_FOLDER,
                 "built-in")


def places(folders: Sequence[str]) -> Iterator[Place]:
    """Every checkpoint once, the built-in target first. A folder counts if it holds a config.json, a file if it ends in
    .gguf (in Ollama's store, if a manifest names it)."""
    seen = {builtin("target").folder, builtin("draft").folder}
    yield builtin("target")
    named = (found for folder in folders for found in _below(Path(folder).expanduser(), _DEEPEST))
    for place in (*_cached(), *_lm_studio(), *_ollama(), *_llama_cpp(), *named):
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
        if repo.repo_type != "model" or not repo.revisions:
            continue
        best = max(repo.revisions, key=lambda revision: (_holds_model(revision.snapshot_path), "main" in revision.refs,
                                                         revision.last_modified))
        for file in gguf_files(best.snapshot_path):
            yield Place(f"{repo.repo_id}/{file.name}", str(file), file, file, "cache")
        if not (best.snapshot_path / "config.json").is_file():
            continue
        named = repo.repo_id if "main" in best.refs else str(best.snapshot_path)
        yield Place(repo.repo_id, named, best.snapshot_path, best.snapshot_path, "cache")


def _holds_model(folder: Path) -> bool:
    return (folder / "config.json").is_file() or bool(gguf_files(folder))


def _lm_studio() -> Iterator[Place]:
    for folder in (Path.home() / ".lmstudio" / "models", Path.home() / ".cache" / "lm-studio" / "models"):
        yield from _below(folder, _DEEPEST, "LM Studio")


def _llama_cpp() -> Iterator[Place]:
    """Where llama.cpp keeps what it fetched, by its own rules for each system."""
    given = os.environ.get("LLAMA_CACHE")
    if sys.platform == "darwin":
        usual = Path.home() / "Library" / "Caches"
    elif sys.platform == "win32":
        usual = Path(os.environ.get("LOCALAPPDATA", Path.home() / "AppData" / "Local"))
    else:
        usual = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    yield from _below(Path(given) if given else usual / "llama.cpp", 1, "llama.cpp")


def _ollama() -> Iterator[Place]:
    """By manifests, which name files without a suffix: manifests/HOST/OWNER/MODEL/TAG -> blobs/sha256-DIGEST."""
    given = os.environ.get("OLLAMA_MODELS")
    usual = (Path.home() / ".ollama" / "models", Path("/usr/share/ollama/.ollama/models"))
    for store in [Path(given)] if given else usual:
        try:
            manifests = sorted(path for path in (store / "manifests").glob("*/*/*/*") if path.is_file())
        except OSError:
            continue
        for manifest in manifests:
            blob = _ollama_weights(store, manifest)
            if blob is not None:
                yield Place(f"{manifest.parent.name}:{manifest.name}", str(blob), blob, blob, "Ollama")


def _ollama_weights(store: Path, manifest: Path) -> Path | None:
    """The file that a manifest calls the model; None where there is none of ours."""
    try:
        if manifest.stat().st_size > _LONGEST_MANIFEST:
            return None
        layers = json.loads(manifest.read_text(encoding="utf-8"))["layers"]
        digests = [layer["digest"] for layer in layers if layer["mediaType"] == _OLLAMA_WEIGHTS]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    named = _DIGEST.match(digests[0]) if digests and isinstance(digests[0], str) else None
    blob = store / "blobs" / f"sha256-{named[1]}" if named else None
    return blob if blob is not None and blob.is_file() else None


def _below(folder: Path, depth: int, source: Source = "folder") -> Iterator[Place]:
    try:
        for file in gguf_files(folder):
            yield Place(file.name, str(file), file, file, source)
    except OSError:
        return
    if (folder / "config.json").is_file():
        yield Place(folder.name, str(folder), folder, folder, source)
        return
    try:
        children = sorted(child for child in folder.iterdir() if child.is_dir() and not child.name.startswith("."))
    except OSError:  # not there, or not ours to read: holds no model for us
        return
    for child in children if depth else ():
        yield from _below(child, depth - 1, source)
