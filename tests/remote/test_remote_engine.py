"""The remote engine against a small real server: what is sent, what is counted, and what each failure says."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator

import pytest

from tests.remote.small_server import SmallServer
from triforce_core import (
    ConfigError,
    ContextTooLongError,
    Document,
    DocumentOpened,
    EngineConfig,
    Finished,
    Page,
    PrefillProgress,
    RemoteEngine,
    SamplingParams,
    SpeculationConfig,
    TextDelta,
    Turn,
)
from triforce_core.errors import RemoteServerError
from triforce_core.remote import server as client

PAGES = ("The lamp was red and stood in the harbour.", "The keeper <|im_end|> slept until <s>noon</s>.")
BOOK = Document("Lamps", "txt", tuple(Page(str(n), text) for n, text in enumerate(PAGES, 1)), "test")
SAMPLING = SamplingParams(temperature=0.5, top_p=0.9, seed=3, max_new_tokens=50)


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> Iterator[SmallServer]:
    monkeypatch.setattr(client, "_FIRST_PAUSE", 0.01)
    monkeypatch.delenv("TRIFORCE_REMOTE_KEY", raising=False)
    made = SmallServer()
    yield made
    made.close()


def loaded(small: SmallServer) -> RemoteEngine:
    engine = RemoteEngine(EngineConfig(), small.url, "other")
    list(engine.load())
    return engine


def opened(small: SmallServer) -> RemoteEngine:
    engine = loaded(small)
    assert isinstance(list(engine.open_document(BOOK))[-1], DocumentOpened)
    return engine


def ask(engine: RemoteEngine, history: tuple[Turn, ...] = ()) -> list:
    return list(engine.ask("What lamp?", history, SAMPLING, SpeculationConfig()))


def test_half_a_surrogate_pair_is_sent_as_a_whole_character(small: SmallServer) -> None:
    engine = opened(small)
    half = "Who \ud83d?"
    *_, done = engine.ask(half, (Turn(half, (), half),), SAMPLING, SpeculationConfig(), half)
    assert isinstance(done, Finished)
    sent = [message["content"] for message in small.chats()[-1]["messages"][1:]]
    assert len(sent) == 3 and all("Who \ufffd?" in text for text in sent)


def test_the_whole_document_and_the_conversation_are_sent(small: SmallServer) -> None:
    events = ask(opened(small), (Turn("And who?", (), "The keeper."),))
    sent = small.chats()[-1]
    assert [message["role"] for message in sent["messages"]] == ["system", "user", "assistant", "user"]
    system = sent["messages"][0]["content"]
    assert "[page 1]\nThe lamp was red" in system and "[page 2]\nThe keeper" in system
    assert [message["content"] for message in sent["messages"][1:]] == ["And who?", "The keeper.", "What lamp?"]
    assert (sent["model"], sent["temperature"], sent["top_p"], sent["seed"], sent["max_tokens"]) == (
        "other", 0.5, 0.9, 3, 50)
    assert events[-1].text == "".join(e.text for e in events if isinstance(e, TextDelta)) == "The lamp was red . "
    assert small.chats()[0]["messages"][0] == sent["messages"][0]  # the same prefix every time: it can be cached


def test_a_system_text_begins_the_conversation_and_leaves_the_document_in_its_place(small: SmallServer) -> None:
    engine = opened(small)
    list(engine.ask("What lamp?", (Turn("And who?", (), "The keeper."),), SAMPLING, SpeculationConfig(),
                    "In French. <|im_end|>"))
    first, last = small.chats()[0]["messages"], small.chats()[-1]["messages"]
    assert last[0] == first[0] and [message["role"] for message in last] == ["system", "user", "assistant", "user"]
    assert last[1]["content"] == "In French. < |im_end|>\n\nAnd who?" and last[3]["content"] == "What lamp?"


def test_without_a_document_the_server_is_asked_plainly(small: SmallServer) -> None:
    engine = loaded(small)
    opening = list(engine.open_document(Document("", "txt", (Page("", ""),), "none")))[-1]
    assert opening.tokens == 0 and not small.chats(), "there is nothing to read"
    told = [{"role": "system", "content": "In French. < |im_end|>"}]
    for system, first in (("", []), ("In French. <|im_end|>", told)):
        list(engine.ask("Hello", (), SAMPLING, SpeculationConfig(), system))
        assert small.chats()[-1]["messages"] == [*first, {"role": "user", "content": "Hello"}]


def test_control_tokens_are_broken_up_before_they_leave(small: SmallServer) -> None:
    ask(opened(small))
    for body in small.chats():
        text = body["messages"][0]["content"]
        assert "<|im_end|>" not in text and "< |im_end|>" in text and "<s>" not in text and "</s>" not in text


def test_the_key_goes_into_the_header_and_nowhere_else(small: SmallServer, monkeypatch, capfd, caplog) -> None:
    caplog.set_level("DEBUG")
    monkeypatch.setenv("TRIFORCE_REMOTE_KEY", "sk-secret-key")
    engine = opened(small)
    rows = [repr(event) for event in [*engine.check(), *ask(engine), engine.status()]]
    assert {headers.get("authorization") for _, headers, _ in small.seen} == {"Bearer sk-secret-key"}
    assert "sk-secret" not in "".join(rows) + "".join(capfd.readouterr()) + caplog.text
    assert "lamp" not in " ".join(record.getMessage() for record in caplog.records if record.levelname != "DEBUG")
    with pytest.raises(ConfigError) as caught:
        RemoteEngine(EngineConfig(), "http://me:sk-secret-key@host/v1")
    assert "sk-secret" not in str(caught.value)


def test_tokens_are_counted_by_the_server(small: SmallServer) -> None:
    engine = opened(small)
    fit = engine.measure(BOOK)
    assert not fit.estimated and sum(fit.page_tokens) == fit.tokens and fit.max_tokens == 4096 - 640
    stats = ask(engine)[-1].stats
    assert (stats.prompt_tokens, stats.generated_tokens) == (3, 5) and stats.reused_tokens > 20
    assert stats.engine == "remote" and not stats.acceptance and not stats.tokens_by_origin and not stats.full_passes


def test_an_answer_that_the_server_cut_off_says_so(small: SmallServer) -> None:
    *_, cut = opened(small).ask("What lamp?", (), SamplingParams(max_new_tokens=2), SpeculationConfig())
    assert (cut.reason, cut.text) == ("length", "The lamp ")


def test_without_tokenizer_and_usage_tokens_are_estimated_and_said_to_be(small: SmallServer) -> None:
    small.tokenizer = small.usage = False
    engine = loaded(small)
    assert engine.measure(BOOK).estimated
    assert list(engine.open_document(BOOK))[-1].estimated
    stats = ask(engine)[-1].stats
    assert stats.generated_tokens == 5 and "did not count" in stats.why
    small.usage = True  # counted once, the next estimate is nearer
    other = Document("", "txt", (*BOOK.pages, Page("3", "More of it.")), "test")
    list(engine.open_document(other))
    assert engine._bytes_per_token != 4.0 and not list(engine.open_document(other))[-1].estimated


def test_a_document_that_is_too_long_is_refused_before_it_is_sent(small: SmallServer) -> None:
    small.length = 40
    with pytest.raises(ContextTooLongError):
        list(loaded(small).open_document(BOOK))
    assert not small.chats()


def test_where_no_length_is_given_the_server_decides(small: SmallServer) -> None:
    small.length = 0
    (model,) = [event for event in RemoteEngine(EngineConfig(), small.url).load() if hasattr(event, "max_context")]
    assert model.max_context == 0 and model.name == "tiny"
    assert "stay on this machine" in model.why and small.url in model.why and model.mode == "remote"
    assert opened(small).measure(BOOK).fits
    assert list(RemoteEngine(EngineConfig(max_context=512), small.url).load())[-1].max_context == 512


def test_busy_servers_are_asked_again_and_refusals_are_not(small: SmallServer) -> None:
    engine = opened(small)
    small.fails = [503, 429]
    assert ask(engine)[-1].reason == "stop"
    before = len(small.chats())
    for status, words in ((400, "told to say 400"), (401, "TRIFORCE_REMOTE_KEY"), (404, "--remote-model"),
                          (307, "Redirects are not followed")):
        small.fails = [status]
        with pytest.raises(RemoteServerError, match=words):
            ask(engine)
    assert len(small.chats()) == before + 4
    small.fails = [500, 502, 503]
    with pytest.raises(RemoteServerError, match="503"):
        ask(engine)
    assert ask(engine)[-1].reason == "stop"  # and is usable again


def test_an_answer_that_breaks_off_is_not_asked_for_twice(small: SmallServer) -> None:
    engine = opened(small)
    small.break_after = 2
    before, seen = len(small.chats()), []
    with pytest.raises(RemoteServerError, match="broke off"):
        for event in engine.ask("What lamp?", (), SAMPLING, SpeculationConfig()):
            seen.append(event)
    assert [event.text for event in seen] == ["The ", "lamp "] and len(small.chats()) == before + 1


@pytest.mark.parametrize("writing", [True, False])
def test_stop_is_heard_while_it_writes_or_reads_and_the_server_is_told(small: SmallServer, writing: bool) -> None:
    engine, events = opened(small), []
    small.pause, small.words, small.quiet = 0.02, ["word"] * 1000, 0.0 if writing else 3.0
    thread = threading.Thread(target=lambda: events.extend(
        engine.ask("What?", (), SamplingParams(max_new_tokens=1000), SpeculationConfig())))
    thread.start()
    for _ in range(1000 if writing else 20):  # until it writes
        if any(isinstance(event, TextDelta) for event in list(events)):
            break
        time.sleep(0.01)
    engine.cancel()
    thread.join(1.0)
    assert not thread.is_alive() and isinstance(events[-1], Finished) and events[-1].reason == "cancelled"
    assert bool(events[-1].text) == writing
    assert small.hung_up.wait(5.0)


def test_a_server_that_says_nothing_is_shown_by_the_time_it_takes(small: SmallServer,
                                                                  monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "_BEAT", 0.05)
    engine = loaded(small)
    small.quiet = 0.4
    told = [event for event in engine.open_document(BOOK) if isinstance(event, PrefillProgress)]
    assert len(told) > 4 and {event.stage for event in told[:-1]} == {"served"} and told[-1].stage == "read"
    seconds = [event.seconds for event in told[:-1]]
    assert seconds == sorted(seconds) and 0.3 < seconds[-1] < 5
    assert not any(event.tokens_done for event in told[:-1]) and told[0].tokens_total > 20


def test_nobody_there_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "_FIRST_PAUSE", 0.01)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    with pytest.raises(RemoteServerError, match="does not answer"):
        list(RemoteEngine(EngineConfig(), f"http://127.0.0.1:{port}").load())


@pytest.mark.parametrize("url", ["", "ftp://a.b", "127.0.0.1:8000", "http://"])
def test_an_address_that_cannot_be_one_is_refused(url: str) -> None:
    with pytest.raises(ConfigError):
        RemoteEngine(EngineConfig(), url)


def test_a_model_that_it_has_not_is_refused_with_those_it_has(small: SmallServer) -> None:
    with pytest.raises(ConfigError, match="tiny, other"):
        list(RemoteEngine(EngineConfig(), small.url, "huge").load())
