"""Recorded event streams: a redesign changes no token, no draft and no count of any way of drafting.

Clocks are left out: lengths are given. After a wanted change, record anew (see ``golden_events``) and read what
differs."""

from __future__ import annotations

import json
import platform
from typing import Any

import pytest
from engine.golden_events import ASKED, GOLDEN, MODES, record, ways

pytestmark = [pytest.mark.timeout(900), pytest.mark.skipif(
    platform.machine() not in ("x86_64", "AMD64"), reason="recorded on x86-64: others add up in other orders")]


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    made = tmp_path_factory.mktemp("golden") / "events.json"
    record(made)
    return json.loads(made.read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def golden() -> dict[str, Any]:
    return json.loads(GOLDEN.read_text(encoding="utf-8"))


@pytest.mark.parametrize(("mode", "way"), [(mode, way) for mode in MODES for way in ways(mode)])
def test_events_are_as_recorded(found: dict[str, Any], golden: dict[str, Any], mode: str, way: str) -> None:
    for name, _, _ in ASKED:
        assert found[f"{mode}: {way}, {name}"] == golden[f"{mode}: {way}, {name}"], name


def test_nothing_else_was_recorded(found: dict[str, Any], golden: dict[str, Any]) -> None:
    assert list(found) == list(golden)
