"""A repo of the Hugging Face hub: what fetching it would bring, and fetching it, only when a person asked for it.

Files go into the usual cache, where other programs find them too. huggingface_hub starts a file that was broken off
from its beginning (2.4: a temporary file for each process); here a part is kept and continued, and a file counts only
when it has the size, and where the hub names a SHA-256 the content, that the hub says.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import threading
from collections.abc import Iterator
from pathlib import Path

from ..config import EngineConfig
from ..errors import ConfigError, ModelNotFoundError, NotEnoughDiskError, TriForceError
from ..events import LoadProgress, ModelOffer
from ..model.locate import is_repo_id, wanted_files

_LOOK_EVERY = 0.3  # seconds between two looks at how far a file has come
_SPARE_BYTES = 1 << 30  # left on the disk
_PART = ".part"


class Hub:
    """``config.model`` names the repo. Stands where an engine would, so that it runs in a process like one."""

    def __init__(self, config: EngineConfig) -> None:
        """Raises ConfigError: no repo, or the network was not allowed."""
        if not is_repo_id(config.model):
            raise ConfigError(f"{config.model!r} is no Hugging Face repo id", allowed="OWNER/NAME")
        if not config.allow_download:
            raise ConfigError(f"Looking up {config.model} needs the network", allowed="with --allow-download")
        self.repo = config.model

    def offer(self) -> ModelOffer:
        """Size and licence. Raises ModelNotFoundError."""
        from huggingface_hub import HfApi, try_to_load_from_cache

        with _explained(self.repo, "looked up"):
            info = HfApi().model_info(self.repo, files_metadata=True)
        sizes = {file.rfilename: file.size or 0 for file in info.siblings or ()}
        wanted = wanted_files(list(sizes))
        if "config.json" not in wanted:
            raise ModelNotFoundError(f"{self.repo} holds no config.json", allowed="a Hugging Face checkpoint")
        here = [name for name in wanted
                if isinstance(try_to_load_from_cache(self.repo, name, revision=info.sha), str)]
        licences = [tag.partition(":")[2] for tag in info.tags or () if tag.startswith("license:")]
        total = sum(sizes[name] for name in wanted)
        return ModelOffer(self.repo, info.sha or "main", ", ".join(licences) or "not stated", total,
                          total - sum(sizes[name] for name in here), tuple(wanted))


class Offer(Hub):
    """``check`` says what there is to fetch."""

    def check(self) -> Iterator[ModelOffer]:
        yield self.offer()


class Fetch(Hub):
    """``check`` fetches: the offer, then progress. Ended in between, it goes on where it stopped when called again."""

    def check(self) -> Iterator[ModelOffer | LoadProgress]:
        from huggingface_hub.constants import HF_HUB_CACHE

        offer = self.offer()
        yield offer
        root = Path(HF_HUB_CACHE)
        root.mkdir(parents=True, exist_ok=True)
        free = shutil.disk_usage(root).free
        if free < offer.missing + _SPARE_BYTES:
            raise NotEnoughDiskError(
                f"{self.repo} needs {_size(offer.missing)} more on the disk, and {_size(free)} are free",
                remedy="Free some space, or set HF_HOME to another disk.")
        done = last = 0
        for name in offer.names:
            for size, arrived in self._file(name, offer.revision, root):
                fraction = min(1.0, (done + arrived) / max(1, offer.nbytes))
                yield LoadProgress(f"Fetching {name}: {_size(done + arrived)} of {_size(offer.nbytes)}", fraction)
                last = size
            done += last
        yield LoadProgress(f"{self.repo} is here", 1.0)

    def _file(self, name: str, revision: str, root: Path) -> Iterator[tuple[int, int]]:
        """(bytes in all, bytes here) while one file arrives. Raises ModelNotFoundError naming the file."""
        from huggingface_hub import get_hf_file_metadata, hf_hub_download, hf_hub_url
        from huggingface_hub.file_download import repo_folder_name

        with _explained(f"{self.repo}: {name}", "fetched"):
            about = get_hf_file_metadata(hf_hub_url(self.repo, name, revision=revision))
            size, etag = about.size or 0, about.etag or ""
            blob = root / repo_folder_name(repo_id=self.repo, repo_type="model") / "blobs" / etag
            if etag and not blob.exists():
                blob.parent.mkdir(parents=True, exist_ok=True)
                part = blob.with_name(blob.name + _PART)
                yield from self._stream(hf_hub_url(self.repo, name, revision=revision), part, size)
                _check(part, size, etag)
                os.replace(part, blob)
            # The blob is there: this names it in the snapshot, and so that its repo id leads to it.
            hf_hub_download(self.repo, name, revision=revision)
            _name_main(root / repo_folder_name(repo_id=self.repo, repo_type="model"), revision)
        yield size, size

    def _stream(self, url: str, part: Path, size: int) -> Iterator[tuple[int, int]]:
        """The rest of a file, after what ``part`` holds of it."""
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
            yield size, part.stat().st_size if part.exists() else 0
        if problem:
            raise problem[0]


class _explained:
    """Whatever the hub or the network says, as an error that says what to do."""

    def __init__(self, what: str, done: str) -> None:
        self._what, self._done = what, done

    def __enter__(self) -> None: ...

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if error is None or isinstance(error, (TriForceError, GeneratorExit, KeyboardInterrupt)):
            return
        from huggingface_hub.errors import GatedRepoError, RepositoryNotFoundError

        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        remedy = "What has arrived is kept: try again to go on from there."
        if isinstance(error, GatedRepoError):
            reason = "its owners let in only who asks"
            remedy = "Accept its terms on the hub, then run `hf auth login`."
        elif isinstance(error, RepositoryNotFoundError):
            reason = "there is no such repo, or it is private"
            remedy = "Check the name; for a private one run `hf auth login`."
        raise ModelNotFoundError(f"{self._what} could not be {self._done}: {reason}", remedy=remedy) from error


def _check(part: Path, size: int, etag: str) -> None:
    """Raises ModelNotFoundError, and forgets the part, if it is not what the hub has."""
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
    """The repo's name leads to this revision from now on."""
    refs = repo / "refs"
    refs.mkdir(parents=True, exist_ok=True)
    (refs / "main").write_text(revision)


def _size(nbytes: int) -> str:
    return f"{nbytes / 1e9:.1f} GB" if nbytes >= 1e9 else f"{nbytes / 1e6:.1f} MB"
