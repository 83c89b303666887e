"""Checked quotations as the chat shows them: a chip that opens the page, or the words "not in the document".

Where decoding told where a quotation stands (``triforce_core.QuoteEvent``), that is taken; the others are looked up.
What was looked up once is kept: an answer never changes, and a chat of a hundred is drawn again with each new one.
"""

from __future__ import annotations

import html
import re
import threading
from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from triforce_core import Document

from ..app.quotes import KEPT_DOCUMENTS, LEAST, Found, Place, QuoteFinder, QuoteFinders, normal, spot
from . import markdown, page_names

QUOTE_MORE = "and {more} more places"
QUOTE_MISSING = "not found in the document"
NO_PASSAGE = "no passage found for this sentence"
NO_PASSAGE_HELP = ("No passage of the document holds enough of this sentence's words. It may still say the same in "
                   "other words.")

SHOWN = 3  # occurrences of one quotation that get a chip
_KEPT_ANSWERS = 400
_NAMED = re.compile(r"[\W_]{0,4}(?:pp?\.|pages?|S\.|Seite)\s*([\w-][\w.-]*)", re.IGNORECASE)


def named_page(after: str, labels: Iterable[str] = ()) -> str | None:
    """The label of the page that an answer names right behind a quotation: ' [p. 85].' -> '85'. labels: those that
    there are, as some have several words ("Moby Dick, 85"): the longest that stands there is meant."""
    match = _NAMED.match(after)
    if match is None:
        return None
    rest = after[match.start(1) :]
    whole = [label for label in labels if " " in label and rest.startswith(label)
             and not rest[len(label) :][:1].isalnum()]
    return max(whole, key=len, default=match[1].rstrip("."))


def chips(found: Found, labels: Sequence[str], named: str | None = None) -> str:
    """One button for each place where a quotation stands, those on the page that the answer names first."""
    made = []
    for occurrence in sorted(found.occurrences, key=lambda places: labels[places[0].page - 1] != named)[:SHOWN]:
        page = occurrence[0].page
        label = page_names.short(labels[page - 1])
        how = ("these words stand there" if found.share == 1
               else f"{int(found.share * 100)} % of these words stand there in one piece")
        title = f"{label}: {how}"
        if named and labels[page - 1] != named:
            title += f"; {f'the answer says p. {named}'}"
        made.append(f'<button type="button" class="tf-cite" data-action="page" data-page="{page}" '
                    f'data-spot="{spot(occurrence)}" title="{html.escape(title)}" aria-label="{html.escape(title)}">'
                    f"{html.escape(label)}{'' if found.share == 1 else ' ≈'}</button>")
    more = max(0, len(found.occurrences) - SHOWN) + found.more
    if more:
        made.append(f'<span class="tf-cite-more">{html.escape(QUOTE_MORE.format(more=more))}</span>')
    return "".join(made)


def missing() -> str:
    title = html.escape("The program looked for these words on every page and did not find them.")
    return f'<span class="tf-uncited" title="{title}">{html.escape(QUOTE_MISSING)}</span>'


def no_passage(text: str, support: Sequence[Mapping[str, Any]]) -> list[tuple[str, str]]:
    """(sentence, the HTML to put behind it) of each sentence of an answer for which no passage was found."""
    label, title = html.escape(NO_PASSAGE), html.escape(NO_PASSAGE_HELP)
    mark = f' <span class="tf-uncited" title="{title}">{label}</span>'
    return [(text[one["start"] : one["end"]], mark) for one in support if not one["found"]]


def decoded(text: str, quotes: Sequence[Mapping[str, Any]], document: Document) -> dict[str, Found]:
    """The letters of each closed quotation that decoding told of -> where it stands. quotes: of
    ``metrics.quotes_as_json``. Left out: what the pages don't say there (their text was taken out anew since), and
    letters that stand for two quotations with places of their own."""
    known: dict[str, Found | None] = {}
    for quote in quotes:
        words = _letters(text[quote["start"] : quote["end"]])
        listed = [tuple(Place(place["page"], place["start"], place["end"]) for place in occurrence["places"])
                  for occurrence in quote["occurrences"]]
        good = tuple(places for places in listed if words and _letters(_words(places, document)) == words)
        if not quote["closed"] or not good:
            continue
        found = Found(good, 1.0, quote["count"] - len(good))
        known[words] = found if known.get(words, found) == found else None
    return {words: found for words, found in known.items() if found is not None}


def _words(places: Sequence[Place], document: Document) -> str:
    return "".join(document.pages[place.page - 1].text[place.start : place.end] for place in places
                   if place.page <= len(document.pages))


def _letters(text: str) -> str:
    """What neither Markdown nor a model's spelling of punctuation changes."""
    return "".join(filter(str.isalnum, text))


def live(text: str, document: Document | None, quotes: Sequence[Mapping[str, Any]]) -> str:
    """An answer that is being written, as safe HTML: chips where decoding told of its quotations already; nothing is
    looked up."""
    if document is None or not quotes:
        return markdown.render(text)
    known, labels = decoded(text, quotes, document), _labels(document)
    return markdown.render(text, lambda words, after: _told(known, labels, words, after))


def _told(known: Mapping[str, Found], labels: Sequence[str], words: str, after: str) -> tuple[bool, str] | None:
    found = known.get(_letters(words))
    return (True, chips(found, labels, named_page(after, labels))) if found else None


def _labels(document: Document) -> list[str]:
    return [page.label for page in document.pages]


class _Checked:
    """One document's finder, and the answers that were checked with it. Thread-safe: two answers are drawn at once."""

    def __init__(self, document: Document, finder: QuoteFinder) -> None:
        self.document, self._finder = document, finder
        self._labels = _labels(document)
        self._answers: OrderedDict[tuple[str, str], str] = OrderedDict()
        self._lock = threading.Lock()

    def render(self, text: str, quotes: Sequence[Mapping[str, Any]], support: Sequence[Mapping[str, Any]]) -> str:
        key = (text, f"{quotes} {support}")
        made = self._answers.get(key)
        if made is None:
            known = decoded(text, quotes, self.document)
            made = markdown.render(text, lambda words, after: (
                _told(known, self._labels, words, after) or self._looked_up(words, after)), no_passage(text, support))
        with self._lock:
            self._answers[key] = made
            self._answers.move_to_end(key)
            if len(self._answers) > _KEPT_ANSWERS:
                self._answers.popitem(last=False)
        return made

    def _looked_up(self, words: str, after: str) -> tuple[bool, str] | None:
        if len(normal(words)) < LEAST:
            return None
        found = self._finder.find(words)
        return (True, chips(found, self._labels, named_page(after, self._labels))) if found else (False, missing())


class Citations:
    """Answers as safe HTML, every quotation looked up in the answer's document. Thread-safe."""

    def __init__(self, finders: QuoteFinders) -> None:
        self._finders = finders
        self._documents: OrderedDict[str, _Checked] = OrderedDict()
        self._lock = threading.Lock()

    def render(self, text: str, document: Document | None, key: str, quotes: Sequence[Mapping[str, Any]] = (),
               support: Sequence[Mapping[str, Any]] = ()) -> str:
        """key: of the document in the library. document: None where its text is gone; then nothing is looked up.
        quotes: what decoding told, as ``metrics.quotes_as_json`` has it; support: as ``metrics.support_as_json``."""
        if document is None:
            return markdown.render(text, notes=no_passage(text, support))
        return self._checked(document, key).render(text, quotes, support)  # unlocked: one may take long

    def _checked(self, document: Document, key: str) -> _Checked:
        known = self._documents.get(key)
        if known is None or known.document is not document:
            known = _Checked(document, self._finders.of(document))
        with self._lock:
            self._documents[key] = known
            self._documents.move_to_end(key)
            if len(self._documents) > KEPT_DOCUMENTS:
                self._documents.popitem(last=False)
        return known
