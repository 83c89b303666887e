"""PDF by two libraries: PDFium (fast, repairs more) and pypdf (slow, careful). One of the two per document."""

from __future__ import annotations

import ctypes
import re
import time
from collections.abc import Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any

from ...errors import DamagedDocumentError, DocumentTooLargeError, EmptyDocumentError, EncryptedDocumentError
from ..cleanup import letters, one_line
from .pdf_annotations import with_annotations
from .pdf_damage import Damage, damage
from .pdf_lines import Line, page_lines
from .pdf_pages import page_texts
from .pdf_spans import page_spans
from .source import Heading, Raw, RawPage, Source, is_are, page_numbers

if TYPE_CHECKING:
    from pypdf import PdfReader

LINES_VERSION = 3  # of what is made of PDFium's characters; raise it when the same file would give other text
FEW_LETTERS = 16  # a page with fewer and a picture is a scan
_NO_TITLE = re.compile(r"untitled|microsoft word|\.(docx?|tex|dvi|pdf|indd|qxd)\b|^\W*$", re.IGNORECASE)
_LONGEST_LANGUAGE = 128  # bytes of UTF-16
_PASSWORD_ERROR = 4  # FPDF_ERR_PASSWORD
_MOST_BOOKMARKS = 20_000  # that are looked at ...
_MOST_TITLES = 2_000_000  # ... and characters of their titles
_DEEPEST_BOOKMARK = 6
_BOOKMARK_SECONDS = 10.0  # in all: an outline is not worth the whole file's time


class ReaderMissingError(Exception):
    """The library is not installed."""


def damaged(source: Source) -> DamagedDocumentError:
    return DamagedDocumentError(
        f"{source.name} is damaged or incomplete and cannot be opened as a PDF",
        remedy="Get the file again, or print it to a new PDF in a PDF viewer.",
    )


def encrypted(source: Source) -> EncryptedDocumentError:
    if source.password:
        return EncryptedDocumentError(f"The password for {source.name} is not right", remedy="Give the right password.")
    return EncryptedDocumentError(f"{source.name} is encrypted", remedy="Give its password.")


def empty(source: Source) -> EmptyDocumentError:
    return EmptyDocumentError(f"{source.name} has no pages", remedy="Choose another file.")


def read_with_pdfium(source: Source) -> Raw:
    """Raises ReaderMissingError, or EncryptedDocumentError, Damaged..., Empty... or DocumentTooLargeError."""
    try:
        import pypdfium2 as pdfium  # type: ignore[import-untyped]
        from pypdfium2 import raw as c
    except ImportError as problem:
        raise ReaderMissingError("pypdfium2") from problem
    try:
        pdf = pdfium.PdfDocument(str(source.path), password=source.password)
        count = len(pdf)
    except pdfium.PdfiumError as problem:
        if getattr(problem, "err_code", None) == _PASSWORD_ERROR or "password" in str(problem).lower():
            raise encrypted(source) from problem
        raise damaged(source) from problem
    source.check_pages(count)
    found = damage(source.path, count, source.password, c.FPDF_GetSecurityHandlerRevision(pdf) != -1)
    if found.repaired is not None:
        pdf = pdfium.PdfDocument(found.repaired)
        count = len(pdf)
        source.check_pages(count)
    if count == 0:
        raise empty(source)
    if pdf.get_formtype() != c.FORMTYPE_NONE:
        pdf.init_forms()  # its fields' values are asked for through it
    pages: list[RawPage] = []
    lines: list[list[Line]] = []
    size = 0
    for index in range(count):
        source.at_page(index, count)
        page = RawPage(_label(pdf, index), "", failed=index in source.skip)
        pages.append(page)
        lines.append([])
        if page.failed:
            continue
        try:
            page.text, lines[-1], page.picture = _pdfium_page(pdf, index, c)
        except pdfium.PdfiumError:
            page.failed = True
        size += len(page.text)
        source.check_characters(size)
    if all(page.failed for page in pages):
        raise damaged(source)
    try:
        title = pdf.get_metadata_value("Title")
    except (pdfium.PdfiumError, UnicodeDecodeError):  # half a surrogate pair is no reason to take the other reader
        title = ""
    source.at_page(count, count)  # so that an outline which kills the reader is left out, like a page
    headings = [] if count in source.skip else _outline(pdf, pdfium)
    texts, told = page_texts(lines)
    for page, text in zip(pages, texts, strict=True):
        page.text = text
    reader = f"pypdfium2 {_version(pdfium)}, lines {LINES_VERSION}"
    return Raw("pdf", reader, _title(title), pages, warnings=_damage_told(found, pages),
               headings=headings or told,
               language=_language(pdf, c))


def _damage_told(found: Damage, pages: list[RawPage]) -> list[str]:
    told = []
    broken = [number for number in found.broken if number < len(pages) and not pages[number].failed]
    if broken:
        told.append(f"{page_numbers(broken)} {is_are(broken)} damaged: some of the text there may be missing or wrong.")
    blank = [number for number, page in enumerate(pages)
             if not page.failed and not page.picture and not page.text.strip() and number not in found.broken]
    if blank and found.texts > sum(bool(page.text.strip()) for page in pages):
        told.append(f"{page_numbers(blank)} {is_are(blank)} empty, but the file holds text that no page shows: "
                    "it may be damaged.")
    if found.elsewhere:
        told.append("The file is damaged: some of its text may be missing or wrong.")
    return told


def _language(pdf: Any, c: Any) -> str:
    """The catalog's /Lang."""
    if not hasattr(c, "FPDFCatalog_GetLanguage"):  # PDFium before 2024
        return ""
    room = ctypes.create_string_buffer(_LONGEST_LANGUAGE)
    size = c.FPDFCatalog_GetLanguage(pdf, ctypes.cast(room, ctypes.POINTER(c.FPDF_WCHAR)), len(room))
    return room.raw[: max(0, size - 2)].decode("utf-16-le", "ignore") if size <= len(room) else ""


def _outline(pdf: Any, pdfium: Any) -> list[Heading]:
    """The bookmarks that lead to a page. The library stops at circles."""
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


def _pdfium_page(pdf: Any, index: int, c: Any) -> tuple[str, list[Line], bool]:
    """The page's text as PDFium has it, its lines as they are read, and whether it is a picture."""
    page = pdf[index]
    try:
        text_page = page.get_textpage()
        lines = with_annotations(page_lines(page_spans(text_page, c)), page, pdf.formenv, c)
        text_page.close()
        text = "\n".join(line.text for line in lines)
        picture = False
        if letters(text) < FEW_LETTERS:
            picture = next(iter(page.get_objects(filter=[c.FPDF_PAGEOBJ_IMAGE], max_depth=3)), None) is not None
        return text, lines, picture
    finally:
        page.close()


def _label(pdf: Any, index: int) -> str:
    try:
        label = pdf.get_page_label(index)
    except Exception:  # a broken label tree must not cost the page
        label = ""
    return one_line(label, 40) or str(index + 1)


# large: one page after the other; what is lost of each is told where it is lost
def read_with_pypdf(source: Source) -> Raw:
    """Raises the same errors as ``read_with_pdfium``; its own limits end bombs as DocumentTooLargeError. Gives no
    outline: it is asked only for files that PDFium cannot read."""
    try:
        import pypdf
    except ImportError as problem:
        raise ReaderMissingError("pypdf") from problem
    pdf, labels = _opened_with_pypdf(source)
    pages = _pages_of_pypdf(source, pdf, labels)
    try:
        title = str(pdf.metadata.title or "") if pdf.metadata else ""
    except Exception:  # a broken information dictionary is no reason to fail
        title = ""
    try:
        language = str(pdf.root_object.get("/Lang", ""))
    except Exception:  # nor is a broken catalog, whose pages could be read
        language = ""
    return Raw("pdf", f"pypdf {pypdf.__version__}", _title(title), pages, lines=True, language=language)


def _opened_with_pypdf(source: Source) -> tuple[PdfReader, list[str]]:
    """With the labels of its pages, of which there is at least one."""
    import pypdf
    from pypdf.errors import DependencyError, LimitReachedError, PyPdfError

    try:
        pdf = pypdf.PdfReader(str(source.path))
        if pdf.is_encrypted and not pdf.decrypt(source.password or ""):
            raise encrypted(source)
        count = len(pdf.pages)
        source.check_pages(count)
        labels = list(pdf.page_labels) if count else []
    except LimitReachedError as problem:
        raise _bomb(source) from problem
    except DependencyError as problem:
        raise EncryptedDocumentError(
            f"{source.name} is encrypted in a way that needs another package", remedy="Run: pip install 'pypdf[crypto]'"
        ) from problem
    except (PyPdfError, ValueError, KeyError, TypeError, AttributeError, IndexError, RecursionError,
            OSError) as problem:
        raise damaged(source) from problem
    if count == 0:
        raise empty(source)
    return pdf, labels


def _pages_of_pypdf(source: Source, pdf: PdfReader, labels: Sequence[str]) -> list[RawPage]:
    from pypdf.errors import LimitReachedError

    pages: list[RawPage] = []
    size, limited, count = 0, False, len(pdf.pages)
    for index in range(count):
        source.at_page(index, count)
        label = one_line(labels[index], 40) if index < len(labels) else ""
        page = RawPage(label or str(index + 1), "", failed=index in source.skip)
        pages.append(page)
        if page.failed:
            continue
        try:
            page.text = pdf.pages[index].extract_text() or ""
            page.picture = letters(page.text) < FEW_LETTERS and _has_picture(pdf.pages[index])
        except MemoryError:
            raise
        except Exception as problem:  # the library raises many kinds for a broken page
            page.failed = True
            limited = limited or isinstance(problem, LimitReachedError)
        size += len(page.text)
        source.check_characters(size)
    if all(page.failed for page in pages):
        raise _bomb(source) if limited else damaged(source)
    return pages


def _bomb(source: Source) -> DocumentTooLargeError:
    return DocumentTooLargeError(f"{source.name} unpacks to more data than any real document (a PDF bomb?)",
                                 remedy="Do not trust this file; print it to a new PDF if you must.")


def _has_picture(page: Any) -> bool:
    resources = page.get("/Resources")
    objects = resources.get_object().get("/XObject") if resources is not None else None
    if objects is None:
        return False
    return any(entry.get_object().get("/Subtype") == "/Image" for entry in objects.get_object().values())


def _title(text: str) -> str:
    title = one_line(text)
    return "" if len(title) < 3 or _NO_TITLE.search(title) else title


def _version(pdfium: Any) -> str:
    return str(getattr(getattr(pdfium, "PYPDFIUM_INFO", None), "version", getattr(pdfium, "__version__", "")))
