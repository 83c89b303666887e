"""A tab with a document that was read."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from little_books import opened

if TYPE_CHECKING:  # see tests/ui/conftest.py
    from ui.app.services import Services
    from ui.app.tab_view import TabView


@pytest.fixture
def view(services: Services, tmp_path: Path) -> TabView:
    return opened(services, tmp_path, "book.txt", 4)
