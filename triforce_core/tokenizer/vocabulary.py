"""The two kinds of tokenizer files behind one contract: sentencepiece models and Hugging Face tokenizers.

``tokenizer.Tokenizer`` is the door; nothing else imports this file.
"""

from __future__ import annotations

import json
import re
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from ..errors import ModelNotFoundError, UnsupportedModelError
from .chat_template import ChatTemplate

UNKNOWN = "\ufffd".encode()
BYTE_PIECE = re.compile(r"<0x([0-9A-Fa-f]{2})>\Z")


class Vocabulary(ABC):
    """One kind of tokenizer files. ``special`` ids may only come from templates; ``hidden`` ids have no text."""

    size: int
    special: frozenset[int]
    hidden: frozenset[int]
    eos: int | None
    bos: int | None
    strips_first_space: bool
    ends: frozenset[int] = frozenset()  # tokens beside ``eos`` that end an answer, where the vocabulary itself says so

    def bare(self, texts: Sequence[str]) -> list[list[int]]:
        """Ids of each text without the space that some kinds put in front: a newline takes it, and is cut off again."""
        lead = self._lead
        if not lead:
            return self.raw(texts)
        rows = zip(texts, self.raw(["\n" + text for text in texts]), strict=True)
        return [row[len(lead) :] if row[: len(lead)] == lead else self._unprefixed(text) for text, row in rows]

    @cached_property
    def _lead(self) -> list[int]:
        """Return what a newline in front comes to, for kinds that add a prefix space; [] for those that add none."""
        first = self.raw(["a"])[0]
        return self.raw(["\n"])[0] if first and self.piece(first[0])[:1] in ("▁", "Ġ") else []

    def _unprefixed(self, text: str) -> list[int]:
        """For a text whose beginning merges with a newline before it: take the prefix space away instead."""
        ids = self.raw([text])[0]
        return ids[1:] if ids and self.piece(ids[0]) in ("▁", "Ġ") else ids

    @abstractmethod
    def raw(self, texts: Sequence[str]) -> list[list[int]]:
        """Ids of each text as the kind reads it, special tokens not looked for where it allows that."""

    @abstractmethod
    def piece(self, token_id: int) -> str:
        """The vocabulary's own spelling of a token."""

    @abstractmethod
    def piece_bytes(self, token_id: int) -> bytes:
        """The bytes a token stands for in a text, special tokens spelt out."""

    @abstractmethod
    def id_of(self, piece: str) -> int | None:
        """The id of a piece as the vocabulary spells it, or None."""

    def chat_template(self) -> ChatTemplate | None:
        """The model's, or None where there is none."""
        return None


class SentencePieces(Vocabulary):
    """A sentencepiece model file."""

    def __init__(self, model: bytes, where: Path, template: Callable[[], str | None]) -> None:
        """model: the file's bytes. where: for messages. template: asked for when a chat is rendered."""
        import sentencepiece

        try:
            self._model = sentencepiece.SentencePieceProcessor(model_proto=model)
        except (RuntimeError, OSError) as problem:
            raise UnsupportedModelError(
                f"{where} is not a readable sentencepiece model", remedy="Copy the model again."
            ) from problem
        self._where, self._template = where, template
        self.size = self._model.vocab_size()
        self._pieces = [self._model.id_to_piece(i) for i in range(self.size)]
        self.strips_first_space = bool(self._lead)
        typed = [i for i in range(self.size) if self._model.is_control(i)]
        marks = [i for i in _user_defined(model) if self._pieces[i].strip()]
        self.special = frozenset(typed + marks)
        self.hidden = frozenset(typed + [i for i in marks if re.fullmatch(r"<.*>|\[.*\]", self._pieces[i])])
        self.eos = self._model.eos_id() if self._model.eos_id() >= 0 else None
        self.bos = self._model.bos_id() if self._model.bos_id() >= 0 else None

    def raw(self, texts: Sequence[str]) -> list[list[int]]:
        return self._model.encode(list(texts))

    def piece(self, token_id: int) -> str:
        return self._pieces[token_id]

    def piece_bytes(self, token_id: int) -> bytes:
        if self._model.is_unknown(token_id):
            return UNKNOWN
        return _metaspace_bytes(self._pieces[token_id])

    def id_of(self, piece: str) -> int | None:
        found = self._model.piece_to_id(piece)
        return found if 0 <= found < self.size and self._pieces[found] == piece else None

    def chat_template(self) -> ChatTemplate | None:
        template = self._template()
        if template is None:
            return None
        return ChatTemplate(template, self._where, {"bos_token": self._name(self.bos),
                                                    "eos_token": self._name(self.eos)})

    def _name(self, token_id: int | None) -> str:
        return "" if token_id is None else self._pieces[token_id]


# large: the contract's fields and the tables behind them
class HuggingFace(Vocabulary):
    """The fast backend of a transformers tokenizer."""

    def __init__(self, outer: Any, where: Path) -> None:
        """outer: a ``PreTrainedTokenizerFast``. where: for messages."""
        self._outer, self._inner, self._where = outer, outer.backend_tokenizer, where
        self._inner.no_truncation()
        self._inner.no_padding()
        self._lock = threading.Lock()
        added = self._inner.get_added_tokens_decoder()
        self._added = {i: token.content for i, token in added.items()}
        named = {i for i in self._outer.all_special_ids if i is not None}
        self._by_id = {i: piece for piece, i in self._inner.get_vocab(with_added_tokens=True).items()}
        self.size = max(self._by_id) + 1
        self.special = frozenset(i for i in (set(self._added) | named) if self.piece(i).strip())
        self.hidden = frozenset(named | {i for i, token in added.items() if token.special})
        self.eos, self.bos = self._outer.eos_token_id, self._outer.bos_token_id
        decoder = self._inner.decoder.__getstate__().decode() if self._inner.decoder is not None else ""
        self._byte_level = '"ByteLevel"' in decoder
        self._metaspace = "▁" in decoder or "ByteFallback" in decoder
        self.strips_first_space = self._metaspace

    def raw(self, texts: Sequence[str]) -> list[list[int]]:
        with self._lock:
            self._inner.encode_special_tokens = True
            return [e.ids for e in self._inner.encode_batch(list(texts), add_special_tokens=False)]

    def piece(self, token_id: int) -> str:
        return self._added.get(token_id) or self._by_id.get(token_id, "")

    def piece_bytes(self, token_id: int) -> bytes:
        piece = self._added.get(token_id)
        if piece is not None:
            return piece.encode()
        piece = self._by_id.get(token_id, "")
        if self._byte_level:
            return b"".join(bytes([_BYTE_OF[c]]) if c in _BYTE_OF else c.encode() for c in piece)
        if self._metaspace:
            return _metaspace_bytes(piece)
        return self._inner.decode([token_id], skip_special_tokens=False).encode()

    def id_of(self, piece: str) -> int | None:
        return self._inner.token_to_id(piece)

    def chat_template(self) -> ChatTemplate | None:
        template = self._outer.chat_template
        if isinstance(template, dict):
            template = template.get("default")
        return ChatTemplate(template, self._where, self._outer.special_tokens_map) if template else None


def open_vocabulary(folder: Path, has_prompt: bool) -> Vocabulary:
    """Our own format first (its encoding is what the model was trained on), then Hugging Face's, then bare pieces."""
    pieces = folder / "tokenizer.model"
    if pieces.is_file() and (has_prompt or not (folder / "tokenizer.json").is_file()):
        return SentencePieces(pieces.read_bytes(), pieces, lambda: _template_in(folder))
    if any((folder / name).is_file() for name in ("tokenizer.json", "tokenizer_config.json", "vocab.json")):
        return HuggingFace(_auto_tokenizer(folder), folder)
    raise ModelNotFoundError(
        f"There is no tokenizer in {folder}",
        allowed="tokenizer.model or tokenizer.json",
        remedy="Copy the tokenizer files of the model into its folder.",
    )


def _auto_tokenizer(folder: Path) -> Any:
    """Anything transformers reads from a local folder into the fast backend."""
    from transformers import AutoTokenizer

    try:
        found = AutoTokenizer.from_pretrained(str(folder), local_files_only=True, trust_remote_code=False)
        assert found.backend_tokenizer is not None
        return found
    except Exception as problem:  # the library raises many kinds for a bad folder
        raise UnsupportedModelError(
            f"The tokenizer in {folder} cannot be used ({type(problem).__name__})",
            allowed="a sentencepiece tokenizer.model or a Hugging Face tokenizer.json",
            remedy="Copy the model folder again, with all its tokenizer files.",
        ) from problem


def _template_in(folder: Path) -> str | None:
    """The chat template beside a sentencepiece model."""
    file, settings = folder / "chat_template.jinja", folder / "tokenizer_config.json"
    template = file.read_text("utf-8") if file.is_file() else None
    if template is None and settings.is_file():
        template = json.loads(settings.read_text("utf-8")).get("chat_template")
    return template if isinstance(template, str) else None


def _metaspace_bytes(piece: str) -> bytes:
    byte = BYTE_PIECE.match(piece)
    return bytes([int(byte[1], 16)]) if byte else piece.replace("▁", " ").encode()


def _user_defined(model: bytes) -> list[int]:
    """Ids of user-defined pieces, read from the protobuf itself (the Python API does not tell)."""
    return [i for i, piece in enumerate(_fields(model, 1)) if next(iter(_fields(piece, 3)), 1) == 4]


def _fields(message: bytes, wanted: int) -> Iterable[Any]:
    """The values of one field of a protobuf message: bytes, or int for a varint."""
    at = 0

    def varint() -> int:
        nonlocal at
        value = shift = 0
        while True:
            byte = message[at]
            at += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value

    while at < len(message):
        key = varint()
        wire = key & 7
        size = {1: 8, 5: 4}.get(wire, 0)
        value: Any = varint() if wire in (0, 2) else None
        if wire == 2:
            size, value = value, message[at : at + value]
        at += size
        if key >> 3 == wanted:
            yield value


def _byte_alphabet() -> dict[str, int]:
    """GPT-2's printable stand-ins for the 256 bytes."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [b for b in range(256) if b not in printable]
    return {chr(b): b for b in printable} | {chr(256 + n): b for n, b in enumerate(others)}


_BYTE_OF = _byte_alphabet()
