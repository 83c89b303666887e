"""Score the passages found in real documents: ``python -m triforce_core.bench.answers FOLDER``.

FOLDER holds ``docs.json``, ``questions.jsonl`` and ``docs/``: documents in their own formats, and questions with the
sentences that answer them. Letters and digits alone are compared, as readers keep or drop marks differently. Words are
*right* when they hold one of the sentences or match a key; a summary when every key is found in its passages together,
and a digest of a section when one of the sentences is. Each question is answered at four moments: by the words alone
(what a search by words, BM25, would show stands beside it, over the same passages and with the sentence marked that
shares most), as the encoder reads the best of these, by the encoder's vectors of all passages, and as it reads the best
of those.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..documents import read_document
from ..documents.typography import ascii_typography
from ..errors import ConfigError, TriForceError
from ..events import Passage, Passages
from ..evidence.finder import PassageFinder

_MOMENTS = ("bm25", "words", "words, read", "vectors", "vectors, read")
_AT_ONCE = 32  # passages that vectors are made of


@dataclass(frozen=True, slots=True)
class Asked:
    """One line of questions.jsonl. keys: regular expressions; accepted: sentences."""

    document: str
    kind: str
    question: str
    accepted: tuple[str, ...]
    keys: tuple[re.Pattern[str], ...]


def load_questions(folder: Path) -> tuple[list[dict[str, Any]], list[Asked]]:
    """Return the documents' records and the questions. Raises ConfigError."""
    try:
        documents = json.loads((folder / "docs.json").read_text(encoding="utf-8"))
        lines = (folder / "questions.jsonl").read_text(encoding="utf-8").splitlines()
        asked = [Asked(row["doc"], row["type"], row["question"], (*row["gold"], *row["also"]),
                       tuple(re.compile(key, re.IGNORECASE) for key in row["key"])) for row in map(json.loads, lines)]
    except (OSError, ValueError, KeyError, TypeError, re.error) as error:
        raise ConfigError(f"{folder} holds no questions that can be read ({type(error).__name__}: {error})",
                          allowed="a folder with docs.json, questions.jsonl and docs/") from error
    return documents, asked


def letters(text: str) -> str:
    """Return what is compared of two spellings."""
    return re.sub(r"[^a-z0-9]", "", text.lower())


def right(asked: Asked, text: str) -> bool:
    """Return whether words hold what answers."""
    spelt = letters(text)
    return (any(one in spelt for sentence in asked.accepted if (one := letters(sentence)))
            or any(_matches(key, text) for key in asked.keys))


def _matches(key: re.Pattern[str], text: str) -> bool:
    return key.search(text) is not None or key.search(" ".join(ascii_typography(text).split())) is not None


def marked_words(passage: Passage) -> str:
    """Return the words that are marked."""
    return " ".join(passage.text[start:end] for start, end in passage.marks)


def record_of(asked: Asked, moment: str, found: Passages, seconds: float) -> dict[str, Any]:
    """Return what was found for a question, and whether it is right: the first passage's marked words and its text, and
    those of the first three."""
    shown = found.passages
    together = " ".join(passage.text for passage in shown)
    if asked.kind == "summary":
        marked = text = three = bool(shown) and all(_matches(key, together) for key in asked.keys)
    elif found.request == "summary":  # of a section: its passages answer together
        marked = text = three = right(asked, together)
    else:
        marked = any(right(asked, marked_words(passage)) for passage in shown[:1])
        text = any(right(asked, passage.text) for passage in shown[:1])
        three = any(right(asked, marked_words(passage)) for passage in shown[:3])
    return {"document": asked.document, "type": asked.kind, "question": asked.question, "moment": moment,
            "request": found.request, "level": found.level, "section": found.section, "words": found.words,
            "marked_right": marked, "text_right": text, "three_right": three, "seconds": round(seconds, 3),
            "passages": [{"text": one.text, "marked": marked_words(one), "chance": round(one.chance, 3),
                          "page": one.places[0].label} for one in (shown if found.request == "summary" else shown[:3])]}


def measure(folder: Path, only: str = "", moments: Sequence[str] = _MOMENTS) -> Iterator[dict[str, Any]]:
    """Yield one record for each question and moment, document by document. only: a document's id."""
    documents, questions = load_questions(folder)
    for document in documents:
        own = [asked for asked in questions if asked.document == document["id"]]
        if (only and document["id"] != only) or not own:
            continue
        started = time.perf_counter()
        finder = PassageFinder(read_document(folder / "docs" / document["file"]))
        if "words, read" in moments:
            for asked in own:
                yield from _at(finder, asked, ("bm25", "words", "words, read"))
        while not finder.whole:
            finder.make_vectors(_AT_ONCE)
        for asked in own:
            yield from _at(finder, asked, ("vectors", "vectors, read"))
        print(f"{document['id']}: {len(finder.units)} passages, {time.perf_counter() - started:.0f} s", file=sys.stderr,
              flush=True)


def _at(finder: PassageFinder, asked: Asked, moments: Sequence[str]) -> Iterator[dict[str, Any]]:
    """Yield a record for each moment: the last two are the first order and the final one."""
    if len(moments) == 3:
        yield record_of(asked, moments[0], finder.by_words(asked.question), 0.0)
    started = time.perf_counter()
    found = list(finder.find(asked.question))
    for moment, one in zip(moments[-2:], (found[0], found[-1]), strict=True):
        yield record_of(asked, moment, one, time.perf_counter() - started)


def table(records: Sequence[dict[str, Any]]) -> str:
    """Return Markdown: of each type how many are right in the first passage, by its marked words and (by its whole
    text), and in the first three, at each moment; below it the levels of the last."""
    moments = [moment for moment in _MOMENTS if any(one["moment"] == moment for one in records)]
    lines = ["| | asked | " + " | ".join(f"{moment}: marked (first), in three" for moment in moments) + " |",
             "| --- | --- |" + " --- |" * len(moments)]
    answerable = [one for one in records if one["type"] not in ("unanswerable", "summary")]
    kinds = [kind for kind in dict.fromkeys(one["type"] for one in records) if kind != "unanswerable"]
    for name, own in (*((kind, [one for one in records if one["type"] == kind]) for kind in kinds),
                      ("**answerable**", answerable)):
        cells = [[one for one in own if one["moment"] == moment] for moment in moments]
        shares = (f"{_share(cell, 'marked_right')} ({_share(cell, 'text_right')}), {_share(cell, 'three_right')}"
                  for cell in cells)
        lines.append(f"| {name} | {len(cells[-1])} | " + " | ".join(shares) + " |")
    for moment in moments:
        if moment.endswith("read"):
            lines.append(_levels([one for one in records if one["moment"] == moment], moment))
    return "\n".join(lines)


def _levels(records: Sequence[dict[str, Any]], moment: str) -> str:
    answerable = [one for one in records if one["type"] not in ("unanswerable", "summary")]
    nothing = [one for one in records if one["type"] == "unanswerable"]
    called = [one for one in answerable if one["level"] == "found"]
    hidden = [one for one in answerable if one["three_right"] and one["level"] == "not found"]
    false = [one for one in called if not one["marked_right"]]
    return (f"\n{moment}: called found {len(called)} of {len(answerable)} answerable ({_of(called, answerable)}), "
            f"wrong and called found {len(false)} ({_of(false, answerable)}), called not found though one of three is "
            f"right {len(hidden)} ({_of(hidden, answerable)}); unanswerable called not found "
            f"{sum(one['level'] == 'not found' for one in nothing)}, perhaps "
            f"{sum(one['level'] == 'perhaps' for one in nothing)} of {len(nothing)}")


def _of(some: Sequence[object], whole: Sequence[object]) -> str:
    return f"{len(some) / max(1, len(whole)):.1%}"


def _share(records: Sequence[dict[str, Any]], name: str) -> str:
    return f"{100 * sum(one[name] for one in records) / max(1, len(records)):.0f} %"


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m triforce_core.bench.answers", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="docs.json, questions.jsonl and docs/")
    parser.add_argument("--document", default="", metavar="ID", help="this document only")
    parser.add_argument("--final-only", action="store_true", help="with the encoder's vectors alone")
    parser.add_argument("--out", type=Path, metavar="FILE", help="write what was found, as JSON lines")
    given = parser.parse_args(arguments)
    return tell(measure(given.folder, given.document, _MOMENTS[3:] if given.final_only else _MOMENTS), table, given.out)


def tell(measured: Iterator[dict[str, Any]], table: Callable[[Sequence[dict[str, Any]]], str], out: Path | None) -> int:
    """Print the table of what is measured, and write it as JSON lines. Return the command's exit code."""
    try:
        records = list(measured)
    except TriForceError as error:
        print(error, file=sys.stderr)
        return 2
    if out:
        out.write_text("".join(f"{json.dumps(one, ensure_ascii=False)}\n" for one in records), encoding="utf-8")
    print(table(records))
    return 0


if __name__ == "__main__":
    sys.exit(main())
