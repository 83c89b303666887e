"""Both kinds of tokenizer: no special token out of a text, no half characters out of a stream."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.tokenizer_folders import folder_of
from triforce_core.errors import ModelNotFoundError, TokenizerMismatchError, UnsupportedModelError
from triforce_core.tokenizer import Tokenizer

KINDS = ["tagged", "llama", "bytes", "spaces"]
INJECTIONS = [
    "<s>", "</s>", " <s> [INST] <<SYS>> </s>", "<|eot_id|>", "a<|eot_id|>b", "<doc>", " x</doc>y ", "<assistant>",
    "<user> hello", "<page> 3\n", "“quoted”", "<|im_start|>system\n<|end|>", "<think>", "<0x41>", "<unk>", "<<doc>doc>",
]  # fmt: skip
TEXTS = [
    " The quick brown fox.", "The fox", "", " ", "\n", "\n\nThe dog", "é 漢字 😀 end", "a\tb", " naïve — “x”",
    "x" * 300,
    "العربية नमस्ते", "  two  spaces  ", "1851", "line\nline\n",
]  # fmt: skip


@pytest.fixture(scope="module")
def tokenizers(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Tokenizer]:
    return {kind: Tokenizer(folder_of(kind, tmp_path_factory.mktemp(kind))) for kind in KINDS}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("text", INJECTIONS)
def test_text_never_gives_a_special_token(tokenizers: dict[str, Tokenizer], kind: str, text: str) -> None:
    tokenizer = tokenizers[kind]
    ids = tokenizer.encode(text)
    assert not set(ids) & tokenizer._vocabulary.special
    assert not set(ids) & (tokenizer.stop_token_ids - set(tokenizer.encode("\n")))
    assert tokenizer.decode(ids).split() == text.split() or kind == "spaces"  # "spaces" may lose one around a mark
    assert tokenizer.decode(ids).replace(" ", "") == text.replace(" ", "")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("text", TEXTS)
def test_round_trip(tokenizers: dict[str, Tokenizer], kind: str, text: str) -> None:
    """Exact, but for the one leading space that Llama's kind cannot tell from its own."""
    tokenizer = tokenizers[kind]
    expected = text.removeprefix(" ") if tokenizer._vocabulary.strips_first_space else text
    assert tokenizer.decode(tokenizer.encode(text)) == expected
    lengths = tokenizer.byte_lengths[tokenizer.encode(text)].sum()
    assert lengths == len(text.encode())


@pytest.mark.parametrize("kind", KINDS)
def test_half_a_surrogate_pair_is_the_unknown_character(tokenizers: dict[str, Tokenizer], kind: str) -> None:
    for special in (False, True):
        assert tokenizers[kind].encode("a\ud83d b", special) == tokenizers[kind].encode("a\ufffd b", special)


@pytest.mark.parametrize("kind", ["bytes", "spaces"])
def test_decode_equals_the_library(tokenizers: dict[str, Tokenizer], kind: str) -> None:
    tokenizer = tokenizers[kind]
    for text in TEXTS:
        ids = tokenizer.encode(text)
        assert tokenizer.decode(ids) == tokenizer._vocabulary._inner.decode(ids, skip_special_tokens=True)


@pytest.mark.parametrize("kind", KINDS)
def test_a_text_encodes_without_a_prefix_space(tokenizers: dict[str, Tokenizer], kind: str) -> None:
    tokenizer = tokenizers[kind]
    whole = tokenizer.encode("The dog") + tokenizer.encode(" Fox")
    assert "".join(tokenizer.token_bytes(i).decode() for i in whole) == "The dog Fox"


@pytest.mark.parametrize("kind", KINDS)
def test_special_text_gives_special_tokens(tokenizers: dict[str, Tokenizer], kind: str) -> None:
    tokenizer = tokenizers[kind]
    ids = tokenizer.encode("<s> hello</s>", special=True)
    assert ids[0] == tokenizer.token_id("<s>") and ids[-1] == tokenizer.token_id("</s>")
    assert tokenizer.decode(ids).strip() == "hello"


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", range(5))
def test_streams_join_to_decode_and_never_emit_half_a_character(
    tokenizers: dict[str, Tokenizer], kind: str, seed: int
) -> None:
    tokenizer = tokenizers[kind]
    chance = random.Random(seed)
    ids = [chance.randrange(tokenizer.vocab_size) for _ in range(200)]
    ids += tokenizer.encode("漢字 😀 é")[chance.randrange(4) :]
    stream = tokenizer.stream_decoder()
    pieces = [stream.feed(i) for i in ids] + [stream.flush()]
    assert "".join(pieces) == tokenizer.decode(ids)
    stream = tokenizer.stream_decoder()
    assert all("\ufffd" not in stream.feed(i) for i in tokenizer.encode("漢字 😀 é")) and stream.flush() == ""


@pytest.mark.parametrize("kind", KINDS)
def test_half_a_character_at_the_end_of_an_answer_is_the_unknown_one(tokenizers: dict[str, Tokenizer], kind: str
                                                                     ) -> None:
    ids = tokenizers[kind].encode("a 😀")[:-1]
    stream = tokenizers[kind].stream_decoder()
    assert "".join(map(stream.feed, ids)) == "a " and stream.flush() == "\ufffd"
    assert tokenizers[kind].decode(ids) == "a \ufffd"


def test_quotation_marks_are_written_without_the_space_inside(tokenizers: dict[str, Tokenizer]) -> None:
    tokenizer = tokenizers["tagged"]
    assert tokenizer.decode(tokenizer.encode("“ The fox.” a fox", special=True)) == "“The fox.” a fox"


def test_stop_tokens(tokenizers: dict[str, Tokenizer]) -> None:
    tagged, chat = tokenizers["tagged"], tokenizers["bytes"]
    assert tagged.stop_token_ids == {2, 3, tagged.token_id("<user>")}
    assert chat.stop_token_ids == {chat.token_id("</s>"), chat.token_id("<|end|>")}


def test_fingerprints_and_vocabularies(tokenizers: dict[str, Tokenizer]) -> None:
    prints = {tokenizer.fingerprint for tokenizer in tokenizers.values()}
    assert len(prints) == len(KINDS)
    again = Tokenizer(tokenizers["tagged"].folder)
    assert again.fingerprint == tokenizers["tagged"].fingerprint and again.same_vocabulary(tokenizers["tagged"])
    assert not tokenizers["bytes"].same_vocabulary(tokenizers["spaces"])


def test_unusable_folders(tmp_path: Path, tokenizers: dict[str, Tokenizer]) -> None:
    with pytest.raises(ModelNotFoundError):
        Tokenizer(tmp_path / "nowhere")
    with pytest.raises(ModelNotFoundError, match="no tokenizer"):
        Tokenizer(tmp_path)
    (tmp_path / "tokenizer.model").write_bytes(b"not a model")
    with pytest.raises(UnsupportedModelError):
        Tokenizer(tmp_path)
    (tmp_path / "tokenizer.model").unlink()
    (tmp_path / "tokenizer.json").write_text("{")
    with pytest.raises(UnsupportedModelError):
        Tokenizer(tmp_path)
    with pytest.raises(TokenizerMismatchError):
        tokenizers["tagged"].token_id("<nothing>")


@pytest.mark.parametrize("kind", ["llama", "bytes"])
def test_models_think_only_when_told_to(tmp_path: Path, kind: str) -> None:
    """Where the chat template asks: both kinds of files, off by default."""
    folder_of(kind, tmp_path)
    (tmp_path / "chat_template.jinja").write_text(
        "{{ bos_token }}{% if enable_thinking is defined and not enable_thinking %}<no>{% endif %}"
        "{{ messages[0].content }}")
    turns = [{"role": "user", "content": "Why?"}]
    assert Tokenizer(tmp_path).render_chats([turns]) == ["<s><no>Why?"]
    assert Tokenizer(tmp_path, thinking=True).render_chats([turns]) == ["<s>Why?"]
