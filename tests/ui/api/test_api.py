"""The OpenAI-compatible API, with OpenAI's own client against the served page."""

from __future__ import annotations

import base64
import dataclasses
import json
import threading
import time
import uuid
from collections.abc import Iterator

import httpx
import openai
import pytest
from little_books import SENTENCE, make_document, wait_for

from triforce_core import SamplingParams, read_document
from ui.api.answers import NEEDS
from ui.api.messages import INSTRUCTION, own_context, read_wish, sampling, shown
from ui.app.jobs import LONGEST_ANSWER
from ui.app.tab_view import TabView


def upload(client: openai.OpenAI, pages: int = 3, words: int = 60) -> str:
    text = f"Copy {uuid.uuid4().hex}. " + "\f".join(page.text for page in make_document(pages, words=words).pages)
    return client.files.create(file=("keeper.txt", text.encode()), purpose="user_data").id


def about(file: str, question: str = "How many ships did the keeper count?", **more) -> list[dict]:
    part = {"type": "file", "file": {"file_id": file, **more}}
    return [{"role": "user", "content": [part, {"type": "text", "text": question}]}]


def lent(text: str) -> str:
    """Return a text long enough to be a document."""
    return text + " More oil." * (INSTRUCTION // 10)


def refused(call, code: str, status: int = 400) -> dict:
    with pytest.raises(openai.APIStatusError) as caught:
        call()
    assert caught.value.status_code == status and caught.value.code == code
    return caught.value.body


def test_one_model_with_its_length(client) -> None:
    (model,) = client.models.list().data
    assert model.id == "builtin" and client.models.retrieve("builtin").id == "builtin"
    wait_for(lambda: getattr(client.models.retrieve("builtin"), "max_model_len", None) == 32_768)
    refused(lambda: client.models.retrieve("gpt-9"), "model_not_found", 404)


def test_upload_list_ask_and_delete(client, served) -> None:
    uploads = served.services.folders.uploads
    before = {*uploads.iterdir()}
    file = upload(client)
    assert file in [found.id for found in client.files.list().data]
    answer = client.chat.completions.create(model="builtin", messages=about(file))
    text = answer.choices[0].message.content
    assert text.startswith("This is the scripted engine") and "keeper" in text
    assert answer.choices[0].finish_reason == "stop"
    kept = client.files.retrieve(file)
    assert kept.status == "processed" and kept.filename == "keeper.txt" and kept.purpose == "user_data"
    assert client.files.delete(file).deleted
    refused(lambda: client.files.retrieve(file), "file_not_found", 404)
    refused(lambda: client.chat.completions.create(model="builtin", messages=about(file)), "file_not_found", 404)
    assert {*uploads.iterdir()} <= before, "nothing of it stays on the disk"


def test_usage_and_timings(client) -> None:
    answer = client.chat.completions.create(model="builtin", messages=about(upload(client)), max_tokens=40)
    assert answer.choices[0].finish_reason == "length" and answer.usage.completion_tokens == 40
    assert answer.usage.prompt_tokens > answer.usage.prompt_tokens_details.cached_tokens > 50
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + 40
    timings = answer.timings
    assert timings["predicted_n"] == 40 and 0 < timings["draft_n_accepted"] <= timings["draft_n"]
    assert timings["tiers"]["retrieval"] == {"tested": timings["draft_n"], "accepted": timings["draft_n_accepted"]}
    assert timings["draft_n_accepted"] + timings["full_passes"] == 40  # each full pass adds a token of its own


def test_streaming_is_the_same_answer_while_it_is_written(client, served, scripted) -> None:
    file, scripted.triforce_tokens_per_second = upload(client), 300.0
    whole = client.chat.completions.create(model="builtin", messages=about(file), seed=7)
    stream = client.chat.completions.create(model="builtin", messages=about(file), seed=7, stream=True,
                                            stream_options={"include_usage": True})
    seen, underway = [], []
    for chunk in stream:
        seen.append(chunk)
        underway.append(bool(served.services.runs.active()))
    texts = [chunk.choices[0].delta.content or "" for chunk in seen if chunk.choices]
    assert "".join(texts) == whole.choices[0].message.content
    assert len(texts) > 5 and underway[1]  # words come while it is written, not all at the end
    assert seen[-2].choices[0].finish_reason == "stop" and seen[-2].timings["draft_n"] > 0
    assert seen[-1].usage == whole.usage


def test_free_answers_tell_which_sentences_have_a_passage(client, served, scripted, monkeypatch) -> None:
    wait_for(lambda: served.services.queue.model is not None)
    monkeypatch.setattr(served.services.queue._evidence, "judges", True)
    monkeypatch.setattr(served.services.queue, "model",
                        dataclasses.replace(served.services.queue.model, instructions=True))
    scripted.answer = (f"{SENTENCE.format(place='Ness 2', n=201)} "
                       "Quantum computers factor large integers with many gates.")
    given = {"model": "builtin", "messages": about(upload(client, 6), pages="2-4")}
    here, foreign = client.chat.completions.create(**given).support
    assert (here["verdict"], here["places"][0]["page"]) == ("supported", 2)
    assert (foreign["verdict"], foreign["places"]) == ("not found", [])
    chunks = list(client.chat.completions.create(**given, stream=True))
    assert chunks[-1].support == [here, foreign]
    assert [one for chunk in chunks[:-1] for one in getattr(chunk, "support", ())] == [here, foreign], "each once"


def test_passages_come_first_with_their_level_and_pages_of_the_file(client, served, scripted, monkeypatch) -> None:
    evidence = served.services.queue._evidence
    monkeypatch.setattr(evidence, "first", 0.2)
    monkeypatch.setattr(evidence, "level", "perhaps")
    given = {"model": "builtin", "messages": about(upload(client, 6), "How many ships did the keeper of Ness count?",
                                                   pages="3-5")}
    answer = client.chat.completions.create(**given)
    best = answer.passages[0]
    assert answer.level == "perhaps" and best["places"][0]["page"] == best["marked"][0]["page"] == 3
    assert "keeper of Ness 3" in best["text"] and best["path"]
    assert answer.choices[0].message.content.endswith("(p. 3)"), "spelled: its page stands with it"
    seen = list(client.chat.completions.create(**given, stream=True))
    with_words = next(at for at, chunk in enumerate(seen) if chunk.choices[0].delta.content)
    orders = [(at, chunk.passages) for at, chunk in enumerate(seen[:-1]) if hasattr(chunk, "passages")]
    assert orders[-1][1] == answer.passages and orders[-1][0] < with_words
    assert [passages for _, passages in orders[:-1]] in ([], [answer.passages[::-1]]), "replaced at most once"
    assert "".join(chunk.choices[0].delta.content or "" for chunk in seen) == answer.choices[0].message.content
    assert seen[-1].passages == answer.passages and seen[-1].level == "perhaps"


def test_an_answer_goes_without_passages_that_cannot_be_found(client, served, scripted, monkeypatch) -> None:
    wait_for(lambda: served.services.queue.model is not None)
    monkeypatch.setattr(served.services.queue._evidence, "dead", True)
    given = {"model": "builtin", "messages": about(upload(client, 3))}
    with pytest.raises(openai.APIStatusError, match="could not be searched"):
        client.chat.completions.create(**given)  # a model that only spells has nothing to say
    monkeypatch.setattr(served.services.queue, "model",
                        dataclasses.replace(served.services.queue.model, instructions=True))
    answer = client.chat.completions.create(**given)
    assert answer.passages == [] and "could not be searched" in answer.passages_problem
    assert answer.choices[0].message.content


def test_quotations_come_with_their_places(client, scripted) -> None:
    scripted.answer = "It says “keeper of Ness 2 counted 201 ships” and STOP “keeper of Ness 3 counted”."
    given = {"model": "builtin", "messages": about(upload(client, 6), pages="2-4"), "stop": "STOP"}
    answer = client.chat.completions.create(**given)
    (quote,) = answer.quotes
    text = answer.choices[0].message.content
    assert text[quote["start"] : quote["end"]] == "keeper of Ness 2 counted 201 ships" and quote["count"] == 1
    (place,) = quote["occurrences"][0]["places"]
    assert (place["page"], place["label"]) == (2, "2") and place["end"] - place["start"] == len(text[slice(9, 43)])
    chunks = list(client.chat.completions.create(**given, stream=True))
    told = [chunk for chunk in chunks if getattr(chunk, "quotes", None)]
    assert [chunk.quotes for chunk in told] == [[quote]] and not told[0].choices[0].delta.content
    assert chunks.index(told[0]) < len(chunks) - 1  # before the answer is complete


def test_the_seed_decides(client, scripted) -> None:
    file = upload(client, 8)
    texts = [client.chat.completions.create(model="builtin", messages=about(file), seed=seed, temperature=0.8,
                                            top_p=0.9).choices[0].message.content for seed in (1, 1, 2, 3, 4)]
    assert texts[0] == texts[1] and len(set(texts)) > 2


@pytest.mark.parametrize(("stream", "acceptance", "rate"), [(False, 0.8, 400.0), (True, 0.8, 400.0), (True, 0.0, 20.0)])
def test_stop_texts_end_the_answer_before_them(client, scripted, stream: bool, acceptance: float, rate: float) -> None:
    """Also where their words come one by one."""
    scripted.answer, scripted.acceptance = "One two three STOP HERE four five " + "six " * 3000, acceptance
    scripted.triforce_tokens_per_second = rate
    given = {"model": "builtin", "messages": about(upload(client)), "stop": ["never", "STOP HERE"], "max_tokens": 5000}
    if stream:
        chunks = [chunk.choices[0] for chunk in client.chat.completions.create(**given, stream=True)]
        text, reason = "".join(choice.delta.content or "" for choice in chunks), chunks[-1].finish_reason
    else:
        choice = client.chat.completions.create(**given).choices[0]
        text, reason = choice.message.content, choice.finish_reason
    assert (text, reason) == ("One two three ", "stop")


def test_history_is_part_of_the_context(client, served) -> None:
    file = upload(client)
    first = client.chat.completions.create(model="builtin", messages=about(file))
    more = [{"role": "assistant", "content": first.choices[0].message.content},
            {"role": "user", "content": "And who heard of it?"}]
    second = client.chat.completions.create(model="builtin", messages=about(file) + more)
    # The answer came back as text and was known again by its tokens.
    cached = [answer.usage.prompt_tokens_details.cached_tokens for answer in (first, second)]
    assert cached[1] - cached[0] == first.usage.completion_tokens


def test_some_pages_of_a_document(client, served) -> None:
    file = upload(client, 6)
    answer = client.chat.completions.create(model="builtin", messages=about(file, "Ness?", pages="2-3"))
    assert "Ness 2" in answer.choices[0].message.content and "Ness 5" not in answer.choices[0].message.content
    refused(lambda: client.chat.completions.create(model="builtin", messages=about(file, pages="5-9")), "page_range")
    refused(lambda: client.chat.completions.create(model="builtin", messages=about(file, chapters="x")), "page_range")
    refused(lambda: client.chat.completions.create(model="builtin", messages=about(file, pages="1", chapters="1")),
            "invalid_chapters")
    answer = client.chat.completions.create(model="builtin", messages=about(file, "Ness?", pages="5, 2"))
    assert answer.usage.prompt_tokens < client.chat.completions.create(
        model="builtin", messages=about(file, "Ness?")).usage.prompt_tokens
    refused(lambda: client.chat.completions.create(model="builtin", messages=about(file, pages="all")),
            "invalid_pages")


def test_several_documents_together(client, served) -> None:
    first, second = upload(client, 6), upload(client, 4)
    parts = [{"type": "file", "file": {"file_id": second}}, {"type": "file", "file": {"file_id": first, "pages": "2"}},
             {"type": "text", "text": "Ness?"}]
    several = client.chat.completions.create(model="builtin", messages=[{"role": "user", "content": parts}])
    alone = [client.chat.completions.create(model="builtin", messages=[{"role": "user", "content": [part, parts[-1]]}])
             for part in parts[:2]]
    assert several.usage.prompt_tokens > max(answer.usage.prompt_tokens for answer in alone)
    assert not served.services.library.holding(first.removeprefix("file-"))  # nothing is left behind
    served.services.library.combine([second.removeprefix("file-"), first.removeprefix("file-")])
    assert all(file.filename != "" and "+" not in file.filename for file in client.files.list().data)
    with pytest.raises(Exception, match="part of"):
        client.files.delete(first)


def test_a_document_comes_along_in_the_message(client) -> None:
    text = "The harbour master of Ness kept a red lamp for the pilots of the bay."
    part = {"type": "file", "file": {"filename": "lamp.txt", "file_data":
            "data:text/plain;base64," + base64.b64encode(f"{uuid.uuid4()} {text}".encode()).decode()}}
    messages = [{"role": "user", "content": [part, {"type": "text", "text": "What lamp?"}]}]
    assert "red lamp" in client.chat.completions.create(model="builtin", messages=messages).choices[0].message.content


def test_without_a_file_the_system_message_is_the_document(client, served) -> None:
    before = len(served.services.library.entries())
    messages = [{"role": "system", "content": lent("The harbour master of Ness kept a green lamp for the pilots.")},
                {"role": "user", "content": "What lamp?"}]
    answer = client.chat.completions.create(model="builtin", messages=messages)
    assert "green lamp" in answer.choices[0].message.content
    assert len(served.services.library.entries()) == before  # it was lent, not kept


def test_a_system_prompt_is_refused_where_none_is_followed(client) -> None:
    messages = [{"role": "system", "content": "Answer in French."}, *about(upload(client), "How many?")]
    body = refused(lambda: client.chat.completions.create(model="builtin", messages=messages),
                   "system_prompt_unsupported")
    assert "Leave the system message out" in body["message"]


def test_a_system_prompt_is_followed(client, served, chat_model) -> None:
    file = upload(client)
    messages = [{"role": "system", "content": "Answer in French."}, *about(file, "How many?")]
    for role in ("system", "developer"):
        told = [messages[0] | {"role": role}, *messages[1:]]
        answer = client.chat.completions.create(model="builtin", messages=told).choices[0].message.content
        assert answer.endswith("It was told: Answer in French.")
    run = list(served.services.runs._runs.values())[-1]
    assert (run.question, run.system) == ("How many?", "Answer in French.")


@pytest.mark.parametrize(("more", "code"), [
    ({"n": 2}, "unsupported_parameter"), ({"frequency_penalty": 2.5}, "invalid_value"),
    ({"logit_bias": {"a": 1}}, "invalid_value"), ({"logit_bias": {"5": 101}}, "invalid_value"),
    ({"extra_body": {"min_p": 2}}, "invalid_value"), ({"extra_body": {"repetition_penalty": 0}}, "invalid_value"),
    ({"tools": [{"type": "function", "function": {"name": "f"}}]}, "unsupported_parameter"),
    ({"response_format": {"type": "json_object"}}, "unsupported_parameter"),
    ({"response_format": {"type": "json_schema"}}, "invalid_value"), ({"temperature": 99}, "invalid_value"),
    ({"top_p": 0}, "invalid_value"), ({"seed": -2}, "invalid_value"), ({"max_tokens": 0}, "invalid_value"),
    ({"max_completion_tokens": 0}, "invalid_value"), ({"temperature": "hot"}, "invalid_value"), ({"model": "gpt-9"},
                                                                                      "model_not_found"),
    ({"messages": []}, "invalid_messages"), ({"messages": [{"role": "user", "content": None}]}, "no_question"),
    ({"messages": [{"role": "assistant", "content": "Hi"}]}, "no_question"), ({"stop": [""]}, "invalid_stop"),
    ({"stop": ""}, "invalid_stop"), ({"stop": {"a": 1}}, "invalid_stop"), ({"stop": ["a"] * 17}, "invalid_stop"),
    ({"extra_body": {"stream": "yes"}}, "invalid_stream"),
    *(({"extra_body": {name: value}}, "unsupported_parameter") for name, value in (
        ("guided_json", {}), ("reasoning_effort", "high"), ("verbosity", "low"), ("web_search_options", {}),
        ("echo", True), ("no_such_thing", 0))),
    ({"messages": [{"role": "tool", "content": "x", "tool_call_id": "1"}]}, "unsupported_role"),
    ({"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}]},
     "unsupported_content")])
def test_what_cannot_be_granted_is_refused_by_name(client, more: dict, code: str) -> None:
    given = {"model": "builtin", "messages": [{"role": "system", "content": lent("A text.")},
                                              {"role": "user", "content": "What?"}], **more}
    body = refused(lambda: client.chat.completions.create(**given), code, 404 if code == "model_not_found" else 400)
    (name,) = more.get("extra_body", more)
    assert body["param"] == name and {*body} >= {"message", "type", "code"}


def test_what_changes_nothing_is_granted(client) -> None:
    file = upload(client)
    for more in ({"echo": False, "verbosity": "medium", "guided_json": None}, {"user": "me", "metadata": {"a": "b"}}):
        assert client.chat.completions.create(model="builtin", messages=about(file), extra_body=more).choices


@pytest.mark.parametrize(("text", "stops", "left"), [
    ("One STOP HERE two", ["never", "STOP HERE"], "One "), ("aabaabaac", ["aabaac", "bb"], "aab"),
    ("STOP STOP IT", ["STOP IT", "IT"], "STOP "), ("a\n\n", ["\n\n"], "a"), ("one STO", ["STOP"], "one STO")])
def test_of_a_stop_text_nothing_is_shown_however_it_comes(text: str, stops: list[str], left: str) -> None:
    seen = 0
    for come in range(len(text) + 1):
        length, found = shown(text[:come], stops, False)
        assert seen <= length <= len(left)
        seen = length
        if found:
            break
    assert shown(text[:come], stops, True) == (len(left), found)


def test_minus_one_means_an_answer_to_its_end() -> None:
    for name in ("max_tokens", "max_completion_tokens"):
        assert sampling({name: -1}, SamplingParams()).max_new_tokens == LONGEST_ANSWER
        assert sampling({name: -1}, SamplingParams(), here=False) == SamplingParams()
    nothing = {"max_tokens": None, "temperature": None}
    assert sampling(nothing, SamplingParams(seed=3)) == SamplingParams(seed=3, max_new_tokens=LONGEST_ANSWER)
    assert sampling(nothing, SamplingParams(), here=False) == SamplingParams(), "a server elsewhere has its own"


def test_penalties_and_biases_are_the_engines() -> None:
    given = {"frequency_penalty": 0.5, "presence_penalty": -1, "min_p": 0.1, "logit_bias": {"7": -100, "9": 2.5}}
    expected = SamplingParams(max_new_tokens=LONGEST_ANSWER, repeat_penalty=1.2, logit_bias=((7, -100.0), (9, 2.5)),
                              **{name: given[name] for name in ("frequency_penalty", "presence_penalty", "min_p")})
    for name in ("repeat_penalty", "repetition_penalty"):  # llama.cpp's word and vLLM's
        assert sampling(given | {name: 1.2}, SamplingParams()) == expected
        assert sampling({name: 1.2}, SamplingParams(), here=False) == SamplingParams(repeat_penalty=1.2)


def test_a_response_format_is_the_engines_schema(client, chat_model) -> None:
    schema = {"type": "object", "properties": {"lamp": {"type": "string"}}}
    named = {"type": "json_schema", "json_schema": {"name": "lamp", "strict": True, "schema": schema}}
    assert json.loads(sampling({"response_format": named}, SamplingParams()).schema) == schema
    assert json.loads(sampling({"response_format": {"type": "json_object"}}, SamplingParams()).schema) == {
        "type": "object"}
    for nothing in (None, {"type": "text"}):
        assert not sampling({"response_format": nothing}, SamplingParams()).schema
    said = [{"role": "user", "content": "What lamp?"}]
    assert client.chat.completions.create(model="builtin", messages=said, response_format=named).choices
    made = client.responses.create(model="builtin", input="What lamp?",
                                   text={"format": {"type": "json_schema", "name": "lamp", "schema": schema}})
    assert made.output_text and made.text.format.name == "lamp"


@pytest.mark.parametrize("stream", [False, True])
def test_without_a_document_the_built_in_says_what_it_needs(served, stream: bool) -> None:
    body = {"messages": [{"role": "user", "content": "Hello"}], "stream": stream, "max_tokens": None}
    before = list(served.services.runs._runs)
    answer = httpx.post(served.url + "v1/chat/completions", json=body, timeout=20.0)
    assert answer.status_code == 200 and json.dumps(NEEDS) in answer.text
    assert list(served.services.runs._runs) == before, "nothing ran"
    assert answer.text.endswith("data: [DONE]\n\n") == stream


def test_without_a_document_a_chat_model_answers(client, served, chat_model) -> None:
    turns = [{"role": "user", "content": "Hello"}, {"role": "assistant", "content": None},
             {"role": "user", "content": "The lamp is green. What lamp?"}]
    answer = httpx.post(served.url + "v1/chat/completions", json={"messages": turns, "max_tokens": -1}, timeout=20.0)
    assert "It was told" not in answer.json()["choices"][0]["message"]["content"], "nothing but what was said"
    run = list(served.services.runs._runs.values())[-1]
    assert run.question == "The lamp is green. What lamp?"
    assert not {"passages", "level", "support"} & {*answer.json()}, "nothing is looked for in no document"
    told = [{"role": "developer", "content": [{"type": "text", "text": "Speak French."}]}, *turns]
    answer = httpx.post(served.url + "v1/chat/completions", json={"messages": told, "tools": []}, timeout=20.0)
    assert answer.json()["choices"][0]["message"]["content"].endswith("It was told: Speak French.")
    blanks = [{"role": "system", "content": " \n" * INSTRUCTION}, *turns]
    answer = httpx.post(served.url + "v1/chat/completions", json={"messages": blanks}, timeout=20.0)
    assert answer.status_code == 200 and "passages" not in answer.json(), "no document has no text"


@pytest.mark.parametrize(("asked", "question"), [
    ("{text}\n\nWhich lamp?", "Which lamp?"), ("{text}\nWhich lamp?", "Which lamp?"),
    ("Which lamp did he keep?\n\n{text}\n\nIt was red.", "Which lamp did he keep?"),
    ("Question: which lamp?\n\nContext: {text}\n\nAnswer:", "Question: which lamp?"),
    ("Summarise this.\n\n{text}", "Summarise this.")])
def test_a_long_message_of_a_user_holds_its_own_document(asked: str, question: str) -> None:
    text = lent("The harbour master kept a green lamp.")
    turns = [{"role": "user", "content": asked.format(text=text)}]
    found = own_context(read_wish({"messages": turns}))
    assert found.question == question and text in found.text and question not in found.text
    later = [*turns, {"role": "assistant", "content": "Green."}, {"role": "user", "content": "Why?"}]
    again = own_context(read_wish({"messages": later}))
    assert (again.text, again.question, again.history) == (found.text, "Why?", ((question, "Green."),))
    assert own_context(read_wish({"messages": [{"role": "user", "content": text}]})) is None, "nothing is asked"


def test_the_built_in_answers_from_a_message_s_own_context(client) -> None:
    content = f"{lent('The harbour master of Ness kept a green lamp for the pilots.')}\n\nWhat lamp?"
    answer = client.chat.completions.create(messages=[{"role": "user", "content": content}], model="builtin")
    assert "green lamp" in answer.choices[0].message.content


def test_usage_counts_up_to_the_stop(client, scripted) -> None:
    scripted.answer, scripted.acceptance = "One two three STOP four five six seven eight", 1.0
    for stop, left in ((" STOP", 3), ("TOP", 4), ("One", 0)):
        answer = client.chat.completions.create(model="builtin", messages=about(upload(client)), stop=stop)
        assert answer.choices[0].message.content == scripted.answer.partition(stop)[0]
        assert answer.usage.completion_tokens == left
        assert answer.usage.total_tokens == answer.usage.prompt_tokens + left


def test_the_encoding_of_a_text_can_be_given(client, served, monkeypatch) -> None:
    monkeypatch.setattr(served.services.extractor, "_read", read_document)
    data = uuid.uuid4().hex.encode() + " Vor der Brücke steht ein Müller.".encode("mac-roman")
    part = {"type": "file", "file": {"filename": "a.txt", "file_data": base64.b64encode(data).decode(),
                                     "encoding": "x"}}
    messages = [{"role": "user", "content": [part, {"type": "text", "text": "Wer?"}]}]
    for wrong in ("", "x"):
        part["file"]["encoding"] = wrong
        said = refused(lambda: client.chat.completions.create(model="builtin", messages=messages),
                       "unreadable_document")["message"]
        assert "mac-roman" in said, "the choices are named"
    part["file"]["encoding"] = "macintosh"
    assert client.chat.completions.create(model="builtin", messages=messages).choices
    form = {"file": ("b.txt", data + b"."), "encoding": (None, "koi8-r"), "purpose": (None, "user_data")}
    file = httpx.post(served.url + "v1/files", files=form, timeout=20.0).json()["id"].removeprefix("file-")
    wait_for(lambda: served.services.library.get(file).state == "ready")
    assert "Br÷cke" in served.services.library.document(file).pages[0].text


def test_a_seed_of_minus_one_is_another_every_time() -> None:
    seeds = {sampling({"seed": -1}, SamplingParams()).seed for _ in range(5)}
    assert len(seeds) == 5 and min(seeds) >= 0


@pytest.mark.parametrize("stream", [False, True])
def test_half_a_surrogate_pair_is_a_character_like_any_other(client, served, stream: bool) -> None:
    half = "Who \ud83d?"
    part = {"type": "file", "file": {"filename": half + ".txt", "file_data":
            base64.b64encode(f"{uuid.uuid4()} The lamp is red.".encode()).decode()}}
    messages = [{"role": "user", "content": [part, {"type": "text", "text": half}]},
                {"role": "assistant", "content": half}, {"role": "user", "content": half}]
    for given in (messages, [{"role": "system", "content": lent(f"The lamp {half}")}, messages[-1]]):
        body = {"model": "builtin", "messages": given, "stop": [half], "stream": stream}
        answer = httpx.post(served.url + "v1/chat/completions", content=json.dumps(body), timeout=20.0)
        assert answer.status_code == 200 and "error" not in answer.text
    assert "Who \ufffd?.txt" in [file.filename for file in client.files.list().data]


@pytest.mark.parametrize(("method", "path", "status", "code"), [
    ("GET", "v1/embeddings", 404, "unknown_url"), ("POST", "v1/completions", 404, "unknown_url"),
    ("GET", "v1", 404, "unknown_url"), ("GET", "v1/files/file-0/content", 404, "unknown_url"),
    ("PUT", "v1/models", 405, "method_not_allowed"), ("OPTIONS", "v1/chat/completions", 405, "method_not_allowed")])
def test_what_is_no_route_is_said_in_the_same_form(served, method: str, path: str, status: int, code: str) -> None:
    answer = httpx.request(method, served.url + path)
    error = answer.json()["error"]
    assert (answer.status_code, error["code"], error["type"]) == (status, code, "invalid_request_error")
    assert f"{method} /{path}" in error["message"] and ("allow" in answer.headers) == (status == 405)


def test_a_document_that_does_not_fit_is_answered_from_some_of_its_pages(client) -> None:
    file = upload(client, 30, words=1500)
    answer = client.chat.completions.create(model="builtin", messages=about(file)).model_dump()
    assert answer["pages_asked_about"] == "1-30" != answer["pages_read"]
    *_, last = client.chat.completions.create(model="builtin", messages=about(file), stream=True)
    assert last.model_dump()["pages_read"] == answer["pages_read"]


def test_a_page_that_does_not_fit_says_need_have_and_what_to_do(client) -> None:
    file = upload(client, 1, words=45_000)
    for stream in (False, True):
        with pytest.raises(openai.BadRequestError) as caught:
            client.chat.completions.create(model="builtin", messages=about(file), stream=stream)
        answer = caught.value.body
        assert answer["code"] == "context_length_exceeded" and answer["need"] > answer["have"] > 30_000
        assert "longer context" in answer["remedy"]


def test_a_bad_file_is_a_clear_error(client) -> None:
    file = client.files.create(file=("a.txt", b"\xff\xfe\x00" + uuid.uuid4().bytes), purpose="user_data").id
    refused(lambda: client.chat.completions.create(model="builtin", messages=about(file)), "unreadable_document")
    assert client.files.retrieve(file).status == "error" and client.files.retrieve(file).status_details
    refused(lambda: client.files.create(file=("a.txt", b""), purpose="user_data"), "invalid_request")


@pytest.mark.parametrize("fault", ["crash", "memory"])
def test_a_fault_of_the_engine_costs_one_answer(client, scripted, fault: str) -> None:
    file = upload(client)
    scripted.fault, scripted.fault_after = fault, 0
    code = {"crash": "engine_died", "memory": "not_enough_memory"}[fault]
    refused(lambda: client.chat.completions.create(model="builtin", messages=about(file)), code, 503)
    scripted.fault, scripted.fault_after = fault, 12
    scripted.triforce_tokens_per_second = 200.0
    with pytest.raises(openai.APIError) as caught:  # in the middle of the stream
        for _ in client.chat.completions.create(model="builtin", messages=about(file), stream=True):
            pass
    assert caught.value.code == code
    assert client.chat.completions.create(model="builtin", messages=about(file)).choices[0].finish_reason == "stop"


def test_questions_wait_their_turn_with_the_page_s(client, served, scripted) -> None:
    file, scripted.triforce_tokens_per_second = upload(client), 60.0
    view = TabView(document=file.removeprefix("file-"))
    wait_for(lambda: served.services.library.get(view.document).state == "ready")
    mine = served.services.ask(view, "How many ships?")
    wait_for(lambda: mine.accumulator.text)
    done: list[float] = []

    def ask() -> None:
        client.chat.completions.create(model="builtin", messages=about(file), max_tokens=5)
        done.append(time.time())

    thread = threading.Thread(target=ask)
    thread.start()
    wait_for(lambda: served.services.queue.waiting == 1)
    thread.join(20)
    assert mine.state == "done" and mine.ended_at <= done[0]


@pytest.mark.parametrize("stream", [False, True])
def test_hanging_up_ends_the_answer(client, served, scripted, stream: bool) -> None:
    file, scripted.triforce_tokens_per_second, scripted.answer = upload(client), 50.0, "word " * 4000
    body = {"model": "builtin", "messages": about(file), "stream": stream, "max_tokens": 4000}
    with httpx.Client(timeout=30.0) as http:
        if stream:
            with http.stream("POST", served.url + "v1/chat/completions", json=body) as answer:
                lines = answer.iter_lines()  # kept: an iterator that is thrown away hangs up
                assert "chat.completion.chunk" in next(lines)
                (run,) = served.services.runs.active()
        else:
            with pytest.raises(httpx.ReadTimeout):
                http.post(served.url + "v1/chat/completions", json=body, timeout=1.0)
            (run,) = [run for run in served.services.runs._runs.values()][-1:]
    wait_for(lambda: run.state == "stopped", 5.0)


def test_metrics_and_health_hold_no_words(client, served, scripted) -> None:
    secret = "xylophone"
    scripted.answer = f"The {secret} is hidden."
    client.chat.completions.create(model="builtin", messages=about(upload(client), f"Where is the {secret}?"))
    text = httpx.get(served.url + "metrics")
    assert text.headers["content-type"].startswith("text/plain; version=0.0.4") and secret not in text.text
    lines = dict(line.rsplit(" ", 1) for line in text.text.splitlines() if not line.startswith("#"))
    assert float(lines['triforce_answers_total{state="done"}']) >= 1 and lines["triforce_engine_up"] == "1"
    assert float(lines['triforce_draft_tested_total{tier="retrieval"}']) >= float(
        lines['triforce_draft_accepted_total{tier="retrieval"}'])
    assert httpx.get(served.url + "healthz").json() == {"name": "triforce-chat", "status": "ok", "engine": "ready"}


def test_a_body_that_is_no_json_object_or_too_large(served, monkeypatch) -> None:
    from ui.server import guard

    for body in (b"{", b"[]", b"\xff"):
        answer = httpx.post(served.url + "v1/chat/completions", content=body)
        assert answer.status_code == 400 and answer.json()["error"]["code"] == "invalid_json"
    monkeypatch.setattr(guard, "MOST", 1000)
    assert httpx.post(served.url + "v1/chat/completions", content=b" " * 2000).status_code == 413


def test_an_upload_over_the_limit_is_cut_off(served, monkeypatch) -> None:
    from ui.api import files

    monkeypatch.setattr(files, "MAX_UPLOAD_BYTES", 1000)
    sent = 0

    def endless() -> Iterator[bytes]:
        nonlocal sent
        yield b'--x\r\nContent-Disposition: form-data; name="file"; filename="a.txt"\r\n\r\n'
        while sent < 1 << 26:
            sent += 1 << 16
            yield b"a" * (1 << 16)

    before = len(served.services.library.entries())
    answer = httpx.post(served.url + "v1/files", content=endless(),
                        headers={"content-type": "multipart/form-data; boundary=x"})
    assert answer.status_code == 413 and answer.json()["error"]["code"] == "file_too_large"
    assert httpx.post(served.url + "v1/files", files={"file": ("a.txt", b"a" * (1 << 20))}).status_code == 413
    assert len(served.services.library.entries()) == before and not list(served.services.folders.uploads.glob("*.txt"))
