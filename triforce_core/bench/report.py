"""A run's results: one JSON object for machines, tables for people.

Every rate was measured in this run. A figure counted from shapes instead, or that follows from one, is named in
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
from ..metrics import LEAST_VARIETY, acceptance_rate, merge_acceptance
from .measure import SHORTEST, Answer, DocumentResult, median_of, tokens_per_full_pass
from .roofline import Bandwidth, Traffic
from .rows import AS_BEFORE, PLANNED, Row

MODELLED = ("bytes_per_token", "roofline_tokens_per_second", "autoregressive_share_of_roofline")
_ENGINES = {"autoregressive": "plain", "triforce": "TriForce"}  # by their names in the JSON object


def summary(results: Sequence[DocumentResult], rows: Sequence[Row], model: ModelInfo, *, workload: str,
            machine: Mapping[str, Any], bandwidth: Bandwidth, traffic: Traffic) -> dict[str, Any]:
    """Return the JSON object: of the whole run, of its first row, and of every row under ``rows``.

    Rates and speed-ups are medians over documents, of each document's median over answers."""
    figures = [_row(results, number, row, bandwidth, traffic) for number, row in enumerate(rows)]
    pairs = [pair for result in results for pair in result.pairs[0]]
    plain, fast = _answers(results, 0)
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
        "autoregressive_milliseconds_per_pass": milliseconds_per_pass(plain),
        "triforce_milliseconds_per_pass": milliseconds_per_pass(fast),
        "copy_gb_per_second": bandwidth.copy, "copy_how": bandwidth.how,
        "host_to_device_gb_per_second": bandwidth.host_to_device,
        "modelled": list(MODELLED),
        "documents": [_document(result) for result in results],
        "rows": figures,
        **machine,
    }


def _answers(results: Sequence[DocumentResult], row: int) -> tuple[list[Answer], list[Answer]]:
    """Return all answers of plain decoding and of a row."""
    pairs = [pair for result in results for pair in result.pairs[row]]
    return [answer for pair in pairs for answer in pair.plain], [answer for pair in pairs for answer in pair.fast]


def _row(results: Sequence[DocumentResult], number: int, row: Row, bandwidth: Bandwidth,
         traffic: Traffic) -> dict[str, Any]:
    pairs = [pair for result in results for pair in result.pairs[number]]
    rates = [found for result in results if (found := result.rates(number))[0]]
    plain, fast, gains = ([one[at] for one in rates] for at in range(3))
    slow, answers = _answers(results, number)
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
        "acceptance": {tier: {"tested": count.tested, "accepted": count.accepted, "rate": acceptance_rate(count)}
                       for tier, count in merge_acceptance([answer.stats.acceptance for answer in answers]).items()},
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
    plain, fast, gain = result.rates(0)
    pairs = result.pairs[0]
    return {
        "title": result.title, "context_tokens": result.context_tokens,
        "prefill_seconds": result.context_tokens / result.prefill_tokens_per_second,
        "prefill_tokens_per_second": result.prefill_tokens_per_second, "prefill_restored": result.restored,
        "autoregressive_tokens_per_second": plain, "triforce_tokens_per_second": fast, "speedup": gain,
        "speedups": [result.rates(row)[2] for row in range(len(result.pairs))],
        "tokens_per_full_pass": tokens_per_full_pass([answer for pair in pairs for answer in pair.fast]),
        "variety": median_of([pair.variety for pair in pairs]),
        "answers": [{
            "question": pair.question, "tokens": len(pair.fast[0].token_ids),
            "autoregressive_tokens_per_second": pair.plain_rate, "triforce_tokens_per_second": pair.fast_rate,
            "identical": pair.identical, "same_tokens": pair.same_tokens, "variety": pair.variety} for pair in pairs],
    }


def with_peer(own: DocumentResult, peer: Mapping[str, Any]) -> dict[str, Any]:
    """Return what the JSON object gains by llama.cpp's figures beside those on the document of ``own``."""
    (plain, fast, _), theirs = own.rates(0), peer["tokens_per_second"]
    return {"peer": {**peer, "autoregressive_over_peer": plain / theirs, "triforce_over_peer": fast / theirs,
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
    """Return the machine, the versions, and how busy it was.

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


def table(found: Mapping[str, Any]) -> str:
    """Return documents, then rows (if there are several), then where the time goes and how far the machine is used."""
    lines = [*_documents(found), *_differences(found), ""]
    if len(found["rows"]) > 1:
        lines += [*_rows(found), ""]
    for tier, count in found["acceptance"].items():
        lines.append(f"accepted from {tier}: {count['accepted']:,} of {count['tested']:,} ({count['rate']:.0%})")
    no_result = "; it loops, so its speed is no result" if found["variety"] < LEAST_VARIETY else ""
    lines.append(f"variety of the text: {found['variety']:.0%} of its runs of four tokens are distinct{no_result}")
    for key, name in _ENGINES.items():
        stages = ", ".join(f"{stage} {spent:.1f}" for stage, spent in found[f"{key}_milliseconds_per_pass"].items())
        lines.append(f"milliseconds per full pass, {name}: {stages}")
    lines.append(f"first token after {found['autoregressive_time_to_first_token']:.2f} s (plain), "
                 f"{found['triforce_time_to_first_token']:.2f} s (TriForce); {found['why']}")
    lines += _roofline(found)
    if found["answers_too_short"]:
        lines.append(f"{found['answers_too_short']} answers under {SHORTEST} tokens are not timed")
    return "\n".join(lines)


def _documents(found: Mapping[str, Any]) -> list[str]:
    wide = max([8, *(len(_short(row["title"])) for row in found["documents"])])
    lines = [f"{'document':{wide}}  {'tokens':>7}  {'read t/s':>8}  {'plain t/s':>9}  {'TriForce t/s':>12}  "
             f"{'speed-up':>8}  {'per pass':>8}  {'variety':13}  same text"]
    rows = [*found["documents"], *([{**found, "title": "median"}] if len(found["documents"]) > 1 else [])]
    for row in rows:
        answers = row.get("answers")
        same = f"{sum(one['identical'] for one in answers)} of {len(answers)}" if isinstance(answers, list) else ""
        lines.append(f"{_short(row['title']):{wide}}  {row['context_tokens']:7,}  "
                     f"{row['prefill_tokens_per_second']:8,.0f}  {row['autoregressive_tokens_per_second']:9.2f}  "
                     f"{row['triforce_tokens_per_second']:12.2f}  {row['speedup']:7.2f}x  "
                     f"{row['tokens_per_full_pass']:8.2f}  {_varied(row['variety'])}  {same}")
    return lines


def _varied(share: float) -> str:
    """Return a text's variety; one that loops is fast for that alone, and is called so."""
    return f"{share:4.0%}{' (loops)' if share < LEAST_VARIETY else '':9}"


def _differences(found: Mapping[str, Any]) -> list[str]:
    """Return where the first row's texts part from plain decoding's, if the same text was to be expected."""
    if found["identical_text"] is not False:
        return []
    lines = [f"{_short(row['title'])}: the texts part after {one['same_tokens']} of {one['tokens']} tokens"
             for row in found["documents"] for one in row["answers"] if not one["identical"]]
    if found["dtype"] != "float32":
        lines.append(f"in {found['dtype']} a wider pass may round a near-tie the other way; --dtype float32 tells")
    return lines


def _rows(found: Mapping[str, Any]) -> list[str]:
    """Return a line for each row. Same text "-": chance decides, so two texts may differ and both be right."""
    wide = max(4, *(len(row["row"]) for row in found["rows"]))
    lines = [f"{'row':{wide}}  {'plain t/s':>9}  {'t/s':>8}  {'speed-up (least-most)':>22}  {'per pass':>8}  "
             f"{'variety':13}  same text  accepted from"]
    for row in found["rows"]:
        spread = "-".join(f"{value:.2f}" for value in row["speedup_spread"] or ())
        same = {True: "yes", False: "NO", None: "-"}[row["identical_text"]]
        tiers = ", ".join(f"{tier} {count['rate']:.0%}" for tier, count in row["acceptance"].items())
        lengths = row["drafted"] or {}
        most = sorted(lengths, key=lengths.__getitem__, reverse=True)[:3]
        drafts = ", ".join(f"{length} ({lengths[length] / sum(lengths.values()):.0%})" for length in most)
        lines.append(f"{row['row']:{wide}}  {row['autoregressive_tokens_per_second']:9.2f}  "
                     f"{row['tokens_per_second']:8.2f}  {row['speedup']:8.2f}x ({spread:11})  "
                     f"{row['tokens_per_full_pass']:8.2f}  {_varied(row['variety'])}  {same:9}  {tiers}"
                     f"{'  <- drafts of ' * bool(most)}{drafts}")
    return lines + [f"{row['row']}: {row['why']}" for row in found["rows"] if row["variant"] == PLANNED]


def _roofline(found: Mapping[str, Any]) -> list[str]:
    lines = [f"measured: {found['copy_gb_per_second']:,.1f} GB/s ({found['copy_how']})"]
    if found["host_to_device_gb_per_second"] is not None:
        lines.append(f"measured: {found['host_to_device_gb_per_second']:.1f} GB/s from pinned host memory to the GPU")
    lines.append(f"modelled: a plain token moves {found['bytes_per_token'] / 1e9:.3f} GB (weights and KV once), so "
                 f"{found['roofline_tokens_per_second']:.2f} tokens/s at most; plain decoding reaches "
                 f"{found['autoregressive_share_of_roofline']:.0%} of it")
    if found["autoregressive_streamed_gb_per_second"]:
        lines.append(f"streamed from host memory: {found['autoregressive_streamed_gb_per_second']:.1f} GB/s by plain "
                     f"decoding, {found['triforce_streamed_gb_per_second']:.1f} GB/s by TriForce")
    return [*lines, f"peak memory {found['peak_memory_bytes'] / 1024**2:,.0f} MiB"]


def peer_table(peer: Mapping[str, Any]) -> str:
    """Return llama.cpp's figures beside those measured here on the first document."""
    lines = [f"llama.cpp {peer['version']} on the same weights, over as many tokens of any text"]
    lines += [f"  {name}: {method['tokens_per_second']:.2f} t/s" for name, method in peer["methods"].items()]
    lines += [f"  {name}: failed, {why}" for name, why in peer["failed"].items()]
    lines.append(f"  plain decoding here: {peer['autoregressive_over_peer']:.2f}x of its best; TriForce "
                 f"{peer['triforce_over_peer']:.2f}x; reading {peer['prefill_ratio']:.2f}x")
    return "\n".join(lines)


def gains_table(found: Mapping[str, Mapping[str, Any]], workloads: Mapping[str, Any]) -> str:
    """Return the figures of ``gains``."""
    wide = max(32, *(len(name) + 2 for name in found)) if found else 32
    lines = [f"{f'tokens/s over {AS_BEFORE!r}':{wide}}" + "".join(f"{name:>11}" for name in workloads) + "   geo. mean"]
    for name, entry in found.items():
        cells = [entry["over_triforce"].get(workload) for workload in workloads] + [entry["geometric_mean"]]
        shown = "".join(f"{'-' if cell is None else f'{cell:.2f}x':>11}" for cell in cells)
        lines.append(f"{('* ' if entry['planned'] else '  ') + name:{wide}}{shown}")
    return "\n".join([*lines, "* what the planner chooses when nothing is asked for"])


def _short(title: str) -> str:
    return title if len(title) <= 32 else title[:31] + "…"
