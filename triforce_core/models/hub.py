"""A repo of the Hugging Face hub: what fetching it would bring, and fetching it, only when a person asked for it.

Files go into the usual cache, where other programs find them too. huggingface_hub starts a file that was broken off
from its beginning (2.4: a temporary file for each process); here a part is kept and continued, and a file counts only
when it has the size, and where the hub names a SHA-256 the content, that the hub says.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ..config import EngineConfig, is_repo_id, repo_and_file
from ..errors import ConfigError, ModelNotFoundError, NotEnoughDiskError, TriForceError
from ..events import LoadProgress, ModelOffer
from ..model.checkpoint import wanted_files

_SETTLED = 3.0  # seconds of fetching after which a rate means something
_LOOK_EVERY = 0.3  # seconds between two looks at how far a file has come
_SPARE_BYTES = 1 << 30  # left on the disk
_PART = ".part"
_SPLIT = re.compile(r"-(\d{5})-of-(\d{5})\Z")
# How a GGUF file is quantised that is taken where nothing is said, the first that there is.
_USUAL = ("Q4_K_M", "Q4_K_S", "Q4_0", "Q5_K_M", "Q8_0", "BF16", "F16")
_NOT_READ = re.compile(r"\b(IQ[123]_\w+|TQ\d_\d|MXFP4\w*)\Z", re.IGNORECASE)  # weights that are not read here
_UNREACHED = {"ConnectError", "ConnectTimeout", "OfflineModeIsEnabled"}  # by name: the hub's HTTP library has changed


class Offer:
    """Say what there is to fetch of the repo that ``config.model`` names (``check``). Stands where an engine would, so
    that it runs in a process like one."""

    def __init__(self, config: EngineConfig) -> None:
        """Raises ConfigError: no repo, or the network was not allowed."""
        if not is_repo_id(repo_and_file(config.model)[0]):
            raise ConfigError(f"{config.model!r} is no Hugging Face repo id", allowed="OWNER/NAME or OWNER/NAME:Q4_K_M")
        if not config.allow_download:
            raise ConfigError(f"Looking up {config.model} needs the network", allowed="with --allow-download")
        self.repo = config.model
        self._draft = config.draft_model if is_repo_id(repo_and_file(config.draft_model)[0]) else ""

    def check(self) -> Iterator[ModelOffer | LoadProgress]:
        yield self.offer(self.repo)

    def offer(self, named: str) -> ModelOffer:
        """Look up size and licence. named: OWNER/NAME, or OWNER/NAME:WHAT for one of its GGUF files. Raises
        ModelNotFoundError."""
        from huggingface_hub import HfApi, try_to_load_from_cache

        (repo, what), folder = repo_and_file(named), cache_folder()
        with _explained(repo, "looked up"):
            info = HfApi().model_info(repo, files_metadata=True)
        files = {file.rfilename: file for file in info.siblings or ()}
        wanted, ggufs, first = wanted_files(list(files)), gguf_models(list(files)), ""
        if what or not _is_checkpoint(wanted):
            first = chosen_gguf(repo, ggufs, what)
            wanted = list(ggufs[first])
        here = {name for name in wanted if isinstance(try_to_load_from_cache(repo, name, revision=info.sha), str)}
        licences = [tag.partition(":")[2] for tag in info.tags or () if tag.startswith("license:")]
        total = sum(files[name].size or 0 for name in wanted)
        have = sum(files[name].size or 0 if name in here else _part_of(files[name], _blobs(folder, repo))
                   for name in wanted)
        return ModelOffer(repo, info.sha or "main", ", ".join(licences) or "not stated", total, total - have,
                          tuple(wanted), str(folder), free_bytes(folder),
                          tuple((name, sum(files[part].size or 0 for part in parts)) for name, parts in ggufs.items()),
                          first)


class Fetch(Offer):
    """Fetch the repo, and the one that ``config.draft_model`` names (``check``): the offers, then progress. Ended in
    between, it goes on where it stopped when called again."""

    def check(self) -> Iterator[ModelOffer | LoadProgress]:
        """Raises NotEnoughDiskError before anything was fetched, ModelNotFoundError."""
        offers = [self.offer(repo) for repo in (self.repo, self._draft) if repo]
        yield from offers
        root, missing = cache_folder(), sum(offer.missing for offer in offers)
        free = free_bytes(root)
        if free < missing + _SPARE_BYTES:
            raise NotEnoughDiskError(
                f"{self.repo} needs {_size(missing)} more in {root}, and {_size(free)} are free there; "
                f"{_size(_SPARE_BYTES)} stay free", remedy="Free some space, or set HF_HOME to another disk.")
        root.mkdir(parents=True, exist_ok=True)
        done, total, clock = 0, sum(offer.nbytes for offer in offers), _Remaining()
        for offer in offers:
            for name in offer.names:
                arrived = 0
                for arrived in self._file(offer.repo, name, offer.revision, root):
                    yield LoadProgress(f"Fetching {name}: {_size(done + arrived)} of {_size(total)}"
                                       f"{clock.words(done + arrived, total)}",
                                       min(1.0, (done + arrived) / max(1, total)))
                done += arrived
        yield LoadProgress(f"{self.repo} is here", 1.0)

    def _file(self, repo: str, name: str, revision: str, root: Path) -> Iterator[int]:
        """Yield the bytes that are here while one file arrives, at last all of it. Raises ModelNotFoundError."""
        from huggingface_hub import get_hf_file_metadata, hf_hub_download, hf_hub_url

        blobs, url = _blobs(root, repo), hf_hub_url(repo, name, revision=revision)
        with _explained(f"{repo}: {name}", "fetched"):
            about = get_hf_file_metadata(url)
            size, etag = about.size or 0, about.etag or ""
            blob = blobs / etag
            if etag and not blob.exists():
                blob.parent.mkdir(parents=True, exist_ok=True)
                part = blob.with_name(blob.name + _PART)
                yield from self._stream(url, part, size)
                _check(part, size, etag)
                os.replace(part, blob)
            # The blob is there: this names it in the snapshot, and so that its repo id leads to it.
            hf_hub_download(repo, name, revision=revision)
            _name_main(blobs.parent, revision)
        yield size

    def _stream(self, url: str, part: Path, size: int) -> Iterator[int]:
        """Yield the bytes of a file that are here, while what ``part`` does not hold of it arrives."""
        from huggingface_hub.file_download import http_get
        from huggingface_hub.utils import build_hf_headers

        problem: list[BaseException] = []

        def work() -> None:
            try:
                with part.open("ab") as file:
                    http_get(url, file, resume_size=file.tell(), headers=build_hf_headers(), expected_size=size)
            except BaseException as error:
                problem.append(error)

        thread = threading.Thread(target=work, name="fetch", daemon=True)
        thread.start()
        while thread.is_alive():
            thread.join(_LOOK_EVERY)
            yield part.stat().st_size if part.exists() else 0
        if problem:
            raise problem[0]


def _is_checkpoint(wanted: Sequence[str]) -> bool:
    return "config.json" in wanted and any(name.endswith((".safetensors", ".bin")) for name in wanted)


def gguf_models(names: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """Return the models among a repo's GGUF files, by name (a split one's first part) with all their parts: no
    projectors for images, nothing whose weights are not read here, and no split one of which a part is missing."""
    found: dict[str, tuple[str, ...]] = {}
    for name in sorted(names):
        path = Path(name)
        if path.suffix != ".gguf" or ".." in path.parts or path.name.startswith("mmproj") or "imatrix" in path.name:
            continue
        split = _SPLIT.search(path.stem)
        if _NOT_READ.search(path.stem[:split.start()] if split else path.stem) or (split and int(split[1]) != 1):
            continue
        parts = [name if not split else str(path.with_name(f"{path.stem[:split.start()]}-{part:05}-of-{split[2]}.gguf"))
                 for part in range(1, int(split[2]) + 1 if split else 2)]
        if set(parts) <= set(names):
            found[name] = tuple(parts)
    return found


def chosen_gguf(repo: str, models: Mapping[str, Sequence[str]], what: str) -> str:
    """Return the one that is meant: by its name, or by how it is quantised; "": the usual one, else the first. Raises
    ModelNotFoundError."""
    if not models:
        raise ModelNotFoundError(f"{repo} holds no config.json with weights, and no GGUF file that can be read here",
                                 allowed="a repo with one of these")
    for kind in (what,) if what else _USUAL:
        fitting = [name for name in models if what in (name, Path(name).name) or _quantised_so(name, kind.lower())]
        if fitting:
            return min(fitting, key=len)
    if what:
        raise ModelNotFoundError(f"{repo} has no GGUF file {what}", allowed=", ".join(models))
    return next(iter(models))


def _quantised_so(name: str, kind: str) -> bool:
    stem = _SPLIT.sub("", name.removesuffix(".gguf")).lower()
    return stem == kind or stem.endswith((f"-{kind}", f".{kind}", f"/{kind}"))


@contextmanager
def _explained(what: str, done: str) -> Iterator[None]:
    """Raise whatever the hub or the network says as an error that says what to do."""
    try:
        yield
    except TriForceError:
        raise
    except Exception as error:
        from huggingface_hub.errors import GatedRepoError, RepositoryNotFoundError

        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        remedy = "What has arrived is kept: try again to go on from there."
        if isinstance(error, GatedRepoError):
            reason = "its owners let in only who asks"
            remedy = "Accept its terms on the hub, then run `hf auth login`."
        elif isinstance(error, RepositoryNotFoundError):
            reason = "there is no such repo, or it is private"
            remedy = "Check the name; for a private one run `hf auth login`."
        elif any(kind.__name__ in _UNREACHED for kind in type(error).__mro__):
            reason = f"the hub cannot be reached ({reason})"
            remedy = "Check the internet connection, then try again: what has arrived is kept."
        raise ModelNotFoundError(f"{what} could not be {done}: {reason}", remedy=remedy) from error


def _check(part: Path, size: int, etag: str) -> None:
    """Raise ModelNotFoundError, and forget the part, if it is not what the hub has."""
    same = part.stat().st_size == size
    if same and len(etag) == 64:  # the SHA-256 of a large file; small ones have a git hash
        digest = hashlib.sha256()
        with part.open("rb") as file:
            while block := file.read(1 << 22):
                digest.update(block)
        same = digest.hexdigest() == etag
    if not same:
        part.unlink()
        raise ModelNotFoundError(f"{part.name.removesuffix(_PART)} arrived damaged", remedy="Fetch it again.")


def _name_main(repo: Path, revision: str) -> None:
    """Have the repo's name lead to this revision from now on."""
    refs = repo / "refs"
    refs.mkdir(parents=True, exist_ok=True)
    (refs / "main").write_text(revision)


class _Remaining:
    """Tell how long a download still takes, by the mean rate since it began (or went on)."""

    def __init__(self) -> None:
        self._began, self._had = 0.0, -1

    def words(self, done: int, total: int) -> str:
        """Return ", about 3 min left", or "" before a rate is known."""
        if self._had < 0:
            self._began, self._had = time.monotonic(), done
        seconds = time.monotonic() - self._began
        rate = (done - self._had) / seconds if seconds > _SETTLED else 0.0
        return f", about {_duration((total - done) / rate)} left" if rate > 0 else ""


def cache_folder() -> Path:
    """Return where repos are stored; it may not be there yet."""
    from huggingface_hub.constants import HF_HUB_CACHE

    return Path(HF_HUB_CACHE)


def free_bytes(folder: Path) -> int:
    """Return what is free on the disk of a folder that may not be there yet."""
    return shutil.disk_usage(next(path for path in (folder, *folder.absolute().parents) if path.exists())).free


def _blobs(root: Path, repo: str) -> Path:
    from huggingface_hub.file_download import repo_folder_name

    return root / repo_folder_name(repo_id=repo, repo_type="model") / "blobs"


def _part_of(file: Any, blobs: Path) -> int:
    """Return the bytes of a file that a download which broke off has left."""
    part = blobs / f"{file.lfs.sha256 if file.lfs else file.blob_id}{_PART}"
    return min(part.stat().st_size, file.size or 0) if part.is_file() else 0


def _duration(seconds: float) -> str:
    if seconds < 90:
        return f"{max(1, round(seconds))} s"
    return f"{round(seconds / 60)} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def _size(nbytes: int) -> str:
    return f"{nbytes / 1e9:.1f} GB" if nbytes >= 1e9 else f"{nbytes / 1e6:.1f} MB"
