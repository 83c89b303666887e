"""What tells the prior that nothing answers."""

from __future__ import annotations

import numpy as np
import pytest

from triforce_core.evidence.ranking import SentencePrior, read_features, strange_names
from triforce_core.evidence.sentence_index import SentenceIndex
from triforce_core.evidence.vectors import WordVectors

SENTENCES = ["The Bridges of Ohio", "In 2012 there were 57,000 bridges in poor condition.", "It was the most ever.",
             "In 2025 there were 42,000 bridges in poor condition.", "Inspectors look at every bridge twice a year."]


@pytest.fixture(scope="module")
def index() -> SentenceIndex:
    return SentenceIndex(SENTENCES, [0, 1, 1, 2, 3], WordVectors.shipped())


def test_names_that_stand_elsewhere_or_nowhere(index: SentenceIndex) -> None:
    """The sentence before counts on its own line, and the heading everywhere."""
    counts = strange_names(index, "How many bridges had Ohio and Maine in 2012?", [1, 2, 3])
    assert counts.tolist() == [[1, 1, 3], [1, 1, 3], [1, 2, 3]]
    assert strange_names(index, "how many bridges are there", [1, 4]).tolist() == [[0, 0, 0], [0, 0, 0]]


def test_the_confidence_depends_on_them(index: SentenceIndex) -> None:
    nats = np.array([2.0, 1.0, -3.0])
    made = [read_features(nats, nats, nats, np.array(strange)) for strange in ([0, 0, 0], [1, 2, 3])]
    assert made[0].shape == (11,) and (made[0] != made[1]).nonzero()[0].tolist() == [8, 9, 10]


def test_another_year_is_less_sure(index: SentenceIndex) -> None:
    prior = SentencePrior.shipped()
    asked, other = (prior.ranking(index, f"How many bridges were poor in {year}?") for year in (2012, 1998))
    assert int(asked.scores.argmax()) == 1 and asked.confidence > other.confidence + 0.1
