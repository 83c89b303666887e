"""Documents: read in a process of their own (``read_document``), laid out as token ids (``prompt``)."""

from .document import Document, Page
from .limits import READERS, ReadLimits
from .read import ReadCancelled, read_document

__all__ = ["READERS", "Document", "Page", "ReadCancelled", "ReadLimits", "read_document"]
