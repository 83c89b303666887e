"""The kernels in ``native/``, compiled by this machine's own C compiler for this machine's own CPU, once.

Why not wheels with prebuilt binaries: one per system and CPU family would have to be built, shipped and trusted, and
two commands from a checkout would no longer do. Why not numba: it has no product of bfloat16 pairs. Why is ziglang, a
compiler in a wheel of 100 MB, not required: it would double the download for those who have a compiler; who has none
may install it. Compiling takes two seconds; where there is no compiler, torch computes as before.

The library lies in the user's cache folder, named by what it follows from: source, compiler and CPU.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

SETTING = "TRIFORCE_KERNELS"  # "torch": without the library; "native": an error where there is none; else what there is
CACHE = "TRIFORCE_KERNEL_CACHE"  # another folder for it
_SOURCE = Path(__file__).with_name("native")
_SECONDS = 120  # a compiler that takes longer is not waited for
_FLAGS = ("-O3", "-march=native", "-std=gnu11", "-shared", "-fPIC")


class Compiled(NamedTuple):
    """library: None where torch computes. told: what there is, or why there is nothing, in a few words."""

    library: ctypes.CDLL | None
    told: str


@cache
def compiled() -> Compiled:
    """This process's answer, found once: caches are laid out by it. Raises RuntimeError if it was insisted on."""
    setting = os.environ.get(SETTING, "auto")
    if setting == "torch":
        return Compiled(None, f"torch's ({SETTING} says so)")
    found = _find()
    if found.library is None and setting == "native":
        raise RuntimeError(f"{SETTING} is native, but there are {found.told}")
    return found


def _find() -> Compiled:
    if os.name == "nt" or sys.maxsize < 2**32:
        return Compiled(None, "torch's (no own kernels for this system)")
    command = _compiler()
    if command is None:
        return Compiled(None, "torch's (no C compiler: cc, gcc, clang or the package ziglang)")
    try:
        library = _loaded(_built(command))
    except (OSError, ImportError, subprocess.SubprocessError) as error:
        detail = getattr(error, "stderr", None) or str(error)
        return Compiled(None, f"torch's (compiling our own failed: {detail.strip().splitlines()[-1][:200]})")
    from .native_check import wrong  # what it checks is made of what is here

    mistake = wrong(library)
    if mistake:
        return Compiled(None, f"torch's (our own failed their check: {mistake})")
    return Compiled(library, f"our own (compiled by {Path(command[0]).name})" if len(command) == 1
                    else "our own (compiled by ziglang)")


def _loaded(file: Path) -> ctypes.CDLL:
    """Raises OSError: the file, which is of no use, is gone then and the next process makes another."""
    try:
        return ctypes.CDLL(str(file))
    except OSError:
        file.unlink(missing_ok=True)
        raise


def _compiler() -> list[str] | None:
    path = next(filter(None, map(shutil.which, ("cc", "gcc", "clang"))), None)
    if path is not None:
        return [path]
    return [sys.executable, "-m", "ziglang", "cc"] if find_spec("ziglang") else None


def _built(command: list[str]) -> Path:
    """The library's file, which another process may be making too. Raises OSError, ImportError, SubprocessError."""
    file = _folder() / f"{_key(command)}.so"
    if file.is_file():
        return file
    file.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=file.parent) as folder:
        fresh = Path(folder) / file.name
        subprocess.run([*command, *_FLAGS, "-o", str(fresh), str(_SOURCE / "pass.c"), "-lm", "-lpthread"], check=True,
                       capture_output=True, text=True, timeout=_SECONDS)
        os.replace(fresh, file)
    return file


def _folder() -> Path:
    if CACHE in os.environ:
        return Path(os.environ[CACHE])
    from platformdirs import PlatformDirs

    return PlatformDirs("triforce-chat", appauthor=False).user_cache_path / "kernels"


def _key(command: list[str]) -> str:
    """Of source, compiler and CPU."""
    digest = hashlib.sha256()
    for path in sorted(_SOURCE.glob("*.[ch]")):
        digest.update(path.name.encode() + path.read_bytes())
    own = Path(command[0]).resolve()
    made = own.stat()
    digest.update(repr((_FLAGS, command[1:], str(own), made.st_size, made.st_mtime_ns, _cpu())).encode())
    return digest.hexdigest()[:32]


def _cpu() -> str:
    """What -march=native goes by."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return f"{platform.machine()} {platform.processor()} {platform.version()}"
    told = ("model name", "flags", "Features", "CPU part")
    return "".join(sorted({line for line in lines if line.startswith(told)}))
