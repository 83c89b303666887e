"""Compiles the CPU's own kernels (``kernels/native/``) with this machine's own C compiler for its own CPU, once.

Why not numba: it has no product of bfloat16 pairs. Why is ziglang, a compiler in a wheel of 100 MB, not required: it
would double the download for those who have a compiler; who has none may install it.

The library lies in the user's cache folder, named by what it follows from: source, compiler and CPU. Imports no torch,
so that compiling, which takes two seconds, runs beside that import.

A wheel made where there is a compiler (``setup.py``) brings libraries for the usual levels of x86 along. One that
suits this CPU is as fast as its own, so nothing is compiled then.
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
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

SETTING = "TRIFORCE_KERNELS"  # "torch": without the library; "native": an error where there is none; else what there is
CACHE = "TRIFORCE_KERNEL_CACHE"  # another folder for it
_SOURCE = Path(__file__).resolve().parent / "kernels" / "native"
AHEAD = _SOURCE.parent / "ahead"  # libraries that a wheel brings
_AVX512 = {"avx512f", "avx512bw", "avx512dq", "avx512vl", "avx512cd"}
_BF16 = "-march=x86-64-v4", "-mavx512bf16", "-mavx512vbmi"
# Levels of x86, the best first: what a compiler is told, and what /proc/cpuinfo says of a CPU that has it. "avx512", if
# tuned for no CPU in particular, took up to 1.22 times as long for one row.
LEVELS = {"amx": ((*_BF16, "-mamx-tile", "-mamx-bf16"),
                  _AVX512 | {"avx512_bf16", "avx512vbmi", "amx_tile", "amx_bf16"}),
          "avx512-bf16": (_BF16, _AVX512 | {"avx512_bf16", "avx512vbmi"}),
          "avx512": (("-march=x86-64-v4", "-mtune=skylake-avx512"), _AVX512),
          "avx2": (("-march=x86-64-v3",), {"avx2", "fma", "bmi1", "bmi2", "f16c", "movbe"})}
_SECONDS = 120  # a compiler that takes longer is not waited for
_STUBS = Path("/usr/bin")  # macOS: its compilers there ask to be installed, in a window, unless they are
_ONE_AT_A_TIME = threading.Lock()


def compile_ahead() -> threading.Thread | None:
    """Make the library in the background, for whoever asks for it next; None: it is not wanted here. What goes wrong is
    reported when it is asked for."""
    if os.environ.get(SETTING) == "torch" or not supported() or brought() is not None:
        return None
    thread = threading.Thread(target=_compile_quietly, name="compile kernels", daemon=True)
    thread.start()
    return thread


def _compile_quietly() -> None:
    for command in compilers():
        with contextlib.suppress(OSError, ImportError, subprocess.SubprocessError):
            built(command)
            return


def supported() -> bool:
    """Return whether there are own kernels for this system."""
    return sys.maxsize > 2**32


def compilers() -> Iterator[list[str]]:
    """Yield those of this machine, the best first. Not GCC on Windows, whose stack is not aligned for wide vectors."""
    names = ("clang",) if sys.platform == "win32" else ("cc", "gcc", "clang")
    path = next(filter(None, map(_program, names)), None)
    if path is not None:
        yield [path]
    if find_spec("ziglang"):
        yield [sys.executable, "-m", "ziglang", "cc"]


def _program(name: str) -> str | None:
    path = shutil.which(name)
    stub = path is not None and sys.platform == "darwin" and Path(path).parent == _STUBS
    return None if stub and not _has_apples_tools() else path


def _has_apples_tools() -> bool:
    """Ask without opening a window."""
    select = shutil.which("xcode-select")
    return select is not None and subprocess.run([select, "-p"], capture_output=True, timeout=_SECONDS).returncode == 0


def brought() -> Path | None:
    """Return the best library for this CPU that was compiled ahead, from this source."""
    flags = set(_cpu().split()) if _has_levels() else set()
    fitting = (_ahead(AHEAD, level) for level, (_, needs) in LEVELS.items() if needs <= flags)
    return next((file for file in fitting if file.is_file()), None)


def _has_levels() -> bool:
    """Return whether this is a system on which is known what its CPU has, without torch."""
    return platform.machine() == "x86_64" and sys.platform == "linux"


def _ahead(folder: Path, level: str) -> Path:
    return folder / f"{level}-{_source().hexdigest()[:16]}{_suffix()}"


def compile_levels(folder: Path) -> list[Path]:
    """Compile for every level into a folder, for a wheel; what was there goes. Raises OSError, SubprocessError."""
    shutil.rmtree(folder, ignore_errors=True)
    command = next((own for own in compilers() if len(own) == 1), None)  # ziglang has other names for the levels
    if command is None or not _has_levels():
        return []
    return [_made(command, _flags(*instructions), _ahead(folder, level)) for level, (instructions, _) in LEVELS.items()]


def built(command: list[str], instructions: str = "") -> Path:
    """Return the library's file, which another process may be making too; of this one one thread. instructions: a flag
    that says which may be used; tests ask for others than the machine's own. Raises OSError, ImportError,
    SubprocessError."""
    flags = _flags(instructions or _own())
    with _ONE_AT_A_TIME:
        return _made(command, flags, _folder() / f"{_key(command, flags)}{_suffix()}")


def _own() -> str:
    """Return the flag for what this machine has. On ARM, Apple's clang knows this word only."""
    return "-mcpu=native" if platform.machine().lower() in ("aarch64", "arm64") else "-march=native"


def _suffix() -> str:
    return {"win32": ".dll", "darwin": ".dylib"}.get(sys.platform, ".so")


def _flags(*instructions: str) -> list[str]:
    anywhere = () if sys.platform == "win32" else ("-fPIC",)  # there all code is, and clang refuses the word
    return ["-O3", "-std=gnu11", "-shared", *anywhere, *instructions]


def _made(command: list[str], flags: list[str], file: Path) -> Path:
    if file.is_file():
        return file
    file.parent.mkdir(parents=True, exist_ok=True)
    libraries = () if sys.platform == "win32" else ("-lm", "-lpthread")
    with tempfile.TemporaryDirectory(dir=file.parent) as folder:
        fresh = Path(folder) / file.name
        subprocess.run([*command, *flags, "-o", str(fresh), str(_SOURCE / "pass.c"), *libraries], check=True,
                       capture_output=True, text=True, errors="replace", timeout=_SECONDS)
        try:
            os.replace(fresh, file)
        except PermissionError:  # Windows: another process made it meanwhile, and uses it
            if not file.is_file():
                raise
    return file


def _folder() -> Path:
    if CACHE in os.environ:
        return Path(os.environ[CACHE])
    from platformdirs import PlatformDirs

    return PlatformDirs("triforce-chat", appauthor=False).user_cache_path / "kernels"


def _key(command: list[str], flags: list[str]) -> str:
    """Return a key of source, compiler, its flags and CPU."""
    digest = _source()
    own = Path(command[0]).resolve()
    made = own.stat()
    digest.update(repr((flags, command[1:], str(own), made.st_size, made.st_mtime_ns, _cpu())).encode())
    return digest.hexdigest()[:32]


def _source() -> hashlib._Hash:
    digest = hashlib.sha256()
    for path in sorted(_SOURCE.glob("*.[ch]")):
        digest.update(path.name.encode() + path.read_bytes())
    return digest


def _cpu() -> str:
    """Describe the CPU as far as ``_own`` goes by it."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return f"{platform.machine()} {platform.processor()} {platform.version()}"
    keys = ("model name", "flags", "Features", "CPU part")
    return "".join(sorted({line for line in lines if line.startswith(keys)}))
