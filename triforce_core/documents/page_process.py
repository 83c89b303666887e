"""The child that draws pages: ``python -m triforce_core.documents.page_process``, requests on stdin, frames out.

Limits itself like the reader process before it touches the file. One file per child, any number of pages."""

from __future__ import annotations

import base64
import io
import json
import os
import re
import sys
import unicodedata
from collections.abc import Iterator, Sequence
from math import sqrt
from typing import Any

from ..sandbox.child import first_request, sign_of_life, write_frame
from .limits import ReadLimits
from .readers.pdf_bidi import Row, cells, rows_of_page
from .readers.picture import FORMATS, frame

MOST_PIXELS = 8_000_000  # of one picture
MOST_CHARACTERS = 30_000  # of one page's text layer
FINE = 16  # device units per point when places are asked for: PDFium rounds them to whole ones
_HALVES = re.compile("[\ud800-\udfff]")


def main() -> None:
    """Answer requests, one a line: first {path, limits}, then {page (from 0)} for its text, with {width} for its
    picture."""
    first, out = first_request()
    limits = ReadLimits(**first["limits"])
    limits.enforce()
    import pypdfium2 as pdfium  # type: ignore[import-untyped]

    pdf = None
    for line in sys.stdin.buffer:
        request = json.loads(line)
        sign_of_life(limits.page_seconds)
        try:
            pdf = pdf or _opened(first["path"], pdfium)
            page = pdf[request["page"]]
            answer = _picture(page, request["width"]) if "width" in request else _text(page)
            page.close()
        except (pdfium.PdfiumError, MemoryError, IndexError, ValueError, OSError, SyntaxError,
                EOFError) as problem:
            answer = {"error": type(problem).__name__}
        write_frame(out, answer)
        sign_of_life(0)
    os._exit(0)  # libraries' own tear-down of a hostile file is not worth the risk


def _opened(path: str, pdfium: Any) -> Any:
    """Return a PDF, or a file of pictures as if it were one."""
    try:
        return pdfium.PdfDocument(path)
    except pdfium.PdfiumError:
        return _Pictures(path)


class _Pictures:
    def __init__(self, path: str) -> None:
        from PIL import Image

        Image.MAX_IMAGE_PIXELS = MOST_PIXELS * 8  # twice as many are an error
        self._file = Image.open(path, formats=FORMATS)

    def __getitem__(self, index: int) -> _Sheet:
        return _Sheet(frame(self._file, index))


class _Sheet:
    """A picture that is asked like a page of PDFium's; it has no characters."""

    def __init__(self, picture: Any) -> None:
        self._picture = picture

    def get_size(self) -> tuple[float, float]:
        return float(self._picture.width), float(self._picture.height)

    def render(self, scale: float, may_draw_forms: bool) -> _Sheet:
        return _Sheet(self._picture.resize([max(1, round(side * scale)) for side in self._picture.size]))

    def to_pil(self) -> Any:
        return self._picture

    def close(self) -> None:
        self._picture.close()


def _picture(page: Any, width: int) -> dict[str, Any]:
    """Return the page as a PNG, ``width`` pixels wide or as wide as ``MOST_PIXELS`` allow."""
    across, down = page.get_size()
    scale = min(width / across, sqrt(MOST_PIXELS / (across * down)))
    image = page.render(scale=scale, may_draw_forms=False).to_pil()
    data = io.BytesIO()
    image.save(data, "PNG", compress_level=3)
    return {"png": base64.b64encode(data.getvalue()).decode("ascii")}


def _text(page: Any) -> dict[str, Any]:
    """Return the size in points, the characters, and each one's box: left, top, right, bottom in shares of the page, or
    None."""
    import ctypes

    from pypdfium2 import raw as c

    across, down = page.get_size()
    if isinstance(page, _Sheet):
        return {"width": across, "height": down, "text": "", "boxes": []}
    width, height = max(1, int(across * FINE)), max(1, int(down * FINE))
    layer = page.get_textpage()
    count = min(layer.count_chars(), MOST_CHARACTERS)
    box, x, y = c.FS_RECTF(), ctypes.c_int(), ctypes.c_int()

    def on_page(left: float, top: float) -> tuple[float, float]:
        """Turn the file's coordinates into shares of the page as it is shown, rotated and cropped."""
        c.FPDF_PageToDevice(page, 0, 0, width, height, 0, left, top, x, y)
        return x.value / width, y.value / height

    def place(index: int) -> list[float]:
        c.FPDFText_GetLooseCharBox(layer, index, box)
        corners = on_page(box.left, box.top), on_page(box.right, box.bottom)
        return [round(value, 5) for value in (*map(min, *corners), *map(max, *corners))]

    codes = (c.FPDFText_GetUnicode(layer, index) for index in range(count))
    units = "".join(chr(code) if 0 < code <= 0x10FFFF else "\ufffd" for code in codes)
    rows = rows_of_page(units, layer, page, c)
    text, boxes = list[str](), list[list[float] | None]()
    for letter, drawn in _as_read(units, rows):
        if text and "\ud800" <= text[-1] < "\udc00" <= letter < "\ue000":  # PDFium gives a character in two halves
            text[-1] = (text[-1] + letter).encode("utf-16-le", "surrogatepass").decode("utf-16-le")
            continue
        corners = list(zip(*map(place, drawn), strict=True)) if drawn and not letter.isspace() else None
        text.append(letter)
        boxes.append([*map(min, corners[:2]), *map(max, corners[2:])] if corners else None)
    layer.close()
    return {"width": across, "height": down, "text": _HALVES.sub("\ufffd", "".join(text)), "boxes": boxes}


def _as_read(units: str, rows: Sequence[tuple[Row, bool]]) -> Iterator[tuple[str, Sequence[int]]]:
    """Yield the characters of a page, each with the numbers of those that it is drawn by: as the file has them, but
    rows with letters from right to left in the order of reading, cell by cell, as the reader of documents has them."""
    row_of = {at: number for number, (row, _) in enumerate(rows) for glyph in row for at in glyph.at}
    done: set[int] = set()
    for at, unit in enumerate(units):
        number = row_of.get(at)
        if number is None:
            yield unit, (at,)
        elif number not in done:
            done.add(number)
            row, leftward = rows[number]
            found = cells(row, not leftward)
            for cell in found[::-1] if leftward else found:
                for glyph in cell:
                    for letter in unicodedata.normalize("NFC", glyph.text):
                        yield letter, glyph.at
                yield "\n", ()


if __name__ == "__main__":
    main()
