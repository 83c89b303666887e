"""From what a reader extracted to the pages of a Document: clean, without running lines, reflowed, with warnings."""

from __future__ import annotations

from collections.abc import Sequence

from ..errors import EmptyDocumentError, ScannedDocumentError
from .cleanup import clean, letters, one_line
from .readers.pdf import FEW_LETTERS
from .readers.source import Raw, RawPage, is_are, page_numbers
from .reflow import reflow, usual_width
from .running_lines import strip_running_lines
from .special import count_special

_OCR = "Run `ocrmypdf in.pdf out.pdf`, then open out.pdf."


def finish(raw: Raw, name: str) -> tuple[list[tuple[str, str]], list[str]]:
    """(label, text) of every page, and warnings. Raises ScannedDocumentError and EmptyDocumentError."""
    cleaned = [clean(page.text, raw.laid_out) for page in raw.pages]
    texts = [text for text, _ in cleaned]
    hidden = sum(count for _, count in cleaned)
    scans = _scans(raw.pages) if raw.kind == "pdf" else []
    _refuse_without_text(raw, texts, scans, name)
    for number in scans:
        texts[number] = ""  # a garbled layer is worse than none
    if raw.lines:
        texts = _reflowed(texts)
    warnings = [one_line(warning, 500) for warning in raw.warnings]
    failed = [number for number, page in enumerate(raw.pages) if page.failed]
    if failed:
        warnings.append(f"{page_numbers(failed)} could not be read and {is_are(failed)} missing from the text.")
    shown = [number for number in scans if number not in set(failed)]
    if shown:  # one is enough: nothing is left out silently
        what = "a scanned picture" if len(shown) == 1 else "scanned pictures"
        warnings.append(f"{page_numbers(shown)} {is_are(shown)} {what} without readable text. {_OCR}")
    if hidden:
        warnings.append(f"{hidden:,} hidden characters (invisible or changing the direction of writing) were removed.")
    special = sum(map(count_special, texts))
    if special:
        words = "string that spells a control token" if special == 1 else "strings that spell control tokens"
        warnings.append(f"{special:,} {words} of language models (such as <|im_end|>), read as ordinary text.")
    labels = [one_line(page.label, 40) or str(number + 1) for number, page in enumerate(raw.pages)]
    return list(zip(labels, texts, strict=True)), warnings


def _reflowed(texts: Sequence[str]) -> list[str]:
    pages = strip_running_lines([text.split("\n") for text in texts])
    width = usual_width([line for page in pages for line in page])
    return [reflow(page, width) for page in pages]


def _scans(pages: Sequence[RawPage]) -> list[int]:
    """Pages that are pictures, or whose text layer is garbled."""
    return [
        number
        for number, page in enumerate(pages)
        if not page.failed
        and letters(page.text) < FEW_LETTERS
        and (page.picture or len(page.text.split()) > FEW_LETTERS)
    ]


def _refuse_without_text(raw: Raw, texts: Sequence[str], scans: Sequence[int], name: str) -> None:
    if not raw.pages:
        raise EmptyDocumentError(f"{name} has no pages with text", remedy="Choose another file.")
    written = [number for number, text in enumerate(texts) if text.strip() and number not in set(scans)]
    if written:
        return
    if scans:
        raise ScannedDocumentError(
            f"{name} has no text: {page_numbers(list(scans)).lower()} {is_are(scans)} scanned pictures", remedy=_OCR
        )
    raise EmptyDocumentError(f"{name} has no text in it", remedy="Choose another file.")
