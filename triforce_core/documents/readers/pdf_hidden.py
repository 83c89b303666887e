"""Text of a PDF page that nobody sees: white on white, below 1 pt, beside the page, invisible, or on a layer that is
off. The invisible text that lies on a scan is its text layer, and stays."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Collection, Iterable
from functools import cached_property
from typing import Any

from .pdf_calls import address, quick

_SMALLEST = 1.0  # points
_WHITE = 250  # of 255, in each colour
_FILLED = (0, 4)  # render modes that only fill
_INVISIBLE = (3, 7)
_MOST_OBJECTS = 20_000  # of a page that are looked at for what lies behind white text
_MOST_DRAWN, _MOST_DISCS = 4_000, 200
_DISC = (1.5, 7.0)  # points from side to side
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
        self._both = (max(self._sheet[0], self._paper[0]), max(self._sheet[1], self._paper[1]),
                      min(self._sheet[2], self._paper[2]), min(self._sheet[3], self._paper[3]))
        self._colours, self._sides = (ctypes.c_uint * 4)(), (ctypes.c_float * 4)()
        self._mode = quick(c, "FPDFTextObj_GetTextRenderMode", "ip")
        self._fill = quick(c, "FPDFPageObj_GetFillColor", "ippppp")
        self._bounds_of = quick(c, "FPDFPageObj_GetBounds", "ippppp")
        self._colour, self._side = ([ctypes.addressof(four) + step for step in (0, 4, 8, 12)]
                                    for four in (self._colours, self._sides))

    def hides(self, text_object: int, box: Box, size: float, characters: int) -> tuple[bool, bool]:
        """Say whether the file hides what the object shows inside the box; and whether this is unseen, for it is
        invisible and lies on no picture, or beside the paper, which is no reason to lose a page of nothing else."""
        left, bottom, right, top = box
        most_left, lowest, most_right, highest = self._both
        beside = False
        if right <= most_left or left >= most_right or top <= lowest or bottom >= highest:
            beside = _beside(self._paper, box)
            if not beside and _beside(self._sheet, box):
                return True, False
        mode = self._mode(text_object) if text_object else None
        unseen = beside or (mode in _INVISIBLE and not _lies_on(box, self._pictures))
        if size < _SMALLEST and max(right - left, top - bottom) < 2 * _SMALLEST * characters:
            return True, unseen
        if text_object and self._off and self._on_layer_that_is_off(text_object):
            return True, unseen
        if mode not in _FILLED or not self._fill(text_object, *self._colour):
            return False, unseen
        red, green, blue, alpha = self._colours
        if red < _WHITE or green < _WHITE or blue < _WHITE:
            return alpha == 0, unseen
        around = (other for other, letter in self._backgrounds if not letter or (
            other[0] <= left and other[1] <= bottom and other[2] >= right and other[3] >= top))
        return not _lies_on(box, around), unseen

    @cached_property
    def _pictures(self) -> list[Box]:
        return [self._bounds(top) for top, _, kind in self._objects if kind == self._c.FPDF_PAGEOBJ_IMAGE]

    def discs(self) -> list[Box]:
        """Return what may be the bullet of a list, as browsers draw it; [] for a page that is full of drawings."""
        paths = [found for _, found, kind in self._objects[:_MOST_DRAWN] if kind == self._c.FPDF_PAGEOBJ_PATH]
        if len(paths) >= _MOST_DRAWN / 2:
            return []
        found = [(left, low, right, high) for left, low, right, high in map(self._bounds, paths)
                 if _DISC[0] < high - low < _DISC[1] and abs(right - left - high + low) < 0.2 * (high - low)]
        return found if len(found) < _MOST_DISCS else []

    @cached_property
    def _backgrounds(self) -> list[tuple[Box, bool]]:
        """The boxes of what is not painted white, and whether it is a letter, such as a disc around a white figure."""
        c, boxes = self._c, []
        for top, found, kind in self._objects:
            letter = kind == c.FPDF_PAGEOBJ_TEXT
            white = (letter or kind == c.FPDF_PAGEOBJ_PATH) and self._fill(found, *self._colour) and min(
                self._colours[:3]) >= _WHITE
            if not white and (found == top or not letter):
                boxes.append((self._bounds(top), letter))
        return boxes

    @cached_property
    def _objects(self) -> list[tuple[int, int, int]]:
        """The page's objects, also inside of forms: the page's one that it is in, itself, and its kind."""
        c, form, known = self._c, self._c.FPDF_PAGEOBJ_FORM, list[tuple[int, int, int]]()
        kind_of, count_in = quick(c, "FPDFPageObj_GetType", "ip"), quick(c, "FPDFFormObj_CountObjects", "ip")
        get_in = quick(c, "FPDFFormObj_GetObject", "ppi")

        def gather(owner: int, count: int, get: Callable[[int, int], int], top: int, depth: int) -> None:
            for at in range(min(count, _MOST_OBJECTS - len(known))):
                found = get(owner, at)
                kind = kind_of(found)
                if kind != form:
                    known.append((top or found, found, kind))
                elif depth < _DEEPEST:
                    gather(found, count_in(found), get_in, top or found, depth + 1)

        page = address(self._page.raw)
        gather(page, c.FPDFPage_CountObjects(self._page.raw), quick(c, "FPDFPage_GetObject", "ppi"), 0, 0)
        return known

    def _bounds(self, found: int) -> Box:
        self._bounds_of(found, *self._side)
        left, bottom, right, top = self._sides
        return left, bottom, right, top

    def _on_layer_that_is_off(self, address_of: int) -> bool:
        c = self._c
        text_object = ctypes.cast(address_of, c.FPDF_PAGEOBJECT)
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


def _beside(sheet: Box, box: Box) -> bool:
    return (box[2] <= sheet[0] or box[0] >= sheet[2] or box[3] <= sheet[1] or box[1] >= sheet[3]) and (
        sheet[0] < sheet[2] and sheet[1] < sheet[3])


def _lies_on(box: Box, others: Iterable[Box]) -> bool:
    across, up = (box[0] + box[2]) / 2, (box[1] + box[3]) / 2
    return any(left <= across <= right and bottom <= up <= top for left, bottom, right, top in others)
