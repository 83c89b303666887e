"""Rotary position embedding: which frequencies a checkpoint asks for, and the cos/sin rows of given positions.

Sources: RoFormer (arXiv 2104.09864); linear scaling (kaiokendev; arXiv 2306.15595); YaRN (arXiv 2309.00071,
"NTK-by-parts" with its attention temperature); Llama 3.1's piecewise rule (Meta, models/llama3/reference_impl);
LongRoPE (arXiv 2402.13753); Llama 4's temperature of far queries, as Ministral 3 has it.
Angles are fp32 products position x frequency, as in ``transformers``: at large positions a product in
fp64 would *differ* from what checkpoints were trained with. Knows nothing of caches.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from ..errors import ModelError, UnsupportedModelError

KINDS = ("default", "linear", "llama3", "yarn", "longrope")


@dataclass(frozen=True, slots=True)
class RopeConfig:
    """One rotary kind. Fields that a kind does not use keep their defaults."""

    kind: str = "default"
    theta: float = 10000.0
    factor: float = 1.0
    original_context: int = 0
    low_freq_factor: float = 1.0  # llama3
    high_freq_factor: float = 4.0  # llama3
    beta_fast: float = 32.0  # yarn
    beta_slow: float = 1.0  # yarn
    attention_factor: float = 1.0  # multiplies cos and sin
    truncate: bool = True  # yarn: whole-number bounds of the ramp
    extended_context: int = 0  # tokens that the scaling itself promises; 0: nothing beyond the config
    divisors: tuple[float, ...] = ()  # of the frequencies, each its own, beside the kind (GGUF, longrope); (): none
    near_divisors: tuple[float, ...] = ()  # longrope: those in a context no longer than the original one
    share: float = 1.0  # of a head's features that are turned
    temperature: float = 0.0  # queries grow by 1 + this * log(1 + position // original_context)

    def at(self, context: int) -> RopeConfig:
        """Return what turns a context of up to so many tokens: one rope for all of it, as keys are turned once."""
        near = self.near_divisors and context <= self.original_context
        return replace(self, divisors=self.near_divisors, near_divisors=()) if near else self


NO_ROPE = RopeConfig("none")


def read_rope(raw: Mapping[str, Any], head_dim: int, max_context: int) -> RopeConfig:
    """The rotary part of a config.json: ``rope_parameters`` (transformers 5), or ``rope_theta`` + ``rope_scaling``.

    Raises UnsupportedModelError for kinds that are not implemented, ModelError for malformed values."""
    given = raw.get("rope_parameters") or raw.get("rope_scaling") or {}
    if not isinstance(given, Mapping):
        raise ModelError(f"config.json: rope_scaling is {given!r}", allowed="an object or null")
    if any(isinstance(value, Mapping) for value in given.values()):
        raise UnsupportedModelError("This model gives each kind of layer its own rope, which is not supported")
    kind = given.get("rope_type", given.get("type", "default")) or "default"
    kind = {"mrope": "default", "su": "longrope"}.get(kind, kind)  # mrope: text alone has one position for all axes
    if kind not in KINDS:
        raise UnsupportedModelError(f"The rope kind {kind!r} is not supported", allowed=", ".join(KINDS))
    theta = _positive(given, "rope_theta", _positive(raw, "rope_theta", 10000.0))
    share = _positive(given, "partial_rotary_factor", _positive(raw, "partial_rotary_factor", 1.0))
    if share > 1 or int(head_dim * share) % 2:
        raise ModelError(f"config.json: partial_rotary_factor is {share}", allowed="an even part of head_dim")
    if kind == "default":
        return RopeConfig(theta=theta, share=share)
    original = int(_positive(given, "original_max_position_embeddings",
                             _positive(raw, "original_max_position_embeddings", max_context)))
    if kind == "longrope":
        return _longrope(given, RopeConfig(kind, theta, original_context=original, share=share),
                         int(head_dim * share) // 2, max_context)
    if kind == "yarn" and given.get("factor") is None:
        factor = max_context / original
    else:
        factor = _positive(given, "factor", None)
    if kind == "linear":
        return RopeConfig("linear", theta, factor, share=share)
    if kind == "llama3":
        low, high = _positive(given, "low_freq_factor", None), _positive(given, "high_freq_factor", None)
        return RopeConfig("llama3", theta, factor, original, low_freq_factor=low, high_freq_factor=high, share=share)
    return RopeConfig(
        "yarn", theta, factor, original,
        beta_fast=_positive(given, "beta_fast", 32.0),
        beta_slow=_positive(given, "beta_slow", 1.0),
        attention_factor=_yarn_attention(given, factor),
        truncate=bool(given.get("truncate", True)),
        extended_context=int(factor * original) if "original_max_position_embeddings" in given else 0,
        share=share, temperature=_positive(given, "llama_4_scaling_beta", 0.0) if given.get("llama_4_scaling_beta")
        else 0.0,
    )


def _longrope(given: Mapping[str, Any], rope: RopeConfig, pairs: int, max_context: int) -> RopeConfig:
    near, far = (given.get(f"{name}_factor") for name in ("short", "long"))
    for values in (near, far):
        if not isinstance(values, list) or len(values) != pairs or not all(
                isinstance(value, (int, float)) and value > 0 for value in values):
            raise ModelError(f"config.json: a longrope's factors are {str(values)[:40]}", allowed=f"{pairs} numbers")
    assert isinstance(near, list) and isinstance(far, list)
    factor = max_context / rope.original_context
    usual = math.sqrt(1 + math.log(factor) / math.log(rope.original_context)) if factor > 1 else 1.0
    return replace(rope, near_divisors=tuple(map(float, near)), divisors=tuple(map(float, far)),
                   attention_factor=_positive(given, "attention_factor", usual))


def inverse_frequencies(rope: RopeConfig, head_dim: int) -> Tensor:
    """Radians per position, fp32 [head_dim / 2], fastest first; zero where nothing turns."""
    if rope.kind == "none":
        return torch.zeros(head_dim // 2)
    if rope.share < 1:
        turned = inverse_frequencies(replace(rope, share=1.0), int(head_dim * rope.share))
        return torch.nn.functional.pad(turned, (0, head_dim // 2 - len(turned)))
    if rope.divisors:
        return inverse_frequencies(replace(rope, divisors=()), head_dim) / torch.tensor(rope.divisors)
    powers = torch.arange(0, head_dim, 2, dtype=torch.int64).float() / head_dim
    wave = rope.theta**powers
    frequencies = 1.0 / wave
    if rope.kind == "linear":
        return frequencies / rope.factor
    if rope.kind == "llama3":
        return _llama3(frequencies, rope)
    if rope.kind == "yarn":
        return _yarn(wave, rope, head_dim)
    return frequencies


def _llama3(frequencies: Tensor, rope: RopeConfig) -> Tensor:
    """Long waves are interpolated, short ones kept, those between blended."""
    turns = rope.original_context * frequencies / (2 * math.pi)  # turns within the original context
    blend = (turns - rope.low_freq_factor) / (rope.high_freq_factor - rope.low_freq_factor)
    blend = blend.clamp(0.0, 1.0)
    return (1 - blend) * frequencies / rope.factor + blend * frequencies


def _yarn(wave: Tensor, rope: RopeConfig, head_dim: int) -> Tensor:
    """Between beta_fast and beta_slow turns within the original context, a ramp from kept to interpolated."""

    def dimension(turns: float) -> float:
        ratio = rope.original_context / (turns * 2 * math.pi)
        return head_dim * math.log(ratio) / (2 * math.log(rope.theta))

    low, high = dimension(rope.beta_fast), dimension(rope.beta_slow)
    if rope.truncate:
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, head_dim - 1)
    if low == high:
        high += 0.001
    kept = 1 - ((torch.arange(head_dim // 2, dtype=torch.float32) - low) / (high - low)).clamp(0, 1)
    return (1.0 / (rope.factor * wave)) * (1 - kept) + (1.0 / wave) * kept


def _yarn_attention(given: Mapping[str, Any], factor: float) -> float:
    def temperature(mscale: float) -> float:
        return 0.1 * mscale * math.log(factor) + 1.0 if factor > 1 else 1.0

    if given.get("attention_factor") is not None:
        return _positive(given, "attention_factor", None)
    if given.get("mscale") and given.get("mscale_all_dim"):
        return temperature(_positive(given, "mscale", None)) / temperature(_positive(given, "mscale_all_dim", None))
    return temperature(1.0)


def _positive(given: Mapping[str, Any], name: str, default: float | None) -> float:
    value = given.get(name, default)
    if value is None and default is not None:
        value = default
    if not isinstance(value, (int, float)) or isinstance(value, bool) or not value > 0:
        raise ModelError(f"config.json: rope {name} is {value!r}", allowed="a number above 0")
    return float(value)


class RotaryTable:
    """cos and sin rows by position, computed once and extended as positions grow, for each rope of a model.

    A cache of pure values (like a multiplication table), not state of a conversation. A scale of attention's scores is
    in them: half of it turns queries, half keys. Where far queries grow, they have a row of their own, the last."""

    def __init__(self, ropes: Sequence[RopeConfig], head_dim: int, device: torch.device,
                 score_scale: float = 1.0) -> None:
        found = [inverse_frequencies(rope, head_dim) for rope in ropes]
        self.frequencies = torch.stack(found).to(device)  # [ropes, D / 2]
        factors = [torch.where(own > 0, rope.attention_factor, 1.0) for own, rope in zip(found, ropes, strict=True)]
        self._factors = (torch.stack(factors) * score_scale**0.5)[:, None, None].to(device)
        self._hot = ropes[0] if ropes[0].temperature else None
        self._cos = self._sin = torch.empty(len(ropes) + (self._hot is not None), 0, 1, head_dim, device=device)

    def reserve(self, highest: int) -> int:
        """Have rows up to this position; returns where the table lies (it moves when it grows)."""
        if highest >= self._cos.shape[1]:
            self._extend(max(1024, highest + highest // 4 + 1))
        return self._cos.data_ptr()

    def take(self, positions: Tensor) -> tuple[Tensor, Tensor]:
        """positions int64 [n], which are reserved -> cos, sin fp32 [ropes, n, 1, head_dim], each as ``kernels.rotate``
        wants them. Nothing on the host waits for the device."""
        return self._cos.index_select(1, positions), self._sin.index_select(1, positions)

    def _extend(self, count: int) -> None:
        steps = torch.arange(count, dtype=torch.float32, device=self.frequencies.device)[:, None, None]
        angles = steps * self.frequencies[:, None, None]
        cos, sin = angles.cos() * self._factors, angles.sin() * self._factors
        if self._hot is not None:
            heat = 1 + self._hot.temperature * (steps / self._hot.original_context).floor().log1p()
            cos, sin = (torch.cat((own, own[:1] * heat)) for own in (cos, sin))
        self._cos, self._sin = torch.cat((cos, cos), -1), torch.cat((-sin, sin), -1)
