"""Right, below the page view: the strip of the document, figures of the answer."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import gradio as gr

from triforce_core import ModelInfo

from ..page.html import esc
from ..page.panel import Panel, block
from ..state.accumulator import figures_of
from ..state.services import Services
from ..state.tab_view import TabView
from ..state.trace import Trace
from ..view import charts, charts_over_time
from ..view.document_strip import MOST_PASSAGES, cited_pages, pages_read, strip_section, usual_shares
from ..view.passages import passages
from ..words import figures as figure_words

MOST_ANSWERS = 50  # of a document's history
MOST_USUAL = 12  # of which the usual attention is the mean


def build() -> tuple[gr.HTML, gr.HTML, gr.HTML]:
    strip = block("strip", clicks=True)
    with gr.Accordion(figure_words.STATISTICS, open=False, elem_id="statistics"):
        return block("figures"), strip, block("history")


def panels(services: Services) -> list[Panel]:
    return [*_figure_panels(services), _strip_panel(services)]


def _shown(services: Services, view: TabView) -> tuple[Any, ...]:
    """(figures, shares, chunks, first page, pages read, title) of the answer that this tab shows: the live one or
    the last."""
    run = services.running(view)
    if run:
        now = run.accumulator
        return now.figures(), now.page_shares(), (), run.first_page, run.ranges, figure_words.THIS_ANSWER
    answers = services.conversations.answers(view.conversation) if view.conversation else []
    if not answers:
        return None, (), (), 1, (), ""
    result = answers[-1].result
    return (figures_of(result), result.get("page_shares", ()), result.get("passages", ()),
            result.get("first_page", 1), pages_read(result), figure_words.LAST_ANSWER)


def _shown_key(services: Services, view: TabView) -> tuple[object, ...]:
    return view.document, view.conversation, services.conversations.version


def _written(services: Services, view: TabView) -> object:
    """Of the answer that is being written."""
    run = services.running(view)
    return run and run.version


def _figure_panels(services: Services) -> list[Panel]:
    queue, conversations = services.queue, services.conversations

    def draw_figures(view: TabView) -> str:
        figures, *_, title = _shown(services, view)
        if figures is None or not (figures.tokens or services.running(view)):
            return (f'<h3 class="tf-h">{esc(figure_words.THIS_ANSWER)}</h3>'
                    f'<p class="tf-note">{esc(figure_words.NO_ANSWER)}</p>')
        trace, facts = last_trace(view), getattr(queue.status, "facts", None)
        return "".join((charts.figures_card(figures, title),
                        charts_over_time.bandwidth(trace, figures, writer(view), facts),
                        charts_over_time.energy(figures), charts_over_time.answer_charts(trace)))

    def writer(view: TabView) -> ModelInfo | None:
        """The model that wrote the shown answer, if it is the one that is loaded."""
        if services.runs.of_conversation(view.conversation):
            return queue.model
        answers = conversations.answers(view.conversation)
        return queue.model if answers and queue.model and answers[-1].result.get("model") == queue.model.name else None

    def last_trace(view: TabView) -> Trace:
        """Of the answer that is being written, or of the last one."""
        run = services.running(view)
        if run:
            return run.accumulator.trace
        answers = conversations.answers(view.conversation)
        return conversations.trace(answers[-1].id) or Trace() if answers else Trace()

    def draw_history(view: TabView) -> str:
        return charts_over_time.history(conversations.recent(view.document, MOST_ANSWERS)) if view.document else ""

    return [
        Panel("figures", partial(_shown_key, services), draw_figures, 0.25, partial(_written, services)),
        Panel("history", lambda view: (view.document, conversations.version), draw_history, 0.5),
    ]


def _strip_panel(services: Services) -> Panel:
    library = services.library

    def draw(view: TabView) -> str:
        entry = library.get(view.document)
        document = library.document(entry.id) if entry and entry.state == "ready" else None
        if document is None or entry is None:
            return ""
        _, shares, chunks, first_page, read, _ = _shown(services, view)
        usual, cited = beside(view, shares)
        return strip_section(document, shares, passages(chunks, document, 3 * MOST_PASSAGES), first_page=first_page,
                             selected=view.page, read=read or entry.ranges, reported=not services.sends_to,
                             parts=[part.pages for part in library.parts(entry)] if entry.parts else (),
                             usual=usual, cited=cited)

    def beside(view: TabView, shares: Sequence[float]) -> tuple[tuple[float, ...], frozenset[int]]:
        """What any question draws to each page, and the pages that the shown answer quotes, if it has ended."""
        run = services.running(view)
        if run:
            return run.accumulator.usual_shares, frozenset()
        answers = services.conversations.answers(view.conversation) if view.conversation else []
        if not answers:
            return (), frozenset()
        last = answers[-1]
        others = [other.result for other in services.conversations.recent(view.document or "", MOST_USUAL)
                  if other.id != last.id and other.question != last.question]
        return usual_shares(shares, last.result, others), cited_pages(last.result)

    return Panel("strip", lambda view: (_shown_key(services, view), view.page, library.version), draw, 0.4,
                 partial(_written, services))
