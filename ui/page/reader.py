"""The page view: its shell, drawn once, and what is open in it. reader.js shows pages from ``server.page_routes``."""

from __future__ import annotations

import gradio as gr

from ..app.quotes import spot
from ..app.services import Services
from ..app.tab_view import TabView
from .html import esc
from .panel import Panel, block

PAGE_EMPTY = "This page has no text."
PAGE_BROKEN = "This page cannot be shown now."
FIND_BROKEN = "Search failed: Enter tries again"
LARGER = "Larger"
THUMBNAILS = "All pages"
LINK = "Copy a link to this page"
LINKED = "Link copied"
FIND = "Find in the document"
NEXT = "Next page"
NO_PAGE = "Click a page in the strip, or the page number after a quotation, to read it here."

LINK_SIGN = ('<svg viewBox="0 0 16 16" width="15" height="15" fill="none" stroke="currentColor" stroke-width="1.6" '
             'stroke-linecap="round" aria-hidden="true"><path d="M6.5 9.5l3-3M7 4.6l1.5-1.5a2.8 2.8 0 0 1 4 4L11 8.6'
             'M9 11.400l-1.500 1.500a2.800 2.800 0 0 1-4-4L5 7.400"/></svg>')


def shell() -> str:
    def button(name: str, label: str, sign: str, css: str = "tf-turn") -> str:
        return (f'<button type="button" class="{css}" data-reader="{name}" aria-label="{esc(label)}" '
                f'title="{esc(label)}">{sign}</button>')

    page = (f'{button("previous", "Previous page", "‹")}<label class="tf-page-number"><span class="tf-hidden">'
            f'Go to page</span><input type="text" inputmode="numeric" id="page-number" size="4" '
            f'autocomplete="off"></label><span class="tf-muted" id="page-count"></span>'
            f'{button("next", NEXT, "›")}')
    size = (f'<span class="tf-zoom">{button("smaller", "Smaller", "−")}'
            f'{button("larger", LARGER, "+")}'
            f'</span>{button("thumbs", THUMBNAILS, "☷")}'
            f'{button("close", "Close the page view", "×")}')
    find = (f'<form class="tf-find" role="search"><input type="search" id="page-find" autocomplete="off" '
            f'placeholder="{esc(FIND)}" aria-label="{esc(FIND)}">'
            f'<span class="tf-muted" id="page-hits" '
            f'role="status"></span>{button("hit-before", "Previous match", "↑")}'
            f'{button("hit-after", "Next match", "↓")}{button("link", LINK, LINK_SIGN)}</form>')
    return (f'<section class="tf-reader" aria-label="Page view" hidden>'
            f'<div class="tf-reader-bar"><span class="tf-page-label" id="page-label"></span>{page}{size}</div>{find}'
            f'<div class="tf-reader-body">'
            f'<ol class="tf-thumbs" aria-label="{esc(THUMBNAILS)}" hidden></ol>'
            '<div class="tf-sheets" tabindex="0"><div class="tf-sheet"></div></div></div></section>'
            f'<p class="tf-note tf-no-page">{esc(NO_PAGE)}</p>')


def opened(view: TabView, services: Services) -> str:
    """What is open, as data; reader.js acts when ``serial`` changes."""
    entry = services.library.get(view.document)
    if entry is None or entry.state != "ready" or view.page is None or not 1 <= view.page <= entry.pages:
        return '<div data-page=""></div>'
    return (f'<div data-document="{esc(entry.id)}" data-pages="{entry.pages}" data-page="{view.page}" '
            f'data-spot="{spot(view.spot)}" data-serial="{view.openings}" '
            f'data-picture="{int(any(part.kind == "pdf" for part in services.library.parts(entry)))}"></div>')


def build() -> tuple[gr.HTML, gr.HTML]:
    """Makes the shell; what is open, and where the reader reports that somebody turned a page."""
    block("page", shell())
    turned = '<button type="button" data-action="turned" tabindex="-1"></button>'
    return block("page-open"), block("page-turned", turned, clicks=True)


def panels(services: Services) -> list[Panel]:
    return [Panel("page_open", lambda view: (view.document, view.page, view.openings, services.library.version),
                  lambda view: opened(view, services))]
