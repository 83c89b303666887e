"""The CPU's own kernels on a machine that this one is not: compiled for it by another compiler, and emulated.

Debian's packages gcc-aarch64-linux-gnu, libc6-dev-arm64-cross and qemu-user have what ARM takes; for Windows it is the
package ziglang and Debian's wine64."""

from __future__ import annotations

import ctypes
import os
import shutil
import struct
import subprocess
import sys
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

from triforce_core.kernels import native

_HERE = Path(__file__).resolve().parent
_SOURCE = _HERE.parents[1] / "triforce_core" / "kernels" / "native"


class _Machine(NamedTuple):
    compiler: list[str]
    package: str  # that has it, or the program's name
    instructions: str
    emulator: str


_ARM = partial(_Machine, ["aarch64-linux-gnu-gcc"], "aarch64-linux-gnu-gcc", emulator="qemu-aarch64")
LEVELS = {
    "aarch64": _ARM("armv8-a"), "aarch64 with bf16": _ARM("armv8.2-a+bf16+i8mm"),
    "windows": _Machine([sys.executable, "-m", "ziglang", "cc", "-target", "x86_64-windows-gnu"], "ziglang",
                        "x86_64_v3", "wine64")}


def missing(level: str) -> str:
    """What is needed and not there; empty: nothing."""
    machine = LEVELS[level]
    compiles = shutil.which(machine.package) or find_spec(machine.package)
    return ", ".join(name for name, there in ((machine.package, compiles), (machine.emulator, _emulator(machine)))
                     if not there)


def _emulator(machine: _Machine) -> str | None:
    return shutil.which(machine.emulator) or shutil.which(machine.emulator, path="/usr/lib/wine")  # Debian's place


class Emulated:
    """Has the functions of the library. Two threads compute but for a whole pass, which says itself how many."""

    def __init__(self, level: str, folder: Path) -> None:
        program, machine = folder / "called", LEVELS[level]
        subprocess.run([*machine.compiler, "-O3", "-std=gnu11", f"-march={machine.instructions}", "-static",
                        f"-I{_SOURCE}", "-o", str(program), str(_HERE / "called.c"), "-lm", "-lpthread"], check=True,
                       timeout=120)
        own = {"WINEPREFIX": str(folder / "wine"), "WINEDEBUG": "-all"}  # its settings, made anew
        self.process = subprocess.Popen([_emulator(machine) or machine.emulator, str(program)],
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=os.environ | own)

    def close(self) -> None:
        self.process.communicate()

    def triforce_linear(self, given: Any, x: ctypes.c_void_p, y: ctypes.c_void_p, n: ctypes.c_int64,
                        threads: ctypes.c_int64) -> int:
        call, own = _Call(), given._obj
        first = call.add(own)
        _point_linear(call, first, 0, own)
        return call.by(self.process, 2, first, call.add_at(x.value, n.value * own.inputs * 2),
                       call.add_at(y.value, n.value * own.outputs * 4), n.value)

    def triforce_attention(self, given: Any, threads: ctypes.c_int64) -> int:
        call, own = _Call(), given._obj
        asked = own.n * own.heads * own.group * own.dim * 2
        call.point(call.add(own), 0, own, queries=asked, keys=own.heads * own.stride, values=own.heads * own.stride,
                   out=asked, mass=own.heads * own.chunks * 4, mask=own.n * own.masked)
        return call.by(self.process, 1)

    def triforce_laws(self, given: Any, rows: ctypes.c_int64, threads: ctypes.c_int64) -> int:
        call, own = _Call(), given._obj
        size = rows.value * own.width * 4
        call.point(call.add(own), 0, own, logits=size, out=size)
        return call.by(self.process, 3, count=rows.value)

    def triforce_heaviest(self, given: Any, rows: ctypes.c_int64) -> int:
        call, own = _Call(), given._obj
        call.point(call.add(own), 0, own, scores=((rows.value - 1) * own.stride + own.count) * 4,
                   chosen=rows.value * own.wanted * 8)
        return call.by(self.process, 4, count=rows.value)

    def triforce_settle(self, at: ctypes.c_void_p, size: ctypes.c_int64) -> None:
        """Its memory lies elsewhere."""

    def triforce_gather(self, given: Any, heads: ctypes.c_int64) -> int:
        call, own = _Call(), given._obj
        call.point(call.add(own), 0, own, to=heads.value * own.to_stride, source=heads.value * own.from_stride,
                   chunks=heads.value * own.k * 8)
        return call.by(self.process, 5, count=heads.value)

    def triforce_panels(self, given: Any, threads: ctypes.c_int64) -> int:
        call, own = _Call(), given._obj
        filled = -(-own.rows // native.PANEL) * native.PANEL * own.count
        call.point(call.add(own), 0, own, source=own.rows * own.count * (own.size or 1),
                   to=filled * own.bits // 8 if own.bits else filled * own.size)
        return call.by(self.process, 6)

    def triforce_pass(self, given: Any) -> int:
        call, p = _Call(), given._obj
        asked = p.heads * p.group * p.dim
        first, layers = call.add(p), (native.LayerStruct * p.num_layers).from_address(ctypes.addressof(p.layers[0]))
        places = (native.PlaceStruct * p.num_layers).from_address(p.places)
        head, ropes = p.head[0], 1 + max(max(layer.rope, layer.query_rope) for layer in layers)
        call.point(first, 0, p, layers=ctypes.sizeof(layers), head=ctypes.sizeof(head), final_norm=p.width * 4,
                   cos=ropes * p.n * p.dim * 4, sin=ropes * p.n * p.dim * 4, hidden=p.n * p.width * 4,
                   logits=p.logits_rows * head.outputs * 4, places=ctypes.sizeof(places),
                   mass=p.num_layers * p.heads * p.chunks * 4,
                   queries=p.n * asked * 2 * (p.num_layers if p.keeps_queries else 1),
                   narrow=p.n * max(p.width, asked, p.inner) * 2,
                   wide=p.n * max(asked + 2 * p.heads * p.dim, 2 * p.inner, p.width) * 4)
        _point_linear(call, call.numbers["head"], 0, head)
        around = call.numbers["places"]
        for i, layer in enumerate(layers):
            start, block = i * ctypes.sizeof(native.LayerStruct), call.numbers["layers"]
            for name in ("qkv", "output", "gate_up", "down"):
                _point_linear(call, block, start + getattr(native.LayerStruct, name).offset, getattr(layer, name))
            heads = (p.heads * p.group, p.heads) if layer.whole else (1, 1)
            call.point(block, start, layer, input_norm=p.width * 4, post_norm=p.width * 4, q_norm=heads[0] * p.dim * 4,
                       k_norm=heads[1] * p.dim * 4, attention_norm=p.width * 4, mlp_norm=p.width * 4)
            own, at = places[i], i * ctypes.sizeof(native.PlaceStruct)
            cache = p.heads * own.slots * own.row
            call.point(around, at, own, keys=cache, values=cache, mask=p.n * own.masked)
        return call.by(self.process, 0)


def _point_linear(call: _Call, block: int, start: int, own: Any) -> None:
    filled = -(-own.outputs // native.PANEL) * native.PANEL
    groups = own.inputs // 2 // own.group if own.group else 0
    scales = 4 * (filled * (groups >> own.shift) if own.group else own.outputs)
    call.point(block, start, own, weight=filled * own.inputs * (own.bits or 16) // 8, scale=scales,
               bias=own.outputs * 4, offset=scales, subscale=filled * groups, suboffset=filled * groups)


class _Call:
    """Memory that a call reads and writes, and the pointers in it."""

    def __init__(self) -> None:
        self.blocks: list[tuple[int, int]] = []  # address, size
        self.pointers: list[tuple[int, int, int]] = []  # in which block, where, to which
        self.numbers: dict[str, int] = {}  # of the blocks that were last pointed to, by field

    def add(self, own: Any) -> int:
        return self.add_at(ctypes.addressof(own), ctypes.sizeof(own))

    def add_at(self, address: int | None, size: int) -> int:
        assert address is not None and len(self.blocks) < 256
        self.blocks.append((address, size))
        return len(self.blocks) - 1

    def point(self, block: int, start: int, own: Any, **sizes: int) -> None:
        """Add what the fields of a structure, ``start`` bytes into a block, point to."""
        for name, size in sizes.items():
            place = getattr(type(own), name).offset
            address = ctypes.c_void_p.from_address(ctypes.addressof(own) + place).value
            if address is not None:
                self.numbers[name] = self.add_at(address, size)
                self.pointers.append((block, start + place, self.numbers[name]))

    def by(self, process: subprocess.Popen[bytes], which: int, first: int = 0, second: int = 0, third: int = 0,
           count: int = 0) -> int:
        assert process.stdin is not None and process.stdout is not None
        parts = [struct.pack("qq", which, len(self.blocks))]
        for address, size in self.blocks:
            parts += [struct.pack("q", size), ctypes.string_at(address, size)]
        parts.append(struct.pack("q", len(self.pointers)))
        parts += [struct.pack("qqq", *pointer) for pointer in self.pointers]
        parts.append(struct.pack("5q", first, second, third, count, 2))
        process.stdin.write(b"".join(parts))
        process.stdin.flush()
        result, = struct.unpack("q", process.stdout.read(8))
        pointing = {block for block, _, _ in self.pointers}
        for number, (address, size) in enumerate(self.blocks):
            changed = process.stdout.read(size)
            if number not in pointing:  # in those are the other program's pointers
                ctypes.memmove(address, changed, size)
        return int(result)
