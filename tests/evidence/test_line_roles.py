"""What kind of line a text stands on."""

from __future__ import annotations

import pytest

from triforce_core.evidence.line_roles import Role, line_roles


@pytest.mark.parametrize(("line", "role"), [
    ("The harbour master counted nine ships that morning.", Role.PROSE),
    ("Published: 2 May 2011", Role.PROSE),
    ("3.2. Where the ships lie", Role.HEADING),
    ("Where the ships lie", Role.HEADING),
    ("- Count the ships.", Role.ITEM),
    ("(a) the ship's papers, and", Role.ITEM),
    ("Iowa | 23,716 | 9,329", Role.ROW),
    ("[12] Lloyd, Register of Ships, 1904.", Role.NOTE),
    ("37. | 15 U.S.C. 45(a).", Role.NOTE),
    ("4. Server Requirements .............8", Role.CONTENTS),
    ("return sys.prefix != base", Role.CODE),
    ("while data := sock.recv(8192):", Role.CODE),
])
def test_each_kind_of_line_is_found(line: str, role: Role) -> None:
    assert line_roles([line]) == [role]


def test_a_lone_heading_that_ends_in_a_number_is_no_table_of_contents() -> None:
    assert line_roles(["The Act of 1996", "It was passed in May."])[0] is Role.HEADING
    contents = ["Of Ships 12", "Of Harbours 19", "Of Mills 30"]
    assert line_roles(contents) == [Role.CONTENTS] * 3


def test_a_lone_numbered_title_is_a_heading_and_a_list_is_none() -> None:
    lines = ["2. Fees", "Every ship pays a fee here.", "- pilot boats on duty.", "3. Lights", "The lamp burns."]
    assert [line_roles(lines)[at] for at in (0, 2, 3)] == [Role.HEADING, Role.ITEM, Role.HEADING]
    assert set(line_roles(["1. Ships of the navy", "2. Pilot boats", "3. Ships in distress"])) == {Role.ITEM}
