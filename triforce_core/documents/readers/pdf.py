"""PDF by two libraries: PDFium (fast, repairs more) and pypdf (slow, careful). One of the two per document."""

from __future__ import annotations

import ctypes
import re
import time
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any

from ...errors import DamagedDocumentError, DocumentTooLargeError, EmptyDocumentError, EncryptedDocumentError
from ..cleanup import FEW_LETTERS, letters, one_line
from ..document import Word
from ..limits import LONG_SIDE
from ..reflow import strip_running_lines, vocabulary
from .pdf_damage import Damage, damage
from .pdf_lines import Line, lines_of_page
from .pdf_pages import page_texts
from .source import Heading, Raw, RawPage, Source, Unread, is_are, page_numbers

if TYPE_CHECKING:
    from pypdf import PdfReader

LINES_VERSION = 4  # of what is made of PDFium's characters; raise it when the same file would give other text
_NO_TITLE = re.compile(r"untitled|microsoft word|\.(docx?|tex|dvi|pdf|indd|qxd)\b|^\W*$", re.IGNORECASE)
_LONGEST_LANGUAGE = 128  # bytes of UTF-16
_PASSWORD_ERROR = 4  # FPDF_ERR_PASSWORD
_MOST_BOOKMARKS = 20_000  # that are looked at ...
_MOST_TITLES = 2_000_000  # ... and characters of their titles
_DEEPEST_BOOKMARK = 6
_MOST_PATHS = 50  # of a page without letters and pictures: those of more are letters drawn as outlines
_BOOKMARK_SECONDS = 10.0  # in all: an outline is not worth the whole file's time


def _damaged(source: Source) -> DamagedDocumentError:
    return DamagedDocumentError(
        f"{source.name} is damaged or incomplete and cannot be opened as a PDF",
        remedy="Get the file again, or print it to a new PDF in a PDF viewer.",
    )


def _encrypted(source: Source) -> EncryptedDocumentError:
    if source.password:
        return EncryptedDocumentError(f"The password for {source.name} is not right", remedy="Give the right password.")
    return EncryptedDocumentError(f"{source.name} is encrypted", remedy="Give its password.")


def _bomb(source: Source) -> DocumentTooLargeError:
    return DocumentTooLargeError(f"{source.name} unpacks to more data than any real document (a PDF bomb?)",
                                 remedy="Do not trust this file; print it to a new PDF if you must.")


def _checked(source: Source, pages: int) -> int:
    """Return the number of pages. Raises EmptyDocumentError or DocumentTooLargeError."""
    source.check_pages(pages)
    if not pages:
        raise EmptyDocumentError(f"{source.name} has no pages", remedy="Choose another file.")
    return pages


def _read_pages(source: Source, count: int, label: Callable[[int], str], read: Callable[[int], tuple[str, bool]],
                broken: type[Exception], limit: type[Exception] | tuple[()] = ()) -> list[RawPage]:
    """Read page by page. read: the text of a page and whether it holds a picture; broken: raised where a page cannot be
    read; limit: where it holds too much. Raises what says that no page could be read, or that there is too much."""
    pages: list[RawPage] = []
    size, limited = 0, False
    for index in range(count):
        source.at_page(index, count)
        page = RawPage(one_line(label(index), 40) or str(index + 1), "", failed=index in source.skip)
        pages.append(page)
        if page.failed:
            continue
        try:
            page.text, page.picture = read(index)
        except MemoryError:
            raise
        except broken as problem:
            page.failed = True
            limited = limited or isinstance(problem, limit)
        size += len(page.text)
        source.check_characters(size)
    if all(page.failed for page in pages):
        raise _bomb(source) if limited else _damaged(source)
    return pages


def read_with_pdfium(source: Source) -> Raw:
    """Raises EncryptedDocumentError, Damaged..., Empty... or DocumentTooLargeError."""
    import pypdfium2 as pdfium  # type: ignore[import-untyped]
    from pypdfium2 import raw as c

    try:
        pdf = pdfium.PdfDocument(str(source.path), password=source.password)
        count = len(pdf)
    except pdfium.PdfiumError as problem:
        if getattr(problem, "err_code", None) == _PASSWORD_ERROR or "password" in str(problem).lower():
            raise _encrypted(source) from problem
        raise _damaged(source) from problem
    source.check_pages(count)
    found = damage(source.path, count, source.password, c.FPDF_GetSecurityHandlerRevision(pdf) != -1)
    if found.repaired is not None:
        pdf = pdfium.PdfDocument(found.repaired)
    count = _checked(source, len(pdf))
    if pdf.get_formtype() != c.FORMTYPE_NONE:
        pdf.init_forms()  # its fields' values are asked for through it
    lines: dict[int, list[Line]] = {}
    words: dict[int, list[Word]] = {}
    unread, off = Unread(), found.layers_off

    def label(index: int) -> str:
        try:
            return str(pdf.get_page_label(index))
        except Exception:  # a broken label tree must not cost the page
            return ""

    def read(index: int) -> tuple[str, bool]:
        page = pdf[index]
        try:
            lines[index], hidden = lines_of_page(page, pdf.formenv, off, c)
            unread.hidden += hidden
            text = "\n".join(line.text for line in lines[index])
            picture = letters(text) < FEW_LETTERS and _is_drawn(page, c)
            garbled = len(text.split()) > FEW_LETTERS > letters(text)
            if source.recogniser is not None and (picture or garbled):
                across, down = page.get_size()
                drawn = page.render(scale=LONG_SIDE / max(across, down)).to_pil()
                found = source.recogniser.page(drawn, across)
                unread.picture_pages += picture and not found.words
                if found.words or garbled:
                    lines[index], words[index] = found.lines, found.words
                    text = "\n".join(line.text for line in found.lines)
            return text, picture and source.recogniser is None
        finally:
            page.close()

    pages = _read_pages(source, count, label, read, pdfium.PdfiumError)
    try:
        title = pdf.get_metadata_value("Title")
    except (pdfium.PdfiumError, UnicodeDecodeError):  # half a surrogate pair is no reason to take the other reader
        title = ""
    source.at_page(count, count)  # so that an outline which kills the reader is left out, like a page
    outline = [] if count in source.skip else _outline(pdf, pdfium)
    texts, headings = page_texts([lines.get(index, []) for index in range(count)], unread.running)
    for number, (page, text) in enumerate(zip(pages, texts, strict=True)):
        page.text, page.words = text, words.get(number, [])
    reader = f"pypdfium2 {pdfium.PYPDFIUM_INFO.version}, lines {LINES_VERSION}"
    return Raw("pdf", reader, _title(title), pages, warnings=_damage_warnings(found, pages),
               headings=outline or headings, language=_language(pdf, c), unread=unread)


def _is_drawn(page: Any, c: Any) -> bool:
    """Say whether a page holds a picture, or enough outlines to be letters."""
    paths = 0
    for thing in page.get_objects(filter=[c.FPDF_PAGEOBJ_IMAGE, c.FPDF_PAGEOBJ_PATH], max_depth=3):
        paths += 1
        if thing.type == c.FPDF_PAGEOBJ_IMAGE or paths > _MOST_PATHS:
            return True
    return False


def _damage_warnings(found: Damage, pages: list[RawPage]) -> list[str]:
    warnings = []
    broken = [number for number in found.broken if number < len(pages) and not pages[number].failed]
    if broken:
        warnings.append(
            f"{page_numbers(broken)} {is_are(broken)} damaged: some of the text there may be missing or wrong.")
    blank = [number for number, page in enumerate(pages)
             if not page.failed and not page.picture and not page.text.strip() and number not in found.broken]
    if blank and found.texts > sum(bool(page.text.strip()) for page in pages):
        warnings.append(f"{page_numbers(blank)} {is_are(blank)} empty, but the file holds text that no page shows: "
                        "it may be damaged.")
    if found.elsewhere:
        warnings.append("The file is damaged: some of its text may be missing or wrong.")
    return warnings


def _language(pdf: Any, c: Any) -> str:
    """Return the catalog's /Lang."""
    room = ctypes.create_string_buffer(_LONGEST_LANGUAGE)
    size = c.FPDFCatalog_GetLanguage(pdf, ctypes.cast(room, ctypes.POINTER(c.FPDF_WCHAR)), len(room))
    return room.raw[: max(0, size - 2)].decode("utf-16-le", "ignore") if size <= len(room) else ""


def _outline(pdf: Any, pdfium: Any) -> list[Heading]:
    """Return the bookmarks that lead to a page. The library stops at circles."""
    found: list[Heading] = []
    size, until = 0, time.monotonic() + _BOOKMARK_SECONDS
    for mark in islice(pdf.get_toc(max_depth=_DEEPEST_BOOKMARK), _MOST_BOOKMARKS):
        try:
            target = mark.get_dest()
            page = target.get_index() if target else None
            title = mark.get_title()
        except (pdfium.PdfiumError, ValueError, OSError):  # this one is broken, others may not be
            continue
        size += len(title)
        if size > _MOST_TITLES or time.monotonic() > until:
            break
        if page is not None:
            found.append(Heading(title, mark.level + 1, page))
    return found


def read_with_pypdf(source: Source) -> Raw:
    """Raises the same errors as ``read_with_pdfium``; its own limits end bombs as DocumentTooLargeError. Gives no
    outline: it is asked only for files that PDFium cannot read."""
    import pypdf
    from pypdf.errors import LimitReachedError

    pdf, labels = _opened_with_pypdf(source)

    def read(index: int) -> tuple[str, bool]:
        page = pdf.pages[index]
        text = page.extract_text() or ""
        return text, letters(text) < FEW_LETTERS and _has_picture(page)

    # The library raises many kinds for a broken page.
    pages = _read_pages(source, len(pdf.pages), lambda index: labels[index] if index < len(labels) else "", read,
                        Exception, LimitReachedError)
    try:
        title = str(pdf.metadata.title or "") if pdf.metadata else ""
    except Exception:  # a broken information dictionary is no reason to fail
        title = ""
    try:
        language = str(pdf.root_object.get("/Lang", ""))
    except Exception:  # nor is a broken catalog, whose pages could be read
        language = ""
    unread = Unread()
    return Raw("pdf", f"pypdf {pypdf.__version__}", _title(title), pages, language=language, unread=unread,
               joined=partial(_joined, unread.running))


def _joined(running: Counter[str], texts: Sequence[str]) -> list[str]:
    """Return the texts of pages, which have running lines and hard line ends, laid out like plain text."""
    from .plain_text import text_blocks  # of no use to the other reader, and its patterns take a while to compile

    pages = strip_running_lines([text.split("\n") for text in texts], running)
    return [text_blocks(lines, vocabulary(lines, divides=True)).finish()[0] for lines in pages]


def _opened_with_pypdf(source: Source) -> tuple[PdfReader, Sequence[str]]:
    """Return the file with the labels of its pages, of which there is at least one."""
    import pypdf
    from pypdf.errors import DependencyError, LimitReachedError, PyPdfError

    try:
        pdf = pypdf.PdfReader(str(source.path))
        if pdf.is_encrypted and not pdf.decrypt(source.password or ""):
            raise _encrypted(source)
        _checked(source, len(pdf.pages))
        return pdf, list(pdf.page_labels)
    except LimitReachedError as problem:
        raise _bomb(source) from problem
    except DependencyError as problem:
        raise EncryptedDocumentError(
            f"{source.name} is encrypted in a way that needs another package", remedy="Run: pip install 'pypdf[crypto]'"
        ) from problem
    except (PyPdfError, ValueError, KeyError, TypeError, AttributeError, IndexError, RecursionError,
            OSError) as problem:
        raise _damaged(source) from problem


def _has_picture(page: Any) -> bool:
    resources = page.get("/Resources")
    objects = resources.get_object().get("/XObject") if resources is not None else None
    if objects is None:
        return False
    return any(entry.get_object().get("/Subtype") == "/Image" for entry in objects.get_object().values())


def _title(text: str) -> str:
    title = one_line(text)
    return "" if len(title) < 3 or _NO_TITLE.search(title) else title
