"""Files that are cut off, mixed up or meant to harm: one clear line each, nothing read outside the file."""

from __future__ import annotations

import json
import os
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from gguf import GGUFValueType
from safetensors.torch import save_file

from tests.gguf_files import add_tensors
from tests.model.tiny import tiny_config, tiny_tensors
from training.gguf_export import finish, writer
from triforce_core.errors import ModelError
from triforce_core.gguf import open_gguf
from triforce_core.model import load_model
from triforce_core.tokenizer import Tokenizer

U32, F32, STRING, ARRAY = (GGUFValueType[name] for name in ("UINT32", "FLOAT32", "STRING", "ARRAY"))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("tiny")
    (made / "config.json").write_text(json.dumps(tiny_config()))
    save_file(tiny_tensors(tiny_config()), str(made / "model.safetensors"))
    return made


def written(folder: Path, path: Path, changes: dict[str, tuple[Any, GGUFValueType]] | None = None,
            **options: Any) -> Path:
    raw = json.loads((folder / "config.json").read_text())
    out = writer(path, raw, **options)
    for key, (value, kind) in (changes or {}).items():
        out.kv_data[0].pop(key, None)
        if value is not None:
            out.add_key_value(key, value, kind, U32 if kind == ARRAY else None)
    add_tensors(out, raw, folder, "F32")
    finish(out)
    return path


def refused(path: Path, word: str = "") -> None:
    with pytest.raises(ModelError) as caught:
        load_model(path)
    said = str(caught.value)
    assert "\n" not in said and len(said) < 600 and said.isprintable() and word in said, said


@pytest.mark.parametrize("share", [0.0, 0.001, 0.002, 0.005, 0.01, 0.02, 0.03, 0.04, 0.05, 0.1, 0.5, 0.99, 0.9999])
def test_cut_off(folder: Path, share: float, tmp_path: Path) -> None:
    path = written(folder, tmp_path / "model.gguf")
    os.truncate(path, int(path.stat().st_size * share))
    refused(path)


def numbers(form: str, *values: int) -> bytes:
    return struct.pack("<" + form, *values)


def head(tensors: int = 0, values: int = 0, version: int = 3) -> bytes:
    return b"GGUF" + numbers("IQQ", version, tensors, values)


def text(words: bytes) -> bytes:
    return numbers("Q", len(words)) + words


def entry(name: bytes = b"x", sizes: tuple[int, ...] = (32,), kind: int = 0, offset: int = 0) -> bytes:
    return text(name) + numbers("I", len(sizes)) + numbers("Q" * len(sizes), *sizes) + numbers("IQ", kind, offset)


BYTES: dict[str, tuple[bytes, str]] = {
    "version 1": (head(version=1), "version 1"),
    "version 4": (head(version=4), "version 4"),
    "big-endian": (b"GGUF" + struct.pack(">IQQ", 3, 0, 0), "big-endian"),
    "endless tensors": (head(tensors=2**63), "tensors"),
    "many tensors": (head(tensors=10**6), "tensors"),
    "endless values": (head(values=2**64 - 1), "values"),
    "endless key": (head(values=1) + numbers("Q", 2**62) + b"x" * 64, "bytes"),
    "long key": (head(values=1) + numbers("Q", 70_000) + b"x" * 70_100, "70,000"),
    "endless string": (head(values=1) + text(b"k") + numbers("IQ", 8, 2**63) + b"x" * 64, "ends within"),
    "endless list": (head(values=1) + text(b"k") + numbers("IIQ", 9, 4, 2**61) + b"x" * 64, "numbers"),
    "list longer than the file": (head(values=1) + text(b"k") + numbers("IIQ", 9, 10, 64) + b"x" * 64, "numbers"),
    "endless list of strings": (head(values=1) + text(b"k") + numbers("IIQ", 9, 8, 2**60) + b"x" * 64, "strings"),
    "string in a list too long": (head(values=1) + text(b"k") + numbers("IIQQ", 9, 8, 1, 2**40) + b"x" * 64, "list"),
    "list within a list": (head(values=1) + text(b"k") + numbers("IIQ", 9, 9, 1) + b"x" * 64, "list of type 9"),
    "type that does not exist": (head(values=1) + text(b"k") + numbers("IQ", 77, 0) + b"x" * 64, "type 77"),
    "list of no type": (head(values=1) + text(b"k") + numbers("IIQ", 9, 99, 1) + b"x" * 64, "list of type 99"),
    "a key twice": (head(values=2) + (text(b"k") + numbers("II", 4, 1)) * 2 + b"x" * 64, "twice"),
    "no axes": (head(tensors=1) + entry(sizes=()) + b"x" * 256, "axes"),
    "five axes": (head(tensors=1) + entry(sizes=(2,) * 5) + b"x" * 256, "5 axes"),
    "an axis of none": (head(tensors=1) + entry(sizes=(0, 4)) + b"x" * 256, "shape"),
    "shape beyond numbers": (head(tensors=1) + entry(sizes=(2**33, 2**33, 2**33)) + b"x" * 256, "ends at byte"),
    "axis beyond numbers": (head(tensors=1) + entry(sizes=(2**63,)) + b"x" * 256, "shape"),
    "half a block": (head(tensors=1) + entry(sizes=(33,), kind=8) + b"x" * 256, "Q8_0"),
    "offset outside": (head(tensors=1) + entry(offset=2**40) + b"x" * 256, "ends at byte"),
    "offset wraps": (head(tensors=1) + entry(offset=2**64 - 32) + b"x" * 256, "ends at byte"),
    "unaligned": (head(tensors=1) + entry(offset=8) + b"x" * 512, "unaligned"),
    "overlap": (head(tensors=2) + entry(b"a") + entry(b"b", offset=32) + b"x" * 512, "within another"),
    "a tensor twice": (head(tensors=2) + entry(b"a") + entry(b"a", offset=128) + b"x" * 512, "twice"),
    "type IQ2_XXS": (head(tensors=1) + entry(sizes=(256,), kind=16) + b"x" * 512, "IQ2_XXS"),
    "type removed": (head(tensors=1) + entry(kind=4) + b"x" * 512, "number 4"),
    "alignment of none": (head(tensors=1, values=1) + text(b"general.alignment") + numbers("II", 4, 0) + entry()
                          + b"x" * 512, "alignment"),
    "alignment of three": (head(tensors=1, values=1) + text(b"general.alignment") + numbers("II", 4, 3) + entry()
                           + b"x" * 512, "alignment"),
    "alignment in words": (head(tensors=1, values=1) + text(b"general.alignment") + numbers("I", 8) + text(b"many")
                           + entry() + b"x" * 512, "alignment"),
    "unprintable name": (head(tensors=1) + entry(b"\x1b[2J\n\xff", offset=8) + b"x" * 512, "?[2J?"),
    "no architecture": (head(tensors=1) + entry() + b"x" * 512, "architecture"),
    "empty": (b"", "it has 0 bytes"),
    "another magic": (b"GGML" + b"\0" * 64, "it does not begin with GGUF"),
}


@pytest.mark.parametrize("name", BYTES)
def test_made_up_bytes(name: str, tmp_path: Path) -> None:
    data, word = BYTES[name]
    (tmp_path / "model.gguf").write_bytes(data)
    refused(tmp_path / "model.gguf", word)


CHANGES: dict[str, tuple[dict[str, tuple[Any, GGUFValueType]], str]] = {
    "more layers": ({"llama.block_count": (9, U32)}, "blk.2"),
    "fewer layers": ({"llama.block_count": (1, U32)}, "does not call for"),
    "no layers": ({"llama.block_count": (0, U32)}, "block_count is 0"),
    "layers in words": ({"llama.block_count": ("two", STRING)}, "block_count is two"),
    "endless layers": ({"llama.block_count": (2**32 - 1, U32)}, "block_count"),
    "no width": ({"llama.embedding_length": (None, U32)}, "embedding_length is None"),
    "another width": ({"llama.embedding_length": (64, U32)}, "token_embd.weight"),
    "more heads": ({"llama.attention.head_count": (3, U32)}, "multiple"),
    "no heads": ({"llama.attention.head_count": (0, U32)}, "head_count is 0"),
    "another MLP": ({"llama.feed_forward_length": (64, U32)}, "shape"),
    "norm below zero": ({"llama.attention.layer_norm_rms_epsilon": (-1.0, F32)}, "rms_norm_eps"),
    "rope below zero": ({"llama.rope.freq_base": (-5.0, F32)}, "rope_theta"),
    "rope of no kind": ({"llama.rope.scaling.type": ("spiral", STRING)}, "spiral"),
    "part of a split": ({"split.count": (3, GGUFValueType.UINT16)}, "part"),
    "tensors promised": ({"split.tensors.count": (999, GGUFValueType.INT32)}, "promises 999"),
}


@pytest.mark.parametrize("name", CHANGES)
def test_mixed_up(folder: Path, name: str, tmp_path: Path) -> None:
    changes, word = CHANGES[name]
    refused(written(folder, tmp_path / "model.gguf", changes), word)


def _swap(parts: list[Path]) -> None:
    first, second = parts[1].read_bytes(), parts[2].read_bytes()
    parts[1].write_bytes(second)
    parts[2].write_bytes(first)


def _loop(parts: list[Path]) -> None:
    parts[1].unlink()
    parts[1].symlink_to(parts[0])


def _to_itself(parts: list[Path]) -> None:
    parts[1].unlink()
    parts[1].symlink_to(parts[1])


def _same_again(parts: list[Path]) -> None:
    parts[1].write_bytes(parts[0].read_bytes())


def _folder_instead(parts: list[Path]) -> None:
    parts[1].unlink()
    parts[1].mkdir()


@pytest.mark.parametrize("harm", [_swap, _loop, _to_itself, _same_again, _folder_instead])
def test_split_files_in_disorder(folder: Path, harm: Callable[[list[Path]], None], tmp_path: Path) -> None:
    written(folder, tmp_path / "model.gguf", split_max_tensors=4)
    parts = sorted(tmp_path.glob("*.gguf"))
    harm(parts)
    refused(parts[0])


@pytest.mark.parametrize("count", ["00000", "99999"])
def test_split_names_that_promise_too_much(folder: Path, count: str, tmp_path: Path) -> None:
    path = written(folder, tmp_path / "model.gguf")
    refused(path.rename(tmp_path / f"model-00001-of-{count}.gguf"), "parts")


def vocabulary(**changes: Any) -> dict[str, tuple[Any, GGUFValueType]]:
    given = {"model": "llama", "tokens": ["<unk>", "<s>", "</s>", "a", "b", "▁"], "scores": [0.0] * 6,
             "token_type": [2, 3, 3, 1, 1, 1], "bos_token_id": 1, "eos_token_id": 2, "unknown_token_id": 0, **changes}
    kinds = {str: STRING, list: ARRAY, int: U32}
    return {f"tokenizer.ggml.{name}": (value, kinds[type(value)]) for name, value in given.items()
            if value is not None}


@pytest.mark.parametrize(("changes", "word"), [
    ({"model": None}, "kind 'none'"), ({"model": "rwkv"}, "rwkv"), ({"tokens": None}, "tokens"),
    ({"tokens": [1, 2]}, "str only"), ({"scores": [0.0]}, "scores"), ({"scores": None}, "scores"),
    ({"token_type": [1]}, "types"), ({"token_type": [9] * 6}, "type 9"),
    ({"tokens": ["a"] * 6}, "sentencepiece"), ({"tokens": [""] * 6}, "sentencepiece"),
    ({"eos_token_id": "x"}, "eos_token_id"),
    ({"model": "gpt2"}, "merges"), ({"model": "gpt2", "pre": "new-kind"}, "new-kind"),
    ({"model": "gpt2", "pre": "gpt-2"}, "merges"), ({"model": "gpt2", "pre": "gpt-2", "merges": ["ab"]}, "merge"),
    ({"model": "gpt2", "pre": "gpt-2", "merges": ["q z"]}, "cannot be used"),
])
def test_vocabularies_that_cannot_be(folder: Path, changes: dict[str, Any], word: str, tmp_path: Path) -> None:
    raw = json.loads((folder / "config.json").read_text())
    out = writer(tmp_path / "model.gguf", raw)
    for key, (value, kind) in vocabulary(**changes).items():
        if kind == ARRAY:
            out.add_array(key, value)
        else:
            out.add_key_value(key, value, kind)
    add_tensors(out, raw, folder, "F32")
    finish(out)
    with pytest.raises(ModelError) as caught:
        Tokenizer(tmp_path / "model.gguf").stop_token_ids  # noqa: B018
    assert "\n" not in str(caught.value) and word in str(caught.value)


def test_chance_never_crashes(folder: Path, tmp_path: Path) -> None:
    """300 files with a few bytes changed at random: loaded, or refused in one line."""
    data, path = written(folder, tmp_path / "model.gguf").read_bytes(), tmp_path / "changed.gguf"
    header = open_gguf(tmp_path / "model.gguf")
    first = min(tensor.offset for tensor in header.tensors.values())
    chance = np.random.default_rng(0)
    for _ in range(300):
        changed = bytearray(data)
        for at in chance.integers(4, first, chance.integers(1, 5)):
            changed[at] = chance.integers(0, 256)
        path.unlink(missing_ok=True)
        path.write_bytes(changed)
        try:
            load_model(path, dtype=torch.float32)
        except ModelError as error:
            assert "\n" not in str(error) and str(error).isprintable()
