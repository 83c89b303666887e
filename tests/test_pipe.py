"""Frames between processes, whole or not at all."""

from __future__ import annotations

import os

import pytest

from triforce_core.pipe import Receiver, Sender


def test_frames() -> None:
    read, write = os.pipe()
    with open(read, "rb", buffering=0) as reader, open(write, "wb", buffering=0) as writer:
        receiver, sender = Receiver(reader), Sender(writer)
        sender.send("a")
        sender.send("b" * 10_000)
        assert receiver.receive() == "a" and receiver.receive() == "b" * 10_000
        writer.write(b"\x05\x00\x00\x00ab")  # dies in the middle of a frame
        writer.close()
        with pytest.raises(EOFError):
            receiver.receive()
