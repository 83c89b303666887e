"""From one model's tokens to another's that reads the same text: what both vocabularies hold, and how one spells what
the other wrote."""

from __future__ import annotations

import codecs
from collections.abc import Sequence

from . import Tokenizer


class Translation:
    """Write a target's tokens as those of its draft model.

    shared: (the draft's id, the target's) of every token that is the same string in both: ordinary ones byte for byte,
    special ones by their names (arXiv 2502.05202, section 4). A string that a vocabulary holds twice counts as the
    piece that texts are encoded to."""

    def __init__(self, target: Tokenizer, draft: Tokenizer) -> None:
        self._target, self._draft = target, draft
        mine, its = target.strings(), draft.strings()
        self.shared = [(token, mine[string]) for string, token in its.items() if string in mine]
        self._own = {theirs: token for token, theirs in self.shared}
        self._bytes = {string: token for (string, special), token in its.items() if len(string) == 1 and not special}
        self.opening = [] if draft.bos_token_id is None else [draft.bos_token_id]

    def spelled(self, token_ids: Sequence[int]) -> list[int]:
        """Return what the draft's own tokenizer makes of their text. Special tokens that it does not know are left out.
        A character that is not finished yet comes in single bytes, where it has pieces for those."""
        ids: list[int] = []
        text = b""
        for token in token_ids:
            if token in self._target.hidden:
                ids += self._encoded(text)
                ids += [self._own[token]] if token in self._own else []
                text = b""
            else:
                text += self._target.token_bytes(token)
        return ids + self._encoded(text)

    def drafted(self, token_ids: Sequence[int]) -> list[int]:
        """Return these as the draft writes them, token by token: its own tokens as they are."""
        return [one for token in token_ids
                for one in ([self._own[token]] if token in self._own else self.spelled([token]))]

    def parts_before(self, token_ids: Sequence[int], at: int) -> bool:
        """Return whether the draft's tokenizer parts what stands before ``at`` from what follows, whatever that is: a
        word begins there, or something special stands there."""
        before, after = token_ids[at - 1], token_ids[at]
        if not self._target.hidden.isdisjoint((before, after)):
            return True
        return (self._target.token_bytes(after)[:1].isspace()
                and not self._target.token_bytes(before)[-1:].isspace())

    def _encoded(self, text: bytes) -> list[int]:
        if not text:
            return []
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        whole = decoder.decode(text)
        unfinished = decoder.getstate()[0]
        ids = self._draft.encode(whole) if whole else []
        return ids + [self._bytes[one] for byte in unfinished if (one := bytes([byte])) in self._bytes]
