"""Compiles what the reader's and the page view's processes import: ``python -m triforce_core.documents.bytecode``.

They may write no files, so each of them would compile it anew, for 0.2 to 0.5 seconds. This one opens no document."""

from __future__ import annotations

import contextlib
import functools
import importlib
import pkgutil
import subprocess
import sys
import threading

from ..sandbox.child import ROOT, command, environment
from . import readers

_OTHERS = ("page_process", "reader_process")
_LATE = ("pypdf", "pypdfium2", "pypdfium2.raw")  # imported where a file needs them


@functools.cache
def keep_bytecode() -> None:
    """Once in this process's life, beside what it does: have the children's modules compiled."""
    if not sys.dont_write_bytecode:
        threading.Thread(target=_compile, name="bytecode", daemon=True).start()


def _compile() -> None:
    with contextlib.suppress(OSError, subprocess.SubprocessError):  # nothing depends on it
        subprocess.run(command(f"{__package__}.bytecode"), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                       stderr=subprocess.DEVNULL, env=environment(), cwd=ROOT, timeout=60, check=False)


def main() -> None:
    """To import is to compile, where that was not done before."""
    own = [module.name for module in pkgutil.iter_modules(readers.__path__, f"{readers.__name__}.")]
    for name in (*own, *(f"{__package__}.{each}" for each in _OTHERS), *_LATE):
        importlib.import_module(name)


if __name__ == "__main__":
    main()
