"""The settings tab's values: checked, kept in a file, and handed to the engine as its own."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

from triforce_core import ConfigError, SamplingParams, SpeculationConfig

from .arguments import MODES
from .folders import write_private

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
SPECULATION = (*AUTO_OR_WHOLE, "chunk_size", "retrieval_weights", "ngram", "quotes")
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
    max_new_tokens: int = 1024
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
        """Return these settings with a preset's in their place; the seed, the lengths and the engine's stay."""
        return replace(self, **PRESETS[name])

    def __post_init__(self) -> None:
        for name, allowed in (("engine", ENGINES), ("mode", MODES), ("dtype", DTYPES), ("details", ("on", "off"))):
            if getattr(self, name) not in allowed:
                raise ConfigError(f"{name} is {getattr(self, name)!r}", allowed=", ".join(allowed))
        self.sampling()
        self.speculation()

    def sampling(self, *, details: bool = True) -> SamplingParams:
        """Return the engine's sampling values. details: False where nobody will look at them."""
        alternatives = ALTERNATIVES if details and self.details == "on" else 0
        return SamplingParams(temperature=self.temperature, top_p=self.top_p, seed=self.seed,
                              max_new_tokens=self.max_new_tokens, alternatives=alternatives)

    def speculation(self, *, engine: str | None = None, verifier: str = "rejection") -> SpeculationConfig:
        """Return the engine's values; "auto" means TriForce, which says on every answer whether it helped."""
        chosen = engine or self.engine
        same = {name: getattr(self, name) for name in SPECULATION}
        return SpeculationConfig(engine="triforce" if chosen == "auto" else chosen, verifier=verifier, **same)


def from_form(values: Mapping[str, Any]) -> Settings:
    """Return the settings of a filled form. Raises ConfigError, one sentence that names the setting."""
    return Settings(**{name: _read(name, value) for name, value in values.items()})


def _read(name: str, value: Any) -> Any:
    automatic = name in AUTO_OR_WHOLE
    if automatic and str(value).strip().lower() in ("auto", ""):
        return "auto"
    if not automatic and name not in (*WHOLE, "temperature", "top_p"):
        return value
    whole = automatic or name in WHOLE
    try:
        number = float(value)
        if whole and number != int(number):
            raise ValueError
    except (TypeError, ValueError, OverflowError) as error:
        shown = "empty" if value is None or value == "" else repr(value)
        allowed = ("a whole number" if whole else "a number") + (" or 'auto'" if automatic else "")
        raise ConfigError(f"{SETTINGS[name][0]} is {shown}", allowed=allowed) from error
    return int(number) if whole else number


def load(path: Path) -> Settings:
    """Return the kept settings; one that is unknown or no longer allowed falls back to its default."""
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
    """Keep settings. Raises NotEnoughDiskError, FolderError."""
    write_private(path, json.dumps(asdict(settings), indent=2))
