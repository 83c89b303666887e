"""Measuring a machine through the engine's process and from the command line, and what ``--check`` says of it."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from engine.tiny import document, write_model

from triforce_core import __main__ as cli
from triforce_core.config import EngineConfig, SamplingParams, SpeculationConfig
from triforce_core.engine.engine import Engine
from triforce_core.events import DocumentOpened, Finished, ModelInfo, PrefillProgress
from triforce_core.speculation import draft_length_selector as selector
from triforce_core.speculation.draft_length import Costs
from triforce_core.worker.client import EngineClient
from ui.app.arguments import engine_config, parse
from ui.server import preflight

NEVER = "not measured on this machine yet"


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> EngineConfig:
    root = tmp_path_factory.mktemp("pair")
    write_model(root / "target", layers=2, heads=2, seed=1)
    write_model(root / "draft", layers=1, heads=2, seed=2)
    return EngineConfig(str(root / "target"), str(root / "draft"), "cpu", "float32", threads=1)


@pytest.mark.slow
def test_through_the_engines_process(config: EngineConfig, tmp_path: Path) -> None:
    with EngineClient(replace(config, measurements=tmp_path, tune=True)) as client:
        *_, opened = client.open_document(document(60))
        assert client.config == replace(config, measurements=tmp_path)  # if it dies, it does not measure again
        assert isinstance(opened, DocumentOpened) and client.status().document_id
        *progress, model = client.tune((1024, 2600))
        assert {event.stage for event in progress if isinstance(event, PrefillProgress)} == {"tune"}
        assert isinstance(model, ModelInfo) and model.drafting.endswith("at 1,024 and 2,600 tokens")
        assert client.status().model == model and client.status().document_id is None
        *_, done = client.ask("Who found the lamp?", (), SamplingParams(max_new_tokens=8, stop_token_ids=()),
                              SpeculationConfig(budget=128, recent=48, window=32))  # the document is read again
        assert isinstance(done, Finished) and len(done.token_ids) == 8
        job = client.tune((2600,))
        assert isinstance(next(job), PrefillProgress)
        client.cancel()
        *_, last = job
        assert isinstance(last, ModelInfo | PrefillProgress)
        assert isinstance(list(client.open_document(document(60)))[-1], DocumentOpened)


@pytest.mark.slow
def test_the_command_and_the_check(config: EngineConfig, tmp_path: Path, capsys: pytest.CaptureFixture[str],
                                   monkeypatch: pytest.MonkeyPatch) -> None:
    costs = Costs(25.0, ((3, 30.0), (33, 60.0)), 6.0, 0.5)
    monkeypatch.setattr(selector, "measure_costs", lambda *_: costs)
    named = ["--model", config.model, "--draft-model", config.draft_model, "--mode", "cpu", "--dtype", "float32",
             "--data-dir", str(tmp_path)]

    def check() -> str:
        *_, model = preflight.look(parse([*named, "--check"]))
        assert isinstance(model, ModelInfo)
        return dict(preflight.about(model))["Drafts"]

    assert check() == NEVER
    assert cli.main(["tune", *named, "--context", "1024", "2600"]) == 0
    told = capsys.readouterr().out.strip()
    assert told.startswith("measured 20")
    assert told.endswith("at 1,024 and 2,600 tokens")
    assert check() == told
    assert cli.main(["tune", *named, "--context", "70000"]) == 2
    assert "context is 70000" in capsys.readouterr().err


@pytest.mark.slow
def test_two_ranks_measure_together_and_keep_their_own_figures(config: EngineConfig, tmp_path: Path) -> None:
    tokens = []
    for make in (EngineClient(replace(config, gpus=2, measurements=tmp_path)), Engine(config)):
        with closing(make) as engine:
            list(engine.load())
            *_, opened = engine.open_document(document(60))
            assert isinstance(opened, DocumentOpened)
            *_, done = engine.ask("Who found the lamp?", (), SamplingParams(max_new_tokens=12, stop_token_ids=()),
                                  SpeculationConfig(budget=128, recent=48, window=32, quotes="off", pace="on"))
            assert isinstance(done, Finished)
            tokens.append(done.token_ids)
    assert tokens[0] == tokens[1]
    assert sorted(path.parent.name for path in tmp_path.rglob("*.json")) == ["0-of-2", "1-of-2"]


def test_the_flag_reaches_the_engine() -> None:
    assert engine_config(parse(["--tune"])).tune and not engine_config(parse([])).tune
