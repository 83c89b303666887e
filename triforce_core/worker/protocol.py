"""What the two processes say to each other, and how it is framed.

The parent writes ``Request``, ``Cancel`` and ``Close`` to the child's stdin; the child answers on a private copy of
its stdout. Both are anonymous pipes of exactly these two processes: nobody else can reach them, so there is no
password and no port. They are used raw: a dying interpreter trips over the locks of buffered files. A frame is its
length (u32) and a pickle. Only our own values, plain Python ones and TriForceErrors are let out of a pickle: anything
else (a tensor, a numpy number, code) is refused on arrival.

A verb is one Request; the child answers Accepted, then Yielded for every event, then exactly one of Returned,
Failed and Crashed; Reported may come in between. After Crashed the child ends.
"""

from __future__ import annotations

import io
import pickle
import struct
import threading
from dataclasses import dataclass
from io import RawIOBase
from typing import Any

from ..config import SamplingParams, SpeculationConfig
from ..documents.document import Document
from ..errors import TriForceError
from ..events import DocumentFit, EngineFacts, Event, Turn

_LENGTH = struct.Struct("<I")
_PLAIN = frozenset({("builtins", name) for name in ("set", "frozenset", "complex", "slice", "range", "bytearray")})
_PATHS = frozenset({"Path", "PosixPath", "WindowsPath", "PurePosixPath", "PureWindowsPath", "PurePath"})
_OURS = ("triforce_core.events", "triforce_core.config", "triforce_core.errors", "triforce_core.documents.document",
         "triforce_core.worker.protocol")


@dataclass(frozen=True, slots=True)
class Check:
    """Say what there is and what would be loaded; needs no Load and replaces none."""


@dataclass(frozen=True, slots=True)
class Load:
    """Build the engine from the configuration that came first, and load it."""


@dataclass(frozen=True, slots=True)
class Tune:
    """Measure what passes cost on this machine, with so many tokens of context (none: the usual ones)."""

    contexts: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Measure:
    document: Document


@dataclass(frozen=True, slots=True)
class OpenDocument:
    document: Document


@dataclass(frozen=True, slots=True)
class Ask:
    question: str | None
    history: tuple[Turn, ...]
    sampling: SamplingParams
    speculation: SpeculationConfig
    system: str = ""


@dataclass(frozen=True, slots=True)
class Prepare:
    """Between answers: see ``Engine.prepare``."""


Verb = Check | Load | Tune | Measure | OpenDocument | Ask | Prepare


@dataclass(frozen=True, slots=True)
class Request:
    number: int
    verb: Verb


@dataclass(frozen=True, slots=True)
class Cancel:
    """End request ``number`` early; of no effect when it has ended."""

    number: int


@dataclass(frozen=True, slots=True)
class Close: ...


@dataclass(frozen=True, slots=True)
class Accepted:
    """The child has begun this request: from here on it may have effects."""

    number: int


@dataclass(frozen=True, slots=True)
class Yielded:
    number: int
    event: Event


@dataclass(frozen=True, slots=True)
class Reported:
    """Where things lie at this moment; belongs to no request, and may come at any time while one is worked on."""

    facts: EngineFacts


@dataclass(frozen=True, slots=True)
class Returned:
    number: int
    value: DocumentFit | None = None


@dataclass(frozen=True, slots=True)
class Failed:
    """A problem that a person can mend; the child stays usable."""

    number: int
    error: TriForceError


@dataclass(frozen=True, slots=True)
class Crashed:
    """A problem that nobody foresaw; the child ends after this, because its state can no longer be trusted."""

    number: int
    cause: str


class Refused(Exception):
    """A frame held something that may not cross."""


class _OurValuesOnly(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        is_path = module.split(".")[0] == "pathlib" and name in _PATHS
        if is_path or (module, name) in _PLAIN:
            return super().find_class(module, name)
        if module.split(".")[0] == "triforce_core" and "." not in name:
            found = super().find_class(module, name)
            settings = isinstance(found, type) and issubclass(found, SpeculationConfig)  # another kind of them, too
            if (module in _OURS or settings) and getattr(found, "__module__", None) == module:
                return found
        raise Refused(f"{module}.{name} may not cross between the processes")


def encode(message: object) -> bytes:
    return pickle.dumps(message, protocol=5)


def decode(data: bytes) -> Any:
    return _OurValuesOnly(io.BytesIO(data)).load()


class Sender:
    """Writes whole frames to an unbuffered pipe; any thread may send."""

    def __init__(self, pipe: RawIOBase) -> None:
        self._pipe, self._lock = pipe, threading.Lock()

    def send(self, message: object) -> None:
        """Raises OSError or ValueError when the pipe is gone."""
        data = encode(message)
        rest = memoryview(_LENGTH.pack(len(data)) + data)
        with self._lock:
            while rest:
                rest = rest[self._pipe.write(rest) or 0 :]

    def close(self) -> None:
        """Never in the middle of a frame. Whoever sends afterwards gets ValueError."""
        with self._lock:
            self._pipe.close()


class Receiver:
    """Reads whole frames from an unbuffered pipe, blocking: waiting costs nothing. One thread reads."""

    def __init__(self, pipe: RawIOBase) -> None:
        self._pipe = pipe

    def receive(self) -> Any:
        """The next message. Raises EOFError when the other side is gone, also in the middle of a frame."""
        return decode(self._exactly(_LENGTH.unpack(self._exactly(_LENGTH.size))[0]))

    def _exactly(self, count: int) -> bytes:
        data = bytearray()
        while len(data) < count:
            part = self._pipe.read(min(count - len(data), 1024**2))
            if not part:
                raise EOFError
            data += part
        return bytes(data)
