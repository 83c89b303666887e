"""A saved reading comes back bit for bit, or not at all."""

from __future__ import annotations

import os
import stat
import struct
import subprocess
import sys
from collections import namedtuple
from dataclasses import Field, fields, replace
from pathlib import Path
from typing import Any

import pytest
import torch

from triforce_core.assets import BUILTIN_FOLDER
from triforce_core.engine.loading import fingerprint
from triforce_core.errors import NotEnoughDiskError
from triforce_core.kv_cache import shared_prefix, snapshot, snapshot_header
from triforce_core.kv_cache.snapshot import (
    DamagedSnapshot,
    SnapshotKey,
    SnapshotStore,
    fingerprint_files,
    prefix_digests,
    token_digest,
)

KEY = SnapshotKey("doc", token_digest([1, 2, 3]), "model", "tokenizer", "float32", "1", (("rope", "none"),))


def make_layers(dtype: torch.dtype = torch.float32, tokens: int = 37, layers: int = 3) -> list:
    """Keys and values as slices of larger buffers, as a full cache holds them."""
    torch.manual_seed(tokens)
    return [tuple(torch.randn(4, tokens + 11, 8).to(dtype)[:, :tokens] for _ in "kv") for _ in range(layers)]


@pytest.fixture
def readings(tmp_path: Path) -> SnapshotStore:
    return SnapshotStore(tmp_path / "kv", 10**9)


def save(readings: SnapshotStore, key: SnapshotKey, layers: list, **about: Any) -> Path:
    """The whole of it; where it lies."""
    for _ in readings.save_steps(key, layers, **about):
        pass
    return readings.folder / f"{key.digest}.kv"


def assert_same(reading: snapshot.Snapshot, layers: list) -> None:
    restored = list(reading.layers())
    assert len(restored) == len(layers)
    for (k, v), (k2, v2) in zip(layers, restored, strict=True):
        assert k2.dtype == k.dtype and torch.equal(k, k2) and torch.equal(v, v2)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_round_trip(readings: SnapshotStore, dtype: torch.dtype) -> None:
    layers = make_layers(dtype)
    fractions = list(readings.save_steps(KEY, layers, read_seconds=41.5, title="A book"))
    assert fractions == sorted(fractions) and fractions[-1] == 1.0
    with readings.load(KEY) as reading:
        assert (reading.tokens, reading.read_seconds, reading.num_layers) == (37, 41.5, 3)
        assert_same(reading, layers)


@pytest.mark.parametrize(("one", "other", "count"), [
    ([1, 2, 3], [1, 2, 4], 2), ([1, 2], [1, 2, 3], 2), ([1, 2, 3], [1, 2], 2), ([], [1], 0), ([2, 1], [1, 2], 0),
    ([1, 9, 3], [1, 8, 3], 1)])
def test_a_shared_prefix_ends_at_the_first_difference_or_the_shorter_ones_end(one: list, other: list,
                                                                              count: int) -> None:
    assert shared_prefix(one, other) == count


def test_digests_of_beginnings() -> None:
    digests = prefix_digests([1, 2, 3, 4, 5], 2)
    assert len(digests) == 2 and prefix_digests([1, 2, 3, 4], 2) == digests
    assert prefix_digests([1, 2, 9, 4], 2)[0] == digests[0] and prefix_digests([1, 2, 9, 4], 2)[1] != digests[1]
    assert prefix_digests([9, 2, 3, 4], 2)[1] != digests[1], "each covers all tokens before it"


def test_the_longest_beginning_is_found(readings: SnapshotStore) -> None:
    whole = prefix_digests(range(36), 4)
    for number, shared in enumerate((2, 5, 3)):
        other = prefix_digests([*range(4 * shared), *range(100, 137 - 4 * shared)], 4)
        key = replace(KEY, document=f"other {number}", tokens=str(number))
        save(readings, key, make_layers(), read_seconds=100, prefixes=other)
    save(readings, replace(KEY, document="old", tokens="4"), make_layers(), read_seconds=100)  # of an earlier version
    save(readings, replace(KEY, document="quick", tokens="5"), make_layers(), read_seconds=1e-9, prefixes=whole)
    found = readings.load_beginning(KEY, whole)
    assert found is not None and found[1] == 5
    with found[0] as reading:
        assert_same(reading, make_layers())
    assert readings.load_beginning(KEY, whole, more_than=5) is None
    assert readings.load_beginning(KEY, prefix_digests(range(50, 90), 4)) is None


@pytest.mark.parametrize("field", fields(SnapshotKey), ids=lambda field: field.name)
def test_every_part_of_the_key_counts_and_a_beginning_is_taken_of_any_document_of_one_kind(readings: SnapshotStore,
                                                                                           field: Field) -> None:
    """Every field says of which kind keys and values are, but those that name the document."""
    whole = prefix_digests(range(36), 4)
    other = (("rope", "yarn"),) if field.name == "settings" else "other"
    save(readings, replace(KEY, **{field.name: other}), make_layers(), read_seconds=100, prefixes=whole)
    assert readings.load(KEY) is None
    assert (readings.load_beginning(KEY, whole) is not None) == (field.name in ("document", "tokens"))


def test_twelve_layers_and_their_keys_and_values_come_back_in_their_places(readings: SnapshotStore) -> None:
    """Also as they lie in the file: whoever saved and restored both the wrong way round would see nothing of it."""
    layers = [(torch.full((2, 5, 4), 10.0 * layer), torch.full((2, 5, 4), 10.0 * layer + 1)) for layer in range(12)]
    path = save(readings, KEY, layers, read_seconds=1)
    with readings.load(KEY) as reading:
        found = [(k.unique().tolist(), v.unique().tolist()) for k, v in reading.layers()]
    assert found == [([10.0 * layer], [10.0 * layer + 1]) for layer in range(12)]
    with path.open("rb") as file:
        entries = {entry["name"]: entry for entry in snapshot_header.read_header(file)["tensors"]}
        for layer in range(12):
            for part, name in enumerate((f"{layer}.k", f"{layer}.v")):
                file.seek(entries[name]["offset"])
                assert struct.unpack("<f", file.read(4))[0] == 10 * layer + part


def test_a_file_under_another_keys_name_is_refused_and_removed(readings: SnapshotStore) -> None:
    other = replace(KEY, document="other")
    path = save(readings, KEY, make_layers(), read_seconds=1)
    os.replace(path, readings.folder / f"{other.digest}.kv")
    assert readings.load(other) is None
    assert not list(readings.folder.glob("*.kv"))


def test_every_damaged_byte_is_noticed(readings: SnapshotStore) -> None:
    layers = make_layers(tokens=5, layers=1)
    path = save(readings, KEY, layers, read_seconds=1)
    whole = path.read_bytes()
    for place in range(0, len(whole), 7):
        damaged = bytearray(whole)
        damaged[place] ^= 0x10
        path.write_bytes(damaged)
        reading = readings.load(KEY)
        if reading is None:
            assert not path.exists()
            continue
        try:
            assert_same(reading, layers)  # padding: harmless
        except DamagedSnapshot:
            assert not path.exists()


def test_another_format_is_read_again(readings: SnapshotStore, monkeypatch: pytest.MonkeyPatch) -> None:
    save(readings, KEY, make_layers(), read_seconds=1)
    monkeypatch.setattr(snapshot_header, "FORMAT", snapshot_header.FORMAT + 1)
    assert not readings.dead() and not readings.list(), "another version may open it"
    assert readings.load(KEY) is None and not readings.damaged


def test_an_abandoned_save_leaves_nothing(readings: SnapshotStore) -> None:
    steps = readings.save_steps(KEY, make_layers(), read_seconds=1)
    next(steps)
    steps.close()
    assert [path.name for path in readings.folder.iterdir()] == [".lock"]
    assert readings.load(KEY) is None


def test_least_recently_used_goes_first(readings: SnapshotStore) -> None:
    keys = [replace(KEY, document=f"doc{i}") for i in range(4)]
    paths = []
    for age, key in enumerate(keys[:3]):
        paths.append(save(readings, key, make_layers(), read_seconds=1))
        os.utime(paths[-1], (1000 + age, 1000 + age))
    readings.load(keys[0])  # used just now
    readings.quota_bytes = sum(info.bytes for info in readings.list())
    save(readings, keys[3], make_layers(), read_seconds=1)
    assert {info.document for info in readings.list()} == {"doc0", "doc2", "doc3"}


def test_over_quota_is_refused_and_evicts_nothing(readings: SnapshotStore) -> None:
    save(readings, KEY, make_layers(), read_seconds=1)
    readings.quota_bytes = 100
    with pytest.raises(NotEnoughDiskError, match="quota"):
        save(readings, replace(KEY, document="other"), make_layers(), read_seconds=1)
    assert readings.load(KEY) is not None


def test_a_full_disk_is_refused_before_writing(readings: SnapshotStore, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(snapshot.shutil, "disk_usage", lambda _: usage(10**9, 10**9, 1000))
    with pytest.raises(NotEnoughDiskError, match="free"):
        save(readings, KEY, make_layers(), read_seconds=1)
    assert not list(readings.folder.glob("*.kv"))


def test_a_disk_that_fills_up_while_writing(readings: SnapshotStore, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(snapshot, "_write_tensor", full)
    with pytest.raises(NotEnoughDiskError):
        save(readings, KEY, make_layers(), read_seconds=1)
    assert [path.name for path in readings.folder.iterdir()] == [".lock"]


def test_a_folder_that_cannot_be_written(readings: SnapshotStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not the reading's fault: it stands in the cache, and the person learns why it is not kept."""
    def read_only(*_: object, **__: object) -> int:
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr(snapshot.os, "open", read_only)
    with pytest.raises(NotEnoughDiskError, match="Read-only file system"):
        save(readings, KEY, make_layers(), read_seconds=1)


@pytest.mark.skipif(os.name != "posix", reason="POSIX permissions")
def test_only_the_owner_may_look(readings: SnapshotStore) -> None:
    path = save(readings, KEY, make_layers(), read_seconds=1)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(readings.folder.stat().st_mode) == 0o700


def test_list_and_delete(readings: SnapshotStore) -> None:
    assert readings.list() == () and readings.delete() == 0
    save(readings, KEY, make_layers(), read_seconds=2, title="A book")
    save(readings, replace(KEY, dtype="bfloat16"), make_layers(torch.bfloat16), read_seconds=2)
    save(readings, replace(KEY, document="other"), make_layers(), read_seconds=2)
    assert {info.title for info in readings.list()} == {"A book", ""}
    assert readings.delete("doc") == 2
    assert [info.document for info in readings.list()] == ["other"]
    assert readings.delete() == 1 and not readings.list()


def test_only_what_can_never_be_opened_again_is_removed(readings: SnapshotStore) -> None:
    """A checkpoint that is not there may be tomorrow, and a newer version's reading is another program's."""
    assert snapshot.KV_VERSION < 90 > snapshot.PROMPT_VERSION
    kept = {"ours": replace(KEY, model=snapshot.BUILTIN_TARGETS[-1], settings=(("kv", str(snapshot.KV_VERSION)),)),
            "unplugged": KEY, "newer": replace(KEY, prompt_version="90", settings=(("kv", "90"),)),
            "no number": replace(KEY, prompt_version="x")}
    dead = {"former pair": replace(KEY, model=snapshot.BUILTIN_TARGETS[0]),
            "older layout": replace(KEY, prompt_version="0"), "older values": replace(KEY, settings=(("kv", "0"),))}
    for name, key in (kept | dead).items():
        save(readings, replace(key, document=name), make_layers(), read_seconds=1)
    (readings.folder / "strange.kv").write_bytes(b"another program's")
    assert {info.document for info in readings.dead()} == set(dead)
    assert sum(info.bytes for info in readings.remove_dead()) > 0
    assert {info.document for info in readings.list()} == set(kept) and readings.remove_dead() == ()
    assert (readings.folder / "strange.kv").exists()


def test_the_built_in_target_is_the_last_one_that_is_known() -> None:
    """Whoever trains another adds its fingerprint: readings of the one before are removed by it."""
    assert fingerprint(BUILTIN_FOLDER / "target") == snapshot.BUILTIN_TARGETS[-1]


def test_stale_temporaries_are_swept(readings: SnapshotStore) -> None:
    readings.folder.mkdir()
    stale = readings.folder / ".x.1.1.tmp"
    stale.write_bytes(b"x")
    os.utime(stale, (1, 1))
    save(readings, KEY, make_layers(), read_seconds=1)
    assert not stale.exists()


def test_processes_saving_and_loading_at_once(readings: SnapshotStore) -> None:
    program = (
        "import sys; from pathlib import Path; sys.path.insert(0, 'tests/kv_cache')\n"
        "from test_snapshot import KEY, SnapshotStore, assert_same, make_layers\n"
        "readings, layers = SnapshotStore(Path(sys.argv[1]), 10**9), make_layers()\n"
        "for _ in range(10):\n"
        "    list(readings.save_steps(KEY, layers, read_seconds=1))\n"
        "    reading = readings.load(KEY)\n"
        "    assert reading is not None\n"
        "    assert_same(reading, layers)\n"
    )
    root = Path(__file__).parents[2]
    children = [subprocess.Popen([sys.executable, "-c", program, str(readings.folder)], cwd=root,
                                 env={**os.environ, "PYTHONPATH": str(root)}) for _ in range(2)]
    assert [child.wait(120) for child in children] == [0, 0]
    assert len(readings.list()) == 1


def test_fingerprint_sees_names_and_contents(tmp_path: Path) -> None:
    a, b = tmp_path / "a", tmp_path / "b"
    a.write_bytes(b"12")
    b.write_bytes(b"3")
    first = fingerprint_files([a, b])
    assert first == fingerprint_files([b, a])
    b.write_bytes(b"4")
    assert fingerprint_files([a, b]) != first
