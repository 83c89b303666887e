"""What one run compares: the given settings, a sweep over some of them, or TriForce with parts left out. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from itertools import product
from typing import Any, TypeVar

from ..config import SamplingParams, SpeculationConfig
from ..errors import ConfigError

Value = int | float | str
_Config = TypeVar("_Config", SamplingParams, SpeculationConfig)
_OWN: Mapping[type, tuple[str, ...]] = {
    SamplingParams: ("temperature", "top_p", "top_k", "seed"),
    SpeculationConfig: tuple(f.name for f in fields(SpeculationConfig) if f.name != "engine"),
}
_SETTINGS = [name for names in _OWN.values() for name in names]
# The paper's ablations (arXiv 2404.11912, section 5.4 and table 1), each as what it changes.
ABLATION: Mapping[str, Mapping[str, Value]] = {
    "TriForce": {},
    "no hierarchy": {"small_model": "off"},
    "StreamingLLM": {"middle_cache": "streaming"},
    "small model alone": {"middle_cache": "none"},
    "prompt lookup": {"middle_cache": "none", "small_model": "off", "ngram": "on"},
}


@dataclass(frozen=True, slots=True)
class Sweep:
    """One setting and the values that it takes in turn."""

    name: str
    values: tuple[Value, ...]


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the table. settings: what the sweeps chose for it; variant: its name in ABLATION, where there is one.
    """

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
        """Plain decoding with all that decides its text: rows with the same baseline share one measurement."""
        own = self.speculation
        return self.sampling, SpeculationConfig(engine="autoregressive", verifier=own.verifier, quotes=own.quotes)

    @property
    def same_text_expected(self) -> bool:
        """Where chance decides, two texts may differ and both be right."""
        return self.sampling.temperature == 0 or self.speculation.verifier == "coupled"


def parse_sweep(text: str) -> Sweep:
    """ "budget=256,512" -> Sweep. Raises ConfigError."""
    name, _, listed = text.partition("=")
    name = name.strip().replace("-", "_")
    values = tuple(_value(item.strip()) for item in listed.split(",") if item.strip())
    if name not in _SETTINGS:
        raise ConfigError(f"--sweep {name!r} is no setting", allowed=", ".join(_SETTINGS))
    if not values or len(set(values)) < len(values):
        raise ConfigError(f"--sweep {name} has {'no' if not values else 'repeated'} values",
                          allowed=f"different values: {name}=A,B,C")
    return Sweep(name, values)


def make_rows(sampling: SamplingParams, speculation: SpeculationConfig, sweeps: Sequence[Sweep] = (),
              ablation: bool = False) -> list[Row]:
    """Every combination of the sweeps' values, for every variant of the ablation. Raises ConfigError."""
    names = [sweep.name for sweep in sweeps]
    taken = [name for changes in ABLATION.values() for name in changes] if ablation else []
    for name in names:
        if names.count(name) > 1 or name in taken:
            raise ConfigError(f"{name} is given twice", allowed="one --sweep of it, and none of what --ablation varies")
    rows = []
    for variant, changes in ABLATION.items() if ablation else [("", {})]:
        for values in product(*(sweep.values for sweep in sweeps)):
            settings = dict(zip(names, values, strict=True))
            merged = {**changes, **settings}
            rows.append(Row(_with(sampling, merged), _with(speculation, merged), settings, variant))
    return rows


def _with(config: _Config, settings: Mapping[str, Value]) -> _Config:
    """With those of the settings that are its own. Raises ConfigError."""
    own: dict[str, Any] = {name: value for name, value in settings.items() if name in _OWN[type(config)]}
    return replace(config, **own)


def _value(text: str) -> Value:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text
