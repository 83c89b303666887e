"""Compiling ahead: the library is there when it is asked for, and whatever fails is left to who asks."""

from __future__ import annotations

import stat
import subprocess
import sys
from pathlib import Path

import pytest

from triforce_core import native_build
from triforce_core.native_build import CACHE, SETTING, built, compile_ahead, compiler, supported


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv(SETTING, raising=False)
    monkeypatch.setenv(CACHE, str(tmp_path / "kernels"))
    return tmp_path


def compiler_of(folder: Path, script: str, monkeypatch: pytest.MonkeyPatch) -> None:
    path = folder / "cc"
    path.write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")


@pytest.mark.skipif(not supported(), reason="no own kernels for this system")
def test_it_is_made_once_though_two_ask(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = f'echo x >> {folder}/runs; while [ "$1" != -o ]; do shift; done; echo made > "$2"'
    compiler_of(folder, script, monkeypatch)
    thread, command = compile_ahead(), compiler()
    assert thread is not None and command is not None
    file = built(command)
    thread.join(60)
    assert file.read_text() == "made\n" and (folder / "runs").read_text() == "x\n"


@pytest.mark.skipif(not supported(), reason="no own kernels for this system")
def test_other_instructions_are_another_library(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compiler_of(folder, 'all="$*"; while [ "$1" != -o ]; do shift; done; echo "$all" > "$2"', monkeypatch)
    command = compiler()
    assert command is not None
    own, other = built(command), built(command, "-march=x86-64-v3")
    assert own != other and "native" in own.read_text() and "-march=x86-64-v3" in other.read_text()
    assert "native" not in other.read_text().replace("kernels/native", "")


@pytest.mark.skipif(not supported(), reason="no own kernels for this system")
def test_failures_are_quiet(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compiler_of(folder, "echo out of luck >&2; exit 1", monkeypatch)
    thread, command = compile_ahead(), compiler()
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
