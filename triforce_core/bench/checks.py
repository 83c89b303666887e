"""Judge statements about documents: ``python -m triforce_core.bench.checks FOLDER``.

FOLDER holds ``documents.jsonl`` (id, title, text) and ``claims.jsonl`` (doc, question, claim, label, kind), as
``training/check_claims.py`` writes them: true statements (label 0) and false ones of several kinds (1: the document
says nothing of it; 2: it denies it; 3: one of both). Each is judged as a sentence of an answer is, by the passages of
the whole document. A false one is *caught* unless it is called supported.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ..documents.document import Document, Page
from ..errors import ConfigError
from ..evidence.finder import PassageFinder
from ..evidence.support import SupportFinder
from .answers import tell

_PAGE = 3000  # characters


def document_of(title: str, text: str) -> Document:
    """Return a text on pages of whole paragraphs."""
    pages = [""]
    for paragraph in text.split("\n\n"):
        if len(pages[-1]) > _PAGE:
            pages.append("")
        pages[-1] += f"{paragraph}\n\n"
    return Document(title, "txt", tuple(Page(str(number), page.strip()) for number, page in enumerate(pages, start=1)),
                    "statements")


def load(folder: Path) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Return documents and claims. Raises ConfigError."""
    try:
        documents, claims = ([json.loads(line) for line in (folder / f"{name}.jsonl").read_text(encoding="utf-8")
                              .splitlines()] for name in ("documents", "claims"))
    except (OSError, ValueError) as error:
        raise ConfigError(f"{folder} holds no statements that can be read ({type(error).__name__}: {error})",
                          allowed="a folder with documents.jsonl and claims.jsonl") from error
    return documents, claims


def measure(folder: Path, part: tuple[int, int] = (0, 1)) -> Iterator[dict[str, Any]]:
    """Yield a record for each claim that can be judged. part: (k, n), the k-th of n parts of the documents."""
    documents, claims = load(folder)
    for document in documents[part[0] :: part[1]]:
        own = [claim for claim in claims if claim["doc"] == document["id"]]
        if not own:
            continue
        began = time.perf_counter()
        finder = SupportFinder(PassageFinder(document_of(document["title"], document["text"])))
        for claim in own:
            rows = finder.compared(claim["claim"], claim["question"])
            if rows:
                verdict, chance, _ = finder.judged(rows)
                features = [one.features.tolist() for one in rows]
                yield claim | {"verdict": verdict, "chance": chance, "features": features}
        print(f"{document['id']}: {len(own)} claims, {time.perf_counter() - began:.0f} s", file=sys.stderr, flush=True)


def table(records: Sequence[dict[str, Any]]) -> str:
    """Return Markdown: of each kind of false claim how many are caught and called contradicted, and the area under the
    curve against the true ones; what the true ones are called; how often "contradicted" is right."""
    true = [one for one in records if one["label"] == 0]
    false = [one for one in records if one["label"] > 0]
    lines = ["| false statements | number | caught | called contradicted | area |", "| --- | --- | --- | --- | --- |"]
    chances = np.array([one["chance"] for one in true])
    for name in ("**all**", *sorted({one["kind"] for one in false})):
        own = [one for one in false if name in ("**all**", one["kind"])]
        low = np.array([one["chance"] for one in own])[:, None]
        area = float((chances > low).mean() + 0.5 * (chances == low).mean()) if true and own else 0.0
        lines.append(f"| {name} | {len(own)} | {_share(one['verdict'] != 'supported' for one in own)} | "
                     f"{_share(one['verdict'] == 'contradicted' for one in own)} | {area:.3f} |")
    for name in sorted({one["kind"] for one in true}):
        own = [one for one in true if one["kind"] == name]
        lines.append(f"\n{name}: {len(own)} true, not found {_share(one['verdict'] == 'not found' for one in own)}, "
                     f"called contradicted {_share(one['verdict'] == 'contradicted' for one in own)}")
    called = [one for one in records if one["verdict"] == "contradicted"]
    lines.append(f"\n\"contradicted\": {len(called)} times, right in {_share(one['label'] >= 2 for one in called)}")
    return "\n".join(lines)


def _share(hits: Iterator[bool]) -> str:
    held = list(hits)
    return f"{100 * sum(held) / max(1, len(held)):.1f} %"


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m triforce_core.bench.checks", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="documents.jsonl and claims.jsonl")
    parser.add_argument("--part", type=int, nargs=2, default=(0, 1), metavar=("K", "N"),
                        help="the K-th, from 0, of N parts of the documents")
    parser.add_argument("--out", type=Path, metavar="FILE", help="write what was said of each, as JSON lines")
    given = parser.parse_args(arguments)
    return tell(measure(given.folder, tuple(given.part)), table, given.out)


if __name__ == "__main__":
    sys.exit(main())
