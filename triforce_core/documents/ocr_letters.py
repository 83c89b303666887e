"""The last layer of the network that reads lines: it weighs all characters for each strip of a line.

onnxruntime takes a fifth of a page's time for it, most of that for scores which nobody asks for. Here the network ends
before it; only the best character of a strip is looked for, and how sure it is."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np

_LAST = ("MatMul", "Add", "Softmax")  # what the layer consists of, but for nodes that change nothing
_BLANK = 0  # no character: asked for by nobody
_GRAPH, _NODE, _WEIGHTS, _RESULT = 7, 1, 5, 12  # numbers of fields in the ONNX format
_TAKES, _GIVES, _KIND, _DATA, _NAME = 1, 2, 4, 9, 8
_GROUP = 2  # of fields: bytes after their length; a number or so many bytes otherwise
_FIXED = {1: 8, 5: 4}


@dataclass(frozen=True)
class Best:
    """The best character of each strip, and its probability; asked as the library asks an array of all."""

    characters: np.ndarray
    certain: np.ndarray

    def argmax(self, axis: int) -> np.ndarray:
        return self.characters

    def max(self, axis: int) -> np.ndarray:
        return self.certain


class UnknownLayerError(ValueError):
    """The network ends in another layer than this one."""


class Reader:
    """The network in place of the library's. model: the ONNX file; start: makes a session of one. Raises
    UnknownLayerError."""

    def __init__(self, model: bytes, start: Callable[[bytes], Any]) -> None:
        import numpy as np

        graph = b"".join(part for number, part, _ in _fields(model) if number == _GRAPH)
        nodes = [(_named(node, _TAKES), _named(node, _GIVES), _named(node, _KIND)[0])
                 for number, node, _ in _fields(graph) if number == _NODE]
        first = max((at for at, (_, _, kind) in enumerate(nodes) if kind == _LAST[0]), default=len(nodes))
        if tuple(kind for _, _, kind in nodes[first:] if kind != "Identity") != _LAST:
            raise UnknownLayerError
        features, *names = nodes[first][0] + [name for taken, _, kind in nodes[first:] if kind == "Add"
                                              for name in taken[1:]]
        last = {gives[0] for _, gives, _ in nodes[first:]}
        body, weights = [], {}
        for number, part, whole in _fields(graph):
            if number == _WEIGHTS and (name := _named(part, _NAME)[0]) in names:
                [data] = [data for field, data, _ in _fields(part) if field == _DATA]
                weights[name] = np.frombuffer(data, "<f4")
            elif number != _RESULT and not (number == _NODE and _named(part, _GIVES)[0] in last):
                body.append(whole)
        body.append(_field(_RESULT, _field(1, features.encode())))
        rest = b"".join(whole for number, _, whole in _fields(model) if number != _GRAPH)
        self._session = start(rest + _field(_GRAPH, b"".join(body)))
        bias = weights[names[1]]
        self._weights = np.vstack([weights[names[0]].reshape(-1, len(bias)), bias])
        self._input = self._session.get_inputs()[0].name

    def __call__(self, pictures: np.ndarray) -> Best:
        """Return what each picture of a line shows, strip by strip."""
        import numpy as np

        [features] = self._session.run(None, {self._input: pictures})
        shape, one = features.shape[:2], np.ones((*features.shape[:2], 1), np.float32)  # the bias is a weight of 1
        scores = np.concatenate([features, one], axis=2).reshape(-1, len(self._weights)) @ self._weights
        characters = scores.argmax(axis=1)
        certain = np.zeros(len(characters), np.float32)
        for at in np.flatnonzero((characters != _BLANK) & np.append(True, np.diff(characters) != 0)):  # others are one
            certain[at] = 1 / np.exp(scores[at] - scores[at, characters[at]]).sum()
        return Best(characters.reshape(shape), certain.reshape(shape))


def _fields(message: bytes) -> Iterator[tuple[int, bytes, bytes]]:
    """Yield the fields of a message of protobuf: the number, what it holds, and the whole field."""
    at = 0
    while at < len(message):
        start = at
        key, at = _number(message, at)
        value, end = _number(message, at) if key & 7 in (0, _GROUP) else (0, at + _FIXED[key & 7])
        if key & 7 == _GROUP:
            at, end = end, end + value
        yield key >> 3, message[at:end], message[start:end]
        at = end


def _number(message: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        value |= (message[at] & 127) << shift
        shift, at = shift + 7, at + 1
        if message[at - 1] < 128:
            return value, at


def _named(message: bytes, number: int) -> list[str]:
    return [part.decode() for field, part, _ in _fields(message) if field == number]


def _field(number: int, content: bytes) -> bytes:
    length, size = b"", len(content)
    while size > 127:
        length, size = length + bytes([size & 127 | 128]), size >> 7
    return bytes([number << 3 | _GROUP]) + length + bytes([size]) + content
