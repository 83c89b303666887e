"""The strip of the document, and the passages that got most of the attention."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from triforce_core import Document, merge_ranges

from ..state.library import Ranges
from ..words import strip as strip_words
from . import charts, page_names
from .charts import esc
from .citations import spot
from .passages import Passage, shown


def strip_section(document: Document, shares: Sequence[float], attended: Sequence[Passage], *, first_page: int,
                  selected: int | None, read: Ranges, reported: bool = True,
                  parts: Sequence[int] = ()) -> str:
    """The strip, what it means, and the passages that got most of the attention. reported: whether the engine can."""
    labels = [page.label for page in document.pages]
    drawn = charts.strip(labels, shares, first_page=first_page, selected=selected, read=read, parts=parts)
    note = strip_words.STRIP_HELP if shares else strip_words.STRIP_EMPTY if reported else strip_words.STRIP_REMOTE
    lines = [f'<h3 class="tf-h">{esc(strip_words.STRIP)}</h3>{drawn}', f'<p class="tf-note">{esc(note)}</p>']
    found = [
        f'<li><button type="button" class="tf-passage" data-action="page" data-page="{passage.number}" '
        f'data-spot="{spot([passage.place])}">'
        f"<b>{esc(page_names.long(passage.label))}</b> "
        f'<span class="tf-muted">{passage.share * 100:.1f} %</span> {esc(shown(passage.text))}</button></li>'
        for passage in attended]
    if found:
        lines.append(f'<h4 class="tf-h4">{esc(strip_words.PASSAGES)}</h4><ul class="tf-passages">{"".join(found)}</ul>')
    return "".join(lines)


def pages_read(result: dict[str, Any]) -> Ranges:
    """The pages that an answer was written from, whatever is chosen now; () where nothing tells. Older versions kept
    shares alone: from the first page that was read to the last, those left out between them have none."""
    if result.get("ranges"):
        return tuple((first, last) for first, last in result["ranges"])
    first, shares = result.get("first_page", 1), result.get("page_shares", ())
    return merge_ranges((first + n, first + n) for n, share in enumerate(shares) if share)
