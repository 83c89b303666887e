"""What training writes is what the app reads: word vectors, networks and the reranker."""

from __future__ import annotations

import itertools
from array import array
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
pytest.importorskip("zstandard")
pytest.importorskip("sentencepiece")

from training import reranker, reranker_base  # noqa: E402
from training.networks import Layers, merged, standard, stored  # noqa: E402
from training.reranker import ArticleTask, Encoder, NaturalTask  # noqa: E402
from training.reranker_data import ANSWERED, UNANSWERABLE, Example  # noqa: E402
from training.words import save as save_vectors  # noqa: E402
from triforce_core.device.streams import single_thread  # noqa: E402
from triforce_core.evidence.ranking import (  # noqa: E402
    Network,
    Pairs,
    Passage,
    Reranker,
)
from triforce_core.evidence.vectors import WordVectors, unit  # noqa: E402

TOPICS = "apple bridge candle dragon engine forest garden harbour island jacket kettle ladder".split()
LETTERS = [prefix + letter for prefix in ("", "##") for letter in "abcdefghijklmnopqrstuvwxyz"]
PIECES = [*reranker_base.SPECIAL, *LETTERS, *TOPICS, *"who found the cat here was by them it rained all day".split()]


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """For encoders this small more threads wait for each other."""
    torch.manual_seed(0)
    with single_thread(torch.device("cpu")):
        yield


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


@pytest.mark.parametrize("hidden", [(), (6,), (8, 4)])
def test_stored_networks_compute_what_torch_does(hidden: tuple[int, ...]) -> None:
    features = np.random.default_rng(0).normal(3, 9, size=(50, 7)).astype(np.float32)
    features[:, 1] = 0.5  # never varies
    nets = []
    for seed in range(3):
        torch.manual_seed(seed)
        nets.append(Layers(*standard(features), hidden, 0.5).eval())
    with torch.no_grad():
        outputs = [net(torch.from_numpy(features)).numpy() for net in nets]
    arrays = stored("one", nets[0].network()) | stored("all", merged([net.network() for net in nets]))
    assert all(array.dtype == np.float32 for array in arrays.values())
    assert Network.from_stored(arrays, "one")(features) == pytest.approx(outputs[0], abs=1e-4)
    assert Network.from_stored(arrays, "all")(features) == pytest.approx(np.mean(outputs, 0), abs=1e-4)


def encoder(width: int = 64, positions: int = 128) -> transformers.BertModel:
    """A small one with random weights."""
    config = transformers.BertConfig(vocab_size=len(PIECES), hidden_size=width, num_hidden_layers=1,
                                     num_attention_heads=4, intermediate_size=128, max_position_embeddings=positions,
                                     hidden_dropout_prob=0.0, initializer_range=0.1)
    return transformers.BertModel(config, add_pooling_layer=False)


def made(case: str, golds: list[bool], by_words: list[float], kind: str = "fact") -> Example:
    return Example("who", case, kind, list(range(len(golds))), np.array(by_words, np.float32), np.array(golds),
                   len(golds), np.zeros((len(golds), 3), np.float32))


def test_it_learns_and_what_is_written_says_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """To look for "found" in a sentence, whatever is asked. The clock goes on by one at each look."""
    monkeypatch.setattr(reranker, "time", SimpleNamespace(time=itertools.count().__next__))
    monkeypatch.setattr(reranker, "RATE", 3e-3)
    monkeypatch.setattr(reranker, "WARM_UP", 5)
    pairs, passages = Pairs(PIECES), [Passage(f"{topic} {'found' if at == 4 else 'rained'}") for at, topic in
                                      enumerate(TOPICS)]
    rows = [array("H", row) for row in pairs.passages(passages)]
    right = made(ANSWERED, [at == 4 for at in range(12)], [0.0] * 12)
    asked = pairs.questions([f"who {topic}" for topic in TOPICS])
    tasks = [NaturalTask(question, rows, 1.0, right) for question in asked]
    wrong = made(UNANSWERABLE, [False] * 11, [0.0] * 11)
    tasks += [NaturalTask(task.question, [*rows[:4], *rows[5:]], 1.0, wrong) for task in tasks]
    article = [ArticleTask(task.question, rows, 0.5, 4) for task in tasks[:12]]
    net = reranker.train(Encoder(encoder()), tasks, article, 250, 6, np.random.default_rng(0))
    learnt = reranker.read(net, tasks)
    assert all(nats.argmax() == 4 and nats[4] > 0.5 for nats in learnt[:12])
    assert all(len(nats) == 11 and nats.max() < 0 for nats in learnt[12:])
    reranker.save(tmp_path / "r.npz", net, PIECES)
    loaded = Reranker.load(tmp_path / "r.npz", torch.float32)
    assert loaded.scores("who apple", passages) == pytest.approx(learnt[0], abs=0.05)
    assert loaded.vectors([passages[4].sentence])[0] == pytest.approx(
        net.vectors([reranker.alone(tasks[0].question, rows[4])])[0].detach().numpy(), abs=0.02)
    near = loaded.vectors([passage.sentence for passage in passages]) @ loaded.question_vector("who apple")
    assert near.argmax() == 4
    assert [file.name for file in tmp_path.iterdir()] == ["r.npz"]
