"""Guided decoding of JSON: only tokens that can go on to a text of the schema are allowed (llguidance says which).

As with quotations, every tier sees the same masks, so speculation stays lossless with respect to the masked
distribution; tokens that are the only ones allowed cost no pass."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Protocol

import numpy as np

from ..errors import ConfigError
from .sampler import Masks

# As Python's json writes it: white space that may be of any length is what small models lose themselves in.
_FORM: Any = {"whitespace_flexible": False, "item_separator": ", ", "key_separator": ": "}
_NAME = "response_format"


class Pieces(Protocol):
    """Name what is needed of a ``tokenizer.Tokenizer``."""

    @property
    def vocab_size(self) -> int: ...

    @property
    def bos_token_id(self) -> int | None: ...

    def token_bytes(self, token_id: int) -> bytes: ...

    def encode(self, text: str) -> list[int]: ...

    def __hash__(self) -> int: ...


class _Wrapped:
    """What llguidance asks of a tokenizer."""

    def __init__(self, pieces: Pieces, stop: Sequence[int]) -> None:
        self.eos_token_id, self.bos_token_id = stop[0], pieces.bos_token_id
        self.tokens = [pieces.token_bytes(token) for token in range(pieces.vocab_size)]
        self.special_token_ids = sorted({*stop, *(token for token, text in enumerate(self.tokens) if not text)})
        self._encode = pieces.encode

    def __call__(self, text: str) -> list[int]:
        return self._encode(text)


@lru_cache(maxsize=1)
def _vocabulary(pieces: Pieces, stop: tuple[int, ...]) -> Any:
    """Return llguidance's form of a vocabulary, which takes a moment to make. Raises ConfigError."""
    try:
        import llguidance
    except ImportError:
        raise ConfigError(f"{_NAME} needs the package llguidance", remedy="pip install llguidance") from None
    return llguidance.LLTokenizer(llguidance.TokenizerWrapper(_Wrapped(pieces, stop)), n_vocab=pieces.vocab_size,
                                  eos_token=list(stop), slices=llguidance.LLTokenizer.json_slices())


class JsonMasks(Masks):
    """Follow an answer's JSON along whatever tokens a tier asks about.

    Tiers ask about contexts that share all but a few last tokens, so masks are kept along the last one asked."""

    def __init__(self, pieces: Pieces, schema: str, answer_start: int, stop: frozenset[int]) -> None:
        """schema: JSON text; stop: what ends an answer that is whole. Raises ConfigError for a schema that cannot be
        followed."""
        vocabulary = _vocabulary(pieces, tuple(sorted(stop)))
        import llguidance

        try:
            grammar = llguidance.LLMatcher.grammar_from_json_schema(json.loads(schema), overrides=_FORM)
            problem = llguidance.LLMatcher.validate_grammar(grammar, vocabulary)
        except ValueError as error:
            problem = str(error)
        if problem and not problem.startswith("WARNING"):
            raise ConfigError(f"{_NAME} has a schema that cannot be followed: {problem}")
        self._matcher = llguidance.LLMatcher(vocabulary, grammar, log_level=0)
        self._answer_start, self._size = answer_start, pieces.vocab_size
        self._stop = np.array(sorted(stop), np.int64)
        self._tokens: list[int] = []
        self._masks: list[np.ndarray] = []  # _masks[i]: after _tokens[:i]
        self._taken = 0  # of the tokens those that the matcher took: behind one that was not allowed nothing is

    def allowed(self, context: Sequence[int], draft: Sequence[int]) -> list[np.ndarray | None]:
        masks = self._along([*context[self._answer_start :], *draft])
        return list(masks[len(masks) - len(draft) - 1 :])

    def guided(self, context: Sequence[int], limit: int) -> list[int]:
        answer, run = list(context[self._answer_start :]), list[int]()
        while len(run) < limit:
            only = self._along([*answer, *run])[-1]
            if len(only) != 1:
                break
            run.append(int(only[0]))
            if run[-1] in self._stop:
                break
        return run

    def _along(self, tokens: list[int]) -> list[np.ndarray]:
        """Return the ids allowed after each first i of these tokens."""
        same = 0
        for mine, asked in zip(self._tokens, tokens, strict=False):
            if mine != asked:
                break
            same += 1
        if self._taken > same:
            self._matcher.rollback(self._taken - same)
            self._taken = same
        self._tokens[same:] = tokens[same:]
        del self._masks[same + 1 :]
        for at in range(len(self._masks), len(tokens) + 1):
            if at and self._taken == at - 1:
                self._taken += self._matcher.try_consume_tokens([tokens[at - 1]])
            self._masks.append(self._mask() if self._taken == at else self._stop)
        return self._masks

    def _mask(self) -> np.ndarray:
        if self._matcher.is_stopped():
            return self._stop
        bits = np.frombuffer(self._matcher.compute_bitmask(), np.uint8)
        found = np.flatnonzero(np.unpackbits(bits, bitorder="little")[: self._size])
        return found if len(found) else self._stop
