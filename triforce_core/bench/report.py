"""A run's results as one JSON object for machines (``table`` has the form for people).

Every rate was measured in this run. What was counted from shapes instead, or follows from that, is named in
``modelled``."""

from __future__ import annotations

import os
import platform
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from math import exp, log
from typing import Any

from ..events import ModelInfo
from ..metrics import acceptance_rate, merge_acceptance
from .measure import Answer, DocumentResult, median_of, tokens_per_full_pass
from .roofline import Bandwidth, Traffic
from .rows import AS_BEFORE, PLANNED, Row

MODELLED = ("bytes_per_token", "roofline_tokens_per_second", "autoregressive_share_of_roofline")


def summary(results: Sequence[DocumentResult], rows: Sequence[Row], model: ModelInfo, *, workload: str,
            machine: Mapping[str, Any], bandwidth: Bandwidth, traffic: Traffic) -> dict[str, Any]:
    """Return the JSON object: of the whole run, of its first row, and of every row under ``rows``.

    Rates and speed-ups are medians over documents, of each document's median over answers."""
    figures = [_row(results, number, row, bandwidth, traffic) for number, row in enumerate(rows)]
    pairs = [pair for result in results for pair in result.pairs[0]]
    first = {key: value for key, value in figures[0].items()
             if key not in ("row", "variant", "settings", "tokens_per_second")}
    return {
        "model": model.name, "draft_model": model.draft_name, "workload": workload, "device": model.device,
        "mode": model.mode, "gpus": traffic.gpus, "dtype": model.dtype,
        "context_tokens": int(median_of([result.context_tokens for result in results])),
        **first,
        "triforce_tokens_per_second": figures[0]["tokens_per_second"],
        "prefill_tokens_per_second": median_of([result.prefill_tokens_per_second for result in results]),
        "answers": len(pairs), "answers_too_short": sum(not pair.long_enough for pair in pairs),
        "new_tokens": rows[0].sampling.max_new_tokens, "plain_new_tokens": pairs[0].plain_limit,
        "seed": rows[0].sampling.seed,
        "autoregressive_milliseconds_per_pass": milliseconds_per_pass([a for pair in pairs for a in pair.plain]),
        "triforce_milliseconds_per_pass": milliseconds_per_pass([a for pair in pairs for a in pair.fast]),
        "copy_gb_per_second": bandwidth.copy, "copy_how": bandwidth.how,
        "host_to_device_gb_per_second": bandwidth.host_to_device,
        "modelled": list(MODELLED),
        "documents": [_document(result) for result in results],
        "rows": figures,
        **machine,
    }


def _row(results: Sequence[DocumentResult], number: int, row: Row, bandwidth: Bandwidth,
         traffic: Traffic) -> dict[str, Any]:
    pairs = [pair for result in results for pair in result.pairs[number]]
    timed = [result for result in results if result.timed(number)]
    plain, fast, gains = ([rate(result, number) for result in timed] for rate in (
        DocumentResult.plain_rate, DocumentResult.fast_rate, DocumentResult.speedup))
    answers = [answer for pair in pairs for answer in pair.fast]
    slow = [answer for pair in pairs for answer in pair.plain]
    context = median_of([result.context_tokens for result in results]) + median_of(
        [len(answer.token_ids) / 2 for answer in slow])
    streamed = sum(answer.stats.streamed_bytes for answer in slow) / sum(answer.stats.full_passes for answer in slow)
    least, stats = traffic.least_seconds(context, bandwidth, streamed), answers[0].stats
    return {
        "row": row.name, "variant": row.variant, "settings": dict(row.settings),
        "temperature": row.sampling.temperature, "top_p": row.sampling.top_p, "verifier": row.speculation.verifier,
        "tokens_per_second": median_of(fast), "autoregressive_tokens_per_second": median_of(plain),
        "speedup": median_of(gains),
        "speedup_spread": _spread(gains), "autoregressive_spread": _spread(plain), "triforce_spread": _spread(fast),
        "tokens_per_full_pass": tokens_per_full_pass(answers),
        "acceptance": _acceptance(answers),
        "identical_text": all(pair.identical for pair in pairs) if row.same_text_expected else None,
        "variety": median_of([pair.variety for pair in pairs]),
        "autoregressive_time_to_first_token": median_of([answer.stats.time_to_first_token for answer in slow]),
        "triforce_time_to_first_token": median_of([answer.stats.time_to_first_token for answer in answers]),
        "bytes_per_token": traffic.plain_bytes(context), "roofline_tokens_per_second": 1 / least,
        "autoregressive_share_of_roofline": median_of(plain) * least,
        "autoregressive_streamed_gb_per_second": streamed_per_second(slow),
        "triforce_streamed_gb_per_second": streamed_per_second(answers),
        "drafted": _lengths(answers) if row.speculation.gamma2 == "auto" else None,
        "why": stats.why, "dials": dict(stats.settings),
    }


def _acceptance(answers: Sequence[Answer]) -> dict[str, dict[str, float]]:
    """Return what was tested and accepted, by tier."""
    counts = merge_acceptance([answer.stats.acceptance for answer in answers])
    return {tier: {"tested": count.tested, "accepted": count.accepted, "rate": acceptance_rate(count)}
            for tier, count in counts.items()}


def _lengths(answers: Sequence[Answer]) -> dict[str, int]:
    """Return rounds by how many tokens they had drafted; 0: the round drafted nothing."""
    totals = sum((Counter(answer.lengths) for answer in answers), Counter[int]())
    return {str(length): totals[length] for length in sorted(totals)}


def streamed_per_second(answers: Sequence[Answer]) -> float:
    """Return GB/s from host memory to each GPU over all decoding of these answers; 0 where nothing streams."""
    seconds = sum(answer.stats.decode_seconds for answer in answers)
    return sum(answer.stats.streamed_bytes for answer in answers) / seconds / 1e9 if seconds else 0.0


def milliseconds_per_pass(answers: Sequence[Answer]) -> dict[str, float]:
    """Return where the time of a full pass's round goes, stage by stage."""
    passes = sum(answer.stats.full_passes for answer in answers)
    totals: Counter[str] = Counter()
    for answer in answers:
        totals.update(answer.milliseconds)  # type: ignore[arg-type]  # sums of floats too
    return {stage: spent / passes for stage, spent in totals.items()} if passes else {}


def _spread(values: Sequence[float]) -> list[float] | None:
    """Return the least and the most over documents."""
    return [min(values), max(values)] if values else None


def _document(result: DocumentResult) -> dict[str, Any]:
    """Return the first row's figures on one document."""
    pairs = result.pairs[0]
    return {
        "title": result.title, "context_tokens": result.context_tokens, "prefill_seconds": result.prefill_seconds,
        "prefill_tokens_per_second": result.prefill_tokens_per_second, "prefill_restored": result.restored,
        "autoregressive_tokens_per_second": result.plain_rate(0), "triforce_tokens_per_second": result.fast_rate(0),
        "speedup": result.speedup(0),
        "speedups": [result.speedup(number) for number in range(len(result.pairs))],  # row by row
        "tokens_per_full_pass": tokens_per_full_pass([answer for pair in pairs for answer in pair.fast]),
        "answers": [{
            "question": pair.question, "tokens": len(pair.fast[0].token_ids),
            "autoregressive_tokens_per_second": pair.plain_rate, "triforce_tokens_per_second": pair.fast_rate,
            "identical": pair.identical, "same_tokens": pair.same_tokens, "variety": pair.variety} for pair in pairs],
    }


def with_peer(own: DocumentResult, peer: Mapping[str, Any]) -> dict[str, Any]:
    """Return what the JSON object gains by llama.cpp's figures beside those on the document of ``own``."""
    theirs = peer["tokens_per_second"]
    return {"peer": {**peer, "autoregressive_over_peer": own.plain_rate(0) / theirs,
                     "triforce_over_peer": own.fast_rate(0) / theirs,
                     "prefill_ratio": own.prefill_tokens_per_second / peer["prefill_tokens_per_second"]}}


def gains(workloads: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """Return, by row, tokens per second over those of the row AS_BEFORE with the same settings, workload by workload,
    and their geometric mean (None where one is missing). Empty without that row."""
    found: dict[str, dict[str, Any]] = {}
    for workload, one in workloads.items():
        before = {str(row["settings"]): row["tokens_per_second"] for row in one["rows"] if row["variant"] == AS_BEFORE}
        for row in one["rows"]:
            base = before.get(str(row["settings"]))
            if base and row["tokens_per_second"]:
                entry = found.setdefault(row["row"], {"planned": row["variant"] == PLANNED, "over_triforce": {}})
                entry["over_triforce"][workload] = row["tokens_per_second"] / base
    for entry in found.values():
        ratios = list(entry["over_triforce"].values())
        whole = len(ratios) == len(workloads)
        entry["geometric_mean"] = exp(sum(map(log, ratios)) / len(ratios)) if whole else None
    return found


def describe_machine(device: str, gpus: int = 1) -> dict[str, Any]:
    """Return who measured, with what, and how busy the machine was.

    Several GPUs' memory is other processes': all that is in use there, which allocators do not give back."""
    import resource

    import torch

    from ..device.capability import read_capability

    found = read_capability()
    if device == "cpu":
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
    elif gpus == 1:
        peak = torch.cuda.max_memory_allocated()
    else:
        peak = sum(gpu.total_memory - gpu.free_memory for gpu in found.cuda[:gpus])
    return {"machine": f"{found.cpu_name}, {found.physical_cores} cores, {platform.system()} {platform.machine()}",
            "threads": torch.get_num_threads(), "peak_memory_bytes": peak,
            "versions": {"python": platform.python_version(), "torch": torch.__version__},
            "load_average": list(os.getloadavg()) if hasattr(os, "getloadavg") else None}
