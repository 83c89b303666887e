"""The exported pair loads in transformers unchanged, with the same tokens and the same scores."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
spm = pytest.importorskip("sentencepiece")

from training.export import BUILTIN_FOLDER, export  # noqa: E402
from training.text import Encoder, normalise  # noqa: E402

TEXTS = (
    "",
    " ",
    "   three   spaces ",
    "Call me Ishmael. Some years ago--never mind how long precisely--I went to sea.",
    "a\n\nb\n c\n",
    "<doc><page> 12\n In 1851 it was 3.14 times it, naïve Zoë said.\n</doc><user> Why?\n<assistant>“ Because.” 42\n",
    "漢字 and кириллица and 😀👩‍👩‍👧 and \u0000 and \t tabs and é e\u0301",
    "aaaaaaaaaaaa ------- ........ !!!!!! 000000 ''''' \"\"\"\" ######## ==========",
    "x <doc>y</doc><unknown> < page> <user <assistant>> ““ ”” “x”",
    "def f(x):\n    return {'a': [1, 2, 3]}  # comment\n",
    "▁ already ▁▁ there",
    "https://example.org/a_b?c=d&e=%20f  UPPER lower MiXeD iPhone's don't o'clock",
)


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The pair as Hugging Face folders."""
    if not (BUILTIN_FOLDER / "target" / "model.safetensors").exists():
        pytest.skip("the built-in pair is not there")
    out = tmp_path_factory.mktemp("exported")
    export(BUILTIN_FOLDER, out)
    return out


@pytest.mark.parametrize("name", ["target", "draft"])
def test_tokens_are_those_of_sentencepiece(exported: Path, name: str) -> None:
    """AutoTokenizer and sentencepiece agree, on texts with marks, bytes and repeated characters too."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(exported / name)
    pieces = spm.SentencePieceProcessor(model_file=str(BUILTIN_FOLDER / "tokenizer.model"))
    chance = np.random.default_rng(0)
    words = [pieces.id_to_piece(int(i)).replace("▁", " ") for i in chance.integers(11, 24_576, 4000)]
    letters = "".join(chance.choice(list("abcdefgh ,.'-\"\n“”<>AEé"), 3000))
    for text in (*TEXTS, "".join(words), "".join(words[::2]), letters):
        expected = pieces.encode(text)
        assert tokenizer.encode(text) == expected
        assert tokenizer.decode(expected) == pieces.decode(expected)


def test_chat_template_is_the_turn_of_the_prompt_file(exported: Path) -> None:
    """A chat becomes the tokens that the encoder makes."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(exported / "target")
    chat = [{"role": "user", "content": "Where is the whale?"}]
    ids = tokenizer.apply_chat_template(chat, add_generation_prompt=True, return_dict=False)
    assert ids == Encoder(BUILTIN_FOLDER / "tokenizer.model").question("Where is the whale?")


def test_prompt_file_states_the_layout() -> None:
    """The encoder and `prompt.json` say the same."""
    prompt = json.loads((BUILTIN_FOLDER / "prompt.json").read_text())
    encoder = Encoder(BUILTIN_FOLDER / "tokenizer.model")
    encode = encoder.pieces.encode
    assert encode(prompt["user"].format(question="Why so?")) == encoder.question("Why so?")
    assert encode(prompt["page_marker"].format(label="xii")) == encoder.page_mark("xii")
    assert [encode(mark) for mark in (prompt["quote_open"], prompt["quote_close"])] == [
        [encoder.open_quote],
        [encoder.close_quote],
    ]
    assert normalise("“It’s—well…” <doc>\u00a0x") == '"It\'s--well..." < doc> x'


def test_a_sentence_has_the_same_tokens_in_the_document_and_alone() -> None:
    """Quoting copies tokens."""
    encoder = Encoder(BUILTIN_FOLDER / "tokenizer.model")
    text = 'Mr. Starbuck spoke first. "Who\'s there?" he asked. Nobody (it was 3 a.m.) answered!\nA second line.'
    encoded = encoder.lines(text)
    assert len(encoded.sentences) == 4
    for (first, end), (start, stop) in zip(encoded.sentences, encoded.characters, strict=True):
        assert encoded.ids[first:end].tolist() == encoder.encode(text[start:stop])
    assert encoded.ids.tolist() == [i for line in text.split("\n") for i in [*encoder.encode(line), encoder.newline]]
