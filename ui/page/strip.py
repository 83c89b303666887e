"""The strip of the document: where the answer looked, and the passages that got most of the attention."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from functools import partial
from math import sqrt
from typing import Any

import gradio as gr

from triforce_core import Document

from ..app.accumulator import above
from ..app.library import Ranges
from ..app.quotes import spot
from ..app.services import Services
from ..app.tab_view import TabView
from . import page_names
from .figures import being_written, shown_answer, shown_key
from .html import esc, part_colour
from .panel import Panel, block
from .passages import PASSAGES, Passage, passages, shown

STRIP = "Where the answer looked"
STRIP_ALL = ("Attention, not evidence: how much of the model's attention each page got. The last pages get much of it "
             "whatever is asked. Outlined: quoted in this answer. Click a page to read it.")
STRIP_ABOVE = ("Attention, not evidence: what each page got beyond what it gets whatever is asked. Outlined: quoted in "
               "this answer. Click a page to read it.")
STRIP_REMOTE = "Not available: the remote server does not report where it looked. Click a page to read it."
NOT_READ = "not in context"

LEAST_ABOVE = 0.1  # of the largest share: a page is tall only with so much beyond the usual


def intensity(share: float, top: float) -> float:
    """Height of a page in the strip: square root, so that small shares stay visible beside one large."""
    return sqrt(share / top) if top > 0 and share > 0 else 0.0


def bars(labels: Sequence[str], shares: Sequence[float], *, first_page: int = 1, selected: int | None = None,
         read: Sequence[tuple[int, int]] | None = None, parts: Sequence[int] = (),
         heights: Sequence[float] | None = None, cited: Collection[int] = ()) -> str:
    """The whole document, page by page. shares[0] belongs to page ``first_page``; pages in none of the ranges ``read``
    are hollow. parts: pages of each of several documents, told apart by colour. heights: of the bars, where they
    show what of the shares is unusual. cited: pages that the answer quotes, outlined.

    The first page is a tab stop, arrow keys move on from there (600 tab stops would lock a keyboard user in)."""
    least = 0.0 if heights is None else LEAST_ABOVE * max(shares, default=0.0)
    heights = shares if heights is None else heights
    top = max([*heights, least])
    inside = {page for low, high in read or ((1, len(labels)),) for page in range(low, high + 1)}
    cells = []
    part_of = [part for part, pages in enumerate(parts) for _ in range(pages)]
    for number, label in enumerate(labels, start=1):
        index = number - first_page
        told = 0 <= index < len(shares)
        share, height = (shares[index], heights[index]) if told else (0.0, 0.0)
        title = page_names.long(label)
        if number not in inside:
            title += f" · {NOT_READ}"
        elif shares:
            title += f" · {share * 100:.1f} %"
        title += f" · {'quoted in the answer'}" if number in cited else ""
        marks = [mark for mark, is_so in (("tf-out", number not in inside), ("tf-cited", number in cited),
                                          ("tf-selected", number == selected)) if is_so]
        marks += [part_colour(part_of[number - 1])] if part_of else []
        cells.append(_cell(number, title, intensity(height, top), marks, is_stop=number == (selected or 1)))
    density = "tf-few" if len(labels) <= 30 else "tf-many" if len(labels) > 240 else ""
    return f'<div class="tf-strip {density}" role="group" aria-label="{esc(STRIP)}">{"".join(cells)}</div>'


def _cell(number: int, title: str, height: float, marks: Sequence[str], *, is_stop: bool) -> str:
    """One page of the strip. is_stop: the tab key stops there."""
    return (f'<button type="button" class="{" ".join(("tf-page", *marks))}" data-action="page" data-page="{number}" '
            f'tabindex="{"0" if is_stop else "-1"}" style="--i:{height:.3f}" title="{esc(title)}" '
            f'aria-label="{esc(title)}"></button>')


LEAST_OTHERS = 2  # answers that make a mean
MOST_PASSAGES = 3  # that are shown


def strip_section(document: Document, shares: Sequence[float], attended: Sequence[Passage], *, first_page: int,
                  selected: int | None, read: Ranges, reported: bool = True,
                  parts: Sequence[int] = (), usual: Sequence[float] = (), cited: Collection[int] = ()) -> str:
    """The strip, what it means, and the passages that got most of the attention, of ``attended``, the first ones first.
    reported: whether the engine can. usual: shares that every answer has; bars show what is above them. cited: as of
    ``bars``."""
    labels, heights = [page.label for page in document.pages], above(shares, usual) if usual else None
    drawn = bars(labels, shares, first_page=first_page, selected=selected, read=read, parts=parts,
                 heights=heights, cited=cited)
    note = "Each bar is a page. Bars grow while an answer is written." if reported else STRIP_REMOTE
    if shares:
        note = STRIP_ABOVE if usual else STRIP_ALL
    lines = [f'<h3 class="tf-h">{esc(STRIP)}</h3>{drawn}', f'<p class="tf-note">{esc(note)}</p>']
    # Without the usual shares, passages are the newest of the document, whatever was asked; and where pages have bars,
    # one on a page without would contradict the strip.
    tall = {first_page + at for at, height in enumerate(heights or ()) if height > 0 or not any(heights or ())}
    found = [
        f'<li><button type="button" class="tf-passage" data-action="page" data-page="{passage.number}" '
        f'data-spot="{spot([passage.place])}">'
        f"<b>{esc(page_names.long(passage.label))}</b> "
        f'<span class="tf-muted">{passage.share * 100:.1f} %</span> {esc(shown(passage.text))}</button></li>'
        for passage in [passage for passage in attended if passage.number in tall][:MOST_PASSAGES]]
    if found:
        lines.append(f'<h4 class="tf-h4">{esc(PASSAGES)}</h4><ul class="tf-passages">{"".join(found)}</ul>')
    return "".join(lines)


def usual_shares(shares: Sequence[float], result: Mapping[str, Any], others: Sequence[Mapping[str, Any]]
                 ) -> tuple[float, ...]:
    """What any question draws to each page, such as to the last: what the engine found (result: of the answer that is
    shown), or else the mean over other answers from the same pages by the same model. () where there are fewer than
    LEAST_OTHERS."""
    if shares and len(result.get("usual_shares", ())) == len(shares):
        return tuple(result["usual_shares"])
    like = [other["page_shares"] for other in others if len(other.get("page_shares", ())) == len(shares) and all(
        other.get(name) == result.get(name) for name in ("first_page", "ranges", "model"))]
    if len(like) < LEAST_OTHERS or not shares:
        return ()
    return tuple(sum(column) / len(like) for column in zip(*like, strict=True))


def cited_pages(result: Mapping[str, Any]) -> frozenset[int]:
    """Pages on which the answer's quotations stand, as decoding told of them."""
    return frozenset(place["page"] for quote in result.get("quotes", ()) if quote["closed"]
                     for occurrence in quote["occurrences"] for place in occurrence["places"])


MOST_USUAL = 12  # of which the usual attention is the mean


def build() -> gr.HTML:
    return block("strip", clicks=True)


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
        """What any question draws to each page, and the pages that the shown answer quotes, if it has ended."""
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
