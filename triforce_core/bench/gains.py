"""Several workloads in one run: each row's rate over that of TriForce as it was before, and their geometric mean. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import exp, log
from typing import Any

from .rows import AS_BEFORE, PLANNED


def gains(workloads: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """By row: tokens per second over those of the row AS_BEFORE with the same settings, workload by workload, and
    their geometric mean (None where one is missing). workloads: each one's ``report.summary``. Empty without that row.
    """
    found: dict[str, dict[str, Any]] = {}
    for workload, summary in workloads.items():
        rows = summary["rows"]
        before = {_key(row): row["tokens_per_second"] for row in rows if row["variant"] == AS_BEFORE}
        for row in rows:
            base = before.get(_key(row))
            if base and row["tokens_per_second"]:
                entry = found.setdefault(row["row"], {"planned": row["variant"] == PLANNED, "over_triforce": {}})
                entry["over_triforce"][workload] = row["tokens_per_second"] / base
    for entry in found.values():
        ratios = list(entry["over_triforce"].values())
        whole = len(ratios) == len(workloads)
        entry["geometric_mean"] = exp(sum(map(log, ratios)) / len(ratios)) if whole else None
    return found


def gains_table(found: Mapping[str, Mapping[str, Any]], workloads: Mapping[str, Any]) -> str:
    wide = max(32, *(len(name) + 2 for name in found)) if found else 32
    lines = [f"{f'tokens/s over {AS_BEFORE!r}':{wide}}" + "".join(f"{name:>11}" for name in workloads) + "   geo. mean"]
    for name, entry in found.items():
        cells = [entry["over_triforce"].get(workload) for workload in workloads] + [entry["geometric_mean"]]
        shown = "".join(f"{'-' if cell is None else f'{cell:.2f}x':>11}" for cell in cells)
        lines.append(f"{('* ' if entry['planned'] else '  ') + name:{wide}}{shown}")
    return "\n".join([*lines, "* what the planner chooses when nothing is asked for"])


def _key(row: Mapping[str, Any]) -> tuple[tuple[str, object], ...]:
    return tuple(sorted(row["settings"].items()))
