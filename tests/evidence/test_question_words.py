"""What a question asks for."""

from __future__ import annotations

import pytest

from triforce_core.evidence.question import names


@pytest.mark.parametrize(("question", "expected"), [
    ("When did the Senate pass the TICKET Act?", ["senate", "ticket", "act"]),
    ("How many bridges were in poor condition in 2005?", ["2005"]),
    ("What was the first name of Miss Read’s mother?", ["miss", "read"]),
    ("Does it say what I asked, and what I'd pay? Up to 1,500?", ["up", "1,500"]),
    ("what is congestion pricing", []),
    ("WHAT IS THE LIMIT?", []),
    ("", []),
])
def test_names_are_capitals_and_numbers(question: str, expected: list[str]) -> None:
    assert names(question) == expected
