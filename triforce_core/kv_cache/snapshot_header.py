"""The header of a saved reading: written, and checked in every part before anything in it is used.

    MAGIC | header length (u64) | header CRC (u32) | header JSON | padding | tensors, each at a multiple of 64

A checksum finds what a disk did to the bytes, not what another program, or a fault of this one, wrote there. Knows no
key, no folder and no cache: which tokens a reading holds, and where it belongs, is ``snapshot``'s affair.
"""

from __future__ import annotations

import json
import math
import os
import struct
import zlib
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, BinaryIO

if TYPE_CHECKING:
    from torch import Tensor

FORMAT = 1
_MAGIC = b"TriForceKV\x00\x01"
_FRONT = struct.Struct("<12sQI")
_ALIGN = 64
_ITEM_BYTES = {"float32": 4, "bfloat16": 2, "float16": 2, "int64": 8, "int32": 4, "int16": 2, "int8": 1, "uint8": 1}
_LONGEST = 64 * 1024**2  # bytes: a header names each layer and each chunk of the prefill, some 300 bytes in all
_KEY_WORDS = ("document", "tokens", "model", "tokenizer", "dtype", "prompt_version")


class DamagedSnapshot(Exception):
    """Say what is wrong with a saved reading. It can never be used: remove it and read the document."""


def tensor_names(layers: int) -> list[str]:
    """Return the names of all tensors in their order in the file: keys, then values, layer by layer."""
    return [f"{layer}.{part}" for layer in range(layers) for part in "kv"]


def plan(tensors: Mapping[str, Tensor]) -> list[dict[str, Any]]:
    """Return the entry of each tensor, still without its place and its checksum."""
    entries: list[dict[str, Any]] = []
    for name, tensor in tensors.items():
        dtype = str(tensor.dtype).removeprefix("torch.")
        assert dtype in _ITEM_BYTES, f"{name} is {dtype}"
        entries.append({"name": name, "dtype": dtype, "shape": list(tensor.shape), "offset": 0,
                        "bytes": tensor.numel() * tensor.element_size(), "crc32": "0" * 8})
    return entries


def place(header: dict[str, Any]) -> int:
    """Give every tensor its offset (numbers change the header's own length: room is left). Returns the file's size."""
    offset = _FRONT.size + len(json.dumps(header)) + 64 + 20 * len(header["tensors"])
    for entry in header["tensors"]:
        offset = -(-offset // _ALIGN) * _ALIGN
        entry["offset"] = offset
        offset += entry["bytes"]
    header["size"] = offset
    return offset


def encode(header: dict[str, Any]) -> bytes:
    """Return the bytes with which the file begins."""
    text = json.dumps(header).encode()
    return _FRONT.pack(_MAGIC, len(text), zlib.crc32(text)) + text


def read_header(file: BinaryIO) -> dict[str, Any] | None:
    """Return the checked header, or None where the file is not of this format: another version's, or no reading at
    all. Raises DamagedSnapshot, OSError."""
    front = file.read(_FRONT.size)
    size = os.fstat(file.fileno()).st_size
    if front[: len(_MAGIC)] != _MAGIC:
        return None
    if len(front) < _FRONT.size:
        raise DamagedSnapshot("it ends within its header")
    _, length, crc = _FRONT.unpack(front)
    text = file.read(length) if length <= min(size, _LONGEST) else b""
    if len(text) != length or zlib.crc32(text) != crc:
        raise DamagedSnapshot("checksum of the header")
    try:
        header = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise DamagedSnapshot("its header is not JSON") from error
    _require(isinstance(header, dict), "its header is no object")
    if "format" in header and _count(header["format"]) and header["format"] != FORMAT:
        return None
    _check(header, size, _FRONT.size + length)
    return header


def _check(header: dict[str, Any], size: int, first: int) -> None:
    """first: the place behind the header."""
    header.setdefault("prefixes", [])  # readings of older versions have none
    header.setdefault("unfinished", False)
    for name, is_sound in _SOUND.items():
        _require(is_sound(header.get(name)), name)
    _require(header.get("size") == size, "size")
    entries: Any = header.get("tensors")
    _require(_list_of(entries, dict) and len(entries) == 2 * header["layers"], "tensors")
    for name, entry in zip(tensor_names(header["layers"]), entries, strict=True):
        _check_tensor(entry, name, header["tokens"], first, size)
        first = entry["offset"] + entry["bytes"]


def _check_tensor(entry: dict[str, Any], name: str, tokens: int, first: int, size: int) -> None:
    """first: the place before which it must not begin."""
    _require(entry.get("name") == name, f"name of {name}")
    dtype: Any = entry.get("dtype")
    shape: Any = entry.get("shape")
    crc = entry.get("crc32")
    _require(isinstance(dtype, str) and dtype in _ITEM_BYTES, f"dtype of {name}")
    _require(_list_of(shape, int) and len(shape) == 3 and all(map(_count, shape)) and shape[1] <= tokens,
             f"shape of {name}")
    _require(max(shape) <= size and _count(entry.get("bytes"))
             and entry["bytes"] == math.prod(shape) * _ITEM_BYTES[dtype], f"bytes of {name}")
    _require(_count(entry.get("offset")) and entry["offset"] % _ALIGN == 0 and entry["offset"] >= first
             and entry["offset"] + entry["bytes"] <= size, f"offset of {name}")
    _require(isinstance(crc, str) and len(crc) == 8 and set(crc) <= set("0123456789abcdef"), f"crc32 of {name}")


def _require(sound: bool, what: str) -> None:
    if not sound:
        raise DamagedSnapshot(what)


def _count(value: Any) -> bool:
    return type(value) is int and value >= 0  # True is an int, too


def _seconds(value: Any) -> bool:
    return type(value) in (int, float) and 0 <= value < math.inf


def _list_of(value: Any, kind: type) -> bool:
    return isinstance(value, list) and all(isinstance(each, kind) for each in value)


def _is_key(key: Any) -> bool:
    return (isinstance(key, dict) and key.keys() == {*_KEY_WORDS, "settings"} and _list_of(key["settings"], list)
            and all(isinstance(key[word], str) for word in _KEY_WORDS)
            and all(len(pair) == 2 and _list_of(pair, str) for pair in key["settings"]))


_SOUND: dict[str, Callable[[Any], bool]] = {
    "format": lambda value: bool(value == FORMAT), "key": _is_key, "title": lambda value: isinstance(value, str),
    "layers": _count, "tokens": _count, "read_seconds": _seconds, "prefixes": lambda value: _list_of(value, str),
    "unfinished": lambda value: isinstance(value, bool)}
