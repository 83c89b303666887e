"""What training writes is what the app reads: word vectors."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch")
pytest.importorskip("zstandard")
pytest.importorskip("sentencepiece")

from training.words import save as save_vectors
from triforce_core.evidence.vectors import WordVectors, unit


def test_saved_vectors_are_loaded(tmp_path: Path) -> None:
    """Coarsely: up to half a step, of 8 from nothing to a row's largest entry."""
    words = [f"w{number}" for number in range(40)]
    rows = unit(np.random.default_rng(0).normal(size=(40, 96))).astype(np.float32)
    save_vectors(tmp_path / "v.npz", words, rows, np.full(40, 5.25))
    loaded = WordVectors.load(tmp_path / "v.npz")
    assert list(loaded.number) == words and set(loaded.rarity) == {5.25}
    with np.load(tmp_path / "v.npz") as stored:
        assert stored["vectors"].dtype == np.int8 and set(np.abs(stored["vectors"]).max(1)) == {8}
    assert np.linalg.norm(loaded.vectors, axis=1) == pytest.approx(1, abs=1e-5)
    assert ((loaded.vectors * rows).sum(1) > 0.98).all()
    assert [file.name for file in tmp_path.iterdir()] == ["v.npz"]
