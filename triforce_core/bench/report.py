"""Results as one JSON object for machines (``table`` has the form for people). Pure, but for looking at the machine.

Every rate was measured in this run. What was counted from shapes instead, or follows from that, is named in
``modelled``."""

from __future__ import annotations

import os
import platform
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from ..events import ModelInfo
from ..metrics import acceptance_rate, merge_acceptance, rank_counts
from .expected import ewif, swi, tokens_per_pass
from .measure import Answer, DocumentResult, Pair, median_of, same_start, tokens_per_full_pass, tokens_per_joule
from .roofline import Bandwidth, Traffic
from .rows import Row

MODELLED = ("bytes_per_token", "roofline_tokens_per_second", "autoregressive_share_of_roofline", "inner_roofline_ms",
            "inner_step_over_roofline", "swi", "prefill_teraflops", "prefill_share_of_matrix_rate")


def summary(results: Sequence[DocumentResult], rows: Sequence[Row], model: ModelInfo, *, workload: str,
            machine: Mapping[str, Any], bandwidth: Bandwidth, traffic: Traffic) -> dict[str, Any]:
    """The JSON object: of the whole run, of its first row, and of every row under ``rows``.

    Rates and speed-ups are medians over documents, of each document's median over answers."""
    figures = [_row(results, number, row, bandwidth, traffic) for number, row in enumerate(rows)]
    first, pairs = figures[0], [pair for result in results for pair in result.pairs[0]]
    prefill = median_of([result.prefill_tokens_per_second for result in results])
    return {
        "model": model.name,
        "draft_model": model.draft_name,
        "workload": workload,
        "device": model.device,
        "mode": model.mode,
        "gpus": traffic.gpus,
        "dtype": model.dtype,
        "context_tokens": int(median_of([result.context_tokens for result in results])),
        **{key: value for key, value in first.items()
           if key not in ("row", "variant", "settings", "tokens_per_second")},
        "triforce_tokens_per_second": first["tokens_per_second"],
        "prefill_tokens_per_second": prefill,
        "answers": len(pairs),
        "answers_too_short": sum(not pair.long_enough for pair in pairs),
        "new_tokens": rows[0].sampling.max_new_tokens, "plain_new_tokens": results[0].pairs[0][0].plain_limit,
        "seed": rows[0].sampling.seed,
        "autoregressive_milliseconds_per_pass": milliseconds_per_pass([a for pair in pairs for a in pair.plain]),
        "triforce_milliseconds_per_pass": milliseconds_per_pass([a for pair in pairs for a in pair.fast]),
        "copy_gb_per_second": bandwidth.copy,
        "copy_how": bandwidth.how,
        "host_to_device_gb_per_second": bandwidth.host_to_device,
        "matrix_teraflops": bandwidth.matrix,
        **_prefill(results, bandwidth, traffic),
        "modelled": list(MODELLED),
        "documents": [_document(result) for result in results],
        "rows": figures,
        **machine,
    }


def _row(results: Sequence[DocumentResult], number: int, row: Row, bandwidth: Bandwidth,
         traffic: Traffic) -> dict[str, Any]:
    pairs = [pair for result in results for pair in result.pairs[number]]
    plain = [result.plain_rate(number) for result in results if result.timed(number)]
    fast = [result.fast_rate(number) for result in results if result.timed(number)]
    gains = [result.speedup(number) for result in results if result.timed(number)]
    answers = [answer for pair in pairs for answer in pair.fast]
    slow = [answer for pair in pairs for answer in pair.plain]
    context = median_of([result.context_tokens for result in results]) + median_of(
        [len(answer.token_ids) / 2 for answer in slow])
    least = _least_seconds(slow, context, bandwidth, traffic)
    stats = answers[0].stats
    return {
        "row": row.name,
        "variant": row.variant,
        "settings": dict(row.settings),
        "temperature": row.sampling.temperature,
        "top_p": row.sampling.top_p,
        "verifier": row.speculation.verifier,
        "tokens_per_second": median_of(fast),
        "autoregressive_tokens_per_second": median_of(plain),
        "speedup": median_of(gains),
        "speedup_spread": _spread(gains),
        "autoregressive_spread": _spread(plain),
        "triforce_spread": _spread(fast),
        "tokens_per_full_pass": tokens_per_full_pass(answers),
        **_expected(answers, slow, stats.settings, context, least, bandwidth, traffic),
        "acceptance": _acceptance(answers),
        "tree_acceptance": tree_acceptance(answers),
        "identical_text": all(pair.identical for pair in pairs) if row.same_text_expected else None,
        "variety": median_of([pair.variety for pair in pairs]),
        "autoregressive_time_to_first_token": median_of([answer.stats.time_to_first_token for answer in slow]),
        "triforce_time_to_first_token": median_of([answer.stats.time_to_first_token for answer in answers]),
        "bytes_per_token": traffic.plain_bytes(context),
        "roofline_tokens_per_second": 1 / least,
        "autoregressive_share_of_roofline": median_of(plain) * least,
        "autoregressive_streamed_gb_per_second": streamed_per_second(slow),
        "triforce_streamed_gb_per_second": streamed_per_second(answers),
        **_inner(answers, bandwidth, traffic),
        "autoregressive_tokens_per_joule": tokens_per_joule(slow),
        "triforce_tokens_per_joule": tokens_per_joule(answers),
        "drafted": _lengths(answers) if row.speculation.gamma2 == "auto" else None,
        "why": stats.why,
        "dials": dict(stats.settings),
    }


def _least_seconds(slow: Sequence[Answer], context: float, bandwidth: Bandwidth, traffic: Traffic) -> float:
    """Of a full pass: by what it must read at least. slow: answers of plain decoding."""
    least = traffic.seconds(traffic.plain_bytes(context), bandwidth)
    if not (bandwidth.host_to_device and streamed_per_second(slow)):
        return least
    # What streams in hides behind what is read there, or the other way.
    passes = sum(answer.stats.full_passes for answer in slow)
    streamed = sum(answer.stats.streamed_bytes for answer in slow) / passes
    return max(least, streamed / (bandwidth.host_to_device * 1e9))


def _acceptance(answers: Sequence[Answer]) -> dict[str, dict[str, float]]:
    """By tier."""
    counts = merge_acceptance([answer.stats.acceptance for answer in answers])
    return {tier: {"tested": count.tested, "accepted": count.accepted, "rate": acceptance_rate(count)}
            for tier, count in counts.items()}


def _expected(answers: Sequence[Answer], slow: Sequence[Answer], settings: Mapping[str, int | str], context: float,
              least: float, bandwidth: Bandwidth, traffic: Traffic) -> dict[str, float | None]:
    """What acceptance and costs alone would give. least: modelled seconds of a full pass."""
    blocks = [block for answer in answers for block in answer.blocks]
    drafting = sum(spent for stage, spent in milliseconds_per_pass(answers).items() if stage not in ("verify", "other"))
    passes: Counter[str] = Counter()
    for answer in answers:
        passes.update(answer.passes)
    return {
        "tokens_per_full_pass_expected": tokens_per_pass(blocks),
        "ewif": ewif(blocks, drafting, milliseconds_per_pass(slow).get("verify", 0.0)),
        "swi": swi(sum(answer.stats.generated_tokens for answer in answers),
                   sum(answer.stats.full_passes for answer in answers), least, passes,
                   traffic.costs(settings, context, bandwidth)),
    }


def _lengths(answers: Sequence[Answer]) -> dict[str, int]:
    """Rounds by how many tokens they had drafted where a controller chooses; 0: it drafted nothing."""
    totals: dict[int, int] = {}
    for answer in answers:
        for length, rounds in answer.lengths.items():
            totals[length] = totals.get(length, 0) + rounds
    return {str(length): totals[length] for length in sorted(totals)}


def _inner(answers: Sequence[Answer], bandwidth: Bandwidth, traffic: Traffic) -> dict[str, float | None]:
    """One inner step: the small model's draft and the middle tier's pass over it. None where there was none."""
    settings = answers[0].stats.settings
    tier = str(settings.get("middle_cache", "none"))
    steps = sum(answer.passes.get(tier, 0) for answer in answers)
    needed = traffic.inner_bytes(settings)
    if not steps or needed is None:
        return {"inner_step_ms": None, "inner_roofline_ms": None, "inner_step_over_roofline": None}
    stages = (tier, "draft", "n-gram")
    spent = sum(answer.milliseconds.get(stage, 0.0) for answer in answers for stage in stages) / steps
    least = 1e3 * traffic.seconds(needed, bandwidth)
    return {"inner_step_ms": spent, "inner_roofline_ms": least, "inner_step_over_roofline": spent / least}


def _prefill(results: Sequence[DocumentResult], bandwidth: Bandwidth, traffic: Traffic) -> dict[str, float | None]:
    rates = [traffic.prefill_flops(result.context_tokens) / result.prefill_seconds / 1e12
             for result in results if not result.restored]
    rate = median_of(rates) if rates else None
    share = rate / (bandwidth.matrix * traffic.gpus) if rate and bandwidth.matrix else None
    return {"prefill_teraflops": rate, "prefill_share_of_matrix_rate": share}


def with_peer(found: Mapping[str, Any], own: DocumentResult, peer: Mapping[str, Any]) -> dict[str, Any]:
    """What the JSON object gains by the peer's figures on the document of ``own``."""
    pair, plain, fast = own.pairs[0][0], own.plain_rate(0), own.fast_rate(0)
    ours = pair.plain[0].token_ids if pair.question is None else None
    methods = {name: {key: value for key, value in found.items() if key != "token_ids"} | {
        "same_tokens": None if ours is None or "token_ids" not in found else same_start(ours, found["token_ids"])}
        for name, found in peer["methods"].items()}
    best = max(methods, key=lambda name: methods[name]["tokens_per_second"])
    told = {key: value for key, value in peer.items() if key not in ("methods", "token_ids")} | {
        "methods": methods,
        "best": best,
        "prefill_seconds_triforce": own.prefill_seconds,
        "prefill_ratio": peer["prefill_tokens_per_second"] / own.prefill_tokens_per_second,  # our time / theirs
        "autoregressive_over_peer": plain / peer["tokens_per_second"],
        "triforce_over_best": fast / methods[best]["tokens_per_second"],
        "same_tokens": None if ours is None or peer["token_ids"] is None else same_start(ours, peer["token_ids"]),
    }
    return {"peer": told, f"{peer['name']}_tokens_per_second": peer["tokens_per_second"],
            f"{peer['name']}_prefill_tokens_per_second": peer["prefill_tokens_per_second"]}


def streamed_per_second(answers: Sequence[Answer]) -> float:
    """GB/s from host memory to each GPU, over all decoding of these answers; 0 where nothing streams."""
    seconds = sum(answer.stats.decode_seconds for answer in answers)
    return sum(answer.stats.streamed_bytes for answer in answers) / seconds / 1e9 if seconds else 0.0


def tree_acceptance(answers: Sequence[Answer]) -> dict[str, list[dict[str, float]]]:
    """By tier that drafts trees and rank among siblings: how often one was there, and was the one accepted."""
    found: dict[str, list[dict[str, float]]] = {}
    for count in rank_counts(count for answer in answers for count in answer.stats.ranks):
        found.setdefault(count.tier, []).append({"tested": count.tested, "accepted": count.accepted,
                                                 "rate": count.accepted / count.tested})
    return found


def milliseconds_per_pass(answers: Sequence[Answer]) -> dict[str, float]:
    """Where the time of a full pass's round goes, stage by stage."""
    passes = sum(answer.stats.full_passes for answer in answers)
    totals: dict[str, float] = {}
    for answer in answers:
        for stage, spent in answer.milliseconds.items():
            totals[stage] = totals.get(stage, 0.0) + spent
    return {stage: spent / passes for stage, spent in totals.items()} if passes else {}


def _spread(values: Sequence[float]) -> list[float] | None:
    """Least and most over documents."""
    return [min(values), max(values)] if values else None


def _document(result: DocumentResult) -> dict[str, Any]:
    """The first row's figures on it."""
    pairs = result.pairs[0]
    return {
        "title": result.title,
        "context_tokens": result.context_tokens,
        "prefill_seconds": result.prefill_seconds,
        "prefill_tokens_per_second": result.prefill_tokens_per_second,
        "prefill_restored": result.restored,
        "autoregressive_tokens_per_second": result.plain_rate(0),
        "triforce_tokens_per_second": result.fast_rate(0),
        "speedup": result.speedup(0),
        "speedups": [result.speedup(number) for number in range(len(result.pairs))],  # row by row
        "tokens_per_full_pass": tokens_per_full_pass([answer for pair in pairs for answer in pair.fast]),
        "answers": [_answer(pair) for pair in pairs],
    }


def _answer(pair: Pair) -> dict[str, Any]:
    return {"question": pair.question, "tokens": len(pair.fast[0].token_ids),
            "autoregressive_tokens_per_second": pair.plain_rate, "triforce_tokens_per_second": pair.fast_rate,
            "identical": pair.identical, "same_tokens": pair.same_tokens, "variety": pair.variety}


def describe_machine(device: str, gpus: int = 1) -> dict[str, Any]:
    """Who measured, with what, and how busy the machine was.

    Several GPUs' memory is other processes': all that is in use there, which allocators do not give back."""
    import psutil
    import torch

    from ..device.capability import read_capability

    found = read_capability()
    versions = {"python": platform.python_version(), "torch": torch.__version__}
    if gpus == 1:
        peak = torch.cuda.max_memory_allocated() if device.startswith("cuda") else peak_rss_bytes()
    elif device.startswith("cuda"):
        peak = sum(gpu.total_memory - gpu.free_memory for gpu in found.cuda[:gpus])
    else:
        peak = sum(child.memory_info().rss for child in psutil.Process().children(recursive=True))
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
