"""Servers of this machine on the models tab: one press uses one, another goes back, and what was open stays open."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from little_books import read_quickly, wait_for, write_book

from tests.remote import scripted_servers as kinds
from tests.remote.scripted_servers import Scripted, running
from tests.scripted_engine import EngineScript, ScriptedEngine
from triforce_core import EngineConfig, RemoteEngine, ServedModel, TriForceError
from triforce_core.remote.served import local_servers
from ui.app import folders
from ui.app.arguments import parse
from ui.app.models import remembered
from ui.app.services import Services
from ui.app.tab_view import TabView
from ui.page import models as models_view
from ui.server.lifecycle import make_services

NAME = "Qwen3-8B-Q4_K_M.gguf"
QWEN = f"/srv/models/{NAME}"


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Scripted]:
    with running(kinds.llama_server(20_000)) as made:
        monkeypatch.setattr("ui.app.models.local_servers", lambda: local_servers((made.port,)))
        yield made


@pytest.fixture
def both(tmp_path: Path, script: EngineScript, server: Scripted) -> Iterator[Services]:
    """The app with both kinds of engine, as ``engine_maker`` has them."""
    def make(config: EngineConfig) -> RemoteEngine | ScriptedEngine:
        return (RemoteEngine(config, config.server, config.model) if config.server
                else ScriptedEngine(config, script))

    made = Services(folders.make_folders(tmp_path / "home"), make, EngineConfig(), read_quickly)
    made.start([])
    yield made
    made.close()


def looked(services: Services) -> tuple[ServedModel, ...]:
    services.models._look_at_servers()
    return services.models.served or ()


def test_there_and_back_while_a_conversation_is_open(both: Services, server: Scripted, tmp_path: Path) -> None:
    view = TabView()
    both.add(view, [(write_book(tmp_path, "book.txt"), "book.txt")])
    wait_for(lambda: both.queue.open_key is not None)
    texts = []
    for step in (lambda: None, lambda: both.use_server(server.url, QWEN), lambda: both.use_model("builtin", "auto")):
        looked(both)
        step()
        before = view.document, view.conversation
        run = both.ask(view, "How many ships?")
        wait_for(lambda run=run: run.ended, 20.0)
        assert run.state == "done" and run.searched.is_set(), run.error
        assert view.document == before[0] and before[1] in (None, view.conversation)
        texts.append(run.accumulator.text)
    assert texts[1] == "Red." and texts[0].startswith("This is the scripted") and texts[2].startswith("This is the scr")
    answers = both.conversations.answers(view.conversation)
    assert len(answers) == 3 and [answer.result["model"] for answer in answers][1] == NAME
    sent = [body["messages"] for what, body in server.seen if what.endswith("chat/completions")][-1]
    assert "How many ships?" in sent[1]["content"] and len(sent) == 4, "what the other engine answered is its history"


def test_the_choice_is_remembered_and_so_is_the_way_back(both: Services, server: Scripted) -> None:
    looked(both)
    both.use_server(server.url, QWEN)
    kept = remembered(both.folders.model, EngineConfig())
    assert (kept.server, kept.model) == (server.url, QWEN)
    wait_for(lambda: both.sends_to == server.url and both.queue.state == "ready")
    assert both.queue.model.max_context == 20_000
    both.use_model("builtin", "auto")
    assert not remembered(both.folders.model, EngineConfig()).server
    both.use_server(server.url, QWEN)
    config = EngineConfig(draft_model="none")
    assert remembered(both.folders.model, config, own=True) == config, "--engine autoregressive wins"
    both.folders.model.write_text(json.dumps({"model": "m", "draft": "auto", "server": "http://far.example/v1"}))
    assert not remembered(both.folders.model, EngineConfig()).server, "only what stays on this machine"


def test_a_press_while_an_answer_is_written_waits_and_says_so(both: Services, server: Scripted, script: EngineScript,
                                                              tmp_path: Path) -> None:
    """And the last press counts: whoever goes back to what is loaded keeps it."""
    view, script.triforce_tokens_per_second = TabView(), 25.0
    both.add(view, [(write_book(tmp_path, "book.txt"), "book.txt")])
    wait_for(lambda: both.queue.open_key is not None)
    looked(both)
    shown = next(panel for panel in models_view.panels(both) if panel.name == "models_board")
    run = both.ask(view, "How many ships?")
    wait_for(lambda: run.state == "answering")
    there, back = (lambda: both.use_server(server.url, QWEN)), (lambda: both.use_model("builtin", "auto"))
    for press, waits in ((there, True), (back, False), (there, True)):
        press()
        assert (both.queue.wanted.server == server.url) == waits and not both.sends_to
        assert (models_view.WAITS in shown.draw(view)) == waits
    both.stop(view)
    wait_for(lambda: both.sends_to == server.url and both.queue.state == "ready")
    assert models_view.WAITS not in shown.draw(view) and not both.queue.jobs()


@pytest.mark.parametrize("stage", ["waiting", "read"])
def test_a_reading_makes_way_and_goes_on_with_the_other_engine(both: Services, server: Scripted, script: EngineScript,
                                                               tmp_path: Path, stage: str) -> None:
    view, script.prefill_tokens_per_second = TabView(), 20.0
    if stage == "waiting":
        script.load_seconds = 1.0
        both.queue.reconfigure(EngineConfig(mode="cpu"))
        wait_for(lambda: both.queue.state == "starting")
    both.add(view, [(write_book(tmp_path, "book.txt", 12), "book.txt")])
    wait_for(lambda: view.document in both.queue.prefills and both.queue.prefills[view.document].stage == stage)
    looked(both)
    both.use_server(server.url, QWEN)
    wait_for(lambda: both.sends_to == server.url and both.queue.open_key is not None, 6.0)
    assert sum(what.endswith("chat/completions") for what, _ in server.seen) == 1
    wait_for(lambda: both.library.get(view.document).read_with == f"{NAME} (127.0.0.1:{server.port})")
    wait_for(lambda: both.phase(both.library.get(view.document)) == "ready")


@pytest.mark.parametrize("flags", ["", "--engine autoregressive", "--engine triforce"])
def test_an_engine_of_the_command_line_wins_over_a_remembered_server(tmp_path: Path, flags: str, script: EngineScript,
                                                                     monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    places, url = folders.make_folders(tmp_path / "home"), "http://127.0.0.1:8080/v1"
    places.model.write_text(json.dumps({"model": QWEN, "draft": "auto", "server": url}))
    made = make_services(parse(flags.split()), places, lambda config: ScriptedEngine(config, script))
    assert made.sends_to == ("" if flags else url) and made.queue.config.model == ("builtin" if flags else QWEN)
    made.close()


@pytest.mark.parametrize("url", ["http://far.example/v1", "http://127.0.0.1:9/v1", ""])
def test_only_what_was_found_is_used(both: Services, url: str) -> None:
    looked(both)
    with pytest.raises(TriForceError, match="not among"):
        both.use_server(url, QWEN)
    assert not both.sends_to


def test_a_server_that_has_gone_says_so_and_the_way_back_is_open(both: Services, server: Scripted,
                                                                 monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("triforce_core.remote.server._FIRST_PAUSE", 0.01)
    looked(both)
    server.says.clear()
    both.use_server(server.url, QWEN)
    wait_for(lambda: both.queue.state == "failed")
    assert "127.0.0.1" in both.queue.problem
    both.use_model("builtin", "auto")
    wait_for(lambda: both.queue.state == "ready" and not both.sends_to)


def test_what_is_said_of_each(both: Services) -> None:
    found = (ServedModel("llama-server", "http://127.0.0.1:8080/v1", QWEN, 8192, 40960),
             ServedModel("Ollama", "http://127.0.0.1:11434/v1", "qwen3:8b", 4096, 40960, known_loaded=True),
             ServedModel("Ollama", "http://127.0.0.1:11434/v1", "gpt:cloud", problem="Ollama sends it on to <b>"),
             ServedModel("", "http://127.0.0.1:8000/v1", "<img src=x>", 0, 0))
    html = models_view.servers(found, EngineConfig(server=found[0].url, model=QWEN), "ready")
    assert models_view.SERVED in html and "llama-server at 127.0.0.1:8080 · loaded with 8,192 tokens" in html
    assert html.count("tf-current") == 1 and html.index(f"<h3>{NAME}") < html.index(models_view.NOW)
    assert f'"{QWEN}"' in html and f">{NAME} (llama-server)<" in models_view.servers_line(found)
    assert html.count("OLLAMA_CONTEXT_LENGTH") == 1 and "sends it on to &lt;b&gt;" in html and "<img" not in html
    assert html.count('data-action="use-server"') == 3, "what would leave this machine has no button"
    none = models_view.servers((), EngineConfig(), "ready")
    for words in ("LM Studio (1234)", "Ollama (11434)", "llama-server (8080)", "vLLM (8000)"):
        assert words in none, words


@pytest.mark.browser
def test_one_press_in_a_browser(tab, served, server: Scripted, monkeypatch: pytest.MonkeyPatch) -> None:
    """Opening the tab finds the server; the press says where text goes; the list leads back."""
    services, make = served.services, served.services.queue._make_engine
    monkeypatch.setattr(services.queue, "_make_engine", lambda config: (
        RemoteEngine(config, config.server, config.model) if config.server else make(config)))
    monkeypatch.setattr(services.models, "_go", lambda *_: None)  # of models in folders other tests know
    services.models._looked = services.models.served = None
    tab.get_by_role("tab", name=models_view.TAB).click()
    tab.click(f".tf-served .tf-model:has-text('{NAME}') [data-action=use-server]")
    tab.wait_for_selector(f".tf-served .tf-current:has-text('{models_view.NOW}')")
    tab.wait_for_selector(f"#bar .tf-stays:has-text('{server.url}')")
    services.use_model("builtin", "auto")
    tab.wait_for_selector("#bar .tf-tagline")
    wait_for(lambda: services.queue.state == "ready")
    services.models.served = None
