"""Texts with questions, as `training.data` keeps them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Asked:
    """A question about a paragraph: the gold sentences as a span of the paragraph's tokens."""

    question: str
    first: int
    end: int
    answer: str | None


@dataclass(frozen=True)
class Variant:
    """One wording of a paragraph."""

    ids: np.ndarray
    sentences: np.ndarray
    asked: tuple[Asked, ...]


@dataclass(frozen=True)
class Paragraph:
    """A paragraph in its variants (the first is the original), and the article that it belongs to."""

    article: str
    variants: tuple[Variant, ...]


@dataclass(frozen=True)
class AskedText:
    """A whole document with questions that people asked while reading it. Spans are of the document's tokens."""

    ids: np.ndarray
    sentences: np.ndarray
    asked: tuple[Asked, ...]
