"""Text of a PDF page that nobody sees: white on white, below 1 pt, beside the page, invisible, or on a layer that is
off. The invisible text that lies on a scan is its text layer, and stays."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Collection, Iterator
from typing import Any

_SMALLEST = 1.0  # points
_WHITE = 250  # of 255, in each colour
_FILLED = (0, 4)  # render modes that only fill
_INVISIBLE = (3, 7)
_MOST_OBJECTS = 20_000  # of a page that are looked at for what lies behind white text
_DEEPEST = 3
_LONGEST_NAME = 512  # bytes of UTF-16
Box = tuple[float, float, float, float]  # left, bottom, right, top


class Hidden:
    """Says of a page's text objects whether they are seen. off: the names of layers that are off."""

    def __init__(self, page: Any, off: Collection[str], c: Any) -> None:
        self._page, self._off, self._c = page, off, c
        box = c.FS_RECTF()
        c.FPDF_GetPageBoundingBox(page.raw, box)
        self._sheet = (box.left, box.bottom, box.right, box.top)
        # PDFium does not look up a box that the page inherits, and would take Letter for it.
        self._paper: Box = page.get_mediabox(fallback_ok=False) or self._sheet
        self._backgrounds: list[Box] | None = None
        self._pictures: list[Box] | None = None
        self._colours = [ctypes.c_uint() for _ in range(4)]

    def hides(self, text_object: Any, box: Box, size: float, characters: int) -> bool:
        """Say whether the file hides what the object shows inside the box, but for invisible text."""
        left, bottom, right, top = box
        if self._beside(self._sheet, box) and not self._beside(self._paper, box):
            return True
        if size < _SMALLEST and max(right - left, top - bottom) < 2 * _SMALLEST * characters:
            return True
        if not text_object:
            return False
        if self._off and self._on_layer_that_is_off(text_object):
            return True
        red, green, blue, alpha = self._colours
        if self._c.FPDFTextObj_GetTextRenderMode(text_object) not in _FILLED or not self._c.FPDFPageObj_GetFillColor(
                text_object, red, green, blue, alpha):
            return False
        if min(red.value, green.value, blue.value) < _WHITE:
            return alpha.value == 0
        if self._backgrounds is None:
            self._backgrounds = list(self._coloured())
        return not _lies_on(box, self._backgrounds)

    def unseen(self, text_object: Any, box: Box) -> bool:
        """Say whether text is invisible and lies on no picture, or beside the paper. It is no reason to lose a page
        that has nothing else."""
        if self._beside(self._paper, box):
            return True
        invisible = bool(text_object) and self._c.FPDFTextObj_GetTextRenderMode(text_object) in _INVISIBLE
        return invisible and not self._on_picture(box)

    @staticmethod
    def _beside(sheet: Box, box: Box) -> bool:
        return sheet[0] < sheet[2] and sheet[1] < sheet[3] and (
            box[2] <= sheet[0] or box[0] >= sheet[2] or box[3] <= sheet[1] or box[1] >= sheet[3])

    def _on_picture(self, box: Box) -> bool:
        if self._pictures is None:
            self._pictures = [self._bounds(top) for top, found in self._objects()
                              if self._c.FPDFPageObj_GetType(found) == self._c.FPDF_PAGEOBJ_IMAGE]
        return _lies_on(box, self._pictures)

    def _coloured(self) -> Iterator[Box]:
        """Yield the boxes of what is painted in another colour than white."""
        c, colours = self._c, self._colours
        for top, found in self._objects():
            kind = c.FPDFPageObj_GetType(found)
            white = kind == c.FPDF_PAGEOBJ_PATH and c.FPDFPageObj_GetFillColor(found, *colours) and min(
                colour.value for colour in colours[:3]) >= _WHITE
            if kind != c.FPDF_PAGEOBJ_TEXT and not white:
                yield self._bounds(top)

    def _objects(self) -> Iterator[tuple[Any, Any]]:
        """Yield the page's objects, and those inside of forms, each with the page's object that it belongs to."""
        c = self._c
        count = min(c.FPDFPage_CountObjects(self._page.raw), _MOST_OBJECTS)
        waiting = [(top, top, 0) for top in (c.FPDFPage_GetObject(self._page.raw, at) for at in range(count))]
        seen = 0
        while waiting and seen < _MOST_OBJECTS:
            seen += 1
            top, found, depth = waiting.pop()
            if c.FPDFPageObj_GetType(found) != c.FPDF_PAGEOBJ_FORM:
                yield top, found
            elif depth < _DEEPEST:
                inside = min(c.FPDFFormObj_CountObjects(found), _MOST_OBJECTS)
                waiting += [(top, c.FPDFFormObj_GetObject(found, at), depth + 1) for at in range(inside)]

    def _bounds(self, found: Any) -> Box:
        sides = [ctypes.c_float() for _ in range(4)]
        self._c.FPDFPageObj_GetBounds(found, *sides)
        left, bottom, right, top = (side.value for side in sides)
        return left, bottom, right, top

    def _on_layer_that_is_off(self, text_object: Any) -> bool:
        c = self._c
        for at in range(c.FPDFPageObj_CountMarks(text_object)):
            mark = c.FPDFPageObj_GetMark(text_object, at)
            if self._string(c.FPDFPageObjMark_GetName, mark) == "OC" and self._string(
                    c.FPDFPageObjMark_GetParamStringValue, mark, b"Name") in self._off:
                return True
        return False

    def _string(self, ask: Callable[..., int], *of: Any) -> str:
        room, size = (self._c.FPDF_WCHAR * (_LONGEST_NAME // 2))(), ctypes.c_ulong()
        found = ask(*of, room, _LONGEST_NAME, size) and 2 < size.value <= _LONGEST_NAME
        return bytes(room)[: size.value - 2].decode("utf-16-le", "ignore") if found else ""


def _lies_on(box: Box, others: Collection[Box]) -> bool:
    across, up = (box[0] + box[2]) / 2, (box[1] + box[3]) / 2
    return any(left <= across <= right and bottom <= up <= top for left, bottom, right, top in others)
