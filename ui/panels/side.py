"""Right, below the page view: the strip of the document, figures of the answer, the engine."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import gradio as gr

from triforce_core import Document, EngineFacts, LoadProgress, ModelInfo, merge_ranges

from ..state.accumulator import figures_of
from ..state.library import Ranges
from ..state.services import Services
from ..state.tab_view import TabView
from ..state.trace import Trace
from ..view import charts, charts_over_time
from ..view import number_format as fmt
from ..view.charts import esc
from ..view.citations import spot
from ..view.painter import Panel
from ..view.passages import Passage, passages, shown
from ..view.transcript import card
from ..words import engine as engine_words
from ..words import figures as figure_words
from ..words import strip as strip_words
from . import html

MOST_ANSWERS = 50  # of a document's history


def build() -> tuple[gr.HTML, gr.HTML, gr.HTML, gr.HTML]:
    strip = html("strip", clicks=True)
    return html("figures"), strip, html("engine"), html("history")


def strip_section(document: Document, shares: Sequence[float], attended: Sequence[Passage], *, first_page: int,
                  selected: int | None, read: Ranges, reported: bool = True,
                  parts: Sequence[int] = ()) -> str:
    """The strip, what it means, and the passages that got most of the attention. reported: whether the engine can."""
    labels = [page.label for page in document.pages]
    drawn = charts.strip(labels, shares, first_page=first_page, selected=selected, read=read, parts=parts)
    note = strip_words.STRIP_HELP if shares else strip_words.STRIP_EMPTY if reported else strip_words.STRIP_REMOTE
    lines = [f'<h3 class="tf-h">{esc(strip_words.STRIP)}</h3>{drawn}', f'<p class="tf-note">{esc(note)}</p>']
    found = [
        f'<li><button type="button" class="tf-passage" data-action="page" data-page="{passage.number}" '
        f'data-spot="{spot([passage.place])}">'
        f"<b>{esc(strip_words.STRIP_PAGE.format(label=passage.label))}</b> "
        f'<span class="tf-muted">{passage.share * 100:.1f} %</span> {esc(shown(passage.text))}</button></li>'
        for passage in attended]
    if found:
        lines.append(f'<h4 class="tf-h4">{esc(strip_words.PASSAGES)}</h4><ul class="tf-passages">{"".join(found)}</ul>')
    return "".join(lines)


def engine_section(state: str, model: ModelInfo | None, load: LoadProgress | None, problem: str, status: Any,
                   waiting: int, busy: bool) -> str:
    """The engine: what runs where and why, memory, queue."""
    word = engine_words.ENGINE_BUSY if busy and state == "ready" else engine_words.ENGINE_STATES[state]
    dot = {"ready": "tf-dot-ok", "failed": "tf-dot-bad"}.get(state, "tf-dot-wait")
    parts = [f'<h3 class="tf-h">{esc(engine_words.ENGINE)} '
             f'<span class="tf-state-word"><i class="{dot}"></i>{esc(word)}</span></h3>']
    if state == "failed":
        parts.append(card("error", engine_words.ENGINE_FAILED, problem))
    elif state == "starting" and load:
        parts.append(f'<p class="tf-note">{esc(load.stage)}</p>{charts.meter(load.fraction or 0.0, "", load.stage)}')
    if model:
        facts: EngineFacts | None = getattr(status, "facts", None)
        here = model.mode != "remote"
        rows = [
            (engine_words.MODEL, esc(engine_words.WEIGHTS.format(model=model.name, size=fmt.size(model.model_bytes)) if here
                                else model.name)),
            (engine_words.DRAFT, esc(model.draft_name or engine_words.NO_DRAFT)),
            (engine_words.MODE, esc(f"{facts.mode if facts else model.mode} ({model.device})")),
            (engine_words.WHY, esc(facts.why if facts else model.why)), (engine_words.NUMBERS, esc(model.dtype)),
            (engine_words.CONTEXT, esc(fmt.context(model.max_context, model.plan.longest if model.plan else None))),
        ]
        if not here:
            rows = [row for row in rows if row[0] not in (engine_words.DRAFT, engine_words.NUMBERS)]
        drafting = facts.drafting if facts and facts.drafting else model.drafting
        if drafting:
            rows.insert(4, (engine_words.DRAFTING, esc(drafting)))
        if facts and facts.device_used is not None and facts.device_free is not None:
            rows.append((engine_words.GPU_MEMORY, memory_use(engine_words.GPU_MEMORY, facts.device_used, facts.device_free)))
        if facts:
            rows.append((engine_words.MEMORY, memory_use(engine_words.MEMORY, facts.host_used, facts.host_free)))
        rows.append((engine_words.QUEUE, esc(engine_words.QUEUE_LENGTH.format(waiting=waiting) if waiting
                                        else engine_words.QUEUE_EMPTY)))
        if getattr(status, "pid", None):
            rows.append((engine_words.PROCESS, str(status.pid)))
        parts.append('<dl class="tf-facts">' + "".join(f"<dt>{esc(name)}</dt><dd>{value}</dd>"
                                                       for name, value in rows) + "</dl>")
    return "".join(parts)


def pages_read(result: dict[str, Any]) -> Ranges:
    """The pages that an answer was written from, whatever is chosen now; () where nothing tells. Older versions kept
    shares alone: from the first page that was read to the last, those left out between them have none."""
    if result.get("ranges"):
        return tuple((first, last) for first, last in result["ranges"])
    first, shares = result.get("first_page", 1), result.get("page_shares", ())
    return merge_ranges((first + n, first + n) for n, share in enumerate(shares) if share)


def memory_use(name: str, used: int, free: int) -> str:
    """What the engine has of what it could have."""
    words = engine_words.MEMORY_USE.format(used=fmt.memory(used), free=fmt.memory(free))
    return esc(words) + charts.meter(used / max(used + free, 1), "tf-meter-thin", name)


def panels(services: Services) -> list[Panel]:
    queue, runs = services.queue, services.runs

    def answer(view: TabView) -> tuple[Any, ...]:
        """(figures, shares, chunks, first page, pages read, title) of the answer that this tab shows: the live one or
        the last."""
        run = services.running(view)
        if run:
            return run.accumulator.figures(), run.accumulator.page_shares(), (), run.first_page, run.ranges, figure_words.THIS_ANSWER
        answers = services.conversations.answers(view.conversation) if view.conversation else []
        if not answers:
            return None, (), (), 1, (), ""
        result = answers[-1].result
        return (figures_of(result), result.get("page_shares", ()), result.get("passages", ()),
                result.get("first_page", 1), pages_read(result), figure_words.LAST_ANSWER)

    def answer_key(view: TabView) -> tuple[object, ...]:
        return view.document, view.conversation, services.conversations.version

    def written(view: TabView) -> object:
        """Of the answer that is being written."""
        run = services.running(view)
        return run and run.version

    def draw_figures(view: TabView) -> str:
        figures, *_, title = answer(view)
        if figures is None:
            return f'<h3 class="tf-h">{esc(figure_words.THIS_ANSWER)}</h3><p class="tf-note">{esc(figure_words.NO_ANSWER)}</p>'
        trace, facts = last_trace(view), getattr(queue.status, "facts", None)
        return "".join((charts.figures_card(figures, title), charts_over_time.bandwidth(trace, figures, writer(view), facts),
                        charts_over_time.energy(figures), charts_over_time.answer_charts(trace)))

    def writer(view: TabView) -> ModelInfo | None:
        """The model that wrote the shown answer, if it is the one that is loaded."""
        if runs.of_conversation(view.conversation):
            return queue.model
        answers = services.conversations.answers(view.conversation)
        return queue.model if answers and queue.model and answers[-1].result.get("model") == queue.model.name else None

    def last_trace(view: TabView) -> Trace:
        """Of the answer that is being written, or of the last one."""
        run = services.running(view)
        if run:
            return run.accumulator.trace
        answers = services.conversations.answers(view.conversation)
        return services.conversations.trace(answers[-1].id) or Trace() if answers else Trace()

    def draw_history(view: TabView) -> str:
        return charts_over_time.history(services.conversations.recent(view.document, MOST_ANSWERS)) if view.document else ""

    def text(view: TabView) -> Document | None:
        entry = services.library.get(view.document)
        return services.library.document(entry.id) if entry and entry.state == "ready" else None

    def draw_strip(view: TabView) -> str:
        document, entry = text(view), services.library.get(view.document)
        if document is None or entry is None:
            return ""
        _, shares, chunks, first_page, read, _ = answer(view)
        return strip_section(document, shares, passages(chunks, document), first_page=first_page, selected=view.page,
                             read=read or entry.ranges, reported=not services.sends_to,
                             parts=[part.pages for part in services.library.parts(entry)] if entry.parts else ())

    def draw_engine(view: TabView) -> str:
        return engine_section(queue.state, queue.model, queue.load_progress, queue.problem, queue.status, queue.waiting,
                              bool(runs.active() or queue.prefills))

    return [
        Panel("figures", answer_key, draw_figures, 0.25, written),
        Panel("strip", lambda view: (answer_key(view), view.page, services.library.version), draw_strip, 0.4, written),
        Panel("history", lambda view: (view.document, services.conversations.version), draw_history, 0.5),
        Panel("engine", lambda view: (queue.state, queue.model, queue.problem, len(runs.active())), draw_engine, 0.5,
              lambda view: (queue.version, queue.waiting)),
    ]
