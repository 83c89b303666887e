"""Published models that this program runs, from ``curated.json``, judged by their shapes before anything is fetched.

Whether one fits is the memory planner's word. How fast it would write is modelled (``device.speed``).
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch

from ..config import EngineConfig
from ..device.bandwidth import copy_rate, host_copy_rate
from ..device.capability import read_capability
from ..device.memory import ran_out
from ..device.memory_plan import LEAST_CONTEXT, Room, Weights, Wish, longest_plan, make_plan
from ..device.shard import ALONE
from ..device.speed import modelled_rate
from ..engine.memory import Planner, limit_bytes, make_wish
from ..engine.placement import modes, number_type, place
from ..errors import ConfigError, NotEnoughMemoryError
from ..events import ClassFit, CuratedModel, Mode
from ..model import ModelConfig
from ..model.config import parse_config
from .hub import cache_folder, free_bytes

FILE = Path(__file__).with_name("curated.json")
PRECISIONS = ("bf16", "int8", "int4")
RATE_TOKENS = 16_384  # of context, for which a speed is given
USABLE_RATE = 4.0  # tokens per second that a recommended model, or form of one, writes at least
_USABLE_TOKENS, _RECOMMENDED = 8192, 3  # what a recommended model offers at least, and how many are


@dataclass(frozen=True, slots=True)
class Machine:
    """A usual machine. Bytes free for a model, of the GPU 0 where there is none; bytes of a weight in its memory (a CPU
    without native bf16 holds float32); bytes per second that its memory moves, by its makers."""

    name: str
    gpu: int
    host: int
    bytes_per_weight: int
    rate: float


@dataclass(frozen=True, slots=True)
class Entry:
    """One published model. downloads: precision -> (repo, bytes). drafter: a repo of the list, or ""."""

    name: str
    licence: str
    gated: bool
    parameters: int
    good_at: str
    drafts_only: bool
    drafter: str
    downloads: Mapping[str, tuple[str, int]]
    shape: ModelConfig

    @property
    def repo(self) -> str:
        """The one that is fetched: of the first precision."""
        return next(iter(self.downloads.values()))[0]

    @property
    def nbytes(self) -> int:
        return next(iter(self.downloads.values()))[1]


@dataclass(frozen=True, slots=True)
class CuratedList:
    """date: when it was made, YYYY-MM-DD."""

    date: str
    machines: tuple[Machine, ...]
    entries: tuple[Entry, ...]

    def find(self, name: str) -> Entry | None:
        """By its name or repo, whatever the case; a repo without its owner will do."""
        wanted = name.strip().lower()
        return next((entry for entry in self.entries
                     if wanted in (entry.name.lower(), entry.repo.lower(), entry.repo.lower().split("/")[1])), None)


@lru_cache(maxsize=1)
def curated_list() -> CuratedList:
    raw = json.loads(FILE.read_text(encoding="utf-8"))
    machines = tuple(Machine(one["name"], int(one["gpu_gib"] * 2**30), int(one["host_gib"] * 2**30),
                             one["bytes_per_weight"], one["gigabytes_per_second"] * 1e9) for one in raw["classes"])
    return CuratedList(raw["date"], machines, tuple(map(_entry, raw["models"])))


def repo_of(name: str) -> str:
    """The repo of a listed model's name; any other name as it is."""
    entry = curated_list().find(name)
    return entry.repo if entry else name


def _entry(raw: Mapping[str, Any]) -> Entry:
    downloads = {precision: (one["repo"], int(one["gigabytes"] * 1e9)) for precision, one in raw["download"].items()}
    return Entry(raw["name"], raw["licence"], raw["gated"], raw["parameters"], raw["good_at"], raw["drafts_only"],
                 raw["drafter"] or "", downloads, parse_config(raw["config"]))


def suggestions(config: EngineConfig, here: Collection[str], rate: float) -> Iterator[CuratedModel]:
    """Every model of the list, those that are recommended for this machine first. here: repos that are on it. rate: see
    ``memory_rate``. Raises ConfigError: settings that no machine of this kind can have."""
    listed = curated_list()
    folder = cache_folder()
    judge = _Judge(config, rate)
    found = [replace(judge.model(entry), dated=listed.date, here=entry.repo in here, folder=str(folder),
                     disk_free=free_bytes(folder)) for entry in listed.entries]
    chosen = {model.repo for model in recommended(found)}
    for model in sorted(found, key=lambda model: model.repo not in chosen):
        yield replace(model, recommended=model.repo in chosen)


def recommended(found: Collection[CuratedModel]) -> list[CuratedModel]:
    """The largest that run here with a usable context and, as modelled, at a usable speed; at most three."""
    usable = [model for model in found if model.plan is not None and not model.drafts_only
              and model.plan.context >= min(_USABLE_TOKENS, model.max_context)
              and model.tokens_per_second >= USABLE_RATE]
    return sorted(usable, key=lambda model: -model.parameters)[:_RECOMMENDED]


class _Judge:
    """Plans models for this machine as the engine would, and for the usual ones."""

    def __init__(self, config: EngineConfig, rate: float) -> None:
        machine = read_capability()
        self._config = replace(config, max_context="auto", gpus=1)
        self._device, self._why = place(self._config, ALONE)
        self._dtype = number_type(self._config, self._device, machine)[0]
        self._rate = rate

    def model(self, entry: Entry) -> CuratedModel:
        drafter = curated_list().find(entry.drafter) if entry.drafter else None
        plan, problem = None, ""
        weights = Weights(entry.shape, self._dtype.itemsize)
        draft = Weights(drafter.shape, self._dtype.itemsize) if drafter else None
        on_gpu = self._device.type == "cuda"
        rate, tokens = 0.0, 0
        try:
            wish = make_wish(weights, draft, max_context=entry.shape.longest_context, config=self._config,
                             device=self._device, dtype=self._dtype)
            planner = Planner(wish, modes(self._config, on_gpu), self._device, limit_bytes(self._config), ALONE,
                              self._why)
            plan = planner.plan(None)
            tokens = min(plan.context, RATE_TOKENS)
            rate = modelled_rate(weights, planner.plan(tokens), tokens, self._rate)
        except (ConfigError, NotEnoughMemoryError) as error:  # not every shape's cache can be as it is asked for
            problem = str(error)
        return CuratedModel(
            entry.name, entry.repo, entry.licence, entry.gated, "", entry.parameters, entry.shape.longest_context,
            entry.good_at, tuple((precision, nbytes) for precision, (_, nbytes) in entry.downloads.items()),
            entry.drafts_only, entry.drafter, drafter.name if drafter else "", drafter.nbytes if drafter else 0,
            plan=plan, problem=problem, tokens_per_second=rate, rate_tokens=tokens,
            classes=tuple(class_fit(entry, drafter, machine) for machine in curated_list().machines))


def class_fit(entry: Entry, drafter: Entry | None, machine: Machine) -> ClassFit:
    """A model on a usual machine, with the GPU's kernels as this program has them."""
    weights = Weights(entry.shape, machine.bytes_per_weight)
    draft = Weights(drafter.shape, machine.bytes_per_weight) if drafter else None
    allowed: tuple[Mode, ...] = ("on-chip", "offload") if machine.gpu else ("cpu",)
    wish = Wish(weights, entry.shape.longest_context, draft, budget=4096 if machine.gpu else 768,
                in_place=bool(machine.gpu), draft_slots=512, prefill_chunk=2048 if machine.gpu else 512)
    room = Room(machine.host, machine.gpu)
    try:
        context = longest_plan(wish, room, allowed).context
        tokens = min(context, RATE_TOKENS)
        rate = modelled_rate(weights, make_plan(wish, room, tokens, allowed), tokens, machine.rate)
    except NotEnoughMemoryError:
        return ClassFit(machine.name, 0, 0.0)
    return ClassFit(machine.name, context, rate) if context >= LEAST_CONTEXT else ClassFit(machine.name, 0, 0.0)


def memory_rate(device: torch.device) -> float:
    """Bytes per second that the memory a model would lie in moves, measured now."""
    if device.type != "cuda":
        return host_copy_rate()
    try:
        return copy_rate(1 << 28)
    except Exception as error:
        if not ran_out(error):
            raise
        raise ConfigError("The GPU has no memory free to measure with",
                          remedy="Close what uses it, and look again.") from error
    finally:
        torch.cuda.empty_cache()
