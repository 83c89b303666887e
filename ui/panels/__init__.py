"""One file per part of the page: its components, when each is redrawn by what of ``ui.view``, and its events.

Every panel's HTML reports clicks the same way: an element with ``data-action`` sends its data attributes to
``actions.act``.
"""

from __future__ import annotations

import gradio as gr

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


def html(elem_id: str, value: str = "", *, clicks: bool = False, begin: str = "") -> gr.HTML:
    """A panel drawn by us. clicks: it has elements with ``data-action``. begin: a script for when it is there, which on
    a tab that nobody opened it is not."""
    script = (CLICKS if clicks else "") + begin
    return gr.HTML(value, elem_id=elem_id, apply_default_css=False, js_on_load=script or None)
