"""Makes the word vectors: `python -m training.words --corpus DIR --corpus2 DIR --work DIR --out FILE`.

WORK/stems.txt holds the stems of all text, a paragraph a line; it is not made again. FILE: skip-gram vectors of the
frequent ones (gensim), and how rare each is. One worker gives the same vectors each time; with more, gensim's threads
race and give similar ones. A trial (`--limit`) has a folder of its own in WORK.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Collection, Iterator
from pathlib import Path

import numpy as np

from training.question_sets import AskedDocument, article_documents, left_out
from training.text import each_record
from triforce_core.evidence.question import WORD
from triforce_core.evidence.vectors import stem
from triforce_core.prompt.builder import ascii_typography

TEXTS = ("prose-train", "books-train")  # of the first corpus
MORE_TEXTS = ("reports-train", "reference-train")  # of the second
DIMENSIONS, WINDOW, NEGATIVE, ROUNDS = 96, 6, 8, 2
FEWEST, MOST_COUNTED, MOST = 25, 40_000, 32_000  # times that a word must occur; words in training; words kept
# Steps of int8 that are merged into one: a row's largest entry is 8 instead of 127. The answers are as good, and the
# file packs into 1.7 MB instead of 3.1.
COARSER = 16


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
    total = 0
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


def save(out: Path, words: list[str], vectors: np.ndarray, rarity: np.ndarray) -> None:
    """Writes what `WordVectors.load` reads. It makes each row's length 1, so that no row needs a scale."""
    int8 = np.round(127 * vectors / np.maximum(np.abs(vectors).max(1, keepdims=True), 1e-12))
    unfinished = out.with_suffix(".part.npz")
    np.savez_compressed(unfinished, words=np.frombuffer("\n".join(words).encode(), np.uint8),
                        vectors=np.round(int8 / COARSER).astype(np.int8), rarity=rarity.astype(np.float16))
    unfinished.rename(out)


def make(options: argparse.Namespace) -> None:
    """Both steps."""
    work = options.work / f"limit-{options.limit}" if options.limit else options.work
    work.mkdir(parents=True, exist_ok=True)
    stems, started = work / "stems.txt", time.time()
    if not stems.exists():
        without = left_out(options.left_out)
        articles = article_documents(options.corpus, without, options.limit)
        total = write_stems(files_of(options.corpus, options.corpus2), articles, without, options.limit, stems)
        print(f"{total / 1e6:.1f} M words, {time.time() - started:.0f} s", flush=True)
    words, vectors, rarity = skip_gram(stems, options.workers, options.seed)
    save(options.out, words, vectors, rarity)
    print(f"{options.out}: {len(words)} word vectors, {options.out.stat().st_size / 1e6:.1f} MB, "
          f"{time.time() - started:.0f} s", flush=True)


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--corpus", type=Path, required=True)
    parser.add_argument("--corpus2", type=Path, required=True, help="reports and reference text")
    parser.add_argument("--left-out", type=Path, help="docs.json of a test set that names documents not to train on")
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True, help="assets/words/vectors.npz ships")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--limit", type=int, help="documents of each kind, for a trial")
    make(parser.parse_args())


if __name__ == "__main__":
    main()
