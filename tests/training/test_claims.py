"""Sentences made false, and what an encoder's file says beside its weights."""

from __future__ import annotations

from pathlib import Path
from random import Random

import numpy as np
import pytest
import torch

from training.check_levels import edges
from training.claims import MIXTURE, OPPOSITE, Change, Changer
from training.encoder_levels import levels
from training.mpnet import load, save
from training.wordnet import WordNet

SENTENCES = ["The harbour may charge a fee if a ship stays for nine days.", "The pilot must leave the ship at once.",
             "In 1902 the Crown sold the old Pier to Mr. Hale.", "The keeper has lit the lamp every night since then."]


def net() -> WordNet:
    known = WordNet(nouns={"harbour", "keeper", "pilot"})
    known.opposites["old"].add("new")
    return known


def test_two_words_trade_places_at_once() -> None:
    assert Change(MIXTURE, {"EPA": "DOE", "DOE": "EPA"}).of("from EPA to DOE") == "from DOE to EPA"


@pytest.mark.parametrize("seed", range(8))
def test_a_mixture_says_something_else_with_the_same_words(seed: int) -> None:
    text = SENTENCES[2]
    made = Changer(SENTENCES, net(), Random(seed)).change(text, MIXTURE)
    assert made and made.of(text) != text
    if len(made.new) == 2:
        assert sorted(made.of(text).split()) == sorted(text.split())


def test_an_opposite_is_that_of_the_dictionary() -> None:
    made = Changer(SENTENCES, net(), Random(0)).change(SENTENCES[2], OPPOSITE)
    assert made and made.new == {"old": "new"}


def test_levels_part_what_scores_part() -> None:
    questions = [{"document": number, "answers": good, "right": [good, False], "scores": [4.0 if good else -4.0, -5.0],
                  "near": [0.5, 0.1]} for number in range(40) for good in (True, False)]
    made = levels(questions)
    assert made.shape == (2, 7)
    high, low = (1 / (1 + np.exp(-made[:, :-1] @ np.array([1, score, lead, 8, 0.5, 0])))
                 for score, lead in ((4, 8), (-4, 1)))
    assert (high >= made[:, -1]).all() and low[1] < made[1, -1]
    true = np.arange(80) % 2 == 0
    supported, contradicted = edges(np.where(true, 0.9, 0.1), np.where(true, 0.05, 0.8), np.where(true, 0, 2), true)
    assert 0.1 < supported <= 0.9 + 1e-6 and 0.05 < contradicted <= 0.8 + 1e-6


def test_levels_are_no_weights(tmp_path: Path) -> None:
    file = tmp_path / "encoder.npz"
    save(file, {"norm.weight": torch.ones(4)}, ["<s>"])
    with np.load(file) as stored:
        np.savez(file, **stored, levels=np.zeros((2, 7), np.float32))
    assert list(load(file)[0]) == ["norm.weight"]
