"""Settings: frozen, checked on creation, "auto" where the machine or the model should choose."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import ClassVar, Literal

from .errors import ConfigError

Auto = Literal["auto"]
BUILTIN = "builtin"
READINGS, MEASUREMENTS = "readings", "measurements"  # folders in the app's cache, for the page and the command line
KV_KINDS = ("auto", "same", "int8", "int4")
_REPO_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")


def is_repo_id(text: str) -> bool:
    """Return whether a repo of the Hugging Face hub could be called so: OWNER/NAME."""
    return _REPO_ID.fullmatch(text) is not None


def repo_and_file(text: str) -> tuple[str, str]:
    """Split OWNER/NAME:WHAT, as Ollama and llama.cpp write it. WHAT: a GGUF file of the repo, or how it is quantised
    (Q4_K_M); "" where nothing is said."""
    repo, _, what = text.partition(":")
    return repo.strip(), what.strip()


def check(condition: bool, name: str, value: object, allowed: str) -> None:
    """Raise a ConfigError that says what was given and what is allowed, unless ``condition``."""
    if not condition:
        raise ConfigError(f"{name} is {value!r}", allowed=allowed)


def _one_of(name: str, value: object, choices: tuple[str, ...]) -> None:
    check(value in choices, name, value, ", ".join(choices))


def check_whole(name: str, value: object, low: int, high: int, *, auto: bool = True) -> None:
    """Check a whole number from low to high, or "auto"."""
    if auto and value == "auto":
        return
    good = isinstance(value, int) and not isinstance(value, bool) and low <= value <= high
    check(good, name, value, f"a whole number from {low} to {high}" + (" or 'auto'" if auto else ""))


@dataclass(frozen=True, slots=True)
class EngineConfig:
    """Say what to load and where to run it.

    mode "offload": the cache in host memory, streamed through the GPU but for ``resident_layers`` ("auto": as many as
    fit); with device "cpu" the same without a GPU, as a dry run.
    model / draft_model: "builtin", a folder, or a Hugging Face repo id already in the local cache
    (fetched only with allow_download); draft_model may be "auto" (the built-in draft for the
    built-in model, otherwise none) or "none". saved_readings: folder for saved KV, or None for off.
    gpus: how many hold the model together, each with its heads; where a CPU was chosen, processes, as a dry run.
    model_folders: where checkpoints are looked for when models are listed, beside the Hugging Face cache.
    measurements: folder for what passes cost on this machine, or None: nothing is kept. tune: forget what is kept for
    this machine and model.
    weights: "int8" and "int4" round the target's matrices when they are loaded; exactness then is that of plain
    decoding with the rounded weights. thinking: let models reason before they answer whose chat template can turn that
    off.
    kv: the full cache in the type of products ("same"), in int8, in half the memory or less, or in int4, in less than a
    third; "auto": on a CPU int8 where only that fits, on a GPU the same. Exactness then is that of plain decoding over
    the same cache.
    server: the address of an OpenAI-compatible server that answers in this engine's stead; ``model`` is then one of its
    own, "" for its first.
    gpu_memory_limit: GiB of a GPU's memory that the engine may use, as if the card had no more; "none": all of it.
    """

    model: str = BUILTIN
    draft_model: str = "auto"
    mode: Literal["auto", "cpu", "on-chip", "offload"] = "auto"
    dtype: Literal["auto", "float32", "bfloat16", "float16"] = "auto"
    device: str = "auto"
    max_context: int | Auto = "auto"
    prefill_chunk: int | Auto = "auto"
    threads: int | Auto = "auto"
    gpus: int = 1
    gpu_memory_limit: float | Literal["none"] = "none"
    resident_layers: int | Auto = "auto"
    allow_download: bool = False
    saved_readings: Path | None = None
    saved_quota_bytes: int = 20 * 1024**3
    model_folders: tuple[str, ...] = ()
    measurements: Path | None = None
    tune: bool = False
    weights: Literal["same", "int8", "int4"] = "same"
    thinking: bool = False
    kv: Literal["auto", "same", "int8", "int4"] = "auto"
    server: str = ""

    def __post_init__(self) -> None:
        _one_of("mode", self.mode, ("auto", "cpu", "on-chip", "offload"))
        if self.kv == "fp8":  # other engines have it; our figures: docs/measurements.md
            raise ConfigError("kv is 'fp8'", allowed=", ".join(KV_KINDS),
                              remedy="Take int8: as many bytes, with a smaller error.")
        _one_of("kv", self.kv, KV_KINDS)
        _one_of("weights", self.weights, ("same", "int8", "int4"))
        _one_of("dtype", self.dtype, ("auto", "float32", "bfloat16", "float16"))
        check_whole("max_context", self.max_context, 256, 4_194_304)
        check_whole("prefill_chunk", self.prefill_chunk, 16, 65_536)
        check_whole("threads", self.threads, 1, 1024)
        check_whole("gpus", self.gpus, 1, 64, auto=False)
        check(self.gpus == 1 or self.device in ("auto", "cpu"), "device", self.device,
               "auto or cpu when gpus is above 1")
        limit = self.gpu_memory_limit
        number = isinstance(limit, (int, float)) and not isinstance(limit, bool)
        check(limit == "none" or (number and 0.5 <= limit <= 4096), "gpu_memory_limit", limit,
               "GiB from 0.5 to 4096, or 'none'")
        check_whole("resident_layers", self.resident_layers, 0, 1024)

    @property
    def on_cpu(self) -> bool:
        """Return whether it was chosen to do without GPUs."""
        return self.mode == "cpu" or self.device == "cpu"


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """Say how a distribution over the next token is made from logits, and when an answer ends.

    temperature 0 is greedy. top_p in (0, 1]; top_k 0 keeps all. seed fixes the whole answer. alternatives: how many of
    the likeliest tokens are reported beside each emitted one; 0 reports no probabilities at all and costs nothing.
    frequency_penalty, presence_penalty, repeat_penalty: of tokens that the answer has (not its prompt), as OpenAI and
    llama.cpp define them. logit_bias: pairs of a token and what its logit is raised by. min_p: of the likeliest token's
    probability, below which none is drawn, before top_k and top_p. schema: JSON schema of the answer ("": none).
    """

    temperature: float = 0.0
    top_p: float = 1.0
    top_k: int = 0
    seed: int = 0
    max_new_tokens: int = 512
    stop_token_ids: tuple[int, ...] | None = None  # None: the model's own
    alternatives: int = 0
    frequency_penalty: float = 0.0
    presence_penalty: float = 0.0
    repeat_penalty: float = 1.0
    min_p: float = 0.0
    logit_bias: tuple[tuple[int, float], ...] = ()
    schema: str = ""

    @property
    def reweighs(self) -> bool:
        """Return whether logits are changed before temperature, top-k and top-p."""
        penalties = self.frequency_penalty, self.presence_penalty, self.repeat_penalty - 1, self.min_p
        return any(penalties) or bool(self.logit_bias)

    def __post_init__(self) -> None:
        for name, least, most in (("temperature", 0, 10), ("frequency_penalty", -2, 2), ("presence_penalty", -2, 2),
                                  ("repeat_penalty", 0.1, 10), ("min_p", 0, 1)):
            value = getattr(self, name)
            number = isinstance(value, (int, float)) and not isinstance(value, bool)
            check(number and least <= value <= most, name, value, f"a number from {least} to {most}")
        check(all(token >= 0 and abs(bias) <= 100 for token, bias in self.logit_bias), "logit_bias", self.logit_bias,
              "tokens' numbers, each with a bias from -100 to 100")
        check(isinstance(self.top_p, (int, float)) and 0 < self.top_p <= 1, "top_p", self.top_p,
               "a number above 0, at most 1")
        check_whole("top_k", self.top_k, 0, 1_000_000, auto=False)
        check_whole("seed", self.seed, 0, 2**63 - 1, auto=False)
        check_whole("max_new_tokens", self.max_new_tokens, 1, 1_000_000, auto=False)
        check_whole("alternatives", self.alternatives, 0, 20, auto=False)


@dataclass(frozen=True, slots=True)
class SpeculationConfig:
    """Say how to speculate (TriForce, arXiv 2404.11912). None of them changes the output's distribution.

    gamma1: tokens the small model drafts per retrieval pass. gamma2: tokens gathered per full pass. pace: whether
    gamma2, on "auto", is chosen round by round from what passes cost and what was accepted lately, down to no draft at
    all where none pays; otherwise it is the usual one. Where chance decides, the text of a seed
    then depends on what passes were measured to cost on this machine, its distribution does not.
    budget: tokens of the full cache that the retrieval cache holds (per layer and KV head), chosen by the attention
    mass of full verifications. refresh_every: full passes between two choices.
    retrieval_weights: what the middle tier computes with, the target's own weights ("same") or a copy of them in few
    bits. sinks / window: the small model's StreamingLLM cache. draft_cache: what the small model attends, that cache
    ("streaming"), or its newest ``window`` tokens and as many of those that the target attended ("cross").
    quotes: hold text between the model's quotation marks to what the document says ("auto": where the model was
    trained for it; "on": of other models between “ and ”).
    small_model / middle_cache: which tiers draft.
    ngram: whether text that repeats what stands in the document or the conversation is drafted by copying it, without a
    model: copies go to the full cache, in rounds in which they promise more than the other tiers ("auto": so unless the
    cache lies in host memory, and on a GPU at temperature 0 or coupled only).
    """

    CHOICES: ClassVar[dict[str, tuple[str, ...]]] = {  # of each field that is one of a few words
        "engine": ("triforce", "autoregressive"), "verifier": ("rejection", "coupled"),
        "retrieval_weights": ("auto", "same", "int8", "int4"), "quotes": ("auto", "on", "off"),
        "small_model": ("on", "off"), "middle_cache": ("retrieval", "none"), "pace": ("auto", "on", "off"),
        "draft_cache": ("auto", "streaming", "cross"), "ngram": ("auto", "straight", "off")}

    engine: Literal["triforce", "autoregressive"] = "triforce"
    verifier: Literal["rejection", "coupled"] = "rejection"
    gamma1: int | Auto = "auto"
    gamma2: int | Auto = "auto"
    budget: int | Auto = "auto"
    chunk_size: int = 8
    recent: int | Auto = "auto"  # newest tokens the retrieval cache always holds, within the budget
    refresh_every: int | Auto = "auto"
    retrieval_weights: Literal["auto", "same", "int8", "int4"] = "auto"
    sinks: int = 4
    window: int | Auto = "auto"
    quotes: Literal["auto", "on", "off"] = "auto"
    small_model: str = "on"
    middle_cache: str = "retrieval"
    pace: Literal["auto", "on", "off"] = "auto"
    draft_cache: Literal["auto", "streaming", "cross"] = "auto"
    ngram: str = "auto"

    def __post_init__(self) -> None:
        for name, allowed in self.CHOICES.items():
            _one_of(name, getattr(self, name), allowed)
        check_whole("gamma1", self.gamma1, 0, 64)
        check_whole("gamma2", self.gamma2, 1, 256)
        check_whole("budget", self.budget, 64, 1_048_576)
        check_whole("chunk_size", self.chunk_size, 1, 4096, auto=False)
        check_whole("recent", self.recent, 0, 1_048_576)
        check_whole("refresh_every", self.refresh_every, 1, 100_000)
        check_whole("sinks", self.sinks, 0, 4096, auto=False)
        check_whole("window", self.window, 16, 1_048_576)


def require(packages: Sequence[str], what: str) -> None:
    """Raise ConfigError where a package is not installed, before the work begins that needs it. what: the beginning of
    its sentence."""
    missing = [name for name in packages if find_spec(name) is None]
    if missing:
        raise ConfigError(f"{what} needs {' and '.join(missing)}, not installed here",
                          remedy=f"Run pip install {' '.join(missing)}") from ModuleNotFoundError(
                              f"No module named {missing[0]!r}", name=missing[0])
