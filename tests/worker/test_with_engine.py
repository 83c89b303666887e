"""The client and the real engine, on a tiny pair: a death, a new child, the saved reading, the same words."""

from __future__ import annotations

import os
import shutil
import signal
from dataclasses import replace
from pathlib import Path

import pytest
from engine.tiny import document, write_model

from triforce_core.config import EngineConfig, SamplingParams, SpeculationConfig
from triforce_core.documents.document import Document, Page
from triforce_core.errors import (
    ContextTooLongError,
    DamagedWeightsError,
    EngineDiedError,
    ModelNotFoundError,
    NotEnoughMemoryError,
)
from triforce_core.events import DocumentOpened, Finished, ModelInfo, RoundEvent, TextDelta, Turn
from triforce_core.worker.client import EngineClient

SAMPLING = SamplingParams(max_new_tokens=40, stop_token_ids=())
SPECULATION = SpeculationConfig(budget=128, recent=48, window=32)


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> EngineConfig:
    root = tmp_path_factory.mktemp("pair")
    write_model(root / "target", layers=2, heads=2, seed=1)
    write_model(root / "draft", layers=1, heads=2, seed=2)
    return EngineConfig(str(root / "target"), str(root / "draft"), "cpu", "float32", threads=1,
                        saved_readings=root / "readings")


@pytest.mark.slow
def test_killed_while_answering_then_asked_again(config: EngineConfig) -> None:
    book = document(sentences=220)
    with EngineClient(config) as client:
        *_, opened = client.open_document(book)
        assert isinstance(opened, DocumentOpened) and not opened.restored
        *_, whole = client.ask("Who found the lamp?", (), SAMPLING, SPECULATION)
        assert isinstance(whole, Finished)
        partial = ""
        with pytest.raises(EngineDiedError, match="SIGKILL"):
            for event in client.ask("Who found the lamp?", (), SamplingParams(max_new_tokens=2000, stop_token_ids=()),
                                    SpeculationConfig(engine="autoregressive")):
                if isinstance(event, TextDelta):
                    partial += event.text
                if isinstance(event, RoundEvent) and event.index == 5:
                    os.kill(client.status().pid or 0, signal.SIGKILL)
        assert partial and whole.text.startswith(partial[:1])
        *_, again = client.ask("Who found the lamp?", (), SAMPLING, SPECULATION)
        assert isinstance(again, Finished) and again.token_ids == whole.token_ids
        *_, reopened = client.open_document(book)
        assert isinstance(reopened, DocumentOpened) and reopened.tokens == opened.tokens
        with pytest.raises(ContextTooLongError):
            list(client.open_document(document(sentences=2000)))
        next(client.ask(None, (), SamplingParams(max_new_tokens=2000), SPECULATION))  # nobody wants the rest
        *_, after = client.ask("Who found the lamp?", (), SAMPLING, SPECULATION)
        assert isinstance(after, Finished) and after.token_ids == whole.token_ids


@pytest.mark.slow
def test_memory_that_ran_out_is_told_and_the_next_question_answered(config: EngineConfig) -> None:
    book = document(sentences=220)
    with EngineClient(config, factory="tests.worker.starved_engine:StarvedEngine") as client:
        list(client.open_document(book))
        pid = client.status().pid
        with pytest.raises(NotEnoughMemoryError, match=r"while answering \(it asked for 3\.5 GiB more\).*are free now"):
            list(client.ask("starve", (), SAMPLING, SPECULATION))
        assert client.status().document_id is None and client.status().pid == pid
        *_, done = client.ask("Who found the lamp?", (), SAMPLING, SPECULATION)
        assert isinstance(done, Finished) and client.status().document_id == book.id
        facts = client.status().facts
        assert facts is not None and facts.mode == "cpu" and facts.host_used > 0


@pytest.mark.slow
def test_a_check_reads_no_weights(config: EngineConfig, tmp_path: Path) -> None:
    folder = tmp_path / "half"
    shutil.copytree(config.model, folder)
    (folder / "model.safetensors").write_bytes((folder / "model.safetensors").read_bytes()[:-1000])
    with EngineClient(replace(config, model=str(folder), draft_model="none")) as client:
        with pytest.raises(DamagedWeightsError):  # the table of contents is looked at
            list(client.check())
    with EngineClient(config) as client:
        *_, model = client.check()
        assert isinstance(model, ModelInfo) and model.plan is not None and model.plan.longest == model.max_context
        assert client.status().model is None


@pytest.mark.slow
def test_a_model_that_is_missing(config: EngineConfig, tmp_path: Path) -> None:
    with EngineClient(EngineConfig(str(tmp_path / "none"), dtype="float32", threads=1)) as client:
        with pytest.raises(ModelNotFoundError):
            list(client.load())
        assert client.status().state != "dead"


@pytest.mark.slow
def test_half_a_surrogate_pair_is_a_character_like_any_other(config: EngineConfig) -> None:
    """JSON and file names may hold one; no tokenizer can. The engine's process outlives it wherever it stands."""
    half = "Who \ud83d?"
    book = Document(half, "txt", (Page(half, f"The lamp {half} stood in the harbour. " * 20),), "text")
    with EngineClient(config) as client:
        list(client.open_document(book))
        pid, short = client.status().pid, replace(SAMPLING, max_new_tokens=4)
        for history in ((), (Turn(half, (), half),)):
            *_, done = client.ask(half, history, short, SPECULATION)
            assert isinstance(done, Finished)
        *_, done = client.ask("Who \ufffd?", (), short, SPECULATION)
        *_, same = client.ask(half, (), short, SPECULATION)
        assert same.token_ids == done.token_ids and client.status().pid == pid
