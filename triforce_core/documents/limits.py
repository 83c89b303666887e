"""How much of a file may be read before it counts as too large. The defaults hold any real book."""

from __future__ import annotations

from dataclasses import dataclass

MB = 1 << 20


@dataclass(frozen=True)
class ReadLimits:
    """What one reading may use. The reader process ends at its limits; the app does not."""

    file_bytes: int = 500 * MB
    pages: int = 20_000
    characters: int = 100_000_000
    memory_bytes: int = 2048 * MB  # address space of the reader process
    seconds: float = 60.0  # for the whole file ...
    seconds_per_page: float = 0.2  # ... and for every page on top
    page_seconds: float = 30.0  # without any sign of life
    zip_entries: int = 5_000
    zip_bytes: int = 1024 * MB  # unpacked
    zip_ratio: int = 200
    xml_depth: int = 500

    def seconds_for(self, pages: int) -> float:
        return self.seconds + self.seconds_per_page * min(pages, self.pages)
