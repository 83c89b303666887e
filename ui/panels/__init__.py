"""One file per part of the page: its components, what it shows (pure functions), and when it is redrawn.

Every panel's HTML reports clicks the same way: an element with ``data-action`` sends its data attributes to
``layout.act``.
"""

from __future__ import annotations

import gradio as gr

CLICKS = """
element.addEventListener('click', event => {
  const target = event.target.closest('[data-action]');
  if (!target || target.disabled) return;
  if (target.dataset.sure && !target.classList.contains('tf-armed')) {
    target.classList.add('tf-armed');
    target.textContent = target.dataset.sure;
    setTimeout(() => {
      target.classList.remove('tf-armed');
      target.textContent = target.dataset.label;
    }, 3000);
    return;
  }
  trigger('click', Object.assign({}, target.dataset));
});
"""


def html(elem_id: str, value: str = "", *, clicks: bool = False) -> gr.HTML:
    """A panel drawn by us. clicks: it has elements with ``data-action``."""
    return gr.HTML(value, elem_id=elem_id, apply_default_css=False, js_on_load=CLICKS if clicks else None)
