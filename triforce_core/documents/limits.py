"""Limits of what may be read of a file before it counts as too large. The defaults hold any real book."""

from __future__ import annotations

import os
from dataclasses import dataclass, field, replace

from ..sandbox.child import restrict

MB = 1 << 20
LONG_SIDE = 1_760  # pixels of a page that is drawn to be recognised: 160 dots per inch of a letter
# Reader processes side by side: a file that takes all of its time holds nobody else up, and the machine stays usable.
_NETWORKS, _PAGE_SECONDS = 3072 * MB, 120.0  # on top, where pages are recognised: address space; time for a page
READERS = max(2, min(3, (os.cpu_count() or 1) - 1))
_MOST_MEMORY, _LEAST_MEMORY = 2048 * MB, 512 * MB  # of one of them


def _memory_share() -> int:
    """Return the bytes of one reader, so that all of them together leave half of the machine's memory alone."""
    try:
        machine = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):  # not on Windows, where no such limit can be set either
        return _MOST_MEMORY
    return max(_LEAST_MEMORY, min(_MOST_MEMORY, machine // (2 * READERS)))


@dataclass(frozen=True)
class ReadLimits:
    """Limit what one reading may use. The reader process ends at its limits; the app does not."""

    file_bytes: int = 500 * MB
    pages: int = 20_000
    characters: int = 100_000_000
    memory_bytes: int = field(default_factory=_memory_share)  # address space of the reader process
    seconds: float = 60.0  # for the whole file ...
    seconds_per_page: float = 0.2  # ... and for every page on top
    page_seconds: float = 30.0  # without any sign of life
    zip_entries: int = 5_000
    zip_bytes: int = 1024 * MB  # unpacked
    zip_ratio: int = 200
    xml_depth: int = 500

    def seconds_for(self, pages: int) -> float:
        return self.seconds + self.seconds_per_page * min(pages, self.pages)

    def for_recognition(self) -> ReadLimits:
        """Return limits for a process that recognises the words on pictures of pages."""
        return replace(self, memory_bytes=self.memory_bytes + _NETWORKS, page_seconds=self.page_seconds + _PAGE_SECONDS,
                       seconds_per_page=self.seconds_per_page + _PAGE_SECONDS)

    def enforce(self) -> None:
        """Hold this process to what one reading may use."""
        restrict(self.memory_bytes, int(self.seconds_for(self.pages)) + 1)
