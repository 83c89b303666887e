"""Results as a table for people and one JSON object for machines. Pure, but for looking at the machine."""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from ..config import SamplingParams
from ..events import ModelInfo
from ..metrics import acceptance_rate
from .measure import (
    FAST,
    PLAIN,
    SHORTEST,
    DocumentResult,
    acceptance,
    median_of,
    milliseconds_per_pass,
    tokens_per_full_pass,
)


def summary(results: Sequence[DocumentResult], model: ModelInfo, sampling: SamplingParams, *, workload: str,
            verifier: str, machine: Mapping[str, Any], peer: Mapping[str, Any] | None) -> dict[str, Any]:
    """The JSON object. Rates are medians over answers; speedup is their ratio."""
    pairs = [pair for result in results for pair in result.pairs]
    timed = [pair for pair in pairs if pair.long_enough]
    plain, fast = (median_of([pair.rate(name) for pair in timed]) for name in (PLAIN, FAST))
    same_expected = sampling.temperature == 0 or verifier == "coupled"
    prefill = median_of([result.prefill_tokens_per_second for result in results])
    plain_stats = [stats for pair in pairs for stats in pair.plain]
    found: dict[str, Any] = {
        "model": model.name,
        "draft_model": model.draft_name,
        "workload": workload,
        "device": model.device,
        "dtype": model.dtype,
        "context_tokens": int(median_of([result.context_tokens for result in results])),
        "autoregressive_tokens_per_second": plain,
        "triforce_tokens_per_second": fast,
        "speedup": fast / plain if plain else 0.0,
        "acceptance": {tier: {"tested": count.tested, "accepted": count.accepted, "rate": acceptance_rate(count)}
                       for tier, count in acceptance(results).items()},
        "tokens_per_full_pass": tokens_per_full_pass(results),
        "identical_text": all(pair.identical for pair in pairs) if same_expected else None,
        "variety": median_of([pair.variety for pair in pairs]),
        "prefill_tokens_per_second": prefill,
        "answers": len(pairs),
        "answers_too_short": len(pairs) - len(timed),
        "new_tokens": sampling.max_new_tokens,
        "temperature": sampling.temperature,
        "seed": sampling.seed,
        "verifier": verifier,
        "why": pairs[0].fast[0].why if pairs else "",
        "autoregressive_time_to_first_token": median_of([stats.time_to_first_token for stats in plain_stats]),
        "triforce_time_to_first_token": median_of([stats.time_to_first_token for pair in pairs for stats in pair.fast]),
        "kv_cache_gigabytes_per_second": plain * _cache_bytes(results, model) / 1e9,
        "autoregressive_milliseconds_per_pass": milliseconds_per_pass(results, PLAIN),
        "triforce_milliseconds_per_pass": milliseconds_per_pass(results, FAST),
        "documents": [_document(result) for result in results],
        **machine,
    }
    if peer is not None:
        own = next(result for result in results if result.title == peer["document"])
        found["peer"] = {key: value for key, value in peer.items() if key != "token_ids"} | {
            "prefill_seconds_triforce": own.prefill_seconds,
            "prefill_ratio": peer["prefill_tokens_per_second"] / own.prefill_tokens_per_second,  # our time / theirs
            "autoregressive_over_peer": plain / peer["tokens_per_second"],
            "same_tokens": _same_start(own.pairs[0].token_ids[PLAIN], peer["token_ids"])
            if own.pairs[0].question is None else None,
        }
        found["transformers_tokens_per_second"] = peer["tokens_per_second"]
        found["transformers_prefill_tokens_per_second"] = peer["prefill_tokens_per_second"]
    return found


def _same_start(ours: Sequence[int], theirs: Sequence[int]) -> int:
    """Tokens before the first difference: all of ``theirs`` in fp32, fewer where bf16 flips a near-tie."""
    both = list(zip(ours, theirs, strict=False))
    return next((i for i, (a, b) in enumerate(both) if a != b), len(both))


def _cache_bytes(results: Sequence[DocumentResult], model: ModelInfo) -> float:
    return median_of([result.context_tokens for result in results]) * model.kv_bytes_per_token


def _document(result: DocumentResult) -> dict[str, Any]:
    return {
        "title": result.title,
        "context_tokens": result.context_tokens,
        "prefill_seconds": result.prefill_seconds,
        "prefill_tokens_per_second": result.prefill_tokens_per_second,
        "prefill_restored": result.restored,
        "autoregressive_tokens_per_second": result.rate(PLAIN),
        "triforce_tokens_per_second": result.rate(FAST),
        "speedup": result.speedup,
        "tokens_per_full_pass": tokens_per_full_pass([result]),
        "answers": [{"question": pair.question, "tokens": len(pair.token_ids[FAST]),
                     "autoregressive_tokens_per_second": pair.rate(PLAIN),
                     "triforce_tokens_per_second": pair.rate(FAST), "identical": pair.identical,
                     "same_tokens": pair.same_tokens, "variety": pair.variety} for pair in result.pairs],
    }


def table(found: Mapping[str, Any]) -> str:
    """For people."""
    wide = max([8, *(len(_short(row["title"])) for row in found["documents"])])
    lines = [f"{'document':{wide}}  {'tokens':>7}  {'read t/s':>8}  {'plain t/s':>9}  {'TriForce t/s':>12}  "
             f"{'speed-up':>8}  {'per pass':>8}  same text"]
    for row in found["documents"]:
        same = sum(answer["identical"] for answer in row["answers"])
        lines.append(f"{_short(row['title']):{wide}}  {row['context_tokens']:7,}  "
                     f"{row['prefill_tokens_per_second']:8,.0f}  {row['autoregressive_tokens_per_second']:9.2f}  "
                     f"{row['triforce_tokens_per_second']:12.2f}  {row['speedup']:7.2f}x  "
                     f"{row['tokens_per_full_pass']:8.2f}  {same} of {len(row['answers'])}")
    lines.append(f"{'median':{wide}}  {found['context_tokens']:7,}  {found['prefill_tokens_per_second']:8,.0f}  "
                 f"{found['autoregressive_tokens_per_second']:9.2f}  {found['triforce_tokens_per_second']:12.2f}  "
                 f"{found['speedup']:7.2f}x  {found['tokens_per_full_pass']:8.2f}")
    lines.append("")
    for tier, count in found["acceptance"].items():
        lines.append(f"accepted from {tier}: {count['accepted']:,} of {count['tested']:,} ({count['rate']:.0%})")
    lines.append(f"variety of the text: {found['variety']:.0%} of its runs of four tokens are distinct")
    for name, key in (("plain", "autoregressive"), ("TriForce", "triforce")):
        stages = ", ".join(f"{stage} {spent:.1f}" for stage, spent in found[f"{key}_milliseconds_per_pass"].items())
        lines.append(f"milliseconds per full pass, {name}: {stages}")
    lines.append(f"first token after {found['autoregressive_time_to_first_token']:.2f} s (plain), "
                 f"{found['triforce_time_to_first_token']:.2f} s (TriForce); {found['why']}")
    lines.append(f"plain decoding moves {found['kv_cache_gigabytes_per_second']:.1f} GB/s of KV cache; "
                 f"peak memory {found['peak_memory_bytes'] / 1024**2:,.0f} MiB")
    if found["answers_too_short"]:
        lines.append(f"{found['answers_too_short']} answers under {SHORTEST} tokens are not timed")
    if peer := found.get("peer"):
        lines.append(f"transformers {peer['version']} ({peer['cache']} cache, {peer['attention']}): generate "
                     f"{peer['tokens_per_second']:.2f} t/s (plain here: {peer['autoregressive_over_peer']:.2f}x of it);"
                     f" prefill {peer['prefill_seconds']:.1f} s, here {peer['prefill_seconds_triforce']:.1f} s "
                     f"(ours / theirs {peer['prefill_ratio']:.2f})")
    return "\n".join(lines)


def _short(title: str) -> str:
    return title if len(title) <= 32 else title[:31] + "…"


def describe_machine(device: str) -> dict[str, Any]:
    """Who measured, with what, and how busy the machine was."""
    import torch

    from ..device.capability import read_capability

    found = read_capability()
    versions = {"python": platform.python_version(), "torch": torch.__version__}
    peak = torch.cuda.max_memory_allocated() if device.startswith("cuda") else peak_rss_bytes()
    return {"machine": f"{found.cpu_name}, {found.physical_cores} cores, {platform.system()} {platform.machine()}",
            "threads": torch.get_num_threads(), "versions": versions, "peak_memory_bytes": peak,
            "load_average": list(os.getloadavg()) if hasattr(os, "getloadavg") else None}


def peak_rss_bytes() -> int:
    """This process's, 0 where it cannot be known."""
    try:
        import resource
    except ImportError:
        return 0
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024
