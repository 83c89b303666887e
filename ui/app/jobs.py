"""What the engine is to do, as values: made when somebody asks for it, and nothing of them is looked up again later.

A document may be deleted, its pages chosen anew and settings turned while a job waits: the job is done as it was asked
for. What changes of a job is only how far it is.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

from triforce_core import Document, EngineConfig, PrefillProgress, SamplingParams, SpeculationConfig, Turn

from .library import Ranges
from .runs import Run

UNEXPECTED = "Something inside went wrong ({kind}). The app is still running; try again, or see the log."

READING_CANCELLED = "Reading was cancelled."

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
    """Everything that an answer follows from. selection: None where its document's text is still being taken out.
    lanes: name and configuration of each answer: one, or those of a race. system: instructions for it."""

    selection: Selection | None
    question: str
    sampling: SamplingParams
    lanes: tuple[tuple[str, SpeculationConfig], ...]
    history: tuple[Turn, ...] = ()
    system: str = ""

    def run(self, conversation: str = "", document: str = "", *, race: bool = False,
            heard: Callable[[], None] = lambda: None) -> Run:
        """Return what becomes of it, to be shown; holds no text. document: its id, where no pages are chosen."""
        return Run(self.selection.key if self.selection else document, self.question, conversation,
                   ranges=self.selection.ranges if self.selection else (), race=race, lanes=self.lanes,
                   system=self.system, longest=self.sampling.max_new_tokens, heard=heard)


class Fate(enum.IntEnum):
    """What is to become of a job. Of several wishes the strongest counts."""

    GO_ON = 0
    PAUSE = 1  # it gives way to another one, and is gone on with
    STOP = 2  # a person cancelled it
    DROP = 3  # nobody needs it any more, nor to hear how it ended: other pages are wanted, or the document is deleted


@dataclass(eq=False)
class Job:
    """One thing for the engine, the same object from when it is asked for to its end.

    document: its id, "" where the engine is started; config: with what, None for the same as before. selection: the
    pages that are meant; None while an answer waits for its document's text or for other pages to be chosen. stage:
    waiting, loading, its progress's while the document is put into the cache, "" once it stands there. number: the
    queue's, in order of asking. part: pages to answer from instead, once its reading was paused."""

    kind: JobKind
    document: str = ""
    selection: Selection | None = None
    request: Request | None = None
    run: Run | None = None
    config: EngineConfig | None = None
    fate: Fate = Fate.GO_ON
    stage: str = "waiting"
    progress: PrefillProgress | None = None
    number: int = 0
    part: Selection | None = None

    @property
    def cancelled(self) -> bool:
        """Whether it is to end and not to be gone on with."""
        return self.fate >= Fate.STOP

    @property
    def held(self) -> bool:
        """Whether it is a question that waits for its document's text, or for other pages of it."""
        return self.run is not None and self.selection is None

    @property
    def opening(self) -> bool:
        """Whether its document is being put into the cache."""
        return self.stage not in ("waiting", "")

    @property
    def is_short(self) -> bool:
        """Whether it is about a short document."""
        return self.selection is not None and self.selection.is_short


def in_order(waiting: Sequence[Job], front: Collection[str]) -> list[Job]:
    """Return those that wait for the engine in the order in which they will be done. front: the documents that somebody
    looks at now."""
    restarts = [job.number for job in waiting if job.kind == "engine"]  # nothing passes them
    return sorted((job for job in waiting if not job.held), key=lambda job: (
        job.kind == "trial",
        job.kind == "prefill" and job.document not in front,
        sum(number <= job.number for number in restarts), job.kind != "engine",
        not job.is_short, job.number))
