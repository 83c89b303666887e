"""A recorded race as one SVG, still or replaying itself: made here, with nothing in it from outside. Pure."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

from ..words import figures as figure_words
from ..words import race as race_words
from . import markdown
from . import number_format as fmt
from .charts import esc

WIDTH, MARGIN, LINE = 1000, 36, 21
MOST_LINES = 12
COLOURS = ("#5a635f", "#00845f", "#24557a")
STEPS = 60  # moments of a lane's bar


def svg(outcome: Mapping[str, Any], question: str, *, animated: bool) -> str:
    """The lanes side by side, each with its words, bar and rate, and the verdict below."""
    lanes = outcome["lanes"]
    title = textwrap.wrap(question, 90)[:2]
    top = MARGIN + 30 * len(title) + 14
    wide = (WIDTH - 2 * MARGIN - 24 * (len(lanes) - 1)) / len(lanes)
    height = top + 96 + LINE * MOST_LINES + 92
    drawn = [_lane(lane, MARGIN + number * (wide + 24), top, wide, COLOURS[number % len(COLOURS)], animated)
             for number, lane in enumerate(lanes)]
    foot = height - 62
    words = [*summary(outcome), race_words.RECORDED.format(**{key: outcome[key] for key in ("model", "dtype",
                                                                                              "device")})]
    return (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}" '
            f'font-family="system-ui, sans-serif"><rect width="100%" height="100%" fill="#f4f5f3"/>'
            + "".join(_text(MARGIN, MARGIN + 8 + 30 * n, line, 21, weight=650) for n, line in enumerate(title))
            + "".join(drawn)
            + "".join(_text(MARGIN, foot + 22 * n, line, 14, colour="#1d2321" if n < len(words) - 1 else "#5a635f")
                      for n, line in enumerate(words[-3:])) + "</svg>")


def summary(outcome: Mapping[str, Any]) -> list[str]:
    """One line for each lane that is compared with the first."""
    lines = []
    for lane in outcome["lanes"][1:]:
        factor = lane.get("speedup")
        speed = race_words.TIMES.format(factor=factor) if factor else race_words.UNMEASURED
        lines.append(race_words.LINE.format(
            name=lane["name"], speed=speed, per_pass=lane["figures"]["tokens_per_full_pass"],
            same=race_words.SAME if lane["same"] else race_words.DIFFERENT))
    return lines


def _lane(lane: Mapping[str, Any], x: float, y: float, wide: float, colour: str, animated: bool) -> str:
    marks = lane["marks"] or [(0.0, len(lane["text"]))]
    end = max(marks[-1][0], 0.1)
    rate = lane["figures"]["tokens_per_second"]
    bar = f'<rect x="{x:.1f}" y="{y + 50}" width="{wide:.1f}" height="7" rx="3.5" fill="{colour}">'
    if animated:
        times = [*marks[:: max(1, len(marks) // STEPS)], marks[-1]]
        most = max(marks[-1][1], 1)
        values = ";".join(f"{wide * done / most:.1f}" for _, done in [(0.0, 0), *times])
        moments = ";".join(f"{min(at / end, 1):.4f}" for at, _ in [(0.0, 0), *times])
        bar += (f'<animate attributeName="width" dur="{end:.2f}s" fill="freeze" values="{values}" '
                f'keyTimes="{moments}"/>')
    words = markdown.plain(lane["text"])
    lines = textwrap.wrap(words, max(12, int(wide / 7.6)))
    left_out = len(lines) > MOST_LINES
    shown, done, parts = lines[:MOST_LINES], 0, []
    for number, line in enumerate(shown):
        done += len(line) + 1
        written = done * len(lane["text"]) / len(words)  # with Markdown's marks, as the moments count
        begin = next((at for at, letters in marks if letters >= written), end) if animated else None
        last = " …" if left_out and number == len(shown) - 1 else ""
        parts.append(_text(x, y + 88 + LINE * number, line + last, 14, begin=begin))
    return (_text(x, y + 18, textwrap.shorten(lane["name"], max(12, int(wide / 9.4)), placeholder="…"), 16, weight=650)
            + _text(x, y + 40, f"{fmt.rate(rate)} {figure_words.RATE} · {fmt.seconds(end)}", 14, colour="#5a635f")
            + f'<rect x="{x:.1f}" y="{y + 50}" width="{wide:.1f}" height="7" rx="3.5" fill="#dde2df"/>{bar}</rect>'
            + "".join(parts))


def _text(x: float, y: float, words: str, size: int, *, weight: int = 400, colour: str = "#1d2321",
          begin: float | None = None) -> str:
    """begin: seconds after which the words appear."""
    hidden = "" if begin is None else ' visibility="hidden"'
    shows = "" if begin is None else f'<set attributeName="visibility" to="visible" begin="{begin:.2f}s"/>'
    return (f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" font-weight="{weight}" fill="{colour}"{hidden}>'
            f"{esc(_printable(words))}{shows}</text>")


def _printable(words: str) -> str:
    """XML takes no control characters."""
    return "".join(c for c in words if c.isprintable())


__all__: Sequence[str] = ["summary", "svg"]
