"""The page view: its shell, drawn once, what is open in it, and the text layer over a page's picture.

reader.js shows the pages that ``server.routes`` sends.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence

from triforce_core import PageLayout

from ..app.quotes import Normal, occurrences, places, spot
from ..app.services import Services
from ..app.tab_view import TabView
from . import formatting as fmt
from .html import esc
from .panel import Actions, Outputs, Panel, block

PAGE_EMPTY = "This page has no text."
PAGE_BROKEN = "This page cannot be shown now."
FIND_BROKEN = "Search failed: Enter tries again"
LARGER = "Larger"
THUMBNAILS = "All pages"
LINK = "Copy a link to this page"
LINKED = "Link copied"
FIND = "Find in the document"
NEXT = "Next page"
LINK_SIGN = ('<svg viewBox="0 0 16 16" width="15" height="15" fill="none" stroke="currentColor" stroke-width="1.6" '
             'stroke-linecap="round" aria-hidden="true"><path d="M6.5 9.5l3-3M7 4.6l1.5-1.5a2.8 2.8 0 0 1 4 4L11 8.6'
             'M9 11.400l-1.500 1.500a2.800 2.800 0 0 1-4-4L5 7.400"/></svg>')

AROUND = (0, 15, 40, 100)  # characters on either side by which one of several places is recognised
GAP = 1.2  # line heights: a wider gap between two characters begins another piece of text
_PART = re.compile(r"(?:\[\d+\] |\| )?((?:(?! \| |\n).)+)")  # a line, a cell or a note, which a file may keep apart
Box = tuple[float, float, float, float]  # left, top, width, height in shares of the page


def shell() -> str:
    def button(name: str, label: str, sign: str) -> str:
        return (f'<button type="button" class="tf-turn" data-reader="{name}" aria-label="{label}" '
                f'title="{label}">{sign}</button>')

    page = (f'{button("previous", "Previous page", "‹")}<label class="tf-page-number"><span class="tf-hidden">'
            'Go to page</span><input type="text" inputmode="numeric" id="page-number" size="4" autocomplete="off">'
            f'</label><span class="tf-muted" id="page-count"></span>{button("next", NEXT, "›")}')
    size = (f'<span class="tf-zoom">{button("smaller", "Smaller", "−")}{button("larger", LARGER, "+")}</span>'
            f'{button("thumbs", THUMBNAILS, "☷")}{button("close", "Close the page view", "×")}')
    find = ('<form class="tf-find" role="search"><input type="search" id="page-find" autocomplete="off" '
            f'placeholder="{FIND}" aria-label="{FIND}"><span class="tf-muted" id="page-hits" role="status"></span>'
            f'{button("hit-before", "Previous match", "↑")}{button("hit-after", "Next match", "↓")}'
            f'{button("link", LINK, LINK_SIGN)}</form>')
    return ('<section class="tf-reader" aria-label="Page view" hidden>'
            f'<div class="tf-reader-bar"><span class="tf-page-label" id="page-label"></span>{page}{size}</div>{find}'
            f'<div class="tf-reader-body"><ol class="tf-thumbs" aria-label="{THUMBNAILS}" hidden></ol>'
            '<div class="tf-sheets" tabindex="0"><div class="tf-sheet"></div></div></div></section>'
            '<p class="tf-note tf-no-page">Click a page in the strip, or the page number after a quotation, to read it '
            "here.</p>")


def opened(view: TabView, services: Services) -> str:
    """Return what is open, as data; reader.js acts when ``serial`` changes."""
    entry = services.library.get(view.document)
    if entry is None or not entry.has_text or view.page is None or not 1 <= view.page <= entry.pages:
        return '<div data-page=""></div>'
    document = services.library.document(entry.id)
    names = [fmt.cited_page(document, page + 1, "") for page in range(len(document.pages))] if document else []
    names = [] if names == [str(page + 1) for page in range(len(names))] else names
    return (f'<div data-document="{esc(entry.id)}" data-pages="{entry.pages}" data-page="{view.page}" '
            f'data-spot="{spot(view.spot)}" data-serial="{view.openings}" data-names="{esc(json.dumps(names))}" '
            f'data-picture="{int(any(part.is_drawn for part in services.library.parts(entry)))}"></div>')


def build() -> Outputs:
    """Place the shell, what is open, and where the reader reports that somebody turned a page."""
    block("page", shell())
    opened = block("page-open")
    block("page-turned", '<button type="button" data-action="turned" tabindex="-1"></button>', clicks=True)
    return {"page_open": opened}


def actions(services: Services) -> Actions:
    def page_number(data: dict[str, str]) -> int | None:
        return int(data["page"]) if data.get("page", "").isdigit() else None

    def open_page(view: TabView, data: dict[str, str]) -> None:
        view.page, view.spot = page_number(data), places(data.get("spot", ""))
        view.openings += 1

    def turned(view: TabView, data: dict[str, str]) -> None:
        """Note the page that the view shows already, unless another was opened or all closed before this was heard."""
        if view.page and (data.get("document"), data.get("serial")) == (view.document, str(view.openings)):
            view.page, view.spot = page_number(data), ()

    return {"page": open_page, "turned": turned}


def panels(services: Services) -> list[Panel]:
    return [Panel("page_open", lambda view: (view.document, view.page, view.openings, services.library.version),
                  lambda view: opened(view, services))]


def pieces(layout: PageLayout) -> list[tuple[str, Box]]:
    """Return the text layer: stretches of characters that stand side by side, in the file's order, and their boxes."""
    found = []
    for start, end in _stretches(layout, 0, len(layout.text)):
        text = "".join("-" if c == "\x02" else c for c in layout.text[start:end])
        found.append((text.rstrip(), _around(layout, start, end)))
    return found


def marks(text: str, ranges: Sequence[tuple[int, int]], layout: PageLayout) -> list[Box]:
    """Return boxes of characters [start, end) of the page's text. The picture's text is another one (running headers,
    line ends), so the words are looked up in it; where it is not sure which of several they are, nothing is marked."""
    page, sheet = Normal(text), Normal(layout.text)
    boxes = []
    for start, end in ranges:
        found = _marked(text, start, end, page, sheet, layout)
        for part in () if found else _PART.finditer(text, start, end):
            found += _marked(text, *part.span(1), page, sheet, layout)
        boxes += found
    return boxes


def _marked(text: str, start: int, end: int, page: Normal, sheet: Normal, layout: PageLayout) -> list[Box]:
    """Return boxes of characters [start, end); page, sheet: both texts. [] where they are not found for certain."""
    wanted = Normal(text[start:end]).text.strip()
    here = [at for at in occurrences(page.text, wanted) if start <= page.origin(at, at + 1)[0] < end] if wanted else []
    there = _same(page.text, here[0], len(wanted), sheet.text) if here else None
    if there is None:
        return []
    low, high = sheet.origin(there, there + len(wanted))
    return [_around(layout, *stretch) for stretch in _stretches(layout, low, high)]


def _same(page: str, at: int, size: int, sheet: str) -> int | None:
    """Return where in ``sheet`` the words page[at : at + size] stand: by what stands around them, else by their order;
    None if neither is certain."""
    for more in AROUND:
        for before, after in ((more, more), (more, 0), (0, more)):
            start = max(0, at - before)
            words = page[start : at + size + after]
            if page.count(words) == sheet.count(words) == 1:
                return sheet.index(words) + at - start
    mine, theirs = (occurrences(text, page[at : at + size]) for text in (page, sheet))
    return theirs[mine.index(at)] if len(mine) == len(theirs) and at in mine else None


def _stretches(layout: PageLayout, low: int, high: int) -> Iterator[tuple[int, int]]:
    """Yield [start, end) of neighbours on one line, without white space at their ends."""
    start, end = low, low
    for first, after in _runs(layout, low, high):  # a number in a line read from the right is a run of its own
        if end > start and _apart(_bounds(layout, start, end), _bounds(layout, first, after)):
            yield start, end
            start = end
        start, end = first if start == end else start, after
    if end > start:
        yield start, end


def _runs(layout: PageLayout, low: int, high: int) -> Iterator[tuple[int, int]]:
    """Yield [start, end) of characters each of which stands beside the one before."""
    start = last = -1
    for index in range(low, min(high, len(layout.text))):
        box = layout.boxes[index]
        if box is None:
            continue
        if start >= 0 and _apart(layout.boxes[last], box):
            yield start, last + 1
            start = -1
        start = index if start < 0 else start
        last = index
    if start >= 0:
        yield start, last + 1


def _apart(before: Box | None, after: Box) -> bool:
    """Return whether a piece ends between two boxes (left, top, right, bottom), whichever is further left."""
    assert before is not None
    height = max(before[3] - before[1], after[3] - after[1], 1e-6)
    middle = (after[1] + after[3]) / 2
    return not before[1] <= middle <= before[3] or max(after[0] - before[2], before[0] - after[2]) >= GAP * height


def _bounds(layout: PageLayout, start: int, end: int) -> Box:
    """Return left, top, right and bottom of all characters [start, end)."""
    boxes = [box for box in layout.boxes[start:end] if box is not None]
    return (min(box[0] for box in boxes), min(box[1] for box in boxes),
            max(box[2] for box in boxes), max(box[3] for box in boxes))


def _around(layout: PageLayout, start: int, end: int) -> Box:
    left, top, right, bottom = _bounds(layout, start, end)
    return round(left, 5), round(top, 5), round(right - left, 5), round(bottom - top, 5)
