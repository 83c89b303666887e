"""Define what the page's process and the evidence process say to each other over a ``pipe``. A reply carries the number
of its request; nothing assumes that there is one at a time."""

from __future__ import annotations

from dataclasses import dataclass

from ..documents.document import Document
from ..events import SentenceSupport


@dataclass(frozen=True, slots=True)
class Index:
    """Make ready what checking against this document needs, in place of the document before. No reply."""

    document: Document


@dataclass(frozen=True, slots=True)
class Check:
    """Compare the sentences of an answer with the document that was indexed last."""

    number: int
    answer: str


@dataclass(frozen=True, slots=True)
class Checked:
    """The reply to ``Check``: the sentences that can be judged, in the answer's order."""

    number: int
    sentences: tuple[SentenceSupport, ...]
