"""``python -m docs.attached`` runs and says what it measured; what it measures, a quiet machine must say."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.slow
@pytest.mark.browser
def test_with_and_without_a_page(chromium) -> None:
    done = subprocess.run([sys.executable, "-m", "docs.attached", "--engine", "scripted", "--pairs", "1"], cwd=ROOT,
                          check=True, capture_output=True, text=True, timeout=120)
    found = json.loads(done.stdout)
    assert found["tokens"]["attached"] == found["tokens"]["alone"] > 50
    assert found["share"] == found["attached_tokens_per_second"] / found["alone_tokens_per_second"] > 0
