"""The race: while it is recorded, and its result with the lanes that replay it."""

from __future__ import annotations

import base64
import json
from typing import Any

from ..state.accumulator import figures_of
from ..state.runs import Run
from ..words import chat as chat_words
from ..words import figures as figure_words
from ..words import race as race_words
from . import charts, markdown, race_picture
from . import number_format as fmt
from .charts import esc
from .transcript import card

EVEN = 0.03  # a difference smaller than this is no difference
FRESH = 20.0  # seconds during which a finished race starts its replay by itself


def lane(name: str, state: str, text: str, css: str = "") -> str:
    return (f'<section class="tf-lane {css}"><header><h3>{esc(name)}</h3>'
            f'<span class="tf-lane-state">{esc(state)}</span></header>'
            f'<div class="tf-lane-text tf-prose">{markdown.render(text)}</div></section>')


def recording(run: Run, wait: str = "") -> str:
    """The race while it is being recorded, one lane after the other. wait: for what, while it is queued."""
    lanes = []
    for index, (name, _) in enumerate(run.lanes):
        if index >= len(run.accumulators):
            lanes.append(lane(name, race_words.WAITS, "", "tf-lane-wait"))
            continue
        accumulator = run.accumulators[index]
        figures = accumulator.figures()
        state = race_words.RECORDING.format(tokens=fmt.count(figures.tokens),
                                               rate=fmt.rate(figures.tokens_per_second))
        if run.stopping:
            state = chat_words.STOPPING
        elif run.state in ("queued", "preparing"):
            state = wait or chat_words.PREPARING
        lanes.append(lane(name, state, accumulator.text))
    return (f'<p class="tf-race-question">{esc(run.question)}</p>'
            f'<div class="tf-lanes tf-lanes-{len(lanes)}">{"".join(lanes)}</div>')


def verdict(outcome: dict[str, Any]) -> str:
    """Faster, even or slower; same words or not, and why."""
    factor, fast = outcome["speedup"], figures_of(outcome["lanes"][1])
    if factor is None:
        speed, css, why = race_words.UNMEASURED, "", ""
    elif abs(factor - 1) < EVEN:
        speed, css, why = race_words.EVEN.format(factor=factor), "", ""
    elif factor > 1:
        speed, css, why = race_words.FASTER.format(factor=factor), "tf-win", ""
    else:
        speed, css = race_words.SLOWER.format(factor=factor), "tf-lose"
        why = " ".join((race_words.SLOWER_WHY.format(per_pass=fast.tokens_per_full_pass), costs(outcome)))
    if outcome["same"]:
        words = (f'<p class="tf-same" id="same-words"><b>{esc(race_words.SAME)}</b> '
                 f"{esc(race_words.SAME_MORE.format(tokens=fmt.count(fast.tokens)))}</p>")
    else:
        parts = outcome["difference"]
        words = (f'<p class="tf-different" id="same-words"><b>{esc(race_words.DIFFERENT)}</b> '
                 f'{esc(race_words.DIFFERENT_MORE.format(token=fmt.count(parts["token"])))} {esc(parts["why"])}</p>'
                 f'<dl class="tf-parts"><dt>{esc(race_words.LANES[0])}</dt><dd>…{esc(parts["before"])}'
                 f'<mark>{esc(parts["plain"])}</mark></dd><dt>{esc(race_words.LANES[1])}</dt>'
                 f'<dd>…{esc(parts["before"])}<mark>{esc(parts["fast"])}</mark></dd></dl>')
    reason = f'<p class="tf-note">{esc(why)}</p>' if why else ""
    more = "".join(f'<p class="tf-note tf-third">{esc(line)}</p>' for line in race_picture.summary(named(outcome))[1:])
    return f'<div class="tf-verdict {css}"><p class="tf-speedup">{esc(speed)}</p>{reason}{words}{more}</div>'


def costs(outcome: dict[str, Any]) -> str:
    """Where the time of the lane that lost went, if it was recorded."""
    spent, plain = outcome["lanes"][1].get("round"), figures_of(outcome["lanes"][0]).tokens_per_second
    if not spent or not spent["verify"] or not plain:
        return ""
    return race_words.SLOWER_COSTS.format(rest=spent["rest"], verify=spent["verify"], plain=1000 / plain,
                                            need=(spent["rest"] + spent["verify"]) * plain / 1000)


def named(outcome: dict[str, Any]) -> dict[str, Any]:
    """A race that an older version kept has two lanes without names."""
    known = {"same": outcome["same"], "speedup": outcome["speedup"]}
    lanes = [{"name": name} | known | lane for name, lane in zip(race_words.LANES, outcome["lanes"], strict=False)]
    return outcome | {"lanes": [*lanes, *outcome["lanes"][2:]]}


def share(outcome: dict[str, Any], question: str) -> str:
    """The race as files: an SVG that replays itself, and a picture that the browser makes of the still one."""
    def address(animated: bool) -> str:
        drawn = race_picture.svg(outcome, question, animated=animated).encode()
        return "data:image/svg+xml;base64," + base64.b64encode(drawn).decode("ascii")

    return (f'<span class="tf-note">{esc(race_words.SHARE)}</span>'
            f'<a class="tf-btn" download="race.svg" href="{address(True)}">{esc(race_words.SVG)}</a>'
            f'<button type="button" class="tf-btn" data-picture="{address(False)}">{esc(race_words.PNG)}</button>')


def replay(outcome: dict[str, Any], question: str, *, key: str, fresh: bool) -> str:
    """The recorded race: verdict, two lanes with their times for the replay, figures of both."""
    lanes, outcome = [], named(outcome)
    for recorded in outcome["lanes"]:
        figures = figures_of(recorded)
        marks = json.dumps(recorded["marks"], separators=(",", ":"))
        detail = charts.figures_line(figures)
        lanes.append(
            f'<section class="tf-lane" data-marks="{esc(marks)}" data-rate="{figures.tokens_per_second:.2f}">'
            f'<header><h3>{esc(recorded["name"])}</h3><span class="tf-lane-state">'
            f"<b>{fmt.rate(figures.tokens_per_second)}</b> {esc(figure_words.RATE)}</span></header>"
            '<div class="tf-lane-bar"><span></span></div><div class="tf-lane-clock" aria-hidden="true"></div>'
            f'<div class="tf-lane-text tf-prose" tabindex="0">{markdown.render(recorded["text"])}</div>'
            f'{detail}</section>')
    again = f'<button type="button" class="tf-btn" data-replay="{esc(key)}">{esc(race_words.AGAIN)}</button>'
    recorded_on = race_words.RECORDED.format(model=outcome["model"], dtype=outcome["dtype"], device=outcome["device"])
    return (f'<p class="tf-race-question">{esc(question)}</p>{verdict(outcome)}'
            f'<div class="tf-lanes tf-lanes-{len(lanes)}" data-race="{esc(key)}" data-fresh="{int(fresh)}">'
            f'{"".join(lanes)}</div>'
            f'<div class="tf-race-foot">{again}{share(outcome, question)}'
            f'<span class="tf-note">{esc(recorded_on)}</span></div>')


def board(run: Run | None, kept: dict[str, Any] | None, now: float, wait: str = "") -> str:
    """What the race tab shows: a running race, its result, the last kept one, or nothing yet."""
    if run is not None and not run.ended:
        return recording(run, wait)
    if run is not None and run.state == "done":
        return replay(run.outcome, run.question, key=run.id, fresh=now - run.ended_at < FRESH)
    problem = ""
    if run is not None:
        problem = (card("error", race_words.FAILED, run.error) if run.state == "failed"
                   else card("info", race_words.RACE, race_words.STOPPED))
    if kept is not None:
        return problem + replay(kept, kept["question"], key="kept", fresh=False)
    return problem or f'<p class="tf-note tf-pad">{esc(race_words.EMPTY)}</p>'
