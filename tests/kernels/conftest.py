"""The CPU's own kernels as other CPUs have them: compiled for fewer instructions than this CPU has, and run here."""

from __future__ import annotations

import ctypes
import platform
from collections.abc import Callable, Iterator
from functools import cache
from typing import cast

import pytest
import torch
from kernels import emulated

from triforce_core import native_build
from triforce_core.kernels import compiled, library
from triforce_core.kernels.library import Compiled

OWN = "native"
# What -march calls them -> what torch says of the CPUs that run them.
LEVELS = {"x86-64-v4": ("AVX512",), "x86-64-v3": ("AVX512", "AVX2"), "x86-64": ("AVX512", "AVX2", "DEFAULT")}
if platform.machine() in ("aarch64", "arm64"):
    LEVELS = {"armv8-a": ("DEFAULT", "SVE128", "SVE256")}
SELDOM = {"x86-64", *emulated.LEVELS}  # processors of fifteen years ago; slow


@pytest.fixture(scope="session")
def library_for(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], Compiled]]:
    """By level; each is compiled once, which takes seconds."""
    own, folder, programs = compiled(), tmp_path_factory.mktemp("kernels"), []

    @cache
    def found(level: str) -> Compiled:
        command = next(native_build.compilers(), None)
        if own.library is None or level == OWN or command is None:
            return own
        if level in emulated.LEVELS:
            if emulated.missing(level):
                return Compiled(None, f"no {emulated.missing(level)}")
            programs.append(emulated.Emulated(level, tmp_path_factory.mktemp("emulated")))
            return Compiled(cast(ctypes.CDLL, programs[-1]), level)
        if torch.backends.cpu.get_cpu_capability() not in LEVELS[level]:
            return Compiled(None, f"not for this CPU, which has no {LEVELS[level][-1]}")
        own_name = level.replace("-", "_") if "ziglang" in command else level
        with pytest.MonkeyPatch.context() as monkeypatch:
            monkeypatch.setenv(library.CACHE, str(folder))
            return Compiled(ctypes.CDLL(str(native_build.built(command, f"-march={own_name}"))), level)

    yield found
    for program in programs:
        program.close()


@pytest.fixture(params=[OWN, *(pytest.param(level, marks=pytest.mark.exhaustive) if level in SELDOM else level
                               for level in (*LEVELS, *emulated.LEVELS))])
def level(request: pytest.FixtureRequest, library_for: Callable[[str], Compiled],
          monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Own kernels of each level, one after another, are what ``compiled()`` finds."""
    params = request.node.callspec.params
    if request.param in emulated.LEVELS and (params.get("seed", 0) >= 6 or params.get("cached", 0) > 1000):
        pytest.skip("takes minutes where it is emulated")
    found = library_for(request.param)
    if found.library is None:
        pytest.skip(f"kernels: {found.summary}")
    monkeypatch.setattr(library, "_find", lambda: found)
    compiled.cache_clear()
    yield request.param
    compiled.cache_clear()
