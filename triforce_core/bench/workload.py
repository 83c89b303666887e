"""What a benchmark asks: documents cut to a length (said aloud: only a benchmark may cut), and questions about them."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from ..documents.document import Document, Page
from ..errors import ConfigError

_NAME = re.compile(r"(?<=[a-z,;] )[A-Z][a-z]{3,}\b")  # inside a sentence: the first word says nothing
_SENTENCE = re.compile(r"[^.!?]+[.!?]")


def cut(document: Document, max_tokens: int, count: Callable[[Document], int]) -> Document:
    """The document's beginning, of at most ``max_tokens`` by ``count`` and within a hundredth of it."""
    characters = min(document.characters, 12 * max_tokens)
    if count(_first_characters(document, characters)) <= max_tokens:
        return _first_characters(document, characters)
    low, high = 0, characters
    best = _first_characters(document, 1)
    for _ in range(24):
        middle = (low + high + 1) // 2
        shorter = _first_characters(document, middle)
        tokens = count(shorter)
        if tokens > max_tokens:
            high = middle - 1
        else:
            low, best = middle, shorter
            if tokens >= max_tokens - max_tokens // 100 or low >= high:
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


def read_questions(path: Path) -> list[str]:
    """JSON Lines of {"question": ...}. Raises ConfigError naming the bad line."""
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
