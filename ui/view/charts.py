"""Figures -> HTML: meters, the tier bar, the strip of the document. Pure; every tier has a colour and a pattern."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from math import sqrt

from ..page import number_format as fmt
from ..page.html import esc, meter, part_colour
from ..state.accumulator import Figures
from ..words import figures as figure_words
from ..words import strip as strip_words
from . import page_names

TIERS = ("quote", "n-gram", "draft", "retrieval", "bonus", "recovered")  # the order in which they are drawn


def tier_class(tier: str) -> str:
    return f"tf-tier-{tier}" if tier in TIERS else "tf-tier-other"


def tier_name(tier: str) -> str:
    return figure_words.TIERS.get(tier, (tier, ""))[0]


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
        f'<li title="{esc(figure_words.TIERS.get(tier, ("", ""))[1])}"><i class="{tier_class(tier)}"></i>'
        f'{esc(tier_name(tier))} <b>{fmt.count(origins[tier])}</b></li>' for tier in order)
    return (f'<div class="tf-stack" role="img" aria-label="{esc(figure_words.WHO_WROTE)}">{parts}</div>'
            f'<ul class="tf-legend">{legend}</ul>')


def acceptance(tiers: Mapping[str, tuple[int, int]]) -> str:
    """Accepted / tested, tier by tier."""
    rows = []
    for tier, (tested, accepted) in tiers.items():
        name, css = tier_name(tier), tier_class(tier)
        rows.append(
            f'<div class="tf-accept" title="{esc(figure_words.TIER_TESTED.get(tier, tier))}">'
            f'<span class="tf-accept-name"><i class="{css}"></i>{esc(name)}</span>'
            f'{meter(accepted / max(1, tested), css, name)}<span class="tf-accept-rate">'
            f"<b>{fmt.percent(accepted, tested)}</b> {fmt.count(accepted)} / {fmt.count(tested)}</span></div>")
    return "".join(rows)


def speculation_badge(figures: Figures) -> str:
    """TriForce on or off, and why: never blank."""
    if not figures.engine:
        return f'<span class="tf-badge tf-badge-wait">{esc(figure_words.SPECULATION_PENDING)}</span>'
    on = figures.engine == "triforce"
    word = figure_words.SPECULATION_ON if on else figure_words.SPECULATION_OFF
    if figures.engine == "remote":
        word = figure_words.SPECULATION_REMOTE
    why = f'<span class="tf-why">{esc(figures.why)}</span>' if figures.why else ""
    return f'<span class="tf-badge {"tf-badge-on" if on else "tf-badge-off"}">{esc(word)}</span>{why}'


def figures_card(figures: Figures, title: str) -> str:
    """What stands behind an answer, for the side panel; its speed stands below it, in one place."""
    parts = [f'<h3 class="tf-h">{esc(title)}</h3>', f'<div class="tf-spec">{speculation_badge(figures)}</div>']
    if figures.engine == "remote":
        parts.append(f'<p class="tf-note">{esc(figure_words.NOT_REPORTED)}</p>')
    if figures.acceptance:
        parts.append(f'<h4 class="tf-h4" title="{esc(figure_words.ACCEPTANCE_HELP)}">'
                     f'{esc(figure_words.ACCEPTANCE)}</h4>'
                     f"{acceptance(figures.acceptance)}")
    if figures.origins:
        parts.append(f'<h4 class="tf-h4">{esc(figure_words.WHO_WROTE)}</h4>{tier_bar(figures.origins)}')
    if figures.streamed_bytes_per_second:
        rate = figure_words.STREAMED.format(rate=fmt.size(figures.streamed_bytes_per_second))
        parts.append(f'<p class="tf-note" title="{esc(figure_words.STREAMED_HELP)}">{esc(rate)}</p>')
    if figures.reused_tokens or figures.prompt_tokens:
        words = figure_words.REUSED.format(reused=fmt.count(figures.reused_tokens),
                                           new=fmt.count(figures.prompt_tokens))
        parts.append(f'<p class="tf-note">{esc(words)}</p>')
    return "".join(parts)


def figures_line(figures: Figures, plain: float = 0.0, model: str = "") -> str:
    """The permanent line below an answer: its speed, and how soon it began; the other figures behind a click.

    plain: tokens per second that plain decoding was measured to write on the same question; 0: nobody measured."""
    rate = figures.tokens_per_second
    quiet = [(f"{fmt.rate(rate)} {figure_words.RATE}", figure_words.SPEED_HELP)] if rate else []
    if rate and plain:
        quiet.append((figure_words.TIMES_PLAIN.format(factor=rate / plain),
                      figure_words.TIMES_PLAIN_HELP.format(rate=fmt.rate(plain))))
    quiet.append((f"{figure_words.FIRST_TOKEN} {fmt.seconds(figures.time_to_first_token)}",
                  figure_words.FIRST_TOKEN_HELP))
    row = ", ".join(f'<span class="tf-nowrap" title="{esc(why)}">{esc(what)}</span>' for what, why in quiet)
    items = [f'<span title="{esc(figure_words.PER_PASS_HELP)}"><b>{figures.tokens_per_full_pass:.2f}</b> '
             f"{esc(figure_words.PER_PASS_SHORT)}</span>" if figures.full_passes else "",
             f"<b>{fmt.count(figures.tokens)}</b> {esc(figure_words.TOKENS_SHORT)}",
             esc(figure_words.ANSWERED_BY.format(model=model)) if model else ""]
    facts = " · ".join(f'<span class="tf-nowrap">{item}</span>' for item in items if item)
    accepted = [f'<span class="tf-nowrap"><i class="{tier_class(tier)}"></i>{esc(tier_name(tier))} '
                f"<b>{fmt.percent(good, tested)}</b> ({fmt.count(good)}/{fmt.count(tested)})</span>"
                for tier, (tested, good) in figures.acceptance.items()]
    more = (f'<div class="tf-line-accept">{esc(figure_words.ACCEPTED)} {" · ".join(accepted)}</div>' if accepted
            else "")
    bar = f'<div class="tf-line-bar">{tier_bar(figures.origins)}</div>' if figures.origins else ""
    return (f'<details class="tf-line"><summary><span class="tf-line-row">{row}</span>'
            f'<span class="tf-line-more">{esc(figure_words.DETAILS)}</span></summary>'
            f'<div class="tf-line-facts">{facts}</div><div class="tf-spec">{speculation_badge(figures)}</div>'
            f"{more}{bar}</details>")


LEAST_ABOVE = 0.1  # of the largest share: a page is tall only with so much beyond the usual


def intensity(share: float, top: float) -> float:
    """Height of a page in the strip: square root, so that small shares stay visible beside one large."""
    return sqrt(share / top) if top > 0 and share > 0 else 0.0


def strip(labels: Sequence[str], shares: Sequence[float], *, first_page: int = 1, selected: int | None = None,
          read: Sequence[tuple[int, int]] | None = None, parts: Sequence[int] = (),
          heights: Sequence[float] | None = None, cited: Collection[int] = ()) -> str:
    """The whole document, page by page. shares[0] belongs to page ``first_page``; pages in none of the ranges ``read``
    are hollow. parts: pages of each of several documents, told apart by colour. heights: of the bars, where they
    show what of the shares is unusual. cited: pages that the answer quotes, outlined.

    The first page is a tab stop, arrow keys move on from there (600 tab stops would lock a keyboard user in)."""
    least = 0.0 if heights is None else LEAST_ABOVE * max(shares, default=0.0)
    heights = shares if heights is None else heights
    top = max([*heights, least])
    inside = {page for low, high in read or ((1, len(labels)),) for page in range(low, high + 1)}
    cells = []
    part_of = [part for part, pages in enumerate(parts) for _ in range(pages)]
    for number, label in enumerate(labels, start=1):
        index = number - first_page
        told = 0 <= index < len(shares)
        share, height = (shares[index], heights[index]) if told else (0.0, 0.0)
        title = page_names.long(label)
        if number not in inside:
            title += f" · {strip_words.NOT_READ}"
        elif shares:
            title += f" · {share * 100:.1f} %"
        title += f" · {strip_words.CITED}" if number in cited else ""
        marks = [mark for mark, is_so in (("tf-out", number not in inside), ("tf-cited", number in cited),
                                          ("tf-selected", number == selected)) if is_so]
        marks += [part_colour(part_of[number - 1])] if part_of else []
        cells.append(_cell(number, title, intensity(height, top), marks, is_stop=number == (selected or 1)))
    density = "tf-few" if len(labels) <= 30 else "tf-many" if len(labels) > 240 else ""
    return f'<div class="tf-strip {density}" role="group" aria-label="{esc(strip_words.STRIP)}">{"".join(cells)}</div>'


def _cell(number: int, title: str, height: float, marks: Sequence[str], *, is_stop: bool) -> str:
    """One page of the strip. is_stop: the tab key stops there."""
    return (f'<button type="button" class="{" ".join(("tf-page", *marks))}" data-action="page" data-page="{number}" '
            f'tabindex="{"0" if is_stop else "-1"}" style="--i:{height:.3f}" title="{esc(title)}" '
            f'aria-label="{esc(title)}"></button>')
