"""A reading that is cut short is gone on with where it stood, and gives what a reading at one go gives."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from engine.tiny import document, write_model

from triforce_core.config import EngineConfig
from triforce_core.documents.document import Document
from triforce_core.engine.engine import Engine
from triforce_core.events import DocumentOpened, PrefillProgress

CHUNK = 64


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_model(tmp_path_factory.mktemp("model") / "target", layers=2, heads=2, seed=1)


@pytest.fixture
def worth_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """However small."""
    monkeypatch.setattr("triforce_core.kv_cache.snapshot._RESTORED_PER_SECOND", 1e15)
    monkeypatch.setattr("triforce_core.engine.engine._SAVED_PER_SECOND", 1e15)
    monkeypatch.setattr("triforce_core.engine.engine._WORTH_SAVING", 1)


def engine(model: Path, saved: Path | None) -> Engine:
    made = Engine(EngineConfig(model=str(model), dtype="float32", threads=1, mode="cpu", prefill_chunk=CHUNK,
                               saved_readings=saved))
    list(made.load())
    return made


def cut_short(used: Engine, wanted: Document, chunks: int) -> int:
    """Tokens that were read by then."""
    stream, done = used.open_document(wanted), 0
    while done < chunks * CHUNK:
        done = next(stream).tokens_done
    used.cancel()
    left = list(stream)
    assert not any(isinstance(event, DocumentOpened) for event in left)
    return done


def same_cache(one: Engine, other: Engine) -> bool:
    layers = range(2)
    return all(torch.equal(mine, its) for layer in layers for mine, its in zip(
        one._session.full.cache.read(layer), other._session.full.cache.read(layer), strict=True))


def opened(used: Engine, wanted: Document) -> tuple[DocumentOpened, list[PrefillProgress]]:
    *events, last = used.open_document(wanted)
    return last, [event for event in events if event.stage == "read"]


def read_afresh(model: Path, wanted: Document) -> Engine:
    """One that read it at one go and keeps nothing."""
    used = engine(model, None)
    opened(used, wanted)
    return used


def test_it_goes_on_where_it_stood(model: Path, tmp_path: Path, worth_it: None) -> None:
    used, whole = engine(model, tmp_path), document()
    note = replace(document(seed=3), pages=document(seed=3).pages[:1])
    first = cut_short(used, whole, 2)
    opened(used, note)  # somebody looked at something else
    second = cut_short(used, whole, first // CHUNK + 2)
    opening, read = opened(used, whole)
    assert first < second == opening.reused and read[0].tokens_done == min(second + CHUNK, opening.tokens)
    assert same_cache(used, read_afresh(model, whole))


def test_its_first_pages_are_there_at_once(model: Path, tmp_path: Path, worth_it: None) -> None:
    used, whole = engine(model, tmp_path), document()
    cut_short(used, whole, 4)
    pages = replace(whole, pages=whole.pages[:2])
    opening, _ = opened(used, pages)
    assert opening.reused >= CHUNK
    assert same_cache(used, read_afresh(model, pages))


def test_it_is_kept_no_longer_than_it_is_of_use(model: Path, tmp_path: Path, worth_it: None) -> None:
    used, whole = engine(model, tmp_path), document()
    cut_short(used, whole, 2)
    assert len(list(tmp_path.glob("*.kv"))) == 1
    cut_short(used, whole, 4)
    assert len(list(tmp_path.glob("*.kv"))) == 1, "all of the first stands in the second"
    opened(used, whole)
    (kept,) = used._saved.list()
    assert kept.tokens == len(used._session.prompt.token_ids)


def test_what_takes_longer_to_keep_than_to_read_is_not_kept(model: Path, tmp_path: Path, worth_it: None,
                                                           monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("triforce_core.engine.engine._SAVED_PER_SECOND", 1e-9)
    used = engine(model, tmp_path)
    cut_short(used, document(), 2)
    assert not list(tmp_path.glob("*.kv"))


def test_a_saved_reading_comes_back_layer_by_layer_and_says_so(model: Path, tmp_path: Path, worth_it: None) -> None:
    list(engine(model, tmp_path).open_document(document()))
    *events, last = engine(model, tmp_path).open_document(document())
    assert isinstance(last, DocumentOpened) and last.restored
    back = [event for event in events if event.stage == "restore"]
    assert [event.tokens_done for event in back] == [0, last.tokens // 2]
    assert back[0].eta_seconds is None and back[1].eta_seconds is not None
