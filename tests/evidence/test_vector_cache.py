"""Vectors that are kept in a file."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from triforce_core.evidence.vector_cache import VectorCache

VECTORS = np.linspace(-1, 1, 12, dtype=np.float32).reshape(3, 4)


def test_they_come_back(tmp_path: Path) -> None:
    cache = VectorCache(tmp_path / "new")
    assert cache.load("a", "texts") is None
    cache.save("a", "texts", VECTORS)
    found = cache.load("a", "texts")
    assert found is not None and found.dtype == np.float32 and np.abs(found - VECTORS).max() < 1e-3
    assert cache.load("b", "texts") is None


def test_of_other_texts_they_do_not(tmp_path: Path) -> None:
    cache = VectorCache(tmp_path)
    cache.save("a", "texts", VECTORS)
    assert cache.load("a", "others") is None


def test_a_damaged_file_is_not_used(tmp_path: Path) -> None:
    cache = VectorCache(tmp_path)
    cache.save("a", "texts", VECTORS)
    (path,) = tmp_path.iterdir()
    whole = path.read_bytes()
    for damaged in (whole[:-2], whole[:20], b"", whole[:-1] + bytes([whole[-1] ^ 1]), whole[:59] + b"\0" + whole[60:]):
        path.write_bytes(damaged)
        assert cache.load("a", "texts") is None
    path.write_bytes(whole)
    assert cache.load("a", "texts") is not None


def test_a_folder_that_takes_none_is_no_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    VectorCache(tmp_path / "file" / "below").save("a", "texts", VECTORS)
