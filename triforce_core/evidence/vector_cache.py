"""Keep the encoder's vectors of a document's passages in a file, checked when it is read; anybody may delete it."""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
from pathlib import Path

import numpy as np

from .encoder import ENCODER_FILE

log = logging.getLogger(__name__)
_MAGIC = b"triforce passage vectors 1\n"
_MOST_FILES = 200  # of about a megabyte: the oldest go first


class VectorCache:
    """A folder of such files: one for each document and encoder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def load(self, document: str, texts: str) -> np.ndarray | None:
        """Return float32 [passages, width], or None where none are kept or the file is damaged. texts: a digest of what
        they were made of."""
        path = self._path(document)
        try:
            data = path.read_bytes()
            os.utime(path)
        except OSError:
            return None
        head = len(_MAGIC)
        digest, rows = data[head : head + 32], int.from_bytes(data[head + 32 : head + 36], "little")
        body = data[head + 36 :]
        if not data.startswith(_MAGIC) or hashlib.sha256(texts.encode() + body).digest() != digest or not rows:
            log.warning("%s does not hold what it should: the vectors are made anew", path)
            return None
        return np.frombuffer(body, np.float16).reshape(rows, -1).astype(np.float32)

    def save(self, document: str, texts: str, vectors: np.ndarray) -> None:
        """Write them; a folder that takes none is no error, as they can be made again."""
        body = vectors.astype(np.float16).tobytes()
        digest = hashlib.sha256(texts.encode() + body).digest()
        path = self._path(document)
        part = path.with_suffix(f".{os.getpid()}.part")
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            part.write_bytes(_MAGIC + digest + len(vectors).to_bytes(4, "little") + body)
            part.replace(path)
            kept = sorted(self._folder.glob("*.vectors"), key=lambda file: file.stat().st_mtime)
            for old in kept[:-_MOST_FILES]:
                old.unlink()
        except OSError:
            log.warning("the vectors of a document's passages could not be kept in %s", self._folder, exc_info=True)
            with contextlib.suppress(OSError):
                part.unlink()

    def _path(self, document: str) -> Path:
        made = ENCODER_FILE.stat()
        return self._folder / f"{document[:32]}-{made.st_size:x}-{int(made.st_mtime):x}.vectors"
