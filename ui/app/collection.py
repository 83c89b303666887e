"""Documents that are read together: what each takes of the context, and what to leave out where all is too much."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from triforce_core import DocumentFit, TriForceError

from .context_budget import Part, answer_room, fitting_pages
from .estimates import LETTERS_A_TOKEN
from .library import PART_MISSING, Entry, Library, Ranges
from .queue import Queue


@dataclass(frozen=True)
class Weighing:
    """parts: what each document takes. most: tokens that fit; room: kept beside them; 0: not known (of
    ``most``: so long as no model is loaded)."""

    parts: tuple[Part, ...]
    most: int
    room: int

    @property
    def over(self) -> int:
        return sum(part.tokens for part in self.parts) - self.most

    @property
    def enough(self) -> list[Part]:
        """Those of which leaving out one is enough, the smallest first."""
        return sorted((part for part in self.parts if part.tokens >= self.over > 0), key=lambda part: part.tokens)


class DocumentCollection:
    """Weighs documents by what the engine has counted, and estimates the others from their letters."""

    def __init__(self, library: Library, queue: Queue) -> None:
        self._library, self._queue = library, queue

    def weigh(self, keys: Sequence[str]) -> Weighing:
        """Documents that somebody may want to read together."""
        entries = [entry for entry in map(self._library.get, keys) if entry is not None]
        (most, room), letters = self._room(), self._letters()
        return Weighing(tuple(self._part(entry, letters) for entry in entries), most, room)

    def of(self, entry: Entry) -> Weighing | None:
        """Documents that are read together, by the pages that were chosen of them; None until they were counted."""
        fit = self.fit(entry)
        if fit is None or not entry.parts:
            return None
        return Weighing(tuple(Part(title, tokens, fit.estimated) for title, tokens in self.split(
            entry, fit, entry.ranges)), fit.max_tokens, answer_room(fit, self._context))

    def fit(self, entry: Entry) -> DocumentFit | None:
        """What was counted of the pages that it has now; None where its text was taken out anew since."""
        fit = self._queue.fits.get(entry.id)
        return fit if fit is not None and len(fit.page_tokens) == entry.pages else None

    def suggestion(self, entry: Entry) -> Ranges:
        """The pages to offer: those chosen before, or as many from the start as fit."""
        fit = self.fit(entry)
        if fit is None or fit.fits or entry.chosen:
            return entry.ranges
        whole = [sum(part.pages for part in self._library.parts(entry)[: n + 1]) for n in range(len(entry.parts))]
        fitting = [pages for pages in whole if sum(fit.page_tokens[:pages]) <= fit.max_tokens]
        if fitting:  # of several documents, those that fit whole
            return ((1, fitting[-1]),)
        return ((1, max(1, fitting_pages(fit))),)

    def words_per_token(self, entry: Entry) -> float | None:
        """Measured on the document with the loaded model; None where nobody counted both."""
        tokens = self._counted(entry)
        return entry.words / tokens if tokens and entry.words else None

    def split(self, entry: Entry, fit: DocumentFit, ranges: Sequence[tuple[int, int]]) -> list[tuple[str, int]]:
        """Title and tokens of each of its documents, of the pages in ``ranges``."""
        wanted = {page for first, last in ranges for page in range(first, last + 1)}
        found, before = [], 0
        for part in self._library.parts(entry):
            pages = range(before + 1, before + part.pages + 1)
            found.append((part.title or part.name, sum(fit.page_tokens[page - 1] for page in pages if page in wanted)))
            before += part.pages
        return found

    def combine(self, keys: Sequence[str]) -> Entry:
        """Raises TriForceError where there are too few, or one cannot be read."""
        for entry in filter(None, map(self._library.get, keys)):
            if entry.state != "ready":
                raise TriForceError(PART_MISSING)
        return self._library.combine(keys)

    @property
    def _context(self) -> int:
        return self._queue.model.max_context if self._queue.model else 0

    def _room(self) -> tuple[int, int]:
        """Tokens that fit, and those kept beside them, as the engine told of the last document that it counted."""
        last = next(reversed(self._queue.fits.values()), None)
        return (last.max_tokens, answer_room(last, self._context)) if last else (self._context, 0)

    def _letters(self) -> float:
        """Letters that make a token, by all documents that were counted."""
        known = [(each.characters, tokens) for each in self._library.entries() if (tokens := self._counted(each))]
        letters = sum(characters for characters, _ in known)
        return letters / sum(tokens for _, tokens in known) if letters else LETTERS_A_TOKEN

    def _part(self, entry: Entry, letters: float) -> Part:
        """letters: that make a token."""
        counted = self._counted(entry)
        return Part(entry.title or entry.name, counted or round(entry.characters / letters), not counted)

    def _counted(self, entry: Entry) -> int:
        """Tokens of the whole document with this model; 0 where nobody counted them."""
        fit = self._queue.fits.get(entry.id)
        if fit is not None:
            return 0 if fit.estimated else fit.tokens
        model = self._queue.model.name if self._queue.model else ""
        return (entry.tokens or 0) if not entry.chosen and entry.read_with == model else 0
