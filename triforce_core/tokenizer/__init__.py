"""Text to token ids and back, for all kinds of tokenizer files.

One ``Tokenizer`` over a sentencepiece ``tokenizer.model`` (the built-in pair), a Hugging Face ``tokenizer.json`` or the
vocabulary in a GGUF file.
Document and question text goes through ``encode(text)``, which never yields a special token, whatever the text says;
only our own templates go through ``encode(text, special=True)``. No space is ever put in front of the text.

Knows nothing of documents, pages or turns: ``prompt.builder`` lays those out.
"""

from __future__ import annotations

import codecs
import hashlib
import json
import re
from collections.abc import Iterable, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import ModelNotFoundError, TokenizerMismatchError, UnsupportedModelError
from ..gguf import open_gguf
from ..surrogates import whole_text
from . import gguf_vocabulary
from .chat_template import Messages
from .vocabulary import BYTE_PIECE, UNKNOWN, open_vocabulary

# Files that change how a text is read; the fingerprint covers those that exist.
_FILES = (
    "tokenizer.model", "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json",
    "vocab.json", "merges.txt", "chat_template.jinja", "chat_template.json", "prompt.json",
)  # fmt: skip


class Tokenizer:
    """Reads the tokenizer of one model: files in its folder, or a GGUF file. Immutable and safe to share between
    threads."""

    def __init__(self, folder: Path | str, thinking: bool = False) -> None:
        """thinking: whether chat templates shall ask the model to reason first, where it can do without.

        Raises ModelNotFoundError, UnsupportedModelError, DamagedWeightsError."""
        self.folder, self._thinking = Path(folder), thinking
        self.prompt_settings: dict[str, Any]
        if self.folder.is_file():
            file = open_gguf(self.folder)
            self.prompt_settings = gguf_vocabulary.prompt_settings(file)
            self._vocabulary = gguf_vocabulary.open_vocabulary(file)
        elif self.folder.is_dir():
            self.prompt_settings = _read_json(self.folder / "prompt.json")
            self._vocabulary = open_vocabulary(self.folder, bool(self.prompt_settings))
        else:
            raise ModelNotFoundError(
                f"There is no model folder {self.folder}", remedy="Give a folder that holds a model and its tokenizer."
            )
        self.vocab_size = self._vocabulary.size
        opening = self.prompt_settings.get("quote_open")
        self._glue = frozenset() if opening is None else frozenset({self.token_id(opening)})

    # ---- text to ids ----

    def encode(self, text: str, special: bool = False) -> list[int]:
        """Token ids. special=False: text that spells a special token comes out as ordinary pieces (same decoding)."""
        if special:
            return self._encode_special(text)
        return self.encode_batch([text])[0]

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        """``encode`` of many ordinary texts at once; much faster than one by one."""
        rows = self._vocabulary.bare([whole_text(text) for text in texts])
        forbidden = self._vocabulary.special
        return [row if forbidden.isdisjoint(row) else self._without_special(row) for row in rows]

    def token_id(self, piece: str) -> int:
        """The id of one piece such as ``<doc>``; raises TokenizerMismatchError when the vocabulary has none."""
        found = self._vocabulary.id_of(piece)
        if found is None:
            raise TokenizerMismatchError(
                f"The tokenizer in {self.folder} has no piece {piece!r}",
                remedy="Its prompt.json and tokenizer files do not belong together; copy the model folder again.",
            )
        return found

    def _encode_special(self, text: str) -> list[int]:
        ids: list[int] = []
        parts = self._special_pattern.split(text) if self._special_pattern else [text]
        for part in parts:
            if part in self._special_ids:
                ids.append(self._special_ids[part])
            elif part:
                ids += self.encode(part)
        return ids

    @cached_property
    def _special_ids(self) -> dict[str, int]:
        return {self._vocabulary.piece(i): i for i in sorted(self._vocabulary.special)}

    @cached_property
    def _special_pattern(self) -> re.Pattern[str] | None:
        pieces = sorted(self._special_ids, key=len, reverse=True)
        return re.compile("(" + "|".join(map(re.escape, pieces)) + ")") if pieces else None

    def _without_special(self, ids: Iterable[int]) -> list[int]:
        clean: list[int] = []
        for token in ids:
            clean.extend(self._respelt(token) if token in self._vocabulary.special else (token,))
        return clean

    def _respelt(self, token: int) -> list[int]:
        """A special token's text as ordinary pieces: split after its first character, or byte by byte."""
        text = self._vocabulary.piece(token)
        if len(text) > 1:
            return self.encode(text[0]) + self.encode(text[1:])
        found = [self._vocabulary.id_of(f"<0x{byte:02X}>") for byte in text.encode()]
        return [i for i in found if i is not None]

    # ---- ids to text ----

    def decode(self, ids: Iterable[int]) -> str:
        """Text of tokens; special tokens are left out, broken UTF-8 becomes U+FFFD."""
        decoder = self.stream_decoder()
        return "".join(decoder.feed(int(i)) for i in ids) + decoder.flush()

    def stream_decoder(self, glue: frozenset[int] | None = None) -> StreamDecoder:
        """A decoder for one answer: what it emits, joined, equals ``decode`` of all its tokens. glue: tokens behind
        which a space is left out (default: the opening mark that prompt.json names)."""
        return StreamDecoder(self, self._glue if glue is None else glue)

    def token_bytes(self, token_id: int) -> bytes:
        """The bytes of one token inside a text (b"" for special tokens without text)."""
        known = self._bytes.get(token_id)
        if known is None:
            in_range = 0 <= token_id < self.vocab_size and token_id not in self._vocabulary.hidden
            known = self._bytes[token_id] = self._vocabulary.piece_bytes(token_id) if in_range else b""
        return known

    @cached_property
    def _bytes(self) -> dict[int, bytes]:
        return {}

    def strings(self) -> dict[tuple[bytes, bool], int]:
        """Return the token of every (text, False), and of every (name, True) of a token without text. Of several with
        one text, the one that texts are encoded to."""
        found: dict[tuple[bytes, bool], int] = {}
        for token in range(self.vocab_size):
            piece, special = self._vocabulary.piece(token), token in self._vocabulary.hidden
            text = piece.encode("utf-8", "surrogatepass") if special else self.token_bytes(token)
            if text and text != UNKNOWN and ((text, special) not in found or not BYTE_PIECE.match(piece)):
                found[text, special] = token
        return found

    @cached_property
    def byte_lengths(self) -> np.ndarray:
        """Bytes of every token, [vocab_size] int32."""
        return np.fromiter((len(self.token_bytes(i)) for i in range(self.vocab_size)), np.int32, self.vocab_size)

    @cached_property
    def starts_word(self) -> np.ndarray:
        """Which tokens begin with white space, [vocab_size] bool."""
        first = (self.token_bytes(i)[:1] for i in range(self.vocab_size))
        return np.fromiter((byte in (b" ", b"\n", b"\t") for byte in first), bool, self.vocab_size)

    # ---- facts ----

    @cached_property
    def stop_token_ids(self) -> frozenset[int]:
        """Tokens that end an answer: generation_config.json, config.json, the tokenizer's own end, prompt.json."""
        found: set[int] = set()
        for name in ("generation_config.json", "config.json"):
            value = _read_json(self.folder / name).get("eos_token_id")
            found.update(value if isinstance(value, list) else [] if value is None else [value])
        if self._vocabulary.eos is not None:
            found.add(self._vocabulary.eos)
        found |= self._vocabulary.ends
        for piece in self.prompt_settings.get("stop", ()):
            found.add(self.token_id(piece))
        return frozenset(i for i in found if 0 <= i < self.vocab_size)

    @property
    def bos_token_id(self) -> int | None:
        return self._vocabulary.bos

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 of the files that decide how a text is read: part of the key of a saved reading."""
        digest = hashlib.sha256()
        if self.folder.is_file():
            return open_gguf(self.folder).header_digest
        for name in _FILES:
            path = self.folder / name
            if path.is_file():
                digest.update(name.encode() + b"\0" + hashlib.sha256(path.read_bytes()).digest())
        return digest.hexdigest()

    @cached_property
    def _vocabulary_hash(self) -> str:
        pieces = (self._vocabulary.piece(i) for i in range(self.vocab_size))
        return hashlib.sha256("\0".join(pieces).encode("utf-8", "surrogatepass")).hexdigest()

    def same_vocabulary(self, other: Tokenizer) -> bool:
        """Return whether every id means the same piece in both, so that one model may draft for the other."""
        return self.vocab_size == other.vocab_size and self._vocabulary_hash == other._vocabulary_hash

    def render_chats(self, conversations: Sequence[Messages],
                     generate: bool = True) -> list[str | UnsupportedModelError] | None:
        """The model's chat template filled in for each, or its refusal; None when the model has none. Raises
        UnsupportedModelError where it takes too much time or memory."""
        template = self._vocabulary.chat_template()
        if template is None:
            return None
        return template.render(conversations, generate=generate, thinking=self._thinking)


class StreamDecoder:
    """Token ids in, text out, never half a character. One per answer; ``flush`` at the end."""

    def __init__(self, tokenizer: Tokenizer, glue: frozenset[int]) -> None:
        self._tokenizer, self._glue = tokenizer, glue
        self._utf8 = codecs.getincrementaldecoder("utf-8")("replace")
        self._drop_space = tokenizer._vocabulary.strips_first_space

    def feed(self, token_id: int) -> str:
        """The characters that this token completes; may be empty."""
        data = self._tokenizer.token_bytes(token_id)
        if data and self._drop_space:
            data, self._drop_space = data.removeprefix(b" "), False
        if token_id in self._glue:  # the opening mark is written without the space that follows it
            self._drop_space = True
        return self._utf8.decode(data)

    def flush(self) -> str:
        """Return what is left of a broken character."""
        return self._utf8.decode(b"", final=True)


def _read_json(path: Path) -> dict[str, Any]:
    if not path.is_file():
        return {}
    try:
        value = json.loads(path.read_text("utf-8"))
    except ValueError as problem:
        raise UnsupportedModelError(f"{path} is not valid JSON", remedy="Copy the model folder again.") from problem
    return value if isinstance(value, dict) else {}
