"""The reranker's examples, its fine-tuning, and what is written of it."""

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
zstandard = pytest.importorskip("zstandard")
pytest.importorskip("sentencepiece")

from training import answered, reranker, reranker_base, reranker_data  # noqa: E402
from training.question_sets import ARTICLE, AskedDocument, Query  # noqa: E402
from training.reranker import ArticleTask, Encoder, NaturalTask  # noqa: E402
from training.reranker_data import ANSWERED, ELSEWHERE, EXCERPT, FOREIGN, HIDDEN, UNANSWERABLE, Example  # noqa: E402
from training.words import save as save_vectors  # noqa: E402
from triforce_core.device.threads import single_thread  # noqa: E402
from triforce_core.evidence.reranker import Pairs, Passage, Reranker  # noqa: E402
from triforce_core.evidence.sentence_prior import READ, Network  # noqa: E402
from triforce_core.evidence.word_vectors import Stems, unit  # noqa: E402

TOPICS = "apple bridge candle dragon engine forest garden harbour island jacket kettle ladder".split()
LETTERS = [prefix + letter for prefix in ("", "##") for letter in "abcdefghijklmnopqrstuvwxyz"]
WORDS = "who found the cat here was by them it rained all day".split()
PIECES = [*reranker_base.SPECIAL, *LETTERS, *TOPICS, *WORDS]


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """For encoders this small more threads wait for each other."""
    torch.manual_seed(0)
    with single_thread(torch.device("cpu")):
        yield


@pytest.fixture
def vectors(tmp_path: Path) -> Path:
    """A file of word vectors."""
    words = sorted({Stems().of(word) for word in [*TOPICS, *WORDS]})
    rows = unit(np.random.default_rng(0).normal(size=(len(words), 96))).astype(np.float32)
    save_vectors(tmp_path / "vectors.npz", words, rows, np.full(len(words), 6.0))
    return tmp_path / "vectors.npz"


def document(name: str = "d", kind: str = "fact") -> AskedDocument:
    """Twelve paragraphs, each about a thing of its own, and a question about each but the last. None tells of cats."""
    sentences = [part for topic in TOPICS
                 for part in (f"Here the {topic} was found by them.", "It then rained all day long.")]
    queries = [Query(f"Who found the {topic}?", "", (2 * number,), kind) for number, topic in enumerate(TOPICS[:-1])]
    queries[3] = Query("Who found it?", "What of the dragon?", (6,), kind)
    return AskedDocument(name, sentences, [number // 2 for number in range(24)],
                         [*queries, Query("Who found the cat?", "", (), "unanswerable")])


def by_held_words(width: int = 94) -> Network:
    """Likes sentences that hold the question's words."""
    weights = np.zeros((1, width), np.float32)
    weights[0, 2] = 10
    return Network(np.zeros(width, np.float32), np.ones(width, np.float32), ((weights, np.zeros(1, np.float32)),))


def encoder(width: int = 64, positions: int = 128) -> transformers.BertModel:
    """A small one with random weights."""
    config = transformers.BertConfig(vocab_size=len(PIECES), hidden_size=width, num_hidden_layers=1,
                                     num_attention_heads=4, intermediate_size=128, max_position_embeddings=positions,
                                     hidden_dropout_prob=0.0, initializer_range=0.1)
    return transformers.BertModel(config, add_pooling_layer=False)


def made(case: str, golds: list[bool], by_words: list[float], kind: str = "fact") -> Example:
    return Example("who", case, kind, list(range(len(golds))), np.array(by_words, np.float32), np.array(golds),
                   len(golds), np.zeros((len(golds), 3), np.float32))


def test_examples_of_every_case(vectors: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reranker_data, "CANDIDATES", 10)
    monkeypatch.setattr(reranker_data, "EXCERPT_LINES", (5, 6))  # of twelve
    one, pool = document(), [Query(f"Who sank ship {number}?", "", (3,), "fact") for number in range(30)]
    given = reranker_data.examples(one, vectors, by_held_words(), [*one.queries, *pool])
    cases = [example.case for example in given.examples]
    assert cases.count(ANSWERED) == 11 and cases.count(UNANSWERABLE) == 1 and 1 < cases.count(HIDDEN) < 11
    assert 1 < cases.count(FOREIGN) <= reranker_data.OF_OTHERS and {EXCERPT, ELSEWHERE} <= set(cases)
    assert len(given.passages) == 24 and given.passages[3] == Passage(one.sentences[3], "", one.sentences[2])
    for example in given.examples:
        assert example.found <= 10 and len(example.sentences) == len(example.by_words) == len(example.golds)
        assert example.golds.any() == (example.case in (ANSWERED, EXCERPT))
        assert (np.diff(example.by_words[: example.found]) <= 0).all()
        for query in one.queries:
            if example.case in (ANSWERED, EXCERPT) and example.question == f"{query.before} {query.text}".strip():
                assert [at for at, gold in zip(example.sentences, example.golds, strict=True) if gold] == [*query.golds]
            if example.case in (HIDDEN, ELSEWHERE) and example.question == f"{query.before} {query.text}".strip():
                assert not set(query.golds) & set(example.sentences)
    assert "What of the dragon? Who found it?" in [example.question for example in given.examples]


def test_a_right_sentence_that_is_not_found_is_added(vectors: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reranker_data, "CANDIDATES", 3)
    index = reranker_data.index_of(document(), vectors)
    asked = Query("Was the dragon found by them?", "", (23,), "fact")
    example = reranker_data.example(index, by_held_words(), asked, ANSWERED)
    assert example.found == 3 and example.sentences[0] == 6 and example.sentences[3:] == [23]
    assert example.golds.tolist() == [False] * 3 + [True]


def test_articles_give_pairs() -> None:
    one = document(kind=ARTICLE)
    given = reranker_data.article(AskedDocument(one.name, one.sentences, one.lines, one.queries[:-1]))
    assert given.passages[1] == Passage("It then rained all day long.", "", "Here the apple was found by them.")
    assert given.passages[2].before == "" and ("Who found the bridge?", 2) in given.queries


@pytest.mark.slow
def test_examples_are_made_once(vectors: Path, tmp_path: Path) -> None:
    """In another process; read back as they were."""
    file = tmp_path / "examples.pickle"
    first = reranker_data.read_documents(file, [document("a"), document("b")], vectors, by_held_words(), 1)
    again = reranker_data.read_documents(file, [], vectors, by_held_words(), 1)
    assert [one.name for one in first] == ["a", "b"] == [one.name for one in again]
    assert [one.sentences for one in again[1].examples] == [one.sentences for one in first[1].examples]


def test_a_step_sees_right_sentences_first_and_mostly_near_misses() -> None:
    chance = np.random.default_rng(0)
    golds = [at in (1, 5, 9) for at in range(32)]
    drawn = [NaturalTask([], [], 1.0, made(ANSWERED, golds, [0.0] * 32)).draw(chance) for _ in range(300)]
    assert all(right == 2 and len(set(kept)) == len(kept) == 16 for kept, right in drawn)
    assert {gold for kept, _ in drawn for gold in kept[:2]} == {1, 5, 9}
    counts = np.bincount([at for kept, _ in drawn for at in kept[2:]], minlength=32)
    assert not counts[[1, 5, 9]].any() and counts[0] > 2 * counts[31] > 0
    few = NaturalTask([], [], 1.0, made(UNANSWERABLE, [False] * 3, [0.0] * 3)).draw(chance)
    assert sorted(few[0]) == [0, 1, 2] and few[1] == 0
    assert NaturalTask([], [], 1.0, made(ANSWERED, [True], [0.0])).draw(chance) == ([0], 1)


def test_a_step_sees_what_stands_around_an_articles_answer() -> None:
    chance = np.random.default_rng(0)
    drawn = [ArticleTask([], [[]] * 200, 0.5, 100).draw(chance) for _ in range(300)]
    hidden = [kept for kept, right in drawn if not right]
    assert 15 < len(hidden) < 60 and not any(100 in kept for kept in hidden)
    assert all(kept[0] == 100 and len(set(kept)) == len(kept) == 16 for kept, right in drawn if right)
    near = np.mean([abs(at - 100) < 10 for kept, _ in drawn for at in kept])
    assert 0.4 < near < 0.8
    assert ArticleTask([], [[]], 0.5, 0).draw(chance) == ([0], 1)


def test_rounds_hold_all_natural_questions_and_as_many_others() -> None:
    natural, articles = ([ArticleTask([], [], weight, 0) for _ in range(count)]
                         for weight, count in ((1.0, 5), (0.5, 9)))
    taken = list(itertools.islice(reranker.steps(natural, articles, 4, np.random.default_rng(0)), 6))
    assert [len(some) for some in taken] == [4, 4, 2] * 2
    assert [sum(task.weight == 1 for some in taken[at : at + 3] for task in some) for at in (0, 3)] == [5, 5]


def test_nothing_is_right_where_no_sentence_is() -> None:
    """The loss by hand: every sentence begins at NOTHING, and equal ones have equal vectors."""
    net = Encoder(encoder()).eval()
    rows = [array("H", [5, 3, 3])] * 3
    tasks = [NaturalTask([2, 3], rows, 2.0, made(UNANSWERABLE, [False] * 3, [0.0] * 3)),
             NaturalTask([2, 3], rows, 1.0, made(ANSWERED, [True, False, False], [0.0] * 3))]
    whole = np.log(1 + 3 * np.exp(-1))
    loss = reranker.loss_of(net, tasks, np.random.default_rng(0))
    of_vectors = reranker.VECTORS_COUNT * np.log(6)  # one of the six, for the question that has a right one
    assert float(loss.detach()) == pytest.approx((2 * whole + whole + 1) / 3 + of_vectors, abs=1e-4)


def test_rows_of_any_length_come_back_in_their_order() -> None:
    net, pairs = Encoder(encoder()).eval(), Pairs(PIECES)
    passages = pairs.passages([Passage(text) for text in ("the dragon", "it rained all day", "cat")])
    rows = list(zip(pairs.questions(["who found the apple", "who", "was it the dragon"]), passages, strict=True))
    alone = torch.cat([net([row]) for row in rows])
    assert torch.allclose(net(rows), alone, atol=1e-5) and alone.detach().std() < 1e-4
    torch.nn.init.normal_(net.head.weight)
    assert torch.allclose(net(rows), torch.cat([net([row]) for row in rows]), atol=1e-5)
    texts = [question for question, _ in rows]
    assert torch.allclose(net.vectors(texts), torch.cat([net.vectors([text]) for text in texts]), atol=1e-5)


def test_examples_are_ordered_by_words_and_vectors() -> None:
    """A sentence that says what the question says is nearest; what was added stays behind."""
    pairs, net = Pairs(PIECES), Encoder(encoder()).eval()
    rows = [array("H", row) for row in pairs.passages(
        [Passage(text) for text in ("the cat", "rained all", "who found the apple", "day")])]
    example = Example("who", ANSWERED, "fact", [1, 0, 2, 3], np.zeros(4, np.float32),
                      np.array([False, False, True, False]), 3, np.arange(12, dtype=np.float32).reshape(4, 3))
    task = NaturalTask(pairs.questions(["who found the apple"])[0], rows, 1.0, example)
    again = reranker.compared(net, [task])[0].example
    assert again.sentences[0] == 2 and again.sentences[3] == 3 and again.golds.tolist() == [True, False, False, False]
    assert again.strange[0].tolist() == [6, 7, 8] and again.by_words[0] == pytest.approx(reranker.NEAR_COUNTS, abs=1e-3)
    assert example.sentences == [1, 0, 2, 3] and not example.by_words.any()


def test_gradients_pass_the_rounding() -> None:
    matrix = torch.randn(64, 64, requires_grad=True)
    rounded = reranker.Rounded()(matrix)
    assert 0 < float((rounded - matrix).detach().abs().max()) < 0.5
    (rounded * torch.arange(64.0)).sum().backward()
    assert torch.equal(matrix.grad, torch.arange(64.0).expand(64, 64))


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


def test_the_base_keeps_letters_and_frequent_words(tmp_path: Path) -> None:
    tokenizer = Pairs([*PIECES, "[MASK]", "é", "й", "zebra"])._tokenizer
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    whole = [*PIECES, "[MASK]", "é", "й", "zebra"]
    config = transformers.BertConfig(vocab_size=len(whole), hidden_size=64, num_hidden_layers=1, num_attention_heads=4,
                                     intermediate_size=64, max_position_embeddings=160)
    base = transformers.BertModel(config, add_pooling_layer=False)
    base.save_pretrained(tmp_path)
    for name in ("prose-train", "books-train"):
        (tmp_path / f"{name}.jsonl.zst").write_bytes(zstandard.compress(b'{"text": "zebra dragon dragon [MASK]"}\n'))
    (tmp_path / "qa-train.jsonl.zst").write_bytes(
        zstandard.compress(b'{"question": "Who?", "context": "A kettle."}\n{"question": "cat", "context": "cat"}\n'))
    pieces = reranker_base.frequent_pieces(tmp_path, tmp_path, None)
    assert pieces[:4] == [*reranker_base.SPECIAL] and {*LETTERS, "é"} <= set(pieces) and "й" not in pieces
    assert pieces[4 + len(LETTERS) + 1 :] == ["dragon", "zebra", "who", "kettle"]
    net = reranker_base.base_encoder(tmp_path, pieces)
    assert net.embeddings.position_embeddings.weight.shape == (128, 64)
    assert torch.equal(net.embeddings.word_embeddings.weight[pieces.index("zebra")],
                       base.embeddings.word_embeddings.weight[whole.index("zebra")])
    assert net(input_ids=torch.tensor([[2, 7, 3]])).last_hidden_state.shape == (1, 3, 64)


def test_the_best_sentence_tells_which_names_are_strange() -> None:
    one = made(ANSWERED, [False] * READ, sorted(range(READ), reverse=True))
    one.strange[3] = 0, 1, 2
    nats = np.zeros(READ, np.float32)
    nats[3] = 9
    assert answered.features([one], [nats])[0, 8:].tolist() == [0, 1, 2]


def test_the_chance_of_an_answer_is_fitted_and_told(capsys: pytest.CaptureFixture[str]) -> None:
    """The encoder says more than 0 of one sentence where the question is answered."""
    chance, examples, read = np.random.default_rng(0), [], []
    for number in range(400):
        nats, words = chance.normal(-5, 1, (2, READ)).astype(np.float32)
        if number % 2:
            nats[3] = 3 + chance.normal()
        examples.append(made(ANSWERED if number % 2 else UNANSWERABLE, [at == 3 and number % 2 for at in range(READ)],
                             sorted(words, reverse=True)))
        read.append(nats)
    network = answered.fit(examples, read)
    answered.measure(examples, read)
    odds = network(answered.features(examples, read))
    assert (odds[1::2] > 0).mean() > 0.97 and (odds[::2] < 0).mean() > 0.97
    told = capsys.readouterr().out
    assert "answered (200)" in told and f"right first of {READ} by words / read / both: all (200) 0.000 / 1.000" in told
    assert "unanswerable (200): AUC 1.000, 1.000 where" in told


def test_area_under_the_curve() -> None:
    assert answered.area(np.array([0.0, 1]), np.array([1.0, 2])) == (1 + 1 + 0.5 + 1) / 4
