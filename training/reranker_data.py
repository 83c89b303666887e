"""What the reranker learns from: questions, the sentences that the sentence network likes best, and which are right.

Of documents with natural questions: questions that the document answers or does not (as people found); the first with
their answer hidden, the whole line of it; excerpts with questions that they answer, and others whose answer stood
elsewhere; and questions about other documents. Articles give plain pairs of question and answer.
"""

from __future__ import annotations

import pickle
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from random import Random

import numpy as np

from training.question_sets import AskedDocument, Query, processes
from training.sentence_network import before_of, index_of
from triforce_core.evidence.ranking import Network, Passage, by_words, passage, strange_names
from triforce_core.evidence.sentence_index import SentenceIndex

ANSWERED, UNANSWERABLE, HIDDEN = "answered", "unanswerable", "answer hidden"
EXCERPT, ELSEWHERE, FOREIGN = "answered in an excerpt", "answered outside the excerpt", "about another document"
CANDIDATES = 32  # sentences that the network likes best
FEWEST_LEFT = 5  # sentences that must stay when an answer is hidden
EXCERPTS, EXCERPT_LINES, SHORTEST_EXCERPT, OF_EXCERPT = 2, (6, 70), 8, 6  # their number; lines; sentences; questions
OF_OTHERS = 14  # questions about other documents, for each
MOST_OF_ARTICLE = 400  # questions


@dataclass(frozen=True, eq=False)
class Example:
    """A question put to a document. sentences: numbers of the document's, those that the network likes best, best
    first (``found`` of them), then the right ones that it does not. by_words: nats, golds: bool, both [sentences];
    strange: see ``strange_names``."""

    question: str
    case: str
    kind: str
    sentences: list[int]
    by_words: np.ndarray
    golds: np.ndarray
    found: int
    strange: np.ndarray


@dataclass(frozen=True, eq=False)
class ReadDocument:
    """passages: one for each sentence."""

    name: str
    passages: list[Passage]
    examples: list[Example]


@dataclass(frozen=True, eq=False)
class ReadArticle:
    """queries: (question, the number of the sentence that answers it)."""

    passages: list[Passage]
    queries: list[tuple[str, int]]


def example(index: SentenceIndex, sentence: Network, query: Query, case: str, before: str = "",
            hidden: np.ndarray | None = None) -> Example:
    """hidden: bool [n], sentences taken for not there."""
    scores = by_words(sentence, index, query.text, before)
    order = np.argsort(-scores, kind="stable")
    found = (order if hidden is None else order[~hidden[order]])[:CANDIDATES].tolist()
    golds = query.golds if case in (ANSWERED, EXCERPT) else ()
    kept = list(dict.fromkeys([*found, *golds]))
    return Example(f"{before} {query.text}".strip(), case, query.kind, kept, scores[kept].astype(np.float32),
                   np.isin(kept, golds), len(found), strange_names(index, query.text, kept))


def examples(document: AskedDocument, vectors: Path, sentence: Network, pool: Sequence[Query]) -> ReadDocument:
    """All of a document. pool: questions of all documents that need none before them."""
    chance, index = document.chance(), index_of(document, vectors)
    made = []
    for query in document.queries:
        before, hidden = before_of(query), np.isin(index.line_of, index.line_of[np.array(query.golds, int)])
        made.append(example(index, sentence, query, ANSWERED if query.golds else UNANSWERABLE, before))
        if query.golds and chance.random() < 0.5 and hidden.sum() < index.size - FEWEST_LEFT:
            made.append(example(index, sentence, query, HIDDEN, before, hidden))
    own = set(document.queries)
    made += [example(index, sentence, query, FOREIGN) for query in chance.sample(pool, min(len(pool), OF_OTHERS))
             if query not in own]
    for _ in range(EXCERPTS):
        made += excerpt(document, vectors, sentence, chance)
    return ReadDocument(document.name, [passage(index, at) for at in range(index.size)], made)


def excerpt(document: AskedDocument, vectors: Path, sentence: Network, chance: Random) -> list[Example]:
    """Questions about some lines in a row as if they were all: those they answer, and others of the document."""
    lines = sorted(set(document.lines))
    count = chance.randint(*EXCERPT_LINES)
    start = chance.randrange(max(1, len(lines) - count))
    kept = set(lines[start : start + count])
    numbers = [number for number, line in enumerate(document.lines) if line in kept]
    if len(numbers) < SHORTEST_EXCERPT:
        return []
    place = {number: at for at, number in enumerate(numbers)}
    part = AskedDocument(document.name, [document.sentences[number] for number in numbers],
                         [document.lines[number] for number in numbers], document.queries)
    index = index_of(part, vectors)
    inside = [replace(query, golds=tuple(place[gold] for gold in query.golds)) for query in document.queries
              if query.golds and place.keys() >= set(query.golds)]
    outside = [query for query in document.queries if query.golds and place.keys().isdisjoint(query.golds)]
    made = [example(index, sentence, query, case) for queries, case in ((inside, EXCERPT), (outside, ELSEWHERE))
            for query in chance.sample(queries, min(len(queries), OF_EXCERPT))]
    return [replace(one, sentences=[numbers[at] for at in one.sentences]) for one in made]


def read_documents(file: Path, documents: Sequence[AskedDocument], vectors: Path, sentence: Network,
                   workers: int) -> list[ReadDocument]:
    """The examples of documents with natural questions, from a file if an earlier run left it."""
    if not file.exists():
        started, made = time.time(), []
        pool = [query for document in documents for query in document.queries if query.golds and not query.before]
        make = partial(examples, vectors=vectors, sentence=sentence, pool=pool)
        with processes(workers) as running:
            for number, one in enumerate(running.imap(make, documents), 1):
                made.append(one)
                if number % 20 == 0:
                    print(f"  {number} of {len(documents)} documents, {time.time() - started:.0f} s", flush=True)
        unfinished = file.with_suffix(".part")
        unfinished.write_bytes(pickle.dumps(made))
        unfinished.rename(file)
    made = pickle.loads(file.read_bytes())
    return made


def article(document: AskedDocument) -> ReadArticle:
    """Its lines are paragraphs without headings. Of a long one some questions, so that it does not outweigh others."""
    sentences, lines = document.sentences, document.lines
    passages = [Passage(sentence, "", sentences[at - 1] if at and lines[at - 1] == lines[at] else "")
                for at, sentence in enumerate(sentences)]
    drawn = document.chance().sample(document.queries, min(len(document.queries), MOST_OF_ARTICLE))
    return ReadArticle(passages, [(query.text, query.golds[0]) for query in drawn])
