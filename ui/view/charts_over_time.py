"""How an answer went while it was written, and how the document's answers went one after the other. Pure."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from triforce_core import EngineFacts, ModelInfo

from ..page import number_format as fmt
from ..page.html import esc, meter
from ..state.accumulator import Figures, figures_of
from ..state.conversations import Answer
from ..state.trace import Trace
from ..words import figures as figure_words
from . import charts

WINDOW = 8  # rounds over which a rate is taken
POINTS = 120  # of one line
WIDTH, HEIGHT = 300, 54


@dataclass(frozen=True)
class Line:
    """One line of a chart. css: the class that gives it its colour and its dashes. last: its newest value, "" where
    that is told elsewhere."""

    name: str
    points: tuple[tuple[float, float], ...]
    css: str
    last: str


def rates(trace: Trace) -> list[tuple[float, float]]:
    """(seconds, tokens per second over the last ``WINDOW`` rounds)."""
    written = [0] * len(trace.rounds)
    for _, _, number, *_ in trace.tokens:
        written[number] += 1
    at = [round_[4] for round_ in trace.rounds]
    found = []
    for last in range(1, len(at)):
        first = max(0, last - WINDOW)
        if at[last] > at[first]:
            found.append((at[last], sum(written[first + 1 : last + 1]) / (at[last] - at[first])))
    return found


def accepted(trace: Trace) -> dict[str, list[tuple[float, float]]]:
    """By tier: (seconds, share of the tested tokens that was accepted over the last ``WINDOW`` rounds)."""
    lines: dict[str, list[tuple[float, float]]] = {}
    for last, (_, _, _, _, at, *_) in enumerate(trace.rounds):
        near = trace.rounds[max(0, last - WINDOW + 1) : last + 1]
        for tier in {tier for tested, *_ in near for tier in tested}:
            tested = sum(tried.get(tier, 0) for tried, *_ in near)
            if tested:
                good = sum(right.get(tier, 0) for _, right, *_ in near)
                lines.setdefault(tier, []).append((at, good / tested))
    return lines


def chart(title: str, lines: Sequence[Line], top: float) -> str:
    """Small lines over one axis from 0 to ``top``, and what each says last."""
    lines = [line for line in lines if len(line.points) > 1]
    if not lines or top <= 0:
        return ""
    low = min(line.points[0][0] for line in lines)
    wide = max(max(line.points[-1][0] for line in lines) - low, 1e-9)
    drawn = "".join(
        f'<polyline class="{line.css}" points="'
        + " ".join(f"{(x - low) / wide * WIDTH:.1f},{HEIGHT - 2 - min(y / top, 1) * (HEIGHT - 4):.1f}"
                   for x, y in line.points[:: max(1, len(line.points) // POINTS)]) + '"/>' for line in lines)
    legend = "".join(f'<li><svg class="tf-key" viewBox="0 0 22 8" aria-hidden="true"><polyline class="{line.css}" '
                     f'points="0,4 22,4"/></svg>{esc(line.name)} <b>{esc(line.last)}</b></li>' for line in lines)
    words = ", ".join(f"{line.name} {line.last}".rstrip() for line in lines)
    return (f'<h4 class="tf-h4">{esc(title)}</h4><svg class="tf-chart" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" '
            f'preserveAspectRatio="none" aria-label="{esc(f"{title}: {words}")}">{drawn}</svg>'
            f'<ul class="tf-legend">{legend}</ul>')


def answer_charts(trace: Trace) -> str:
    """Speed and acceptance over the rounds of one answer."""
    speed = rates(trace)
    parts = []
    if speed:
        line = Line(figure_words.SPEED, tuple(speed), "tf-line-all", "")
        parts.append(chart(figure_words.SPEED_OVER_TIME, [line], max(y for _, y in speed)))
    tiers = [Line(charts.tier_name(tier), tuple(points), f"tf-line-{tier if tier in charts.TIERS else 'other'}",
                  fmt.percent(points[-1][1], 1)) for tier, points in sorted(accepted(trace).items())]
    parts.append(chart(figure_words.ACCEPTED_OVER_TIME, tiers, 1.0))
    return "".join(parts)


def bandwidth(trace: Trace, figures: Figures, model: ModelInfo | None, facts: EngineFacts | None) -> str:
    """What a full pass reads per second: the weights, and the keys and values of all tokens before it; and which share
    that is of what the GPU's memory moves, where that was measured and everything lies in it. model: that wrote it."""
    spent = [stages.get("verify", 0.0) for _, _, stages, *_ in trace.rounds]
    if model is None or not model.pass_bytes or not sum(spent):
        return ""
    context = figures.reused_tokens + figures.prompt_tokens + figures.tokens / 2
    read, seconds = model.pass_bytes + context * model.kv_bytes_per_token, sum(spent) / len(spent) / 1000
    words = figure_words.PASS_READS.format(size=fmt.size(read), milliseconds=fmt.milliseconds(seconds),
                                      rate=fmt.size(read / seconds))
    if facts is not None and facts.copy_rate and facts.mode == "on-chip":
        share = read / seconds / facts.copy_rate
        words += figure_words.PASS_SHARE.format(share=fmt.percent(share, 1), rate=fmt.size(facts.copy_rate))
        return (f'<p class="tf-note" title="{esc(figure_words.PASS_READS_HELP)}">{esc(words)}</p>'
                f"{meter(share, 'tf-meter-thin', figure_words.PASS_READS_HELP)}")
    return f'<p class="tf-note" title="{esc(figure_words.PASS_READS_HELP)}">{esc(words)}</p>'


def energy(figures: Figures) -> str:
    if figures.joules is None:
        return ""
    each = figures.joules / max(figures.tokens, 1)
    words = figure_words.ENERGY.format(joules=f"{figures.joules:,.0f}", each=f"{each:.1f}")
    return f'<p class="tf-note" title="{esc(figure_words.ENERGY_HELP)}">{esc(words)}</p>'


def history(answers: Sequence[Answer]) -> str:
    """The document's answers, the newest first: a table, and above it how their speed went."""
    shown = [(answer, figures_of(answer.result)) for answer in answers]
    shown = [(answer, figures) for answer, figures in shown if figures.tokens]
    if not shown:
        return ""
    speed = [(float(n), figures.tokens_per_second) for n, (_, figures) in enumerate(reversed(shown))]
    line = Line(figure_words.SPEED, tuple(speed), "tf-line-all", "")
    tiers = list(dict.fromkeys(tier for _, figures in shown for tier in figures.acceptance))
    joules = any(figures.joules is not None for _, figures in shown)
    head = "".join(f'<th scope="col">{esc(name)}</th>' for name in (
        figure_words.ASKED, figure_words.RATE, figure_words.FIRST_TOKEN, figure_words.PER_PASS,
        *map(charts.tier_name, tiers),
        figure_words.TOKENS, *((figure_words.JOULES,) if joules else ())))
    body = "".join(_row(answer, figures, tiers, joules) for answer, figures in shown)
    return (f'<h3 class="tf-h">{esc(figure_words.HISTORY)}</h3>'
            f"{chart(figure_words.SPEED_OF_ANSWERS, [line], max(y for _, y in speed))}"
            f'<div class="tf-scroll tf-history" tabindex="0"><table><thead><tr>{head}</tr></thead>'
            f"<tbody>{body}</tbody></table></div>")


def _row(answer: Answer, figures: Figures, tiers: Sequence[str], joules: bool) -> str:
    cells = [fmt.rate(figures.tokens_per_second), fmt.seconds(figures.time_to_first_token),
             f"{figures.tokens_per_full_pass:.2f}",
             *(_share(figures.acceptance, tier) for tier in tiers), fmt.count(figures.tokens)]
    if joules:
        cells.append("–" if figures.joules is None else f"{figures.joules:,.0f}")
    asked = time.strftime("%Y-%m-%d %H:%M", time.localtime(answer.created_at))
    return (f'<tr><th scope="row" title="{esc(asked)}">{esc(answer.question)}</th>'
            + "".join(f"<td>{esc(cell)}</td>" for cell in cells) + "</tr>")


def _share(acceptance: Mapping[str, tuple[int, int]], tier: str) -> str:
    tested, good = acceptance.get(tier, (0, 0))
    return fmt.percent(good, tested)
