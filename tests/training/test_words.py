"""Word vectors: what is read, learnt and written."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("sentencepiece")

from training.answer_vectors import Answers, Bag, Bagged, Encoder, fit, unlabelled_pairs  # noqa: E402
from training.question_sets import AskedDocument, Query  # noqa: E402
from training.words import save, skip_gram, write_stems  # noqa: E402
from triforce_core.quotes.word_vectors import WordVectors, unit  # noqa: E402

WORDS = 40


@pytest.fixture
def vectors() -> WordVectors:
    """Of words "w0" to "w39", that have nothing to do with each other."""
    chance = np.random.default_rng(0)
    rows = unit(chance.normal(size=(WORDS, 96))).astype(np.float32)
    return WordVectors([f"w{number}" for number in range(WORDS)], rows, np.full(WORDS, 5, np.float32), rows,
                       np.eye(96, dtype=np.float32))


def nearest(answers: Answers, question: Bag, sentences: list[Bag]) -> int:
    """The sentence that the application takes for the nearest."""
    summed = unit(np.stack([answers.answer[bag].sum(0) for bag in sentences]))
    return int((summed @ (answers.answer[question].sum(0) @ answers.to_answer)).argmax())


def test_what_is_saved_is_loaded(tmp_path: Path, vectors: WordVectors) -> None:
    """Up to half a step of int8."""
    answer = np.random.default_rng(1).normal(size=(WORDS, 96)).astype(np.float32) * np.arange(WORDS)[:, None]
    turn = np.random.default_rng(2).normal(size=(96, 96)).astype(np.float32)
    save(tmp_path / "v.npz", list(vectors.number), vectors.vectors, vectors.rarity, Answers(answer, turn))
    loaded = WordVectors.load(tmp_path / "v.npz")
    assert loaded.number == vectors.number and np.array_equal(loaded.to_answer, turn)
    assert np.abs(loaded.vectors - vectors.vectors).max() < 0.003
    assert (np.abs(loaded.answer - answer).max(1) <= np.abs(answer).max(1) / 254 + 1e-5).all()
    assert [file.name for file in tmp_path.iterdir()] == ["v.npz"]


def test_a_question_finds_its_answer_without_a_word_in_common(vectors: WordVectors) -> None:
    """Two of a question's words go with two of a sentence's; the documents to be learnt from show it in many pairs."""
    def document(name: str, shift: int) -> Bagged:
        sentences = [[10 + (number + shift) % 10, 20 + (number + shift) % 10] for number in range(10)]
        queries = [([(number + shift) % 10, 30 + (number + shift) % 10], (number,), "fact") for number in range(10)]
        return Bagged(name, sentences, queries)

    learnt = [document(str(shift), shift) for shift in range(30)]
    unseen = document("unseen", 5)
    before = Answers(vectors.answer, vectors.to_answer)
    after = fit(learnt, [unseen], [([0], [10])] * 4, vectors, epochs=15, seed=1)
    found = [nearest(after, question, unseen.sentences) in golds for question, golds, _ in unseen.queries]
    assert all(found)
    assert sum(nearest(before, question, unseen.sentences) in golds for question, golds, _ in unseen.queries) < 5


def test_the_same_seed_gives_the_same_answers(vectors: WordVectors) -> None:
    document = Bagged("a", [[number, number + 1] for number in range(20)],
                      [([number + 20], (number,), "paraphrase") for number in range(15)])
    one, other, different = (fit([document] * 10, [], [], vectors, 1, seed) for seed in (3, 3, 4))
    assert np.array_equal(one.answer, other.answer) and np.array_equal(one.to_answer, other.to_answer)
    assert not np.array_equal(one.answer, different.answer)


def test_a_bag_is_the_weighted_sum_of_its_words(vectors: WordVectors) -> None:
    encoder = Encoder(vectors)
    answers = encoder.answers()
    with torch.no_grad():
        given = encoder([[1, 2, 2], [3]], asked=True).numpy()
    expected = unit(np.stack([answers.answer[[1, 2, 2]].sum(0), answers.answer[3]]) @ answers.to_answer)
    assert given == pytest.approx(expected, abs=1e-5)


def test_pairs_that_nobody_labelled(vectors: WordVectors) -> None:
    """A heading with what stands below it, whatever is drawn; words are known by their number."""
    below = "w2 w3 w4 w5 w6 w7 w8 w9 w10 w11 w12 w13 w14 w15 w16 and so on it goes."
    known = WordVectors(["w", "2", "3", "so", "on"], vectors.vectors[:5], vectors.rarity[:5], vectors.answer[:5],
                        vectors.to_answer)
    pairs = unlabelled_pairs([f"About W\n{below}\n"] * 40, known, seed=0)
    assert 25 < len(pairs) < 40
    assert all(heading == [0] and set(line) <= {0, 1, 2, 3, 4} and len(line) > 6 for heading, line in pairs)


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
