"""A system text stands behind the document, as the model's template writes one there, or begins the first question."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from engine.tiny import document, write_model

from tests.tokenizer_folders import CHAT, hugging_face_folder, sentencepiece_folder
from triforce_core.config import EngineConfig, SamplingParams, SpeculationConfig
from triforce_core.documents.document import Document, Page
from triforce_core.engine.engine import Engine
from triforce_core.errors import ConfigError
from triforce_core.events import DocumentOpened, Finished, Turn
from triforce_core.prompt.builder import PromptBuilder
from triforce_core.tokenizer import Tokenizer

BOOK = Document("x", "txt", (Page("1", "The fox."),), "txt")
BLANK = Document("", "txt", (Page("", ""),), "none")
OTHER = "Never name a river, and speak of lamps and ladders only where nothing else is left to be said of them."
RULES = "Answer in French.\nBe brief. <|end|>"
ALTERNATING = (  # as Mistral and Gemma have it: no such role, and turns that do not alternate are refused
    "{{ bos_token }}{% for m in messages %}{% if (m.role == 'user') != (loop.index0 % 2 == 0) %}"
    "{{ raise_exception('turns must alternate') }}{% endif %}<|{{ m.role }}|>{{ m.content }}<|end|>{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}")
TO_THE_FRONT = (  # a system text is moved to the beginning, wherever it stands
    "{{ bos_token }}{% for m in messages if m.role == 'system' %}<|system|>{{ m.content }}<|end|>{% endfor %}"
    "{% for m in messages if m.role != 'system' %}<|{{ m.role }}|>{{ m.content }}<|end|>{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}")
DROPPED = CHAT.replace("{% for m in messages %}", "{% for m in messages if m.role != 'system' %}")
IN_THE_TURN = "--- end of document ---\n\nAnswer in French.\nBe brief. <|end|>\n\nQuestion: Who?"
OWN_TURN = ("--- end of document ---<|end|>\n<|system|>Answer in French.\nBe brief. <|end|><|end|>\n<|user|>"
            "Question: Who?")


def spelt(builder: PromptBuilder, system: str, book: Document = BOOK) -> tuple[str, list[int]]:
    """The whole prompt as its pieces spell it, and its ids."""
    prompt = builder.document(book)
    ids = prompt.token_ids.tolist()[: len(prompt.token_ids) - prompt.tail]
    ids += builder.after_document(prompt, system) + builder.question("Who?")
    vocabulary = builder.tokenizer._vocabulary
    return b"".join(vocabulary.piece_bytes(i) if i > 2 or not vocabulary.piece(i).startswith("<") else
                    vocabulary.piece(i).encode() for i in ids).decode(), ids


@pytest.mark.parametrize(("chat", "expected"), [
    (CHAT, OWN_TURN), (ALTERNATING, IN_THE_TURN), (TO_THE_FRONT, IN_THE_TURN), (DROPPED, IN_THE_TURN),
    (None, IN_THE_TURN)])
def test_where_a_template_puts_it(tmp_path: Path, chat: str | None, expected: str) -> None:
    builder = PromptBuilder(Tokenizer(hugging_face_folder(tmp_path, "bytes", chat=chat)))
    plain, _ = spelt(builder, "")
    text, ids = spelt(builder, f"  {RULES} ")
    assert expected in text
    end = "--- end of document ---"
    assert text.partition(end)[0] == plain.partition(end)[0], "the document is the same prefix"
    assert text.rpartition("Who?")[2] == plain.rpartition("Who?")[2], "the answer begins as the template has it"
    special = builder.tokenizer._vocabulary.special
    written = 3 if expected is OWN_TURN else 0  # the template's own end, end and user; <|system|> is no piece here
    assert sum(i in special for i in ids) == sum(i in special for i in spelt(builder, "")[1]) + written


def test_a_template_that_takes_system_for_assistant_is_not_believed(tmp_path: Path) -> None:
    builder = PromptBuilder(Tokenizer(sentencepiece_folder(tmp_path, prompt=None, dummy_prefix=True)))
    text, _ = spelt(builder, RULES)
    assert IN_THE_TURN in text and text.endswith(" [/INST]")


def test_the_built_in_layout_follows_none(tmp_path: Path) -> None:
    builder = PromptBuilder(Tokenizer(sentencepiece_folder(tmp_path)))
    with pytest.raises(ConfigError, match="no instructions"):
        builder.after_document(builder.document(BOOK), "Answer in French.")
    assert len(builder.after_document(builder.document(BOOK), " \n")) == builder.document(BOOK).tail
    assert not builder.document(BLANK).plain, "it needs a document"


@pytest.mark.parametrize(("chat", "plain", "instructed"), [
    (CHAT, "<|user|>Who?", f"<|system|>{RULES}<|end|>\n<|user|>Who?"),
    (ALTERNATING, "<|user|>Who?", f"<|user|>{RULES}\n\nWho?"),
    (TO_THE_FRONT, "<|user|>Who?", f"<|system|>{RULES}<|end|><|user|>Who?"),
    (DROPPED, "<|user|>Who?", f"<|user|>{RULES}\n\nWho?"), (None, "Question: Who?", f"Question: {RULES}\n\nWho?")])
def test_without_a_document_the_template_is_all_there_is(tmp_path: Path, chat: str | None, plain: str,
                                                         instructed: str) -> None:
    builder = PromptBuilder(Tokenizer(hugging_face_folder(tmp_path, "bytes", chat=chat)))
    without, ids = spelt(builder, "", BLANK)
    text, more = spelt(builder, f"  {RULES} ", BLANK)
    start = without.partition(plain)[0]
    assert plain in without and start in ("<s>", "") and "document" not in without + text
    assert text == start + instructed + without.partition(plain)[2]
    prompt = builder.document(BLANK)
    assert prompt.plain and ids[: len(prompt.token_ids)] == prompt.token_ids.tolist()
    assert more[: len(prompt.token_ids) - prompt.tail] == ids[: len(prompt.token_ids) - prompt.tail]


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A tiny pair with a chat template."""
    torch.set_num_threads(1)
    root = tmp_path_factory.mktemp("pair")
    made = (write_model(root / "target", layers=3, heads=4, seed=1), write_model(root / "draft", layers=1, heads=2,
                                                                               seed=2))
    for folder in made:
        (folder / "prompt.json").unlink()
        (folder / "chat_template.jinja").write_text(CHAT)
    return made


def made(folders: tuple[Path, Path], readings: Path) -> tuple[Engine, DocumentOpened]:
    engine = Engine(EngineConfig(str(folders[0]), str(folders[1]), dtype="float32", threads=1, mode="cpu",
                                 saved_readings=readings))
    list(engine.load())
    *_, opened = engine.open_document(document())
    return engine, opened


def test_one_reading_serves_every_system_text(folders: tuple[Path, Path], tmp_path: Path) -> None:
    """None of the document is read again; answers are those of an engine that never saw another text, with and without
    speculation, and the saved reading is the same one."""
    sampling = SamplingParams(temperature=1.0, max_new_tokens=24, stop_token_ids=())
    fast = SpeculationConfig(verifier="coupled", budget=128, recent=48, window=32, gamma1=2, gamma2=10)
    plain = SpeculationConfig(engine="autoregressive", verifier="coupled")

    def ask(engine: Engine, system: str, speculation: SpeculationConfig, history: tuple[Turn, ...] = ()) -> Finished:
        return list(engine.ask("Who found the lamp?", history, sampling, speculation, system))[-1]

    engine, opened = made(folders, tmp_path / "readings")
    told = {}
    for system in ("", "Answer in French.", OTHER, ""):
        done = ask(engine, system, fast)
        assert done.stats.reused_tokens > opened.tokens - 40
        assert told.setdefault(system, done.token_ids) == done.token_ids
    assert len({*told.values()}) == 3, "each text has its own answer"
    turn = Turn("Who found the lamp?", told["Answer in French."])
    second = ask(engine, "Answer in French.", fast, (turn,))
    again, restored = made(folders, tmp_path / "readings")
    assert restored.restored
    assert all(ask(again, system, plain).token_ids == told[system] for system in (OTHER, "Answer in French.", ""))
    assert ask(again, "Answer in French.", plain, (turn,)).token_ids == second.token_ids
    assert len(list((tmp_path / "readings").glob("*.kv"))) == 1
