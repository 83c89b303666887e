"""Measure the reading of scans: ``python -m docs.scans FILE.pdf ...`` on an idle machine.

Takes pages with text from each file, makes a scan of them (150 dots an inch, up to three degrees askew, soft, noisy,
JPEG of quality 50) and compares what is read of it with what is read of the file's own text. The last line is JSON."""

from __future__ import annotations

import argparse
import io
import json
import os
import re
import tempfile
import time
from collections import Counter
from pathlib import Path
from statistics import mean, median
from typing import Any

import numpy as np
import pypdfium2 as pdfium
from PIL import Image, ImageFilter

from triforce_core import Document, read_document

DPI = 150
MOST_SKEW = 3.0  # degrees
LEAST_LETTERS = 500  # of a page that is taken
_SAME = str.maketrans("“”„‘’‚‐‑–—−", "\"\"\"'''-----")


def scan(page: Any, rng: np.random.Generator) -> Image.Image:
    """Return a page of PDFium's as a scanner would have it."""
    picture = page.render(scale=DPI / 72).to_pil().convert("L")
    angle = float(rng.uniform(-MOST_SKEW, MOST_SKEW))
    picture = picture.rotate(angle, Image.Resampling.BICUBIC, expand=True, fillcolor=255)
    levels = np.asarray(picture.filter(ImageFilter.GaussianBlur(0.6)), np.float32)
    noisy = 25 + levels * 0.85 + rng.normal(0, 8, levels.shape)
    out = io.BytesIO()
    Image.fromarray(noisy.clip(0, 255).astype(np.uint8)).save(out, "JPEG", quality=50)
    return Image.open(out)


def flat(text: str) -> str:
    """Return a text for comparison: kinds of white space, quotation marks and dashes are one."""
    return " ".join(text.translate(_SAME).replace("…", "...").split())


def distance(one: str, other: str) -> int:
    """Return the least number of characters to be put in, taken out or changed."""
    letters = np.array([ord(letter) for letter in other], np.int32)
    along = np.arange(len(other) + 1)
    row = along.copy()
    for count, letter in enumerate(one, 1):
        best = np.minimum(row[1:] + 1, row[:-1] + (letters != ord(letter)))
        row = np.minimum.accumulate(np.concatenate(([count], best)) - along) + along
    return int(row[-1])


def recall(wanted: str, found: str) -> float:
    """Return the share of the words that were found, in whatever order."""
    words, there = (Counter(re.findall(r"\w+", text)) for text in (wanted, found))
    return (words & there).total() / max(1, words.total())


def excerpt(path: Path, pages: int, folder: Path) -> Path:
    """Write the middle pages of those that have text into a PDF of their own."""
    pdf = pdfium.PdfDocument(str(path))
    full = [at for at in range(len(pdf)) if pdf[at].get_textpage().count_chars() > LEAST_LETTERS]
    first = max(0, (len(full) - pages) // 2)
    part = pdfium.PdfDocument.new()
    part.import_pages(pdf, full[first : first + pages])
    part.save(str(folder / path.name))
    return folder / path.name


def computed() -> float:
    """Return the CPU seconds of all processes that have ended, which readers are."""
    times = os.times()
    return times.children_user + times.children_system


def scanned(text: Path, seed: int) -> tuple[Document, float, float]:
    """Return what is read of a scan of a PDF, and the seconds a page, by the clock and of CPU."""
    rng = np.random.default_rng(seed)
    first, *others = [scan(page, rng) for page in pdfium.PdfDocument(str(text))]
    path = text.with_suffix(".scan.pdf")
    first.save(path, "PDF", resolution=DPI, save_all=True, append_images=others)
    started, before = time.perf_counter(), computed()
    document = read_document(path)
    return (document, (time.perf_counter() - started) / len(document.pages),
            (computed() - before) / len(document.pages))


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m docs.scans", description=__doc__)
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument("--pages", type=int, default=10, help="of each file")
    parser.add_argument("--keep", type=Path, help="a folder for both texts of each page, to be compared")
    arguments = parser.parse_args()
    rates, recalls, seconds, cpu = [], [], [], []
    wrong = letters = 0
    for number, path in enumerate(arguments.files):
        with tempfile.TemporaryDirectory() as folder:
            part = excerpt(path, arguments.pages, Path(folder))
            text = read_document(part)
            found, took, work = scanned(part, seed=number)
        seconds += [took] * len(found.pages)
        cpu += [work] * len(found.pages)
        for at, (page, read) in enumerate(zip(text.pages, found.pages, strict=True), 1):
            wanted, got = flat(page.text), flat(read.text)
            if arguments.keep:
                arguments.keep.mkdir(exist_ok=True)
                for kind, words in (("text", page.text), ("scan", read.text)):
                    (arguments.keep / f"{path.stem}-{at}.{kind}.txt").write_text(words, encoding="utf-8")
            errors = distance(wanted, got)
            wrong, letters = wrong + errors, letters + len(wanted)
            rates.append(errors / max(1, len(wanted)))
            recalls.append(recall(wanted, got))
            print(f"{path.stem[:40]:40} {at:3} wrong {rates[-1]:6.2%} recall {recalls[-1]:7.2%} {took:5.2f} s, "
                  f"{work:5.2f} of CPU")
    print(json.dumps({"pages": len(rates), "wrong": round(wrong / letters, 5), "wrong_mean": round(mean(rates), 5),
                      "wrong_median": round(median(rates), 5), "recall": round(mean(recalls), 5),
                      "seconds_a_page": round(mean(seconds), 2), "cpu_a_page": round(mean(cpu), 2)}))


if __name__ == "__main__":
    main()
