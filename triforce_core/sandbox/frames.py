"""Frame what a limited process says: JSON messages with a length in front. Never pickle: the child is not trusted."""

from __future__ import annotations

import json
import struct
from typing import IO, Any

_LENGTH = struct.Struct(">I")
LONGEST = 256 << 20


class BrokenFrameError(Exception):
    """The stream ended inside a message, or what came is none."""


def write_frame(stream: IO[bytes], message: dict[str, Any]) -> None:
    data = json.dumps(message, ensure_ascii=True).encode()
    assert len(data) <= LONGEST
    stream.write(_LENGTH.pack(len(data)) + data)
    stream.flush()


def read_frame(stream: IO[bytes]) -> dict[str, Any] | None:
    """The next message, None at the end of the stream."""
    head = stream.read(_LENGTH.size)
    if not head:
        return None
    size = _LENGTH.unpack(head)[0] if len(head) == _LENGTH.size else LONGEST + 1
    if size > LONGEST:
        raise BrokenFrameError
    data = stream.read(size)
    try:
        message = json.loads(data)
    except ValueError as problem:
        raise BrokenFrameError from problem
    if len(data) != size or not isinstance(message, dict):
        raise BrokenFrameError
    return message
