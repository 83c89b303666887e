"""A recorded answer -> HTML: its tokens by who wrote them, its rounds, where their time went. Pure."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from triforce_core import Document

from ..app.accumulator import Trace
from ..app.quotes import spot
from . import formatting as fmt
from .figures import TIER_WORDS, TIERS, tier_class, tier_name
from .html import esc
from .strip import PASSAGES, Passage, passages, shown

TRACE = "Who wrote it"
TRACE_OFF = "Plain text"
TRACE_UNKNOWN = "This answer's tokens were not recorded."
TRACE_HINT = "Point at a token, or move with the arrow keys: who wrote it, how sure the model was, and where it looked."
TRACE_REACH = (("round", "the token's round"), ("sentence", "its sentence"), ("answer", "the answer"))
TRACE_WORDS = {"token": "Token", "chance": "Probability", "round": "Round", "attended": "Attended",
               "unknown": "not recorded (see Settings, Token details)", "unmeasured": "not measured in this round"}
ROUNDS_HELP = "Each bar is one pass of the full model: its height is the tokens it settled, its colours who wrote them."
STAGES = {"n-gram": "copying", "draft": "small model", "retrieval": "retrieval tier", "verify": "full pass",
          "select": "choosing chunks", "other": "the rest"}

MOST_ROUNDS = 400  # that are drawn one by one


def tokens(trace: Trace, text: str) -> str:
    """Return the answer token by token; what no token accounts for (half a character at the end) follows the last."""
    spans = "".join(f'<span class="tf-t {origin_class(origin)}">{esc(piece)}</span>'
                    for piece, origin, *_ in trace.tokens if piece)
    return spans + esc(text[sum(len(token[0]) for token in trace.tokens) :])


def origin_class(origin: str) -> str:
    return f"tf-o-{origin}" if origin in TIERS else "tf-o-other"


def drawn(trace: Trace, text: str, first_page: int, document: Document | None) -> str:
    """Return a finished answer's tokens with legend, rounds and stages. trace.js adds what is under the mouse.

    first_page: the page that share 0 belongs to. document: None where its text is no longer there."""
    if not trace.known:
        return f'<p class="tf-note">{esc(TRACE_UNKNOWN)}</p><div class="tf-tokens">{esc(text)}</div>'
    seen = {token[1] for token in trace.tokens}
    legend = "".join(
        f'<li title="{esc(TIER_WORDS.get(tier, ("", ""))[1])}">'
        f'<span class="tf-t {origin_class(tier)}">abc</span> '
        f"{esc(tier_name(tier))} <b>{fmt.count(sum(token[1] == tier for token in trace.tokens))}</b></li>"
        for tier in (*TIERS, *sorted(seen - set(TIERS))) if tier in seen)
    data = {"tokens": [token[1:] for token in trace.tokens if token[0]], "first": first_page,
            "rounds": [round_[:5] for round_ in trace.rounds], **_attended(trace, document),
            "labels": [fmt.cited_page(document, page + 1) for page in range(len(document.pages))] if document else [],
            "tiers": {tier: tier_name(tier) for tier in seen}}
    chosen = "".join(
        f'<label><input type="radio" name="tf-reach" value="{value}"{" checked" if value == "round" else ""}> '
        f"{esc(label)}</label>" for value, label in TRACE_REACH)
    return (f'<div class="tf-trace" data-trace="{esc(json.dumps(data, separators=(",", ":")))}">'
            f'<ul class="tf-legend">{legend}</ul><div class="tf-tokens" tabindex="0" role="group" '
            f'aria-label="The answer token by token; arrow keys move">{tokens(trace, text)}</div>'
            f'<fieldset class="tf-reach"><legend>The strip shows the attention of</legend>{chosen}</fieldset>'
            f'<div class="tf-told" role="status">{TRACE_HINT}</div><div class="tf-told-passages" hidden>'
            f'<h4 class="tf-h4">{PASSAGES}</h4><p class="tf-note">Attention, not evidence.</p>'
            f'<ul class="tf-passages"></ul></div>{timeline(trace)}</div>')


def _attended(trace: Trace, document: Document | None) -> dict[str, Any]:
    """Return passages: each sentence once, [page number, label, text, spot]; seen: of every round [passage, share]."""
    known: dict[Passage, int] = {}
    seen: list[list[list[float]]] = []
    for _, _, _, _, _, *chunks in trace.rounds:
        found = passages(chunks[0], document) if chunks and document else []
        seen.append([[known.setdefault(replace(one, share=0.0), len(known)), one.share] for one in found])
    listed = [[one.number, fmt.cited_page(document, one.number), shown(one.text), spot([one.place])]
              for one in known if document]
    return {"passages": listed, "seen": seen}


def timeline(trace: Trace) -> str:
    """Return every round as a bar of the tokens it wrote, by origin; where the time went; all of it as a table."""
    rows = list(_rounds(trace))
    highest = max((row["tokens"] for row in rows), default=1)
    bars = "".join(
        f'<span class="tf-round" data-round="{n}" style="--h:{row["tokens"] / highest:.3f}" '
        f'title="{esc(_round_words(n, row))}">'
        + "".join(f'<i class="{tier_class(origin)}" style="flex-grow:{count}"></i>'
                  for origin, count in row["origins"].items()) + "</span>" for n, row in enumerate(rows[:MOST_ROUNDS]))
    spent: Counter[str] = Counter()
    for row in rows:
        spent.update(row["milliseconds"])
    return (f'<h4 class="tf-h4">Rounds: {fmt.count(len(rows))} full passes</h4>'
            f'<div class="tf-rounds" role="img" aria-label="{ROUNDS_HELP}">{bars}</div>'
            f'<p class="tf-note">{ROUNDS_HELP}</p>{stages(spent, len(rows))}'
            f'<details class="tf-round-table"><summary>All rounds as a table</summary>{_table(rows)}</details>')


def stages(spent: Mapping[str, float], rounds: int) -> str:
    """Return milliseconds per stage: one stacked bar and its legend with the mean of a round."""
    if not sum(spent.values()):
        return ""
    css = {stage: f"tf-stage-{stage if stage in STAGES else 'other'}" for stage in spent}
    bar = "".join(f'<span class="{css[stage]}" style="flex-grow:{value:.2f}"></span>' for stage, value in spent.items())
    legend = "".join(f'<li><i class="{css[stage]}"></i>{esc(STAGES.get(stage, stage))} '
                     f"<b>{value / max(rounds, 1):.1f} ms</b></li>" for stage, value in spent.items())
    return (f'<h4 class="tf-h4">Where a round&#x27;s time goes</h4><div class="tf-stack" aria-hidden="true">{bar}'
            f'</div><ul class="tf-legend">{legend}</ul>')


def _rounds(trace: Trace) -> Iterator[dict[str, Any]]:
    origins: list[Counter[str]] = [Counter() for _ in trace.rounds]
    for _, origin, number, *_ in trace.tokens:
        origins[number][origin] += 1
    for written, (tested, accepted, milliseconds, *_) in zip(origins, trace.rounds, strict=True):
        yield {"tokens": written.total(), "origins": written, "milliseconds": milliseconds,
               "tiers": {tier: (accepted[tier], tested[tier]) for tier in tested}}


def _round_words(number: int, row: Mapping[str, Any]) -> str:
    tiers = ", ".join(f"{tier_name(tier)} {good}/{of}" for tier, (good, of) in row["tiers"].items())
    words = f"Round {number + 1}: {row['tokens']} tokens in {sum(row['milliseconds'].values()):.0f} ms"
    return f"{words} ({tiers})" if tiers else words


def _table(rows: Sequence[Mapping[str, Any]]) -> str:
    tiers = list(dict.fromkeys(tier for row in rows for tier in row["tiers"]))
    known = list(dict.fromkeys(stage for row in rows for stage in row["milliseconds"]))
    head = "".join(f'<th scope="col">{esc(name)}</th>' for name in (
        "Round", "tokens", *map(tier_name, tiers),
        *(f"{STAGES.get(stage, stage)}, ms" for stage in known)))
    body = "".join(
        f'<tr><th scope="row">{n}</th><td>{row["tokens"]}</td>'
        + "".join(f"<td>{'/'.join(map(str, row['tiers'].get(tier, '–')))}</td>" for tier in tiers)
        + "".join(f"<td>{row['milliseconds'].get(stage, 0.0):.1f}</td>" for stage in known) + "</tr>"
        for n, row in enumerate(rows[:MOST_ROUNDS], 1))
    return ('<div class="tf-scroll" tabindex="0"><table><caption>Accepted of tested tokens by tier, and milliseconds '
            f"by stage</caption><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>")
