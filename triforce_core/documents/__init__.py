"""Documents: read in a process of their own (``read_document``), laid out as token ids (``prompt``)."""

from .document import Document, Page
from .limits import ReadLimits
from .read import ReadCancelled, read_document

__all__ = ["Document", "Page", "ReadCancelled", "ReadLimits", "read_document"]
