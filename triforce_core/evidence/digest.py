"""Choose the passages of a digest by their sentences that tell what the text is for, what it does and what it finds; a
part of the text gives the fewer the more it has given."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import pairwise

import numpy as np

from .line_roles import Role
from .outline import Outline, Section
from .passages import Text, Unit

MOST = 8  # passages
_FEW, _EACH = 4, 5  # passages of a short stretch; passages of the text for one of the digest, in a longer one
_STRETCHES = 6  # where a text has no sections
_SHORTEST, _LONGEST = 5, 90  # words of a sentence that tells; of its passage
_AGAIN = 0.7  # what each passage already taken from a part counts against its next one

_NAMES = (r"(?:report|paper|document|chapter|book|article|guide|handbook|manual|proposal|essay|speech|page|post|"
          r"section|specification|standard|memo|opinion|case|appeal|agreement|contract|study|work|text|module|policy|tutorial)")
_OF_ITSELF = re.compile(
    rf"\b(?:[Tt]his|[Tt]he present|[Oo]ur) {_NAMES}\b|\b[Ww]e (?:propose|present|describe|show|introduce|examine|"
    rf"discuss|argue|conclude|hold|affirm|review|find)\b|\b[Ii]n this {_NAMES}")
_STRONG = re.compile(
    r"\b(?:important|key|main|most|must|should|need|conclu\w+|therefore|overall|in short|major|because|goal|principle|"
    r"results?|findings?|recommend\w*|significant\w*|essential|purpose|provides?|defin\w+|describ\w+)\b", re.IGNORECASE)
_DOES = re.compile(r"\b(?:describes?|propos\w+|defin\w+|discuss\w*|examin\w+|outlin\w+|provid\w+|explain\w*|"
                   r"introduc\w+|cover\w*|overview|purpose|goal|aim|allows?|specif\w+|presents?|explor\w+|"
                   r"summar\w+|focus\w*)\b")
_LEANS = re.compile(r"\W*(?:This|These|It|They|That|Those|He|She|Such|However|But|And|Thus|Therefore|Moreover|"
                    r"For example|Then|So|In addition|Also|Another|Here|There)\b")
_IMPRINT = re.compile(r"\be-?books?\b|project gutenberg|\bcopyright|all rights reserved|\bisbn\b|©|\A\[\S{1,5}\] |"
                      r"if you are not located|\A(?:title|authors?|product type|publication date|published|version|"
                      r"status|credits?)\b.{0,20}:", re.IGNORECASE)
_OPENS = re.compile(r"\b(?:abstract|summary|introduction|overview|purpose|background|preface|objectives?|motivation)\b",
                    re.IGNORECASE)
_CLOSES = re.compile(r"\b(?:conclusions?|closing|key (?:points|takeaways)|results|findings|recommendations)\b",
                     re.IGNORECASE)
_SENTENCE = re.compile(r"(?![#a-z]|Sources?:|Notes?:).*[.!?][\"')\]”’]*", re.DOTALL)


class Digest:
    """Makes digests of one document."""

    def __init__(self, text: Text, units: Sequence[Unit], outline: Outline) -> None:
        self._text, self._units, self._outline = text, units, outline

    def chosen(self, vectors: np.ndarray, section: Section | None) -> list[tuple[int, int]]:
        """Return numbers of passages in the document's order, each with the number of the sentence that tells most.
        vectors: [units, width], each of length 1; section: what is summarised, None for the whole."""
        first, last = (section.first, section.last) if section else (0, len(self._units))
        parts = self._outline.parts(first, last) or _stretches(first, last)
        part_of = {number: at for at, part in enumerate(parts) for number in range(part.first, part.last)}
        best = {unit: (score, sentence) for score, sentence, unit in sorted(self._scored(vectors, first, last))}
        times = [0] * (len(parts) + 1)  # the last: of no part
        told: dict[int, int] = {}
        said: set[str] = set()
        while best and len(told) < min(MOST, max(_FEW, (last - first) // _EACH)):
            number = max(best, key=lambda unit: best[unit][0] - _AGAIN * times[part_of.get(unit, -1)])
            words = self._words(number)
            if said.isdisjoint(words):
                said.update(words)
                times[part_of.get(number, -1)] += 1
                told[number] = best[number][1]
            del best[number]
        return sorted(told.items())

    def _words(self, number: int) -> list[str]:
        return [self._text.sentences[sentence] for sentence in self._units[number].sentences]

    def _scored(self, vectors: np.ndarray, first: int, last: int) -> Iterator[tuple[float, int, int]]:
        """Yield (how much it tells, number, its passage) of the sentences of passages [first, last) that may stand."""
        middle = vectors[first:last].mean(0)
        near = vectors[first:last] @ (middle / max(float(np.linalg.norm(middle)), 1e-9))
        near = (near - near.mean()) / max(float(near.std()), 1e-6)
        headings: tuple[str, ...] = ()
        under = seen = 0  # passages below the same headings, sentences so far
        for number in range(first, last):
            unit, words = self._units[number], self._words(number)
            under = under + 1 if unit.headings == headings else 0
            headings = unit.headings
            if unit.role not in (Role.PROSE, Role.ITEM) or len(" ".join(words).split()) > _LONGEST:
                continue
            titles = " ".join(headings[1:])
            stands = (0.5 * (under == 0) + 0.7 * (under < 3 and bool(_OPENS.search(titles)))
                      + 0.7 * bool(_CLOSES.search(titles)) - 0.4 * (unit.role is Role.ITEM)
                      + float(near[number - first]))
            for sentence, said in zip(unit.sentences, words, strict=True):
                if len(said.split()) >= _SHORTEST and _SENTENCE.fullmatch(said) and not _IMPRINT.search(said):
                    early = 1.0 * (seen < 3) + 0.5 * (seen < 10) + 0.25 * (seen < 30)
                    opens = 0.3 * (sentence == 0 or self._text.lines[sentence - 1] != self._text.lines[sentence])
                    yield stands + early + opens + _says(said), sentence, number
                    seen += 1


def _says(sentence: str) -> float:
    """Return what speaks for a sentence in its words: it says what the text does or finds."""
    return (2.0 * bool(_OF_ITSELF.search(sentence)) + 0.6 * bool(_DOES.search(sentence))
            + 0.5 * bool(_STRONG.search(sentence)) - 0.7 * bool(_LEANS.match(sentence))
            - 0.8 * sentence.endswith("?") - 0.5 * (len(sentence.split()) > 45))


def _stretches(first: int, last: int) -> list[Section]:
    """Return stretches of like length, for a text without parts."""
    count = max(1, min(_STRETCHES, (last - first) // 6))
    ends = np.linspace(first, last, count + 1).astype(int).tolist()
    return [Section("", 1, start, end) for start, end in pairwise(ends)]
