"""Words that stand on a PDF page without being of it: the values of form fields, and free text."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from typing import Any

from .pdf_spans import Line

_MOST_ANNOTATIONS = 2_000  # of one page
_LONGEST_VALUE = 1 << 18  # bytes
_HIDDEN = 2 | 32  # flags: hidden, no view


def with_annotations(lines: list[Line], page: Any, forms: Any, c: Any) -> list[Line]:
    """Add filled form fields and FreeText annotations: behind the words to their left, as on the page, or else on lines
    of their own at the page's end."""
    added: list[Line] = []
    for text, (left, bottom, right, top) in _values(page, forms, c):
        label = max((line for line in lines if bottom - 4 < line.base < top and line.right < left + 4),
                    key=lambda line: line.right, default=None)
        height = min(top - bottom, 12.0)
        if label is not None and "\n" not in text.strip():
            label.text, label.right = f"{label.text.rstrip()} {text.strip()}", right
            label.row = True  # what was filled in runs into no other line
        else:
            added += [Line(part.strip(), left, right, bottom, height, False, True)
                      for part in text.splitlines() if part.strip()]
    return lines + added


def _values(page: Any, forms: Any, c: Any) -> Iterator[tuple[str, tuple[float, float, float, float]]]:
    box = c.FS_RECTF()
    for index in range(min(c.FPDFPage_GetAnnotCount(page), _MOST_ANNOTATIONS)):
        annotation = c.FPDFPage_GetAnnot(page, index)
        if not annotation:
            continue
        try:
            text = "" if c.FPDFAnnot_GetFlags(annotation) & _HIDDEN else _value(annotation, forms, c)
            if text.strip() and c.FPDFAnnot_GetRect(annotation, box):
                yield text, (min(box.left, box.right), min(box.bottom, box.top), max(box.left, box.right),
                             max(box.bottom, box.top))
        finally:
            c.FPDFPage_CloseAnnot(annotation)


def _value(annotation: Any, forms: Any, c: Any) -> str:
    kind = c.FPDFAnnot_GetSubtype(annotation)
    if kind == c.FPDF_ANNOT_FREETEXT:
        return _string(lambda room, size: c.FPDFAnnot_GetStringValue(annotation, b"Contents", room, size), c)
    if kind != c.FPDF_ANNOT_WIDGET or forms is None:
        return ""
    field = c.FPDFAnnot_GetFormFieldType(forms, annotation)
    if field in (c.FPDF_FORMFIELD_CHECKBOX, c.FPDF_FORMFIELD_RADIOBUTTON):
        return "[x]" if c.FPDFAnnot_IsChecked(forms, annotation) else ""
    if field in (c.FPDF_FORMFIELD_TEXTFIELD, c.FPDF_FORMFIELD_COMBOBOX, c.FPDF_FORMFIELD_LISTBOX):
        return _string(lambda room, size: c.FPDFAnnot_GetFormFieldValue(forms, annotation, room, size), c)
    return ""


def _string(ask: Any, c: Any) -> str:
    size = ask(None, 0)
    if not 2 < size <= _LONGEST_VALUE:
        return ""
    room = ctypes.create_string_buffer(size)
    ask(ctypes.cast(room, ctypes.POINTER(c.FPDF_WCHAR)), size)
    return room.raw[: size - 2].decode("utf-16-le", "ignore").replace("\r\n", "\n").replace("\r", "\n")
