"""What clients send, as they sent it to a recorder on 27 November 2026 (Open WebUI's as its source builds it)."""

from __future__ import annotations

import json

import httpx
import pytest

SAID = [{"role": "user", "content": "What is the capital of France?"}]
TALK = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Name a colour."},
        {"role": "assistant", "content": "Green."}, {"role": "user", "content": "Another one."}]
SCHEMA = {"properties": {"name": {"title": "Name", "type": "string"}, "count": {"title": "Count", "type": "integer"}},
          "required": ["name", "count"], "title": "Ship", "type": "object", "additionalProperties": False}
FORMAT = {"type": "json_schema", "json_schema": {"schema": SCHEMA, "name": "Ship", "strict": True}}
SOURCES = '<context>\n<source id="1" name="lamp.txt">The lamp is green.</source>\n</context>\n'
CHAT = {
    "openai 3.57": {"messages": SAID, "max_completion_tokens": 20},
    "openai 3.57, parse": {"stream": False, "messages": SAID, "max_tokens": 60, "response_format": FORMAT},
    "openai 3.57, sampling": {
        "messages": SAID, "frequency_penalty": 0.8, "logit_bias": {"5": -100}, "max_tokens": 24, "seed": 1,
        "presence_penalty": 0.2, "temperature": 0.7, "min_p": 0.05, "repeat_penalty": 1.1},
    "llm 0.36": {"stream": True, "messages": TALK, "stream_options": {"include_usage": True}},
    "llm 0.36, schema": {"stream": False, "messages": SAID, "max_tokens": 60, "response_format": {
        "type": "json_schema", "json_schema": {"name": "output", "schema": {
            "type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}}}},
    "langchain-openai 1.7": {"stream": True, "messages": SAID, "max_completion_tokens": 20},
    "langchain-openai 1.7, structured": {"stream": False, "messages": SAID, "max_completion_tokens": 60,
                                         "response_format": FORMAT},
    "litellm 1.110": {"messages": SAID, "max_tokens": 20, "stream": True},
    "Open WebUI 0.12": {"stream": True, "messages": TALK, "temperature": 0.6, "top_p": 0.9, "min_p": 0.05, "seed": 3,
                        "max_tokens": 64, "frequency_penalty": 0.1, "stop": ["###"]},
    "Open WebUI 0.12, documents": {"stream": True, "messages": [
        *TALK[:-1], {"role": "user", "content": [{"type": "text", "text": f"### Task:\nRespond.\n\n{SOURCES}Why?"}]}]},
}
RESPONSES = {
    "openai 3.57": {"input": "What is the capital of France?", "max_output_tokens": 20},
    "openai 3.57, parse": {"input": "Hello", "text": {"format": {"type": "json_schema", "strict": True, "name": "Ship",
                                                                 "schema": SCHEMA}}},
    "langchain-openai 1.7": {"stream": False, "max_output_tokens": 20, "input": [
        {"content": "Name a colour.", "role": "user", "type": "message"}]},
    "Open WebUI 0.12": {"stream": True, "instructions": "Be brief.", "temperature": 0.6, "input": [
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Name a colour."}]},
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Green."}]},
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Another one."}]}]},
}


@pytest.mark.parametrize(("route", "body"), [
    pytest.param(route, body, id=f"{route}: {name}") for route, bodies in (("chat/completions", CHAT),
                                                                            ("responses", RESPONSES))
    for name, body in bodies.items()])
def test_a_client_s_request_is_answered(served, chat_model, route: str, body: dict) -> None:
    answer = httpx.post(f"{served.url}v1/{route}", json={"model": "builtin", **body}, timeout=20.0)
    assert answer.status_code == 200 and '"error": {' not in answer.text
    assert answer.headers["content-type"].startswith("text/event-stream" if body.get("stream") else "application/json")
    run = list(served.services.runs._runs.values())[-1]
    asked = body.get("input", body.get("messages"))
    assert run.question in json.dumps(asked).replace("\\n", "\n").replace('\\"', '"')
    assert len(run.accumulator.text) > 20 and ("Be brief." in run.system) == ("Be brief." in json.dumps(body))
