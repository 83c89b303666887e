"""The page view: its shell, and what is open in it, as data for reader.js."""

from __future__ import annotations

from ..page.html import esc
from ..state.quotes import spot
from ..state.services import Services
from ..state.tab_view import TabView
from ..words import reader as reader_words

LINK_SIGN = ('<svg viewBox="0 0 16 16" width="15" height="15" fill="none" stroke="currentColor" stroke-width="1.6" '
             'stroke-linecap="round" aria-hidden="true"><path d="M6.5 9.5l3-3M7 4.6l1.5-1.5a2.8 2.8 0 0 1 4 4L11 8.6'
             'M9 11.400l-1.500 1.500a2.800 2.800 0 0 1-4-4L5 7.400"/></svg>')


def shell() -> str:
    def button(name: str, label: str, sign: str, css: str = "tf-turn") -> str:
        return (f'<button type="button" class="{css}" data-reader="{name}" aria-label="{esc(label)}" '
                f'title="{esc(label)}">{sign}</button>')

    page = (f'{button("previous", reader_words.PREVIOUS, "‹")}<label class="tf-page-number"><span class="tf-hidden">'
            f'{esc(reader_words.PAGE_NUMBER)}</span><input type="text" inputmode="numeric" id="page-number" size="4" '
            f'autocomplete="off"></label><span class="tf-muted" id="page-count"></span>'
            f'{button("next", reader_words.NEXT, "›")}')
    size = (f'<span class="tf-zoom">{button("smaller", reader_words.SMALLER, "−")}'
            f'{button("larger", reader_words.LARGER, "+")}'
            f'</span>{button("thumbs", reader_words.THUMBNAILS, "☷")}'
            f'{button("close", reader_words.CLOSE_PAGE, "×")}')
    find = (f'<form class="tf-find" role="search"><input type="search" id="page-find" autocomplete="off" '
            f'placeholder="{esc(reader_words.FIND)}" aria-label="{esc(reader_words.FIND)}">'
            f'<span class="tf-muted" id="page-hits" '
            f'role="status"></span>{button("hit-before", reader_words.HIT_BEFORE, "↑")}'
            f'{button("hit-after", reader_words.HIT_AFTER, "↓")}{button("link", reader_words.LINK, LINK_SIGN)}</form>')
    return (f'<section class="tf-reader" aria-label="{esc(reader_words.PAGE_VIEW)}" hidden>'
            f'<div class="tf-reader-bar"><span class="tf-page-label" id="page-label"></span>{page}{size}</div>{find}'
            f'<div class="tf-reader-body">'
            f'<ol class="tf-thumbs" aria-label="{esc(reader_words.THUMBNAILS)}" hidden></ol>'
            '<div class="tf-sheets" tabindex="0"><div class="tf-sheet"></div></div></div></section>'
            f'<p class="tf-note tf-no-page">{esc(reader_words.NO_PAGE)}</p>')


def opened(view: TabView, services: Services) -> str:
    """What is open, as data; reader.js acts when ``serial`` changes."""
    entry = services.library.get(view.document)
    if entry is None or entry.state != "ready" or view.page is None or not 1 <= view.page <= entry.pages:
        return '<div data-page=""></div>'
    return (f'<div data-document="{esc(entry.id)}" data-pages="{entry.pages}" data-page="{view.page}" '
            f'data-spot="{spot(view.spot)}" data-serial="{view.openings}" '
            f'data-picture="{int(any(part.kind == "pdf" for part in services.library.parts(entry)))}"></div>')
