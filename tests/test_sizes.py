"""Rooms stay within the lines that CONTRIBUTING.md gives them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
BUDGETS = {room: int(lines.replace(",", "")) for room, lines in re.findall(
    r"`([\w/]+)/?` \| ([\d,]+)", (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8"))}


def lines_below(folder: Path) -> int:
    return sum(len(path.read_text(encoding="utf-8").splitlines()) for path in folder.rglob("*.py"))


@pytest.mark.parametrize("room", BUDGETS)
def test_a_room_keeps_to_its_budget(room: str) -> None:
    lines = lines_below(ROOT / room)
    assert lines <= BUDGETS[room], f"{room} has {lines} lines: take some away, or say why it must grow"


def test_the_table_is_read() -> None:
    assert {"triforce_core", "ui", "tests"} <= set(BUDGETS) and len(BUDGETS) > 20
