"""What an answer is to be drawn by reaches each kind of server under its own names, or is refused."""

from __future__ import annotations

import json

import pytest

from tests.remote import scripted_servers as kinds
from tests.remote.scripted_servers import running
from triforce_core import ConfigError, Document, EngineConfig, Page, RemoteEngine
from triforce_core.config import SamplingParams, SpeculationConfig
from triforce_core.remote.wishes import as_asked

BOOK = Document("Lamps", "txt", (Page("1", "The lamp was red and stood in the harbour."),), "test")
SCHEMA = {"type": "object", "properties": {"lamp": {"type": "string"}}}
PENALTIES = {"frequency_penalty": 0.5, "presence_penalty": -1.0}
ALL = SamplingParams(top_k=5, min_p=0.1, repeat_penalty=1.2, logit_bias=((7, -100.0),), schema=json.dumps(SCHEMA),
                     **PENALTIES)
FORMAT = {"type": "json_schema", "json_schema": {"name": "answer", "schema": SCHEMA, "strict": True}}
USUAL = {"temperature": 0.0, "top_p": 1.0, "seed": 0, "max_tokens": 512}


@pytest.mark.parametrize(("program", "called"), [
    ("llama-server", "repeat_penalty"), ("vLLM", "repetition_penalty"), ("", "repetition_penalty")])
def test_everything_under_the_names_that_a_server_knows(program: str, called: str) -> None:
    assert as_asked(program, ALL) == USUAL | PENALTIES | {
        "top_k": 5, "min_p": 0.1, called: 1.2, "logit_bias": {"7": -100.0}, "response_format": FORMAT}


def test_defaults_of_their_own_are_set_to_ours_and_nothing_else_is_sent_unasked() -> None:
    assert as_asked("", SamplingParams()) == as_asked("Ollama", SamplingParams()) == USUAL
    assert as_asked("llama-server", SamplingParams()) == USUAL | {"top_k": 0, "min_p": 0.0, "repeat_penalty": 1.0}
    assert as_asked("vLLM", SamplingParams()) == USUAL | {"top_k": 0, "min_p": 0.0, "repetition_penalty": 1.0}
    any_object = SamplingParams(schema=json.dumps({"type": "object"}))
    assert as_asked("", any_object) == USUAL | {"response_format": {"type": "json_object"}}


@pytest.mark.parametrize(("program", "name"), [
    *(("Ollama", name) for name in ("top_k", "min_p", "repeat_penalty", "logit_bias")), ("LM Studio", "min_p")])
def test_what_a_server_would_drop_silently_is_refused(program: str, name: str) -> None:
    with pytest.raises(ConfigError, match=f"^{name} is not among what {program} looks at"):
        as_asked(program, SamplingParams(**{name: getattr(ALL, name)}))
    assert as_asked(program, SamplingParams(schema=ALL.schema, **PENALTIES)) == USUAL | PENALTIES | {
        "response_format": FORMAT}


def test_they_are_in_what_is_sent() -> None:
    with running(kinds.vllm()) as server:
        engine = RemoteEngine(EngineConfig(), server.url)
        list(engine.load())
        list(engine.open_document(BOOK))
        list(engine.ask("What lamp?", (), ALL, SpeculationConfig()))
        sent = server.seen[-1][1]
        assert as_asked("vLLM", ALL).items() <= sent.items()
