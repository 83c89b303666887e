"""Vocabularies and chat templates as published, where they were fetched (``tests.gguf_vocabularies``)."""

from __future__ import annotations

import gc
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from transformers.utils import chat_template_utils

from tests.gguf_vocabularies import folder
from triforce_core.errors import UnsupportedModelError
from triforce_core.gguf import open_gguf
from triforce_core.prompt.layout import ChatLayout
from triforce_core.tokenizer.chat_template import ChatTemplate
from triforce_core.tokenizer.gguf_vocabulary import open_vocabulary

DATA = folder()
pytestmark = pytest.mark.skipif(DATA is None, reason="TRIFORCE_GGUF_VOCABULARIES names no folder: "
                                                     "python -m tests.gguf_vocabularies FOLDER fetches it")
NOT_DECODERS = {"ggml-vocab-bert-bge.gguf"}
QUICK = {"ggml-vocab-llama-spm.gguf", "ggml-vocab-gpt-2.gguf", "ggml-vocab-llama-bpe.gguf", *NOT_DECODERS}
CASES = [pytest.param(name, marks=() if name in QUICK else pytest.mark.exhaustive)
         for name in sorted(path.name.removesuffix(".inp") for path in DATA.glob("*.inp"))] if DATA else []
TEMPLATES = sorted((DATA / "templates").glob("*.jinja")) if DATA else []
# transformers fails on these two ways without tools, and ours does not; the third wants functions in both.
WANT_TOOLS, WANT_FUNCTIONS = "-tool_use.jinja", "fireworks-ai-llama-3-firefunction-v2.jinja"
SYSTEM, USER, ANSWER, NEXT = ({"role": role, "content": words} for role, words in (
    ("system", "Be brief."), ("user", "Who found it?"), ("assistant", "Adele."), ("user", "When?")))
NAMES = {"bos_token": "<s>", "eos_token": "</s>"}


class FirstDay(datetime):
    """Stands for transformers' clock: what ours writes for a template without a file."""

    @classmethod
    def now(cls, tz: Any = None) -> datetime:
        return datetime.fromtimestamp(0, UTC)


@pytest.mark.parametrize("name", CASES)
def test_texts_give_the_published_ids(name: str) -> None:
    assert DATA is not None
    path = DATA / name
    texts = path.with_name(name + ".inp").read_text(encoding="utf-8").split("\n__ggml_vocab_test__\n")
    lines = path.with_name(name + ".out").read_text(encoding="utf-8").split("\n")
    if name in NOT_DECODERS:
        with pytest.raises(UnsupportedModelError, match="kind 'bert'"):
            open_vocabulary(open_gguf(path))
        return
    vocabulary = open_vocabulary(open_gguf(path))
    expected = [[int(number) for number in line.split()] for line in lines[: len(texts)]]
    assert len(texts) > 40 and len(expected) == len(texts)
    for text, found, wanted in zip(texts, vocabulary.raw(texts), expected, strict=True):
        assert found == wanted, text
    del vocabulary
    gc.collect()  # hundreds of thousands of pieces and merges


def ours(template: str, turns: list[dict[str, str]], thinking: bool) -> str:
    (found,) = ChatTemplate(template, Path("here"), NAMES).render([turns], generate=True, thinking=thinking)
    if isinstance(found, UnsupportedModelError):
        raise found
    return found


@pytest.mark.parametrize("thinking", [False, True])
@pytest.mark.parametrize("path", TEMPLATES, ids=lambda path: path.stem)
def test_templates_render_as_in_transformers(path: Path, thinking: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chat_template_utils, "datetime", FirstDay)
    template = path.read_text(encoding="utf-8")
    for turns in ([SYSTEM, USER, ANSWER, NEXT], [USER, ANSWER, NEXT], [USER]):
        try:
            expected = chat_template_utils.render_jinja_template(
                [turns], chat_template=template, add_generation_prompt=True, enable_thinking=thinking,
                thinking=thinking, **NAMES)[0][0]
        except Exception:
            if path.name.endswith(WANT_TOOLS):
                assert USER["content"] in ours(template, turns, thinking)
                continue
            with pytest.raises(UnsupportedModelError, match="does not work"):
                ours(template, turns, thinking)
            continue
        assert ours(template, turns, thinking) == expected


class Letters:
    """Stands for a tokenizer: each letter a token."""

    bos_token_id = 0

    def __init__(self, template: str) -> None:
        self._template = template

    def render_chats(self, conversations: list[list[dict[str, str]]], generate: bool = True) -> list:
        template = ChatTemplate(self._template, Path("here"), NAMES)
        return template.render(conversations, generate=generate, thinking=False)

    def encode(self, text: str, special: bool = False) -> list[int]:
        return [ord(letter) for letter in text]


@pytest.mark.parametrize("path", [path for path in TEMPLATES if path.name != WANT_FUNCTIONS],
                         ids=lambda path: path.stem)
def test_templates_are_cut_into_a_fixed_prefix(path: Path) -> None:
    """head, document, tail, question: joined they are what the template writes for the first question."""
    tokenizer: Any = Letters(path.read_text(encoding="utf-8"))
    layout = ChatLayout(tokenizer)

    def text(ids: list[int]) -> str:
        return "".join(map(chr, ids))

    question = "Who found it?"
    joined = text(layout.head) + "PAGES" + text(layout.tail) + text(layout.question(question, True))
    content = joined[joined.index("Below is a document") : joined.index(question) + len(question)]
    assert [joined] == tokenizer.render_chats([[{"role": "user", "content": content}]])
    assert "PAGES" in content and text(layout.question("Next", False)).startswith("Next")
