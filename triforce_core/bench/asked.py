"""What each workload asks of which documents, made ready on an engine that can count tokens."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ..assets import HANDBOOK
from ..documents import read_document
from ..documents.document import Document
from .made import made_document, made_needle
from .measure import Engine
from .workload import MADE, SUM_UP, cut, hide, questions_about, read_questions

_LISTINGS = ("code", "table")  # of several workloads, these are asked of documents of their own kind only


@dataclass(frozen=True, slots=True)
class Job:
    """A workload and one document for it. number: of the document among the workload's."""

    workload: str
    document: Document
    number: int


@dataclass(frozen=True, slots=True)
class Asked:
    """The workloads of a run. paths: given documents; made: documents that workloads make for themselves; context:
    tokens that documents are cut to; per_document: questions. questions: a file of them."""

    workloads: tuple[str, ...]
    paths: Sequence[Path]
    made: int
    context: int
    per_document: int
    questions: Path | None = None

    def jobs(self) -> list[Job]:
        """In an order in which workloads about the same document follow each other: it is read once for them.
        Raises DocumentError kinds."""
        given = [workload for workload in self.workloads if not self._makes(workload)]
        read = [read_document(path) for path in self.paths or [HANDBOOK]] if given else []
        jobs = [Job(workload, document, number) for number, document in enumerate(read) for workload in given]
        # Enough for any tokenizer: what is too long is cut.
        return jobs + [Job(workload, made_document(workload, 8 * self.context, number), number)
                       for workload in self.workloads if self._makes(workload) for number in range(self.made)]

    def _makes(self, workload: str) -> bool:
        return workload in MADE and (not self.paths or (len(self.workloads) > 1 and workload in _LISTINGS))

    def ready(self, job: Job, engine: Engine) -> tuple[Document, list[str | None], bool]:
        """Return the document as it is read, what is asked about it (None: to go on), and whether it is all there."""
        first, count = job.number * self.per_document, self.per_document if job.workload == "needle" else 0
        needles = [made_needle(number) for number in range(first, first + count)]
        short = cut(job.document, self.context, lambda part: engine.measure(hide(part, needles)).tokens)
        whole = short.characters == job.document.characters
        if needles:
            return hide(short, needles), [each.question for each in needles], whole
        if job.workload == "questions":
            asked = read_questions(self.questions) if self.questions else questions_about(short, self.per_document)
            return short, [*asked], whole
        return short, [SUM_UP if job.workload == "summary" else None], whole
