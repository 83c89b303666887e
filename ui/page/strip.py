"""The strip of the document: where the answer looked, and the sentences that got most of the attention.

A chunk that was attended is eight tokens or so and begins in the middle of a word; what is shown is the sentence around
it, found again in the page's text, and chunks of one sentence add up. One that is not found word for word is left out.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from math import sqrt
from typing import Any

from triforce_core import Document

from ..app.accumulator import above
from ..app.library import Ranges
from ..app.quotes import Place, spot
from ..app.services import Services
from ..app.tab_view import TabView
from . import formatting as fmt
from .figures import being_written, shown_answer, shown_key
from .html import esc, part_colour
from .markdown import BY_OCR
from .panel import Outputs, Panel, block

STRIP = "Where the answer looked"
STRIP_ALL = ("Attention, not evidence: how much of the model's attention each page got. The last pages get much of it "
             "whatever is asked. Outlined: quoted in this answer. Click a page to read it.")
STRIP_ABOVE = ("Attention, not evidence: what each page got beyond what it gets whatever is asked. Outlined: quoted in "
               "this answer. Click a page to read it.")
STRIP_REMOTE = "Not available: a server does not report where it looked. Click a page to read it."
PASSAGES = "Most attended passages"

LEAST_ABOVE = 0.1  # of the largest share: a page is tall only with so much beyond the usual
LEAST_OTHERS = 2  # answers that make a mean
MOST_USUAL = 12  # answers of which the usual attention is the mean
MOST_PASSAGES = 3  # that are shown
LEAST_WORDS = 3  # of a sentence: "95." is none
LONGEST = 420  # characters shown of one sentence: of most, all
_END = re.compile(r"[.!?…][\"'”’)\]]*\s|\n\s*\n")


@dataclass(frozen=True)
class Passage:
    """One sentence: page number (from 1), the share of the attention, its words and where they stand."""

    number: int
    share: float
    text: str
    start: int = 0

    @property
    def place(self) -> Place:
        return Place(self.number, self.start, self.start + len(self.text))


def passages(chunks: Sequence[Mapping[str, Any]], document: Document, most: int = MOST_PASSAGES) -> list[Passage]:
    """Return the most attended sentences, the first one first."""
    shares: dict[tuple[int, int, int], float] = {}
    for chunk in chunks:
        number = chunk.get("page")
        if not isinstance(number, int) or not 1 <= number <= len(document.pages):
            continue
        page = document.pages[number - 1].text
        place = sentence(page, str(chunk.get("text", "")))
        if place and len(page[slice(*place)].split()) >= LEAST_WORDS:
            shares[number, *place] = shares.get((number, *place), 0.0) + float(chunk.get("share", 0.0))
    ranked = sorted(shares.items(), key=lambda item: -item[1])[:most]
    return [Passage(number, share, document.pages[number - 1].text[start:end], start)
            for (number, start, end), share in ranked]


def sentence(page: str, chunk: str) -> tuple[int, int] | None:
    """Return where the sentence of the page around a chunk begins and ends, or None if the chunk's words are not there,
    or more than once (which of them was attended is not known)."""
    words = chunk.split()
    if len("".join(words)) < 6:
        return None
    matches = list(islice(re.finditer(r"\s+".join(map(re.escape, words)), page), 2))
    if len(matches) != 1:
        return None
    middle = sum(matches[0].span()) // 2
    low, high = max(0, middle - LONGEST), min(len(page), middle + LONGEST)
    ends = [end.end() for end in _END.finditer(page, low, high)]
    start = max((end for end in ends if end <= middle), default=_word(page, max(0, middle - LONGEST // 2)))
    stop = min((end for end in ends if end > middle), default=_word(page, min(len(page), middle + LONGEST // 2)))
    text = page[start:stop]
    start, stop = start + len(text) - len(text.lstrip()), stop - len(text) + len(text.rstrip())
    return (start, stop) if start < stop else None


def _word(page: str, at: int) -> int:
    """Return where the word begins that a place lies in."""
    while 0 < at < len(page) and not page[at - 1].isspace():
        at -= 1
    return at


def shown(text: str) -> str:
    """Return a text short enough for a list; a longer one ends after a whole word."""
    return textwrap.shorten(text, LONGEST, placeholder=" …", break_on_hyphens=False)


def bars(titles: Sequence[str], shares: Sequence[float], *, first_page: int = 1, selected: int | None = None,
         read: Sequence[tuple[int, int]] | None = None, parts: Sequence[int] = (),
         heights: Sequence[float] | None = None, cited: Collection[int] = ()) -> str:
    """Return the whole document, page by page. shares[0] belongs to page ``first_page``; pages in none of the ranges
    ``read`` are hollow. parts: pages of each of several documents, told apart by colour. heights: of the bars, where
    they show what of the shares is unusual. cited: pages that the answer quotes, outlined.

    The first page is a tab stop, arrow keys move on from there (600 tab stops would lock a keyboard user in)."""
    least = 0.0 if heights is None else LEAST_ABOVE * max(shares, default=0.0)
    heights = shares if heights is None else heights
    top = max([*heights, least])
    inside = {page for low, high in read or ((1, len(titles)),) for page in range(low, high + 1)}
    part_of = [part for part, pages in enumerate(parts) for _ in range(pages)]
    cells = []
    for number, title in enumerate(titles, start=1):
        index = number - first_page
        share, height = (shares[index], heights[index]) if 0 <= index < len(shares) else (0.0, 0.0)
        if number not in inside:
            title += " · not in context"
        elif shares:
            title += f" · {share * 100:.1f} %"
        title = esc(f"{title} · quoted in the answer" if number in cited else title)
        marks = [mark for mark, is_so in (("tf-out", number not in inside), ("tf-cited", number in cited),
                                          ("tf-selected", number == selected)) if is_so]
        marks += [part_colour(part_of[number - 1])] if part_of else []
        # The square root keeps small shares visible beside one large.
        tall = sqrt(height / top) if top > 0 and height > 0 else 0.0
        cells.append(f'<button type="button" class="{" ".join(("tf-page", *marks))}" data-action="page" '
                     f'data-page="{number}" tabindex="{"0" if number == (selected or 1) else "-1"}" '
                     f'style="--i:{tall:.3f}" title="{title}" aria-label="{title}"></button>')
    density = "tf-few" if len(titles) <= 30 else "tf-many" if len(titles) > 240 else ""
    return f'<div class="tf-strip {density}" role="group" aria-label="{STRIP}">{"".join(cells)}</div>'


def strip_section(document: Document, shares: Sequence[float], attended: Sequence[Passage], *, first_page: int,
                  selected: int | None, read: Ranges, reported: bool = True,
                  parts: Sequence[int] = (), usual: Sequence[float] = (), cited: Collection[int] = ()) -> str:
    """Return the strip, what it means, and the first of the ``attended`` passages. reported: whether the engine tells
    shares. usual: shares that every answer has; bars show what is above them. cited: as in ``bars``."""
    titles = [fmt.page_title(document, page) for page in range(1, len(document.pages) + 1)]
    heights = above(shares, usual) if usual else None
    drawn = bars(titles, shares, first_page=first_page, selected=selected, read=read, parts=parts,
                 heights=heights, cited=cited)
    note = "Each bar is a page. Bars grow while an answer is written." if reported else STRIP_REMOTE
    if shares:
        note = STRIP_ABOVE if usual else STRIP_ALL
    lines = [f'<h3 class="tf-h">{STRIP}</h3>{drawn}', f'<p class="tf-note">{esc(note)}</p>']
    # Without the usual shares, passages are the newest of the document, whatever was asked; and where pages have bars,
    # one on a page without would contradict the strip.
    tall = {first_page + at for at, height in enumerate(heights or ()) if height > 0 or not any(heights or ())}
    found = [
        f'<li><button type="button" class="tf-passage" data-action="page" data-page="{passage.number}" '
        f'data-spot="{spot([passage.place])}">'
        f"<b>{esc(fmt.page_title(document, passage.number))}</b> "
        f'<span class="tf-muted">{BY_OCR if document.pages[passage.number - 1].words else ""}</span> '
        f'<span class="tf-muted">{passage.share * 100:.1f} %</span> {esc(shown(passage.text))}</button></li>'
        for passage in [passage for passage in attended if passage.number in tall][:MOST_PASSAGES]]
    if found:
        lines.append(f'<h4 class="tf-h4">{PASSAGES}</h4><ul class="tf-passages">{"".join(found)}</ul>')
    return "".join(lines)


def usual_shares(shares: Sequence[float], result: Mapping[str, Any], others: Sequence[Mapping[str, Any]]
                 ) -> tuple[float, ...]:
    """Return what any question draws to each page: what the engine found (result: of the shown answer), or else, as for
    a streamed cache, the mean over other answers from the same pages by the same model; () for too few."""
    if shares and len(result.get("usual_shares", ())) == len(shares):
        return tuple(result["usual_shares"])
    like = [other["page_shares"] for other in others if len(other.get("page_shares", ())) == len(shares) and all(
        other.get(name) == result.get(name) for name in ("first_page", "ranges", "model"))]
    if len(like) < LEAST_OTHERS or not shares:
        return ()
    return tuple(sum(column) / len(like) for column in zip(*like, strict=True))


def cited_pages(result: Mapping[str, Any]) -> frozenset[int]:
    """Return the pages on which the answer's quotations stand, as decoding reported them."""
    return frozenset(place["page"] for quote in result.get("quotes", ()) if quote["closed"]
                     for occurrence in quote["occurrences"] for place in occurrence["places"])


def build() -> Outputs:
    return {"strip": block("strip", clicks=True)}


def panels(services: Services) -> list[Panel]:
    library = services.library

    def draw(view: TabView) -> str:
        entry = library.get(view.document)
        document = library.document(entry.id) if entry and entry.state == "ready" else None
        if document is None or entry is None:
            return ""
        _, shares, chunks, first_page, read, _ = shown_answer(services, view)
        usual, cited = beside(view, shares)
        return strip_section(document, shares, passages(chunks, document, 3 * MOST_PASSAGES), first_page=first_page,
                             selected=view.page, read=read or entry.ranges, reported=not services.sends_to,
                             parts=[part.pages for part in library.parts(entry)] if entry.parts else (),
                             usual=usual, cited=cited)

    def beside(view: TabView, shares: Sequence[float]) -> tuple[tuple[float, ...], frozenset[int]]:
        """Return the usual shares, and the pages that the shown answer quotes, if it has ended."""
        run = services.running(view)
        if run:
            return run.accumulator.usual_shares, frozenset()
        answers = services.conversations.answers(view.conversation) if view.conversation else []
        if not answers:
            return (), frozenset()
        last = answers[-1]
        others = [other.result for other in services.conversations.recent(view.document or "", MOST_USUAL)
                  if other.id != last.id and other.question != last.question]
        return usual_shares(shares, last.result, others), cited_pages(last.result)

    return [Panel("strip", lambda view: (shown_key(services, view), view.page, library.version), draw, 0.4,
                  partial(being_written, services))]
