"""The page view: its shell, drawn once, and what is open in it. reader.js shows pages from ``server.page_routes``."""

from __future__ import annotations

import gradio as gr

from ..page.panel import Panel, block
from ..state.services import Services
from ..view.reader import opened, shell


def build() -> tuple[gr.HTML, gr.HTML]:
    """Makes the shell; what is open, and where the reader reports that somebody turned a page."""
    block("page", shell())
    turned = '<button type="button" data-action="turned" tabindex="-1"></button>'
    return block("page-open"), block("page-turned", turned, clicks=True)


def panels(services: Services) -> list[Panel]:
    return [Panel("page_open", lambda view: (view.document, view.page, view.openings, services.library.version),
                  lambda view: opened(view, services))]
