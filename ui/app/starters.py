"""A document -> questions that one might begin with, from its headings and the names that come up most. Pure, no model:
``suggestions`` tries them."""

from __future__ import annotations

import re
from collections import Counter

from triforce_core import Document

STARTER_NAME = "What does it say about {name}?"
STARTER_CHAPTER = "What is the point of the part “{chapter}”?"
STARTER_WHOLE = "What are its main points?"

LOOKED_AT = 400_000  # characters: names that matter come early and often
LEAST_OFTEN = 3
# A capital inside a sentence is a name's; behind an ending, a quotation mark or a line break it may be any word's.
_NAME = re.compile(r"(?<=[a-z,;] )[A-Z][A-Za-z]{2,}(?: (?:of |the |de |von )?[A-Z][A-Za-z]{2,}){0,2}\b")
_HEADING = re.compile(r"^(?:chapter|part|section)?\s*(?:[\dIVXLC]+(?:\.\d+)*[.:)]?)?\s*(.*)$", re.IGNORECASE)


def starters(document: Document) -> list[str]:
    """The most particular first, one for the whole last."""
    questions = [STARTER_NAME.format(name=name) for name in names(document)[:4]]
    questions += [STARTER_CHAPTER.format(chapter=title) for title in headings(document)[:3]]
    return [*questions, STARTER_WHOLE]


def names(document: Document) -> list[str]:
    """Names that come up at least LEAST_OFTEN times, the most frequent first; a part of a longer one counts with it.
    What is written small too, a third as often or more, is no name."""
    counted: Counter[str] = Counter()
    small: Counter[str] = Counter()
    size = 0
    for page in document.pages:
        text = " ".join(page.text.split())
        counted.update(_NAME.findall(text))
        small.update(re.findall(r"\b[a-z]{3,}", text))
        size += len(page.text)
        if size > LOOKED_AT:
            break
    found: list[str] = []
    for name, count in counted.most_common(40):
        proper = count >= LEAST_OFTEN and 3 * small[name.split()[0].lower()] < count
        if proper and not any(name in other or other in name for other in found):
            found.append(name)
    return found


def headings(document: Document) -> list[str]:
    """Headings in the middle of the document, numbers left off: lines of a few words that stand alone."""
    found = []
    for page in document.pages[len(document.pages) // 4 :]:
        for line in page.text.split("\n\n")[:3]:
            words = line.strip()
            match = _HEADING.match(words)
            title = match[1].strip() if match else ""
            short = "\n" not in words and 2 <= len(title.split()) <= 7
            if short and title[0].isupper() and title[-1] not in ".,;:?!”\"" and title not in found:
                found.append(title)
        if len(found) >= 3:
            break
    return found
