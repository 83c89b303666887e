"""A run's JSON object as a table for people. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .measure import SHORTEST
from .rows import PLANNED, POLICIES


def table(found: Mapping[str, Any]) -> str:
    """Documents, then rows (if there are several), then where the time goes and how far the machine is used."""
    lines = [*_documents(found), *_differences(found), ""]
    if len(found["rows"]) > 1:
        lines += [*_rows(found), "", *_policies(found)]
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
    for row in found["documents"]:
        same = sum(answer["identical"] for answer in row["answers"])
        lines.append(f"{_short(row['title']):{wide}}  {row['context_tokens']:7,}  "
                     f"{row['prefill_tokens_per_second']:8,.0f}  {row['autoregressive_tokens_per_second']:9.2f}  "
                     f"{row['triforce_tokens_per_second']:12.2f}  {row['speedup']:7.2f}x  "
                     f"{row['tokens_per_full_pass']:8.2f}  {same} of {len(row['answers'])}")
    lines.append(f"{'median':{wide}}  {found['context_tokens']:7,}  {found['prefill_tokens_per_second']:8,.0f}  "
                 f"{found['autoregressive_tokens_per_second']:9.2f}  {found['triforce_tokens_per_second']:12.2f}  "
                 f"{found['speedup']:7.2f}x  {found['tokens_per_full_pass']:8.2f}")
    return lines


def _differences(found: Mapping[str, Any]) -> list[str]:
    """Of the first row, where the same text was to be expected."""
    if found["identical_text"] is not False:
        return []
    parted = [(row["title"], answer) for row in found["documents"] for answer in row["answers"]
              if not answer["identical"]]
    lines = [f"{_short(title)}: the texts part after {answer['same_tokens']} of {answer['tokens']} tokens"
             for title, answer in parted]
    if found["dtype"] != "float32":
        lines.append(f"in {found['dtype']} a wider pass may round a near-tie the other way; --dtype float32 tells")
    return lines


def _rows(found: Mapping[str, Any]) -> list[str]:
    """same text "-": chance decides here, so two texts may differ and both be right."""
    wide = max(4, *(len(row["row"]) for row in found["rows"]))
    lines = [f"{'row':{wide}}  {'plain t/s':>9}  {'t/s':>8}  {'speed-up (least-most)':>22}  {'EWIF':>5}  {'SWI':>5}  "
             f"{'per pass':>8} {'(iid)':>7}  {'inner ms (x)':>13}  same text  accepted from"]
    for row in found["rows"]:
        spread = "-".join(f"{value:.2f}" for value in row["speedup_spread"] or ())
        inner = "-" if row["inner_step_ms"] is None else (
            f"{row['inner_step_ms']:.2f} ({row['inner_step_over_roofline']:.2f})")
        same = {True: "yes", False: "NO", None: "-"}[row["identical_text"]]
        tiers = ", ".join(f"{tier} {count['rate']:.0%}" for tier, count in row["acceptance"].items())
        lines.append(f"{row['row']:{wide}}  {row['autoregressive_tokens_per_second']:9.2f}  "
                     f"{row['tokens_per_second']:8.2f}  {row['speedup']:8.2f}x ({spread:11})  "
                     f"{_or_dash(row['ewif']):>5}  {row['swi']:5.2f}  {row['tokens_per_full_pass']:8.2f} "
                     f"{row['tokens_per_full_pass_expected']:7.2f}  {inner:>13}  {same:9}  {tiers}{_chosen(row)}")
    lines.append("EWIF: the speed-up that acceptance and measured costs would give if tokens were accepted "
                 "independently (iid: their tokens per pass); SWI: passes counted at their modelled costs")
    for row in found["rows"]:
        if row["variant"] == PLANNED:
            lines.append(f"{row['row']}: {row['why']}")
    return lines


def _or_dash(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"


def _chosen(row: Mapping[str, Any]) -> str:
    """Marks a row whose lengths the controller chose, by the three that it drafted most often."""
    lengths = row.get("drafted")
    if not lengths:
        return ""
    total, most = sum(lengths.values()), sorted(lengths, key=lengths.__getitem__, reverse=True)[:3]
    return "  <- drafts of " + ", ".join(f"{name} ({lengths[name] / total:.0%})" for name in most)


def _policies(found: Mapping[str, Any]) -> list[str]:
    """Of what each middle cache drafted, how much the full cache accepted, by budget: the form of TriForce's table 1
    (arXiv 2404.11912). A cell is missing where the budget is no small part of the context."""
    rows = [row for row in found["rows"] if "middle_cache" in row["settings"] or row["variant"] in POLICIES]
    budgets = sorted({row["dials"]["budget"] for row in rows})
    cells: dict[str, dict[str, dict[int, str]]] = {}
    for row in rows:
        tier = str(POLICIES.get(row["variant"], row["settings"])["middle_cache"])
        kind, counted = row["variant"] or tier, row["acceptance"]
        others = ", ".join(f"{name} {value}" for name, value in row["settings"].items()
                           if name not in ("middle_cache", "budget"))
        line = cells.setdefault(others, {}).setdefault(kind, {})
        if tier in counted:
            line[row["dials"]["budget"]] = f"{counted[tier]['rate']:.1%}"
    lines: list[str] = []
    for others, kinds in cells.items():
        lines.append(f"{'accepted, by budget':26}" + "".join(f"{budget:>8,}" for budget in budgets) + f"  {others}")
        for kind, line in kinds.items():
            name = f"{kind} (an upper bound)" if kind == "top-k" else kind
            lines.append(f"{name:26}" + "".join(f"{line.get(budget, '-'):>8}" for budget in budgets))
        lines.append("")
    large = [budget for budget in budgets if 3 * budget > found["context_tokens"]]
    if large:
        lines += [f"a budget of {large[0]:,} needs a context of at least {3 * large[0]:,} tokens: else its tier is off",
                  ""]
    return lines


def _roofline(found: Mapping[str, Any]) -> list[str]:
    lines = [f"measured: {found['copy_gb_per_second']:,.1f} GB/s ({found['copy_how']})"]
    if found["host_to_device_gb_per_second"] is not None:
        lines.append(f"measured: {found['host_to_device_gb_per_second']:.1f} GB/s from pinned host memory to the GPU, "
                     f"{found['matrix_teraflops']:.0f} TFLOP/s in a large bf16 product")
    lines.append(f"modelled: a plain token moves {found['bytes_per_token'] / 1e9:.3f} GB (weights and KV once), so "
                 f"{found['roofline_tokens_per_second']:.2f} tokens/s at most; plain decoding reaches "
                 f"{found['autoregressive_share_of_roofline']:.0%} of it")
    if found["autoregressive_streamed_gb_per_second"]:
        lines.append(f"streamed from host memory: {found['autoregressive_streamed_gb_per_second']:.1f} GB/s by plain "
                     f"decoding, {found['triforce_streamed_gb_per_second']:.1f} GB/s by TriForce")
    if found["inner_step_ms"] is not None:
        lines.append(f"inner step: {found['inner_step_ms']:.2f} ms, {found['inner_step_over_roofline']:.2f}x the "
                     f"{found['inner_roofline_ms']:.2f} ms that its weights and budget of KV take at that bandwidth")
    if found["prefill_share_of_matrix_rate"] is not None:
        lines.append(f"prefill: {found['prefill_teraflops']:.0f} TFLOP/s, "
                     f"{found['prefill_share_of_matrix_rate']:.0%} of the large product's rate")
    if found["triforce_tokens_per_joule"] and found["autoregressive_tokens_per_joule"]:
        lines.append(f"measured: {found['autoregressive_tokens_per_joule']:.3g} tokens per joule by plain decoding, "
                     f"{found['triforce_tokens_per_joule']:.3g} by TriForce (by {found['energy_how']}, from the "
                     "question to the last token)")
    lines.append(f"peak memory {found['peak_memory_bytes'] / 1024**2:,.0f} MiB")
    return lines


def peer_table(peer: Mapping[str, Any]) -> str:
    """What the peer did on the first document, beside what was measured on it here."""
    logits = peer.get("logits")
    if logits is None:
        lines = [f"{peer['name']} {peer['version']} on the same weights, over as many tokens of any text"]
    else:
        lines = [f"{peer['name']} {peer['version']} ({peer['attention']}) on the same weights: logits differ by at "
                 f"most {logits['max_difference']:.3g} (their spread is {logits['deviation']:.3g}), the same first "
                 f"choice in {logits['same_choice']:.0%} of {logits['rows']} rows"]
    for name, method in peer["methods"].items():
        same = "" if method["same_tokens"] is None else (
            f", {method['same_tokens']} of {method['tokens']} tokens as here")
        lines.append(f"  {name}: {method['tokens_per_second']:.2f} t/s{same}")
    lines += [f"  {name}: failed, {why}" for name, why in peer["failed"].items()]
    plain = "generate" if logits else "best"
    lines.append(f"  plain decoding here: {peer['autoregressive_over_peer']:.2f}x of its {plain}; TriForce "
                 f"{peer['triforce_over_best']:.2f}x of its best ({peer['best']})")
    lines.append(f"  prefill {peer['prefill_seconds']:.1f} s, here {peer['prefill_seconds_triforce']:.1f} s "
                 f"(ours / theirs {peer['prefill_ratio']:.2f})")
    return "\n".join(lines)


def _short(title: str) -> str:
    return title if len(title) <= 32 else title[:31] + "…"
