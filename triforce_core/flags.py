"""Command-line flags that become settings: the same names, defaults and checks in every command."""

from __future__ import annotations

import argparse
import sys
from dataclasses import fields
from pathlib import Path
from typing import NoReturn

from .config import BUILTIN, KV_KINDS, EngineConfig, SamplingParams, SpeculationConfig

_SAMPLING = SamplingParams()


class Parser(argparse.ArgumentParser):
    """A mistake is one line on stderr and exit status 2."""

    def error(self, message: str) -> NoReturn:
        print(f"{self.prog}: {' '.join(message.split())} (--help lists the flags)", file=sys.stderr)
        sys.exit(2)


def add_engine_flags(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("model and machine")
    group.add_argument("--model", default=BUILTIN, metavar="DIR",
                       help="a checkpoint folder, a GGUF file or a cached Hugging Face repo id (default: built-in)")
    group.add_argument("--draft-model", default="auto", metavar="DIR",
                       help="the small model that drafts; 'none' for no draft model (default: auto)")
    group.add_argument("--mode", choices=("auto", "cpu", "on-chip", "offload"), default="auto")
    group.add_argument("--device", default="auto")
    group.add_argument("--gpus", type=int, default=1, metavar="N",
                       help="GPUs of this machine that hold the model together (default: 1)")
    group.add_argument("--dtype", choices=("auto", "float32", "bfloat16", "float16"), default="auto")
    group.add_argument("--weights", choices=("same", "int8", "int4"), default="same",
                       help="round the model's weights when they are loaded, to fit or to be faster (default: same)")
    group.add_argument("--kv", choices=KV_KINDS, default="auto",
                       help="keys and values: as they are, or rounded to int8 in half the memory, or to int4 in less "
                            "than a third and less exactly (default: auto, on a CPU int8 where only that fits)")
    group.add_argument("--thinking", action="store_true",
                       help="let a model reason before it answers, where its template leaves the choice")
    group.add_argument("--threads", type=auto_or_whole, default="auto", metavar="N")
    group.add_argument("--max-context", type=auto_or_whole, default="auto", metavar="N",
                       help="tokens of document, conversation and answer together (default: what the model can)")
    group.add_argument("--prefill-chunk", type=auto_or_whole, default="auto", metavar="N")
    group.add_argument("--gpu-memory-limit", type=none_or_number, default="none", metavar="GIB",
                       help="use no more of the GPU's memory, as if it had no more (default: none)")
    group.add_argument("--resident-layers", type=auto_or_whole, default="auto", metavar="N",
                       help="with --mode offload: layers of the cache that stay on the GPU (default: as many as fit)")
    group.add_argument("--allow-download", action="store_true", help="fetch a model that is not on this machine")


def add_tune_flag(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--tune", action="store_true",
                        help="forget what passes cost on this machine, and measure it again before the first reading")


def add_sampling_flags(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("sampling")
    group.add_argument("--temperature", type=float, default=_SAMPLING.temperature, metavar="T", help="0: greedy")
    group.add_argument("--top-p", type=float, default=_SAMPLING.top_p, metavar="P")
    group.add_argument("--top-k", type=int, default=_SAMPLING.top_k, metavar="K", help="0: all tokens")
    group.add_argument("--seed", type=int, default=_SAMPLING.seed, metavar="N")


def add_speculation_flags(parser: argparse.ArgumentParser, kind: type[SpeculationConfig] = SpeculationConfig) -> None:
    """Add a flag for every setting of ``kind`` that a command line offers, with its choices."""
    usual, choices = kind(), kind.CHOICES
    group = parser.add_argument_group("speculation (changes the speed, never the distribution of the text)")
    group.add_argument("--verifier", choices=choices["verifier"], default=usual.verifier)
    group.add_argument("--gamma1", type=auto_or_whole, default="auto", metavar="N",
                       help="tokens that the small model drafts per retrieval pass")
    group.add_argument("--gamma2", type=auto_or_whole, default="auto", metavar="N",
                       help="tokens gathered per full pass (auto: chosen round by round; none where drafts do not pay)")
    group.add_argument("--budget", type=auto_or_whole, default="auto", metavar="N",
                       help="tokens of the document that the retrieval cache holds")
    group.add_argument("--chunk-size", type=int, default=usual.chunk_size, metavar="N")
    group.add_argument("--refresh-every", type=auto_or_whole, default="auto", metavar="N")
    group.add_argument("--retrieval-weights", choices=choices["retrieval_weights"], default=usual.retrieval_weights,
                       help="what the retrieval tier computes with: the model's own, or a copy in few bits")
    group.add_argument("--middle-cache", choices=choices["middle_cache"], default=usual.middle_cache,
                       help="what the model attends when it drafts; none: it drafts not at all")
    group.add_argument("--small-model", choices=choices["small_model"], default=usual.small_model,
                       help="whether the small model drafts")
    group.add_argument("--draft-cache", choices=choices["draft_cache"], default=usual.draft_cache,
                       help="what the small model attends: its newest tokens, or also what the model attended")
    group.add_argument("--window", type=auto_or_whole, default="auto", metavar="N")
    group.add_argument("--pace", choices=choices["pace"], default=usual.pace,
                       help="whether gamma2 on auto is chosen round by round from measured costs and acceptance")
    group.add_argument("--ngram", choices=choices["ngram"], default=usual.ngram,
                       help="draft by copying what followed the same words before, without a model, for the full cache")
    group.add_argument("--quotes", choices=choices["quotes"], default=usual.quotes,
                       help="hold quotations to the document's words (on: between “ and ” of other models, too)")


def engine_config(given: argparse.Namespace, saved_readings: Path | None = None,
                  measurements: Path | None = None) -> EngineConfig:
    """Return the engine's settings among the flags; folders come from the caller, who knows the machine."""
    named = {field.name for field in fields(EngineConfig)} - {"saved_readings", "measurements"}
    return EngineConfig(**{name: value for name, value in vars(given).items() if name in named},
                        saved_readings=saved_readings, measurements=measurements)


def sampling_params(given: argparse.Namespace, max_new_tokens: int) -> SamplingParams:
    return SamplingParams(given.temperature, given.top_p, given.top_k, given.seed, max_new_tokens)


def speculation_config(given: argparse.Namespace, engine: str,
                       kind: type[SpeculationConfig] = SpeculationConfig) -> SpeculationConfig:
    """Return the settings that ``add_speculation_flags`` and the flags of ``kind`` gave. Raises ConfigError."""
    named = {field.name for field in fields(kind)} - {"engine"}
    return kind(**{name: value for name, value in vars(given).items() if name in named} | {"engine": engine})


def auto_or_whole(text: str) -> int | str:
    if text == "auto":
        return text
    try:
        return int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is neither a whole number nor 'auto'") from None


def none_or_number(text: str) -> float | str:
    if text == "none":
        return text
    try:
        return float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is neither a number nor 'none'") from None
