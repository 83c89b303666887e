"""A run's JSON object as a table for people."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .measure import SHORTEST
from .rows import AS_BEFORE, PLANNED


def table(found: Mapping[str, Any]) -> str:
    """Return documents, then rows (if there are several), then where the time goes and how far the machine is used."""
    lines = [*_documents(found), *_differences(found), ""]
    if len(found["rows"]) > 1:
        lines += [*_rows(found), ""]
    for tier, count in found["acceptance"].items():
        lines.append(f"accepted from {tier}: {count['accepted']:,} of {count['tested']:,} ({count['rate']:.0%})")
    lines.append(f"variety of the text: {found['variety']:.0%} of its runs of four tokens are distinct")
    for name, key in (("plain", "autoregressive"), ("TriForce", "triforce")):
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
             f"{'speed-up':>8}  {'per pass':>8}  same text"]
    rows = [*found["documents"], *([{**found, "title": "median"}] if len(found["documents"]) > 1 else [])]
    for row in rows:
        answers = row.get("answers")
        same = f"{sum(one['identical'] for one in answers)} of {len(answers)}" if isinstance(answers, list) else ""
        lines.append(f"{_short(row['title']):{wide}}  {row['context_tokens']:7,}  "
                     f"{row['prefill_tokens_per_second']:8,.0f}  {row['autoregressive_tokens_per_second']:9.2f}  "
                     f"{row['triforce_tokens_per_second']:12.2f}  {row['speedup']:7.2f}x  "
                     f"{row['tokens_per_full_pass']:8.2f}  {same}")
    return lines


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
    """Same text "-": chance decides here, so two texts may differ and both be right."""
    wide = max(4, *(len(row["row"]) for row in found["rows"]))
    lines = [f"{'row':{wide}}  {'plain t/s':>9}  {'t/s':>8}  {'speed-up (least-most)':>22}  {'per pass':>8}  "
             "same text  accepted from"]
    for row in found["rows"]:
        spread = "-".join(f"{value:.2f}" for value in row["speedup_spread"] or ())
        same = {True: "yes", False: "NO", None: "-"}[row["identical_text"]]
        tiers = ", ".join(f"{tier} {count['rate']:.0%}" for tier, count in row["acceptance"].items())
        lines.append(f"{row['row']:{wide}}  {row['autoregressive_tokens_per_second']:9.2f}  "
                     f"{row['tokens_per_second']:8.2f}  {row['speedup']:8.2f}x ({spread:11})  "
                     f"{row['tokens_per_full_pass']:8.2f}  {same:9}  {tiers}{_chosen(row)}")
    return lines + [f"{row['row']}: {row['why']}" for row in found["rows"] if row["variant"] == PLANNED]


def _chosen(row: Mapping[str, Any]) -> str:
    """Mark a row whose lengths the controller chose by the three that it drafted most often."""
    lengths = row.get("drafted")
    if not lengths:
        return ""
    total, most = sum(lengths.values()), sorted(lengths, key=lengths.__getitem__, reverse=True)[:3]
    return "  <- drafts of " + ", ".join(f"{name} ({lengths[name] / total:.0%})" for name in most)


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
    """Return what llama.cpp did, beside what was measured here on the first document."""
    lines = [f"llama.cpp {peer['version']} on the same weights, over as many tokens of any text"]
    lines += [f"  {name}: {method['tokens_per_second']:.2f} t/s" for name, method in peer["methods"].items()]
    lines += [f"  {name}: failed, {why}" for name, why in peer["failed"].items()]
    lines.append(f"  plain decoding here: {peer['autoregressive_over_peer']:.2f}x of its best; TriForce "
                 f"{peer['triforce_over_peer']:.2f}x; reading {peer['prefill_ratio']:.2f}x")
    return "\n".join(lines)


def gains_table(found: Mapping[str, Mapping[str, Any]], workloads: Mapping[str, Any]) -> str:
    """Return what ``report.gains`` found."""
    wide = max(32, *(len(name) + 2 for name in found)) if found else 32
    lines = [f"{f'tokens/s over {AS_BEFORE!r}':{wide}}" + "".join(f"{name:>11}" for name in workloads) + "   geo. mean"]
    for name, entry in found.items():
        cells = [entry["over_triforce"].get(workload) for workload in workloads] + [entry["geometric_mean"]]
        shown = "".join(f"{'-' if cell is None else f'{cell:.2f}x':>11}" for cell in cells)
        lines.append(f"{('* ' if entry['planned'] else '  ') + name:{wide}}{shown}")
    return "\n".join([*lines, "* what the planner chooses when nothing is asked for"])


def _short(title: str) -> str:
    return title if len(title) <= 32 else title[:31] + "…"
