"""A template is a program of whoever made the file: it gets seconds, and memory that this machine can spare."""

from __future__ import annotations

import os
import resource
import time
from pathlib import Path

import pytest

from triforce_core.errors import UnsupportedModelError
from triforce_core.sandbox import child
from triforce_core.tokenizer import chat_template
from triforce_core.tokenizer.chat_template import ChatTemplate

TURNS = [{"role": "user", "content": "Why?"}]
NESTED = "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}"
DOUBLED = "{% set n = namespace(s='x') %}{% for i in range(40) %}{% set n.s = n.s ~ n.s %}{% endfor %}"


def render(text: str, *conversations: list[dict[str, str]]) -> list:
    return ChatTemplate(text, Path("some.gguf"), {"bos_token": "<s>", "extra": ["<a>", "<b>"]}).render(
        conversations or (TURNS,), generate=True, thinking=False)


@pytest.mark.parametrize("text", [
    pytest.param(NESTED, id="endless"),
    pytest.param("{{ 'a' * 10**10 }}", id="a long string"),
    pytest.param("{% set a = [1] * 10**9 %}", id="a long list"),
    pytest.param(DOUBLED, id="doubled and doubled"),
    pytest.param("{% for i in range(99999) %}{{ 'a' * 100 }}{% endfor %}", id="many words"),
    pytest.param("{{ 'a' * 3000000 }}", id="one long word"),
    pytest.param("{% if messages[0].content == 'Why?' %}x{% else %}" + NESTED + "{% endif %}", id="the second only"),
    pytest.param("x" * 2**21, id="a long template"),
])
def test_a_template_beyond_the_limits_ends_in_a_clear_error(text: str) -> None:
    before, started = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.monotonic()
    with pytest.raises(UnsupportedModelError, match=r"chat template in some\.gguf does not work.*Allowed"):
        render(text, TURNS, [{"role": "user", "content": "How?"}])
    assert time.monotonic() - started < 12.0
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 64 * 1024, "kilobytes of this process"


def test_the_process_ends_with_its_work(monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[child.ChildProcess] = []

    class Watched(child.ChildProcess):
        def __init__(self, module: str) -> None:
            super().__init__(module)
            started.append(self)

    monkeypatch.setattr(chat_template, "ChildProcess", Watched)
    monkeypatch.setattr(chat_template, "_SECONDS", 1.0)
    assert render("{{ messages[0].content }}", TURNS, TURNS) == ["Why?", "Why?"]
    with pytest.raises(UnsupportedModelError):
        render(NESTED)
    assert len(started) == 2 and all(each._process.poll() is not None for each in started), "one for all conversations"


def test_a_template_writes_the_same_date_every_day(tmp_path: Path) -> None:
    model = tmp_path / "tokenizer.json"
    model.touch()
    os.utime(model, (0, 86_400 * 365))
    template = chat_template.ChatTemplate("{{ strftime_now('%d %b %Y') }}", model)
    assert template.render([TURNS], generate=True, thinking=False) == ["01 Jan 1971"]


def test_a_refusal_is_of_one_conversation_only() -> None:
    system = [{"role": "system", "content": "Be brief."}]
    refused, accepted = render("{% if messages[0].role == 'system' %}{{ raise_exception('no such role') }}{% endif %}"
                               "{{ bos_token }}{{ extra | join }}{{ messages[0].content }}", system, TURNS)
    assert isinstance(refused, UnsupportedModelError) and "no such role" in str(refused)
    assert accepted == "<s><a><b>Why?"


@pytest.mark.parametrize("text", ["{{ messages[0].content", "{{ nothing.at.all }}", "{{ messages.append(1) }}",
                                  "{{ ''.__class__.__mro__[1].__subclasses__() }}"])
def test_one_that_is_wrong_says_so(text: str) -> None:
    (found,) = render(text)
    assert isinstance(found, UnsupportedModelError) and "does not work" in str(found)
