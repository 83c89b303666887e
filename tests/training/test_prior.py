"""The networks of the sentence prior: their examples, how they are fitted, what is written."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("sentencepiece")

from training import confidence, digests, sentence_network  # noqa: E402
from training.answer_vectors import Answers  # noqa: E402
from training.networks import Layers, merged, standard, stored  # noqa: E402
from training.prior import gather  # noqa: E402
from training.question_sets import ARTICLE, AskedDocument, Query, fold_of  # noqa: E402
from training.words import save  # noqa: E402
from triforce_core.quotes.sentence_prior import Network  # noqa: E402
from triforce_core.quotes.word_vectors import Stems, unit  # noqa: E402

TOPICS = "apple bridge candle dragon engine forest garden harbour island jacket kettle ladder".split()


def document(name: str, kind: str = "fact") -> AskedDocument:
    """Twelve paragraphs, each about a thing of its own, and a question about each but the last. None tells of cats."""
    sentences = [part for topic in TOPICS
                 for part in (f"Here the {topic} was found by them.", "It then rained all day long.")]
    lines = [number // 2 for number in range(len(sentences))]
    queries = [Query(f"Who found the {topic}?", "", (2 * number,), kind) for number, topic in enumerate(TOPICS[:-1])]
    return AskedDocument(name, sentences, lines, [*queries, Query("Who found the cat?", "", (), "unanswerable")])


@pytest.fixture
def work(tmp_path: Path) -> Path:
    """A folder with vectors for either half."""
    stems = Stems()
    words = sorted({stems.of(word) for word in [*TOPICS, "found", "rain", "day", "cat"]})
    rows = unit(np.random.default_rng(0).normal(size=(len(words), 96))).astype(np.float32)
    for fold in (0, 1):
        save(tmp_path / f"vectors-{fold}.npz", words, rows, np.full(len(words), 6.0), Answers(rows, np.eye(96)))
    return tmp_path


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """For networks this small more threads wait for each other."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def by_column(column: int, width: int) -> Network:
    """The value of one feature."""
    weights = np.zeros((1, width), np.float32)
    weights[0, column] = 10
    return Network(np.zeros(width, np.float32), np.ones(width, np.float32), ((weights, np.zeros(1, np.float32)),))


def test_a_document_is_indexed_with_the_vectors_of_the_other_half(work: Path) -> None:
    """Those of its own half have seen its questions."""
    one = document("some name")
    other = next(name for name in "abcdefgh" if fold_of(name) != fold_of(one.name))
    (work / f"vectors-{fold_of(one.name)}.npz").unlink()
    assert sentence_network.index_of(one, work).size == 24
    with pytest.raises(FileNotFoundError):
        sentence_network.index_of(document(other), work)


def test_candidates_hold_the_answers_and_what_looks_like_them(work: Path) -> None:
    made = sentence_network.candidates(document("d"), work, None)
    assert len(made["features"]) == 11, "the unanswerable one has no right sentence"
    assert made["golds"].sum(1).tolist() == [1] * 11 and made["golds"][:, 0].all()
    assert made["here"].sum(1).tolist() == [24] * 11 and not made["features"][~made["here"]].any()
    assert made["features"][:, 0, 2] == pytest.approx(1), "the right one holds the question's words"
    assert np.array_equal(made["features"], sentence_network.candidates(document("d"), work, None)["features"])


def test_hard_ones_hold_most_of_the_questions_words(work: Path) -> None:
    """By columns of the features, whose order may change: then HARD_BY has to follow."""
    one = document("d")
    features = sentence_network.index_of(one, work).features("Was the dragon found on the island?")
    chance = one.chance()
    kept = sentence_network.picked(features, (0,), 2, sentence_network.CANDIDATES, chance, None)
    assert kept[0] == 0 and {one.sentences[number] for number in kept[1:3]} == {
        "Here the dragon was found by them.", "Here the island was found by them."}
    assert len(kept) == len(set(kept)) == 24


def test_the_second_round_holds_what_the_first_network_likes(work: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one = document("d")
    features = sentence_network.index_of(one, work).features("Was the dragon found on the island?")
    place = next(column for column in range(features.shape[1])
                 if np.allclose(features[:, column], np.arange(24) / 23, atol=1e-3))  # the last ones are liked best
    monkeypatch.setattr(sentence_network, "MINED", 3)
    kept = sentence_network.picked(features, (0,), 2, sentence_network.MINED_CANDIDATES, one.chance(),
                                   by_column(place, features.shape[1]))
    assert kept[:4] == [0, 23, 22, 21] and len(kept) == 24
    made = sentence_network.candidates(one, work, by_column(place, features.shape[1]))
    assert made["features"].shape[1] == sentence_network.MINED_CANDIDATES


def test_the_sentence_network_learns_what_answers(work: Path) -> None:
    parts = [sentence_network.candidates(document(str(number), kind), work, None)
             for number, kind in enumerate(["fact", ARTICLE] * 4)]
    data = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    network = sentence_network.fit(data, {"0"})
    index = sentence_network.index_of(document("0"), work)
    assert [int(network(index.features(query.text)).argmax()) for query in document("0").queries[:-1]] == [
        query.golds[0] for query in document("0").queries[:-1]]


def test_examples_of_questions_without_an_answer(work: Path) -> None:
    width = sentence_network.index_of(document("d"), work).features("dragon").shape[1]
    parts = [confidence.rows(document(name), work, by_column(2, width)) for name in "abcdefghijkl"]
    made = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    cases, right = made["cases"], made["right"]
    assert (cases == confidence.ANSWERED).sum() == 12 * 11 and (cases == confidence.UNANSWERABLE).sum() == 12
    assert 40 < (cases == confidence.HIDDEN_ANSWER).sum() < 90 and (cases == confidence.ELSEWHERE).any()
    assert right[cases == confidence.ANSWERED].all() and not right[cases != confidence.ANSWERED].any()
    held = made["features"][:, 6]  # the share of the question's words that the best sentence holds
    assert (held[cases == confidence.ANSWERED] > 0.99).all() and (held[cases == confidence.IN_EXCERPT] > 0.99).all()
    for case in (confidence.UNANSWERABLE, confidence.HIDDEN_ANSWER, confidence.ELSEWHERE):
        assert (held[cases == case] < 0.99).all()
    assert set(made["weights"][cases == confidence.UNANSWERABLE]) == {np.float32(4)}


def test_questions_about_other_documents_have_no_answer(work: Path) -> None:
    one = document("d")
    width = sentence_network.index_of(one, work).features("dragon").shape[1]
    pool = [Query(f"Who sank ship {number}?", "", (3,), "fact") for number in range(30)]
    made = confidence.foreign(one, work, by_column(2, width), [*one.queries, *pool])
    assert set(made["cases"]) == {confidence.FOREIGN} and 5 < len(made["cases"]) <= confidence.OF_OTHERS
    assert set(made["weights"]) == {np.float32(0.3)} and not made["right"].any()
    assert confidence.foreign(document("d", ARTICLE), work, by_column(2, width), pool) == {}


def test_short_articles_give_excerpts_only(work: Path) -> None:
    one = document("d", ARTICLE)
    width = sentence_network.index_of(one, work).features("dragon").shape[1]
    made = confidence.rows(one, work, by_column(2, width))
    assert set(made["cases"]) <= {confidence.IN_EXCERPT, confidence.ELSEWHERE}


def test_confidence_tells_the_two_apart(capsys: pytest.CaptureFixture[str]) -> None:
    """And reports what it does with documents that it did not learn from."""
    chance = np.random.default_rng(0)
    nothing = chance.random(1200) < 0.5
    features = chance.normal(size=(1200, 5)).astype(np.float32)
    features[:, 2] += 4 * nothing
    data = {"features": features, "cases": np.where(nothing, confidence.UNANSWERABLE, confidence.ANSWERED),
            "kinds": np.full(1200, "fact"), "names": np.where(np.arange(1200) % 4, "learnt", "unseen"),
            "right": np.stack((~nothing, ~nothing), 1), "weights": np.ones(1200, np.float32)}
    network = confidence.fit(data, {"unseen"}, seed=0)
    assert confidence.area(network(features[~nothing]), network(features[nothing])) > 0.97
    told = capsys.readouterr().out
    assert f"fact ({(~nothing[::4]).sum()}) 1.000 / 1.000" in told and f"unanswerable ({nothing[::4].sum()})" in told


def test_area_under_the_curve() -> None:
    assert confidence.area(np.array([0.0, 1]), np.array([1.0, 2])) == (1 + 1 + 0.5 + 1) / 4


def test_digests_learn_where_quoted_sentences_stand(work: Path) -> None:
    """Of each document the first sentence was quoted."""
    data = []
    for name in "abcdefghij":
        one = document(name)
        asked = AskedDocument(name, one.sentences, one.lines, [Query("What is it about?", "", (0, 2), digests.WHOLE)])
        data += digests.digests(asked, work)
    network = digests.fit(data, seed=0)
    assert digests.recall(data, network) == 1
    worse = Network(network.mean, network.std, tuple((-weights, bias) for weights, bias in network.layers))
    assert digests.recall(data, worse) < 0.5


def test_a_section_that_is_not_found_gives_no_digest(work: Path) -> None:
    one = document("d")
    queries = [Query("What is the chapter on whales about?", "", (0, 2), digests.SECTION)]
    assert digests.digests(AskedDocument("d", one.sentences, one.lines, queries), work) == []


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


@pytest.mark.slow
def test_examples_are_made_once(work: Path) -> None:
    """In other processes; in the documents' order; read back as they were."""
    unasked = AskedDocument("c", ["One."], [0], [Query("Who?", "", (), "unanswerable")])
    documents = [document("a"), document("b"), unasked]
    make = partial(sentence_network.candidates, work=work, first=None)
    made = gather(work / "candidates.npz", documents, make, workers=1)
    assert made["names"].tolist() == ["a"] * 11 + ["b"] * 11
    again = gather(work / "candidates.npz", [], make, workers=1)
    assert all(np.array_equal(made[name], again[name]) for name in made)
