"""The kernels in ``native/``, brought along or compiled on this machine (``native_build``), loaded and checked. Where
there is no compiler either, torch computes."""

from __future__ import annotations

import ctypes
import os
import subprocess
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from typing import NamedTuple

from ..native_build import CACHE, SETTING, brought, built, compilers, supported

__all__ = ["CACHE", "SETTING", "Compiled", "compiled"]


class Compiled(NamedTuple):
    """library: None where torch computes. summary: what there is, or why there is nothing, in a few words. build:
    differs where source, compiler or CPU do."""

    library: ctypes.CDLL | None
    summary: str
    build: str = ""


@cache
def compiled() -> Compiled:
    """This process's answer, found once: caches are laid out by it. Raises RuntimeError if it was insisted on."""
    setting = os.environ.get(SETTING, "auto")
    if setting == "torch":
        return Compiled(None, f"torch's ({SETTING} says so)")
    found = _find()
    if found.library is None and setting == "native":
        raise RuntimeError(f"{SETTING} is native, but there are {found.summary}")
    return found


def _find() -> Compiled:
    if not supported():
        return Compiled(None, "torch's (no own kernels for this system)")
    ready = brought()
    if ready is not None:
        found = _checked(lambda: ready, f"compiled ahead for {ready.stem.rpartition('-')[0]}", brought_along=True)
        if found.library is not None:
            return found
    found = Compiled(None, "torch's (no C compiler: cc, gcc, clang or the package ziglang)")
    for command in compilers():
        by = Path(command[0]).name if len(command) == 1 else "ziglang"
        found = _checked(partial(built, command), f"compiled by {by}")
        if found.library is not None:
            break
    return found


def _checked(make: Callable[[], Path], how: str, *, brought_along: bool = False) -> Compiled:
    try:
        file = make()
        library = ctypes.CDLL(str(file)) if brought_along else _loaded(file)
    except (OSError, ImportError, subprocess.SubprocessError) as error:
        detail = (getattr(error, "stderr", None) or "").strip() or str(error)
        return Compiled(None, f"torch's (compiling our own failed: {detail.splitlines()[-1][:200]})")
    from .native_check import wrong  # what it checks is made of what is here

    mistake = wrong(library)
    if mistake:
        return Compiled(None, f"torch's (our own failed their check: {mistake})")
    return Compiled(library, f"our own ({how})", file.stem)


def _loaded(file: Path) -> ctypes.CDLL:
    """Raises OSError: the file, which is of no use, is gone then and the next process makes another."""
    try:
        return ctypes.CDLL(str(file))
    except OSError:
        file.unlink(missing_ok=True)
        raise
