"""Escaping, and the pieces of HTML that several panels draw. Pure."""

from __future__ import annotations

import html

from triforce_core import stays_here

APP = "TriForce Chat"
SENDS_TO = "Text leaves this machine: documents and questions are sent to {url}"
STAYS_HERE = "Stays on this machine: documents and questions go to the server at {url}"
COPY = "Copy"
STOP = "Stop"
STOPPING = "Stopping…"
STOPPED = "You stopped it here."
PREPARING = "Getting the document ready"
CANCEL = "Cancel"
DISMISS = "Dismiss"

PARTS = 8  # documents that style sheets tell apart


def part_colour(part: int) -> str:
    """Return the class of a document's colour among several, from 0."""
    return f"tf-part-{part % PARTS + 1}"


def esc(text: object) -> str:
    return html.escape(str(text), quote=True)


def where_text_goes(url: str) -> str:
    """Say where a server at ``url`` is."""
    return (STAYS_HERE if stays_here(url) else SENDS_TO).format(url=url)


def meter(fraction: float, css: str = "", label: str = "") -> str:
    """Return a thin bar, filled to ``fraction``."""
    filled = max(0.0, min(1.0, fraction))
    return (f'<div class="tf-meter {css}" role="meter" aria-label="{esc(label)}" aria-valuemin="0" aria-valuemax="100" '
            f'aria-valuenow="{filled * 100:.0f}"><span style="width:{filled * 100:.1f}%"></span></div>')


def progress(text: str, bar: str, cancel: str = "", figures: str | None = None) -> str:
    """Return a line of what is under way over its bar. cancel: a button; figures: what stands before it."""
    known = "" if figures is None else f'<span class="tf-muted">{esc(figures)}</span>'
    return (f'<div class="tf-progress" role="status"><div class="tf-progress-row"><span>{esc(text)}</span>'
            f"{known}{cancel}</div>{bar}</div>")


def card(kind: str, title: str, text: str, *, action: str = "") -> str:
    """Return a notice in place: what happened and what to do. kind: error, warn or info."""
    role = "alert" if kind == "error" else "status"
    return (f'<div class="tf-card tf-card-{kind}" role="{role}"><strong>{esc(title)}</strong>'
            f"<span>{esc(text)}</span>{action}</div>")


def button(label: str, action: str, *, css: str = "", **data: object) -> str:
    """Return a button that reports to Python: ``action`` and the data travel with the click."""
    extra = "".join(f' data-{key.replace("_", "-")}="{esc(value)}"' for key, value in data.items())
    return f'<button type="button" class="tf-btn {css}" data-action="{action}"{extra}>{esc(label)}</button>'


def menu(items: str) -> str:
    """Return a ⋯ button that unfolds buttons."""
    return ('<details class="tf-menu tf-more "><summary class="tf-turn" aria-label="More" '
            f'title="More">⋯</summary><div class="tf-menu-items">{items}</div></details>')
