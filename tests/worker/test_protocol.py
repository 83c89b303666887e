"""What may cross the pipe, and what may not."""

from __future__ import annotations

import os
import pickle
from pathlib import Path

import numpy
import pytest

from triforce_core.config import EngineConfig, SamplingParams, SpeculationConfig
from triforce_core.documents.document import Document, Page
from triforce_core.errors import ContextTooLongError
from triforce_core.events import QuoteEvent, QuoteOccurrence, QuotePlace, RoundEvent, TierCount, Turn
from triforce_core.worker.protocol import Ask, Failed, Receiver, Refused, Request, Sender, Yielded, decode, encode

VALUES = [
    EngineConfig(saved_readings=Path("/tmp/x")),
    Request(1, Ask("why?", (Turn("a", (1, 2)),), SamplingParams(seed=7), SpeculationConfig())),
    Request(2, Ask(None, (), SamplingParams(), SpeculationConfig())),
    Document("t", "txt", (Page("1", "é\x00"),), "text", ("careful",)),
    Yielded(3, RoundEvent(0, (1,), ("bonus",), (TierCount("draft", 2, 1),), {"verify": 1.5}, (0.5, 0.5), 0.1)),
    Yielded(4, QuoteEvent(0, 1, 9, True, 2, (QuoteOccurrence(5, 8, (QuotePlace(1, "i", 3, 11),)),))),
]


@pytest.mark.parametrize("value", VALUES, ids=lambda value: type(value).__name__)
def test_our_values_cross(value: object) -> None:
    assert decode(encode(value)) == value


def test_errors_cross_with_their_parts() -> None:
    error = decode(encode(Failed(1, ContextTooLongError("40 tokens", allowed="30", remedy="--pages 1-2")))).error
    assert type(error) is ContextTooLongError
    assert (error.message, error.allowed, error.remedy) == ("40 tokens", "30", "--pages 1-2")


class Evil:
    def __reduce__(self) -> tuple:
        return os.system, ("true",)


@pytest.mark.parametrize("value", [Evil(), numpy.float32(1), numpy.zeros(3), os.system, eval, RuntimeError("x"),
                                   Sender.send])
def test_nothing_else_crosses(value: object) -> None:
    with pytest.raises(Refused):
        decode(pickle.dumps(Yielded(1, value)))  # type: ignore[arg-type]


def test_what_our_modules_import_is_not_ours() -> None:
    with pytest.raises(Refused):
        decode(b"ctriforce_core.worker.protocol\npickle\n.")


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
