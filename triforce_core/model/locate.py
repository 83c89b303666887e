"""Which folder holds a model: a path as it is, a Hugging Face repo id through the local cache.

Nothing is fetched unless ``allow_download``; then only the files that ``weights``, ``config`` and the tokenizer read.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from fnmatch import fnmatch
from pathlib import Path

from ..config import is_repo_id
from ..errors import ModelNotFoundError
from ..gguf import is_gguf

_LATER_PART = re.compile(r"-(?!00001)\d{5}-of-\d{5}\.gguf\Z")
_SMALL = ("*.json", "tokenizer.model", "*.txt", "*.jinja")


def find_model(folder_or_repo: str | Path, *, allow_download: bool = False) -> Path:
    """The folder of a checkpoint, or its GGUF file: one by its bytes or its name, so that reading it says what is
    wrong. Raises ModelNotFoundError (nothing there, several GGUF files in one folder, not in the cache, or the download
    failed)."""
    path = Path(folder_or_repo).expanduser()
    if path.is_dir():
        return _within(path)
    if path.is_file() and (path.suffix.lower() == ".gguf" or is_gguf(path)):
        return path
    repo = str(folder_or_repo)
    if path.exists():
        raise ModelNotFoundError(f"{path} is a file, and it does not begin with GGUF",
                                 allowed="a folder with config.json and weights, or a GGUF file")
    if not is_repo_id(repo):
        raise ModelNotFoundError(f"There is no folder or file {path}",
                                 allowed="a folder, a GGUF file, or a Hugging Face repo id")
    from huggingface_hub import list_repo_files, snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError

    try:
        if not allow_download:
            return _within(Path(snapshot_download(repo, local_files_only=True)))
        return _within(Path(snapshot_download(repo, allow_patterns=wanted_files(list_repo_files(repo)))))
    except (LocalEntryNotFoundError, HfHubHTTPError, HFValidationError, OSError, ValueError) as error:
        if allow_download:
            reason = str(error).splitlines()[0] if str(error) else type(error).__name__
            raise ModelNotFoundError(f"{repo} could not be fetched: {reason}") from error
        raise ModelNotFoundError(f"{repo} is not in the local Hugging Face cache",
                                 remedy="Pass --allow-download to fetch it, or give a folder.") from error


def gguf_files(folder: Path) -> list[Path]:
    """The models among a folder's GGUF files: of a split one its first part; no projectors for images."""
    found = [path for path in sorted(folder.glob("*.gguf")) if not path.name.startswith("mmproj")]
    return [path for path in found if _LATER_PART.search(path.name) is None]


def _within(folder: Path) -> Path:
    """The folder itself, or the one GGUF model that it holds."""
    found = [] if (folder / "config.json").is_file() else gguf_files(folder)
    if len(found) > 1:
        raise ModelNotFoundError(f"{folder} holds {len(found)} GGUF files", allowed="one",
                                 remedy=f"Give one of them, such as {found[0]}")
    return found[0] if found else folder


def wanted_files(names: Sequence[str]) -> list[str]:
    """Return those of a repo's files that are read here: weights in safetensors if it has them, otherwise pickles;
    never both (the same weights twice)."""
    safe = any(name.endswith(".safetensors") for name in names)
    patterns = (*_SMALL, "model*.safetensors" if safe else "pytorch_model*.bin")
    return [name for name in names if "/" not in name and any(fnmatch(name, pattern) for pattern in patterns)]
