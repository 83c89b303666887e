"""The vocabulary in a GGUF file, as one of the two kinds that ``vocabulary`` knows.

"llama" is a sentencepiece model taken apart: pieces, scores and types are put together again. "gpt2" is byte-level BPE,
and ``tokenizer.ggml.pre`` names how texts are split before merging: each name stands for what the published
``tokenizer.json`` of that family does; none, what llama.cpp does then. An unknown name is refused: ids that are almost
right would go unnoticed.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from ..errors import DamagedWeightsError, UnsupportedModelError
from ..gguf import GGUFFile
from .vocabulary import HuggingFace, SentencePieces, Vocabulary

PROMPT_KEY = "triforce.prompt"  # prompt.json of a model that was trained for this app
_KEY = "tokenizer.ggml."
_NORMAL, _UNKNOWN, _CONTROL, _USER, _UNUSED = range(1, 6)
_TYPES = range(1, 7)  # as in sentencepiece, whose numbers GGUF has taken over
# Control tokens that end a turn in templates of the families here, whatever the file's eos is.
_TURN_ENDS = {"</s>", "<|eot_id|>", "<|eom_id|>", "<|end_of_text|>", "<|im_end|>", "<|endoftext|>", "<|end|>",
              "<|EOT|>", "<end_of_turn>"}

_CONTRACTIONS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_TAIL = r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
_LLAMA3 = _CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}" + _TAIL
_QWEN2 = _CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}" + _TAIL
_QWEN35 = (_CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+"
           r"|\s+(?!\S)|\s+")
_UPPER, _LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
_CASED = rf"[^\r\n\p{{L}}\p{{N}}]?{_UPPER}*{_LOWER}+%s|[^\r\n\p{{L}}\p{{N}}]?{_UPPER}+{_LOWER}*%s|\p{{N}}%s" \
         r"| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
_TEKKEN = _CASED % ("", "", "")
_GPT4O = _CASED % (_CONTRACTIONS + "?", _CONTRACTIONS + "?", "{1,3}")
_HAN = "[一-龥ࠀ-一가-퟿]+"
# What llama.cpp takes where a file does not say: as in its llm_tokenizer_bpe. Blanks that no pattern takes stay.
_DEFAULT = (r"[\p{P}\$\+<=>\^~\|]+", r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)",
            r"\p{N}+", "[0-9][0-9][0-9]")
_DEEPSEEK_LLM = ("[\r\n]", r"\s?[\p{Lu}\p{Ll}\p{Lt}]+", r"\s?[!-/:-~！-／：-～‘-‟　-。]+", r"\s+$", _HAN, r"\p{N}+")
_DEEPSEEK_CODER = ("[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", _HAN, r"\p{N}")
_DEEPSEEK_V3 = (r"\p{N}{1,3}", "[一-龥\u3040-ゟ゠-ヿ]+",
                r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"""
                r"| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")


@dataclass(frozen=True, slots=True)
class _Splits:
    """The way in which a family splits texts: patterns one after the other, each within what the ones before left;
    words: then as GPT-2 does. nfc: composed characters first. ignore_merges: a whole piece of the vocabulary needs no
    merges."""

    patterns: tuple[str, ...] = ()
    words: bool = False
    nfc: bool = False
    ignore_merges: bool = False
    punctuation: bool = False


_GPT2 = _Splits(words=True)
_DIGITS = _Splits((r"\p{N}",), words=True)
_LLAMA3_SPLITS, _QWEN2_SPLITS = _Splits((_LLAMA3,), ignore_merges=True), _Splits((_QWEN2,), nfc=True)
_PRE = {
    **dict.fromkeys(("", "default"), _Splits(_DEFAULT)),
    **dict.fromkeys(("llama-bpe", "llama3", "llama-v3", "falcon3", "pixtral"), _LLAMA3_SPLITS),
    **dict.fromkeys(("smaug-bpe", "dbrx"), _Splits((_LLAMA3,))),
    **dict.fromkeys(("qwen2", "deepseek-r1-qwen", "megrez"), _QWEN2_SPLITS),
    "stablelm2": _Splits((_QWEN2,)),
    "qwen35": _Splits((_QWEN35,)),
    "tekken": _Splits((_TEKKEN,), ignore_merges=True),
    **dict.fromkeys(("gpt-4o", "llama4"), _Splits((_GPT4O,))),
    **dict.fromkeys(("gpt-2", "phi-2", "olmo", "exaone4"), _GPT2),
    "mpt": _Splits(words=True, nfc=True),
    **dict.fromkeys(("starcoder", "refact", "smollm", "codeshell", "exaone", "minerva-7b"), _DIGITS),
    "command-r": _Splits((r"\p{N}",), words=True, nfc=True),
    "falcon": _Splits(("[0-9][0-9][0-9]",), words=True, punctuation=True),
    "deepseek-llm": _Splits(_DEEPSEEK_LLM),
    "deepseek-coder": _Splits(_DEEPSEEK_CODER),
    "deepseek-v3": _Splits(_DEEPSEEK_V3),
}


def prompt_settings(file: GGUFFile) -> dict[str, Any]:
    """Return what a model that was trained for this app says of its prompts; {} for all others."""
    try:
        found = json.loads(file.get(PROMPT_KEY, str, "{}"))
    except ValueError as error:
        raise DamagedWeightsError(f"{file.path.name}: {PROMPT_KEY} is not JSON") from error
    return found if isinstance(found, dict) else {}


def open_vocabulary(file: GGUFFile) -> Vocabulary:
    """Raises UnsupportedModelError (another kind, named), DamagedWeightsError."""
    kind = file.get(_KEY + "model", str, "")
    if kind not in ("llama", "gpt2", "gemma4"):
        raise UnsupportedModelError(f"{file.path.name} has a vocabulary of the kind {kind or 'none'!r}",
                                    allowed="llama (sentencepiece), gpt2 (byte-level BPE), gemma4")
    pieces, types = _list(file, "tokens", str), _list(file, "token_type", int, optional=True)
    if not pieces:
        raise DamagedWeightsError(f"{file.path.name} holds no vocabulary", remedy="Fetch the file again.")
    types = types or [_NORMAL] * len(pieces)
    if len(types) != len(pieces):
        raise DamagedWeightsError(f"{file.path.name} has {len(pieces)} pieces and {len(types)} types of them")
    template = file.get("tokenizer.chat_template", str, "") or None
    found: Vocabulary
    if kind == "llama":
        found = SentencePieces(_sentencepiece_model(file, pieces, types), file.path, lambda: template)
    else:
        found = HuggingFace(_fast_tokenizer(file, pieces, types, template), file.path)
    ends = {file.get(f"{_KEY}{name}_token_id", int, -1) for name in ("eot", "eom")}
    ends |= {number for number, piece in enumerate(pieces)
             if piece in _TURN_ENDS and types[number] in (_CONTROL, _USER)}
    found.ends = frozenset(number for number in ends if 0 <= number < len(pieces))
    if not file.get(_KEY + "add_bos_token", bool, True):
        found.bos = None
    return found


def _list(file: GGUFFile, name: str, kind: type, optional: bool = False) -> list[Any]:
    found = file.get(_KEY + name, list, [])
    if not found and not optional:
        raise DamagedWeightsError(f"{file.path.name} holds no {_KEY}{name}", remedy="Take another file of this model.")
    if not all(type(item) is kind for item in found):
        raise DamagedWeightsError(f"{file.path.name}: {_KEY}{name} does not hold {kind.__name__} only")
    return found


def _special(file: GGUFFile, name: str, pieces: list[str]) -> str | None:
    number = file.get(f"{_KEY}{name}_token_id", int, -1)
    return pieces[number] if 0 <= number < len(pieces) else None


def _sentencepiece_model(file: GGUFFile, pieces: list[str], types: list[int]) -> bytes:
    """A ``ModelProto`` (sentencepiece_model.proto) of kind BPE."""
    scores = _list(file, "scores", float)
    if len(scores) != len(pieces):
        raise DamagedWeightsError(f"{file.path.name} has {len(pieces)} pieces and {len(scores)} scores")
    bytes_too = any(kind == 6 for kind in types)
    names = [(field, _special(file, name, pieces)) for field, name in ((45, "unknown"), (46, "bos"), (47, "eos"))]
    trainer = _whole(3, 2) + _whole(35, int(bytes_too))
    for field, piece in names:
        trainer += b"" if piece is None else _bytes(field, piece.encode())
    charsmap = bytes(number & 0xFF for number in _list(file, "precompiled_charsmap", int, optional=True))
    normalizer = ((_bytes(2, charsmap) if charsmap else b"")
                  + _whole(3, int(file.get(_KEY + "add_space_prefix", bool, True)))
                  + _whole(4, int(file.get(_KEY + "remove_extra_whitespaces", bool, False))) + _whole(5, 1))
    first = types.index(_UNKNOWN) if _UNKNOWN in types else 0
    unknown = file.get(_KEY + "unknown_token_id", int, first)
    parts = []
    for number, (piece, score, kind) in enumerate(zip(pieces, scores, types, strict=True)):
        # sentencepiece wants exactly one unknown piece; converters have written none, or one for each gap.
        kind = _UNKNOWN if number == unknown else _UNUSED if kind == _UNKNOWN else kind
        if kind not in _TYPES:
            raise DamagedWeightsError(f"{file.path.name}: a piece has type {kind}", allowed="1 to 6")
        text = piece.encode("utf-8", "replace")
        parts.append(_bytes(1, _bytes(1, text) + b"\x15" + struct.pack("<f", score) + _whole(3, kind)))
    return b"".join(parts) + _bytes(2, trainer) + _bytes(3, normalizer)


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _whole(field: int, value: int) -> bytes:
    return _varint(field << 3) + _varint(value)


def _bytes(field: int, value: bytes) -> bytes:
    return _varint(field << 3 | 2) + _varint(len(value)) + value


def _fast_tokenizer(file: GGUFFile, pieces: list[str], types: list[int], template: str | None) -> Any:
    from tokenizers import AddedToken, Tokenizer
    from tokenizers.models import BPE
    from transformers import PreTrainedTokenizerFast

    raw = file.get(_KEY + "model", str, "") == "gemma4"
    splits = None if raw else _splits(file)
    vocabulary = {piece: number for number, piece in enumerate(pieces)}
    merges = list(_merges(file, _list(file, "merges", str)))
    unknown = _special(file, "unknown", pieces)
    try:
        model = BPE(vocabulary, merges, ignore_merges=splits is not None and splits.ignore_merges,
                    byte_fallback=raw, fuse_unk=raw, unk_token=unknown if raw else None)
        tokenizer = Tokenizer(model)
        _prepare(tokenizer, splits)
        for wanted, special in ((_CONTROL, True), (_USER, False)):
            marks = [AddedToken(piece, normalized=False, special=special)
                     for piece, kind in zip(pieces, types, strict=True) if kind == wanted and piece]
            (tokenizer.add_special_tokens if special else tokenizer.add_tokens)(marks)
    except Exception as problem:  # the library raises plain Exception for merges that do not fit the vocabulary
        raise DamagedWeightsError(f"{file.path.name}: its vocabulary cannot be used: {str(problem)[:120]}",
                                  remedy="Take another file of this model.") from problem
    ends = {f"{name}_token": _special(file, name, pieces) for name in ("bos", "eos")}
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, clean_up_tokenization_spaces=False,
                                   chat_template=template, **{name: piece for name, piece in ends.items() if piece})


def _splits(file: GGUFFile) -> _Splits:
    pre = file.get(_KEY + "pre", str, "")
    if pre not in _PRE:
        raise UnsupportedModelError(
            f"{file.path.name} splits texts as {pre!r} before BPE", allowed=", ".join(filter(None, _PRE)),
            remedy="Take a newer file, or the model's own folder from Hugging Face.")
    return _PRE[pre]


def _merges(file: GGUFFile, lines: list[str]) -> Iterator[tuple[str, str]]:
    for line in lines:
        cut = line.find(" ", 1)
        if cut < 0:
            raise DamagedWeightsError(f"{file.path.name}: a merge has one part only", remedy="Fetch the file again.")
        yield line[:cut], line[cut + 1 :]


def _prepare(tokenizer: Any, splits: _Splits | None) -> None:
    """Return what happens before merging, and after. None: spaces become ▁ and bytes have pieces of their own."""
    from tokenizers import Regex, decoders, normalizers, pre_tokenizers

    if splits is None:
        tokenizer.normalizer = normalizers.Replace(" ", "▁")
        tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex("[^\n]+|\n+"), "isolated")
        tokenizer.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()])
        return
    if splits.nfc:
        tokenizer.normalizer = normalizers.NFC()
    steps: list[Any] = [pre_tokenizers.Split(Regex(pattern), "isolated") for pattern in splits.patterns]
    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=splits.words)
    steps = [pre_tokenizers.Punctuation("contiguous"), byte_level, *steps] if splits.punctuation else [
        *steps, byte_level]
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(steps)
    tokenizer.decoder = decoders.ByteLevel()
