"""Compiling ahead: the library is there when it is asked for, and whatever fails is left to who asks."""

from __future__ import annotations

import platform
import stat
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from triforce_core import native_build
from triforce_core.native_build import CACHE, SETTING, built, compile_ahead, compilers, supported


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv(SETTING, raising=False)
    monkeypatch.setenv(CACHE, str(tmp_path / "kernels"))
    monkeypatch.setattr(native_build, "find_spec", lambda name: None)
    return tmp_path


def compiler_of(folder: Path, script: str, monkeypatch: pytest.MonkeyPatch, name: str = "cc") -> None:
    path = folder / name
    path.write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")


@pytest.mark.skipif(not supported(), reason="no own kernels for this system")
def test_it_is_made_once_though_two_ask(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = f'echo x >> {folder}/runs; while [ "$1" != -o ]; do shift; done; echo made > "$2"'
    compiler_of(folder, script, monkeypatch)
    thread, command = compile_ahead(), next(compilers(), None)
    assert thread is not None and command is not None
    file = built(command)
    thread.join(60)
    assert file.read_text() == "made\n" and (folder / "runs").read_text() == "x\n"


@pytest.mark.skipif(not supported(), reason="no own kernels for this system")
def test_other_instructions_are_another_library(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compiler_of(folder, 'all="$*"; while [ "$1" != -o ]; do shift; done; echo "$all" > "$2"', monkeypatch)
    command = next(compilers(), None)
    assert command is not None
    own, other = built(command), built(command, "-march=x86-64-v3")
    assert own != other and "native" in own.read_text() and "-march=x86-64-v3" in other.read_text()
    assert "native" not in other.read_text().replace("kernels/native", "")


@pytest.mark.skipif(not supported(), reason="no own kernels for this system")
def test_failures_are_quiet(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compiler_of(folder, "echo out of luck >&2; exit 1", monkeypatch)
    thread, command = compile_ahead(), next(compilers(), None)
    assert thread is not None and command is not None
    thread.join(60)
    assert not thread.is_alive() and not list((folder / "kernels").iterdir())
    with pytest.raises(subprocess.CalledProcessError):
        built(command)


def test_not_where_torch_shall_compute(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SETTING, "torch")
    assert compile_ahead() is None
    monkeypatch.delenv(SETTING)
    monkeypatch.setattr(native_build, "supported", lambda: False)
    assert compile_ahead() is None


def test_it_needs_no_torch() -> None:
    code = "import sys, triforce_core.native_build; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], cwd=Path(__file__).parents[1], timeout=120).returncode == 0


def on_path(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """This folder's programs are all there are, whatever system is played."""
    monkeypatch.setattr(native_build.shutil, "which",
                        lambda name: str(folder / name) if (folder / name).is_file() else None)


def called(folder: Path, system: str, machine: str, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, str]:
    """The library's file on such a machine, and what its compiler was told but for paths."""
    compiler_of(folder, 'all="$*"; while [ "$1" != -o ]; do shift; done; echo "$all" > "$2"', monkeypatch, "clang")
    on_path(folder, monkeypatch)
    monkeypatch.setattr(sys, "platform", system)
    monkeypatch.setattr(platform, "machine", lambda: machine)
    command = next(compilers(), None)
    assert command == [str(folder / "clang")]
    file = built(command)
    told = file.read_text().split()
    assert told[told.index("-o") + 2].endswith("pass.c")
    return file, " ".join(word for word in told if "/" not in word)


@pytest.mark.skipif(sys.platform == "win32", reason="the compiler here is a shell script")
@pytest.mark.parametrize(("system", "machine", "suffix", "told"), [
    ("linux", "x86_64", ".so", "-O3 -std=gnu11 -shared -fPIC -march=native -o -lm -lpthread"),
    ("linux", "aarch64", ".so", "-O3 -std=gnu11 -shared -fPIC -mcpu=native -o -lm -lpthread"),
    ("darwin", "arm64", ".dylib", "-O3 -std=gnu11 -shared -fPIC -mcpu=native -o -lm -lpthread"),
    ("darwin", "x86_64", ".dylib", "-O3 -std=gnu11 -shared -fPIC -march=native -o -lm -lpthread"),
    ("win32", "AMD64", ".dll", "-O3 -std=gnu11 -shared -march=native -o"),
    ("win32", "ARM64", ".dll", "-O3 -std=gnu11 -shared -mcpu=native -o")])
def test_what_a_compiler_is_told(system: str, machine: str, suffix: str, told: str, folder: Path,
                                 monkeypatch: pytest.MonkeyPatch) -> None:
    file, words = called(folder, system, machine, monkeypatch)
    assert file.parent == folder / "kernels" and file.suffix == suffix and words == told


def test_windows_takes_no_gcc(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its stack is not aligned for wide vectors there."""
    for name in ("cc", "gcc"):
        compiler_of(folder, "exit 0", monkeypatch, name)
    on_path(folder, monkeypatch)
    assert list(compilers()) == [[str(folder / "cc")]]
    monkeypatch.setattr(sys, "platform", "win32")
    assert list(compilers()) == []
    monkeypatch.setattr(native_build, "find_spec", lambda name: name)
    assert list(compilers()) == [[sys.executable, "-m", "ziglang", "cc"]]


@pytest.mark.parametrize(("script", "found"), [("exit 2", False), (None, False), ("echo /tools", True)])
def test_macos_is_asked_before_its_stub_is_called(script: str | None, found: bool, folder: Path,
                                                  monkeypatch: pytest.MonkeyPatch) -> None:
    """Where Apple's tools are not installed, ``cc`` opens a window that offers to."""
    compiler_of(folder, f"touch {folder}/window", monkeypatch)
    if script is not None:
        compiler_of(folder, script, monkeypatch, "xcode-select")
    on_path(folder, monkeypatch)
    monkeypatch.setattr(sys, "platform", "darwin")
    assert next(compilers(), None) == [str(folder / "cc")]  # somebody's own compiler, elsewhere
    monkeypatch.setattr(native_build, "_STUBS", folder)
    assert (next(compilers(), None) == [str(folder / "cc")]) == found
    assert not (folder / "window").exists()


def test_the_next_compiler_is_asked_where_one_fails(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As clang without the headers of Windows, where ziglang brings its own."""
    compiler_of(folder, "exit 1", monkeypatch)
    good = folder / "good"
    good.write_text('#!/bin/sh\nwhile [ "$1" != -o ]; do shift; done; echo made > "$2"\n', encoding="utf-8")
    good.chmod(0o755)
    monkeypatch.setattr(native_build, "compilers", lambda: iter([[str(folder / "cc")], [str(good)]]))
    thread = compile_ahead()
    assert thread is not None
    thread.join(60)
    assert [file.read_text() for file in (folder / "kernels").iterdir()] == ["made\n"]


TARGETS = {"x86_64-windows-gnu": ("win32", "-march=x86_64_v3"), "aarch64-windows-gnu": ("win32", "-mcpu=generic+bf16"),
           "aarch64-macos": ("darwin", "-mcpu=apple_m1"), "x86_64-macos": ("darwin", "-march=x86_64_v3")}
NAMES = ("pass", "attention", "linear", "laws", "heaviest", "gather")


@pytest.mark.exhaustive
@pytest.mark.skipif(find_spec("ziglang") is None, reason="no package ziglang, which compiles for other systems")
@pytest.mark.parametrize("target", TARGETS)
def test_other_systems_libraries_are_made(target: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether they run is another matter; see ``tests/kernels/emulated.py``."""
    system, instructions = TARGETS[target]
    monkeypatch.setattr(sys, "platform", system)
    made = built([sys.executable, "-m", "ziglang", "cc", "-target", target], instructions).read_bytes()
    assert made[:4] == (b"MZ\x78\0" if system == "win32" else bytes.fromhex("cffaedfe"))
    assert all(b"triforce_" + name.encode() in made for name in NAMES)
