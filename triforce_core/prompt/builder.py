"""Documents and questions -> token ids, with the exact span of every page.

A conversation is: document ids (a FIXED prefix, whatever is asked; a system text takes the place of their last few, see
``after_document``), then for each turn ``question`` ids, the answer's ids as generated, and ``after_answer`` ids. Two
layouts: the one that a ``prompt.json`` beside the tokenizer states (the built-in model), and the model's chat template
with the document fenced in the first user message.
Document and question text can never produce a special token. Nothing is cut: ``require_fit`` says what would not fit.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import takewhile
from time import perf_counter

import numpy as np

from ..documents.document import LONGEST_LABEL, Document
from ..documents.sentences import NOTE, runs_on
from ..documents.typography import ascii_typography
from ..errors import ConfigError, ContextTooLongError, NotSpelledError, UnsupportedModelError
from ..events import PageSpan, PrefillProgress, QuotePlace
from ..sampling.quote_matcher import Mark, QuoteIndex, Unit
from ..tokenizer import Tokenizer
from .layout import ChatLayout, Layout, Plain, TaggedLayout

ASCII_TYPOGRAPHY = "ascii-typography-v1"


def normaliser(name: str | None) -> Callable[[str], str]:
    """Return the mapping of a prompt.json's ``normalise``; none named, none applied. Raises UnsupportedModelError."""
    if name is None:
        return str
    if name == ASCII_TYPOGRAPHY:
        return ascii_typography
    raise UnsupportedModelError(f"prompt.json asks for the text form {name!r}", allowed=ASCII_TYPOGRAPHY,
                                remedy="Update TriForce Chat.")


def spelt_letters(text: str, normalise: Callable[[str], str]) -> tuple[str, list[int]]:
    """Return what ``normalise`` makes of a text, white space left out, and the index of the character each letter came
    from.

    normalise: one that treats every character but white space for itself, as the ones here do."""
    spelt = {character: "".join(normalise(character).split()) for character in set(text)}
    sources = [at for at, character in enumerate(text) for _ in spelt[character]]
    return "".join(spelt[character] for character in text), sources


_REMEMBERED = 3  # documents whose tokens and sentences are kept: to go back to one takes seconds less
_TOGETHER = 32  # pages whose text becomes tokens in one go


@dataclass(frozen=True, eq=False)
class DocumentPrompt:
    """A document as the model reads it. token_ids and marks: [n]; pages cover [0, n) without gaps. tail: tokens behind
    the last page that end the document: leave them off to go on with its text. plain: it is blank, and what is asked is
    laid out without one."""

    document: Document
    token_ids: np.ndarray  # int32
    pages: tuple[PageSpan, ...]
    marks: np.ndarray  # uint8, sampling.quote_matcher.Mark of every token
    tail: int
    plain: bool = False

    @property
    def document_id(self) -> str:
        return self.document.id

    def page_index(self, token: int) -> int:
        """Return which page (from 0) holds this token."""
        starts = self._starts
        return int(np.clip(np.searchsorted(starts, token, side="right") - 1, 0, len(starts) - 1))

    def split_by_page(self, start: int, end: int) -> list[tuple[int, int, int]]:
        """Return tokens [start, end) as (page index, start, end), page by page."""
        pieces = []
        for index in range(self.page_index(start), self.page_index(max(start, end - 1)) + 1):
            page = self.pages[index]
            pieces.append((index, max(start, page.start), min(end, page.end)))
        return pieces

    @cached_property
    def _starts(self) -> np.ndarray:
        return np.array([page.start for page in self.pages], np.int64)

    @cached_property
    def quotes(self) -> QuoteIndex:
        """Return the index that verbatim quoting needs."""
        return QuoteIndex(self.token_ids, self.marks)

    def quotes_without(self, left_out: Collection[int]) -> QuoteIndex:
        """Return the same, but no quotation has one of these tokens in it."""
        marks = self.marks.copy()
        found = np.flatnonzero(np.isin(self.token_ids, list(left_out)))
        marks[found] = 0
        before = found[found > 0] - 1
        marks[before[(marks[before] & Mark.TEXT) != 0]] |= np.uint8(Mark.LINE_END)
        return QuoteIndex(self.token_ids, marks)


@dataclass(frozen=True)
class QuoteFormat:
    """Say how a model writes quotations, from its prompt.json. end_ids and also_open are those of ``QuoteConstraint``.
    """

    open_id: int
    close_id: int
    unit: Unit
    must_open: bool
    end_ids: tuple[int, ...] = ()
    also_open: frozenset[int] = frozenset()


class PromptBuilder:
    """Lays out documents and turns for a tokenizer's model."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.tokenizer, settings = tokenizer, tokenizer.prompt_settings
        self.normalise = normaliser(settings.get("normalise"))
        self._layout: Layout = TaggedLayout(tokenizer, settings) if settings else ChatLayout(tokenizer)
        self.quote_format: QuoteFormat | None = None
        if settings.get("quote_open") and settings.get("quote_close"):
            opening, closing = settings["quote_open"], settings["quote_close"]
            self.quote_format = QuoteFormat(
                tokenizer.token_id(opening),
                tokenizer.token_id(closing),
                "word" if settings.get("quote_unit") == "word" else "sentence",
                settings.get("answer_prefix") == opening,
                tuple(map(tokenizer.token_id, settings.get("after_quote", ()))),
            )
        self._prompts: dict[str, DocumentPrompt] = {}  # by Document.id, the one used last at the end

    @property
    def stop_token_ids(self) -> frozenset[int]:
        return self.tokenizer.stop_token_ids

    def document(self, document: Document, heard: Callable[[PrefillProgress], None] = lambda progress: None
                 ) -> DocumentPrompt:
        """Return the fixed prefix of every conversation about this document. Those used last are remembered.

        heard: called after every few pages with how far it is."""
        key = document.id
        if key in self._prompts:
            self._prompts[key] = self._prompts.pop(key)
            return self._prompts[key]
        if document.blank and self._layout.plain is not None:
            return self._plain_prompt(document, self._layout.plain)
        labels = [" ".join(self.normalise(page.label).split())[:LONGEST_LABEL] for page in document.pages]
        texts = [self.normalise(page.text) for page in document.pages]
        assert texts, "a Document has at least one page"
        parts: list[tuple[list[int], np.ndarray]] = []
        started, length, tokens, letters = perf_counter(), sum(map(len, texts)), 0, 0
        for first in range(0, len(texts), _TOGETHER):
            some = slice(first, first + _TOGETHER)
            new = self._layout.pages(labels[some], texts[some])
            parts += new
            tokens, letters = tokens + sum(len(ids) for ids, _ in new), letters + sum(map(len, texts[some]))
            rate = tokens / max(perf_counter() - started, 1e-9)
            total = tokens * max(length, 1) // max(letters, 1)
            heard(PrefillProgress(tokens, total, rate, (total - tokens) / rate if tokens else None, "tokenize"))
        _join_over_page_breaks(parts, texts)
        ids: list[int] = list(self._layout.head)
        marks = [np.zeros(len(ids), np.uint8)]
        spans: list[PageSpan] = []
        for number, (page, (page_ids, page_marks)) in enumerate(zip(document.pages, parts, strict=True)):
            start = len(ids) if number else 0
            ids += page_ids
            marks.append(page_marks)
            if number == len(parts) - 1:
                ids += self._layout.tail
                marks.append(np.zeros(len(self._layout.tail), np.uint8))
            spans.append(PageSpan(page.label, start, len(ids)))
        prompt = DocumentPrompt(document, np.array(ids, np.int32), tuple(spans), np.concatenate(marks),
                                len(self._layout.tail))
        self._prompts[key] = prompt
        for old in list(self._prompts)[:-_REMEMBERED]:
            del self._prompts[old]
        return prompt

    def _plain_prompt(self, document: Document, plain: Plain) -> DocumentPrompt:
        """Return what every conversation without a document begins with, whatever its system text."""
        ids = np.array(plain.before, np.int32)
        tail = len(ids) - _alike(plain)
        return DocumentPrompt(document, ids, (PageSpan(document.pages[0].label, 0, len(ids)),),
                              np.zeros(len(ids), np.uint8), tail, plain=True)

    def after_document(self, prompt: DocumentPrompt, system: str) -> list[int]:
        """Return what stands between a document and the first question in a conversation with this system text: it
        takes the place of the document's last ``tail`` tokens. Raises ConfigError for a model that follows none."""
        words, plain = self.normalise(system).strip(), self._layout.plain
        if prompt.plain and plain is not None:
            start, between = plain.instructed
            ids = [*start, *self.tokenizer.encode(words), *between] if words else plain.before
            return ids[_alike(plain) :]
        return self._layout.instructed_tail(words) if words else list(self._layout.tail)

    def question(self, text: str, first: bool = True) -> list[int]:
        """Return one turn up to the point where the answer starts. first: directly after the document."""
        words = self.normalise(text).strip()
        if not words:
            raise ConfigError("The question is empty", remedy="Type a question about the document.")
        return self._layout.question(words, first)

    def after_answer(self, answer_ids: Sequence[int]) -> list[int]:
        """Return what must stand between a generated answer (its stop token included, if any) and the next question."""
        return self._layout.after_answer(answer_ids)

    def require_fit(self, prompt: DocumentPrompt, max_tokens: int) -> None:
        """Raise ContextTooLongError, which says which pages fit, where a document takes more than ``max_tokens``."""
        total, pages = len(prompt.token_ids), len(prompt.pages)
        if total <= max_tokens:
            return
        ends = [page.end + prompt.tail for page in prompt.pages[:-1]]
        count = sum(end <= max_tokens for end in ends)
        what = f"pages 1-{count} ({ends[count - 1]:,} tokens)" if count else "not even page 1"
        raise ContextTooLongError(f"The document is {total:,} tokens, {max_tokens:,} fit: {what} of {pages} pages",
                                  remedy=f"Choose a page range, such as 1-{max(1, count)}.")

    def places(self, prompt: DocumentPrompt, start: int, end: int) -> list[tuple[int, int, int]]:
        """Return context tokens [start, end) as (page index, first character, last + 1) in the pages' own text.

        By counting the letters behind them, not by searching: a sentence is not mistaken for its twin on the page. A
        page whose text and tokens do not agree letter by letter is left out."""
        found = []
        for index, first, last in prompt.split_by_page(start, end):
            marks = prompt.marks[first:last]
            if not prompt.marks[start] & Mark.NOTE:  # a sentence passes the notes between its two parts by
                marks = np.where(marks & Mark.NOTE, 0, marks)
            text = first + np.flatnonzero(marks & Mark.TEXT)
            if not len(text):
                continue
            behind = prompt.pages[index].end - (prompt.tail if index == len(prompt.pages) - 1 else 0)
            words, rest = self._solid(prompt.token_ids[text]), self._solid(prompt.token_ids[text[0] : behind])
            page, sources = spelt_letters(prompt.document.pages[index].text, self.normalise)
            if words and page.endswith(rest) and rest.startswith(words):
                at = len(page) - len(rest)
                found.append((index, sources[at], sources[at + len(words) - 1] + 1))
        return found

    def quote_places(self, prompt: DocumentPrompt, start: int, end: int) -> tuple[QuotePlace, ...]:
        """Return ``places``, with the pages' labels."""
        return tuple(QuotePlace(index + 1, prompt.pages[index].label, first, last,
                                bool(prompt.document.pages[index].words))
                     for index, first, last in self.places(prompt, start, end))

    def tokens_at(self, prompt: DocumentPrompt, place: QuotePlace) -> list[int]:
        """Return where in the context the tokens stand that hold these characters of a page, in order.

        Raises NotSpelledError where the page's text and its tokens do not agree letter by letter."""
        index = place.page - 1
        span = prompt.pages[index]
        tokens = span.start + np.flatnonzero(prompt.marks[span.start : span.end] & Mark.TEXT)
        text, sources = spelt_letters(prompt.document.pages[index].text, self.normalise)
        decoder = self.tokenizer.stream_decoder()
        spelt = ["".join(decoder.feed(int(token)).split()) for token in prompt.token_ids[tokens]]
        if "".join(spelt) != text:
            raise NotSpelledError(f"The model's tokens of page {place.label} do not agree with its text, so nothing of "
                                  "it is spelled")
        low, high = bisect_left(sources, place.start), bisect_left(sources, place.end)
        if low >= high:
            return []
        ends = np.cumsum([len(letters) for letters in spelt])
        first, last = np.searchsorted(ends, (low, high))  # the tokens that end at or behind these letters
        first += low > 0 and ends[first] == low  # what follows without letters is a blank, or part of a character
        return [int(token) for token in tokens[first : last + 1]]

    def _solid(self, token_ids: np.ndarray) -> str:
        """Return their letters; half a character at the end is none."""
        decoder = self.tokenizer.stream_decoder()
        return "".join("".join(decoder.feed(int(token)) for token in token_ids).split())


def _alike(plain: Plain) -> int:
    """Return how many tokens conversations with and without a system text begin with alike."""
    pairs = zip(plain.before, plain.instructed[0], strict=False)
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))


def _join_over_page_breaks(parts: list[tuple[list[int], np.ndarray]], texts: Sequence[str]) -> None:
    """Take the borders away where a sentence runs on from the foot of one page to the head of the next. Notes at the
    foot do not part it: their tokens are marked, so that quotations pass them by."""
    for number, text in enumerate(texts[:-1]):
        marks, after = parts[number][1], parts[number + 1][1]
        lines = [line.strip() for line in text.split("\n") if line.strip()]
        notes = sum(1 for _ in takewhile(NOTE.match, reversed(lines)))
        head = texts[number + 1].strip().split("\n", 1)[0].strip()
        ends, heads = np.flatnonzero(marks & Mark.LINE_END), np.flatnonzero(after & Mark.TEXT)
        if notes >= min(len(lines), len(ends)) or not len(heads) or NOTE.match(head):
            continue
        if runs_on(lines[-1 - notes], head):
            last = ends[-1 - notes]
            marks[last + 1 :][(marks[last + 1 :] & Mark.TEXT) != 0] |= np.uint8(Mark.NOTE)
            marks[last] &= np.uint8(~(Mark.LINE_END | Mark.SENTENCE_END) & 0xFF)
            after[heads[0]] &= np.uint8(~Mark.SENTENCE_START & 0xFF)
