"""TXT and Markdown, in whatever encoding they come."""

from __future__ import annotations

import codecs
import re

from ...errors import UnknownFormatError
from ..reflow import reflow, usual_width
from ..sections import placed, split_sections
from .source import FORMATS, Raw, RawPage, Source

_BOMS = (
    (codecs.BOM_UTF8, "utf-8-sig"), (codecs.BOM_UTF32_LE, "utf-32"), (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"), (codecs.BOM_UTF16_BE, "utf-16"),
)  # fmt: skip
_CONTROLS = re.compile("[\x00-\x08\x0e-\x1a\x1c-\x1f\x7f]")
_FENCE = re.compile(r"\s*(```|~~~)")
_FRONT_MATTER = re.compile(r"\A---\n(?:.{0,2000}\n){0,200}?---\n")
_CELL_RULE = re.compile(r":?-{2,}:?")
_LIST = re.compile(r"\s*(?:[-*+]|\d{1,3}[.)])\s")
_IMAGE = re.compile(r"!\[([^\]\n]{0,500})\]\([^)\n]{0,2000}\)")
_LINK = re.compile(r"\[([^\]\n]{0,500})\]\([^)\n]{0,2000}\)")
_STRONG = re.compile(r"(\*\*|__|~~)(?=\S)([^\n]{1,500}?)(?<=\S)\1")
_EMPHASIS = re.compile(r"(?<![\w*_])([*_])(?=\S)([^\n*_]{1,500})(?<=\S)\1(?![\w*_])")
_TAG = re.compile(r"</?[a-zA-Z][^<>\n]{0,500}>|<!--.{0,2000}?-->")


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
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    sections = [piece for part in text.split("\f") for piece in split_sections(_unwrapped(part))]
    return Raw("txt", "text", "", numbered(sections), warnings=[warning] if warning else [])


def _unwrapped(text: str) -> str:
    """Paragraphs on one line each, if the file is wrapped by hand; otherwise as it is."""
    lines = text.split("\n")
    filled = [line for line in lines if line.strip()]
    width = usual_width(filled)
    if len(filled) < 8 or not 40 <= width <= 100 or max(map(len, filled)) > 2 * width:
        return "\n".join("" if not line.strip() else line for line in lines)
    return "\n\n".join(reflow(block.split("\n"), width) for block in re.split(r"\n(?:[ \t]*\n)+", text.strip("\n")))


def read_markdown(source: Source) -> Raw:
    text, warning = decode_text(source.path.read_bytes(), source.name)
    source.check_characters(len(text))
    headings, body = markdown_text(text.replace("\r\n", "\n").replace("\r", "\n"))
    sections = split_sections(body)
    title = next((words for words, _ in headings if words), "")
    return Raw("markdown", "markdown", title, numbered(sections), warnings=[warning] if warning else [],
               headings=placed(headings, sections))


def markdown_text(text: str) -> tuple[list[tuple[str, int]], str]:
    """The headings (words, level) and the text as read: no marks, links as their words, paragraphs on one line each."""
    text = _FRONT_MATTER.sub("", text, count=1)
    headings: list[tuple[str, int]] = []
    blocks: list[list[str]] = []  # of each its lines
    open_block = fenced = False
    for line in text.split("\n"):
        if _FENCE.match(line):
            fenced, open_block = not fenced, False
            blocks.append([])
        elif fenced:
            blocks.append([line])
        elif not line.strip() or _is_rule(line):
            open_block = False
            blocks.append([])
        elif (heading := _heading(line)) is not None:
            words = _inline(heading[0])
            headings.append((words, heading[1]))
            blocks += [[], [words], []]
            open_block = False
        elif open_block and not _LIST.match(line) and not line.lstrip().startswith(("|", ">")):
            blocks[-1].append(_inline(line.strip()))
        else:
            blocks.append([_inline(line.strip().removeprefix(">").strip().strip("|"))])
            open_block = not line.lstrip().startswith("|")
    return headings, "\n".join(map(" ".join, blocks))


def _heading(line: str) -> tuple[str, int] | None:
    """Words and level of "## Words ##". No pattern: where blanks may stand twice, it tries every way to share them."""
    bare = line.lstrip(" ")
    words = bare.lstrip("#")
    level = len(bare) - len(words)
    if len(line) - len(bare) > 3 or not 1 <= level <= 6 or not words[:1].isspace():
        return None
    return words.strip().rstrip("#").rstrip(), level


def _is_rule(line: str) -> bool:
    """"* * *", or the line below a table's head."""
    solid = "".join(line.split())
    if len(solid) >= 3 and not solid.strip("-*_="):
        return True
    cells = line.strip().removeprefix("|").removesuffix("|").split("|")
    return all(_CELL_RULE.fullmatch(cell.strip()) for cell in cells)


def _inline(text: str) -> str:
    text = _LINK.sub(r"\1", _IMAGE.sub(r"\1", text))
    for _ in range(2):
        text = _EMPHASIS.sub(r"\2", _STRONG.sub(r"\2", text))
    return _TAG.sub("", text).replace("`", "")


def numbered(sections: list[str]) -> list[RawPage]:
    return [RawPage(str(number + 1), text) for number, text in enumerate(sections)]
