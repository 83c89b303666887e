"""Lay documents and turns out as a model family wants them: by a ``prompt.json``, or by the model's chat template.

A chat template is rendered once with placeholders and cut there, so that the document is a fixed prefix and each turn
appends only its own ids. What the template would change in earlier turns (some drop their reasoning) is not changed:
the conversation is what was really read and written.

A system text stands behind the document and not before it, as templates by themselves would have it: otherwise every
other text would need a reading of the document of its own. It is a system turn where the template writes one there
(ChatML, Llama 3), and otherwise (Llama 2, Mistral, Gemma: alternating turns, or no such role) begins what the user
asks first, as is customary for templates without the role.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from ..documents.sentences import sentence_spans
from ..errors import ConfigError, UnsupportedModelError
from ..sampling.quote_matcher import Mark
from ..tokenizer import Tokenizer


class Plain(NamedTuple):
    """The ids before the first question where there is no document. instructed: those before a system text, and between
    it and the question."""

    before: list[int]
    instructed: tuple[list[int], list[int]]


class Layout(ABC):
    """The layout of documents and turns for one model family."""

    head: list[int]  # before the first page; belongs to its span
    tail: list[int]  # after the last page; belongs to its span
    plain: Plain | None = None  # how a question without a document begins; None: such a model needs one

    @abstractmethod
    def pages(self, labels: Sequence[str], texts: Sequence[str]) -> list[tuple[list[int], np.ndarray]]:
        """Return ids and marks of every page, marker first."""

    @abstractmethod
    def instructed_tail(self, text: str) -> list[int]:
        """Return the ids that stand in ``tail``'s place where a conversation has a system text. It comes behind the
        document, so that one reading of the document serves every text. Raises ConfigError for a model that follows
        none."""

    @abstractmethod
    def question(self, text: str, first: bool) -> list[int]:
        """Return the ids from the end of what came before up to where the answer starts."""

    @abstractmethod
    def after_answer(self, answer_ids: Sequence[int]) -> list[int]:
        """Return the ids that must stand between an answer as it was generated and the next question."""


def mark_page(
    ids: Sequence[int],
    marker: int,
    lines: Sequence[str],
    gaps: Sequence[int],
    tokenizer: Tokenizer,
) -> np.ndarray:
    """Return the marks of one page's tokens: ``marker`` ids without text, then lines of text. [len(ids)] uint8.

    lines[i] is a line exactly as encoded, gaps[i] the bytes of line break after it. Token borders are found by adding
    up token bytes; a sentence border inside a token is no border. A tokenizer whose pieces do not add up to the text
    (a lossy normaliser) gets no marks, and so no quotations from this page.
    """
    marks = np.zeros(len(ids), np.uint8)
    tokens = np.fromiter(ids, np.int64, len(ids))[marker:]
    borders, starts, stops, size = _borders(lines, gaps)
    ends = np.cumsum(tokenizer.byte_lengths[tokens], dtype=np.int64)
    if not borders or not len(ends) or int(ends[-1]) != size:
        return marks
    begins = np.concatenate((np.zeros(1, np.int64), ends[:-1]))
    line_begins, line_ends = np.array(borders).T
    line = np.searchsorted(line_begins, begins, side="right") - 1
    inside = (line >= 0) & (ends <= line_ends[line])
    spaced = tokenizer.starts_word[tokens]
    view = marks[marker:]
    view[inside] |= np.uint8(Mark.TEXT)
    view[inside & spaced] |= np.uint8(Mark.WORD_START)
    # A sentence starts with the token that holds the space before it, or at its first character where none does.
    tight, exact = _at(begins, np.array(starts))
    loose, before = _at(begins, np.array(starts) - 1)
    before &= spaced[loose] & inside[loose]
    first = np.where(before, loose, tight)[before | exact]
    view[first[inside[first]]] |= np.uint8(Mark.SENTENCE_START)
    last, exact = _at(ends, np.array(stops))
    last = last[exact]
    view[last[inside[last]]] |= np.uint8(Mark.SENTENCE_END)
    keep_going = np.append(inside[1:] & (line[1:] == line[:-1]), False)
    view[inside & ~keep_going] |= np.uint8(Mark.LINE_END)
    return marks


def _borders(lines: Sequence[str], gaps: Sequence[int]) -> tuple[list[tuple[int, int]], list[int], list[int], int]:
    """Return, in bytes from the page's text: (start, end) of each line, starts and ends of sentences, the whole
    size."""
    borders: list[tuple[int, int]] = []
    starts: list[int] = []
    stops: list[int] = []
    at = 0
    for line, gap in zip(lines, gaps, strict=True):
        plain = line.isascii()
        size = len(line) if plain else len(line.encode())
        if line:
            borders.append((at, at + size))
        for start, stop in sentence_spans(line):
            while line[start].isspace():
                start += 1
            starts.append(at + (start if plain else len(line[:start].encode())))
            stops.append(at + (stop if plain else len(line[:stop].encode())))
        at += size + gap
    return borders, starts, stops, at


def _at(sorted_values: np.ndarray, wanted: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return where each wanted value stands (clipped into range), and whether it is really there."""
    found = np.minimum(np.searchsorted(sorted_values, wanted), len(sorted_values) - 1)
    return found, sorted_values[found] == wanted


FORMAT = 1


class TaggedLayout(Layout):
    """The layout that a prompt.json states. settings: the contents of prompt.json."""

    def __init__(self, tokenizer: Tokenizer, settings: Mapping[str, Any]) -> None:
        if settings.get("format") != FORMAT:
            raise UnsupportedModelError(
                f"prompt.json has format {settings.get('format')!r}",
                allowed=str(FORMAT),
                remedy="Update TriForce Chat.",
            )
        self._tokenizer = tokenizer
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
            result.append((ids, mark_page(ids, len(marker), written, [1] * len(lines), self._tokenizer)))
        return result

    def instructed_tail(self, text: str) -> list[int]:
        raise ConfigError("This model follows no instructions: it only answers questions about the document",
                          remedy="Leave the system prompt out, or choose a chat model with --model.")

    def question(self, text: str, first: bool) -> list[int]:
        return self._filled(self._turn, " ".join(text.split()))  # as it was trained

    def after_answer(self, answer_ids: Sequence[int]) -> list[int]:
        """Return nothing where the answer already ended itself; a stop piece that is not the ending is left to the
        engine."""
        end = self._answer_end
        return [] if end and list(answer_ids[-len(end) :]) == end else list(end)

    def _slot(self, template: str, name: str) -> tuple[list[int], str, list[int]]:
        """Cut a template at its slot: ids before, the space that goes with the text, ids after."""
        before, slot, after = template.partition(name)
        if template and not slot:
            raise UnsupportedModelError(f"prompt.json has a template without {name}: {template!r}")
        space = before[len(before.rstrip(" ")) :]
        tokenizer = self._tokenizer
        return tokenizer.encode(before.rstrip(" "), special=True), space, tokenizer.encode(after, special=True)

    def _filled(self, slot: tuple[list[int], str, list[int]], text: str) -> list[int]:
        before, space, after = slot
        return [*before, *self._tokenizer.encode(space + text), *after]


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

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        first = f"{_BEFORE}{_DOCUMENT}{_AFTER}{_QUESTION}"
        document, question = ("user", f"{_BEFORE}{_DOCUMENT}{_END}"), ("user", f"{_ASKED}{_QUESTION}")
        conversations = (
            [("user", first)], [("user", first), ("assistant", _ANSWER), ("user", _NEXT)],
            [document, ("system", _SYSTEM), question], [("system", _SYSTEM), question],
            [document, ("assistant", _SYSTEM), question],
            *([*before, ("user", _QUESTION)] for before in ([], [("system", _SYSTEM)], [("assistant", _SYSTEM)])))
        written = self._rendered(conversations, parts=False)
        if any(written) and not any(map(_shows, written[:2])):
            in_parts = self._rendered(conversations, parts=True)
            written = in_parts if any(map(_shows, in_parts[:2])) else written
        if not _shows(written[0]) and _shows(written[1]):  # one that fails without earlier turns
            written[0] = _accepted(written[1]).partition(_ANSWER)[0]
        self._ask_plainly(*(text if isinstance(text, str) else "" for text in written[5:]))
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
        if _NEXT not in later.partition(_ANSWER)[2]:
            raise UnsupportedModelError("The model's chat template drops earlier turns")
        between, ask_again = later.split(_ANSWER, 1)[1].split(_NEXT, 1)
        self._between = tokenizer.encode(between, special=True)
        self._ask_again = tokenizer.encode(ask_again, special=True)
        # What it refuses has no system turn there: the role is unknown, or turns must alternate.
        own_turn = self._own_turn(head, ask, *(text if isinstance(text, str) else "" for text in written[2:5]))
        if own_turn is not None:
            self._instructed = own_turn
        else:
            self._instructed = tokenizer.encode(f"{_END}\n\n"), tokenizer.encode(f"\n\n{_ASKED}")

    def _rendered(self, conversations: Sequence[Sequence[tuple[str, str]]], parts: bool
                  ) -> list[str | UnsupportedModelError]:
        """Return each filled in, or the template's refusal; "" where there is no template. parts: give contents as
        lists of parts, which templates of models that see pictures may want."""
        found = self._tokenizer.render_chats([
            [{"role": role, "content": [{"type": "text", "text": words}] if parts else words} for role, words in turns]
            for turns in conversations])
        return found if found is not None else [""] * len(conversations)

    def _ask_plainly(self, asked: str, instructed: str, answered: str) -> None:
        """Set ``plain``. asked, instructed, answered: a question as rendered by itself, with a system text, and with an
        answer in its place; "" where the template refuses it. Where it has no system turn the text begins the question.
        """
        encode, bos = self._tokenizer.encode, self._tokenizer.bos_token_id
        before = (encode(asked.partition(_QUESTION)[0], special=True) if _QUESTION in asked else
                  [*([] if bos is None else [bos]), *encode(_ASKED)])
        start, _, rest = instructed.partition(_SYSTEM)
        own = _QUESTION in rest and instructed != answered
        self.plain = Plain(before, (encode(start, special=True), encode(rest.partition(_QUESTION)[0], special=True))
                           if own else (before, encode("\n\n")))

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
        """Set the plain form for models without a template."""
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
            result.append((ids, mark_page(ids, len(marker), lines, gaps, self._tokenizer)))
        return result

    def instructed_tail(self, text: str) -> list[int]:
        before, after = self._instructed
        return [*before, *self._tokenizer.encode(text), *after]

    def question(self, text: str, first: bool) -> list[int]:
        return self._tokenizer.encode(text) + (self._ask if first else self._ask_again)

    def after_answer(self, answer_ids: Sequence[int]) -> list[int]:
        """Return the template's own text between turns, without the end-of-turn token where the answer wrote it
        itself."""
        between = self._between
        done = bool(answer_ids) and bool(between) and answer_ids[-1] == between[0]
        return list(between[1:] if done else between)


def _shows(text: str | UnsupportedModelError) -> bool:
    return isinstance(text, str) and _DOCUMENT in text


def _accepted(text: str | UnsupportedModelError) -> str:
    if isinstance(text, UnsupportedModelError):
        raise text
    return text
