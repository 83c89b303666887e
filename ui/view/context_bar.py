"""The context as a bar: what each part of what is read takes of it, what is kept for answers, what is left. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from ..page import number_format as fmt
from ..page.html import esc
from ..state.context_budget import Part
from ..words import figures as figure_words
from ..words import page_choice as choice_words
from .charts import part_colour


def tokens(count: int, estimated: bool) -> str:
    return fmt.tokens(count, estimated)


def bar(parts: Sequence[Part], most: int, room: int, legend: bool = True, css: str = "") -> str:
    """most: tokens that fit. room: kept for questions and answers beside them. legend: a line for each part."""
    used = sum(part.tokens for part in parts)
    scale = max(1, max(most, used) + room)
    about = any(part.estimated for part in parts)
    segments = [_segment(part_colour(n), part.tokens / scale, f"{part.title}: {tokens(part.tokens, part.estimated)}")
                for n, part in enumerate(parts)]
    if room:
        segments.append(_segment("tf-room-kept", room / scale, f"{choice_words.ROOM}: {fmt.count(room)}"))
    if used < most:
        segments.append(_segment("tf-room-free", (most - used) / scale,
                                 f"{choice_words.FREE}: {fmt.count(most - used)}"))
    limit = f'<i class="tf-limit" style="left:{100 * most / scale:.2f}%"></i>' if used > most else ""
    words = choice_words.BUDGET.format(used=tokens(used, about), most=fmt.count(most))
    rows = [(part_colour(n), part.title, tokens(part.tokens, part.estimated)) for n, part in enumerate(parts)]
    if room:
        rows.append(("tf-room-kept", choice_words.ROOM, fmt.count(room)))
    rows.append(("tf-room-free", choice_words.FREE, fmt.count(most - used)) if used <= most
                else ("tf-room-over", choice_words.OVER, fmt.count(used - most)))
    listed = "".join(f'<li><i class="{css}"></i><span>{esc(title)}</span> <b>{esc(count)}</b></li>'
                     for css, title, count in rows)
    return (f'<div class="tf-budget {css}"><div class="tf-budget-bar" role="img" '
            f'aria-label="{esc(words)}">{"".join(segments)}{limit}</div>'
            + (f'<ul class="tf-budget-parts">{listed}</ul>' if legend else "") + "</div>")


def _segment(css: str, share: float, title: str) -> str:
    return (f'<span class="{css}" style="width:{100 * share:.3f}%" '
            f'title="{esc(title)} {esc(figure_words.TOKENS)}"></span>')
