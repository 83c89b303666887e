"""The networks of the sentence prior: their examples, how they are fitted, what is written."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("sentencepiece")

from training import digests, sentence_network  # noqa: E402
from training.networks import Layers, merged, standard, stored  # noqa: E402
from training.prior import gather, replace_networks  # noqa: E402
from training.question_sets import ARTICLE, AskedDocument, Query  # noqa: E402
from training.words import save  # noqa: E402
from triforce_core.device.threads import single_thread  # noqa: E402
from triforce_core.evidence.sentence_prior import Network  # noqa: E402
from triforce_core.evidence.word_vectors import Stems, unit  # noqa: E402

TOPICS = "apple bridge candle dragon engine forest garden harbour island jacket kettle ladder".split()


def document(name: str, kind: str = "fact") -> AskedDocument:
    """Twelve paragraphs, each about a thing of its own, and a question about each but the last. None tells of cats."""
    sentences = [part for topic in TOPICS
                 for part in (f"Here the {topic} was found by them.", "It then rained all day long.")]
    lines = [number // 2 for number in range(len(sentences))]
    queries = [Query(f"Who found the {topic}?", "", (2 * number,), kind) for number, topic in enumerate(TOPICS[:-1])]
    return AskedDocument(name, sentences, lines, [*queries, Query("Who found the cat?", "", (), "unanswerable")])


@pytest.fixture
def vectors(tmp_path: Path) -> Path:
    """A file of word vectors."""
    stems = Stems()
    words = sorted({stems.of(word) for word in [*TOPICS, "found", "rain", "day", "cat"]})
    rows = unit(np.random.default_rng(0).normal(size=(len(words), 96))).astype(np.float32)
    save(tmp_path / "vectors.npz", words, rows, np.full(len(words), 6.0))
    return tmp_path / "vectors.npz"


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """For networks this small more threads wait for each other."""
    with single_thread(torch.device("cpu")):
        yield


def by_column(column: int, width: int) -> Network:
    """The value of one feature."""
    weights = np.zeros((1, width), np.float32)
    weights[0, column] = 10
    return Network(np.zeros(width, np.float32), np.ones(width, np.float32), ((weights, np.zeros(1, np.float32)),))


def test_candidates_hold_the_answers_and_what_looks_like_them(vectors: Path) -> None:
    made = sentence_network.candidates(document("d"), vectors, None)
    assert len(made["features"]) == 11, "the unanswerable one has no right sentence"
    assert made["golds"].sum(1).tolist() == [1] * 11 and made["golds"][:, 0].all()
    assert made["here"].sum(1).tolist() == [24] * 11 and not made["features"][~made["here"]].any()
    assert made["features"][:, 0, 2] == pytest.approx(1), "the right one holds the question's words"
    assert np.array_equal(made["features"], sentence_network.candidates(document("d"), vectors, None)["features"])


def test_hard_ones_hold_most_of_the_questions_words(vectors: Path) -> None:
    """By columns of the features, whose order may change: then HARD_BY has to follow."""
    one = document("d")
    features = sentence_network.index_of(one, vectors).features("Was the dragon found on the island?")
    chance = one.chance()
    kept = sentence_network.picked(features, (0,), 2, sentence_network.CANDIDATES, chance, None)
    assert kept[0] == 0 and {one.sentences[number] for number in kept[1:3]} == {
        "Here the dragon was found by them.", "Here the island was found by them."}
    assert len(kept) == len(set(kept)) == 24


def test_the_second_round_holds_what_the_first_network_likes(vectors: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one = document("d")
    features = sentence_network.index_of(one, vectors).features("Was the dragon found on the island?")
    place = next(column for column in range(features.shape[1])
                 if np.allclose(features[:, column], np.arange(24) / 23, atol=1e-3))  # the last ones are liked best
    monkeypatch.setattr(sentence_network, "MINED", 3)
    kept = sentence_network.picked(features, (0,), 2, sentence_network.MINED_CANDIDATES, one.chance(),
                                   by_column(place, features.shape[1]))
    assert kept[:4] == [0, 23, 22, 21] and len(kept) == 24
    made = sentence_network.candidates(one, vectors, by_column(place, features.shape[1]))
    assert made["features"].shape[1] == sentence_network.MINED_CANDIDATES


def test_the_sentence_network_learns_what_answers(vectors: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """And reports what it does with documents that it did not learn from."""
    parts = [sentence_network.candidates(document(str(number), kind), vectors, None)
             for number, kind in enumerate(["fact", ARTICLE] * 4)]
    data = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    network = sentence_network.fit(data, {"0"})
    index = sentence_network.index_of(document("0"), vectors)
    assert [int(network(index.features(query.text)).argmax()) for query in document("0").queries[:-1]] == [
        query.golds[0] for query in document("0").queries[:-1]]
    assert "of 64 candidates: all (11) 1.000 / 1.000" in capsys.readouterr().out


def test_digests_learn_where_quoted_sentences_stand(vectors: Path) -> None:
    """Of each document the first sentence was quoted."""
    data = []
    for name in "abcdefghij":
        one = document(name)
        asked = AskedDocument(name, one.sentences, one.lines, [Query("What is it about?", "", (0, 2), digests.WHOLE)])
        data += digests.digests(asked, vectors)
    network = digests.fit(data, seed=0)
    assert digests.recall(data, network) == 1
    worse = Network(network.mean, network.std, tuple((-weights, bias) for weights, bias in network.layers))
    assert digests.recall(data, worse) < 0.5


def test_a_section_that_is_not_found_gives_no_digest(vectors: Path) -> None:
    one = document("d")
    queries = [Query("What is the chapter on whales about?", "", (0, 2), digests.SECTION)]
    assert digests.digests(AskedDocument("d", one.sentences, one.lines, queries), vectors) == []


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


def test_networks_are_written_beside_those_of_another_command(tmp_path: Path) -> None:
    file = tmp_path / "prior.npz"
    replace_networks(file, {"sentence": by_column(0, 3), "answered": by_column(1, 3)})
    replace_networks(file, {"sentence": by_column(2, 4), "summary": by_column(0, 2)})
    with np.load(file) as stored:
        assert {key.split(".")[0] for key in stored.files} == {"sentence", "answered", "summary"}
        assert stored["sentence.w1"].tolist() == [[0, 0, 10, 0]] and stored["answered.w1"].tolist() == [[0, 10, 0]]
    assert [left.name for left in tmp_path.iterdir()] == ["prior.npz"]


@pytest.mark.slow
def test_examples_are_made_once(vectors: Path, tmp_path: Path) -> None:
    """In other processes; in the documents' order; read back as they were."""
    unasked = AskedDocument("c", ["One."], [0], [Query("Who?", "", (), "unanswerable")])
    documents = [document("a"), document("b"), unasked]
    make = partial(sentence_network.candidates, vectors=vectors, first=None)
    made = gather(tmp_path / "candidates.npz", documents, make, workers=1)
    assert made["names"].tolist() == ["a"] * 11 + ["b"] * 11
    again = gather(tmp_path / "candidates.npz", [], make, workers=1)
    assert all(np.array_equal(made[name], again[name]) for name in made)
