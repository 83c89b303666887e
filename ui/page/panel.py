"""The contract of a panel, and one tab's screen as a list of them, each drawn anew when what it shows changed.

A tab runs one long-lived loop over this (``layout``); handlers change the view and return nothing. So a reload, a
second tab and an answer that goes on while nobody looks need no code of their own. Every panel's HTML reports clicks
the same way: an element with ``data-action`` sends its data attributes to the handler of that name in ``actions``.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal

import gradio as gr

from triforce_core import TriForceError

from ..app.queue import Queue
from ..app.runs import Run, RunStore
from ..app.tab_view import TabView
from .html import STOP, STOPPING

Outputs = dict[str, gr.blocks.Block]  # a panel's name -> the component that it draws
Actions = dict[str, Callable[[TabView, dict[str, str]], Any]]  # by the name in ``data-action``
PRIVATE: dict[str, Any] = {"api_visibility": "private", "show_progress": "hidden"}

CLICKS = """
let armed = '', expiry = 0;  // by deed, not by element: a redraw may come between two clicks
const deedOf = target => JSON.stringify(target.dataset);
const show = sure => {
  const target = [...element.querySelectorAll('[data-sure]')].find(target => deedOf(target) === armed);
  if (!target || target.classList.contains('tf-armed') === sure) return;
  target.classList.toggle('tf-armed', sure);
  target.textContent = sure ? target.dataset.sure : target.dataset.label;
};
const disarm = () => {
  clearTimeout(expiry);
  show(false);
  armed = '';
};
new MutationObserver(() => { if (armed) show(true); }).observe(element, {childList: true, subtree: true});
element.addEventListener('click', event => {
  const target = event.target.closest('[data-action]');
  if (!target || target.disabled) return;
  const deed = deedOf(target), asks = target.dataset.sure && armed !== deed;
  disarm();
  if (!asks) return trigger('click', Object.assign({}, target.dataset));
  armed = deed;
  show(true);
  expiry = setTimeout(disarm, 3000);
});
"""


def block(elem_id: str, value: str = "", *, clicks: bool = False, begin: str = "") -> gr.HTML:
    """Return a component for HTML of ours. clicks: it has elements with ``data-action``. begin: a script that runs once
    it is there, which on a tab that nobody opened it is not."""
    script = (CLICKS if clicks else "") + begin
    return gr.HTML(value, elem_id=elem_id, apply_default_css=False, js_on_load=script or None)


@contextmanager
def noticing(view: TabView) -> Iterator[None]:
    """Put a card on the tab's page that says why what it asked for was refused."""
    try:
        yield
    except TriForceError as error:
        view.notice = ("error", error.message.rstrip("."), " ".join(filter(None, (error.allowed, error.remedy))))


@dataclass(frozen=True)
class Pace:
    """Seconds between two redraws while the engine works: of its words and how far a prefill is; of what stands beside
    them (figures, strip, engine). moves: whether signs of life move by themselves."""

    words: float
    aside: float
    moves: bool

BRISK = Pace(0.1, 0.0, True)
# All that a page takes is taken from the answer, a hundredth of a second or two with each update: a CPU's engine
# computes with every core, and what one thread loses all others wait for. What moves by itself takes the most.
SPARING = Pace(0.5, 2.0, False)


def pace(queue: Queue, runs: RunStore) -> Pace:
    """Return how often to redraw now."""
    working = bool(runs.active() or queue.prefills)
    return SPARING if working and queue.model is not None and queue.model.mode == "cpu" else BRISK


@dataclass(frozen=True)
class Panel:
    """One output of the loop. key, and news of the engine's work: cheap, change whenever ``draw`` would give something
    else. every: seconds that must lie between two redraws, whatever changes; where it is only the news, as many as
    ``pace`` has for what the panel ``follows``."""

    name: str
    key: Callable[[TabView], Hashable]
    draw: Callable[[TabView], Any]
    every: float = 0.1
    news: Callable[[TabView], Hashable] = lambda view: None
    follows: Literal["words", "aside"] = "aside"


def stop_panel(name: str, run_of: Callable[[TabView], Run | None]) -> Panel:
    """Return the panel of a button that stops a run, and is shown while there is one."""
    def state(view: TabView) -> tuple[bool, bool]:
        run = run_of(view)
        return run is not None and not run.ended, bool(run and run.stopping)

    def draw(view: TabView) -> dict[str, Any]:
        shown, stopping = state(view)
        return gr.update(visible=shown, interactive=not stopping, value=STOPPING if stopping else STOP)

    return Panel(name, state, draw)
