"""What a benchmark asks: documents cut to a length (said aloud: only a benchmark may cut), and questions about them."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from ..documents.document import Document, Page
from ..errors import ConfigError

WORKLOADS = ("continue", "questions", "needle", "summary", "code", "table")
FIVE = ("continue", "questions", "summary", "code", "table")  # what a person would ask
MADE = ("summary", "code", "table")  # for these a run makes its own documents unless it is given some
SUM_UP = "Sum up in your own words what the text says."
_NAME = re.compile(r"(?<=[a-z,;] )[A-Z][a-z]{3,}\b")  # inside a sentence: the first word says nothing
_SENTENCE = re.compile(r"(?<![^.!?])[^.!?]++[.!?]")
_SENTENCE_END = re.compile(r"[.!?][\"')]?(?=\s)")


@dataclass(frozen=True, slots=True)
class Needle:
    """A passage to hide in a document that has nothing to do with it, and a question that only it answers."""

    passage: str
    question: str


def cut(document: Document, max_tokens: int, count: Callable[[Document], int]) -> Document:
    """The document's beginning, of at most ``max_tokens`` by ``count`` and within a hundredth of it."""
    high = min(document.characters, 12 * max_tokens)
    best = _first_characters(document, high)
    high_tokens = count(best)
    if high_tokens <= max_tokens:
        return best
    low = low_tokens = 0
    best = _first_characters(document, 1)
    for _ in range(24):
        # Where the tokens would be if they were spread evenly: counting a long book is what costs here.
        share = (max_tokens * 0.995 - low_tokens) / (high_tokens - low_tokens)
        middle = min(high - 1, max(low + 1, low + round(share * (high - low))))
        shorter = _first_characters(document, middle)
        tokens = count(shorter)
        if tokens > max_tokens:
            high, high_tokens = middle, tokens
        else:
            low, low_tokens, best = middle, tokens, shorter
        if high - low < 2 or max_tokens - max_tokens // 100 <= low_tokens:
            break
    return best


def _first_characters(document: Document, characters: int) -> Document:
    pages: list[Page] = []
    for page in document.pages:
        if characters <= 0:
            break
        text = page.text[:characters]
        if len(text) < len(page.text) and " " in text:
            text = text[: text.rindex(" ")]
        pages.append(Page(page.label, text))
        characters -= len(page.text)
    return Document(document.title, document.kind, tuple(pages), document.reader, document.warnings)


def questions_about(document: Document, count: int) -> list[str]:
    """Questions of one form about rare names, spread over the document; the same for the same words."""
    text = " ".join(" ".join(page.text.split()) for page in document.pages)
    names = Counter(_NAME.findall(text))
    sentences = [sentence for sentence in _SENTENCE.findall(text) if len(sentence) > 40]
    questions: list[str] = []
    for part in range(count):
        some = sentences[part * len(sentences) // count : (part + 1) * len(sentences) // count]
        found = [(names[name], name) for sentence in some for name in _NAME.findall(sentence)]
        fresh = [(seen, name) for seen, name in found if not any(f" {name}?" in question for question in questions)]
        if fresh:
            questions.append(f"What does the text say about {min(fresh)[1]}?")
    return questions or ["What is this text about?"]


def hide(document: Document, needles: Sequence[Needle]) -> Document:
    """The document with the needles at even depths, each after the end of a sentence (or, without one, of a page)."""
    pages = list(document.pages)
    for number, needle in reversed(list(enumerate(needles))):  # from the end: depths before stay what they are
        offset = document.characters * (2 * number + 1) // (2 * len(needles))
        index = 0
        while offset > len(document.pages[index].text):
            offset -= len(document.pages[index].text)
            index += 1
        text = pages[index].text
        found = _SENTENCE_END.search(text, offset)
        at = found.end() if found else len(text)
        parts = text[:at].rstrip(), needle.passage, text[at:].lstrip(" ")
        pages[index] = replace(pages[index], text=" ".join(parts).strip())
    return replace(document, pages=tuple(pages))


def read_questions(path: Path) -> list[str]:
    """Read JSON Lines of {"question": ...}. Raises ConfigError naming the bad line."""
    questions = []
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} cannot be read: {error}") from error
    for number, line in enumerate(lines, start=1):
        if line.strip():
            try:
                questions.append(str(json.loads(line)["question"]))
            except (ValueError, KeyError, TypeError):
                raise ConfigError(f"{path}, line {number} is no question", allowed='{"question": "..."}') from None
    if not questions:
        raise ConfigError(f"{path} holds no question", allowed='one {"question": "..."} a line')
    return questions
