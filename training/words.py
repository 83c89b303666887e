"""Makes the word vectors: `python -m training.words --corpus DIR --corpus2 DIR --questions DIR --work DIR --out FILE`.

1. WORK/stems.txt: the stems of all text, a paragraph a line.
2. WORK/skipgram.npz: skip-gram vectors of the frequent ones (gensim), and how rare each is.
3. WORK/vectors-0.npz and WORK/vectors-1.npz: those and answer vectors (`training.answer_vectors`), fitted on the
   questions of one half of the documents, for `training.prior`: it learns from a table that has not seen the question.
4. FILE: the same with answer vectors fitted on all questions.

A step whose file stands in WORK is not done again; a trial (`--limit`) has a folder of its own there. One worker gives
the same vectors each time; with more, gensim's threads race and give similar ones.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Collection, Iterator
from pathlib import Path

import numpy as np
import torch

from training.answer_vectors import Answers, Bag, Bagged, bagged, fit, unlabelled_pairs
from training.question_sets import (
    AskedDocument,
    article_documents,
    fold_of,
    held_out,
    left_out,
    natural_documents,
)
from training.text import each_record
from triforce_core.prompt.typography import ascii_typography
from triforce_core.quotes.question_words import WORD
from triforce_core.quotes.word_vectors import Stems, WordVectors

TEXTS = ("prose-train", "books-train")  # of the first corpus
MORE_TEXTS = ("reports-train", "reference-train")  # of the second
DIMENSIONS, WINDOW, NEGATIVE, ROUNDS = 96, 6, 8, 2
FEWEST, MOST_COUNTED, MOST = 25, 40_000, 32_000  # times that a word must occur; words in training; words kept
UNLABELLED = {"prose-train": 1600, "reference-train": 3000, "reports-train": 900}  # documents read for weak pairs


def files_of(corpus: Path, corpus2: Path) -> dict[str, Path]:
    """All files of running text by name."""
    return {name: folder / f"{name}.jsonl.zst" for folder, names in ((corpus, TEXTS), (corpus2, MORE_TEXTS))
            for name in names}


def texts(file: Path, without: Collection[str], limit: int | None) -> Iterator[str]:
    """The texts of a file, in the model's spelling."""
    for number, record in enumerate(each_record(file)):
        if limit is not None and number >= limit:
            return
        if record["id"] not in without:
            yield ascii_typography(record["text"])


def write_stems(files: dict[str, Path], articles: list[AskedDocument], without: Collection[str], limit: int | None,
                out: Path) -> int:
    """Writes the stems of each paragraph of more than four words, a line each; returns how many words."""
    stem, total = Stems().of, 0
    unfinished = out.with_suffix(".part")
    with unfinished.open("w", encoding="utf8") as lines:
        def write(paragraph: str) -> int:
            words = [stem(word) for word in WORD.findall(paragraph.lower())]
            if len(words) < 5:
                return 0
            lines.write(" ".join(words) + "\n")
            return len(words)

        for file in files.values():
            for text in texts(file, without, limit):
                total += sum(map(write, text.split("\n")))
        for article in articles:
            paragraphs: dict[int, list[str]] = {}
            for sentence, line in zip(article.sentences, article.lines, strict=True):
                paragraphs.setdefault(line, []).append(sentence)
            total += sum(write(" ".join(sentences)) for sentences in paragraphs.values())
    unfinished.rename(out)
    return total


def skip_gram(stems: Path, workers: int, seed: int) -> tuple[list[str], np.ndarray, np.ndarray]:
    """(words [n], unit vectors [n, DIMENSIONS], rarity [n]: -log of each one's share), the most frequent first.

    Skip-gram with negative sampling (arXiv 1310.4546). Long words and long numbers are mostly noise and left out."""
    from gensim.models import Word2Vec

    model = Word2Vec(corpus_file=str(stems), vector_size=DIMENSIONS, window=WINDOW, min_count=FEWEST,
                     max_final_vocab=MOST_COUNTED, negative=NEGATIVE, sg=1, epochs=ROUNDS, workers=workers, sample=1e-4,
                     seed=seed).wv
    counts = np.array([model.get_vecattr(word, "count") for word in model.index_to_key], float)
    kept = [number for number, word in enumerate(model.index_to_key)
            if len(word) < 5 or (len(word) < 30 and not word[0].isdigit())][:MOST]
    vectors = model.vectors[kept]
    vectors /= np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-9)
    return [model.index_to_key[number] for number in kept], vectors, -np.log(counts / counts.sum())[kept]


def int8(rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(int8 rows, their scales): rows = int8 * scale."""
    scale = np.maximum(np.abs(rows).max(1), 1e-12) / 127
    return np.round(rows / scale[:, None]).astype(np.int8), scale.astype(np.float32)


def save(out: Path, words: list[str], vectors: np.ndarray, rarity: np.ndarray, answers: Answers) -> None:
    """Writes what `WordVectors.load` reads. Vectors of length 1 need no scale."""
    answer, answer_scale = int8(answers.answer)
    unfinished = out.with_suffix(".part.npz")
    np.savez_compressed(
        unfinished, words=np.frombuffer("\n".join(words).encode(), np.uint8), vectors=int8(vectors)[0],
        rarity=rarity.astype(np.float16), answer=answer, answer_scale=answer_scale,
        to_answer=answers.to_answer.astype(np.float32),
    )  # fmt: skip
    unfinished.rename(out)


def answer_tables(documents: list[AskedDocument], weak: list[tuple[Bag, Bag]], base: WordVectors, work: Path, out: Path,
                  epochs: int, seed: int) -> None:
    """Fits the three tables: of either half of the documents but the tenth that is held out, and of all documents."""
    words, measured = list(base.number), held_out(document.name for document in documents if document.natural)
    bags: list[Bagged] = [bagged(document, base) for document in documents]
    for fold, file in ((0, work / "vectors-0.npz"), (1, work / "vectors-1.npz"), (None, out)):
        if file.exists() and file != out:
            continue
        learnt = [bag for bag in bags if fold is None or (fold_of(bag.name) == fold and bag.name not in measured)]
        unseen = [] if fold is None else [bag for bag in bags if bag.name in measured]
        print(f"{file.name}: {sum(len(bag.queries) for bag in learnt)} questions", flush=True)
        save(file, words, base.vectors, base.rarity, fit(learnt, unseen, weak, base, epochs, seed))


def make(options: argparse.Namespace) -> None:
    """All steps."""
    torch.set_num_threads(1)  # results do not depend on the number of cores
    work = options.work / f"limit-{options.limit}" if options.limit else options.work
    work.mkdir(parents=True, exist_ok=True)
    without, files, started = left_out(options.left_out), files_of(options.corpus, options.corpus2), time.time()
    articles = article_documents(options.corpus, without, options.limit)
    natural = natural_documents(options.corpus, options.questions, without, options.limit)
    stems, skipgram = work / "stems.txt", work / "skipgram.npz"
    if not stems.exists():
        total = write_stems(files, articles, without, options.limit, stems)
        print(f"{total / 1e6:.1f} M words, {time.time() - started:.0f} s", flush=True)
    if not skipgram.exists():
        words, vectors, rarity = skip_gram(stems, options.workers, options.seed)
        # Until they are fitted, the answer vectors are the skip-gram vectors.
        save(skipgram, words, vectors, rarity, Answers(vectors, np.eye(DIMENSIONS)))
        print(f"{len(words)} word vectors, {time.time() - started:.0f} s", flush=True)
    base = WordVectors.load(skipgram)
    weak = unlabelled_pairs(
        (text for name, count in UNLABELLED.items() for text in texts(files[name], without, options.limit or count)),
        base, options.seed)  # fmt: skip
    print(f"{len(weak)} unlabelled pairs", flush=True)
    answer_tables([*natural, *articles], weak, base, work, options.out, options.epochs, options.seed)
    print(f"{options.out}: {options.out.stat().st_size / 1e6:.1f} MB, {time.time() - started:.0f} s", flush=True)


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--corpus", type=Path, required=True)
    parser.add_argument("--corpus2", type=Path, required=True, help="reports and reference text")
    parser.add_argument("--questions", type=Path, required=True, help="folder of the natural questions")
    parser.add_argument("--left-out", type=Path, help="docs.json of a test set that names documents not to train on")
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True, help="assets/words/vectors.npz is the one that ships")
    parser.add_argument("--epochs", type=int, default=4, help="of the answer vectors")
    parser.add_argument("--workers", type=int, default=1, help="of skip-gram")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--limit", type=int, help="documents of each kind, for a trial")
    make(parser.parse_args())


if __name__ == "__main__":
    main()
