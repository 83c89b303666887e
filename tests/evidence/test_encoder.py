"""The encoder that reads passages: it computes what training trained, in every type, and the shipped one knows its
work."""

from __future__ import annotations

import math
import string
import time
from pathlib import Path

import numpy as np
import pytest
import torch

from training.encoder_rows import row_of
from training.mpnet import BEGIN, END, WIDTH, load, save
from training.mpnet import Encoder as Trained
from triforce_core.assets import WORDS_FOLDER
from triforce_core.evidence.encoder import Claim, Encoder, Reading, Rows, eight_is_faster
from triforce_core.evidence.passages import path_text

LETTERS = [prefix + letter for prefix in ("", "##") for letter in string.ascii_lowercase]
PIECES = ["<s>", "<pad>", "</s>", "[UNK]", *LETTERS, "ship", "fee", "pound", ".", ">", "'", '"', "-"]
SHORT = Reading(("Ships",), ("A ship.",))
LONG = Reading(("Ships", "Fees", "What is paid:"), ("The fee of a ship.", "Nine ships came in that morning.", "x"))
LONGEST = Reading(("Ships",), tuple(f"ship {letter} " * 40 for letter in "abcd"))
PASSAGES = [SHORT, LONG, LONGEST, LONG]


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two layers of random weights."""
    torch.manual_seed(0)
    weights = {"words": torch.randn(len(PIECES), WIDTH), "positions": torch.randn(258, WIDTH) * 0.3,
               "norm.weight": torch.rand(WIDTH) + 0.5, "norm.bias": torch.randn(WIDTH) * 0.1,
               "distances": torch.randn(32, 12)}
    for layer in range(2):
        for name, (rows, columns) in {"query": (768, 768), "key": (768, 768), "value": (768, 768), "out": (768, 768),
                                      "up": (3072, 768), "down": (768, 3072)}.items():
            weights[f"{layer}.{name}.weight"] = torch.randn(rows, columns) * 2 / columns**0.5
            weights[f"{layer}.{name}.bias"] = torch.randn(rows) * 0.1
        for name in ("norm", "norm2"):
            weights[f"{layer}.{name}.weight"] = torch.rand(WIDTH) + 0.5
            weights[f"{layer}.{name}.bias"] = torch.randn(WIDTH) * 0.1
    for name, count in {"rank": 1, "mark": 1, "check": 3}.items():
        weights |= {f"{name}.weight": torch.randn(count, WIDTH) * 0.1, f"{name}.bias": torch.randn(count) * 0.1}
    out = tmp_path_factory.mktemp("encoder") / "encoder.npz"
    save(out, weights, PIECES)
    return out


@pytest.fixture(scope="module")
def trained(file: Path) -> Trained:
    """What training has after it saved the file."""
    net = Trained(load(file)[0])
    net.four_bits = False
    net.working(torch.float32, train=False)
    return net


@pytest.fixture(scope="module")
def encoder(file: Path) -> Encoder:
    return Encoder.load(file, torch.float32)


def pieces(text: str) -> np.ndarray:
    return np.array(Rows(PIECES).pieces([text])[text], np.int64)


def row(asked: list[np.ndarray], passage: Reading) -> torch.Tensor:
    """As training makes it."""
    ids, _ = row_of(asked, pieces(path_text(passage.path)), [pieces(one) for one in passage.sentences])
    return torch.tensor([ids])


@torch.inference_mode()
def test_it_ranks_and_marks_as_in_training(encoder: Encoder, trained: Trained) -> None:
    asked = np.concatenate((pieces("A fee " * 30)[-24:], pieces("What is the fee? " * 9)[:40]))
    found = encoder.rank("What is the fee? " * 9, "A fee " * 30, PASSAGES)
    for passage, ranked in zip(PASSAGES, found, strict=True):
        ids = row([asked], passage)
        hidden = trained.read(ids).hidden
        assert ranked.score == pytest.approx(trained.head(hidden[:, 0], "rank").item(), abs=1e-4)
        marks = trained.head(hidden[0], "mark")[:, 0].numpy()
        at = len(asked) + 4 + min(36, len(pieces(path_text(passage.path))))
        assert ids[0, at - 1] == END
        for sentence, mark in zip(passage.sentences, ranked.marks, strict=True):
            own = marks[at : min(at + len(pieces(sentence)), 223)]
            assert mark == (pytest.approx(own.mean(), abs=1e-4) if len(own) else -math.inf)
            at += len(pieces(sentence))
    assert -math.inf in found[2].marks and len({round(one.score, 2) for one in found}) == 3


@torch.inference_mode()
def test_it_checks_as_in_training(encoder: Encoder, trained: Trained) -> None:
    claims = [Claim("A ship came " * 50, "Which ship?", LONG), Claim("A ship.", "", SHORT)]
    for claim, judged in zip(claims, encoder.check(claims), strict=True):
        ids = row([pieces(claim.text)[:96], pieces(claim.question)[:40]], claim.passage)
        assert judged == pytest.approx(trained.head(trained.read(ids).hidden[:, 0], "check")[0].numpy(), abs=1e-4)


@torch.inference_mode()
def test_vectors_are_those_of_training_in_any_company(encoder: Encoder, trained: Trained) -> None:
    for passage, vector in zip(PASSAGES, encoder.vectors(PASSAGES), strict=True):
        assert vector == pytest.approx(trained.read(row([], passage)).means()[0].numpy(), abs=1e-5)
    alone = torch.tensor([[BEGIN, *pieces("A fee"), *pieces("What?"), END]])
    assert encoder.question_vector("What?", "A fee") == pytest.approx(trained.read(alone).means()[0].numpy(), abs=1e-5)
    assert encoder.vectors([]).shape == (0, WIDTH) and encoder.rank("fee?", "", []) == []


@pytest.mark.parametrize(("dtype", "within"), [(torch.bfloat16, 0.1), (torch.int8, 0.5)])
def test_fewer_bits_change_little(encoder: Encoder, file: Path, dtype: torch.dtype, within: float) -> None:
    rounded = Encoder.load(file, dtype)
    exact, found = encoder.rank("fee?", "", PASSAGES), rounded.rank("fee?", "", PASSAGES)
    assert [one.score for one in found] == pytest.approx([one.score for one in exact], abs=within)
    assert (rounded.vectors(PASSAGES) * encoder.vectors(PASSAGES)).sum(1) == pytest.approx(1, abs=0.02)


@pytest.mark.parametrize("text", ["", " ", "\ud800", "a \udfff b", "\x00", "日本語", "<s> </s>", "x" * 500])
def test_any_text_can_be_read(encoder: Encoder, text: str) -> None:
    """A mark of a row's end in a text is text."""
    passage = Reading((text,), (text, "A ship."))
    assert math.isfinite(encoder.rank(text, text, [passage])[0].score)
    assert np.isfinite(encoder.check([Claim(text, text, Reading((), ()))])).all()
    assert END not in Rows(PIECES).pieces([text])[text]


def test_typography_does_not_count() -> None:
    assert pieces("“ship’s”—fee").tolist() == pieces("\"ship's\"--fee").tolist()


QUESTION = "Who designed the bridge?"
BRIDGE = Reading(("The Old Bridge", "History"), ("The bridge is crossed by thousands of people every day.",
                                                 "Its plans were drawn by a young engineer, Ada Brunt."))


def test_the_shipped_one_prefers_an_answer_and_marks_it() -> None:
    other = Reading(("The Old Bridge", "Toll"), ("The bridge was repaired for 300 pounds.",))
    right, wrong = Encoder.shipped().rank(QUESTION, "", [BRIDGE, other])
    assert right.score > 2 > 0 > wrong.score and right.marks[1] > right.marks[0]
    near = Encoder.shipped().vectors([BRIDGE, other]) @ Encoder.shipped().question_vector(QUESTION)
    assert near[0] > near[1] + 0.1


@pytest.mark.parametrize(("claim", "verdict"), [
    ("Ada Brunt drew the plans of the bridge.", 0), ("Ada Brunt did not draw the plans of the bridge.", 2),
    ("The bridge was painted green in spring.", 1)])
def test_the_shipped_one_judges_claims(claim: str, verdict: int) -> None:
    assert int(Encoder.shipped().check([Claim(claim, QUESTION, BRIDGE)])[0].argmax()) == verdict


def test_its_licence_lies_beside_it() -> None:
    notice = (WORDS_FOLDER / "NOTICE.md").read_text(encoding="utf-8")
    assert all(named in notice for named in ("encoder.npz", "all-mpnet-base-v2", "LICENSE-APACHE-2.0.txt", "changed"))


def test_it_is_kept_in_eight_bits_only_where_those_are_faster(monkeypatch: pytest.MonkeyPatch) -> None:
    product = torch._int_mm

    def slow(rows: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
        time.sleep(0.02)
        return product(rows, weights)

    monkeypatch.setattr(torch, "_int_mm", slow)
    assert not eight_is_faster()
    monkeypatch.setattr(torch, "_int_mm", lambda rows, weights: None)
    assert eight_is_faster()
