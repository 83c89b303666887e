"""Gradio's theme in our colours, and what goes into the page's head. The colours themselves live in style.css."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import gradio as gr

from . import reader
from .chat import COPIED, READ_ALOUD, READ_SILENT
from .html import COPY
from .library import DROP_ANYWHERE, DROP_HELP, DROP_HERE, DROP_OTHER
from .provenance import STAGES, TRACE_WORDS

ASSETS = Path(__file__).resolve().parents[1] / "assets"  # of ui/
SANS = ("system-ui", "-apple-system", "Segoe UI", "Roboto", "Noto Sans", "sans-serif")
# talks.js hears keys first: Escape that closes a box does not also stop the answer.
SCRIPTS = ("talks.js", "page.js", "reader.js", "trace.js", "chapters.js", "writing.js", "drop.js", "address.js")
STYLES = ("style.css", "talks.css", "shelf.css", "models.css")
SCRIPT, STYLE = "page.js", "page.css"  # as they are served: one file each
MONO = ("ui-monospace", "SFMono-Regular", "Menlo", "Consolas", "monospace")


def theme() -> gr.themes.Base:
    """Return a theme without web fonts, with flat surfaces and the variables of style.css for Gradio's colours."""
    made = gr.themes.Base(font=list(SANS), font_mono=list(MONO), radius_size=gr.themes.sizes.radius_md,
                          text_size=gr.themes.sizes.text_md, spacing_size=gr.themes.sizes.spacing_md)
    surfaces = {
        "body_background_fill": "var(--tf-ground)", "body_text_color": "var(--tf-ink)",
        "body_text_color_subdued": "var(--tf-ink-2)", "background_fill_primary": "var(--tf-surface)",
        "background_fill_secondary": "var(--tf-ground)", "border_color_primary": "var(--tf-line)",
        "border_color_accent": "var(--tf-accent)", "color_accent_soft": "var(--tf-accent-soft)",
        "block_background_fill": "var(--tf-surface)", "block_border_color": "var(--tf-line)",
        "block_label_background_fill": "var(--tf-surface)", "block_label_text_color": "var(--tf-ink-2)",
        "block_title_text_color": "var(--tf-ink)", "block_info_text_color": "var(--tf-ink-2)",
        "input_background_fill": "var(--tf-field)", "input_background_fill_focus": "var(--tf-field)",
        "input_border_color": "var(--tf-line-2)", "input_border_color_focus": "var(--tf-accent)",
        "input_placeholder_color": "var(--tf-ink-3)", "button_primary_background_fill": "var(--tf-accent)",
        "button_primary_background_fill_hover": "var(--tf-accent-2)",
        "button_primary_text_color": "var(--tf-on-accent)",
        "button_primary_border_color": "transparent", "button_secondary_background_fill": "var(--tf-field)",
        "button_secondary_background_fill_hover": "var(--tf-hover)", "button_secondary_text_color": "var(--tf-ink)",
        "button_secondary_border_color": "var(--tf-line-2)", "button_cancel_background_fill": "var(--tf-bad-soft)",
        "button_cancel_background_fill_hover": "var(--tf-bad-soft)", "button_cancel_text_color": "var(--tf-bad)",
        "button_cancel_border_color": "var(--tf-bad)", "slider_color": "var(--tf-accent)",
        "link_text_color": "var(--tf-accent)", "checkbox_label_background_fill": "var(--tf-field)",
        "checkbox_label_background_fill_selected": "var(--tf-accent-soft)",
        "checkbox_background_color": "var(--tf-field)", "checkbox_border_color": "var(--tf-ink-3)",
        "checkbox_label_text_color_selected": "var(--tf-ink)", "checkbox_background_color_selected": "var(--tf-accent)",
        "checkbox_border_color_selected": "var(--tf-accent)",
        "checkbox_label_border_color_selected": "var(--tf-accent)",
        "panel_background_fill": "var(--tf-surface)", "code_background_fill": "var(--tf-field)",
    }
    values: dict[str, str] = {"block_shadow": "none", "button_primary_shadow": "none", "block_border_width": "0px",
                              "input_border_width": "1px",
                              "input_shadow": "none", "input_shadow_focus": "0 0 0 3px var(--tf-accent-soft)",
                              "color_accent": "var(--tf-accent)"}
    for name, value in surfaces.items():
        values[name] = value
        values[f"{name}_dark"] = value
    return made.set(**values)


def files() -> dict[str, str]:
    """Return our style sheet and script (keys, panes, copy, replay) by name, with the few words that they show.

    Not through ``css=``: Gradio would put its container's class before every selector, also before ``body``."""
    words = json.dumps({
        "copy": COPY, "copied": COPIED, "readAloud": READ_ALOUD, "readSilent": READ_SILENT,
        "trace": {**TRACE_WORDS, "stages": STAGES}, "pageEmpty": reader.PAGE_EMPTY, "pageBroken": reader.PAGE_BROKEN,
        "findBroken": reader.FIND_BROKEN, "linked": reader.LINKED, "link": reader.LINK,
        "drop": {"label": f"{DROP_HERE} {DROP_HELP}".replace("\n", " "), "here": DROP_ANYWHERE, "other": DROP_OTHER}})
    drop = json.dumps(f"{DROP_HERE}\n{DROP_HELP}").replace("\\n", "\\A ")
    script, style = ("\n".join((ASSETS / name).read_text(encoding="utf-8") for name in names)
                     for names in (SCRIPTS, STYLES))
    return {STYLE: f":root {{ --tf-drop: {drop}; }}\n{style}", SCRIPT: f"const TF_WORDS = {words};\n{script}"}


def head(address: Callable[[str], str]) -> str:
    """Return what goes into the page's head. address: of one of ``files``.

    Gradio's own script would put all of it into the head a second time, so it is taken from the page's description
    as soon as that has been read."""
    return (f'<link rel="stylesheet" href="{address(STYLE)}">'
            '<meta name="viewport" content="width=device-width, initial-scale=1">'
            "<script>document.addEventListener('readystatechange', () => {"
            " if (window.gradio_config) window.gradio_config.head = null; });</script>"
            f'<script src="{address(SCRIPT)}"></script>')
