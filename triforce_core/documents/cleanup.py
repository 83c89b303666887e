"""Turn what a reader extracted into the pages of a Document: clean-up of characters and spaces, and warnings."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence

from ..errors import EmptyDocumentError, ScannedDocumentError
from .readers.source import Raw, is_are, page_numbers

FEW_LETTERS = 16  # a page with fewer and a picture is a scan
_OCR = ("Run `pip install rapidocr onnxruntime` and add the file again, or run `ocrmypdf in.pdf out.pdf`, then open "
        "out.pdf.")
_LIGATURES = dict(zip("ﬀﬁﬂﬃﬄﬅﬆ", ["ff", "fi", "fl", "ffi", "ffl", "st", "st"], strict=True))
_SPACES = dict.fromkeys(
    "\t\v\u00a0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a\u202f\u205f\u3000", " "
)
_BREAKS = dict.fromkeys("\f\u0085\u2028\u2029", "\n")
_CONTROLS = {chr(c): "" for c in [*range(9), *range(14, 32), *range(127, 160), 0xAD, 0xFFFE] if c != 0x85}
_CHARACTERS = _LIGATURES | _SPACES | _BREAKS | _CONTROLS
_CHANGED = re.compile(f"[{''.join(_CHARACTERS)}]")  # str.translate takes many times as long
_HIDDEN = re.compile("[\u200b-\u200f\u202a-\u202e\u2060-\u206f\ufeff\U000e0000-\U000e007f]")
_SURROGATES = re.compile("[\ud800-\udfff]")
_RUNS = re.compile("  +")
_EMPTY_LINES = re.compile(r"\n{3,}")
# Text that spells a control token of a chat model in use. Our own tokenizer never makes a token of it; a server that is
# sent the text may.
_SPECIAL = re.compile(
    r"<[|｜][\w ./:▁-]{1,48}[|｜]>"  # ChatML, Llama 3, Phi, DeepSeek
    r"|</?s>|\[/?(?:INST|SYSTEM_PROMPT|TOOL_CALLS|AVAILABLE_TOOLS|TOOL_RESULTS)\]|<</?SYS>>"  # Llama 2, Mistral
    r"|<(?:bos|eos|pad|unk|mask|start_of_turn|end_of_turn|start_of_image)>",  # Gemma and others
    re.IGNORECASE)
_GARBLED_SHARE = 0.3
_FEW_VOWELS = 0.15  # of a page's characters; English has a third
_IMPOSSIBLE = 0.37  # share of words without a vowel, of more than so many; indexes and listings have less
_UNLIKE = 0.25  # of the words that differ: code has one name of consonants again and again
_MANY_WORDS = 60
_FAMILIAR = 0.2  # of the words that differ stand on other pages, too
_LATIN = re.compile("[a-z]{3,}")
_WORD = re.compile(r"[^\W\d_]{3,}")
_VOWEL = re.compile("[aeiouy]")
_GARBLED = re.compile("[\ufffd\ue000-\uf8ff\u0000-\u0008\u000e-\u001f]")


def clean(text: str, laid_out: bool = False) -> tuple[str, int]:
    """Return clean text and the number of hidden characters taken out (zero width, writing direction, tags).

    NFC, ligatures spelt out, white space made single spaces and newlines, control characters dropped. laid_out: the
    blanks inside lines and at their beginning stay."""
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    text = _CHANGED.sub(lambda found: _CHARACTERS[found[0]], text)
    if not text.isascii():
        text, hidden = _HIDDEN.subn("", _SURROGATES.sub("\ufffd", text))
        text = unicodedata.normalize("NFC", text)
    else:
        hidden = 0
    lines = (line.rstrip() if laid_out else _RUNS.sub(" ", line).strip() for line in text.split("\n"))
    return _EMPTY_LINES.sub("\n\n", "\n".join(lines)).strip("\n"), hidden


def one_line(text: str, longest: int = 200) -> str:
    """Return a title or label clean, on one line, of bounded length."""
    return " ".join(clean(text[: longest * 4])[0].split())[:longest]


class Words:
    """The Latin words of the pages so far, by which a page of code or figures is known from a garbled one: a garbled
    layer has words of its own."""

    def __init__(self) -> None:
        self._known, self._pages = set[str](), list[str]()

    def add(self, page: str) -> None:
        self._pages.append(page)

    def know(self, words: set[str]) -> bool:
        """Say whether enough of a page's words stand on others."""
        self._known.update(word for page in self._pages for word in _LATIN.findall(page.lower()))
        self._pages.clear()  # few documents ask at all
        return len(words & self._known) > _FAMILIAR * len(words)


def letters(raw: str, before: Words | None = None) -> int:
    """Count the characters that carry text: none of a garbled layer, which has many private-use, replacement or control
    characters, or Latin words as no language has them, for its glyphs were given the letters of others. before: the
    words of the pages before."""
    solid = len("".join(raw.split()))
    if len(_GARBLED.findall(raw)) > _GARBLED_SHARE * solid:
        return 0
    if sum(map(raw.count, "aeiou")) < _FEW_VOWELS * solid:  # most pages need no closer look
        words = _LATIN.findall(raw.lower())
        without = [word for word in words if _VOWEL.search(word) is None]
        if len(words) > _MANY_WORDS and len(without) > _IMPOSSIBLE * len(words) and (
                len(set(without)) > _UNLIKE * len(set(words))) and not (before and before.know(set(words))):
            return 0
    return solid


def readable(text: str) -> int:
    """Count the letters of words that some language may have."""
    return sum(len(word) for word in _WORD.findall(text.lower()) if not word.isascii() or _VOWEL.search(word))


def neutralise(text: str) -> str:
    """Break up the spelling of control tokens by a space behind the first character: a reader sees the same text."""
    return _SPECIAL.sub(lambda match: f"{match[0][0]} {match[0][1:]}", text)


def finish(raw: Raw, name: str) -> tuple[list[tuple[str, str]], list[str]]:
    """Return (label, text) of every page, and warnings. Raises ScannedDocumentError and EmptyDocumentError."""
    cleaned = [clean(page.text, raw.laid_out) for page in raw.pages]
    texts = [text for text, _ in cleaned]
    hidden = sum(count for _, count in cleaned)
    garbled = [number for number in scanned(raw) if raw.pages[number].garbled
               and sum(map(str.isalnum, texts[number])) >= FEW_LETTERS]
    scans = [number for number in scanned(raw) if number not in garbled]
    _refuse_without_text(raw, texts, scans, name)
    for number in scans:
        texts[number] = ""
    texts = raw.joined(texts)
    warnings = [one_line(warning, 500) for warning in raw.warnings]
    failed = [number for number, page in enumerate(raw.pages) if page.failed]
    if failed:
        warnings.append(f"{page_numbers(failed)} could not be read and {is_are(failed)} missing from the text.")
    shown = [number for number in scans if number not in set(failed)]
    if shown:  # one is enough: nothing is left out silently
        what = "a scanned picture" if len(shown) == 1 else "scanned pictures"
        warnings.append(f"{page_numbers(shown)} {is_are(shown)} {what} without readable text. {_OCR}")
    kept = [number for number, page in enumerate(raw.pages) if page.kept]
    for numbers, remedy in (kept, "Nothing better could be recognised in the picture."), (garbled, _OCR):
        if numbers:
            warnings.append(f"{page_numbers(numbers)} may have wrong letters: they look garbled. {remedy}")
    recognised = [number for number, page in enumerate(raw.pages) if page.words]
    if recognised:
        one = len(recognised) == 1
        warnings.append(f"{page_numbers(recognised)} {is_are(recognised)} scanned: {'its' if one else 'their'} text was"
                        " recognised in the picture (OCR), and letters may be wrong.")
    if hidden:
        warnings.append(f"{hidden:,} hidden characters (invisible or changing the direction of writing) were removed.")
    special = sum(len(_SPECIAL.findall(text)) for text in texts)
    if special:
        words = "string that spells a control token" if special == 1 else "strings that spell control tokens"
        warnings.append(f"{special:,} {words} of language models (such as <|im_end|>), read as ordinary text.")
    labels = [one_line(page.label, 40) or str(number + 1) for number, page in enumerate(raw.pages)]
    return list(zip(labels, texts, strict=True)), warnings


def scanned(raw: Raw) -> list[int]:
    """Return the pages that are pictures, or whose text layer is garbled, and were not recognised."""
    return [number for number, page in enumerate(raw.pages) if not page.failed and (page.picture or page.garbled)]


def _refuse_without_text(raw: Raw, texts: Sequence[str], scans: Sequence[int], name: str) -> None:
    if not raw.pages:
        raise EmptyDocumentError(f"{name} has no pages with text", remedy="Choose another file.")
    if any(text.strip() for number, text in enumerate(texts) if number not in set(scans)):
        return
    if scans:
        raise ScannedDocumentError(
            f"{name} has no text: {page_numbers(list(scans)).lower()} {is_are(scans)} scanned pictures", remedy=_OCR
        )
    if raw.unread.unclear:
        raise EmptyDocumentError(f"{name} has no text in it that could be recognised: it is too faint or small, or "
                                 "handwriting", remedy="Scan it anew, larger and with more contrast.")
    why = ", only pictures" if raw.unread.picture_pages else ": its pages are blank" if raw.kind == "pdf" else ""
    raise EmptyDocumentError(f"{name} has no text in it{why}", remedy="Choose another file.")
