"""Compiles the CPU's own kernels (``kernels/native/``) with this machine's own C compiler for its own CPU, once.

Why not wheels with prebuilt binaries: one per system and CPU family would have to be built, shipped and trusted, and
two commands from a checkout would no longer do. Why not numba: it has no product of bfloat16 pairs. Why is ziglang, a
compiler in a wheel of 100 MB, not required: it would double the download for those who have a compiler; who has none
may install it.

The library lies in the user's cache folder, named by what it follows from: source, compiler and CPU. Imports no torch,
so that compiling, which takes two seconds, runs beside that import.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import threading
from importlib.util import find_spec
from pathlib import Path

SETTING = "TRIFORCE_KERNELS"  # "torch": without the library; "native": an error where there is none; else what there is
CACHE = "TRIFORCE_KERNEL_CACHE"  # another folder for it
_SOURCE = Path(__file__).resolve().parent / "kernels" / "native"
_SECONDS = 120  # a compiler that takes longer is not waited for
_FLAGS = ("-O3", "-std=gnu11", "-shared", "-fPIC")
# What this machine has. On ARM, Apple's clang knows the second word only.
_OWN = "-mcpu=native" if platform.machine() in ("aarch64", "arm64") else "-march=native"
_ONE_AT_A_TIME = threading.Lock()


def compile_ahead() -> threading.Thread | None:
    """Make the library in the background, for whoever asks for it next; None: it is not wanted here. What goes wrong is
    reported when it is asked for."""
    if os.environ.get(SETTING) == "torch" or not supported():
        return None
    thread = threading.Thread(target=_compile_quietly, name="compile kernels", daemon=True)
    thread.start()
    return thread


def _compile_quietly() -> None:
    command = compiler()
    if command is not None:
        with contextlib.suppress(OSError, ImportError, subprocess.SubprocessError):
            built(command)


def supported() -> bool:
    """Return whether there are own kernels for this system."""
    return os.name != "nt" and sys.maxsize > 2**32


def compiler() -> list[str] | None:
    path = next(filter(None, map(shutil.which, ("cc", "gcc", "clang"))), None)
    if path is not None:
        return [path]
    return [sys.executable, "-m", "ziglang", "cc"] if find_spec("ziglang") else None


def built(command: list[str], instructions: str = _OWN) -> Path:
    """Return the library's file, which another process may be making too; of this one one thread. instructions: a flag
    that says which may be used; tests ask for others than the machine's own. Raises OSError, ImportError,
    SubprocessError."""
    flags = [*_FLAGS, instructions]
    with _ONE_AT_A_TIME:
        return _made(command, flags, _folder() / f"{_key(command, flags)}.so")


def _made(command: list[str], flags: list[str], file: Path) -> Path:
    if file.is_file():
        return file
    file.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=file.parent) as folder:
        fresh = Path(folder) / file.name
        subprocess.run([*command, *flags, "-o", str(fresh), str(_SOURCE / "pass.c"), "-lm", "-lpthread"], check=True,
                       capture_output=True, text=True, timeout=_SECONDS)
        os.replace(fresh, file)
    return file


def _folder() -> Path:
    if CACHE in os.environ:
        return Path(os.environ[CACHE])
    from platformdirs import PlatformDirs

    return PlatformDirs("triforce-chat", appauthor=False).user_cache_path / "kernels"


def _key(command: list[str], flags: list[str]) -> str:
    """Return a key of source, compiler, its flags and CPU."""
    digest = hashlib.sha256()
    for path in sorted(_SOURCE.glob("*.[ch]")):
        digest.update(path.name.encode() + path.read_bytes())
    own = Path(command[0]).resolve()
    made = own.stat()
    digest.update(repr((flags, command[1:], str(own), made.st_size, made.st_mtime_ns, _cpu())).encode())
    return digest.hexdigest()[:32]


def _cpu() -> str:
    """Describe the CPU as far as ``_OWN`` goes by it."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return f"{platform.machine()} {platform.processor()} {platform.version()}"
    keys = ("model name", "flags", "Features", "CPU part")
    return "".join(sorted({line for line in lines if line.startswith(keys)}))
