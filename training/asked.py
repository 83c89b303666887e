"""Documents with the questions about them, as the writer learns from them."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np


@dataclass
class Question:
    """golds: numbers of sentences; right: of passages; words: (passages, scores) in the order by words."""

    text: str
    before: str
    kind: str
    source: str
    answer: str
    golds: tuple[int, ...]
    right: tuple[int, ...]
    words: tuple[np.ndarray, np.ndarray]
    ranked: np.ndarray | None = None  # passages as the finder ranks them, the best first


@dataclass
class Asked:
    """A document. units: (headings, numbers of sentences) of each passage; pieces: what the encoder reads of each, its
    headings first."""

    name: str
    title: str
    held: bool
    sentences: list[str]
    lines: list[int]
    units: list[tuple[tuple[str, ...], tuple[int, ...]]]
    pieces: list[list[np.ndarray]]
    questions: list[Question]
    asked: list[tuple[np.ndarray, np.ndarray]] = field(default_factory=list)  # (question before, question) in pieces
