"""``/v1/responses``, with OpenAI's own client against the served page."""

from __future__ import annotations

import base64
import uuid

import httpx
import openai
import pytest

from ui.api.answers import NEEDS

TOLD = ("response.passages", "response.quotes", "response.support", "response.output_text.annotation.added")
TEXT = "The harbour master of Ness kept a green lamp for the pilots of the bay."


def asking(question: str = "What lamp?", **more) -> list[dict]:
    data = base64.b64encode(f"{uuid.uuid4()} {TEXT}".encode()).decode()
    file = {"type": "input_file", "filename": "lamp.txt", "file_data": f"data:text/plain;base64,{data}", **more}
    return [{"role": "user", "content": [file, {"type": "input_text", "text": question}]}]


def test_a_response_is_the_answer_of_chat_completions(client) -> None:
    given = asking()
    made = client.responses.create(model="builtin", input=given)
    assert made.status == "completed" and made.output[0].role == "assistant"
    assert "green lamp" in made.output_text
    part = {"type": "file", "file": {name: given[0]["content"][0][name] for name in ("filename", "file_data")}}
    same = client.chat.completions.create(model="builtin", messages=[
        {"role": "user", "content": [part, {"type": "text", "text": "What lamp?"}]}])
    assert same.choices[0].message.content == made.output_text
    assert (made.usage.input_tokens, made.usage.output_tokens) == (same.usage.prompt_tokens,
                                                                   same.usage.completion_tokens)
    assert made.usage.input_tokens_details.cached_tokens == same.usage.prompt_tokens_details.cached_tokens
    assert made.passages == same.passages and made.timings["draft_n"] == same.timings["draft_n"]


@pytest.mark.parametrize("limit", [None, 20])
def test_its_stream_has_the_events_that_the_client_folds(client, limit) -> None:
    given = {"model": "builtin", "input": asking(), "max_output_tokens": limit}
    whole = client.responses.create(**given)
    raw = list(client.responses.create(**given, stream=True))
    kinds = [event.type for event in raw if event.type not in ("response.output_text.delta", *TOLD)]
    assert [event.sequence_number for event in raw] == [*range(len(raw))]
    assert kinds == ["response.created", "response.in_progress", "response.output_item.added",
                     "response.content_part.added", "response.output_text.done", "response.content_part.done",
                     "response.output_item.done", f"response.{whole.status}"]
    words = [event.delta for event in raw if event.type == "response.output_text.delta"]
    assert "".join(words) == whole.output_text == raw[-1].response.output_text and len(words) > 2
    assert raw[-1].response.usage.output_tokens == whole.usage.output_tokens
    assert (whole.status, whole.incomplete_details and whole.incomplete_details.reason) == (
        ("incomplete", "max_output_tokens") if limit else ("completed", None))
    if not limit:
        with client.responses.stream(model="builtin", input=given["input"]) as stream:
            assert stream.get_final_response().output_text == whole.output_text


def test_passages_and_citations_come_in_the_stream(client) -> None:
    """As in chunks of chat completions; pages that are quoted also as OpenAI's annotations, whole and in the stream."""
    files = [client.files.create(file=(f"{name}.txt", f"{uuid.uuid4()} {text}".encode()), purpose="user_data")
             for name, text in (("salt", "The barrels of salt were counted at noon."), ("lamp", TEXT))]
    parts = [{"type": "input_file", "file_id": file.id} for file in files]
    given = [{"role": "user", "content": [*parts, {"type": "input_text", "text": "What lamp?"}]}]
    raw = list(client.responses.create(model="builtin", input=given, stream=True))
    kinds, last = [event.type for event in raw], raw[-1].response
    found = raw[kinds.index("response.passages")]
    assert kinds.index("response.passages") < kinds.index("response.output_text.delta")
    assert "green lamp" in found.passages[0]["text"] and last.passages[0] == found.passages[0]
    told = [event.annotation for event in raw if event.type == "response.output_text.annotation.added"]
    cited = last.output[0].content[0].annotations
    assert [one.to_dict() for one in cited] == [one.to_dict() for one in told]
    assert {one.type for one in cited} == {"file_citation"}
    assert {(one.file_id, one.filename, one.page) for one in cited} == {(file.id, file.filename, 1) for file in files}
    lamp = next(one for one in cited if one.file_id == files[1].id)
    assert last.output_text[: lamp.index].endswith(f"{TEXT}”"), "behind the quotation"
    whole = client.responses.create(model="builtin", input=given)
    assert whole.output[0].content[0].annotations == cited
    with client.responses.stream(model="builtin", input=given) as stream:
        assert stream.get_final_response().output[0].content[0].annotations == cited


def test_a_conversation_goes_on_by_the_id_of_its_answer(client, served, chat_model) -> None:
    first = client.responses.create(model="builtin", input="Hello", instructions="Speak French.")
    assert first.output_text.endswith("Speak French.") and first.instructions == "Speak French."
    second = client.responses.create(model="builtin", input="And then?", previous_response_id=first.id)
    assert "French" not in second.output_text, "instructions are each request's own"
    assert second.previous_response_id == first.id
    # What was answered is known by its tokens.
    assert (second.usage.input_tokens_details.cached_tokens - first.usage.input_tokens_details.cached_tokens
            == first.usage.output_tokens)
    third = client.responses.create(model="builtin", input="Why?", previous_response_id=second.id, store=False)
    for name in (third.id, "resp_0"):
        with pytest.raises(openai.NotFoundError) as caught:
            client.responses.create(model="builtin", input="Why?", previous_response_id=name)
        assert caught.value.param == "previous_response_id"


def test_input_may_be_items_as_they_came_out(client, chat_model) -> None:
    first = client.responses.create(model="builtin", input=[{"role": "developer", "content": "Be brief."},
                                                            {"role": "user", "content": "Hello"}])
    items = [{"role": "user", "content": "Hello"}, *(item.to_dict() for item in first.output),
             {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Why?"}]}]
    assert client.responses.create(model="builtin", input=items).status == "completed"


@pytest.mark.parametrize("stream", [False, True])
def test_without_a_document_the_built_in_says_what_it_needs(client, stream) -> None:
    made = client.responses.create(model="builtin", input="Hello", stream=stream)
    text = made.output_text if not stream else [*made][-1].response.output_text
    assert text == NEEDS


@pytest.mark.parametrize(("more", "param"), [
    ({"input": 5}, "input"), ({"input": []}, "input"), ({"max_output_tokens": 0}, "max_output_tokens"),
    ({"input": [{"type": "function_call_output", "call_id": "1", "output": "x"}]}, "input"),
    ({"tools": [{"type": "web_search"}]}, "tools"), ({"reasoning": {"effort": "high"}}, "reasoning"),
    ({"truncation": "auto"}, "truncation"), ({"background": True}, "background"), ({"temperature": 9e9}, "temperature"),
    ({"text": {"verbosity": "low"}}, "text.verbosity"), ({"conversation": "conv_1"}, "conversation"),
    ({"instructions": ["x"]}, "instructions"), ({"model": "gpt-9"}, "model")])
def test_what_cannot_be_granted_is_refused_by_the_client_s_name(served, more, param) -> None:
    body = {"model": "builtin", "input": f"{TEXT * 40}\n\nWhat lamp?", **more}
    answer = httpx.post(served.url + "v1/responses", json=body, timeout=20.0)
    error = answer.json()["error"]
    assert answer.status_code in (400, 404) and error["param"] == param
    assert {*error} >= {"message", "type", "param", "code"}


def test_what_changes_nothing_is_granted(client, chat_model) -> None:
    client.responses.create(model="builtin", input="Hello", truncation="disabled", include=[], tools=[], top_p=0.9,
                            reasoning={"effort": None, "summary": None}, text={"format": {"type": "text"}},
                            metadata={"a": "b"}, user="me", parallel_tool_calls=True, tool_choice="auto",
                            extra_body={"seed": 1, "frequency_penalty": 0.5})


def test_an_error_in_the_middle_of_a_stream_is_an_event(client, scripted) -> None:
    scripted.fault, scripted.fault_after, scripted.triforce_tokens_per_second = "crash", 12, 200.0
    seen = list(client.responses.create(model="builtin", input=asking(), stream=True))
    assert [event.type for event in seen[-2:]] == ["error", "response.failed"]
    assert seen[-2].code == "engine_died" and seen[-1].response.error.message
    assert client.responses.create(model="builtin", input=asking()).status == "completed"
