"""What the engine is to do, as values: made when somebody asks for it, and nothing of them is looked up again later.

A document may be deleted, its pages chosen anew and settings turned while a job waits: the job is done as it was asked
for. What changes of a job is only how far it is.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal

from triforce_core import Document, PrefillProgress, SamplingParams, SpeculationConfig, Turn

from .library import Ranges
from .runs import Run

SHORT = 8_000  # characters: some 2,000 tokens, which a machine without a GPU reads in a second
JobKind = Literal["engine", "prefill", "answer", "race", "trial"]


@dataclass(frozen=True, eq=False)
class Selection:
    """A document's text and the pages of it that are meant. key: its id in the library, or one of its own where it is
    ephemeral and does not stand there. ranges: pages by their places in the file, counted from 1."""

    key: str
    document: Document
    ranges: Ranges
    ephemeral: bool = False

    @classmethod
    def of_ephemeral(cls, document: Document, ranges: Ranges = ()) -> Selection:
        """ranges: () for all pages."""
        made = cls("", document, ranges or ((1, len(document.pages)),), True)
        return cls(made.chosen.id, document, made.ranges, True)

    @cached_property
    def chosen(self) -> Document:
        """The pages alone, as the engine opens them. Raises PageRangeError."""
        return self.document if self.ranges == ((1, len(self.document.pages)),) else self.document.pick(self.ranges)

    @cached_property
    def text(self) -> str:
        """Names the words of the pages: the same document may have been read from its file in another way since."""
        return self.chosen.id

    @cached_property
    def is_short(self) -> bool:
        """It is read about as soon as it is asked for."""
        return self.chosen.characters <= SHORT

    def same(self, other: Selection | None) -> bool:
        """Whether the same words stand in the cache for both, under the same name."""
        return other is not None and (self.key, self.ranges) == (other.key, other.ranges) and (
            self.document is other.document or self.text == other.text)


@dataclass(frozen=True, eq=False)
class Request:
    """Everything that an answer follows from. lanes: name and configuration of each answer: one, or those of a race.
    system: instructions for it."""

    selection: Selection
    question: str
    sampling: SamplingParams
    lanes: tuple[tuple[str, SpeculationConfig], ...]
    history: tuple[Turn, ...] = ()
    system: str = ""

    def run(self, conversation: str = "", *, race: bool = False, heard: Callable[[], None] = lambda: None,
            too_long: Callable[[Run], bool] = lambda run: False) -> Run:
        """What becomes of it, to be shown; holds no document."""
        return Run(self.selection.key, self.question, conversation, ranges=self.selection.ranges, race=race,
                   lanes=self.lanes, system=self.system, longest=self.sampling.max_new_tokens, heard=heard,
                   too_long=too_long)


@dataclass(eq=False)
class Prefill:
    """A document on its way into the cache. stage: waiting, loading, or its progress's. opening: it is under way.
    superseded: other pages of it were asked for since, or it was deleted: nobody needs to hear how it ended. paused: it
    gives way to something else and will be gone on with."""

    document: str
    stage: str = "waiting"
    progress: PrefillProgress | None = None
    cancelled: threading.Event = field(default_factory=threading.Event)
    opening: bool = False
    superseded: bool = False
    paused: bool = False

    @property
    def stopping(self) -> bool:
        """It is to end before it is done."""
        return self.paused or self.cancelled.is_set()


@dataclass(eq=False)
class Job:
    """One thing for the engine's thread. selection, prefill: all but those that start the engine have them; the flag of
    the prefill cancels the whole job. request: an answer's or a race's. number: the queue's, in order of asking.
    instead: what it is to be done as, once it was paused."""

    kind: JobKind
    work: Callable[[], None]
    selection: Selection | None = None
    prefill: Prefill | None = None
    run: Run | None = None
    request: Request | None = None
    number: int = 0
    instead: Job | None = None

    @property
    def is_short(self) -> bool:
        """It is about a short document."""
        return self.selection is not None and self.selection.is_short

    @property
    def opening(self) -> bool:
        return self.prefill is not None and self.prefill.opening
