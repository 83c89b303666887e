"""The layout that a ``prompt.json`` states: documents, pages and turns marked by pieces of their own.

Every line, question and page label is encoded after ``line_prefix`` (a space), as the model was trained, so that a
sentence has the same tokens wherever it stands.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ..documents.sentences import SentenceRules
from ..errors import ConfigError, UnsupportedModelError
from ..tokenizer import Tokenizer
from .layout import Layout, mark_page

FORMAT = 1


class TaggedLayout(Layout):
    """settings: the contents of prompt.json."""

    def __init__(self, tokenizer: Tokenizer, settings: Mapping[str, Any], rules: SentenceRules) -> None:
        if settings.get("format") != FORMAT:
            raise UnsupportedModelError(
                f"prompt.json has format {settings.get('format')!r}",
                allowed=str(FORMAT),
                remedy="Update TriForce Chat.",
            )
        self._tokenizer, self._rules = tokenizer, rules
        self._prefix = settings.get("line_prefix", "")
        self.head = tokenizer.encode(settings.get("document_start", ""), special=True)
        self.tail = tokenizer.encode(settings.get("document_end", ""), special=True)
        self._marker = self._slot(settings.get("page_marker", ""), "{label}")
        self._turn = self._slot(settings.get("user", "{question}"), "{question}")
        self._answer_end = tokenizer.encode(settings.get("assistant_end", ""), special=True)
        self._newline = tokenizer.encode("\n")

    def pages(self, labels: Sequence[str], texts: Sequence[str]) -> list[tuple[list[int], np.ndarray]]:
        marker_texts = [self._filled(self._marker, label) for label in labels]
        page_lines = [[line.strip() for line in text.split("\n")] if text.strip() else [] for text in texts]
        encoded = iter(
            self._tokenizer.encode_batch([self._prefix + line for lines in page_lines for line in lines if line])
        )
        result = []
        for marker, lines in zip(marker_texts, page_lines, strict=True):
            ids = list(marker)
            for line in lines:
                if line:
                    ids += next(encoded)
                ids += self._newline
            written = [self._prefix + line if line else "" for line in lines]
            result.append((ids, mark_page(ids, len(marker), written, [1] * len(lines), self._rules, self._tokenizer)))
        return result

    def instructed_tail(self, text: str) -> list[int]:
        raise ConfigError("This model follows no instructions: it only answers questions about the document",
                          remedy="Leave the system prompt out, or choose a chat model with --model.")

    def question(self, text: str, first: bool) -> list[int]:
        return self._filled(self._turn, text)

    def after_answer(self, answer_ids: Sequence[int]) -> list[int]:
        """Nothing where the answer already ended itself; a stop piece that is not the ending is left to the engine."""
        end = self._answer_end
        return [] if end and list(answer_ids[-len(end) :]) == end else list(end)

    def _slot(self, template: str, name: str) -> tuple[list[int], str, list[int]]:
        """A template cut at its slot: ids before, the space that goes with the text, ids after."""
        before, slot, after = template.partition(name)
        if template and not slot:
            raise UnsupportedModelError(f"prompt.json has a template without {name}: {template!r}")
        space = before[len(before.rstrip(" ")) :]
        tokenizer = self._tokenizer
        return tokenizer.encode(before.rstrip(" "), special=True), space, tokenizer.encode(after, special=True)

    def _filled(self, slot: tuple[list[int], str, list[int]], text: str) -> list[int]:
        before, space, after = slot
        return [*before, *self._tokenizer.encode(space + text), *after]
