"""The encoder that reads sentences again: what it computes, how it is stored, and what the shipped one says."""

from __future__ import annotations

import string
from pathlib import Path

import numpy as np
import pytest
import torch

from training.four_bits import four_bits, packed
from triforce_core.assets import WORDS_FOLDER
from triforce_core.evidence.ranking import GROUP, Pairs, Passage, Reranker, batch, unpacked

LETTERS = [prefix + letter for prefix in ("", "##") for letter in string.ascii_lowercase]
PIECES = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", *LETTERS, "ship", "fee", "pound", "."]
SHORT, LONG = Passage("A ship."), Passage("The fee of a ship.", "Fees", "Nine ships came in that morning.")


@pytest.fixture(scope="module")
def bert() -> torch.nn.Module:
    """A small encoder of transformers with random weights."""
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    config = transformers.BertConfig(vocab_size=len(PIECES), hidden_size=64, num_hidden_layers=2, num_attention_heads=4,
                                     intermediate_size=128, max_position_embeddings=128, initializer_range=0.3)
    return transformers.BertModel(config, add_pooling_layer=False).eval()


@pytest.fixture(scope="module")
def head() -> torch.nn.Linear:
    torch.manual_seed(1)
    head = torch.nn.Linear(64, 1)
    torch.nn.init.normal_(head.weight)
    return head


@pytest.fixture
def reranker(bert: torch.nn.Module, head: torch.nn.Linear) -> Reranker:
    weights = {**dict(bert.named_parameters()), "head.weight": head.weight, "head.bias": head.bias}
    return Reranker(Pairs(PIECES), {name: tensor.detach() for name, tensor in weights.items()}, heads=4)


def test_it_computes_what_transformers_does(reranker: Reranker, bert: torch.nn.Module, head: torch.nn.Linear) -> None:
    pairs = Pairs(PIECES)
    question = pairs.questions(["What is the fee?"])[0]
    ids, segments, here = batch([(question, passage) for passage in pairs.passages([SHORT, LONG])])
    with torch.inference_mode():
        read = bert(input_ids=ids, token_type_ids=segments, attention_mask=here.long()).last_hidden_state[:, 0]
        expected = head(read)[:, 0].numpy()
    assert abs(expected[0] - expected[1]) > 0.05
    assert reranker.scores("What is the fee?", [SHORT, LONG]) == pytest.approx(expected, abs=1e-4)


def test_vectors_are_the_mean_of_what_transformers_says(reranker: Reranker, bert: torch.nn.Module) -> None:
    """In any company and order, of length 1."""
    texts = ["A ship.", "The fee of a ship is nine pounds.", "x"]
    found = reranker.vectors(texts * 20)
    for at, row in enumerate(Pairs(PIECES).sentences(texts)):
        with torch.inference_mode():
            mean = bert(input_ids=torch.tensor([row])).last_hidden_state[0].mean(0)
        assert found[at] == pytest.approx((mean / mean.norm()).numpy(), abs=1e-4)
        assert found[at + 57] == pytest.approx(found[at], abs=1e-5)
    assert reranker.question_vector("A ship.") == pytest.approx(found[0], abs=1e-5)
    assert reranker.question_vector("A ship.", "Fee?") != pytest.approx(found[0], abs=1e-3)
    assert reranker.vectors([]).shape == (0, 64)


def test_a_question_stands_before_sentence_heading_and_what_came_before() -> None:
    pairs = Pairs(PIECES)

    def spelt(numbers: list[int]) -> str:
        return " ".join(PIECES[number] for number in numbers)

    assert spelt(pairs.questions(["Fee"])[0]) == "[CLS] fee [SEP]"
    assert spelt(pairs.questions(["Fee"], "A ship")[0]) == "[CLS] a ship fee [SEP]"
    long = pairs.questions(["fee " * 27 + "pound"], "A ship")[0]  # the question itself is read whole
    assert spelt(long) == "[CLS] " + "fee " * 27 + "pound [SEP]" and len(pairs.questions(["a"], "fee " * 99)[0]) == 30
    rows = pairs.passages([Passage("ships", "fees", "A pound."), Passage("ship", "", "fee"), Passage("ship", "fee")])
    assert [spelt(row) for row in rows] == ["ship ##s [SEP] fee ##s [SEP] a pound . [SEP]",
                                            "ship [SEP] [SEP] fee [SEP]", "ship [SEP] fee [SEP]"]
    ids, segments, here = batch([([2, 7, 3], [8, 3]), ([2, 3], [9, 9, 9, 3])])
    assert ids.tolist() == [[2, 7, 3, 8, 3, 0], [2, 3, 9, 9, 9, 3]]
    assert segments.tolist() == [[0, 0, 0, 1, 1, 1], [0, 0, 1, 1, 1, 1]]
    assert here.tolist() == [[True] * 5 + [False], [True] * 6]


def test_company_does_not_change_a_score(reranker: Reranker) -> None:
    alone = [float(reranker.scores("What?", [passage])[0]) for passage in (SHORT, LONG)]
    assert reranker.scores("What?", [SHORT, LONG]) == pytest.approx(alone, abs=1e-5)
    assert reranker.scores("What?", []).shape == (0,)


def test_what_is_too_long_is_cut(reranker: Reranker) -> None:
    """A sentence after its 56th piece, a heading after its 12th, what came before at its beginning, 116 in all."""
    ships = " ship" * 300
    longest = Passage(ships, ships, f"{ships[: 5 * 50]} fee")
    cut = Passage(ships[: 5 * 56], ships[: 5 * 12], f"{ships[: 5 * 14]} fee")
    pairs = Pairs(PIECES)
    one, other = pairs.passages([longest, cut])
    assert one == other and pairs.questions([ships]) == pairs.questions([ships[: 5 * 28]])
    assert len(pairs.questions([ships])[0]) + len(one) == 116
    assert np.isfinite(reranker.scores(ships, [longest])).all()


@pytest.mark.parametrize("text", ["", " ", "\ud800", "a \udfff b", "\x00", "日本語", "[CLS] [SEP]", "x" * 500])
def test_any_text_has_a_score(reranker: Reranker, text: str) -> None:
    """[CLS] in a text is no mark."""
    assert np.isfinite(reranker.scores(text, [Passage(text, text, text), SHORT])).all()
    assert Pairs(PIECES).questions([text])[0].count(2) == 1


def test_packed_weights_come_back_up_to_half_a_step() -> None:
    torch.manual_seed(0)
    weights = {"matrix": torch.randn(80, 2 * GROUP) * torch.logspace(-3, 3, 80)[:, None], "bias": torch.randn(80),
               "head.weight": torch.randn(1, GROUP), "odd": torch.randn(80, GROUP + 1), "zeros": torch.zeros(64, GROUP)}
    stored = packed(weights)
    assert stored["matrix"].dtype == np.uint8 and stored["matrix"].shape == (80, GROUP)
    assert {stored[name].dtype for name in ("bias", "head.weight", "odd", "matrix.scale")} == {np.dtype(np.float16)}
    back = unpacked(stored, torch.float32)
    assert back.keys() == weights.keys() and not back["zeros"].any()
    _, scale = four_bits(weights["matrix"])
    wrong = (back["matrix"] - weights["matrix"]).abs().unflatten(1, (-1, GROUP)) / scale
    assert 0.4 < float(wrong.max()) < 0.51
    again = packed(back)
    assert all(np.array_equal(again[name], stored[name]) for name in stored)


def test_a_stored_reranker_scores_like_the_one_that_was_packed(reranker: Reranker, tmp_path: Path) -> None:
    """Whose weights were rounded already."""
    arrays = packed(reranker._weights)
    spelt = np.frombuffer("\n".join(PIECES).encode(), np.uint8)
    np.savez(tmp_path / "r.npz", **arrays, heads=np.array(4), pieces=spelt)
    rounded = Reranker(Pairs(PIECES), unpacked(arrays, torch.float32), heads=4)
    loaded = Reranker.load(tmp_path / "r.npz", torch.float32)
    assert np.array_equal(loaded.scores("fee?", [SHORT, LONG]), rounded.scores("fee?", [SHORT, LONG]))
    assert not np.array_equal(loaded.scores("fee?", [SHORT, LONG]), reranker.scores("fee?", [SHORT, LONG]))


@pytest.mark.parametrize(("question", "answer", "neighbour"), [
    ("Who designed the bridge?", "Its plans were drawn by a young engineer, Ada Brunt.",
     "The bridge is crossed by thousands of people every day."),
    ("Why was the mill given up?", "It closed because flour from abroad was cheaper.",
     "The mill stood at the end of the village."),
])
def test_the_shipped_one_prefers_an_answer_to_its_neighbour(question: str, answer: str, neighbour: str) -> None:
    right, wrong = Reranker.shipped().scores(question, [Passage(answer), Passage(neighbour)])
    assert right > wrong + 0.3


@pytest.mark.parametrize(("question", "answer", "neighbour"), [
    ("Could I be thrown out for being noisy?", "Guests who disturb others may be asked to leave.",
     "Guests may be asked to show their tickets."),
    ("Does it hurt the environment?", "The factory's waste water kills the fish of the river.",
     "The factory was built beside the river."),
])
def test_the_shipped_ones_vectors_know_other_words(question: str, answer: str, neighbour: str) -> None:
    shipped = Reranker.shipped()
    right, wrong = shipped.vectors([answer, neighbour]) @ shipped.question_vector(question)
    assert right > wrong + 0.05


def test_the_shipped_one_says_that_nothing_answers() -> None:
    passages = [Passage("The pier was painted green by the council."), Passage("Vessels can be moored for two nights.")]
    assert (Reranker.shipped().scores("What is the boiling point of mercury?", passages) < 0).all()


def test_its_licence_lies_beside_it() -> None:
    """As the Apache License demands of who passes it on changed."""
    folder = WORDS_FOLDER
    assert "Version 2.0, January 2004" in (folder / "LICENSE-APACHE-2.0.txt").read_text(encoding="utf-8")
    notice = (folder / "NOTICE.md").read_text(encoding="utf-8")
    assert all(named in notice for named in ("reranker.npz", "all-MiniLM-L6-v2", "LICENSE-APACHE-2.0.txt", "changed"))
