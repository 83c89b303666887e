"""What is read takes of the context, part by part, what is kept for answers, and how full a conversation makes it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from triforce_core import DocumentFit

from .accumulator import figures_of
from .conversations import Answer
from .library import Ranges


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


TOKENS_A_WORD = 1.5  # of a question that nobody counted
FRAME = 16  # tokens around a question and its answer
LEAST_ANSWER = 32  # tokens: with fewer left, nothing worth reading is written


@dataclass(frozen=True)
class ContextUse:
    """Tokens of the open document and of a conversation about it, of ``most`` in all. longest: that an answer may
    have."""

    document: int
    conversation: int
    most: int
    longest: int

    @property
    def left(self) -> int:
        return max(0, self.most - self.document - self.conversation)

    @property
    def state(self) -> Literal["", "near", "full"]:
        """near: the next answer may not be as long as it might."""
        if not self.conversation:
            return ""  # the room that every document leaves
        if self.left < LEAST_ANSWER:
            return "full"
        return "near" if self.left < min(self.longest, (self.most - self.document) // 2) else ""


def conversation_tokens(answers: Sequence[Answer], document: int, ranges: Ranges, model: str) -> int:
    """What a conversation takes beside the document: as the engine counted with the last answer, or estimated where
    that was written from other pages or by another model, or not to its end."""
    if not answers:
        return 0
    last = answers[-1]
    figures = figures_of(last.result)
    counted = figures.prompt_tokens + figures.reused_tokens
    same = [list(pages) for pages in ranges] == [list(pages) for pages in last.result.get("ranges", ())]
    if counted > document and same and last.result.get("model") == model and not last.result.get("carried"):
        return counted + figures.tokens - document
    return sum(taken(answer) for answer in answers)


def taken(answer: Answer) -> int:
    """Tokens of an exchange, about."""
    return len(answer.token_ids) + round(TOKENS_A_WORD * len(answer.question.split())) + FRAME
