"""Figures of the answer that a tab shows: live, final, and those of the answers before it."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import gradio as gr

from triforce_core import EngineFacts, ModelInfo

from ..app.accumulator import Figures, Trace, figures_of
from ..app.conversations import Answer
from ..app.services import Services
from ..app.tab_view import TabView
from . import formatting as fmt
from .html import esc, meter
from .panel import Outputs, Panel, block

THIS_ANSWER = "This answer"
LAST_ANSWER = "Last answer"
RATE = "tok/s"
FIRST_TOKEN = "first token"
WAITED = "first word {first}, last {last}"
WAITED_FOR = ("in line", "reading", "writing")
LEAST_PART = 0.05  # seconds that are told of it
WORTH_PARTS = 1.0  # seconds before the first word, of which it is worth saying what they went to
PER_PASS_SHORT = "per full pass"
PER_PASS_HELP = "How many tokens one pass of the full model over the whole document settles. Plain decoding: 1."
STREAMED_HELP = "The model's cache is larger than the GPU's memory: each full pass streams it there from host memory."
WHO_WROTE = "Who wrote the tokens"
SPECULATION_ON = "TriForce on"
SPECULATION_OFF = "TriForce off"
SPECULATION_REMOTE = "Remote server"
NOT_REPORTED = "Tiers, acceptance and attention are not available: the server does not report them."
SPECULATION_PENDING = "TriForce: known with the first words"
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

MOST_ANSWERS = 50  # of a document's history
WINDOW = 8  # rounds over which a rate is taken
POINTS = 120  # of one line
WIDTH, HEIGHT = 300, 54
TIERS = ("quote", "n-gram", "draft", "retrieval", "bonus", "recovered")  # the order in which they are drawn


def tier_class(tier: str) -> str:
    return f"tf-tier-{tier}" if tier in TIERS else "tf-tier-other"


def tier_name(tier: str) -> str:
    return TIER_WORDS.get(tier, (tier, ""))[0]


def tier_bar(origins: Mapping[str, int]) -> str:
    """Return who wrote the tokens: one stacked bar and its legend."""
    if not sum(origins.values()):
        return ""
    order = [tier for tier in TIERS if origins.get(tier)] + sorted(set(origins) - set(TIERS))
    parts = "".join(
        f'<span class="{tier_class(tier)}" style="flex-grow:{origins[tier]}" '
        f'title="{esc(tier_name(tier))}: {fmt.count(origins[tier])}"></span>' for tier in order)
    legend = "".join(
        f'<li title="{esc(TIER_WORDS.get(tier, ("", ""))[1])}"><i class="{tier_class(tier)}"></i>'
        f'{esc(tier_name(tier))} <b>{fmt.count(origins[tier])}</b></li>' for tier in order)
    return (f'<div class="tf-stack" role="img" aria-label="{WHO_WROTE}">{parts}</div>'
            f'<ul class="tf-legend">{legend}</ul>')


def acceptance(tiers: Mapping[str, tuple[int, int]]) -> str:
    """Return accepted / tested, tier by tier."""
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
    """Return whether TriForce is on or off, and why: never blank."""
    if not figures.engine:
        return f'<span class="tf-badge tf-badge-wait">{SPECULATION_PENDING}</span>'
    on = figures.engine == "triforce"
    word = {"triforce": SPECULATION_ON, "remote": SPECULATION_REMOTE}.get(figures.engine, SPECULATION_OFF)
    why = f'<span class="tf-why">{esc(figures.why)}</span>' if figures.why else ""
    return f'<span class="tf-badge {"tf-badge-on" if on else "tf-badge-off"}">{word}</span>{why}'


def figures_card(figures: Figures, title: str) -> str:
    """Return what stands behind an answer, for the side panel; its speed stands below it, in one place."""
    parts = [f'<h3 class="tf-h">{esc(title)}</h3>', f'<div class="tf-spec">{speculation_badge(figures)}</div>']
    if figures.engine == "remote":
        parts.append(f'<p class="tf-note">{NOT_REPORTED}</p>')
    if figures.acceptance:
        parts.append('<h4 class="tf-h4" title="Of the drafted tokens that the next tier tested, how many it accepted.">'
                     f"Drafts accepted</h4>{acceptance(figures.acceptance)}")
    if figures.origins:
        parts.append(f'<h4 class="tf-h4">{WHO_WROTE}</h4>{tier_bar(figures.origins)}')
    if figures.streamed_bytes_per_second:
        parts.append(note(f"PCIe: {fmt.size(figures.streamed_bytes_per_second)}/s from host memory", STREAMED_HELP))
    if figures.reused_tokens or figures.prompt_tokens:
        parts.append(f'<p class="tf-note">{fmt.count(figures.reused_tokens)} tokens reused from the cache, '
                     f"{fmt.count(figures.prompt_tokens)} read for this question.</p>")
    return "".join(parts)


def note(words: str, help_text: str) -> str:
    return f'<p class="tf-note" title="{esc(help_text)}">{esc(words)}</p>'


def waits(waited: Mapping[str, float]) -> str:
    """Return how long a person waited for an answer's first and last word, and for what. waited: see ``Run.waited``."""
    line, first, last = waited["line"], waited["first"], waited["last"]
    spent = zip(WAITED_FOR, (line, first - line, last - first), strict=True)
    parts = ", ".join(f"{fmt.seconds(one)} {what}" for what, one in spent if one >= LEAST_PART)
    whole = WAITED.format(first=fmt.seconds(first), last=fmt.seconds(last))
    return f"{whole} ({parts})" if first >= WORTH_PARTS else whole


def figures_line(figures: Figures, plain: float = 0.0, result: Mapping[str, Any] | None = None) -> str:
    """Return the permanent line below an answer: how long it took, and its speed; the rest behind a click.

    plain: tokens per second of plain decoding on the same question; 0: nobody measured. result: what is kept of it,
    as ``Run.kept`` says; None of a lane, for which nobody waited."""
    result, rate = result or {}, figures.tokens_per_second
    waited, model = result.get("waited"), result.get("model", "")
    said = waits(waited) if waited else f"{FIRST_TOKEN} {fmt.seconds(figures.time_to_first_token)}"
    quiet = [(said, "Counted from pressing Ask." if waited else "From the question to the first word.")]
    if rate and plain:
        measured = f"Plain decoding wrote {fmt.rate(plain)} tok/s when this question was raced on the same pages."
        quiet.insert(bool(waited), (f"{rate / plain:.1f}× plain", measured))
    if rate:
        quiet.insert(bool(waited), (f"{'spelling: ' if result.get('spelled') else ''}{fmt.rate(rate)} {RATE}",
                         "Tokens per second after the first one; reading the question is not counted."))
    row = ", ".join(f'<span{"" if what.endswith(")") else " class=tf-nowrap"} title="{why}">{what}</span>'
                    for what, why in quiet)  # a wait with its parts may be longer than a line
    items = [f'<span title="{PER_PASS_HELP}"><b>{figures.tokens_per_full_pass:.2f}</b> {PER_PASS_SHORT}</span>'
             if figures.full_passes else "",
             f"<b>{fmt.count(figures.tokens)}</b> tokens", esc(f"Model: {model}") if model else ""]
    facts = " · ".join(f'<span class="tf-nowrap">{item}</span>' for item in items if item)
    accepted = [f'<span class="tf-nowrap"><i class="{tier_class(tier)}"></i>{esc(tier_name(tier))} '
                f"<b>{fmt.percent(good, tested)}</b> ({fmt.count(good)}/{fmt.count(tested)})</span>"
                for tier, (tested, good) in figures.acceptance.items()]
    more = f'<div class="tf-line-accept">Accepted of tested: {" · ".join(accepted)}</div>' if accepted else ""
    bar = f'<div class="tf-line-bar">{tier_bar(figures.origins)}</div>' if figures.origins else ""
    return (f'<details class="tf-line"><summary><span class="tf-line-row">{row}</span>'
            '<span class="tf-line-more">Details</span></summary>'
            f'<div class="tf-line-facts">{facts}</div><div class="tf-spec">{speculation_badge(figures)}</div>'
            f"{more}{bar}</details>")


@dataclass(frozen=True)
class Line:
    """One line of a chart. css: the class that gives it its colour and its dashes. last: its newest value, "" where
    that stands elsewhere."""

    name: str
    points: tuple[tuple[float, float], ...]
    css: str
    last: str


def rates(trace: Trace) -> list[tuple[float, float]]:
    """Return (seconds, tokens per second over the last ``WINDOW`` rounds)."""
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
    """Return by tier: (seconds, share of the tested tokens that was accepted over the last ``WINDOW`` rounds)."""
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
    """Return small lines over one axis from 0 to ``top``, and what each says last."""
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
    """Return speed and acceptance over the rounds of one answer."""
    speed = rates(trace)
    tiers = [Line(tier_name(tier), tuple(points), f"tf-line-{tier if tier in TIERS else 'other'}",
                  fmt.percent(points[-1][1], 1)) for tier, points in sorted(accepted(trace).items())]
    return speed_chart(SPEED_OVER_TIME, speed) + chart("Drafts accepted while it was written", tiers, 1.0)


def speed_chart(title: str, speed: Sequence[tuple[float, float]]) -> str:
    return chart(title, [Line("speed", tuple(speed), "tf-line-all", "")], max((y for _, y in speed), default=0.0))


def bandwidth(trace: Trace, figures: Figures, model: ModelInfo | None, facts: EngineFacts | None) -> str:
    """Return what a full pass reads per second: the weights, and the keys and values of all tokens before it; and which
    share that is of what the GPU's memory moves, if that was measured and everything lies there. model: its writer."""
    spent = [stages.get("verify", 0.0) for _, _, stages, *_ in trace.rounds]
    if model is None or not model.pass_bytes or not sum(spent):
        return ""
    context = figures.reused_tokens + figures.prompt_tokens + figures.tokens / 2
    read, seconds = model.pass_bytes + context * model.kv_bytes_per_token, sum(spent) / len(spent) / 1000
    words = f"A full pass reads {fmt.size(read)} in {fmt.milliseconds(seconds)} ms: {fmt.size(read / seconds)}/s"
    if facts is None or not facts.copy_rate or facts.mode != "on-chip":
        return note(words, PASS_READS_HELP)
    share = read / seconds / facts.copy_rate
    words += f", {fmt.percent(share, 1)} of the {fmt.size(facts.copy_rate)}/s that a copy in the GPU's memory moves"
    return note(words, PASS_READS_HELP) + meter(share, "tf-meter-thin", PASS_READS_HELP)


def energy(figures: Figures) -> str:
    if figures.joules is None:
        return ""
    each = figures.joules / max(figures.tokens, 1)
    return note(f"{figures.joules:,.0f} J, {each:.1f} J a token",
                "What all GPUs of this machine spent meanwhile, by NVIDIA's own counter.")


def history(answers: Sequence[Answer]) -> str:
    """Return the document's answers, the newest first: a table, and above it how their speed went."""
    shown = [(answer, figures_of(answer.result)) for answer in answers]
    shown = [(answer, figures) for answer, figures in shown if figures.tokens]
    if not shown:
        return ""
    speed = [(float(n), figures.tokens_per_second) for n, (_, figures) in enumerate(reversed(shown))]
    tiers = list(dict.fromkeys(tier for _, figures in shown for tier in figures.acceptance))
    joules = any(figures.joules is not None for _, figures in shown)
    head = "".join(f'<th scope="col">{esc(name)}</th>' for name in (
        "question", RATE, FIRST_TOKEN, "tokens per full pass", *map(tier_name, tiers), "tokens", *("J" * joules)))
    body = "".join(_row(answer, figures, tiers, joules) for answer, figures in shown)
    return (f'<h3 class="tf-h">Answers about this document</h3>{speed_chart("Speed, answer by answer", speed)}'
            f'<div class="tf-scroll tf-history" tabindex="0"><table><thead><tr>{head}</tr></thead>'
            f"<tbody>{body}</tbody></table></div>")


def _row(answer: Answer, figures: Figures, tiers: Sequence[str], joules: bool) -> str:
    cells = [fmt.rate(figures.tokens_per_second), fmt.seconds(figures.time_to_first_token),
             f"{figures.tokens_per_full_pass:.2f}",
             *(fmt.percent(*reversed(figures.acceptance.get(tier, (0, 0)))) for tier in tiers),
             fmt.count(figures.tokens)]
    if joules:
        cells.append("–" if figures.joules is None else f"{figures.joules:,.0f}")
    asked = time.strftime("%Y-%m-%d %H:%M", time.localtime(answer.created_at))
    return (f'<tr><th scope="row" title="{esc(asked)}">{esc(answer.question)}</th>'
            + "".join(f"<td>{esc(cell)}</td>" for cell in cells) + "</tr>")


def build() -> Outputs:
    with gr.Accordion("Statistics", open=False, elem_id="statistics"):
        return {"figures": block("figures"), "history": block("history")}


def shown_answer(services: Services, view: TabView) -> tuple[Any, ...]:
    """Return (figures, shares, chunks, first page, pages read, title) of the answer that this tab shows: the live one
    or the last."""
    run = services.running(view)
    if run:
        now = run.accumulator
        return now.figures(), now.page_shares(), (), run.first_page, run.ranges, THIS_ANSWER
    answers = services.conversations.answers(view.conversation) if view.conversation else []
    if not answers:
        return None, (), (), 1, (), ""
    result = answers[-1].result
    return (figures_of(result), result.get("page_shares", ()), result.get("passages", ()),
            result.get("first_page", 1), tuple((first, last) for first, last in result.get("ranges", ())), LAST_ANSWER)


def shown_key(services: Services, view: TabView) -> tuple[object, ...]:
    return view.document, view.conversation, services.conversations.version


def being_written(services: Services, view: TabView) -> object:
    """Return the version of the answer that is being written."""
    run = services.running(view)
    return run and run.version


def panels(services: Services) -> list[Panel]:
    queue, conversations = services.queue, services.conversations

    def draw_figures(view: TabView) -> str:
        figures, *_, title = shown_answer(services, view)
        if figures is None or not (figures.tokens or services.running(view)):
            return f'<h3 class="tf-h">{THIS_ANSWER}</h3><p class="tf-note">Statistics appear here.</p>'
        trace, facts = last_trace(view), getattr(queue.status, "facts", None)
        return (figures_card(figures, title) + bandwidth(trace, figures, writer(view), facts) + energy(figures)
                + answer_charts(trace))

    def writer(view: TabView) -> ModelInfo | None:
        """Return the model that wrote the shown answer, if it is the one that is loaded."""
        if services.runs.of_conversation(view.conversation):
            return queue.model
        answers = conversations.answers(view.conversation)
        return queue.model if answers and queue.model and answers[-1].result.get("model") == queue.model.name else None

    def last_trace(view: TabView) -> Trace:
        """Return the trace of the answer that is being written, or of the last one."""
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
