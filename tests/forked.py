"""The program's commands in forks of one process that has imported torch: that takes longer than most commands run.

huggingface_hub is left to each fork: it reads the environment when it is imported."""

from __future__ import annotations

import multiprocessing
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

_FORKS = multiprocessing.get_context("forkserver")
_FORKS.set_forkserver_preload(["torch", "triforce_core.__main__", "triforce_core.models.survey"])


def run(arguments: Sequence[str], environment: Mapping[str, str], folder: Path) -> tuple[int, str, str]:
    """``python -m triforce_core`` with these arguments: exit status, stdout, stderr. folder: for what it writes."""
    files = folder / "stdout.txt", folder / "stderr.txt"
    process = _FORKS.Process(target=_main, args=(list(arguments), dict(environment), *map(str, files)))
    process.start()
    process.join(120)
    assert process.exitcode is not None, "it hangs"
    out, err = (file.read_text() for file in files)
    return process.exitcode, out, err


def _main(arguments: list[str], environment: dict[str, str], *files: str) -> None:
    os.environ.update(environment)
    for stream, file in enumerate(files, start=1):
        os.dup2(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), stream)
    from triforce_core.__main__ import main

    sys.exit(main(arguments))
