"""Figures of the answer that a tab shows: live, final, and those of the answers before it."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import gradio as gr

from triforce_core import EngineFacts, ModelInfo, merge_ranges

from ..app.accumulator import Figures, Trace, figures_of
from ..app.conversations import Answer
from ..app.library import Ranges
from ..app.services import Services
from ..app.tab_view import TabView
from . import number_format as fmt
from .html import esc, meter
from .panel import Panel, block

THIS_ANSWER = "This answer"
LAST_ANSWER = "Last answer"
RATE = "tok/s"
SPEED = "speed"
FIRST_TOKEN = "first token"
PER_PASS_SHORT = "per full pass"
PER_PASS_HELP = "How many tokens one pass of the full model over the whole document settles. Plain decoding: 1."
STREAMED_HELP = "The model's cache is larger than the GPU's memory: each full pass streams it there from host memory."
TIMES_PLAIN_HELP = "Plain decoding wrote {rate} tok/s when this question was raced on the same pages."
TOKEN_UNIT = "tokens"
WHO_WROTE = "Who wrote the tokens"
SPECULATION_ON = "TriForce on"
SPECULATION_OFF = "TriForce off"
SPECULATION_REMOTE = "Remote server"
NOT_REPORTED = "Tiers, acceptance and attention are not available: the server does not report them."
SPECULATION_PENDING = "TriForce: known with the first words"
REUSED = "{reused} tokens reused from the cache, {new} read for this question."
TIER_WORDS = {
    "quote": ("exact quote", "Forced by the document: the words between quotation marks can only go on this way."),
    "n-gram": ("copied text", "Copied from where the same words stood before, and accepted by every check."),
    "draft": ("small model", "Drafted by the small model and accepted by every check."),
    "retrieval": ("retrieval tier", "Written by the full model's weights on the retrieved part of the cache."),
    "bonus": ("full model", "The extra token that the full pass yields when everything was accepted."),
    "recovered": ("full model, corrected", "Put by the full model in place of a rejected draft."),
}
TIER_TESTED = {"quote": "quotes, by the full model", "n-gram": "copied text, by the next tier",
               "draft": "small model, by retrieval tier",
               "retrieval": "retrieval tier, by full cache"}
SPEED_OVER_TIME = "Speed while it was written"
PASS_READS_HELP = "Weights, and keys and values of everything before it: the memory's bandwidth is what bounds it."
ENERGY = "{joules} J, {each} J a token"
ENERGY_HELP = "What all GPUs of this machine spent meanwhile, by NVIDIA's own counter."
ASKED = "question"
JOULES = "J"

TIERS = ("quote", "n-gram", "draft", "retrieval", "bonus", "recovered")  # the order in which they are drawn


def tier_class(tier: str) -> str:
    return f"tf-tier-{tier}" if tier in TIERS else "tf-tier-other"


def tier_name(tier: str) -> str:
    return TIER_WORDS.get(tier, (tier, ""))[0]


def tier_bar(origins: Mapping[str, int]) -> str:
    """Who wrote the tokens: one stacked bar and its legend."""
    total = sum(origins.values())
    if not total:
        return ""
    order = [tier for tier in TIERS if origins.get(tier)] + sorted(set(origins) - set(TIERS))
    parts = "".join(
        f'<span class="{tier_class(tier)}" style="flex-grow:{origins[tier]}" '
        f'title="{esc(tier_name(tier))}: {fmt.count(origins[tier])}"></span>' for tier in order)
    legend = "".join(
        f'<li title="{esc(TIER_WORDS.get(tier, ("", ""))[1])}"><i class="{tier_class(tier)}"></i>'
        f'{esc(tier_name(tier))} <b>{fmt.count(origins[tier])}</b></li>' for tier in order)
    return (f'<div class="tf-stack" role="img" aria-label="{esc(WHO_WROTE)}">{parts}</div>'
            f'<ul class="tf-legend">{legend}</ul>')


def acceptance(tiers: Mapping[str, tuple[int, int]]) -> str:
    """Accepted / tested, tier by tier."""
    rows = []
    for tier, (tested, accepted) in tiers.items():
        name, css = tier_name(tier), tier_class(tier)
        rows.append(
            f'<div class="tf-accept" title="{esc(TIER_TESTED.get(tier, tier))}">'
            f'<span class="tf-accept-name"><i class="{css}"></i>{esc(name)}</span>'
            f'{meter(accepted / max(1, tested), css, name)}<span class="tf-accept-rate">'
            f"<b>{fmt.percent(accepted, tested)}</b> {fmt.count(accepted)} / {fmt.count(tested)}</span></div>")
    return "".join(rows)


def speculation_badge(figures: Figures) -> str:
    """TriForce on or off, and why: never blank."""
    if not figures.engine:
        return f'<span class="tf-badge tf-badge-wait">{esc(SPECULATION_PENDING)}</span>'
    on = figures.engine == "triforce"
    word = SPECULATION_ON if on else SPECULATION_OFF
    if figures.engine == "remote":
        word = SPECULATION_REMOTE
    why = f'<span class="tf-why">{esc(figures.why)}</span>' if figures.why else ""
    return f'<span class="tf-badge {"tf-badge-on" if on else "tf-badge-off"}">{esc(word)}</span>{why}'


def figures_card(figures: Figures, title: str) -> str:
    """What stands behind an answer, for the side panel; its speed stands below it, in one place."""
    parts = [f'<h3 class="tf-h">{esc(title)}</h3>', f'<div class="tf-spec">{speculation_badge(figures)}</div>']
    if figures.engine == "remote":
        parts.append(f'<p class="tf-note">{esc(NOT_REPORTED)}</p>')
    if figures.acceptance:
        parts.append('<h4 class="tf-h4" title="Of the drafted tokens that the next tier tested, how many it '
                     'accepted.">'
                     f'Drafts accepted</h4>'
                     f"{acceptance(figures.acceptance)}")
    if figures.origins:
        parts.append(f'<h4 class="tf-h4">{esc(WHO_WROTE)}</h4>{tier_bar(figures.origins)}')
    if figures.streamed_bytes_per_second:
        rate = f"PCIe: {fmt.size(figures.streamed_bytes_per_second)}/s from host memory"
        parts.append(f'<p class="tf-note" title="{esc(STREAMED_HELP)}">{esc(rate)}</p>')
    if figures.reused_tokens or figures.prompt_tokens:
        words = REUSED.format(reused=fmt.count(figures.reused_tokens), new=fmt.count(figures.prompt_tokens))
        parts.append(f'<p class="tf-note">{esc(words)}</p>')
    return "".join(parts)


def figures_line(figures: Figures, plain: float = 0.0, model: str = "") -> str:
    """The permanent line below an answer: its speed, and how soon it began; the other figures behind a click.

    plain: tokens per second that plain decoding was measured to write on the same question; 0: nobody measured."""
    rate = figures.tokens_per_second
    quiet = [(f"{fmt.rate(rate)} {RATE}",
              "Tokens per second after the first one; reading the question is not counted.")] if rate else []
    if rate and plain:
        quiet.append((f"{rate / plain:.1f}× plain", TIMES_PLAIN_HELP.format(rate=fmt.rate(plain))))
    quiet.append((f"{FIRST_TOKEN} {fmt.seconds(figures.time_to_first_token)}",
                  "From pressing Enter to the first word."))
    row = ", ".join(f'<span class="tf-nowrap" title="{esc(why)}">{esc(what)}</span>' for what, why in quiet)
    items = [f'<span title="{esc(PER_PASS_HELP)}"><b>{figures.tokens_per_full_pass:.2f}</b> '
             f"{esc(PER_PASS_SHORT)}</span>" if figures.full_passes else "",
             f"<b>{fmt.count(figures.tokens)}</b> tokens",
             esc(f"Model: {model}") if model else ""]
    facts = " · ".join(f'<span class="tf-nowrap">{item}</span>' for item in items if item)
    accepted = [f'<span class="tf-nowrap"><i class="{tier_class(tier)}"></i>{esc(tier_name(tier))} '
                f"<b>{fmt.percent(good, tested)}</b> ({fmt.count(good)}/{fmt.count(tested)})</span>"
                for tier, (tested, good) in figures.acceptance.items()]
    more = (f'<div class="tf-line-accept">Accepted of tested: {" · ".join(accepted)}</div>' if accepted else "")
    bar = f'<div class="tf-line-bar">{tier_bar(figures.origins)}</div>' if figures.origins else ""
    return (f'<details class="tf-line"><summary><span class="tf-line-row">{row}</span>'
            f'<span class="tf-line-more">Details</span></summary>'
            f'<div class="tf-line-facts">{facts}</div><div class="tf-spec">{speculation_badge(figures)}</div>'
            f"{more}{bar}</details>")


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
        line = Line(SPEED, tuple(speed), "tf-line-all", "")
        parts.append(chart(SPEED_OVER_TIME, [line], max(y for _, y in speed)))
    tiers = [Line(tier_name(tier), tuple(points), f"tf-line-{tier if tier in TIERS else 'other'}",
                  fmt.percent(points[-1][1], 1)) for tier, points in sorted(accepted(trace).items())]
    parts.append(chart("Drafts accepted while it was written", tiers, 1.0))
    return "".join(parts)


def bandwidth(trace: Trace, figures: Figures, model: ModelInfo | None, facts: EngineFacts | None) -> str:
    """What a full pass reads per second: the weights, and the keys and values of all tokens before it; and which share
    that is of what the GPU's memory moves, where that was measured and everything lies in it. model: that wrote it."""
    spent = [stages.get("verify", 0.0) for _, _, stages, *_ in trace.rounds]
    if model is None or not model.pass_bytes or not sum(spent):
        return ""
    context = figures.reused_tokens + figures.prompt_tokens + figures.tokens / 2
    read, seconds = model.pass_bytes + context * model.kv_bytes_per_token, sum(spent) / len(spent) / 1000
    words = f"A full pass reads {fmt.size(read)} in {fmt.milliseconds(seconds)} ms: {fmt.size(read / seconds)}/s"
    if facts is not None and facts.copy_rate and facts.mode == "on-chip":
        share = read / seconds / facts.copy_rate
        words += f", {fmt.percent(share, 1)} of the {fmt.size(facts.copy_rate)}/s that a copy in the GPU's memory moves"
        return (f'<p class="tf-note" title="{esc(PASS_READS_HELP)}">{esc(words)}</p>'
                f"{meter(share, 'tf-meter-thin', PASS_READS_HELP)}")
    return f'<p class="tf-note" title="{esc(PASS_READS_HELP)}">{esc(words)}</p>'


def energy(figures: Figures) -> str:
    if figures.joules is None:
        return ""
    each = figures.joules / max(figures.tokens, 1)
    words = ENERGY.format(joules=f"{figures.joules:,.0f}", each=f"{each:.1f}")
    return f'<p class="tf-note" title="{esc(ENERGY_HELP)}">{esc(words)}</p>'


def history(answers: Sequence[Answer]) -> str:
    """The document's answers, the newest first: a table, and above it how their speed went."""
    shown = [(answer, figures_of(answer.result)) for answer in answers]
    shown = [(answer, figures) for answer, figures in shown if figures.tokens]
    if not shown:
        return ""
    speed = [(float(n), figures.tokens_per_second) for n, (_, figures) in enumerate(reversed(shown))]
    line = Line(SPEED, tuple(speed), "tf-line-all", "")
    tiers = list(dict.fromkeys(tier for _, figures in shown for tier in figures.acceptance))
    joules = any(figures.joules is not None for _, figures in shown)
    head = "".join(f'<th scope="col">{esc(name)}</th>' for name in (
        ASKED, RATE, FIRST_TOKEN, "tokens per full pass",
        *map(tier_name, tiers),
        TOKEN_UNIT, *((JOULES,) if joules else ())))
    body = "".join(_row(answer, figures, tiers, joules) for answer, figures in shown)
    return (f'<h3 class="tf-h">Answers about this document</h3>'
            f"{chart('Speed, answer by answer', [line], max(y for _, y in speed))}"
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


def pages_read(result: dict[str, Any]) -> Ranges:
    """The pages that an answer was written from, whatever is chosen now; () where nothing tells. Older versions kept
    shares alone: from the first page that was read to the last, those left out between them have none."""
    if result.get("ranges"):
        return tuple((first, last) for first, last in result["ranges"])
    first, shares = result.get("first_page", 1), result.get("page_shares", ())
    return merge_ranges((first + n, first + n) for n, share in enumerate(shares) if share)


MOST_ANSWERS = 50  # of a document's history


def build() -> tuple[gr.HTML, gr.HTML]:
    with gr.Accordion("Statistics", open=False, elem_id="statistics"):
        return block("figures"), block("history")


def shown_answer(services: Services, view: TabView) -> tuple[Any, ...]:
    """(figures, shares, chunks, first page, pages read, title) of the answer that this tab shows: the live one or
    the last."""
    run = services.running(view)
    if run:
        now = run.accumulator
        return now.figures(), now.page_shares(), (), run.first_page, run.ranges, THIS_ANSWER
    answers = services.conversations.answers(view.conversation) if view.conversation else []
    if not answers:
        return None, (), (), 1, (), ""
    result = answers[-1].result
    return (figures_of(result), result.get("page_shares", ()), result.get("passages", ()),
            result.get("first_page", 1), pages_read(result), LAST_ANSWER)


def shown_key(services: Services, view: TabView) -> tuple[object, ...]:
    return view.document, view.conversation, services.conversations.version


def being_written(services: Services, view: TabView) -> object:
    """Of the answer that is being written."""
    run = services.running(view)
    return run and run.version


def panels(services: Services) -> list[Panel]:
    queue, conversations = services.queue, services.conversations

    def draw_figures(view: TabView) -> str:
        figures, *_, title = shown_answer(services, view)
        if figures is None or not (figures.tokens or services.running(view)):
            return (f'<h3 class="tf-h">{esc(THIS_ANSWER)}</h3>'
                    f'<p class="tf-note">Statistics appear here.</p>')
        trace, facts = last_trace(view), getattr(queue.status, "facts", None)
        return "".join((figures_card(figures, title),
                        bandwidth(trace, figures, writer(view), facts),
                        energy(figures), answer_charts(trace)))

    def writer(view: TabView) -> ModelInfo | None:
        """The model that wrote the shown answer, if it is the one that is loaded."""
        if services.runs.of_conversation(view.conversation):
            return queue.model
        answers = conversations.answers(view.conversation)
        return queue.model if answers and queue.model and answers[-1].result.get("model") == queue.model.name else None

    def last_trace(view: TabView) -> Trace:
        """Of the answer that is being written, or of the last one."""
        run = services.running(view)
        if run:
            return run.accumulator.trace
        answers = conversations.answers(view.conversation)
        return conversations.trace(answers[-1].id) or Trace() if answers else Trace()

    def draw_history(view: TabView) -> str:
        return history(conversations.recent(view.document, MOST_ANSWERS)) if view.document else ""

    return [
        Panel("figures", partial(shown_key, services), draw_figures, 0.25, partial(being_written, services)),
        Panel("history", lambda view: (view.document, conversations.version), draw_history, 0.5),
    ]
