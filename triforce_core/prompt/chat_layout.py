"""The layout for models that bring a chat template, and for base models that bring none.

The template is rendered once with placeholders and cut there, so that the document is a fixed prefix and each turn
appends only its own ids. What the template would change in earlier turns (some drop their reasoning) is not changed:
the conversation is what was really read and written.

A system text stands behind the document and not before it, as templates by themselves would have it: otherwise every
other text would need a reading of the document of its own. It is a system turn where the template writes one there
(ChatML, Llama 3), and otherwise (Llama 2, Mistral, Gemma: alternating turns, or no such role) begins what the user
asks first, as is customary for templates without the role.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..documents.sentences import SentenceRules
from ..errors import UnsupportedModelError
from ..tokenizer import Tokenizer
from .layout import Layout, mark_page

_DOCUMENT, _QUESTION, _ANSWER, _NEXT = "DOCUMENT0slot", "QUESTION0slot", "ANSWER0slot", "NEXT0slot"
_SYSTEM = "SYSTEM0slot"
_BEFORE = (
    "Below is a document. A line such as [page 85] shows where a page begins. Use nothing but this document to answer "
    "the questions about it, and name the pages that you rely on.\n\n--- document ---\n"
)
_END, _ASKED = "--- end of document ---", "Question: "
_AFTER = f"{_END}\n\n{_ASKED}"


class ChatLayout(Layout):
    """Cuts the model's chat template into the parts between document, question, answer and next question."""

    def __init__(self, tokenizer: Tokenizer, rules: SentenceRules) -> None:
        self._tokenizer, self._rules = tokenizer, rules
        first = f"{_BEFORE}{_DOCUMENT}{_AFTER}{_QUESTION}"
        document, question = ("user", f"{_BEFORE}{_DOCUMENT}{_END}"), ("user", f"{_ASKED}{_QUESTION}")
        written = self._rendered(
            [("user", first)], [("user", first), ("assistant", _ANSWER), ("user", _NEXT)],
            [document, ("system", _SYSTEM), question], [("system", _SYSTEM), question],
            [document, ("assistant", _SYSTEM), question])
        asked = _accepted(written[0])
        if _DOCUMENT not in asked or _QUESTION not in asked:
            bos = tokenizer.bos_token_id
            self._set([] if bos is None else [bos], "\nAnswer:", "\n\nQuestion: ", "\nAnswer:")
            return
        head, rest = asked.split(_DOCUMENT, 1)
        before_question, ask = rest.split(_QUESTION, 1)
        self.head = tokenizer.encode(head, special=True)
        self.tail = tokenizer.encode(before_question, special=True)
        self._ask = tokenizer.encode(ask, special=True)
        later = _accepted(written[1])
        assert _ANSWER in later and _NEXT in later.split(_ANSWER, 1)[1], "a chat template drops earlier turns"
        between, ask_again = later.split(_ANSWER, 1)[1].split(_NEXT, 1)
        self._between = tokenizer.encode(between, special=True)
        self._ask_again = tokenizer.encode(ask_again, special=True)
        # What it refuses has no system turn there: the role is unknown, or turns must alternate.
        own_turn = self._own_turn(head, ask, *(text if isinstance(text, str) else "" for text in written[2:]))
        if own_turn is not None:
            self._instructed = own_turn
        else:
            self._instructed = tokenizer.encode(f"{_END}\n\n"), tokenizer.encode(f"\n\n{_ASKED}")

    def _rendered(self, *conversations: Sequence[tuple[str, str]]) -> list[str | UnsupportedModelError]:
        """Return each filled in, or the template's refusal; "" where there is no template."""
        found = self._tokenizer.render_chats([[{"role": role, "content": words} for role, words in turns]
                                              for turns in conversations])
        return found if found is not None else [""] * len(conversations)

    def _own_turn(self, head: str, ask: str, whole: str, alone: str,
                  answered: str) -> tuple[list[int], list[int]] | None:
        """Return what the template writes from the end of the document to a system text and from there to the question;
        None where it has no system turn, or another one there than at the beginning. head, ask: as rendered without
        one; whole: with one behind the document; alone: without the document; answered: with an answer in its place."""
        start = f"{head}{_DOCUMENT}"
        before, _, rest = whole.removeprefix(start).partition(_SYSTEM)
        between, _, after = rest.partition(_QUESTION)
        if (not whole.startswith(start) or not between or rest != alone.partition(_SYSTEM)[2] or after != ask
                or whole == answered):
            return None
        return self._tokenizer.encode(before, special=True), self._tokenizer.encode(between, special=True)

    def _set(self, bos: list[int], ask: str, between: str, ask_again: str) -> None:
        """The plain form for models without a template."""
        encode = self._tokenizer.encode
        self.head, self.tail = bos + encode(_BEFORE), encode(_AFTER)
        self._ask, self._between, self._ask_again = encode(ask), encode(between), encode(ask_again)
        self._instructed = encode(f"{_END}\n\n"), encode(f"\n\n{_ASKED}")

    def pages(self, labels: Sequence[str], texts: Sequence[str]) -> list[tuple[list[int], np.ndarray]]:
        markers = [f"[page {label}]\n" for label in labels]
        bodies = [f"{text.strip()}\n\n" if text.strip() else "\n" for text in texts]
        marker_ids, body_ids = self._tokenizer.encode_batch(markers), self._tokenizer.encode_batch(bodies)
        result = []
        for marker, body, text in zip(marker_ids, body_ids, bodies, strict=True):
            lines = text.split("\n")
            gaps = [1] * (len(lines) - 1) + [0]
            ids = marker + body
            result.append((ids, mark_page(ids, len(marker), lines, gaps, self._rules, self._tokenizer)))
        return result

    def instructed_tail(self, text: str) -> list[int]:
        before, after = self._instructed
        return [*before, *self._tokenizer.encode(text), *after]

    def question(self, text: str, first: bool) -> list[int]:
        return self._tokenizer.encode(text) + (self._ask if first else self._ask_again)

    def after_answer(self, answer_ids: Sequence[int]) -> list[int]:
        """The template's own text between turns, without the end-of-turn token where the answer wrote it itself."""
        between = self._between
        done = bool(answer_ids) and bool(between) and answer_ids[-1] == between[0]
        return list(between[1:] if done else between)


def _accepted(text: str | UnsupportedModelError) -> str:
    if isinstance(text, UnsupportedModelError):
        raise text
    return text
