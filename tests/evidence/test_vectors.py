"""Sentences as vectors: what is about the same lies near, also in other words."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

from triforce_core import config
from triforce_core.errors import ConfigError
from triforce_core.evidence import vectors
from triforce_core.evidence.vectors import SentenceVectors

SENTENCES = ["The captain has the command of the ship.", "Taxes are due on the fifth of May.",
             "Every house needs a roof.", "A dog that barks does not bite."]


def test_other_words_for_the_same_are_near() -> None:
    vectors = SentenceVectors.shipped()
    for question, answer in (("Who is in charge of the vessel?", 0), ("When do I have to pay?", 1)):
        assert int(np.argmax(vectors.of(SENTENCES) @ vectors.of([question])[0])) == answer


def test_lengths_and_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    shipped = SentenceVectors.shipped()
    texts = [*SENTENCES, "", "whale " * 3000, *SENTENCES]
    once = shipped.of(texts)
    assert once.dtype == np.float32 and np.allclose(np.linalg.norm(once, axis=1), [1] * 4 + [0] + [1] * 5, atol=1e-5)
    monkeypatch.setattr(vectors, "_AT_ONCE", 3)
    assert np.allclose(shipped.of(texts), once, atol=1e-6) and np.allclose(once[:4], once[6:], atol=1e-6)
    assert np.allclose(shipped.of(["Who \ud83d?"]), shipped.of(["Who ??"]))
    assert shipped.of([]).shape == (0, once.shape[1])


def test_a_machine_without_them_is_told_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(config, "find_spec", lambda name: None)
    with pytest.raises(ConfigError, match="pip install wordllama"):
        SentenceVectors.shipped.__wrapped__(SentenceVectors)


def test_the_packages_own_code_is_not_run() -> None:
    """It would set up logging, and could fetch files from the internet."""
    code = ("import sys; from triforce_core.evidence.vectors import SentenceVectors; "
            "SentenceVectors.shipped().of(['a']); sys.exit('wordllama' in sys.modules)")
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
