"""What is read takes of the context, part by part, and what is kept for answers."""

from __future__ import annotations

from dataclasses import dataclass

from triforce_core import DocumentFit


@dataclass(frozen=True)
class Part:
    """One document or choice of pages. estimated: its tokens were not counted."""

    title: str
    tokens: int
    estimated: bool = False


SLACK = 64  # tokens: where a page ends is not where the context does


def fitting_pages(fit: DocumentFit) -> int:
    """How many pages fit, taken from the start."""
    total, last = 0, 0
    for tokens in fit.page_tokens:
        total += tokens
        if total > fit.max_tokens - SLACK:
            break
        last += 1
    return last


def answer_room(fit: DocumentFit, context: int) -> int:
    """Tokens kept for questions and answers; 0 where memory is the limit or the context is not known."""
    return max(0, context - fit.max_tokens) if fit.limited_by == "context" else 0
