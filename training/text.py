"""Reading the corpus, normalising text, finding sentences, and turning text into tokens.

The encoding here is the contract that the built-in pair's `prompt.json` states: the application encodes documents and
questions in the same way. Every line, question and quotation starts with a space, and no piece crosses a space, so that
a sentence has the same tokens wherever it stands.
"""

from __future__ import annotations

import io
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import sentencepiece as spm

NEWLINE, DOC, END_DOC, PAGE = "\n", "<doc>", "</doc>", "<page>"
USER, ASSISTANT, OPEN_QUOTE, CLOSE_QUOTE = "<user>", "<assistant>", "“", "”"
USER_PIECES = (NEWLINE, DOC, END_DOC, PAGE, USER, ASSISTANT, OPEN_QUOTE, CLOSE_QUOTE)

ABBREVIATIONS = tuple(
    "mr mrs ms dr st no vs jr sr prof gen col capt lt rev hon vol fig ch cf e.g i.e viz sgt maj mt ft co inc ltd al "
    "messrs mme op pp approx ca c esq".split()
)
SENTENCE_BREAK = r"[.!?][\"')\]]*\s+(?=[\"'(\[]*[A-Z0-9])"
_BREAK = re.compile(SENTENCE_BREAK)
_INITIALS = re.compile(r"(?:[A-Za-z]\.)+[A-Za-z]")
_ABBREVIATIONS = frozenset(ABBREVIATIONS)

_TYPOGRAPHY = str.maketrans(
    {
        "“": '"', "”": '"', "„": '"', "‟": '"', "«": '"', "»": '"', "‘": "'", "’": "'", "‚": "'", "‛": "'",
        "—": "--", "―": "--", "–": "-", "‒": "-", "‐": "-", "‑": "-", "−": "-", "…": "...", "\u00ad": "",
        "\u200b": "", "\u200c": "", "\u200d": "", "\u2060": "", "\ufeff": "", "\r": "",
    }
)  # fmt: skip
_RESERVED = re.compile(r"<(/?(?:doc|page|user|assistant|s)>)")
_SPACES = re.compile(r"[^\S\n]+")


def normalise(text: str) -> str:
    """The mapping `ascii-typography-v1`: plain quotes and dashes, single spaces, no reserved piece in the text."""
    text = text.replace("\r\n", "\n").translate(_TYPOGRAPHY)
    return _SPACES.sub(" ", _RESERVED.sub(r"< \1", text))


def each_record(path: Path) -> Iterator[dict]:
    """The records of a `.jsonl.zst` file, one after the other."""
    try:
        import zstandard

        with path.open("rb") as packed:
            reader = zstandard.ZstdDecompressor(max_window_size=2**31).stream_reader(packed)
            for line in io.TextIOWrapper(reader, "utf8"):
                if line.strip():
                    yield json.loads(line)
    except ImportError:
        import pyarrow

        data = pyarrow.CompressedInputStream(pyarrow.OSFile(str(path), "rb"), "zstd").read()
        for line in data.decode("utf8").split("\n"):
            if line.strip():
                yield json.loads(line)


def read_records(path: Path) -> list[dict]:
    """All records of a `.jsonl.zst` file."""
    return list(each_record(path))


def sentence_spans(line: str) -> list[tuple[int, int]]:
    """Where the sentences of one line stand; an initial or a common abbreviation does not end one."""
    spans: list[tuple[int, int]] = []
    start = 0
    for found in _BREAK.finditer(line):
        if line[found.start()] == "." and found.start() > start:
            words = line[start : found.start()].rsplit(None, 1)
            word = words[-1].lstrip("\"'([") if words else ""
            lone_initial = len(word) == 1 and word.isalpha() and word.isupper() and word != "I"
            if word.lower() in _ABBREVIATIONS or lone_initial or _INITIALS.fullmatch(word):
                continue
        spans.append((start, len(line[: found.end()].rstrip())))
        start = found.end()
    if start < len(line):
        spans.append((start, len(line.rstrip())))
    return [span for span in spans if span[1] > span[0]]


def document_sentences(text: str) -> Iterator[tuple[int, int] | None]:
    """Character spans of all sentences in `text`, line by line; None stands for the end of a line."""
    offset = 0
    for line in text.split("\n"):
        stripped = line.strip()
        left = offset + len(line) - len(line.lstrip())
        for start, end in sentence_spans(stripped):
            yield left + start, left + end
        yield None
        offset += len(line) + 1


@dataclass(frozen=True)
class Encoded:
    """Tokens, the token span of every sentence, and the character span of every sentence."""

    ids: np.ndarray
    sentences: np.ndarray
    characters: np.ndarray


class Encoder:
    """A sentencepiece model with the layout of documents and turns on top."""

    def __init__(self, model_file: Path | str) -> None:
        self.model_file = str(model_file)
        self.pieces = spm.SentencePieceProcessor(model_file=self.model_file)
        ids = {piece: self.pieces.piece_to_id(piece) for piece in USER_PIECES}
        self.newline, self.doc, self.end_doc, self.page = ids[NEWLINE], ids[DOC], ids[END_DOC], ids[PAGE]
        self.user, self.assistant = ids[USER], ids[ASSISTANT]
        self.open_quote, self.close_quote = ids[OPEN_QUOTE], ids[CLOSE_QUOTE]
        self.end = self.pieces.eos_id()
        size = self.pieces.get_piece_size()
        self.starts_word = np.array([self.pieces.id_to_piece(i).startswith("▁") for i in range(size)])

    def encode(self, text: str) -> list[int]:
        """Tokens of `text` after one space."""
        return self.pieces.encode(" " + text)

    def decode(self, ids: list[int]) -> str:
        """Text of tokens, without the space in front."""
        return self.pieces.decode([int(i) for i in ids]).strip()

    def lines(self, text: str) -> Encoded:
        """Every line of `text`, each ended by a newline, without document or page marks."""
        ids: list[int] = []
        tokens: list[tuple[int, int]] = []
        characters: list[tuple[int, int]] = []
        for span in document_sentences(text):
            if span is None:
                ids.append(self.newline)
                continue
            part = self.encode(text[span[0] : span[1]])
            tokens.append((len(ids), len(ids) + len(part)))
            characters.append(span)
            ids += part
        return Encoded(
            np.array(ids, np.uint16),
            np.array(tokens, np.int64).reshape(-1, 2),
            np.array(characters, np.int64).reshape(-1, 2),
        )

    def page_mark(self, label: str) -> list[int]:
        """The mark that starts a page."""
        return [self.page, *self.encode(label), self.newline]

    def question(self, question: str) -> list[int]:
        """A turn up to the point where the answer starts."""
        return [self.user, *self.encode(question), self.newline, self.assistant]


def gold_sentences(encoded: Encoded, start: int, length: int) -> tuple[int, int] | None:
    """The span of tokens of the sentence or sentences that hold `length` characters at `start`; None across lines."""
    inside = (encoded.characters[:, 1] > start) & (encoded.characters[:, 0] < start + length)
    if not inside.any():
        return None
    spans = encoded.sentences[inside]
    first, last = int(spans[0, 0]), int(spans[-1, 1])
    return (first, last) if last - first == int((spans[:, 1] - spans[:, 0]).sum()) else None
