"""The header of a GGUF file, version 2 or 3, one file or split: read strictly, because files come from anywhere.

Every count is checked against the bytes that are there before anything is made of it, and every tensor must lie whole
within its file, so that nothing is read outside it later. Tensors stay on disk (mapped) until they are asked for.
Layout: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md
"""

from __future__ import annotations

import hashlib
import math
import mmap
import re
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from ..errors import DamagedWeightsError, ModelNotFoundError, UnsupportedModelError
from .types import BY_NUMBER, SUPPORTED, BlockType, type_name

MAGIC = b"GGUF"
_AGAIN = "Fetch the file again."
_VERSIONS = (2, 3)
_LONGEST_HEADER = 256 * 2**20  # bytes; the largest vocabularies with their merges take about 20 MB
_SHORTEST = 24  # bytes: magic, version and two counts
_LONGEST_NAME = 65_535  # bytes of a key
_MOST_PARTS = 1024
_MOST_AXES = 4
_STRING, _ARRAY, _BOOL = 8, 9, 7
_NUMBERS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", _BOOL: "?", 10: "Q", 11: "q", 12: "d"}
_PART = re.compile(r"(.+)-(\d{5})-of-(\d{5})\.gguf\Z")
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class StoredTensor:
    """The place of a tensor. shape: as PyTorch writes it, rows first. offset: bytes from the start of its file."""

    name: str
    kind: BlockType
    shape: tuple[int, ...]
    path: Path
    offset: int
    nbytes: int


class GGUFFile:
    """A whole model: metadata of its first part, tensors of all."""

    def __init__(self, path: Path) -> None:
        """path: any part. Raises ModelNotFoundError, DamagedWeightsError, UnsupportedModelError."""
        self.parts = parts_of(path)
        self.path = self.parts[0]
        self.tensors: dict[str, StoredTensor] = {}
        self.metadata: dict[str, Any] = {}
        digest = hashlib.sha256()
        for number, part in enumerate(self.parts):
            header = _Header(part)
            _check_split(header, number, len(self.parts))
            digest.update(header.digest)
            self.metadata = self.metadata or header.metadata
            for tensor in header.tensors:
                if tensor.name in self.tensors:
                    raise DamagedWeightsError(f"{part.name}: {tensor.name} is there twice", remedy=_AGAIN)
                self.tensors[tensor.name] = tensor
        self.header_digest = digest.hexdigest()
        told = self.metadata.get("split.tensors.count", len(self.tensors))
        if told != len(self.tensors):
            raise DamagedWeightsError(f"{self.path.name} promises {told} tensors in {len(self.parts)} parts, "
                                      f"which hold {len(self.tensors)}", remedy=_AGAIN)

    def get(self, key: str, kind: type[T], default: T) -> T:
        """A value of the metadata. Raises DamagedWeightsError where it has another type. Whole numbers are floats too;
        booleans are no numbers."""
        value = self.metadata.get(key)
        if value is None:
            return default
        if kind is float and isinstance(value, int) and not isinstance(value, bool):
            value = float(value)
        if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
            raise DamagedWeightsError(f"{self.path.name}: {key} is {type(value).__name__}", allowed=kind.__name__)
        return value

    def raw(self, tensor: StoredTensor, first_row: int = 0, rows: int | None = None) -> np.ndarray:
        """uint8 [rows, bytes of a row], a view of the mapped file: copy it before it is written to.
        Of a tensor with one axis: one row."""
        width = tensor.nbytes // self.rows(tensor)
        count = self.rows(tensor) - first_row if rows is None else rows
        assert 0 <= first_row and first_row + count <= self.rows(tensor), (tensor.name, first_row, count)
        start = tensor.offset + first_row * width
        return np.frombuffer(self._mapped[tensor.path], np.uint8, count * width, start).reshape(count, width)

    @staticmethod
    def rows(tensor: StoredTensor) -> int:
        return tensor.shape[0] if len(tensor.shape) > 1 else 1

    @cached_property
    def _mapped(self) -> dict[Path, mmap.mmap]:
        return {part: _map(part) for part in self.parts}

    @property
    def kinds(self) -> list[str]:
        """Names of the number types, the one with the most weights first; norms do not count."""
        sizes: dict[str, int] = {}
        for tensor in self.tensors.values():
            if len(tensor.shape) > 1:
                sizes[tensor.kind.name] = sizes.get(tensor.kind.name, 0) + math.prod(tensor.shape)
        return sorted(sizes, key=lambda name: -sizes[name])


def is_gguf(path: Path) -> bool:
    """Return whether a file begins as one (Ollama's have no suffix)."""
    try:
        with path.open("rb") as file:
            return file.read(4) == MAGIC
    except OSError:
        return False


def open_gguf(path: Path) -> GGUFFile:
    """The file, read again only if one of its parts has changed. Raises what ``GGUFFile`` raises."""
    try:
        facts = [part.stat() for part in parts_of(path)]
    except OSError as error:
        raise ModelNotFoundError(f"{path} cannot be read: {error.strerror}") from error
    return _opened(path, tuple((fact.st_size, fact.st_mtime_ns, fact.st_ino) for fact in facts))


@lru_cache(maxsize=2)
def _opened(path: Path, facts: tuple[tuple[int, int, int], ...]) -> GGUFFile:
    return GGUFFile(path)


class _Header:
    """One file's metadata and table of tensors."""

    def __init__(self, path: Path) -> None:
        self.path, self._at = path, 0
        self._size = path.stat().st_size
        if self._size < _SHORTEST:
            raise self._damage(f"it has {self._size} bytes")
        self._bytes = _map(path, min(self._size, _LONGEST_HEADER))
        self._open()
        tensors, values = self._count("tensors", 24), self._count("values", 13)
        self.metadata: dict[str, Any] = {}
        for _ in range(values):
            key = self._string(_LONGEST_NAME)
            if key in self.metadata:
                raise self._damage(f"{_shown(key)} is there twice")
            self.metadata[key] = self._value(key)
        self.tensors = self._table(tensors)
        self.digest = hashlib.sha256(self._bytes[: self._at]).digest()
        del self._bytes

    def _open(self) -> None:
        if self._bytes[:4] != MAGIC:
            raise self._damage("it does not begin with GGUF")
        self._at = 4
        version = self._number("I")
        if version not in _VERSIONS:
            swapped = int.from_bytes(version.to_bytes(4, "little"), "big") in _VERSIONS
            what = "big-endian" if swapped else f"version {version}"
            raise UnsupportedModelError(f"{self.path.name} is a GGUF file of {what}",
                                        allowed="version 2 or 3, little-endian",
                                        remedy="Take a newer file of the same model.")

    def _damage(self, what: str) -> DamagedWeightsError:
        return DamagedWeightsError(f"{self.path.name} is damaged or incomplete: {what}", remedy=_AGAIN)

    def _take(self, nbytes: int) -> int:
        """Return where the next bytes begin, after a check that they are there."""
        at = self._at
        if nbytes > len(self._bytes) - at:
            what = "it ends within its header" if len(self._bytes) == self._size else "its header is over 256 MiB"
            raise self._damage(what)
        self._at = at + nbytes
        return at

    def _number(self, form: str) -> Any:
        form = "<" + form
        return struct.unpack_from(form, self._bytes, self._take(struct.calcsize(form)))[0]

    def _count(self, what: str, least: int) -> int:
        """Read how many things follow, each of at least so many bytes."""
        count = self._number("Q")
        if count > (len(self._bytes) - self._at) // least + 1:
            raise self._damage(f"it promises {count:,} {what}, for which it is too short")
        return int(count)

    def _string(self, longest: int | None = None) -> str:
        size = self._number("Q")
        if longest is not None and size > longest:
            raise self._damage(f"a name of {size:,} bytes")
        at = self._take(size)
        try:
            return self._bytes[at : at + size].decode("utf-8")
        except UnicodeDecodeError:  # merges of old files split characters
            return self._bytes[at : at + size].decode("utf-8", "surrogateescape")

    def _value(self, key: str) -> Any:
        kind = self._number("I")
        if kind == _ARRAY:
            return self._array(key)
        return self._scalar(key, kind)

    def _scalar(self, key: str, kind: int) -> Any:
        if kind == _STRING:
            return self._string()
        if kind not in _NUMBERS:
            raise self._damage(f"{_shown(key)} has type {kind}, which does not exist")
        return self._number(_NUMBERS[kind])

    def _array(self, key: str) -> list[Any]:
        kind = self._number("I")
        if kind == _STRING:
            return self._strings(self._count("strings", 8))
        if kind not in _NUMBERS:
            raise self._damage(f"{_shown(key)} is a list of type {kind}, which is not known")
        form = np.dtype("bool" if kind == _BOOL else "<" + {"q": "i8", "Q": "u8", "d": "f8", "f": "f4"}.get(
            _NUMBERS[kind], _NUMBERS[kind]))
        count = self._count("numbers", form.itemsize)
        at = self._take(count * form.itemsize)
        found: list[Any] = np.frombuffer(self._bytes, form, count, at).tolist()
        return found

    def _strings(self, count: int) -> list[str]:
        """Hundreds of thousands: in one loop."""
        data, at, found, length = self._bytes, self._at, [], struct.Struct("<Q").unpack_from
        for _ in range(count):
            if at + 8 > len(data):
                raise self._damage("it ends within a list")
            (size,) = length(data, at)
            end = at + 8 + size
            if end > len(data):
                raise self._damage("it ends within a list")
            found.append(data[at + 8 : end].decode("utf-8", "surrogateescape"))
            at = end
        self._at = at
        return found

    def _table(self, count: int) -> list[StoredTensor]:
        entries = [self._entry() for _ in range(count)]
        step = self.metadata.get("general.alignment", 32)
        if not isinstance(step, int) or isinstance(step, bool) or step < 1 or step & (step - 1) or step > 2**20:
            raise self._damage(f"its alignment is {_shown(step)}")
        start = -(-self._at // step) * step
        found, ends = [], 0
        for name, kind, shape, offset, nbytes in sorted(entries, key=lambda entry: entry[3]):
            if offset % step or offset < ends:
                raise self._damage(f"{name} begins at byte {offset:,}, within another tensor or unaligned")
            if start + offset + nbytes > self._size:
                raise self._damage(f"{name} ends at byte {start + offset + nbytes:,} of {self._size:,}")
            ends = offset + nbytes
            found.append(StoredTensor(name, kind, shape, self.path, start + offset, nbytes))
        return found

    def _entry(self) -> tuple[str, BlockType, tuple[int, ...], int, int]:
        name = _shown(self._string(_LONGEST_NAME))
        axes = self._number("I")
        if not 1 <= axes <= _MOST_AXES:
            raise self._damage(f"{name} has {axes} axes")
        sizes = [self._number("Q") for _ in range(axes)]  # the fastest first
        number, offset = self._number("I"), self._number("Q")
        kind = BY_NUMBER.get(number)
        if kind is None:
            raise UnsupportedModelError(f"{self.path.name}: {name} has the unsupported type {type_name(number)}",
                                        allowed=SUPPORTED, remedy="Take a file of the same model in one of them.")
        if min(sizes) < 1 or max(sizes) > 2**40 or sizes[0] % kind.weights:
            raise self._damage(f"{name} has shape {sizes[::-1]} in {kind.name}")
        count = 1
        for size in sizes:
            count *= size
        return name, kind, tuple(reversed(sizes)), offset, count // kind.weights * kind.nbytes


def parts_of(path: Path) -> Sequence[Path]:
    """All files of a split model, in order; the file itself where it is whole.

    Raises DamagedWeightsError: one is missing."""
    named = _PART.match(path.name)
    if named is None:
        return [path]
    stem, _, total = named.groups()
    if not 1 <= int(total) <= _MOST_PARTS:
        raise DamagedWeightsError(f"{path.name} names {int(total)} parts", allowed=f"1 to {_MOST_PARTS}")
    parts = [path.with_name(f"{stem}-{number:05}-of-{total}.gguf") for number in range(1, int(total) + 1)]
    missing = [part for part in parts if not part.is_file()]
    if missing:
        raise DamagedWeightsError(f"{path.name} is split, and {missing[0].name} is not beside it",
                                  remedy="Put all parts into one folder.")
    return parts


def _check_split(header: _Header, number: int, count: int) -> None:
    told = header.metadata.get("split.count", 1) or 1, header.metadata.get("split.no", 0)
    if told != (count, number):
        raise DamagedWeightsError(
            f"{header.path.name} is part {_shown(told[1])} (counted from 0) of {_shown(told[0])} by its own words, and "
            f"{number} of {count} by its name", remedy="Give the parts the names that they were published with.")


def _map(path: Path, nbytes: int = 0) -> mmap.mmap:
    """The first bytes of a file, or all."""
    try:
        with path.open("rb") as file:
            return mmap.mmap(file.fileno(), nbytes, access=mmap.ACCESS_READ)
    except OSError as error:
        raise ModelNotFoundError(f"{path} cannot be read: {error.strerror}") from error


def _shown(value: object) -> str:
    """Return as much of a file's own words as fits into a line."""
    text = "".join(letter if letter.isprintable() else "?" for letter in str(value))
    return text if len(text) <= 80 else text[:77] + "..."
