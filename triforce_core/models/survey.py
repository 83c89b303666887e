"""Find the checkpoints on this machine (the built-in pair, the Hugging Face cache, other programs' folders, folders
that were named), and say which can run, with how much context, and which can draft for which; and which published ones
could.

The plan is the engine's own (``engine.loading.choose``): made from shapes, before any weight is read.
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Literal

import torch

from ..assets import BUILTIN_FOLDER
from ..config import BUILTIN, EngineConfig
from ..device.capability import choose_threads, read_capability
from ..device.shard import ALONE
from ..engine.loading import alike, choose, fingerprint, fitting, pass_bytes, set_threads
from ..engine.memory import number_type, place
from ..engine.tune import open_profile, subject
from ..errors import ConfigError, ModelError, NotEnoughMemoryError, TriForceError
from ..events import CuratedModel, DraftChoice, DraftPromise, Fit, ModelFound, ModelInfo
from ..gguf import parts_of
from ..model import ModelConfig, read_config, stored_form
from ..model.checkpoint import gguf_files
from ..tokenizer import Tokenizer
from .curated import USABLE_RATE, best_so_far, memory_rate, suggestions

_DEEPEST = 2  # folders below a given one in which checkpoints are looked for
_DIGEST = re.compile(r"sha256:([0-9a-f]{64})\Z")
_OLLAMA_WEIGHTS = "application/vnd.ollama.image.model"  # the layer of a manifest that is a GGUF file
_LONGEST_MANIFEST = 1 << 20  # bytes
_CONTEXTS = (8_192, 32_768, 131_072)  # tokens for which the list says what fits
_SMALLER = 2  # a draft model has at most this part of its target's weights: else its passes cost what they save


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
            with suppress(ModelError):  # a part is missing: whoever looks closer will say so
                files = parts_of(self.folder)
        return sum(path.stat().st_size for path in files if path.is_file())


def builtin(role: Literal["target", "draft"]) -> Place:
    return Place(f"built-in {role}" if role == "draft" else BUILTIN, BUILTIN, BUILTIN_FOLDER / role, BUILTIN_FOLDER,
                 "built-in")


def places(folders: Sequence[str]) -> Iterator[Place]:
    """Yield every checkpoint once, the built-in target first. A folder counts if it holds a config.json, a file if it
    ends in .gguf (in Ollama's store, if a manifest names it)."""
    seen = {builtin("target").folder, builtin("draft").folder}
    yield builtin("target")
    named = (found for folder in folders for found in _below(Path(folder).expanduser(), _DEEPEST))
    for found in (*_cached(), *_lm_studio(), *_ollama(), *_llama_cpp(), *named):
        if found.folder.resolve() not in seen:
            seen.add(found.folder.resolve())
            yield found


def _cached() -> Iterator[Place]:
    """Yield repos of the cache, each in the revision that its name leads to, or else its newest."""
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
        for file in _ggufs_below(best.snapshot_path):
            name = file.relative_to(best.snapshot_path).as_posix()
            yield Place(f"{repo.repo_id}/{name}", str(file), file, file, "cache")
        if not (best.snapshot_path / "config.json").is_file():
            continue
        named = repo.repo_id if "main" in best.refs else str(best.snapshot_path)
        yield Place(repo.repo_id, named, best.snapshot_path, best.snapshot_path, "cache")


def _ggufs_below(snapshot: Path) -> list[Path]:
    """Return a repo's GGUF models; some lie in folders of their own, those in parts above all."""
    return [file for folder in (snapshot, *(one for one in sorted(snapshot.iterdir()) if one.is_dir()))
            for file in gguf_files(folder)]


def _holds_model(folder: Path) -> bool:
    return (folder / "config.json").is_file() or bool(_ggufs_below(folder))


def _lm_studio() -> Iterator[Place]:
    for folder in (Path.home() / ".lmstudio" / "models", Path.home() / ".cache" / "lm-studio" / "models"):
        yield from _below(folder, _DEEPEST, "LM Studio")


def _llama_cpp() -> Iterator[Place]:
    """Yield what llama.cpp has fetched, where its own rules for each system keep it."""
    given = os.environ.get("LLAMA_CACHE")
    if sys.platform == "darwin":
        usual = Path.home() / "Library" / "Caches"
    elif sys.platform == "win32":
        usual = Path(os.environ.get("LOCALAPPDATA", Path.home() / "AppData" / "Local"))
    else:
        usual = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    yield from _below(Path(given) if given else usual / "llama.cpp", 1, "llama.cpp")


def _ollama() -> Iterator[Place]:
    """Go by manifests, which name files without a suffix: manifests/HOST/OWNER/MODEL/TAG -> blobs/sha256-DIGEST."""
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
    """Return the file that a manifest calls the model; None where there is none of ours."""
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


@dataclass(frozen=True, slots=True)
class _Known:
    """A checkpoint whose shape and tokenizer can be read; or the problem with it."""

    place: Place
    shape: ModelConfig | None = None
    tokenizer: Tokenizer | None = None
    problem: str = ""


class Survey:
    """List what there is, then what the curated list offers (``check``). Stands where an engine would, so that it runs
    in a process like one."""

    def __init__(self, config: EngineConfig) -> None:
        """config: how a chosen model would run; ``model`` and ``draft_model`` do not count."""
        self.config = config
        self._tokenizer_of = lru_cache(maxsize=None)(Tokenizer)  # a vocabulary of 262,000 tokens takes seconds to read

    def check(self) -> Iterator[ModelFound | CuratedModel]:
        known = [self._look(at) for at in places(self.config.model_folders)]
        drafters = [*known[1:], self._look(builtin("draft"))]  # the first is the built-in target
        rate, trouble = 0.0, None
        try:
            device = place(self.config, ALONE)[0]
            rate = best_so_far(self.config.measurements, f"memory of {device}", lambda: memory_rate(device))
        except ConfigError as error:  # what is here can be listed without
            trouble = error
        for one in known:
            yield self._judge(one, drafters, rate)
        if trouble is not None:
            raise trouble
        yield from suggestions(self.config, {one.place.name for one in known if one.shape is not None}, rate)

    def _look(self, at: Place) -> _Known:
        try:
            shape, tokenizer = read_config(at.folder), self._tokenizer_of(at.tokenizer, self.config.thinking)
            stored_form(at.folder)  # opens the weights' table of contents: are they there, and whole?
        except ModelError as error:
            return _Known(at, problem=str(error))
        return _Known(at, shape, tokenizer)

    def _judge(self, one: _Known, drafters: list[_Known], rate: float) -> ModelFound:
        own = one.place
        found = ModelFound(own.name, own.model, own.source, own.nbytes, problem=one.problem)
        if one.shape is None:
            return found
        choices = tuple(self._choice(one, other) for other in drafters
                        if other.place.folder != own.folder and other.shape is not None)
        fitting = [choice for choice in choices if choice.recommended or choice.model == own.model]
        # The built-in draft was trained for the built-in target; elsewhere what was tried counts, and where nothing was
        # the smallest costs least.
        best = min(fitting, default=None, key=lambda choice: (
            choice.model != own.model, -(choice.promise.gain if choice.promise else 1.0), choice.parameters))
        draft = best.model if best else "none"
        found = replace(found, architecture=one.shape.architecture, parameters=one.shape.num_parameters,
                        max_context=one.shape.max_context, drafts=choices, draft=draft)
        found = replace(found, fits=self._fits(found, rate))
        # The built-in pair is small as it is, and its few weights lose too much in four bits.
        own_fits = [fit for fit in found.fits if fit.weights != "int4"] if own.source == "built-in" else found.fits
        found = replace(found, fits=tuple(own_fits), best=best_of(own_fits))
        wanted = self.config.max_context
        context = wanted if wanted == "auto" else min(wanted, one.shape.max_context)
        try:
            info = self._plan(found, context)
            return replace(found, info=info, longest=self._longest(found))
        except NotEnoughMemoryError as error:
            return replace(found, problem=str(error), longest=self._longest(found))
        except TriForceError as error:
            return replace(found, problem=str(error))

    def _choice(self, one: _Known, other: _Known) -> DraftChoice:
        """Return what a model promises as draft of another."""
        assert one.tokenizer and other.tokenizer and one.shape and other.shape
        place = other.place
        foreign = not alike(one.tokenizer, other.tokenizer, (one.shape, other.shape))
        choice = DraftChoice(place.name, place.model, other.shape.num_parameters, _why_not(one, other), foreign)
        try:
            device, dtype = self._products
            reads = [_pass_bytes(known.place.folder, dtype, device) for known in (one, other)]
        except TriForceError:  # the plan will say what is wrong
            return choice
        return replace(choice, cost=reads[1] / reads[0], promise=None if choice.why_not else self._promise(one, other))

    def _promise(self, one: _Known, other: _Known) -> DraftPromise | None:
        """Return what was measured of the pair on this machine, in the form in which it would run now."""
        if self.config.measurements is None:
            return None
        form = "" if self.config.weights == "same" else f"-{self.config.weights}"
        device, dtype = self._products
        whose = subject(device, str(dtype).removeprefix("torch."), _fingerprint(one.place.folder) + form,
                        _fingerprint(other.place.folder), ALONE)
        return open_profile(self.config.measurements, whose).promise

    @cached_property
    def _products(self) -> tuple[torch.device, torch.dtype]:
        """Return where and in what numbers models would run now. Raises ConfigError."""
        machine, device = read_capability(), place(self.config, ALONE)[0]
        set_threads(self.config, device, choose_threads(machine))
        return device, number_type(self.config, device, machine)[0]

    def _plan(self, found: ModelFound, context: int | str) -> ModelInfo:
        config = replace(self.config, model=found.model, draft_model=found.draft, max_context=context)  # type: ignore[arg-type]
        return choose(config, together=False, tokenizer_of=self._tokenizer_of).info

    def _fits(self, found: ModelFound, rate: float) -> tuple[Fit, ...]:
        config = replace(self.config, model=found.model, draft_model=found.draft)
        contexts = [context for context in _CONTEXTS if context <= found.max_context] or [found.max_context]
        try:
            return tuple(fitting(config, contexts, rate))
        except TriForceError:  # the plan will say what is wrong
            return ()

    def _longest(self, found: ModelFound) -> int:
        try:
            info = self._plan(found, "auto")
        except NotEnoughMemoryError:
            return 0
        return info.plan.longest if info.plan else 0


# Of a checkpoint, once for all pairs that it is in.
_fingerprint, _pass_bytes = lru_cache(maxsize=64)(fingerprint), lru_cache(maxsize=64)(pass_bytes)


def best_of(fits: Sequence[Fit]) -> Fit | None:
    """Return the way in which to load a model here: the one with the least rounding among those that take the longest
    context at a usable speed; where none is usable, the fastest. None: nothing fits."""
    reach = max((fit.context for fit in fits if fit.mode), default=0)
    longest = [fit for fit in fits if fit.mode and fit.context == reach]
    usable = [fit for fit in longest if fit.tokens_per_second >= USABLE_RATE]
    return usable[0] if usable else max(longest, key=lambda fit: fit.tokens_per_second, default=None)


def _why_not(target: _Known, draft: _Known) -> str:
    """Say why one model shall not draft for another; "" if it may."""
    assert target.shape and draft.shape
    if draft.shape.num_parameters * _SMALLER > target.shape.num_parameters:
        sizes = millions(draft.shape.num_parameters), millions(target.shape.num_parameters)
        return f"not small enough: {sizes[0]} weights for {sizes[1]}"
    return ""


def millions(count: int) -> str:
    return f"{count / 1e9:.1f} billion" if count >= 1e9 else f"{count / 1e6:.1f} million"
