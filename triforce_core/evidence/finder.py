"""Find the passages of a document that answer a question, at once by their words, then as the encoder reads them.

Three things put passages in order: the words that they share with the question and static vectors, which take a second
for a whole book; the encoder's vectors, which are made in the background and used when those of all passages are
there; and the encoder that reads the best of these together with the question."""

from __future__ import annotations

import hashlib
import math
import re
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import zip_longest

import numpy as np

from ..documents.document import TOGETHER, Document
from ..events import Passage, Passages, QuotePlace
from .bm25 import BM25, telling
from .digest import Digest
from .encoder import Encoder, Reading
from .facts import asked_fact, facts_of
from .levels import Levels
from .line_roles import Role
from .outline import Named, Outline
from .passages import Text, Unit
from .question import REQUEST, RequestKind, compares, points_back, request_kind, subject_words
from .vector_cache import VectorCache
from .vectors import WordVectors

MOST = 8  # passages that are shown
READ, READ_OF_NEAR = 24, 12  # passages that the encoder reads; where its own vectors chose them
_BESIDE_NEAR, _BESIDE_STATIC = 0.1, 0.5  # what the best score by words counts beside a cosine of vectors
_NEAR_COUNTS, _WORDS_COUNT = 3.0, 1.0  # nats for a cosine and for the best score by words, beside what reading says
_COSINES = 3  # passages whose vectors are made for a question as long as those of all are not there
_IN_SECTION = 4.0  # nats in favour of what stands in the section that the question names
_OF_RECORD, _OFF_RECORD = 6.0, -2.0  # nats for the record that a question asks for; for every other
_BESIDE = 1.0  # nats that a neighbour's mark may lie below the best sentence's to be marked with it
_MARKED_WORDS = 40  # of a list
_OWN_WORDS = {
    RequestKind.SOCIAL: "You are welcome to ask about this document: the passages that answer are shown with their "
    "pages. To talk about anything else, load a chat model under Models.",
    RequestKind.TASK: "Passages can be found in this document, but to translate, rewrite or write something new, load "
    "a chat model under Models.",
    RequestKind.LANGUAGE: "Questions are understood in English only. To ask in another language, load a chat model "
    "under Models.",
}
_OF_SECTIONS = frozenset("chapter chapters section sections part parts article appendix clause cover covers covered "
                         "summarise summarize summary gist overview contents main points point key short brief "
                         "briefly discuss discusses state states give recap there talk talks deal deals".split())
_QUOTED = re.compile("“([^”]*+)(”?)")  # one that is open to the end is read once


class PassageFinder:
    """Finds passages of one document."""

    def __init__(self, document: Document, cache: VectorCache | None = None) -> None:
        self.text = Text.of(document)
        title = document.title
        self.units = [*self.text.units(title), *facts_of(self.text, title)]
        texts = [" ".join((*unit.path[1:], *self._sentences(unit))) for unit in self.units]
        self._language = document.spoken or "en"
        stems = [telling(text, self._language) for text in texts]
        vectors = WordVectors.shipped()
        self._words, self._static = BM25(stems, self._language, vectors.number), vectors.means(stems)
        self._own = [unit for unit in self.units if not unit.fact]
        self._outline = Outline(self.text, self._own)
        self._digest = Digest(self.text, self._own, self._outline)
        self._cache, self._document = cache, document.id
        self._digest_of_texts = hashlib.sha256("\n".join(texts).encode(errors="replace")).hexdigest()
        self._vectors = cache.load(self._document, self._digest_of_texts) if cache else None
        self._made: list[np.ndarray] = []

    @property
    def whole(self) -> bool:
        """Return whether the encoder's vectors of all passages are there."""
        return self._vectors is not None or not self.units

    def make_vectors(self, count: int) -> None:
        """Make the encoder's vectors of the next passages; with the last ones all are used, and kept."""
        done = sum(map(len, self._made))
        following = range(done, min(done + count, len(self.units)))
        self._made.append(Encoder.shipped().vectors([self.reading(at) for at in following]))
        if done + count >= len(self.units):
            self._vectors, self._made = np.concatenate(self._made), []
            if self._cache is not None:
                self._cache.save(self._document, self._digest_of_texts, self._vectors)

    def find(self, question: str, before: str = "", said: str = "") -> Iterator[Passages]:
        """Yield the first order, then the final one, or the final one alone. before: the question before; said: the
        answer to it."""
        kind = request_kind(question)
        if kind is RequestKind.LANGUAGE and self._speaks(question):
            kind = RequestKind.SENTENCE
        if not self.units or kind in _OWN_WORDS:
            yield Passages(question, kind.value, (), words=_OWN_WORDS.get(kind, ""))
            return
        if kind is RequestKind.MORE:
            following = self._following(said)
            if following:
                yield Passages(question, kind.value, tuple(self._shown(at, ()) for at in following))
                return
            question, before = before or question, ""
        named = self._outline.named(question, bare=kind in (RequestKind.SUMMARY, RequestKind.SEVERAL))
        if kind is RequestKind.SUMMARY or (named and named.section and not _asks(named.rest)):
            yield self._summary(question, named)
            return
        yield from self._search(question, before if points_back(question) else "", kind, named)

    def nearest(self, sentence: str, count: int) -> list[int]:
        """Return the numbers of the units nearest to a sentence by its words, the nearest first."""
        score = self._static_near(sentence) + _BESIDE_STATIC * self._shared(sentence)
        nearest: list[int] = np.argsort(-score, kind="stable")[:count].tolist()
        return nearest

    def places(self, unit: int, sentence: str) -> tuple[QuotePlace, ...]:
        """Return where the sentence of a unit stands that shares most with another sentence."""
        return self._shown(unit, self._sharing(unit, sentence)).marked

    def by_words(self, question: str) -> Passages:
        """Return what a search by words alone shows (BM25), to compare with."""
        order = np.argsort(-self._words.scores(question), kind="stable")
        shown = tuple(self._shown(at, self._sharing(at, question)) for at in self._apart(order.tolist()))
        return Passages(question, RequestKind.SENTENCE.value, shown)

    def _summary(self, question: str, named: Named | None) -> Passages:
        section = named.section if named else None
        vectors = self._vectors if self._vectors is not None else self._static
        chosen = self._digest.chosen(vectors[: len(self._own)], section)
        words = "" if named is None or section else _not_found(named, "this is of the whole document")
        passages = tuple(self._shown(at, [sentence]) for at, sentence in chosen)
        return Passages(question, RequestKind.SUMMARY.value, passages, words=words,
                        section=section.title if section else "")

    def _search(self, question: str, before: str, kind: RequestKind, named: Named | None) -> Iterator[Passages]:
        section, words = named.section if named else None, ""
        if named and not section and named.by_kind and not self._mentions(named.phrase):
            words = _not_found(named, "these are of the whole document")
        inside = np.zeros(len(self.units), bool)
        if section:
            inside[section.first : section.last] = True
        asked = f"{before} {question}".strip()
        shared = self._shared(asked)
        near = self._near(asked, question, before)
        first = near + (_BESIDE_STATIC if self._vectors is None else _BESIDE_NEAR) * shared
        wanted = asked_fact(question, self.text.document.title)
        records = np.zeros(len(self.units), np.float32)
        records[len(self._own) :] = [_OF_RECORD if unit.lead_in == wanted else _OFF_RECORD
                                     for unit in self.units[len(self._own) :]]
        order = self._by_turns(question, np.argsort(-(first + inside + records), kind="stable").tolist())
        title = section.title if section else ""
        shown = self._apart(order)
        passages = tuple(self._shown(at, self._sharing(at, asked)) for at in shown)
        yield Passages(question, kind.value, passages, "perhaps", words, title, final=False)
        numbers = self._to_read(order)
        encoder = Encoder.shipped()
        ranked = encoder.rank(question, before, [self.reading(at) for at in numbers])
        read = dict(zip(numbers, ranked, strict=True))
        nats = _WORDS_COUNT * shared + _IN_SECTION * inside + records
        if self._vectors is not None:
            nats += _NEAR_COUNTS * near
        scores = {at: one.score + float(nats[at]) for at, one in read.items()}
        shown = self._apart(self._by_turns(question, sorted(numbers, key=lambda at: -scores[at])))
        said = [read[at].score for at in shown]
        cosines = near[shown].tolist() if self._vectors is not None else self._cosines(question, before, shown)
        levels = Levels.shipped()
        passages = tuple(self._shown(at, marked_of(self.units[at], read[at].marks, self.text), chance)
                         for at, chance in zip(shown, levels.chances(said, cosines), strict=True))
        yield Passages(question, kind.value, passages, levels.level(said, cosines), words, title)

    def _near(self, asked: str, question: str, before: str) -> np.ndarray:
        """Return float32 [units]: cosines with the question, of the encoder's vectors if they are there."""
        if self._vectors is not None:
            near: np.ndarray = self._vectors @ Encoder.shipped().question_vector(question, before)
            return near
        return self._static_near(asked)

    def _static_near(self, text: str) -> np.ndarray:
        """Return float32 [units]: cosines of static vectors with a text."""
        near: np.ndarray = self._static @ WordVectors.shipped().means([telling(text, self._language)])[0]
        return near

    def _shared(self, text: str) -> np.ndarray:
        """Return float32 [units]: scores by the words shared with a text, the best one 1."""
        shared: np.ndarray = self._words.scores(text)
        shared /= max(float(shared.max(initial=0.0)), 1e-6)
        return shared

    def _cosines(self, question: str, before: str, units: Sequence[int]) -> list[float]:
        """Return the cosines of the first few with the question: it takes reading them once more."""
        vectors = Encoder.shipped().vectors([self.reading(at) for at in units[:_COSINES]])
        near: list[float] = (vectors @ Encoder.shipped().question_vector(question, before)).tolist()
        return near

    def _by_turns(self, question: str, order: list[int]) -> list[int]:
        """Return an order of passages in which documents that are compared take turns, each with its best first."""
        document = self.text.document
        if document.kind != TOGETHER or not compares(question):
            return order
        starts = [chapter.first for chapter in document.chapters if chapter.level == 1]
        sides: dict[int, list[int]] = {}
        for at in order:
            page = self.text.stretches[self.units[at].sentences[0]][0][0] + 1
            sides.setdefault(bisect_right(starts, page), []).append(at)
        return [at for turn in zip_longest(*sides.values()) for at in turn if at is not None]

    def _to_read(self, order: list[int]) -> list[int]:
        """Return the passages that the encoder reads: the best, and what the title page says."""
        facts = range(len(self._own), len(self.units))
        best = order[: max(1, (READ if self._vectors is None else READ_OF_NEAR) - len(facts))]
        return [*best, *(at for at in facts if at not in best)]

    def _apart(self, order: Sequence[int]) -> list[int]:
        """Return the first that do not show the same sentences."""
        taken: list[int] = []
        said: set[int] = set()
        for at in order:
            own = self.units[at].sentences
            if not said.intersection(own):
                taken.append(at)
                said.update(own)
            if len(taken) == MOST:
                break
        return taken

    def _shown(self, at: int, marked: Sequence[int], chance: float = 0.0) -> Passage:
        return self.text.passage(self.units[at], marked, chance)

    def _sharing(self, at: int, asked: str) -> list[int]:
        """Return the sentence of a passage that shares most with a question."""
        numbers = self.units[at].sentences
        return [max(numbers, key=lambda number: self._words.shared(asked, self.text.sentences[number]))]

    def _following(self, said: str) -> list[int]:
        """Return the passages behind the one that an answer quoted last, or that it is."""
        quoted = [words for words, closed in _QUOTED.findall(said) if closed] or [said]
        wanted = "".join(quoted[-1].split())
        ends = [at for at, unit in enumerate(self._own) for sentence in self._sentences(unit)
                if len(sentence) > 3 and wanted.endswith("".join(sentence.split()))] if wanted else []
        return list(range(ends[-1] + 1, min(ends[-1] + 3, len(self._own)))) if ends else []

    def _mentions(self, phrase: str) -> bool:
        """Return whether the text speaks of a section that is not its own: "Section 230"."""
        wanted = " ".join(phrase.lower().split())
        return any(wanted in sentence.lower() for sentence in self.text.sentences)

    def _speaks(self, question: str) -> bool:
        """Return whether the document holds most of the question's words, so that it is in its language."""
        terms = telling(question, self._language)
        return 2 * sum(term in self._words for term in terms) > len(terms)

    def _sentences(self, unit: Unit) -> list[str]:
        return [self.text.sentences[number] for number in unit.sentences]

    def reading(self, at: int) -> Reading:
        """Return a unit as the encoder reads it."""
        return Reading(self.units[at].path, tuple(self._sentences(self.units[at])))


def _asks(rest: str) -> bool:
    """Return whether a request asks for more than the section that it names."""
    return any(word not in _OF_SECTIONS for word in subject_words(rest) if word not in REQUEST)


def _not_found(named: Named, instead: str) -> str:
    return f"I found no section called “{named.phrase}” in this document; {instead}."


def marked_of(unit: Unit, marks: Sequence[float], text: Text) -> list[int]:
    """Return the sentences of a passage that answer: the one with the highest mark, and a neighbour that is nearly as
    likely; of a list the items that are, up to some words."""
    numbers, marks = unit.sentences, [*marks, *[-math.inf] * (len(unit.sentences) - len(marks))]
    order = sorted(range(len(numbers)), key=lambda place: -marks[place])
    best, taken = order[0], [order[0]]
    words = len(text.sentences[numbers[best]].split())
    for place in order[1:]:
        near = unit.role in (Role.ITEM, Role.ROW) or (abs(place - best) == 1 and len(taken) == 1)
        more = len(text.sentences[numbers[place]].split())
        if near and marks[place] >= marks[best] - _BESIDE and words + more <= _MARKED_WORDS + 20:
            taken.append(place)
            words += more
    return [numbers[place] for place in sorted(taken)]
