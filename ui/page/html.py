"""Escaping, and the pieces of HTML that several panels draw. Pure."""

from __future__ import annotations

import html

APP = "TriForce Chat"
SENDS_TO = "Text leaves this machine: documents and questions are sent to {url}"

COPY = "Copy"
STOPPED = "You stopped it here."

PARTS = 8


def part_colour(part: int) -> str:
    """The class of a document's colour among several, from 0; style sheets tell PARTS of them apart."""
    return f"tf-part-{part % PARTS + 1}"


CANCEL = "Cancel"
MORE = "More"
DISMISS = "Dismiss"


def esc(text: object) -> str:
    return html.escape(str(text), quote=True)


def meter(fraction: float, css: str = "", label: str = "") -> str:
    """A thin bar, filled to ``fraction``."""
    filled = max(0.0, min(1.0, fraction))
    return (f'<div class="tf-meter {css}" role="meter" aria-label="{esc(label)}" aria-valuemin="0" aria-valuemax="100" '
            f'aria-valuenow="{filled * 100:.0f}"><span style="width:{filled * 100:.1f}%"></span></div>')


def card(kind: str, title: str, text: str, *, action: str = "") -> str:
    """A notice in place: what happened and what to do. kind: error, warn or info."""
    role = "alert" if kind == "error" else "status"
    return (f'<div class="tf-card tf-card-{kind}" role="{role}"><strong>{esc(title)}</strong>'
            f"<span>{esc(text)}</span>{action}</div>")


def button(label: str, action: str, *, css: str = "", **data: object) -> str:
    """A button that reports to Python: ``action`` and the data travel with the click."""
    extra = "".join(f' data-{key.replace("_", "-")}="{esc(value)}"' for key, value in data.items())
    return f'<button type="button" class="tf-btn {css}" data-action="{action}"{extra}>{esc(label)}</button>'


def menu(items: str, css: str = "") -> str:
    """A ⋯ button that unfolds buttons."""
    return (f'<details class="tf-menu tf-more {css}"><summary class="tf-turn" aria-label="{esc(MORE)}" '
            f'title="{esc(MORE)}">⋯</summary><div class="tf-menu-items">{items}</div></details>')
