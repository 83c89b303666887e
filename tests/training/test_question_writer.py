"""Questions about texts that nobody asked about: what is asked, and what is kept of it."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
pytest.importorskip("sentencepiece")

from training import question_writer  # noqa: E402
from training.question_sets import AskedDocument, Query  # noqa: E402
from training.question_writer import PARAPHRASE, PLAIN, Excerpt  # noqa: E402

SENTENCES = [f"The miller of village {name} sold his flour to every baker in town." for name in
             "north south east west upper lower outer inner".split()]


def test_lessons_are_natural_questions_that_stand_alone() -> None:
    queries = [Query("Whose flour?", "", (3, 4), "fact"), Query("Who ground it?", "", (1,), "paraphrase"),
               Query("And then?", "Who?", (2,), "followup"), Query("Why?", "", (), "unanswerable")]
    plain, paraphrase = question_writer.lessons(AskedDocument("mill", SENTENCES, list(range(8)), queries))
    assert plain == (f"Text: {' '.join(SENTENCES[:6])}\nAnswer: {SENTENCES[3]} {SENTENCES[4]}\nQuestion:",
                     "Whose flour?")
    assert paraphrase == (f"Text: {' '.join(SENTENCES[:3])}\nAnswer: {SENTENCES[1]}\nQuestion in other words:",
                          "Who ground it?")


def test_prose_is_asked_about() -> None:
    text = "\n".join(["A heading", *(f"{sentence} Yes. {sentence}" for sentence in SENTENCES * 4)])
    one = question_writer.excerpt("mill", text, Random(0))
    assert one is not None and len(one.asked) == question_writer.ASKED and len(one.sentences) <= 97
    assert all(one.sentences[at] in SENTENCES for at, _ in one.asked)
    assert {manner for _, manner in one.asked} == {PARAPHRASE, PLAIN}
    assert question_writer.excerpt("list", "One line.\n" * 90, Random(0)) is None


@pytest.mark.parametrize(("question", "kind"), [
    ("Who else bought what he made?", PARAPHRASE),
    ("Which miller supplied shops with flour?", PLAIN),
    ("Did the miller sold flour to every baker town?", None),  # all its words
    ("Is it right that the miller of village north sold some?", None),  # six words in a row
    ("He sold bread elsewhere", None),
    ("Who bought it?", None),
    ("What is it that they said about it?", None),  # asks for nothing
])
def test_copies_and_questions_without_sense_are_dropped(question: str, kind: str | None) -> None:
    assert question_writer.kind_of(question, SENTENCES[0]) == kind


def test_the_file_has_each_question_once(tmp_path: Path) -> None:
    texts = [Excerpt("mill", SENTENCES, list(range(8)), [(0, PLAIN), (1, PLAIN)]),
             Excerpt("none", SENTENCES, list(range(8)), [(2, PLAIN)])]
    told = {0: " Who else bought what he made?\nAnd", 1: " Who else bought what he made?", 2: " Nothing"}
    question_writer.save(tmp_path / "w.jsonl", texts, [(0, 0), (0, 1), (1, 2)], told)
    (line,) = (tmp_path / "w.jsonl").read_text().splitlines()
    assert json.loads(line) == {"name": "mill", "sentences": SENTENCES, "lines": list(range(8)),
                                "questions": [["Who else bought what he made?", 0, PARAPHRASE]]}


def test_only_the_question_is_learnt() -> None:
    """Rows of different lengths beside each other have the loss that each has alone."""
    torch.manual_seed(0)
    config = transformers.LlamaConfig(vocab_size=40, hidden_size=16, num_hidden_layers=1, num_attention_heads=2,
                                      num_key_value_heads=1, intermediate_size=16)
    net = transformers.LlamaForCausalLM(config)
    rows = [([5, 6, 7], [8, 9]), ([5] * 9, [11, 12])]
    alone = [float(question_writer.loss_of(net, [row]).detach()) for row in rows]
    assert float(question_writer.loss_of(net, rows).detach()) == pytest.approx(sum(alone) / 2, abs=1e-5)
    scores = net(input_ids=torch.tensor([[5, 6, 7, 8]])).logits[0, 2:].log_softmax(-1)
    assert alone[0] == pytest.approx(-float((scores[0, 8] + scores[1, 9]).detach()) / 2, abs=1e-5)
    question_writer.teach(net, rows * 8, [], 60, 4, Random(0))
    assert float(question_writer.loss_of(net, rows).detach()) < sum(alone) / 2
