"""``python -m docs.attached`` runs and says what it measured; what it measures, a quiet machine must say."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from docs.attached import long_sentences, rate

ROOT = Path(__file__).resolve().parents[3]


def test_the_rate_is_all_tokens_over_all_the_time() -> None:
    """Not the mean of rates, in which a short answer would count as much as a long one."""
    assert rate([{"tokens": 300, "tokens_per_second": 100.0}, {"tokens": 10, "tokens_per_second": 10.0},
                 {"tokens": 1, "tokens_per_second": 0.0}]) == 310 / 4


def test_the_made_document_has_long_sentences(tmp_path: Path) -> None:
    sentences = long_sentences(tmp_path).read_text().split("\n\n")
    assert len(sentences) > 10 and all(300 <= len(each.split()) < 400 for each in sentences[:-1])
    assert all(each.endswith(".") and "; " in each and ". " not in each.replace("e.g. ", "") for each in sentences[:-1])


@pytest.mark.exhaustive  # what it measures wants the machine to itself
@pytest.mark.slow
@pytest.mark.browser
def test_with_and_without_a_page(chromium) -> None:
    """The scripted engine waits by the clock, so a page can take no more from it than a busy machine takes."""
    done = subprocess.run([sys.executable, "-m", "docs.attached", "--engine", "scripted", "--pairs", "1"], cwd=ROOT,
                          check=True, capture_output=True, text=True, timeout=200)
    found = json.loads(done.stdout)
    assert found["tokens"]["attached"] == found["tokens"]["alone"] > 50
    assert 0.8 < found["share"] < 1.25 and found["share_of_each"] == [found["share"]]
    assert found["good"] == (found["share"] >= found["least"])
