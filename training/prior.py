"""Makes the sentence prior: `python -m training.prior --corpus DIR --questions DIR --work DIR --out FILE`.

FILE holds networks over what `triforce_core.evidence` knows of sentences:

1. `sentence` (`training.sentence_network`): how well a sentence answers by its words; its examples stay in
   WORK/candidates.npz and WORK/mined.npz, the network that found the second in WORK/first.npz.
2. `summary` (`training.digests`): which sentences tell what the whole is about.
3. `answered`: whether any sentence answers. `training.reranker` adds it, and is to be run again after this; one that is
   in FILE already is kept.

A tenth of the documents with natural questions (a fifth of those with digests) is in no training and is reported.
Delete these files when features change; a trial (`--limit`) has a folder of its own.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import numpy as np
import torch

from training import digests, sentence_network
from training.networks import stored
from training.question_sets import (
    AskedDocument,
    add_sources,
    article_documents,
    held_out,
    left_out,
    natural_documents,
    processes,
)
from triforce_core.evidence.ranking import Network

Arrays = dict[str, np.ndarray]


def gather(file: Path, documents: Sequence[AskedDocument], make: Callable[[AskedDocument], Arrays],
           workers: int) -> Arrays:
    """The arrays that `make` gives for each document, end to end, from a file if an earlier run left it."""
    if not file.exists():
        started = time.time()
        parts: list[Arrays] = []
        with processes(workers) as running:
            for number, part in enumerate(running.imap(make, documents), 1):
                parts += [part] if part else []
                if number % 200 == 0:
                    print(f"  {number} of {len(documents)} documents, {time.time() - started:.0f} s", flush=True)
        unfinished = file.with_suffix(".part.npz")
        np.savez(unfinished, **{name: np.concatenate([part[name] for part in parts]) for name in parts[0]})
        unfinished.rename(file)
    with np.load(file) as kept:
        return {name: kept[name] for name in kept.files}


def sentence_network_of(documents: Sequence[AskedDocument], unseen: set[str], work: Path, vectors: Path,
                        workers: int) -> Network:
    """Both rounds."""
    first = work / "first.npz"
    if not first.exists():
        examples = gather(work / "candidates.npz", documents,
                          partial(sentence_network.candidates, vectors=vectors, first=None), workers)
        np.savez(first, **stored("sentence", sentence_network.fit(examples, unseen, sentence_network.FIRST_SEEDS)))
        del examples
    with np.load(first) as kept:
        found = Network.from_stored({name: kept[name].astype(np.float32) for name in kept.files}, "sentence")
    examples = gather(work / "mined.npz", documents,
                      partial(sentence_network.candidates, vectors=vectors, first=found), workers)
    return sentence_network.fit(examples, unseen)


def replace_networks(file: Path, networks: dict[str, Network]) -> None:
    """Writes networks under these names into a file, beside those that it holds under others."""
    arrays: Arrays = {}
    if file.exists():
        with np.load(file) as kept:
            arrays = {key: kept[key] for key in kept.files if key.split(".")[0] not in networks}
    for name, network in networks.items():
        arrays |= stored(name, network)
    unfinished = file.with_suffix(".part.npz")
    np.savez_compressed(unfinished, **arrays)
    unfinished.rename(file)


def make(options: argparse.Namespace) -> None:
    """All steps."""
    started = time.time()
    torch.set_num_threads(1)  # such small networks: more threads would wait for each other
    work = options.work / f"limit-{options.limit}" if options.limit else options.work
    work.mkdir(parents=True, exist_ok=True)
    without = left_out(options.left_out)
    natural = natural_documents(options.corpus, options.questions, without, options.limit)
    documents = [*natural, *article_documents(options.corpus, without, options.limit)]
    unseen = held_out(document.name for document in natural)
    print(f"{len(natural)} documents with {sum(len(document.queries) for document in natural)} natural questions, "
          f"{len(unseen)} of them held out; {len(documents) - len(natural)} articles", flush=True)

    sentence = sentence_network_of(documents, unseen, work, options.vectors, options.workers)
    summed = digests.digest_documents(options.corpus, options.questions, without, options.limit)
    summary = digests.fit([one for document in summed for one in digests.digests(document, options.vectors)],
                          options.seed)
    replace_networks(options.out, {"sentence": sentence, "summary": summary})
    print(f"{options.out}: {options.out.stat().st_size / 1e3:.0f} kB, {time.time() - started:.0f} s", flush=True)


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_sources(parser)
    parser.add_argument("--out", type=Path, required=True, help="assets/words/prior.npz ships")
    make(parser.parse_args())


if __name__ == "__main__":
    main()
