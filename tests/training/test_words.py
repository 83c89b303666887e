"""Word vectors: what is read, learnt and written."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("sentencepiece")

from training.question_sets import AskedDocument, Query
from training.words import save, skip_gram, write_stems
from triforce_core.evidence.word_vectors import WordVectors, unit

WORDS = 40


def test_what_is_saved_is_loaded(tmp_path: Path) -> None:
    """Coarsely: up to half a step, of 8 from nothing to a row's largest entry."""
    words = [f"w{number}" for number in range(WORDS)]
    rows = unit(np.random.default_rng(0).normal(size=(WORDS, 96))).astype(np.float32)
    save(tmp_path / "v.npz", words, rows, np.full(WORDS, 5.25))
    loaded = WordVectors.load(tmp_path / "v.npz")
    assert list(loaded.number) == words and set(loaded.rarity) == {5.25}
    with np.load(tmp_path / "v.npz") as stored:
        assert stored["vectors"].dtype == np.int8 and set(np.abs(stored["vectors"]).max(1)) == {8}
    assert np.linalg.norm(loaded.vectors, axis=1) == pytest.approx(1, abs=1e-5)
    assert ((loaded.vectors * rows).sum(1) > 0.98).all()
    assert [file.name for file in tmp_path.iterdir()] == ["v.npz"]


def test_stems_are_written_a_paragraph_a_line(tmp_path: Path) -> None:
    article = AskedDocument("a", ["Ships were sailing out.", "They sailed far.", "Too short."], [0, 0, 1],
                            [Query("Who?", "", (0,), "article")])
    assert write_stems({}, [article], (), None, tmp_path / "stems.txt") == 7
    assert (tmp_path / "stems.txt").read_text() == "ship were sail out they sail far\n"


def test_skip_gram_knows_words_of_like_use_and_repeats_itself(tmp_path: Path) -> None:
    pytest.importorskip("gensim")
    chance = np.random.default_rng(0)
    lines = []
    for _ in range(3000):
        about = chance.choice(["sea", "land"])
        lines.append(" ".join(chance.choice([f"{about}{letter}" for letter in "abcdef"], 8)) + " 1234567")
    (tmp_path / "stems.txt").write_text("\n".join(lines) + "\n")
    words, vectors, rarity = skip_gram(tmp_path / "stems.txt", workers=1, seed=1)
    assert "1234567" not in words and set(words) == {about + letter for about in ("sea", "land") for letter in "abcdef"}
    assert np.linalg.norm(vectors, axis=1) == pytest.approx(1, abs=1e-5)
    assert rarity == pytest.approx(-np.log(1 / 13.5), abs=0.1)
    sea = np.array([word.startswith("sea") for word in words])
    alike = vectors @ vectors.T
    assert alike[np.ix_(sea, sea)].mean() > alike[np.ix_(sea, ~sea)].mean() + 0.1
    again = skip_gram(tmp_path / "stems.txt", workers=1, seed=1)
    assert again[0] == words and np.array_equal(again[1], vectors)
