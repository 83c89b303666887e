"""A page as its file sets it -> the text layer over its picture, and the boxes of what is marked on it. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from triforce_core import PageLayout

from ..app.quotes import Normal, occurrences

AROUND = (0, 15, 40, 100)  # characters on either side by which one of several places is told
GAP = 1.2  # line heights: a wider gap between two characters begins another piece of text
Box = tuple[float, float, float, float]  # left, top, width, height in shares of the page


def pieces(layout: PageLayout) -> list[tuple[str, Box]]:
    """The text layer: stretches of characters that stand side by side, in the file's order, and their boxes."""
    found = []
    for start, end in _stretches(layout, 0, len(layout.text)):
        text = "".join("-" if c == "\x02" else c for c in layout.text[start:end])
        found.append((text.rstrip(), _around(layout, start, end)))
    return found


def marks(text: str, ranges: Sequence[tuple[int, int]], layout: PageLayout) -> list[Box]:
    """Boxes of characters [start, end) of the page's text. The picture's text is another one (running headers, line
    ends), so the words are looked up in it; where it is not sure which of several they are, nothing is marked."""
    page, sheet = Normal(text), Normal(layout.text)
    boxes = []
    for start, end in ranges:
        wanted = Normal(text[start:end]).text.strip()
        if not wanted:
            continue
        here = [at for at in occurrences(page.text, wanted) if start <= page.origin(at, at + 1)[0] < end]
        there = _same(page.text, here[0], len(wanted), sheet.text) if here else None
        if there is not None:
            low, high = sheet.origin(there, there + len(wanted))
            boxes += [_around(layout, *stretch) for stretch in _stretches(layout, low, high)]
    return boxes


def _same(page: str, at: int, size: int, sheet: str) -> int | None:
    """Where in ``sheet`` the words page[at : at + size] stand: told by what stands around them, else by their order;
    None if neither tells."""
    for more in AROUND:
        for before, after in ((more, more), (more, 0), (0, more)):
            start = max(0, at - before)
            words = page[start : at + size + after]
            if page.count(words) == sheet.count(words) == 1:
                return sheet.index(words) + at - start
    mine, theirs = (occurrences(text, page[at : at + size]) for text in (page, sheet))
    return theirs[mine.index(at)] if len(mine) == len(theirs) and at in mine else None


def _stretches(layout: PageLayout, low: int, high: int) -> Iterator[tuple[int, int]]:
    """[start, end) of neighbours on one line, without white space at their ends."""
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
    """Boxes here are left, top, right, bottom."""
    assert before is not None
    height = max(before[3] - before[1], after[3] - after[1], 1e-6)
    middle = (after[1] + after[3]) / 2
    return not before[1] <= middle <= before[3] or not -height < after[0] - before[2] < GAP * height


def _around(layout: PageLayout, start: int, end: int) -> Box:
    boxes = [box for box in layout.boxes[start:end] if box is not None]
    left, top = min(box[0] for box in boxes), min(box[1] for box in boxes)
    right, bottom = max(box[2] for box in boxes), max(box[3] for box in boxes)
    return round(left, 5), round(top, 5), round(right - left, 5), round(bottom - top, 5)
