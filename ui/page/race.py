"""Race: the question, the lanes while they are recorded, the verdict, and the result as a picture to share.

The replay runs in the browser from recorded times (page.js).
"""

from __future__ import annotations

import base64
import json
import textwrap
import time
from collections.abc import Mapping
from typing import Any

import gradio as gr

from triforce_core import metrics

from ..app.accumulator import figures_of
from ..app.runs import LANES, THIRD, Run
from ..app.services import Services
from ..app.tab_view import TabView
from ..app.tabs import Tabs
from . import formatting as fmt
from . import markdown
from .figures import RATE, figures_line
from .html import PREPARING, STOP, STOPPING, card, esc
from .panel import PRIVATE, Outputs, Panel, block, noticing, stop_panel

RACE = "Race"
TITLE = "The same question, with and without TriForce"
HELP = ("The question is read once, before the clock runs. Then one lane after the other writes, from the same cached "
        "document and the same seed, and both are replayed side by side, each as fast as it was written.")
START = "Start the race"
SLOWER_WHY = ("Its drafts cost more than they saved here ({per_pass:.1f} tokens per full pass). That happens with "
              "short documents, where one full pass is cheap, and where drafts are seldom accepted.")
SLOWER_COSTS = ("A round took {rest:.0f} ms of drafting and {verify:.0f} ms of full pass; plain decoding took "
                "{plain:.0f} ms a token. It pays from {need:.1f} tokens per full pass on.")
UNMEASURED = "Too short to measure a speed: ask for a longer answer"
LOOPS = ("This is no race result: the text goes in circles (only {variety:.0%} of its runs of four tokens are "
         "distinct), and circles are easy to guess. Ask something else. On this text TriForce ran at {factor:.2f} "
         "times plain decoding's speed.")
FORCED = ("This is no race result: the words were spelled from the document, so there was nothing to guess. On them "
          "TriForce ran at {factor:.2f} times plain decoding's speed.")
SAME = "Same words: yes"
DIFFERENT = "Same words: no"
RECORDED = "Recorded on this machine: {model}, {dtype}, {device}."

WIDTH, MARGIN, LINE = 1000, 36, 21
MOST_LINES = 12
COLOURS = ("#5a635f", "#00845f", "#24557a")
STEPS = 60  # moments of a lane's bar


def svg(outcome: Mapping[str, Any], question: str, *, animated: bool) -> str:
    """Return the lanes side by side as SVG, each with its words, bar and rate, and the verdict below."""
    lanes = outcome["lanes"]
    title = textwrap.wrap(question, 90)[:2]
    top = MARGIN + 30 * len(title) + 14
    wide = (WIDTH - 2 * MARGIN - 24 * (len(lanes) - 1)) / len(lanes)
    height = top + 96 + LINE * MOST_LINES + 92
    drawn = [_lane(lane, MARGIN + number * (wide + 24), top, wide, COLOURS[number % len(COLOURS)], animated)
             for number, lane in enumerate(lanes)]
    foot = height - 62
    words = [*summary(outcome), RECORDED.format(**outcome)]
    return (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}" '
            f'font-family="system-ui, sans-serif"><rect width="100%" height="100%" fill="#f4f5f3"/>'
            + "".join(_text(MARGIN, MARGIN + 8 + 30 * n, line, 21, weight=650) for n, line in enumerate(title))
            + "".join(drawn)
            + "".join(_text(MARGIN, foot + 22 * n, line, 14, colour="#1d2321" if n < len(words) - 1 else "#5a635f")
                      for n, line in enumerate(words[-3:])) + "</svg>")


def summary(outcome: Mapping[str, Any]) -> list[str]:
    """Return one line for each lane that is compared with the first."""
    lines = []
    for lane in outcome["lanes"][1:]:
        factor, per_pass = lane.get("speedup"), lane["figures"]["tokens_per_full_pass"]
        speed = f"{factor:.2f} times plain decoding's speed" if factor else UNMEASURED
        if disqualified(outcome):
            speed += " (no race result)"
        lines.append(f"{lane['name']}: {speed} · {per_pass:.2f} tokens per full pass · "
                     f"{SAME if lane['same'] else DIFFERENT}")
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
            + _text(x, y + 40, f"{fmt.rate(rate)} {RATE} · {fmt.seconds(end)}", 14, colour="#5a635f")
            + f'<rect x="{x:.1f}" y="{y + 50}" width="{wide:.1f}" height="7" rx="3.5" fill="#dde2df"/>{bar}</rect>'
            + "".join(parts))


def _text(x: float, y: float, words: str, size: int, *, weight: int = 400, colour: str = "#1d2321",
          begin: float | None = None) -> str:
    """Return a line of text; it appears after ``begin`` seconds."""
    hidden = "" if begin is None else ' visibility="hidden"'
    shows = "" if begin is None else f'<set attributeName="visibility" to="visible" begin="{begin:.2f}s"/>'
    return (f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" font-weight="{weight}" fill="{colour}"{hidden}>'
            f"{esc(''.join(filter(str.isprintable, words)))}{shows}</text>")

EVEN = 0.03  # a difference smaller than this is no difference
MOST_FORCED = 0.5  # share of tokens that no model had to find, above which nothing was raced
FRESH = 20.0  # seconds during which a finished race starts its replay by itself


def lane_html(name: str, state: str, text: str, css: str = "") -> str:
    return (f'<section class="tf-lane {css}"><header><h3>{esc(name)}</h3>'
            f'<span class="tf-lane-state">{esc(state)}</span></header>'
            f'<div class="tf-lane-text tf-prose">{markdown.render(text)}</div></section>')


def recording(run: Run, wait: str = "") -> str:
    """Return the race while it is recorded, one lane after the other. wait: what it waits for, while it is queued."""
    lanes = []
    for index, (name, _) in enumerate(run.lanes):
        if index >= len(run.accumulators):
            lanes.append(lane_html(name, "Waiting for its turn", "", "tf-lane-wait"))
            continue
        accumulator = run.accumulators[index]
        figures = accumulator.figures()
        state = f"{fmt.count(figures.tokens)} tokens, {fmt.rate(figures.tokens_per_second)} tok/s"
        if run.stopping:
            state = STOPPING
        elif run.state in ("queued", "preparing"):
            state = wait or PREPARING
        lanes.append(lane_html(name, state, accumulator.text))
    return (f'<p class="tf-race-question">{esc(run.question)}</p>'
            f'<div class="tf-lanes tf-lanes-{len(lanes)}">{"".join(lanes)}</div>')


def verdict(outcome: dict[str, Any]) -> str:
    """Return whether it was faster, even or slower, whether the words are the same, and why."""
    factor, fast = outcome["speedup"], figures_of(outcome["lanes"][1])
    if factor is None:
        speed, css, why = UNMEASURED, "", ""
    elif no_result := disqualified(outcome):
        speed, css, why = no_result, "", ""
    elif abs(factor - 1) < EVEN:
        speed, css, why = f"No real difference: {factor:.2f} times plain decoding's speed", "", ""
    elif factor > 1:
        speed, css, why = f"TriForce was {factor:.2f} times as fast", "tf-win", ""
    else:
        speed, css = f"Speculation lost: TriForce ran at {factor:.2f} of plain decoding's speed", "tf-lose"
        why = " ".join((SLOWER_WHY.format(per_pass=fast.tokens_per_full_pass), costs(outcome)))
    if outcome["same"]:
        words = (f'<p class="tf-same" id="same-words"><b>{SAME}</b> '
                 f"{fmt.count(fast.tokens)} tokens, identical one by one.</p>")
    else:
        parts = outcome["difference"]
        words = (f'<p class="tf-different" id="same-words"><b>{DIFFERENT}</b> '
                 f'They part at token {fmt.count(parts["token"])}. {esc(parts["why"])}</p>'
                 f'<dl class="tf-parts"><dt>{esc(LANES[0])}</dt><dd>…{esc(parts["before"])}'
                 f'<mark>{esc(parts["plain"])}</mark></dd><dt>{esc(LANES[1])}</dt>'
                 f'<dd>…{esc(parts["before"])}<mark>{esc(parts["fast"])}</mark></dd></dl>')
    reason = f'<p class="tf-note">{esc(why)}</p>' if why else ""
    more = "".join(f'<p class="tf-note tf-third">{esc(line)}</p>' for line in summary(named(outcome))[1:])
    return f'<div class="tf-verdict {css}"><p class="tf-speedup">{esc(speed)}</p>{reason}{words}{more}</div>'


def disqualified(outcome: Mapping[str, Any]) -> str:
    """Return why the words of a race say nothing about speed; "" where they do, or an older version recorded it."""
    if outcome["speedup"] is None:
        return ""
    known = {"factor": outcome["speedup"], "variety": min(lane.get("variety", 1.0) for lane in outcome["lanes"][:2])}
    if max(lane.get("forced", 0.0) for lane in outcome["lanes"][:2]) > MOST_FORCED:
        return FORCED.format(**known)
    return LOOPS.format(**known) if known["variety"] < metrics.LEAST_VARIETY else ""


def costs(outcome: dict[str, Any]) -> str:
    """Return where the time of the lane that lost went; "" where it was not recorded."""
    spent, plain = outcome["lanes"][1].get("round"), figures_of(outcome["lanes"][0]).tokens_per_second
    if not spent or not spent["verify"] or not plain:
        return ""
    return SLOWER_COSTS.format(rest=spent["rest"], verify=spent["verify"], plain=1000 / plain,
                               need=(spent["rest"] + spent["verify"]) * plain / 1000)


def named(outcome: dict[str, Any]) -> dict[str, Any]:
    """Name the two lanes of a race that an older version kept without names."""
    known = {"same": outcome["same"], "speedup": outcome["speedup"]}
    lanes = [{"name": name} | known | lane for name, lane in zip(LANES, outcome["lanes"], strict=False)]
    return outcome | {"lanes": [*lanes, *outcome["lanes"][2:]]}


def share(outcome: dict[str, Any], question: str) -> str:
    """Return the race as files: an SVG that replays itself, and a picture that the browser makes of the still one."""
    def address(animated: bool) -> str:
        drawn = svg(outcome, question, animated=animated).encode()
        return "data:image/svg+xml;base64," + base64.b64encode(drawn).decode("ascii")

    return ('<span class="tf-note">Share</span>'
            f'<a class="tf-btn" download="race.svg" href="{address(True)}">Animated SVG</a>'
            f'<button type="button" class="tf-btn" data-picture="{address(False)}">PNG</button>')


def replay(outcome: dict[str, Any], question: str, *, key: str, fresh: bool) -> str:
    """Return the recorded race: verdict, lanes with their times for the replay, figures of each."""
    lanes, outcome = [], named(outcome)
    for recorded in outcome["lanes"]:
        figures = figures_of(recorded)
        marks = json.dumps(recorded["marks"], separators=(",", ":"))
        lanes.append(
            f'<section class="tf-lane" data-marks="{esc(marks)}" data-rate="{figures.tokens_per_second:.2f}">'
            f'<header><h3>{esc(recorded["name"])}</h3><span class="tf-lane-state">'
            f"<b>{fmt.rate(figures.tokens_per_second)}</b> {esc(RATE)}</span></header>"
            '<div class="tf-lane-bar"><span></span></div><div class="tf-lane-clock" aria-hidden="true"></div>'
            f'<div class="tf-lane-text tf-prose" tabindex="0">{markdown.render(recorded["text"])}</div>'
            f"{figures_line(figures)}</section>")
    again = f'<button type="button" class="tf-btn" data-replay="{esc(key)}">Play again</button>'
    recorded_on = RECORDED.format(**outcome)
    return (f'<p class="tf-race-question">{esc(question)}</p>{verdict(outcome)}'
            f'<div class="tf-lanes tf-lanes-{len(lanes)}" data-race="{esc(key)}" data-fresh="{int(fresh)}">'
            f'{"".join(lanes)}</div>'
            f'<div class="tf-race-foot">{again}{share(outcome, question)}'
            f'<span class="tf-note">{esc(recorded_on)}</span></div>')


def board(run: Run | None, kept: dict[str, Any] | None, now: float, wait: str = "") -> str:
    """Return what the race tab shows: a running race, its result, the last kept one, or nothing yet."""
    if run is not None and not run.ended:
        return recording(run, wait)
    if run is not None and run.state == "done":
        return replay(run.outcome, run.question, key=run.id, fresh=now - run.ended_at < FRESH)
    problem = ""
    if run is not None:
        problem = (card("error", "The race did not finish", run.error) if run.state == "failed"
                   else card("info", RACE, "The race was stopped."))
    if kept is not None:
        return problem + replay(kept, kept["question"], key="kept", fresh=False)
    return problem or '<p class="tf-note tf-pad">No race yet. It takes as long as two answers.</p>'


def build(services: Services, tabs: Tabs, tab_bar: gr.Tabs, race_button: gr.Button, asked: gr.blocks.Block) -> Outputs:
    """Return the panels' components. race_button: below the chat, it shows the race's tab of ``tab_bar`` with the
    question that is ``asked`` there."""
    block("race-help", f'<div class="tf-pad"><h2 class="tf-h">{TITLE}</h2><p class="tf-note">{HELP}</p></div>')
    with gr.Row(equal_height=True, elem_id="race-form"):
        question = gr.Textbox(label="Question", lines=1, max_lines=4, elem_id="race-question", scale=5)
        start = gr.Button(START, variant="primary", elem_id="race-start", size="md", scale=0, min_width=130)
        stop = gr.Button(STOP, variant="stop", elem_id="race-stop", size="md", scale=0, min_width=90, visible=False)
    third = gr.Dropdown(list(THIRD), value="", label="Third lane", allow_custom_value=True, elem_id="race-third",
                        info="Choose one, or type settings: gamma2=6, budget=512, ngram=off")
    board = block("race-board", clicks=True, begin="tfWatchRace(element);")

    def start_race(question: str, third: str | None, request: gr.Request) -> None:
        view = tabs.get(request.session_hash)
        with noticing(view):
            services.race(view, question, third or "")

    def race_now(question: str, request: gr.Request) -> tuple[Any, Any, str]:
        """Race the typed question, or the conversation's last one; show the race only if there is one."""
        view = tabs.get(request.session_hash)
        answers = services.conversations.answers(view.conversation) if view.conversation else []
        words = question.strip() or (answers[-1].question if answers else "")
        started = None
        with noticing(view):
            started = services.race(view, words)
        return (gr.Tabs(selected="race") if started else gr.skip(), words or gr.skip(), "" if started else question)

    def stop_race(request: gr.Request) -> None:
        services.stop(tabs.get(request.session_hash))

    for event in (start.click, question.submit):
        event(start_race, [question, third], None, queue=False, **PRIVATE)
    race_button.click(race_now, [asked], [tab_bar, question, asked], queue=False, **PRIVATE)
    stop.click(stop_race, None, None, queue=False, **PRIVATE)
    return {"race_board": board, "race_stop": stop}


def panels(services: Services) -> list[Panel]:
    runs = services.runs

    def wait(run: Run | None) -> str:
        return fmt.wait_line(services.queue.ahead(run)) if run and run.state == "queued" else ""

    def draw(view: TabView) -> str:
        run = runs.race_of(view.document)
        running = run is not None and not run.ended
        kept = None if running or not view.document else services.conversations.race(view.document)
        return board(run, kept, time.time(), wait(run))

    def key(view: TabView) -> object:
        run = runs.race_of(view.document)
        return view.document, run and run.version[:-1]

    def news(view: TabView) -> object:
        run = runs.race_of(view.document)
        return run and (run.version, wait(run))

    return [Panel("race_board", key, draw, 0.15, news, "words"),
            stop_panel("race_stop", lambda view: runs.race_of(view.document))]
