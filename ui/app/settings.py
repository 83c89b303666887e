"""What a person can turn on the settings tab: checked, kept in a file, and handed to the engine as its own values."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

from triforce_core import ConfigError, SamplingParams, SpeculationConfig

from .arguments import MODES
from .folders import write_private

OR_AUTO = "or 'auto'"
A_WHOLE_NUMBER = "a whole number"
A_NUMBER = "a number"
NOTHING = "empty"
SETTINGS = {  # name -> label, help
    "temperature": ("Temperature", "0 always takes the likeliest word. Higher is more varied."),
    "top_p": ("Top-p", "Draw only from the likeliest words that together reach this probability. 1 keeps all."),
    "max_new_tokens": ("Longest answer", "In tokens, which are words or pieces of words."),
    "seed": ("Seed", "The same seed, question and settings give the same answer."),
    "engine": ("Decoding", "Automatic uses TriForce where a draft is possible. Plain is one token per pass."),
    "gamma1": ("Draft length (gamma 1)", "Tokens the small model drafts at a time, 0 to 64, or auto."),
    "gamma2": ("Tokens per full pass (gamma 2)", "Gathered before the full model checks them, 1 to 256, or auto."),
    "budget": ("Retrieval budget", "Tokens of the document in the retrieval cache, from 64 up, or auto."),
    "chunk_size": ("Chunk size", "The document is retrieved in chunks of so many tokens."),
    "retrieval_weights": ("Weights of the intermediate verifier", "Automatic: on a GPU with room, a smaller copy."),
    "ngram": ("Copied text", "Words that stood in the document or the conversation before are drafted by copying."),
    "details": ("Token details", "Keep each token's probability and the likeliest others, for 'Who wrote it'."),
    "quotes": ("Exact quotes", "Text between quotation marks is held to what the document says, word for word."),
    "mode": ("Where it runs", "Automatic takes the GPU if there is one, and the host's memory for what is too large."),
    "dtype": ("Number format", "Exact computes in float32: identical words with and without speculation, but slower."),
}


ENGINES = ("auto", "triforce", "autoregressive")
DTYPES = ("auto", "float32")
ENGINE_SETTINGS = ("mode", "dtype")  # the engine starts anew with them
AUTO_OR_WHOLE = ("gamma1", "gamma2", "budget")
WHOLE = ("max_new_tokens", "seed", "chunk_size")
ALTERNATIVES = 3  # likeliest tokens that are kept beside each one

_SPECULATE: dict[str, Any] = {"engine": "auto", "gamma1": "auto", "gamma2": "auto", "budget": "auto"}
PRESETS: dict[str, dict[str, Any]] = {
    "precise": {"temperature": 0.0, "top_p": 1.0, "quotes": "auto"},
    "balanced": {"temperature": 0.6, "top_p": 0.9},
    "creative": {"temperature": 1.0, "top_p": 0.95},
    # What is surest is guessed best; the per-token details cost a little each round.
    "fast": {"temperature": 0.0, "top_p": 1.0, "details": "off", "retrieval_weights": "auto", "ngram": "auto",
             "quotes": "auto", **_SPECULATE},
}


@dataclass(frozen=True)
class Settings:
    """Every setting of the page. Checked on creation by the values of ``triforce_core`` that they become."""

    temperature: float = 0.0
    top_p: float = 1.0
    max_new_tokens: int = 256
    seed: int = 0
    engine: str = "auto"
    gamma1: int | str = "auto"
    gamma2: int | str = "auto"
    budget: int | str = "auto"
    chunk_size: int = 8
    retrieval_weights: str = "auto"
    ngram: str = "auto"
    quotes: str = "auto"
    details: str = "on"
    mode: str = "auto"
    dtype: str = "auto"

    def preset(self, name: str) -> Settings:
        """These settings with a preset's in their place; the seed, the lengths and the engine's stay."""
        return replace(self, **PRESETS[name])

    def __post_init__(self) -> None:
        if self.engine not in ENGINES:
            raise ConfigError(f"engine is {self.engine!r}", allowed=", ".join(ENGINES))
        if self.mode not in MODES:
            raise ConfigError(f"mode is {self.mode!r}", allowed=", ".join(MODES))
        if self.dtype not in DTYPES:
            raise ConfigError(f"dtype is {self.dtype!r}", allowed=", ".join(DTYPES))
        if self.details not in ("on", "off"):
            raise ConfigError(f"details is {self.details!r}", allowed="on, off")
        self.sampling()
        self.speculation()

    def sampling(self, *, details: bool = True) -> SamplingParams:
        """details: as the setting says; False where nobody will look at them."""
        alternatives = ALTERNATIVES if details and self.details == "on" else 0
        return SamplingParams(temperature=self.temperature, top_p=self.top_p, seed=self.seed,
                              max_new_tokens=self.max_new_tokens, alternatives=alternatives)

    def speculation(self, *, engine: str | None = None, verifier: str = "rejection") -> SpeculationConfig:
        """auto means TriForce: the engine itself says on every answer whether it helped."""
        chosen = engine or self.engine
        return SpeculationConfig(
            engine="triforce" if chosen == "auto" else chosen, verifier=verifier, gamma1=self.gamma1,
            gamma2=self.gamma2, budget=self.budget, chunk_size=self.chunk_size,
            retrieval_weights=self.retrieval_weights, ngram=self.ngram, quotes=self.quotes)


def from_form(values: Mapping[str, Any]) -> Settings:
    """What stands in the form -> Settings. Raises ConfigError, one sentence that names the setting."""
    made: dict[str, Any] = {}
    for name, value in values.items():
        label = SETTINGS[name][0]
        if name in AUTO_OR_WHOLE:
            made[name] = _auto_or_whole(label, value)
        elif name in WHOLE:
            made[name] = _whole(label, value)
        elif name in ("temperature", "top_p"):
            made[name] = _number(label, value)
        else:
            made[name] = value
    return Settings(**made)


def load(path: Path) -> Settings:
    """The kept settings; one that is unknown or no longer allowed falls back to its default."""
    try:
        kept = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return Settings()
    known = {field.name for field in fields(Settings)}
    good: dict[str, Any] = {}
    for name, value in kept.items() if isinstance(kept, dict) else ():
        if name in known:
            try:
                Settings(**(good | {name: value}))
            except (ConfigError, TypeError):
                continue
            good[name] = value
    return Settings(**good)


def save(path: Path, settings: Settings) -> None:
    """Raises NotEnoughDiskError, FolderError."""
    write_private(path, json.dumps(asdict(settings), indent=2))


def _auto_or_whole(label: str, value: Any) -> int | str:
    text = str(value).strip().lower()
    return "auto" if text in ("auto", "") else _whole(label, text, " " + OR_AUTO)


def _whole(label: str, value: Any, more: str = "") -> int:
    try:
        number = float(value)
        if number != int(number):
            raise ValueError
    except (TypeError, ValueError, OverflowError) as error:
        raise ConfigError(f"{label} is {_shown(value)}", allowed=A_WHOLE_NUMBER + more) from error
    return int(number)


def _number(label: str, value: Any) -> float:
    try:
        return float(value)
    except (TypeError, ValueError) as error:
        raise ConfigError(f"{label} is {_shown(value)}", allowed=A_NUMBER) from error


def _shown(value: Any) -> str:
    return NOTHING if value is None or value == "" else repr(value)
