"""Published models that this program runs, from ``curated.json``, judged by their shapes before anything is fetched.

Whether one fits is the memory planner's word. How fast it would write is modelled (``device.bandwidth``), and how
fast it would read: two operations for each weight and token, at the rate of wide products on this machine.
"""

from __future__ import annotations

import json
import platform
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from pathlib import Path
from timeit import timeit
from typing import Any

import psutil
import torch

from ..config import EngineConfig, repo_and_file
from ..device.bandwidth import copy_rate, host_copy_rate, modelled_rate, timed
from ..device.capability import read_capability
from ..device.memory import ran_out
from ..device.memory_plan import LEAST_CONTEXT, Room, Weights, Wish, longest_plan, make_plan
from ..device.shard import ALONE
from ..engine.loading import held, rounded
from ..engine.memory import Planner, limit_bytes, make_wish, modes, number_type, place
from ..errors import ConfigError, NotEnoughMemoryError
from ..events import ClassFit, CuratedModel, GGUFDownload, MemoryPlan, Mode
from ..kernels import HEAD_KIND, WEIGHT_KINDS, bytes_per_weight, choose_kernels, keeps_groups
from ..model import ModelConfig
from ..model.checkpoint import joined_bytes, packs
from ..model.config import parse_config
from ..model.gguf_checkpoint import FORMS
from .hub import cache_folder, free_bytes

FILE = Path(__file__).with_name("curated.json")
RATE_TOKENS = 16_384  # of context, for which a speed is given
USABLE_RATE = 4.0  # tokens per second that a recommended model, or form of one, writes at least
# What a recommended model offers at least: tokens of context, and of those read per second (a chapter in some minutes);
# and how many are recommended.
_USABLE_TOKENS, _USABLE_READING, _RECOMMENDED = 8192, 50.0, 3
# A first chat model: how many to choose from, each with at most this part of the weights of the one before it, and with
# how many at least: a 135M answered 3 to 5 of 40 questions about documents rightly.
_FIRST, _STEP, _CHATS = 3, 2 / 3, 1.5e9
_OPEN = ("Apache-2.0", "MIT")  # licences without terms of its makers' own
# How GGUF files are quantised, the least rounding first: the kinds of most of the layers' weights, of the rest (the
# values' and half of the MLPs' last matrices) and of the head's.
_GGUF_KINDS = {"Q8_0": ("Q8_0", "Q8_0", "Q8_0"), "Q4_K_M": ("Q4_K", "Q6_K", "Q6_K")}
_GGUF_REST = 0.15  # of the layers' weights
RATES = "rates.json"  # in the folder of measurements
_LOOKS, _LOOK_SECONDS, _QUIET = 8, 0.25, 25.0  # for a quiet moment: how often, how long, percent of all cores
_WIDE = 512  # tokens of a pass by which reading is timed, over 4,096 inputs and outputs


@dataclass(frozen=True, slots=True)
class Machine:
    """A usual machine. Bytes free for a model, of the GPU 0 where there is none; bytes per second that its memory
    moves, by its makers."""

    name: str
    gpu: int
    host: int
    rate: float


@dataclass(frozen=True, slots=True)
class Entry:
    """One published model. downloads: precision -> (repo, bytes). ggufs: how it is quantised -> (repo, bytes). drafter:
    a repo of the list, or ""."""

    name: str
    licence: str
    gated: bool
    parameters: int
    good_at: str
    drafts_only: bool
    drafter: str
    downloads: Mapping[str, tuple[str, int]]
    ggufs: Mapping[str, tuple[str, int]]
    shape: ModelConfig

    @property
    def repo(self) -> str:
        """Return the one that is fetched, in the first precision."""
        return next(iter(self.downloads.values()))[0]

    @property
    def nbytes(self) -> int:
        return next(iter(self.downloads.values()))[1]


@lru_cache(maxsize=1)
def curated_list() -> tuple[str, tuple[Machine, ...], tuple[Entry, ...]]:
    """Return when the list was made (YYYY-MM-DD), the usual machines, and the models."""
    raw = json.loads(FILE.read_text(encoding="utf-8"))
    machines = tuple(Machine(one["name"], int(one["gpu_gib"] * 2**30), int(one["host_gib"] * 2**30),
                             one["gigabytes_per_second"] * 1e9) for one in raw["classes"])
    return raw["date"], machines, tuple(map(_entry, raw["models"]))


def find(name: str) -> Entry | None:
    """Find an entry by its name or repo, whatever the case; a repo without its owner will do."""
    wanted = name.strip().lower()
    return next((entry for entry in curated_list()[2]
                 if wanted in (entry.name.lower(), entry.repo.lower(), entry.repo.lower().split("/")[1])), None)


def repo_of(name: str) -> str:
    """Return the repo of a listed model's name, NAME:Q4_K_M for a GGUF file of it; any other name as it is."""
    plain, kind = repo_and_file(name)
    entry = find(plain)
    if entry is None or (kind and kind.upper() not in entry.ggufs):
        return name
    return f"{entry.ggufs[kind.upper()][0]}:{kind.upper()}" if kind else entry.repo


def _entry(raw: Mapping[str, Any]) -> Entry:
    downloads = {precision: (one["repo"], int(one["gigabytes"] * 1e9)) for precision, one in raw["download"].items()}
    stored = raw.get("gguf", {"gigabytes": {}})
    ggufs = {kind: (stored["repo"], int(gigabytes * 1e9)) for kind, gigabytes in stored["gigabytes"].items()}
    return Entry(raw["name"], raw["licence"], raw["gated"], raw["parameters"], raw["good_at"], raw["drafts_only"],
                 raw["drafter"] or "", downloads, ggufs, parse_config(raw["config"]))


def suggestions(config: EngineConfig, here: Collection[str], rate: float) -> Iterator[CuratedModel]:
    """Yield every model of the list, those recommended for this machine first. here: repos that are on it. rate: see
    ``memory_rate``. Raises ConfigError: settings that no machine of this kind can have."""
    date, _, entries = curated_list()
    folder, judge = cache_folder(), _Judge(config, rate)
    found = [replace(model, dated=date, here=_is_here(model, here), folder=str(folder), disk_free=free_bytes(folder))
             for model in map(judge.model, entries)]
    chosen, first = ({model.repo for model in some} for some in (recommended(found), first_models(found)))
    for model in sorted(found, key=lambda model: model.repo not in chosen):
        yield replace(model, recommended=model.repo in chosen, first=model.repo in first)


def _is_here(model: CuratedModel, here: Collection[str]) -> bool:
    """here: names of models as ``survey`` gives them, of a repo's GGUF file with its path in it."""
    owner, _, kind = model.gguf.repo.rpartition(":") if model.gguf else ("", "", "")
    return model.repo in here or any(name.startswith(f"{owner}/") and kind in name for name in here if owner)


def recommended(found: Collection[CuratedModel]) -> list[CuratedModel]:
    """Return the largest that run here with a usable context and, as modelled, at usable speeds, in the form that is
    offered; at most three."""
    usable = [model for model in found if model.form.plan is not None and not model.drafts_only
              and model.form.plan.context >= min(_USABLE_TOKENS, model.max_context)
              and model.form.tokens_per_second >= USABLE_RATE and model.read_per_second >= _USABLE_READING]
    return sorted(usable, key=lambda model: -model.parameters)[:_RECOMMENDED]


def first_models(found: Collection[CuratedModel]) -> list[CuratedModel]:
    """Return those to choose a first chat model from: the largest that is fast enough here as a GGUF file, then clearly
    smaller ones; none whose answers about documents are worth little. Of those about as large one under an open licence
    is taken before others. Where none is fast, the smallest that fits."""
    fitting = sorted((model for model in found if model.gguf and not model.drafts_only and model.parameters >= _CHATS),
                     key=lambda model: -model.parameters)
    fast = [model for model in fitting if model.gguf and model.gguf.tokens_per_second >= USABLE_RATE
            and model.read_per_second >= _USABLE_READING]
    chosen: list[CuratedModel] = []
    while fast and len(chosen) < _FIRST:
        alike = [model for model in fast if model.parameters > _STEP * fast[0].parameters]
        chosen.append(next((model for model in alike if model.licence in _OPEN), fast[0]))
        fast = [model for model in fast if model.parameters <= _STEP * chosen[-1].parameters]
    return chosen or fitting[-1:]


@dataclass(frozen=True, slots=True)
class _Form:
    """A model with its weights so, on this machine. rate: of plain decoding with ``tokens`` of context."""

    weights: str
    plan: MemoryPlan | None = None
    rate: float = 0.0
    tokens: int = 0
    problem: str = ""


class _Judge:
    """Plans models for this machine as the engine would, and for the usual ones."""

    def __init__(self, config: EngineConfig, rate: float) -> None:
        machine = read_capability()
        self._config = replace(config, max_context="auto", gpus=1)
        self._device, self._why = place(self._config, ALONE)
        self._dtype = number_type(self._config, self._device, machine)[0]
        self._rate = rate
        self._products = best_so_far(config.measurements, f"products in {self._dtype}",
                                     lambda: product_rate(self._device, self._dtype))

    def model(self, entry: Entry) -> CuratedModel:
        """Judge it in the first form that runs here with a usable context at a usable speed; else in the smallest that
        takes the longest."""
        drafter = find(entry.drafter) if entry.drafter else None
        whole = held(entry.shape, self._dtype, self._device)
        draft = held(drafter.shape, self._dtype, self._device) if drafter else None
        forms = {"same": whole} | {kind: rounded(whole, kind, self._dtype, self._device) for kind in WEIGHT_KINDS}
        found = [self._in_form(entry, kind, weights, draft) for kind, weights in forms.items()
                 if weights is whole or weights.nbytes < whole.nbytes]
        least = min(_USABLE_TOKENS, entry.shape.max_context)
        usable = [form for form in found if form.plan and form.plan.context >= least and form.rate >= USABLE_RATE]
        best = usable[0] if usable else max(reversed(found), key=lambda form: form.plan.context if form.plan else 0)
        return CuratedModel(
            entry.name, entry.repo, entry.licence, entry.gated, "", entry.parameters, entry.shape.max_context,
            entry.good_at, tuple((precision, nbytes) for precision, (_, nbytes) in entry.downloads.items()),
            entry.drafts_only, entry.drafter, drafter.name if drafter else "", drafter.nbytes if drafter else 0,
            plan=best.plan, problem=best.problem, tokens_per_second=best.rate, rate_tokens=best.tokens,
            weights=best.weights, read_per_second=self._products / (2 * entry.shape.num_parameters),
            classes=tuple(class_fit(entry, drafter, machine) for machine in curated_list()[1]),
            gguf=self._gguf(entry, preferred=self._device.type == "cpu" or not usable or usable[0].weights != "same"))

    def _gguf(self, entry: Entry, *, preferred: bool) -> GGUFDownload | None:
        """Return the GGUF file with the least rounding that is fast enough here; else the smallest, if that fits.
        preferred: to the published weights."""
        least, found = min(_USABLE_TOKENS, entry.shape.max_context), None
        drafter = find(entry.drafter) if entry.drafter else None
        small = {f"{repo}:{kind}": nbytes for kind, (repo, nbytes) in drafter.ggufs.items()} if drafter else {}
        draft = min(small, key=small.__getitem__, default="")
        for kind in (kind for kind in _GGUF_KINDS if kind in entry.ggufs):
            form = self._in_form(entry, kind, self._quantised(entry.shape, kind), None)
            if form.plan and form.plan.context >= least:
                repo, nbytes = entry.ggufs[kind]
                found = GGUFDownload(f"{repo}:{kind}", kind, nbytes, form.plan.context, form.rate, draft,
                                     small.get(draft, 0), form.plan, form.tokens, preferred)
                if form.rate >= USABLE_RATE:
                    break
        return found

    def _quantised(self, shape: ModelConfig, kind: str) -> Weights:
        """Return the weights of a GGUF file as they will lie in memory: in few bits where this device has kernels for
        that or too little memory for their numbers, else unpacked."""
        whole = held(shape, self._dtype, self._device)
        unpacks = self._device.type == "cpu" and packs(shape, self._dtype)
        if not (unpacks or keeps_groups(self._device, self._dtype)):
            return whole
        most, rest, head = (joined_bytes([FORMS[one]], not whole.in_panels) for one in _GGUF_KINDS[kind])
        return replace(whole, few_bits=most + _GGUF_REST * (rest - most), few_bits_head=head, unpacks=unpacks,
                       rows_on_disk=self._device.type == "cpu")

    def _in_form(self, entry: Entry, kind: str, weights: Weights, draft: Weights | None) -> _Form:
        try:
            wish = make_wish(weights, draft, max_context=entry.shape.max_context, config=self._config,
                             device=self._device, dtype=self._dtype)
            planner = Planner(wish, modes(self._config, self._device.type == "cuda"), self._device,
                              limit_bytes(self._config), ALONE, self._why)
            plan = planner.plan(None)
            tokens = min(plan.context, RATE_TOKENS)
            return _Form(kind, plan, modelled_rate(weights, planner.plan(tokens), tokens, self._rate), tokens)
        except (ConfigError, NotEnoughMemoryError) as error:  # not every shape's cache can be as it is asked for
            return _Form(kind, problem=str(error) if kind == "same" else f"In {kind}, {error}")


def best_so_far(folder: Path | None, what: str, measure: Callable[[], float]) -> float:
    """Return the best that was ever measured here, now or earlier: other programs only slow it. So which models are
    offered does not hang on who computes at this second. folder: where it is kept; None: nowhere."""
    if folder is None:
        return measure()
    _wait_for_quiet()
    path, known = folder / RATES, {}
    with suppress(OSError, ValueError):
        known = json.loads(path.read_text(encoding="utf-8"))
    key = f"{platform.node()} {torch.get_num_threads()} threads, {what}"
    before = known.get(key, 0.0) if isinstance(known, dict) else 0.0
    best = max(measure(), before if isinstance(before, float) else 0.0)
    with suppress(OSError):  # only a convenience
        folder.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps((known if isinstance(known, dict) else {}) | {key: best}), encoding="utf-8")
    return best


def _wait_for_quiet() -> None:
    """Wait until the cores have little to do, for a few seconds at most."""
    for _ in range(_LOOKS):
        if psutil.cpu_percent(_LOOK_SECONDS) < _QUIET:
            return


def class_fit(entry: Entry, drafter: Entry | None, machine: Machine) -> ClassFit:
    """Judge a model on a usual machine, with kernels as this program has them: in the form with the least rounding that
    takes as much context as any."""
    on_cpu = not machine.gpu
    whole = Weights(entry.shape, in_panels=on_cpu)
    draft = Weights(drafter.shape, in_panels=on_cpu) if drafter else None
    forms = {"same": whole, "int4": replace(whole, few_bits=bytes_per_weight("int4"),
                                            few_bits_head=bytes_per_weight(HEAD_KIND))}
    return max((_class_fit(entry, kind, weights, draft, machine) for kind, weights in forms.items()),
               key=lambda fit: fit.tokens)


def _class_fit(entry: Entry, kind: str, weights: Weights, draft: Weights | None, machine: Machine) -> ClassFit:
    allowed: tuple[Mode, ...] = ("on-chip", "offload") if machine.gpu else ("cpu",)
    wish = Wish(weights, entry.shape.max_context, draft, budget=4096 if machine.gpu else 768,
                in_place=bool(machine.gpu), draft_slots=512, prefill_chunk=2048 if machine.gpu else 512)
    room = Room(machine.host, machine.gpu)
    try:
        context = longest_plan(wish, room, allowed).context
        tokens = min(context, RATE_TOKENS)
        rate = modelled_rate(weights, make_plan(wish, room, tokens, allowed), tokens, machine.rate)
    except NotEnoughMemoryError:
        context, rate = 0, 0.0
    return ClassFit(machine.name, context, rate, kind) if context >= LEAST_CONTEXT else ClassFit(machine.name, 0, 0.0)


def product_rate(device: torch.device, dtype: torch.dtype) -> float:
    """Measure the operations per second of the wide products that reading takes, by the kernels that answers use."""
    weight = torch.randn(4096, 4096, device=device).to(dtype)
    x = torch.randn(_WIDE if device.type == "cpu" else 4096, 4096, device=device).to(dtype)
    with torch.inference_mode():
        product = partial(choose_kernels(device).make_linear(weight, None, None, dtype), x)
        if device.type == "cuda":
            seconds = timed(product, 8)
        else:
            seconds = min(timeit(product, number=1) for _ in range(4))
    return 2 * x.shape[0] * 4096 * 4096 / seconds


def memory_rate(device: torch.device) -> float:
    """Measure the bytes per second that the memory a model would lie in moves. Raises ConfigError: none is free."""
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
