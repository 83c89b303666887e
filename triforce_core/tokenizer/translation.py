"""From one model's tokens to another's that reads the same text: what both vocabularies hold, and how one spells what
the other wrote."""

from __future__ import annotations

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
        self._own = {theirs: [token] for token, theirs in self.shared}
        self._bytes = {string: token for (string, special), token in its.items() if len(string) == 1 and not special}
        self.opening = [] if draft.bos_token_id is None else [draft.bos_token_id]

    def spelled(self, token_ids: Sequence[int]) -> list[int]:
        """Return these as the draft reads them: what it has too as it is, the text of all others as its own tokenizer
        encodes it. Special tokens that it does not know are left out.

        Token by token: that a later token changes how an earlier one is spelled cannot happen, and a draft that sees
        where the target parts words guesses as well as over text that is encoded as a whole (docs/measurements.md)."""
        return [own for token in token_ids for own in self._spelled(token)]

    def _spelled(self, token: int) -> list[int]:
        known = self._own.get(token)
        if known is None:
            data = self._target.token_bytes(token)
            try:
                known = self._draft.encode(data.decode()) if data else []
            except UnicodeDecodeError:  # a part of a character
                known = [self._bytes[one] for byte in data if (one := bytes([byte])) in self._bytes]
            self._own[token] = known
        return known
