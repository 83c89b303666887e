"""Compare what is read from PDFs with PDFium's own characters: ``python -m docs.lost_letters FOLDER [--files 200]``.

Letters and digits of a file are compared as a multiset, whatever their order. What the reader leaves out and counts
(running lines, line numbers, hidden words) is no loss. Each file is read in a process of its own; a line a file, the
worst first."""

from __future__ import annotations

import argparse
import json
import random
import subprocess
import sys
import unicodedata
from collections import Counter
from pathlib import Path
from typing import Any

from triforce_core.documents.cleanup import finish
from triforce_core.documents.limits import ReadLimits
from triforce_core.documents.readers.pdf import read_with_pdfium
from triforce_core.documents.readers.source import Source
from triforce_core.errors import DocumentError

_ALLOWED = 0.02  # of a file's letters and digits
_SECONDS = 300
_MOST_DIGITS = 6  # of the number of a page or line, which the reader's account leaves open ("…")


def main() -> None:
    """Print the share of letters and digits that each file loses. The exit status is 1 where more than three lose more
    than 2 %."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--files", type=int, default=200, help="how many, drawn at random with a fixed seed")
    parser.add_argument("--one", action="store_true", help="FOLDER is one file; print its counts as JSON")
    options = parser.parse_args()
    if options.one:
        print(json.dumps(compare(options.folder)))
        return
    paths = sorted(options.folder.rglob("*.pdf"))
    random.Random(0).shuffle(paths)
    found: list[dict[str, Any]] = []
    refused = Counter[str]()
    for path in paths:
        if len(found) == options.files:
            break
        counts = _in_a_process(path)
        if "error" in counts:
            refused[counts["error"]] += 1
        else:
            found.append({"path": str(path.relative_to(options.folder)), **counts})
    found.sort(key=_share, reverse=True)
    for counts in found:
        print(f"{_share(counts):7.2%} of {counts['letters']:,} ({counts['lost'][:12]}) {counts['path']}")
    worse = sum(_share(counts) > _ALLOWED for counts in found)
    print(f"{worse} of {len(found)} files lose more than {_ALLOWED:.0%}; not compared: {dict(refused)}")
    sys.exit(worse > 3)


def _share(counts: dict[str, Any]) -> float:
    return float(counts["missing"] / max(counts["letters"], 1))


def _in_a_process(path: Path) -> dict[str, Any]:
    try:
        done = subprocess.run([sys.executable, "-m", "docs.lost_letters", str(path), "--one"], capture_output=True,
                              timeout=_SECONDS, check=True)
    except subprocess.SubprocessError as problem:
        return {"error": type(problem).__name__}
    return dict(json.loads(done.stdout))


def compare(path: Path) -> dict[str, Any]:
    """Return how many letters and digits PDFium finds in a file, how many of these are missing from what is read, and
    which most often; or the name of the error that says why it cannot be read."""
    try:
        raw = read_with_pdfium(Source(path, path.name, ReadLimits()))
        pages, _ = finish(raw, path.name)
    except DocumentError as problem:
        return {"error": type(problem).__name__}
    given = _counted(_characters(path))
    lost = given - _counted("".join(text for _, text in pages))
    numbers = raw.unread.line_numbers * _MOST_DIGITS
    for words, times in raw.unread.running.items():
        lost -= Counter({letter: times * count for letter, count in _counted(words.replace("…", "")).items()})
        numbers += times * words.count("…") * _MOST_DIGITS
    digits = sum(count for letter, count in lost.items() if letter.isdigit())
    words = len(_characters(path).split())
    hidden = round(raw.unread.hidden * given.total() / max(words, 1))
    missing = max(0, lost.total() - min(numbers, digits) - hidden)
    return {"letters": given.total(), "missing": missing, "hidden": hidden,
            "lost": "".join(letter for letter, _ in lost.most_common(30))}


def _characters(path: Path) -> str:
    import pypdfium2  # type: ignore[import-untyped]

    pdf = pypdfium2.PdfDocument(str(path))
    return "\n".join(page.get_textpage().get_text_range() for page in pdf)


def _counted(text: str) -> Counter[str]:
    return Counter(letter for letter in unicodedata.normalize("NFKD", text).casefold() if letter.isalnum())


if __name__ == "__main__":
    main()
