"""Which folders or files hold the models that were asked for, and whether they belong together."""

from __future__ import annotations

from pathlib import Path

from ..config import BUILTIN, EngineConfig
from ..errors import ModelNotFoundError, TokenizerMismatchError
from ..kv_cache.snapshot import fingerprint_files
from ..model import find_model, weight_files
from ..tokenizer import Tokenizer

BUILTIN_FOLDER = Path(__file__).resolve().parents[2] / "assets" / "builtin"


def model_folder(name: str, role: str, config: EngineConfig) -> Path:
    """role: "target" or "draft". Raises ModelNotFoundError."""
    if name == BUILTIN:
        folder = BUILTIN_FOLDER / role
        if not (folder / "model.safetensors").is_file():
            raise ModelNotFoundError(f"The built-in {role} model is missing from {folder}",
                                     remedy="Get a complete copy of this program, or name a model with --model.")
        return folder
    return find_model(name, allow_download=config.allow_download)


def require_same_vocabulary(target: Tokenizer, draft: Tokenizer, name: str) -> None:
    """Raises TokenizerMismatchError."""
    if not target.same_vocabulary(draft):
        raise TokenizerMismatchError(f"The draft model {name!r} has another vocabulary than the model",
                                     remedy="Choose a smaller model of the same family, or --draft-model none.")


def fingerprint(folder: Path | None) -> str:
    """Of a checkpoint's weights; empty where there is none."""
    return fingerprint_files(weight_files(folder)) if folder is not None else ""
