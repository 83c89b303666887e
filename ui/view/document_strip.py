"""The strip of the document, and the passages that got most of the attention."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from triforce_core import Document, merge_ranges

from ..page.html import esc
from ..state.library import Ranges
from ..state.page_shares import above
from ..state.quotes import spot
from ..words import strip as strip_words
from . import charts, page_names
from .passages import Passage, shown

LEAST_OTHERS = 2  # answers that make a mean
MOST_PASSAGES = 3  # that are shown


def strip_section(document: Document, shares: Sequence[float], attended: Sequence[Passage], *, first_page: int,
                  selected: int | None, read: Ranges, reported: bool = True,
                  parts: Sequence[int] = (), usual: Sequence[float] = (), cited: Collection[int] = ()) -> str:
    """The strip, what it means, and the passages that got most of the attention, of ``attended``, the first ones first.
    reported: whether the engine can.
    usual: shares that every answer has; bars show what is above them. cited: as of ``charts.strip``."""
    labels, heights = [page.label for page in document.pages], above(shares, usual) if usual else None
    drawn = charts.strip(labels, shares, first_page=first_page, selected=selected, read=read, parts=parts,
                         heights=heights, cited=cited)
    note = strip_words.STRIP_EMPTY if reported else strip_words.STRIP_REMOTE
    if shares:
        note = strip_words.STRIP_ABOVE if usual else strip_words.STRIP_ALL
    lines = [f'<h3 class="tf-h">{esc(strip_words.STRIP)}</h3>{drawn}', f'<p class="tf-note">{esc(note)}</p>']
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
        lines.append(f'<h4 class="tf-h4">{esc(strip_words.PASSAGES)}</h4><ul class="tf-passages">{"".join(found)}</ul>')
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


def pages_read(result: dict[str, Any]) -> Ranges:
    """The pages that an answer was written from, whatever is chosen now; () where nothing tells. Older versions kept
    shares alone: from the first page that was read to the last, those left out between them have none."""
    if result.get("ranges"):
        return tuple((first, last) for first, last in result["ranges"])
    first, shares = result.get("first_page", 1), result.get("page_shares", ())
    return merge_ranges((first + n, first + n) for n, share in enumerate(shares) if share)
