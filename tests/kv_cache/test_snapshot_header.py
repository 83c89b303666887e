"""Whatever stands in the header of a saved reading: it is whole, or it is removed, and nothing else happens."""

from __future__ import annotations

import copy
import json
import struct
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from triforce_core.kv_cache.snapshot import DamagedSnapshot, SnapshotKey, SnapshotStore, prefix_digests, token_digest

TOKENS = 12
KEY = SnapshotKey("doc", token_digest(range(TOKENS)), "model", "tokenizer", "float32", "1", (("rope", "none"),))
PREFIXES = prefix_digests(range(TOKENS), 4)
LAYERS = [(torch.full((2, TOKENS, 4), 1.0 + layer), torch.full((2, TOKENS, 4), -1.0 - layer)) for layer in range(2)]
FRONT = struct.Struct("<12sQI")
REMOVED = object()
WRONG = [REMOVED, None, True, "x", "", -1, 0, 1, 2.5, float("nan"), 10**30, [], [1], [[]], [["a", "b", "c"]], {},
         {"a": 1}, [0, TOKENS, 10**30], [-2, TOKENS, -4], [2, TOKENS + 1, 4], [2, TOKENS], "complex64", "float64"]


@pytest.fixture
def readings(tmp_path: Path) -> SnapshotStore:
    return SnapshotStore(tmp_path, 10**9)


def save(readings: SnapshotStore) -> Path:
    for _ in readings.save_steps(KEY, LAYERS, read_seconds=1e9, title="A book", prefixes=PREFIXES):
        pass
    return readings.folder / f"{KEY.digest}.kv"


def header_of(data: bytes) -> Any:
    return json.loads(data[FRONT.size : FRONT.size + FRONT.unpack_from(data)[1]])


def with_text(data: bytes, text: bytes) -> bytes:
    """The file with this header: its checksum is right."""
    front = FRONT.pack(data[:12], len(text), zlib.crc32(text)) + text
    return front + data[len(front) :]


def places(value: Any, path: tuple = ()) -> Iterator[tuple]:
    """Yield the place of every part of a header; in lists the first and the last."""
    if path:
        yield path
    ends = sorted({0, len(value) - 1}) if isinstance(value, list) and value else ()
    for key in value if isinstance(value, dict) else ends:
        yield from places(value[key], (*path, key))


def changed(header: Any, path: tuple, to: Any) -> Any:
    new = copy.deepcopy(header)
    part = new
    for key in path[:-1]:
        part = part[key]
    if to is REMOVED:
        del part[path[-1]]
    else:
        part[path[-1]] = to
    return new


def survives(readings: SnapshotStore, path: Path, what: object) -> None:
    """Listing, opening and removing: the layers that were saved come back, or none and the file is gone."""
    for info in readings.list():
        assert isinstance(info.title, str) and info.tokens >= 0, what
    for found in (readings.load_beginning(KEY, PREFIXES), readings.load(KEY)):
        reading = found[0] if isinstance(found, tuple) else found
        if reading is None:
            continue
        with reading:
            try:
                restored = list(reading.layers())
            except DamagedSnapshot:
                assert not path.exists(), what
                continue
            assert len(restored) == len(LAYERS), what
            for (k, v), (k2, v2) in zip(LAYERS, restored, strict=True):
                assert k2.dtype == k.dtype and torch.equal(k, k2) and torch.equal(v, v2), what
    assert path.exists() or readings.load(KEY) is None, what


def test_every_field_with_every_wrong_value(readings: SnapshotStore) -> None:
    path = save(readings)
    whole = path.read_bytes()
    header = header_of(whole)
    tried = 0
    for place in places(header):
        for wrong in WRONG:
            path.write_bytes(with_text(whole, json.dumps(changed(header, place, wrong)).encode()))
            survives(readings, path, (place, wrong))
            tried += 1
    assert tried > 900


@pytest.mark.parametrize("place", [("key",), ("key", "settings"), ("key", "model"), ("title",), ("layers",),
                                   ("tokens",), ("read_seconds",), ("tensors",), ("size",), ("format",),
                                   ("tensors", 0, "dtype"),
                                   ("tensors", 3, "shape"), ("tensors", 1, "bytes"), ("tensors", 2, "offset"),
                                   ("tensors", 0, "crc32"), ("tensors", 0, "name")], ids=str)
def test_what_lacks_is_damaged_and_goes_when_the_app_starts(readings: SnapshotStore, place: tuple) -> None:
    path = save(readings)
    whole = path.read_bytes()
    path.write_bytes(with_text(whole, json.dumps(changed(header_of(whole), place, REMOVED)).encode()))
    assert readings.list() == () and [info.path for info in readings.dead()] == [path] and path.exists()
    assert [info.bytes for info in readings.remove_dead()] == [len(whole)] and not path.exists()


@pytest.mark.parametrize("damage", [
    lambda data: with_text(data, b"{"), lambda data: with_text(data, b"[]"), lambda data: with_text(data, b"\xff"),
    lambda data: with_text(data, b"[" * 100_000 + b"]" * 100_000), lambda data: with_text(data, b""),
    lambda data: data[:20], lambda data: data[:200], lambda data: data[:-1], lambda data: data + b"x",
    lambda data: FRONT.pack(data[:12], 2**63, 0) + data[FRONT.size :]])
def test_a_header_that_is_none(readings: SnapshotStore, damage: Callable[[bytes], bytes]) -> None:
    path = save(readings)
    path.write_bytes(damage(path.read_bytes()))
    assert len(readings.dead()) == 1 and not readings.list()
    assert readings.load(KEY) is None and not path.exists() and readings.damaged == 1


def test_tensors_that_lie_upon_each_other_are_none_of_ours(readings: SnapshotStore) -> None:
    """They are the same bytes twice, each with its right checksum."""
    path = save(readings)
    whole = path.read_bytes()
    header = header_of(whole)
    for part in ("offset", "crc32"):
        header["tensors"][1][part] = header["tensors"][0][part]
    path.write_bytes(with_text(whole, json.dumps(header).encode()))
    assert readings.load(KEY) is None and not path.exists()
