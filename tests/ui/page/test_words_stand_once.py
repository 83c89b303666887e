"""Of two words under one name the first is never shown."""

from __future__ import annotations

import ast
from collections import Counter
from pathlib import Path

import pytest

UI = Path(__file__).resolve().parents[3] / "ui"


@pytest.mark.parametrize("path", sorted([*UI.glob("page/*.py"), *UI.glob("app/*.py")]),
                         ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_every_name_is_given_once(path: Path) -> None:
    names = Counter(name.id for line in ast.parse(path.read_text(encoding="utf-8")).body if isinstance(line, ast.Assign)
                    for target in line.targets for name in ast.walk(target) if isinstance(name, ast.Name))
    assert [name for name, times in names.items() if times > 1] == []
