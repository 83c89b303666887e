"""Define what every reader takes and gives."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING

from ...errors import DocumentTooLargeError
from ..document import Word
from ..limits import ReadLimits

if TYPE_CHECKING:
    from ..ocr import Recognisers
    from .pdf_spans import Line

FORMATS = "PDF, TXT, Markdown, reStructuredText, HTML, DOCX, EPUB, CSV, MHT, PNG, JPEG, TIFF, WebP"


@dataclass(frozen=True)
class Source:
    """A file to read. name: what to call it in messages; skip: pages (from 0) that killed an earlier attempt;
    recognisers: for pages that are pictures; None: they are only reported; encoding: of its text, as the person chose
    it; "": it is found out. at_page: called before each page; hand_over: with the first pages, while others are still
    recognised."""

    path: Path
    name: str
    limits: ReadLimits
    password: str | None = None
    skip: frozenset[int] = frozenset()
    at_page: Callable[[int, int], None] = lambda page, pages: None
    recognisers: Recognisers | None = None
    encoding: str = ""
    hand_over: Callable[[Raw], None] = lambda raw: None

    def check_pages(self, pages: int) -> None:
        if pages > self.limits.pages:
            raise DocumentTooLargeError(
                f"{self.name} says that it has {pages:,} pages",
                allowed=f"up to {self.limits.pages:,} pages",
                remedy="Split it into smaller files.",
            )

    def check_characters(self, characters: int) -> None:
        if characters > self.limits.characters:
            raise DocumentTooLargeError(
                f"{self.name} holds more than {self.limits.characters:,} characters of text",
                remedy="Split it into smaller files.",
            )


@dataclass
class RawPage:
    """A page as extracted. failed: it could not be read; picture: it is drawn and has hardly a letter; garbled: its
    letters are not those that it shows, or some are not; kept: they are, for nothing better was recognised. words:
    those recognised in its picture. lines: of which its text is made, where the file places them."""

    label: str
    text: str
    picture: bool = False
    failed: bool = False
    garbled: bool = False
    kept: bool = False
    words: list[Word] = field(default_factory=list)
    lines: list[Line] = field(default_factory=list)


@dataclass(frozen=True)
class Heading:
    """An entry of the outline, or a heading of the text. page: where it stands (from 0). As the file has them: in any
    number, with any title."""

    title: str
    level: int
    page: int


@dataclass
class Unread:
    """Counts of what stands in the file and was left out of the text. Lost text is not counted: it is a warning."""

    pictures: int = 0  # and drawings, films, sounds, embedded objects
    comments: int = 0
    deletions: int = 0  # tracked ones
    hidden: int = 0  # words that the file says are not to be shown
    line_numbers: int = 0  # of listings
    controls: int = 0  # words of menus, buttons and forms
    picture_pages: int = 0  # pages that are only a picture
    unclear: int = 0  # lines in pictures of pages, or what looks like one
    attached: list[str] = field(default_factory=list)  # files, by their names
    running: Counter[str] = field(default_factory=Counter)  # page heads, feet and numbers, by their words

    def add(self, other: Unread) -> None:
        for part in fields(self):
            setattr(self, part.name, getattr(self, part.name) + getattr(other, part.name))

    def sentences(self) -> list[str]:
        """Return the counts in sentences fit to show."""
        said = (
            (self.pictures, "picture or other object was", "pictures and other objects were", "not read."),
            (self.picture_pages, "page that is only a picture was", "pages that are only a picture were", "not read."),
            (self.unclear, "line of a scan was", "lines of scans were", "left out: too unclear to be read."),
            (self.comments, "comment was", "comments were", "left out."),
            (self.deletions, "deletion that was tracked was", "deletions that were tracked were", "left out."),
            (self.hidden, "word that the file hides was", "words that the file hides were", "left out."),
            (self.line_numbers, "number of a line of code was", "numbers of lines of code were", "left out."),
            (self.controls, "word of menus, buttons or forms was", "words of menus, buttons and forms were",
             "left out."),
        )
        found = [f"{count:,} {one if count == 1 else many} {what}" for count, one, many, what in said if count]
        if self.attached:
            names = ", ".join(f"“{name[:80]}”" for name in self.attached[:5])
            found.append(f"{len(self.attached):,} attached {'file was' if len(self.attached) == 1 else 'files were'} "
                         f"not read: {names}{' and others' if len(self.attached) > 5 else ''}.")
        if self.running:
            often = ", ".join(f"“{words[:80]}”" for words, _ in self.running.most_common(3))
            found.append(f"{self.running.total():,} running lines at the top or foot of pages were left out: {often}"
                         f"{' and others' if len(self.running) > 3 else ''}.")
        return found


@dataclass
class Raw:
    """A file as extracted. laid_out: blanks in it count (the indentation of code), for the reader took all others
    away. joined: lays the clean texts of all pages out, if their lines end as on paper."""

    kind: str
    reader: str
    title: str
    pages: list[RawPage]
    laid_out: bool = False
    warnings: list[str] = field(default_factory=list)
    headings: list[Heading] = field(default_factory=list)
    language: str = ""  # as the file names it
    unread: Unread = field(default_factory=Unread)
    joined: Callable[[Sequence[str]], list[str]] = list


def page_numbers(numbers: Sequence[int]) -> str:
    """Return pages (counted from 0) in words: "Pages 1-3, 7"."""
    ranges: list[list[int]] = []
    for number in numbers:
        if ranges and number == ranges[-1][1] + 1:
            ranges[-1][1] = number
        else:
            ranges.append([number, number])
    words = [f"{first + 1}" if first == last else f"{first + 1}-{last + 1}" for first, last in ranges[:12]]
    more = f" and {len(ranges) - 12} more ranges" if len(ranges) > 12 else ""
    return f"{'Page' if len(numbers) == 1 else 'Pages'} {', '.join(words)}{more}"


def is_are(numbers: Sequence[int]) -> str:
    return "is" if len(numbers) == 1 else "are"
