"""A reading that is cut short is gone on with where it stood, and gives what a reading at one go gives."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from engine.tiny import document, write_model

from triforce_core.config import EngineConfig
from triforce_core.device.shard import Shard
from triforce_core.documents.document import Document
from triforce_core.engine.engine import Engine
from triforce_core.engine.saved_readings import SavedReading
from triforce_core.events import DocumentOpened, PrefillProgress
from triforce_core.kv_cache.snapshot import SnapshotKey, prefix_digests

CHUNK = 64


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_model(tmp_path_factory.mktemp("model") / "target", layers=2, heads=2, seed=1)


@pytest.fixture
def worth_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """However small."""
    monkeypatch.setattr("triforce_core.kv_cache.snapshot._RESTORED_PER_SECOND", 1e15)
    monkeypatch.setattr("triforce_core.engine.saved_readings._SAVED_PER_SECOND", 1e15)
    monkeypatch.setattr("triforce_core.engine.saved_readings._WORTH_SAVING", 1)


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


def same_cache(one: Engine, other: Engine, layers: range = range(2)) -> bool:
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
    monkeypatch.setattr("triforce_core.engine.saved_readings._SAVED_PER_SECOND", 1e-9)
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


@pytest.mark.parametrize("wrong", [
    lambda layers: layers[:1], lambda layers: [*layers, layers[0]],
    lambda layers: [(k[:1], v[:1]) for k, v in layers],  # one head, which a copy would stretch over all
    lambda layers: [(k[:, :, :1], v[:, :, :1]) for k, v in layers],
    lambda layers: [(k.reshape(1, k.shape[1], -1), v.reshape(1, v.shape[1], -1)) for k, v in layers],
    lambda layers: [(k[:, :9], v[:, :9]) for k, v in layers], lambda layers: [(k[:, :1], v[:, :1]) for k, v in layers],
    lambda layers: [(k.half(), v) for k, v in layers], lambda layers: [(k, v.long()) for k, v in layers],
], ids=["fewer layers", "more layers", "fewer heads", "narrower heads", "one wide head", "fewer tokens", "one token",
        "half", "integers"])
def test_a_reading_of_another_form_is_removed_and_the_document_read_anew(
        model: Path, tmp_path: Path, worth_it: None, wrong: Callable[[list], list]) -> None:
    """Under its own key, and each file sound in itself."""
    used = engine(model, tmp_path)
    opened(used, document())
    cache, tokens = used._session.full.cache, used._session.prompt.token_ids.tolist()
    key = SavedReading(None, used._loaded, document().id, "", tokens, CHUNK, "same").key()
    list(used._saved.save_steps(key, wrong([cache.read(layer) for layer in range(2)]), read_seconds=1e9,
                                prefixes=prefix_digests(tokens, CHUNK)))
    again = engine(model, tmp_path)
    opening, read = opened(again, document())
    assert opening.damaged and not opening.restored and not opening.reused and read
    assert same_cache(again, used)
    assert opened(engine(model, tmp_path), document())[0].restored, "what was read anew is kept"


def test_six_layers_come_back_in_their_places(tmp_path: Path, worth_it: None) -> None:
    """All different, and keys and values too."""
    deep, saved = write_model(tmp_path / "deep", layers=6, heads=2, seed=5), tmp_path / "saved"
    first, second = engine(deep, saved), engine(deep, saved)
    opened(first, document())
    assert opened(second, document())[0].restored
    assert same_cache(second, first, range(6))
    tensors = [tensor for layer in range(6) for tensor in second._session.full.cache.read(layer)]
    assert len({tensor.sum().item() for tensor in tensors}) == 12


def test_whatever_decides_keys_and_values_stands_in_the_key(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each alone gives another key; a beginning of such a reading serves nobody either, see the store's tests."""
    loaded, whole, tokens = engine(model, None)._loaded, document(), list(range(200))

    def key(*, of: Document = whole, ids: list[int] = tokens, chunk: int = CHUNK, kind: str = "same", version: str = "",
            **changed: object) -> SnapshotKey:
        target = SimpleNamespace(**{"device": torch.device("cpu"), "dtype": torch.float32, "in_groups": False,
                                    "turns_near": False}
                                 | {name: changed.pop(name) for name in ("device", "dtype", "in_groups", "turns_near")
                                    if name in changed})
        altered = replace(loaded, target=target, **changed)
        with monkeypatch.context() as patched:
            if version:
                patched.setattr(f"triforce_core.engine.saved_readings.{version}", 99)
            return SavedReading(None, altered, of.id, "", ids, chunk, kind).key()

    monkeypatch.setattr("triforce_core.engine.saved_readings.compiled", lambda: SimpleNamespace(library="ours"))
    keys = [key(), key(of=document(seed=3)), key(ids=tokens[:-1]), key(ids=[*tokens[:-1], 0]), key(chunk=2 * CHUNK),
            key(kind="int8"), key(kind="int4"), key(version="KV_VERSION"), key(version="PROMPT_VERSION"),
            key(fingerprint="other"), key(tokenizer=SimpleNamespace(fingerprint="other")),
            key(info=replace(loaded.info, dtype="bfloat16")), key(device=torch.device("cuda")), key(in_groups=True),
            key(dtype=torch.bfloat16), key(turns_near=True),
            *(key(shard=shard) for shard in (Shard(0, 2), Shard(1, 2), Shard(0, 4)))]
    assert key() == keys[0] and len({each.digest for each in keys}) == len(keys)
