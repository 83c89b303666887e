"""What the two processes say to each other crosses a pipe whole."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

from triforce_core.config import EngineConfig, SamplingParams, SpeculationConfig
from triforce_core.documents.document import Document, Page
from triforce_core.errors import ContextTooLongError
from triforce_core.events import QuoteEvent, QuoteOccurrence, QuotePlace, RoundEvent, TierCount, Turn
from triforce_core.worker.protocol import Ask, Failed, Request, Yielded

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
    assert pickle.loads(pickle.dumps(value)) == value


def test_errors_cross_with_their_parts() -> None:
    failed = Failed(1, ContextTooLongError("40 tokens", allowed="30", remedy="--pages 1-2"))
    error = pickle.loads(pickle.dumps(failed)).error
    assert type(error) is ContextTooLongError
    assert (error.message, error.allowed, error.remedy) == ("40 tokens", "30", "--pages 1-2")
