"""Servers of this machine: what each kind is found to serve, and with how much context it answers."""

from __future__ import annotations

import socket
import time

import pytest

from tests.remote import scripted_servers as kinds
from tests.remote.scripted_servers import Scripted, running
from triforce_core import (
    ConfigError,
    ContextTooLongError,
    Document,
    EngineConfig,
    ModelInfo,
    Page,
    PrefillProgress,
    RemoteEngine,
    ServedModel,
)
from triforce_core.config import SamplingParams, SpeculationConfig
from triforce_core.events import Turn
from triforce_core.remote.served import local_servers
from triforce_core.remote.server import is_loopback, stays_here
from ui.app.arguments import Arguments, engine_maker

BOOK = Document("Lamps", "txt", (Page("1", "The lamp was red and stood in the harbour."),), "test")
LONG = Document("Lamps", "txt", (Page("1", "lamp " * 4000),), "test")


def found(server: Scripted) -> list[tuple[str, str, int, int]]:
    return [(one.program, one.shown, one.context, one.longest) for one in local_servers((server.port,))]


def load(server: Scripted, model: str = "") -> tuple[RemoteEngine, ModelInfo]:
    engine = RemoteEngine(EngineConfig(), server.url, model)
    return engine, [event for event in engine.load() if isinstance(event, ModelInfo)][-1]


@pytest.mark.parametrize(("says", "expected"), [
    (kinds.lm_studio(), [("LM Studio", "qwen3-8b", 0, 40960)]),
    (kinds.lm_studio(8192), [("LM Studio", "qwen3-8b", 8192, 40960)]),
    (kinds.ollama(), [("Ollama", "qwen3:8b", 0, 40960), ("Ollama", "gpt-oss:120b-cloud", 0, 0)]),
    (kinds.ollama(parameters='num_ctx    16384\nstop "x"'), [("Ollama", "qwen3:8b", 16384, 40960),
                                                            ("Ollama", "gpt-oss:120b-cloud", 0, 0)]),
    (kinds.llama_server(), [("llama-server", "Qwen3-8B-Q4_K_M.gguf", 8192, 40960)]),
    (kinds.llama_server(in_list=False), [("llama-server", "Qwen3-8B-Q4_K_M.gguf", 8192, 40960)]),
    (kinds.vllm(), [("vLLM", "Qwen/Qwen3-8B", 32768, 0)]),
    (kinds.our_own(), []),
    ({"GET /v1/models": kinds._listed({"id": "m", "owned_by": "me"})}, [("", "m", 0, 0)]),
], ids=["lm-studio", "lm-studio-loaded", "ollama", "ollama-num_ctx", "llama-server", "llama-server-old", "vllm", "ours",
        "another"])
def test_each_kind_is_known_by_what_it_says(says: kinds.Says, expected: list[tuple[str, str, int, int]]) -> None:
    """Models for embeddings are left out, and so is this app itself."""
    with running(says) as server:
        assert found(server) == expected


@pytest.mark.parametrize(("name", "shown"), [
    ("/srv/models/Qwen3-8B-Q4_K_M.gguf", "Qwen3-8B-Q4_K_M.gguf"), ("models/a.GGUF", "a.GGUF"),
    (r"C:\models\a.gguf", "a.gguf"), ("/srv/Qwen3-8B", "Qwen3-8B"), (r"D:\Qwen3-8B", "Qwen3-8B"),
    ("Qwen/Qwen3-8B", "Qwen/Qwen3-8B"), ("ggml-org/gemma-3-4b-it-GGUF:Q4_K_M", "ggml-org/gemma-3-4b-it-GGUF:Q4_K_M"),
    ("qwen3:8b", "qwen3:8b")])
def test_a_file_is_shown_by_its_name_and_asked_for_by_its_path(name: str, shown: str) -> None:
    assert ServedModel("", "", name).shown == shown
    says = {"GET /v1/models": kinds._listed({"id": name, "owned_by": "me"})}
    for wanted in (name, shown):
        with running(says) as server:
            engine, model = load(server, wanted)
            list(engine.open_document(BOOK))
            assert model.name == shown and server.seen[-1][1]["model"] == name


def test_llama_server_tells_how_far_it_has_read() -> None:
    """Both of the document and of a question that has to read it again; nobody else is asked for it."""
    with running(kinds.llama_server()) as server:
        server.reads = [(0, 900, 100, 0), (500, 900, 100, 2000), (900, 900, 100, 4000)]
        engine, _ = load(server)
        told = [event for event in engine.open_document(BOOK) if isinstance(event, PrefillProgress)]
        assert (told[0].stage, told[0].tokens_done) == ("served", 0), "before it says anything"
        half = next(event for event in told if event.tokens_done == 500)
        assert (half.stage, half.tokens_total, half.tokens_per_second) == ("read", 900, 200.0)
        assert half.eta_seconds == pytest.approx(2.0, abs=0.1)
        asked = list(engine.ask("What lamp?", (), SamplingParams(), SpeculationConfig()))
        assert any(isinstance(event, PrefillProgress) and event.tokens_done == 500 for event in asked)
    with running(kinds.vllm()) as server:
        list(load(server)[0].open_document(BOOK))
        assert "return_progress" not in server.seen[-1][1]


def test_what_is_not_there_is_soon_known() -> None:
    """Nobody listens at one port, and whoever has the other says nothing."""
    with socket.socket() as silent, socket.socket() as free:
        for one in (silent, free):
            one.bind(("127.0.0.1", 0))
        silent.listen()
        began = time.monotonic()
        assert local_servers((silent.getsockname()[1], free.getsockname()[1])) == []
        assert time.monotonic() - began < 5


def test_the_environment_s_proxy_gets_nothing_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    with running(kinds.vllm()) as server, running({}) as proxy:
        for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY"):
            monkeypatch.setenv(name, f"http://127.0.0.1:{proxy.port}")
        assert len(found(server)) == 1 and not proxy.seen
        load(server)[0].measure(BOOK)
        assert not proxy.seen


def test_loopback_is_told_from_elsewhere() -> None:
    for here in ("http://127.0.0.1:1234/v1", "http://localhost:8000", "http://[::1]:8080/v1", "http://127.8.0.1"):
        assert stays_here(here), here
    for far in ("http://10.0.0.2:8000/v1", "https://127.0.0.1.example/v1", "http://localhost.example/v1", ""):
        assert not stays_here(far), far
    assert not is_loopback("0.0.0.0")


@pytest.mark.parametrize(("says", "loads", "context"), [
    (kinds.ollama(), kinds.ollama(4096), 4096),
    (kinds.ollama(), kinds.ollama(32768), 32768),
    (kinds.lm_studio(), kinds.lm_studio(8192), 8192),
    (kinds.llama_server(), None, 8192),
    (kinds.vllm(), None, 32768),
], ids=["ollama-4k", "ollama-32k", "lm-studio", "llama-server", "vllm"])
def test_the_context_is_the_one_that_it_was_loaded_with(says: kinds.Says, loads: kinds.Says | None,
                                                        context: int) -> None:
    """Ollama and LM Studio tell it only then, so that one word is asked for; the others load nothing for it."""
    with running(says, loads) as server:
        assert load(server)[1].max_context == context
        assert sum(what.endswith("chat/completions") for what, _ in server.seen) == (1 if loads else 0)


def test_what_ollama_sends_on_is_not_taken_for_local() -> None:
    with running(kinds.ollama(4096)) as server:
        assert [bool(one.problem) for one in local_servers((server.port,))] == [False, True]
        with pytest.raises(ConfigError, match=r"ollama\.com"):
            load(server, "gpt-oss:120b-cloud")


def test_what_would_be_cut_off_silently_is_refused() -> None:
    """Also where the estimate was too low and the server's count tells it, and where a conversation has grown."""
    with running(kinds.ollama(4096)) as server:
        engine, _ = load(server)
        with pytest.raises(ContextTooLongError, match="beside questions and answers"):
            list(engine.open_document(LONG))
        server.prompt_tokens = 4096
        with pytest.raises(ContextTooLongError, match="4,096 tokens"):
            list(engine.open_document(BOOK))
        server.prompt_tokens = 60
        list(engine.open_document(BOOK))
        grown = (Turn("And the lamp?", (), "It was red. " * 4000),)
        with pytest.raises(ContextTooLongError, match="new conversation"):
            list(engine.ask("What lamp?", grown, SamplingParams(), SpeculationConfig()))
        assert list(engine.ask("What lamp?", (), SamplingParams(), SpeculationConfig()))[-1].text == "Red."


def test_llama_server_counts_the_text() -> None:
    """It reads it under another name than vLLM, and counts nothing of what it does not know."""
    with running(kinds.llama_server()) as server:
        engine, _ = load(server)
        fit = engine.measure(LONG)
        assert not fit.estimated and fit.tokens > 4000
        del server.says["POST /tokenize"]
        assert load(server)[0].measure(LONG).estimated


def test_the_key_goes_to_the_server_that_it_was_given_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRIFORCE_REMOTE_KEY", "sk-for-another-server")
    with running(kinds.vllm()) as server:
        make = engine_maker(Arguments())
        list(make(EngineConfig(server=server.url, model="Qwen/Qwen3-8B")).load())
        assert server.headers and not any("authorization" in one for one in server.headers)
        make = engine_maker(Arguments(engine="remote", base_url=server.url))
        list(make(EngineConfig(server=server.url, model="")).load())
        assert "Bearer sk-for-another-server" in server.headers[-1].values()
