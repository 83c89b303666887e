"""Compiling ahead: the library is there when it is asked for, and whatever fails is left to who asks."""

from __future__ import annotations

import platform
import stat
import subprocess
import sys
import zipfile
from importlib.util import find_spec
from pathlib import Path

import pytest

from triforce_core import native_build
from triforce_core.native_build import (
    CACHE,
    SETTING,
    brought,
    built,
    compile_ahead,
    compile_levels,
    compilers,
    supported,
)

WRITES = 'all="$*"; while [ "$1" != -o ]; do shift; done; echo "$all" > "$2"'  # what it was told


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv(SETTING, raising=False)
    monkeypatch.setenv(CACHE, str(tmp_path / "kernels"))
    monkeypatch.setattr(native_build, "find_spec", lambda name: None)
    monkeypatch.setattr(native_build, "AHEAD", tmp_path / "none")
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
    compiler_of(folder, WRITES, monkeypatch)
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
    compiler_of(folder, WRITES, monkeypatch, "clang")
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


needs_levels = pytest.mark.skipif(sys.platform != "linux" or platform.machine() != "x86_64",
                                  reason="compiled ahead for Linux on x86 alone")
SKYLAKE = "fpu fma avx2 bmi1 bmi2 f16c movbe avx512f avx512bw avx512dq avx512vl avx512cd"
CPUS = {"fpu sse2": None, "fma avx2 bmi1 bmi2 f16c movbe": "avx2", SKYLAKE.replace(" avx512vl", ""): "avx2",
        SKYLAKE: "avx512", SKYLAKE + " avx512vbmi": "avx512", SKYLAKE + " avx512vbmi avx512_bf16": "avx512-bf16",
        SKYLAKE + " avx512vbmi avx512_bf16 amx_tile amx_bf16": "amx"}


@needs_levels
def test_a_cpu_gets_the_best_level_it_has(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compiler_of(folder, WRITES, monkeypatch)
    made = compile_levels(folder / "ahead")
    told = {file.name.rpartition("-")[0]: file.read_text() for file in made}
    assert len(told) == 4 and "-mamx-bf16" in told["amx"]
    assert "-march=x86-64-v3" in told["avx2"] and "-mavx512bf16" in told["avx512-bf16"]
    monkeypatch.setattr(native_build, "AHEAD", folder / "ahead")
    for flags, level in CPUS.items():
        monkeypatch.setattr(native_build, "_cpu", lambda flags=flags: f"flags\t: {flags}\n")
        file = brought()
        assert (None if file is None else file.name.rpartition("-")[0]) == level
    assert compile_ahead() is None  # there is nothing to wait for


@needs_levels
def test_libraries_of_another_source_are_not_taken(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compiler_of(folder, WRITES, monkeypatch)
    monkeypatch.setattr(native_build, "AHEAD", folder / "ahead")
    monkeypatch.setattr(native_build, "_cpu", lambda: SKYLAKE)
    compile_levels(folder / "ahead")
    assert brought() is not None
    (folder / "pass.c").write_text("changed", encoding="utf-8")
    monkeypatch.setattr(native_build, "_SOURCE", folder)
    assert brought() is None


ROOT = Path(__file__).parents[1]
OF_A_WHEEL = ("setup.py", "pyproject.toml", "requirements.txt", "README.md", "triforce_core/__init__.py",
              "triforce_core/native_build.py", "triforce_core/kernels/native/pass.c")


@needs_levels
@pytest.mark.parametrize(("script", "libraries"), [(WRITES, 4), ("exit 1", 0)])
def test_a_wheel_brings_them_where_they_can_be_made(script: str, libraries: int, folder: Path,
                                                    monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("setuptools.command.bdist_wheel", reason="no setuptools that makes wheels itself")
    compiler_of(folder, script, monkeypatch)
    for name in OF_A_WHEEL:
        to = folder / "tree" / name
        to.parent.mkdir(parents=True, exist_ok=True)
        to.write_bytes((ROOT / name).read_bytes())
    subprocess.run([sys.executable, "setup.py", "-q", "bdist_wheel"], cwd=folder / "tree", check=True, timeout=120)
    wheel, = (folder / "tree" / "dist").iterdir()
    with zipfile.ZipFile(wheel) as file:
        held = [name for name in file.namelist() if "/kernels/ahead/" in name]
        tags = file.read(next(name for name in file.namelist() if name.endswith("/WHEEL"))).decode()
    tag = "py3-none-linux_x86_64" if libraries else "py3-none-any"
    assert len(held) == libraries and wheel.stem.endswith(tag) and f"Tag: {tag}\n" in tags


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
