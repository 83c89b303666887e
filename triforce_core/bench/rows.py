"""The rows of a run: the given settings, a sweep over some of them, or TriForce with parts left out. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, fields, replace
from itertools import product
from typing import Any, TypeVar

from ..config import SamplingParams, SpeculationConfig
from ..errors import ConfigError
from ..research.settings import ResearchConfig

SIZES = {  # of published decoders: hidden size, MLP width, layers, query heads, KV heads, head_dim
    "llama2-7b": (4096, 11008, 32, 32, 32, 128),
    "llama3-8b": (4096, 14336, 32, 32, 8, 128),
    "llama3-1b": (2048, 8192, 16, 32, 8, 64),  # Llama 3.2 1B
    "qwen3-4b": (2560, 9728, 36, 32, 8, 128),
    "llama-68m": (768, 3072, 2, 12, 12, 64),
}
DRAFT = "llama-68m"  # every grown target's
TARGETS = tuple(name for name in SIZES if name != DRAFT)

Value = int | float | str
_Config = TypeVar("_Config", SamplingParams, ResearchConfig)
_OWN: Mapping[type, tuple[str, ...]] = {
    SamplingParams: ("temperature", "top_p", "top_k", "seed"),
    ResearchConfig: tuple(f.name for f in fields(ResearchConfig) if f.name != "engine"),
}
Sweep = tuple[str, tuple[Value, ...]]  # a setting and the values that it takes in turn
_SETTINGS = [name for names in _OWN.values() for name in names]
Variants = Mapping[str, Mapping[str, Value]]  # by name, what each one changes
# The paper's ablations (arXiv 2404.11912, section 5.4 and table 1).
ABLATION: Variants = {
    "TriForce": {},
    "no hierarchy": {"small_model": "off"},
    "StreamingLLM": {"middle_cache": "streaming"},
    "small model alone": {"middle_cache": "none"},
    "prompt lookup": {"middle_cache": "none", "small_model": "off", "ngram": "straight"},
}
_ALONE: Mapping[str, Value] = {"ngram": "off", "pace": "off"}  # copies and chosen lengths would share in the figures
# What the middle tier attends, and how that is chosen (its table 1).
POLICIES: Variants = {
    "retrieval by attention": {"middle_cache": "retrieval", **_ALONE},
    "retrieval by chunk means": {"middle_cache": "retrieval", "refresh": "chunk-means", **_ALONE},
    "streaming": {"middle_cache": "streaming", **_ALONE},
    "h2o": {"middle_cache": "h2o", **_ALONE},
    "streaming-h2o": {"middle_cache": "streaming-h2o", **_ALONE},
    "top-k": {"middle_cache": "top-k", **_ALONE},
}
PLANNED, AS_BEFORE = "planner's choice", "TriForce"
_AS_PUBLISHED: Mapping[str, Value] = {"draft_cache": "streaming", "ngram": "off", "tree": "off", "gamma1": 2}


def combinations(offloaded: bool) -> Variants:
    """Return the rows of who drafts for whom. AS_BEFORE: three tiers, chains of a constant length, nothing adapted."""
    before = {**_AS_PUBLISHED, "gamma2": 32 if offloaded else 10}
    return {
        PLANNED: {},
        AS_BEFORE: before,
        "prompt lookup": {"middle_cache": "none", "small_model": "off", "ngram": "straight"},
        "small model alone": {"middle_cache": "none", "draft_cache": "streaming"},
        "retrieval alone": {"small_model": "off"},
        "TriForce, n-grams below": {**before, "ngram": "on", "ngram_tail": 0},
        "TriForce, n-grams beside": {**before, "ngram": "on"},
        "TriForce or n-grams": {**before, "ngram": "straight"},
        "TriForce, lengths chosen": {**_AS_PUBLISHED, "gamma1": "auto", "pace": "on"},
        "TriForce, lenient": {**before, "lenience": 2.0},
        "TriForce, trees below": {**before, "tree": "sequoia", "tree_tier": "draft"},
        "trees of the middle tier": {**before, "tree": "sequoia", "tree_tier": "middle"},
        "SpecInfer's chains below": {**before, "tree": "specinfer", "tree_tier": "draft"},
        "TriForce, cross-model": {**before, "draft_cache": "cross"},
        "TriForce, self-skip": {**before, "small_model": "self-skip"},
    }


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the table. settings: chosen by the sweeps; variant: its name among variants, if any."""

    sampling: SamplingParams
    speculation: SpeculationConfig
    settings: Mapping[str, Value] = field(default_factory=dict)
    variant: str = ""

    @property
    def name(self) -> str:
        chosen = [f"{name}={value}" for name, value in self.settings.items()]
        return " ".join([*([self.variant] if self.variant else []), *chosen]) or "TriForce"

    @property
    def baseline(self) -> tuple[SamplingParams, SpeculationConfig]:
        """Return plain decoding with all that decides its text: rows with the same baseline share one measurement."""
        own = self.speculation
        return self.sampling, SpeculationConfig(engine="autoregressive", verifier=own.verifier, quotes=own.quotes)

    @property
    def same_text_expected(self) -> bool:
        """Say whether the text is decided; where chance decides, two texts may differ and both be right."""
        return self.sampling.temperature == 0 or self.speculation.verifier == "coupled"


def parse_sweep(text: str) -> Sweep:
    """Read "budget=256,512". Raises ConfigError."""
    name, _, listed = text.partition("=")
    name = name.strip().replace("-", "_")
    values = tuple(_value(item.strip()) for item in listed.split(",") if item.strip())
    if name not in _SETTINGS:
        raise ConfigError(f"--sweep {name!r} is no setting", allowed=", ".join(_SETTINGS))
    if not values or len(set(values)) < len(values):
        raise ConfigError(f"--sweep {name} has {'no' if not values else 'repeated'} values",
                          allowed=f"different values: {name}=A,B,C")
    return name, values


def chosen(variants: Variants, names: str) -> Variants:
    """Return the variants with these names, divided by semicolons. Raises ConfigError."""
    wanted = [name.strip() for name in names.split(";")]
    unknown = [name for name in wanted if name not in variants]
    if unknown:
        raise ConfigError(f"--only {unknown[0]!r} is no row", allowed="; ".join(variants))
    return {name: variants[name] for name in wanted}


def make_rows(sampling: SamplingParams, speculation: ResearchConfig, sweeps: Sequence[Sweep] = (),
              variants: Variants | None = None) -> list[Row]:
    """Return every combination of the sweeps' values, for every variant. Raises ConfigError."""
    names = [name for name, _ in sweeps]
    taken = [name for changes in (variants or {}).values() for name in changes]
    for name in names:
        if names.count(name) > 1 or name in taken:
            raise ConfigError(f"{name} is given twice", allowed="one --sweep of it, and none of what the rows vary")
    rows = []
    for variant, changes in (variants or {"": {}}).items():
        for values in product(*(values for _, values in sweeps)):
            settings = dict(zip(names, values, strict=True))
            merged = {**changes, **settings}
            rows.append(Row(_with(sampling, merged), _with(speculation, merged), settings, variant))
    return rows


def _with(config: _Config, settings: Mapping[str, Value]) -> _Config:
    """Return a config with those of the settings that are its own. Raises ConfigError."""
    own: dict[str, Any] = {name: value for name, value in settings.items() if name in _OWN[type(config)]}
    return replace(config, **own)


def _value(text: str) -> Value:
    for kind in (int, float):
        with suppress(ValueError):
            return kind(text)
    return text
