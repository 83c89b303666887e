"""A picture of a page, or of several in one file (TIFF), whose words are recognised."""

from __future__ import annotations

from collections import Counter
from typing import Any

from ...errors import DamagedDocumentError
from ..limits import LONG_SIDE
from .scans import Scans, laid_out
from .source import Raw, RawPage, Source, Unread

FORMATS = ("PNG", "JPEG", "TIFF", "WEBP")
_POINTS = 612.0  # width of a page: what a picture says of its resolution is seldom true


def read_picture(source: Source) -> Raw:
    """Read each frame of a TIFF, and the first one of other pictures. Raises DamagedDocumentError and
    DocumentTooLargeError."""
    from PIL import Image

    unread = Unread()
    scans, pages = Scans(source, unread), list[RawPage]()
    try:
        file = Image.open(source.path, formats=FORMATS)
        count = getattr(file, "n_frames", 1) if file.format == "TIFF" else 1
        source.check_pages(count)
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as problem:
        raise _damaged(source) from problem

    def raw(pages: list[RawPage], running: Counter[str]) -> Raw:
        return Raw("picture", "rapidocr, lines 2", "", pages, headings=laid_out(pages, running), unread=unread)

    for index in range(count):
        source.at_page(index, count)
        page = RawPage(str(index + 1), "", picture=True, failed=index in source.skip)
        pages.append(page)
        if page.failed or source.recognisers is None:
            continue
        try:
            picture = frame(file, index)
            picture.thumbnail((LONG_SIDE, LONG_SIDE))
        except (OSError, ValueError, SyntaxError, EOFError, Image.DecompressionBombError):  # others may be whole
            page.failed = True
            continue
        scans.add(page, picture, _POINTS)
        scans.hand_over(pages, raw)
    scans.finish()
    if all(page.failed for page in pages):
        raise _damaged(source)
    return raw(pages, unread.running)


def frame(file: Any, index: int) -> Any:
    """Return a picture of a file that Pillow opened, upright where it says how it lies. Raises OSError, ValueError,
    SyntaxError, EOFError or DecompressionBombError."""
    from PIL import ImageOps

    file.seek(index)
    return ImageOps.exif_transpose(file).convert("RGB")


def _damaged(source: Source) -> DamagedDocumentError:
    return DamagedDocumentError(f"{source.name} is damaged, or larger than a page can be", remedy="Get it again.")
