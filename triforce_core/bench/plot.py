"""Pictures of a run's rows for a README. matplotlib is wanted for this alone, so it is not among the requirements.

    python -m triforce_core.bench.plot RESULT.json FILE.png     (RESULT.json: a run's last line)
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from ..errors import ConfigError

_PANELS = (("speedup", "speed-up over plain decoding"), ("tokens_per_full_pass", "tokens per full pass"))


def check_plot(path: Path, rows: int) -> None:
    """Before anything is measured. Raises ConfigError."""
    if rows < 2:
        raise ConfigError("--plot has a single row to draw", allowed="together with --sweep or --ablation")
    if find_spec("matplotlib") is None:
        raise ConfigError("--plot needs matplotlib", remedy="pip install matplotlib")
    if path.suffix not in (".png", ".svg", ".pdf") or not path.resolve().parent.is_dir():
        raise ConfigError(f"--plot cannot write {path}", allowed="a .png, .svg or .pdf file in a folder that exists")


def plot(found: Mapping[str, Any], path: Path) -> None:
    """Speed-up and tokens per full pass of every row: lines over the last swept setting if its values are numbers,
    bars otherwise; the whiskers of the speed-up are its spread over documents."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, 4), layout="constrained")
    FigureCanvasAgg(figure)
    rows: Sequence[Mapping[str, Any]] = found["rows"]
    axis = list(rows[0]["settings"])[-1] if rows[0]["settings"] else None
    lines = axis is not None and all(isinstance(row["settings"][axis], int | float) for row in rows)
    for number, (key, label) in enumerate(_PANELS, start=1):
        panel = figure.add_subplot(1, len(_PANELS), number)
        if axis is not None and lines:
            for name, group in _groups(rows, axis).items():
                _line(panel, [row["settings"][axis] for row in group], group, key, name)
            panel.set_xlabel(axis.replace("_", " "))
            panel.set_ylim(bottom=0)
            values = sorted({row["settings"][axis] for row in rows})
            if 0 < 8 * values[0] <= values[-1]:
                panel.set_xscale("log", base=2)
            panel.set_xticks(values, [f"{value:g}" for value in values])
            panel.minorticks_off()
            if len(_groups(rows, axis)) > 1:
                panel.legend()
        else:
            panel.barh([row["row"] for row in rows][::-1], [row[key] for row in rows][::-1])
        (panel.set_ylabel if lines else panel.set_xlabel)(label)
        panel.grid(alpha=0.3)
    figure.suptitle(f"{found['model']}, {found['context_tokens']:,} tokens, {found['workload']}, "
                    f"documents: {len(found['documents'])}, {found['device']}", fontsize=10)
    figure.savefig(path, dpi=150)


def _groups(rows: Sequence[Mapping[str, Any]], axis: str) -> dict[str, list[Mapping[str, Any]]]:
    """Rows that differ in nothing but ``axis`` form a line."""
    groups: dict[str, list[Mapping[str, Any]]] = {}
    for row in rows:
        name = row["row"].replace(f"{axis}={row['settings'][axis]}", "").strip()
        groups.setdefault(name, []).append(row)
    return groups


def _line(panel: Any, places: list[float], rows: list[Mapping[str, Any]], key: str, name: str) -> None:
    heights = [row[key] for row in rows]
    spread = None
    if key == "speedup" and all(row["speedup_spread"] for row in rows):
        spread = [[row[key] - row["speedup_spread"][0] for row in rows],
                  [row["speedup_spread"][1] - row[key] for row in rows]]
    panel.errorbar(places, heights, yerr=spread, marker="o", capsize=3, label=name or None)


def main() -> int:
    if len(sys.argv) != 3:
        print("python -m triforce_core.bench.plot RESULT.json FILE.png", file=sys.stderr)
        return 2
    try:
        found = json.loads(Path(sys.argv[1]).read_text().strip().splitlines()[-1])
        check_plot(Path(sys.argv[2]), len(found["rows"]))
    except (OSError, ValueError, KeyError, IndexError, TypeError) as error:
        print(f"triforce_core.bench.plot: {sys.argv[1]} is no result of a benchmark: {error!r}", file=sys.stderr)
        return 2
    except ConfigError as error:
        print(f"triforce_core.bench.plot: {' '.join(str(error).split())}", file=sys.stderr)
        return 2
    plot(found, Path(sys.argv[2]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
