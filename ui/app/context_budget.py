"""Tokens of the context: of each document that is read together, kept for answers, and of a conversation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from triforce_core import DocumentFit

from .accumulator import figures_of
from .conversations import Answer
from .jobs import FRAME, LETTERS_A_TOKEN, SLACK
from .library import Entry, Library, Ranges
from .queue import Queue

TOKENS_A_WORD = 1.5  # of a question that nobody counted
LEAST_ANSWER = 32  # tokens: with fewer left, nothing worth reading is written


@dataclass(frozen=True)
class ContextUse:
    """Tokens of the open document and of a conversation about it, of ``most`` in all. longest: of an answer."""

    document: int
    conversation: int
    most: int
    longest: int

    @property
    def left(self) -> int:
        return max(0, self.most - self.document - self.conversation)

    @property
    def state(self) -> Literal["", "near", "full"]:
        """Return how full it is. near: the next answer may not be as long as it might."""
        if not self.conversation:
            return ""  # the room that every document leaves
        if self.left < LEAST_ANSWER:
            return "full"
        return "near" if self.left < min(self.longest, (self.most - self.document) // 2) else ""


@dataclass(frozen=True)
class Part:
    """One document or choice of pages. estimated: its tokens were not counted."""

    title: str
    tokens: int
    estimated: bool = False


@dataclass(frozen=True)
class Weighing:
    """Documents and the tokens that they take. most: tokens that fit, 0 so long as no model is loaded. room: kept
    beside them, 0 where that is not known."""

    parts: tuple[Part, ...]
    most: int
    room: int

    @property
    def over(self) -> int:
        return sum(part.tokens for part in self.parts) - self.most

    @property
    def enough(self) -> list[Part]:
        """Return those of which leaving out one is enough, the smallest first."""
        return sorted((part for part in self.parts if part.tokens >= self.over > 0), key=lambda part: part.tokens)


def conversation_tokens(answers: Sequence[Answer], document: int, ranges: Ranges, model: str) -> int:
    """Return the tokens of a conversation beside the document: as the engine counted with the last answer, or estimated
    where that was written from other pages or by another model, or not to its end."""
    if not answers:
        return 0
    last = answers[-1]
    figures = figures_of(last.result)
    counted = figures.prompt_tokens + figures.reused_tokens
    same = [list(pages) for pages in ranges] == [list(pages) for pages in last.result.get("ranges", ())]
    if counted > document and same and last.result.get("model") == model and not last.result.get("carried"):
        return counted + figures.tokens - document
    return sum(taken(answer) for answer in answers)


def taken(answer: Answer) -> int:
    """Return the tokens of an exchange, about."""
    return len(answer.token_ids) + round(TOKENS_A_WORD * len(answer.question.split())) + FRAME


def fitting_pages(fit: DocumentFit) -> int:
    """Return how many pages fit, taken from the start."""
    total = 0
    for page, tokens in enumerate(fit.page_tokens):
        total += tokens
        if total > fit.max_tokens - SLACK:
            return page
    return len(fit.page_tokens)


def answer_room(fit: DocumentFit, context: int) -> int:
    """Return the tokens kept for questions and answers; 0 where memory is the limit or the context is not known."""
    return max(0, context - fit.max_tokens) if fit.limited_by == "context" else 0


class DocumentCollection:
    """Documents that are read together: weighed by what the engine has counted, or else by their letters."""

    def __init__(self, library: Library, queue: Queue) -> None:
        self._library, self._queue = library, queue

    def weigh(self, keys: Sequence[str]) -> Weighing:
        """Weigh documents that somebody may want to read together."""
        entries = [entry for entry in map(self._library.get, keys) if entry is not None]
        counts = [(each.characters, tokens) for each in self._library.entries() if (tokens := self._counted(each))]
        letters = sum(characters for characters, _ in counts) / sum(tokens for _, tokens in counts) if counts else 0
        parts = []
        for entry in entries:
            counted = self._counted(entry)
            estimate = round(entry.characters / (letters or LETTERS_A_TOKEN))
            parts.append(Part(entry.title or entry.name, counted or estimate, not counted))
        last = next(reversed(self._queue.fits.values()), None)  # what is free now goes by it
        if last is None:
            return Weighing(tuple(parts), self._context, 0)
        return Weighing(tuple(parts), last.max_tokens, answer_room(last, self._context))

    def of(self, entry: Entry) -> Weighing | None:
        """Weigh documents that are read together, by the pages chosen of them; None until they were counted."""
        fit = self.fit(entry)
        if fit is None or not entry.parts:
            return None
        return Weighing(tuple(Part(title, tokens, fit.estimated) for title, tokens in self.split(
            entry, fit, entry.ranges)), fit.max_tokens, answer_room(fit, self._context))

    def fit(self, entry: Entry) -> DocumentFit | None:
        """Return what was counted of the pages that it has now; None where its text was taken out anew since."""
        fit = self._queue.fits.get(entry.id)
        return fit if fit is not None and len(fit.page_tokens) == entry.pages else None

    def suggestion(self, entry: Entry) -> Ranges:
        """Return the pages to offer: those chosen before, or as many from the start as fit."""
        fit = self.fit(entry)
        if fit is None or fit.fits or entry.chosen:
            return entry.ranges
        whole = [sum(part.pages for part in self._library.parts(entry)[: n + 1]) for n in range(len(entry.parts))]
        fitting = [pages for pages in whole if sum(fit.page_tokens[:pages]) <= fit.max_tokens]
        if fitting:  # of several documents, those that fit whole
            return ((1, fitting[-1]),)
        return ((1, max(1, fitting_pages(fit))),)

    def words_per_token(self, entry: Entry) -> float | None:
        """Return the ratio measured with the loaded model; None where nobody counted both."""
        tokens = self._counted(entry)
        return entry.words / tokens if tokens and entry.words else None

    def split(self, entry: Entry, fit: DocumentFit, ranges: Sequence[tuple[int, int]]) -> list[tuple[str, int]]:
        """Return title and tokens of each of its documents, of the pages in ``ranges``."""
        wanted = {page for first, last in ranges for page in range(first, last + 1)}
        found, before = [], 0
        for part in self._library.parts(entry):
            pages = range(before + 1, before + part.pages + 1)
            found.append((part.title or part.name, sum(fit.page_tokens[page - 1] for page in pages if page in wanted)))
            before += part.pages
        return found

    @property
    def _context(self) -> int:
        return self._queue.model.max_context if self._queue.model else 0

    def _counted(self, entry: Entry) -> int:
        """Return the tokens of the whole document with this model; 0 where nobody counted them."""
        fit = self._queue.fits.get(entry.id)
        if fit is not None:
            return 0 if fit.estimated else fit.tokens
        model = self._queue.model.reader if self._queue.model else ""
        return (entry.tokens or 0) if not entry.chosen and entry.read_with == model else 0
