"""Plain text, in whatever encoding it comes."""

from __future__ import annotations

import codecs
import re

from ...errors import UnknownFormatError
from ..sections import placed, split_sections
from .source import FORMATS, Raw, RawPage, Source

_BOMS = (
    (codecs.BOM_UTF8, "utf-8-sig"), (codecs.BOM_UTF32_LE, "utf-32"), (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"), (codecs.BOM_UTF16_BE, "utf-16"),
)  # fmt: skip
_HEAD = 4_000  # characters in which a text may say its title, as those of Project Gutenberg do
_TITLE = re.compile(r"^Title: +(\S.{0,150})$", re.MULTILINE)
_CONTROLS = re.compile("[\x00-\x08\x0e-\x1a\x1c-\x1f\x7f]")


def decode_text(data: bytes, name: str) -> tuple[str, str]:
    """Text and a warning ("" when the encoding is certain). Raises UnknownFormatError for what is no text."""
    for bom, encoding in _BOMS:
        if data.startswith(bom):
            return data.decode(encoding, "replace"), ""
    if data[:4096].count(0):
        even, odd = data[0:4096:2].count(0), data[1:4096:2].count(0)
        half = len(data[:4096]) * 0.2
        if max(even, odd) > half and min(even, odd) < half / 4:
            encoding = "utf-16-le" if odd > even else "utf-16-be"
            return data.decode(encoding, "replace"), f"{name} has no byte order mark: read as {encoding.upper()}."
        raise _binary(name)
    try:
        text = data.decode("utf-8")
        warning = ""
    except UnicodeDecodeError:
        text = data.decode("utf-8", "replace")
        broken = text.count("\ufffd")
        if broken * 500 < len(text):
            warning = f"{name}: {broken} broken bytes were replaced by \ufffd."
        else:
            text = data.decode("cp1252", "replace")
            warning = f"{name} is not UTF-8: read as Windows-1252, so that accented letters may be wrong."
    sample = text[:65536]
    if len(_CONTROLS.findall(sample)) * 10 > len(sample):
        raise _binary(name)
    return text, warning


def _binary(name: str) -> UnknownFormatError:
    return UnknownFormatError(
        f"{name} is not text",
        allowed=FORMATS,
        remedy="Save or export the document in one of these formats.",
    )


def read_text(source: Source) -> Raw:
    text, warning = decode_text(source.path.read_bytes(), source.name)
    source.check_characters(len(text))
    return text_raw(text.replace("\r\n", "\n").replace("\r", "\n"), [warning] if warning else [])


def text_raw(text: str, warnings: list[str]) -> Raw:
    from .text_lines import text_blocks

    # A form feed begins a page; where pages are numbered at their foot, as in RFCs, text runs on over them.
    parts = [text] if "[Page " in text else text.split("\f")
    read = [text_blocks(part).finish() for part in parts if part.strip()]
    headings = [heading for _, found in read for heading in found]
    sections = [section for body, found in read for section in split_sections(body, {words for words, _ in found})]
    title = _TITLE.search(text[:_HEAD])
    return Raw("txt", "text 2", title[1].strip() if title else "", numbered(sections), warnings=warnings,
               headings=placed(headings, sections), laid_out=True)


def numbered(sections: list[str]) -> list[RawPage]:
    return [RawPage(str(number + 1), text) for number, text in enumerate(sections)]
