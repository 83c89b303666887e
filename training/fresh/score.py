"""Scores an encoder on the fresh questions: `python -m training.fresh.score FOLDER FILE`.

FOLDER is what `training.fresh.get` wrote, FILE weights of `training.encoder`. For each question the passages of its
document in four orders: BM25, vectors, both, and the 24 best of both as the encoder reads them. A passage is right
when it holds the words that locate an answer; the marked sentence is right when it holds them or matches a key.
Only for the table of a release: nothing may be chosen by what this prints.
"""

from __future__ import annotations

import argparse
import json
import re
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch

from training.encoder_data import LONGEST, word_pieces
from training.encoder_report import BY_WORDS, area, best_sentences, said
from training.encoder_rows import row_of
from training.fresh.get import letters
from training.mpnet import BEGIN, END, Encoder, load
from training.passages import BM25, Words, text_of
from training.question_sets import read_lines, split
from triforce_core.documents import read_document
from triforce_core.evidence.passages import Unit, path_text, units_of
from triforce_core.prompt.builder import ascii_typography

READ = 24  # passages that are read


class Asked:
    """A document's passages, and how its questions find them."""

    def __init__(self, file: Path, title: str, net: Encoder, pieces: Sequence[str], device: str) -> None:
        text = ascii_typography("\n\n".join(page.text for page in read_document(file).pages))
        self.sentences, lines, _ = split(text)
        self.cut = units_of(title, self.sentences, lines)
        self._net, self._device, self._pieces = net, device, word_pieces(pieces)
        self._index = BM25([text_of(one, self.sentences) for one in self.cut], Words())
        self._vectors = said(net, [self._row([], one) for one in self.cut], device, None)

    def _ids(self, text: str) -> np.ndarray:
        return np.array(self._pieces.encode(text, add_special_tokens=False).ids[:LONGEST], np.uint16)

    def _row(self, asked: Sequence[np.ndarray], one: Unit) -> tuple[list[int], list[int]]:
        return row_of(asked, self._ids(path_text(one.path)), [self._ids(self.sentences[at]) for at in one.sentences])

    def orders(self, question: str) -> tuple[dict[str, list[int]], float, str]:
        """(numbers of passages in each order, the best score of those read, the marked sentence of the first)."""
        asked = self._ids(question)
        alone = [([BEGIN, *asked.tolist(), END], [-1] * (len(asked) + 2))]
        near = self._vectors @ said(self._net, alone, self._device, None)[0]
        shared = self._index.scores(question)
        both = near + BY_WORDS * shared / max(float(shared.max()), 1e-6)
        best = np.argsort(-both)[:READ]
        rows = [self._row([asked], self.cut[at]) for at in best]
        scores = said(self._net, rows, self._device, "rank")[:, 0]
        first = int(np.argmax(scores))
        own = self.cut[best[first]].sentences
        place = best_sentences(self._net, rows[first], [len(self._ids(self.sentences[at])) for at in own], self._device)
        found = {"BM25": np.argsort(-shared, kind="stable"), "vectors": np.argsort(-near), "both": np.argsort(-both),
                 "read": best[np.argsort(-scores)]}
        return ({way: order[:3].tolist() for way, order in found.items()}, float(scores.max()),
                self.sentences[own[min(place, len(own) - 1)]])


def right(one: dict, texts: Sequence[str]) -> list[bool]:
    """Whether each text holds words that locate an answer."""
    return [any(letters(words) in letters(text) for words in (*one["gold"], *one["also"])) for text in texts]


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("file", type=Path)
    parser.add_argument("--out", type=Path, help="each question with what was found")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    options = parser.parse_args()
    weights, pieces = load(options.file)
    net = Encoder(weights).to(options.device)
    net.working(torch.bfloat16, train=False)
    documents = json.loads((options.folder / "docs.json").read_text(encoding="utf-8"))
    questions = read_lines(options.folder / "questions.jsonl")
    outcome: dict[str, dict[str, list[tuple[bool, bool]]]] = defaultdict(lambda: defaultdict(list))
    sure: dict[bool, list[float]] = defaultdict(list)
    told = []
    for document in documents:
        asked = Asked(options.folder / "docs" / document["file"], document["title"], net, pieces, options.device)
        for one in (one for one in questions if one["doc"] == document["id"]):
            orders, score, marked = asked.orders(one["question"])
            sure[bool(one["gold"])].append(score)
            texts = {way: [" ".join(asked.sentences[at] for at in asked.cut[number].sentences) for number in order]
                     for way, order in orders.items()}
            told.append({**one, "score": score, "marked": marked, "found": texts["read"]})
            for way, own in texts.items() if one["gold"] else ():
                hits = right(one, own)
                for name in ("all", one["type"]):
                    outcome[name][way].append((hits[0], any(hits)))
            if one["gold"]:
                hit = right(one, [marked])[0] or any(re.search(key, marked, re.IGNORECASE) for key in one["key"])
                for name in ("all", one["type"]):
                    outcome[name]["marked"].append((hit, hit))
        print(f"{document['id']}: {len(asked.cut)} passages", flush=True)
    for name, ways in outcome.items():
        shown = ", ".join(f"{way} {np.mean([hit[0] for hit in hits]):.3f} / {np.mean([hit[1] for hit in hits]):.3f}"
                          for way, hits in ways.items())
        print(f"{name} ({len(ways['read'])}): {shown}")
    print(f"answered against unanswerable: area {area(sure[True], sure[False]):.3f}")
    if options.out:
        options.out.write_text("".join(f"{json.dumps(one, ensure_ascii=False)}\n" for one in told), encoding="utf-8")


if __name__ == "__main__":
    main()
