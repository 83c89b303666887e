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
from ..cleanup import FEW_LETTERS, Words, letters, one_line
from ..limits import LONG_SIDE
from ..reflow import strip_running_lines, vocabulary
from .pdf_damage import Damage, damage
from .pdf_lines import lines_of_page
from .pdf_listings import Typeface
from .scans import Scans, laid_out
from .source import Heading, Raw, RawPage, Source, Unread, is_are, page_numbers

if TYPE_CHECKING:
    from pypdf import PdfReader

LINES_VERSION = 13  # of what is made of PDFium's characters; raise it when the same file would give other text
_NO_TITLE = re.compile(r"untitled|microsoft word|\.(docx?|tex|dvi|pdf|indd|qxd)\b|^\W*$", re.IGNORECASE)
_LONGEST_LANGUAGE = 128  # bytes of UTF-16
_PASSWORD_ERROR = 4  # FPDF_ERR_PASSWORD
_MOST_BOOKMARKS = 20_000  # that are looked at ...
_MOST_TITLES = 2_000_000  # ... and characters of their titles
_DEEPEST_BOOKMARK = 6
_MOST_PATHS = 50  # of a page without letters and pictures: those of more are letters drawn as outlines
_MOST_ATTACHED = 1_000
_FEW_WORDS = 80  # of a portfolio's cover, which says what to open it with
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


def _read_pages(source: Source, count: int, label: Callable[[int], str], read: Callable[[int, RawPage], None],
                broken: type[Exception], limit: type[Exception] | tuple[()] = (),
                then: Callable[[list[RawPage]], None] = lambda pages: None) -> list[RawPage]:
    """Read page by page. read: fills a page; broken: raised where it cannot be read; limit: where it holds too much;
    then: called after each page with all so far. Raises what says that no page could be read, or that there is too
    much."""
    pages: list[RawPage] = []
    size, limited = 0, False
    for index in range(count):
        source.at_page(index, count)
        page = RawPage(one_line(label(index), 40) or str(index + 1), "", failed=index in source.skip)
        pages.append(page)
        if page.failed:
            continue
        try:
            read(index, page)
        except MemoryError:
            raise
        except broken as problem:
            page.failed = True
            limited = limited or isinstance(problem, limit)
        size += len(page.text)
        source.check_characters(size)
        then(pages)
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
    unread, off, seen, before = Unread(), found.layers_off, Typeface(), Words()
    scans = Scans(source, unread)

    def read(index: int, raw: RawPage) -> None:
        page = pdf[index]
        try:
            raw.lines, hidden = lines_of_page(page, pdf.formenv, off, seen, c)
            unread.hidden += hidden
            unread.attached += _pinned(page, partial(pdfium.PdfAttachment, pdf=pdf), c)
            raw.text = "\n".join(line.text for line in raw.lines)
            if letters(raw.text, before) < FEW_LETTERS:
                raw.picture, raw.garbled = _is_drawn(page, c), len(raw.text.split()) > FEW_LETTERS
            else:
                before.add(raw.text)
            if source.recognisers is not None and (raw.picture or raw.garbled):
                across, down = page.get_size()
                scans.add(raw, page.render(scale=LONG_SIDE / max(across, down)).to_pil(), across)
        finally:
            page.close()

    def part(pages: list[RawPage], running: Counter[str]) -> Raw:
        return Raw("pdf", "", "", pages, headings=laid_out(pages, running), unread=unread)

    pages = _read_pages(source, count, lambda index: _told(lambda: pdf.get_page_label(index)), read, pdfium.PdfiumError,
                        then=lambda pages: scans.hand_over(pages, part))
    scans.finish()
    unread.line_numbers = seen.numbers
    title = _told(lambda: pdf.get_metadata_value("Title"))
    source.at_page(count, count)  # so that an outline which kills the reader is left out, like a page
    outline = [] if count in source.skip else _outline(pdf, pdfium)
    headings = laid_out(pages, unread.running)
    attached = [_named(partial(pdf.get_attachment, at)) for at in range(min(pdf.count_attachments(), _MOST_ATTACHED))]
    unread.attached += [name for name in attached if name not in unread.attached]
    warnings = _damage_warnings(found, pages)
    if unread.attached and sum(len(page.text.split()) for page in pages) < _FEW_WORDS:
        warnings.append("The file holds other files, which were not read, and hardly a word of its own: save them from "
                        "a PDF viewer, and add them one by one.")
    reader = f"pypdfium2 {pdfium.PYPDFIUM_INFO.version}, lines {LINES_VERSION}"
    return Raw("pdf", reader, _title(title), pages, laid_out=True, warnings=warnings, headings=outline or headings,
               language=_language(pdf, c), unread=unread)


def _is_drawn(page: Any, c: Any) -> bool:
    """Say whether a page holds a picture, or enough outlines to be letters."""
    things = page.get_objects(filter=[c.FPDF_PAGEOBJ_IMAGE, c.FPDF_PAGEOBJ_PATH], max_depth=3)
    kinds = [thing.type for thing in islice(things, _MOST_PATHS + 1)]
    return len(kinds) > _MOST_PATHS or c.FPDF_PAGEOBJ_IMAGE in kinds


def _told(ask: Callable[[], Any]) -> str:
    """Return what a file says of itself or of a page; "" where it is broken, which must not cost the document."""
    try:
        return str(ask() or "")
    except Exception:  # the libraries raise many kinds
        return ""


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


def _named(attachment: Callable[[], Any]) -> str:
    return one_line(_told(lambda: attachment().get_name())) or "?"


def _pinned(page: Any, attachment: Callable[[Any], Any], c: Any) -> list[str]:
    """Return the names of the files that are attached to places of a page. attachment: makes the library's own."""
    names = []
    for at in range(min(c.FPDFPage_GetAnnotCount(page), _MOST_ATTACHED)):
        note = c.FPDFPage_GetAnnot(page, at)
        if note and c.FPDFAnnot_GetSubtype(note) == c.FPDF_ANNOT_FILEATTACHMENT:
            names.append(_named(partial(attachment, c.FPDFAnnot_GetFileAttachment(note))))
        c.FPDFPage_CloseAnnot(note)
    return names


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

    def read(index: int, raw: RawPage) -> None:
        page = pdf.pages[index]
        raw.text = page.extract_text() or ""
        if letters(raw.text) < FEW_LETTERS:
            raw.picture, raw.garbled = _has_picture(page), len(raw.text.split()) > FEW_LETTERS

    # The library raises many kinds for a broken page.
    pages = _read_pages(source, len(pdf.pages), lambda index: labels[index] if index < len(labels) else "", read,
                        Exception, LimitReachedError)
    title = _told(lambda: pdf.metadata and pdf.metadata.title)
    language = _told(lambda: pdf.root_object.get("/Lang"))
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
