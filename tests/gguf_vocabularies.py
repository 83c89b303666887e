"""Real vocabularies and chat templates: test data of llama.cpp, inside the source of ``llama-cpp-python`` on the
package index. They are no part of this project. ``python -m tests.gguf_vocabularies FOLDER`` fetches them by pip and
prints where they lie; tests use the folder that TRIFORCE_GGUF_VOCABULARIES names, and are skipped without one.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
from pathlib import Path

PACKAGE = "llama-cpp-python==0.3.36"
_INSIDE = "/vendor/llama.cpp/models/"


def folder() -> Path | None:
    """Where the data lies; None where it was not fetched."""
    given = os.environ.get("TRIFORCE_GGUF_VOCABULARIES")
    return Path(given) if given and Path(given).is_dir() else None


def fetch(into: Path) -> Path:
    """The data, fetched unless it is there. Raises subprocess.CalledProcessError, OSError."""
    into.mkdir(parents=True, exist_ok=True)
    if not list(into.glob("models/*.gguf")):
        if not list(into.glob("*.tar.gz")):
            subprocess.run([sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--no-binary",
                            "llama-cpp-python", PACKAGE, "--dest", str(into)], check=True, timeout=1200,
                           stdout=sys.stderr)
        _unpack(next(into.glob("*.tar.gz")), into)
    return into / "models"


def _unpack(archive: Path, into: Path) -> None:
    with tarfile.open(archive) as files:
        for member in files:
            _, found, name = member.name.partition(_INSIDE)
            if found and member.isfile():
                member.name = f"models/{name}"
                files.extract(member, into, filter="data")


if __name__ == "__main__":
    print(fetch(Path(sys.argv[1])))
