"""Settings: every one with help in plain words; kept only when all of them are allowed."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import gradio as gr

from triforce_core import TriForceError

from ..app.services import Services
from ..app.settings import SETTINGS, Settings, from_form
from ..app.tab_view import TabView
from .engine import engine_section
from .html import card, esc
from .panel import PRIVATE, Panel, block

TAB = "Settings"
SETTINGS_ENGINE = "Saved. The engine restarts with the settings; documents come back from their saved readings."
CHOICES = {
    "engine": (("Automatic", "auto"), ("TriForce", "triforce"), ("Plain", "autoregressive")),
    "retrieval_weights": (("Automatic", "auto"), ("The model's own", "same")),
    "ngram": (("Automatic", "auto"), ("Always", "straight"), ("Off", "off")),
    "details": (("On", "on"), ("Off", "off")),
    "quotes": (("Automatic", "auto"), ("On", "on"), ("Off", "off")),
    "mode": (("Automatic", "auto"), ("All on the GPU", "on-chip"), ("Cache in host memory", "offload"), ("CPU", "cpu")),
    "dtype": (("Automatic", "auto"), ("Exact (float32)", "float32")),
}


ACTIVE = "✓ {name}"
KEPT = "{name}: saved. It applies from the next question on; single settings can be changed below."
PRESETS = {  # name -> label, help
    "precise": ("Precise", "Always the likeliest word. The same question has the same answer."),
    "balanced": ("Balanced", "Some variety, close to the text. Asking again gives another answer."),
    "creative": ("Creative", "Much variety: for ideas, not for facts."),
    "fast": ("Maximum speed", "The likeliest words, which drafts guess best; no details of single tokens."),
}


GROUPS = (
    ("Answers", "", ("temperature", "top_p", "max_new_tokens", "seed", "quotes", "details")),
    ("Speculation", "None of these changes what the model would say: only how fast it says it.",
     ("engine", "gamma1", "gamma2", "budget", "chunk_size", "retrieval_weights", "ngram")),
    ("Engine", "", ("mode", "dtype")),
)
ORDER = tuple(name for _, _, names in GROUPS for name in names)


@dataclass(frozen=True)
class SettingsForm:
    fields: dict[str, gr.components.Component]
    presets: dict[str, gr.Button]
    save: gr.Button
    reset: gr.Button
    result: gr.HTML
    engine: gr.HTML


def field(name: str, value: Any) -> gr.components.Component:
    """The component of one setting."""
    label, info = SETTINGS[name]
    common = {"label": label, "info": info, "value": value, "elem_id": f"set-{name.replace('_', '-')}",
              "interactive": True}
    if name in CHOICES:
        return gr.Radio(list(CHOICES[name]), **common)
    if name == "temperature":
        return gr.Slider(0, 2, step=0.05, **common)
    if name == "top_p":
        return gr.Slider(0.05, 1, step=0.05, **common)
    if name in ("max_new_tokens", "seed", "chunk_size"):
        return gr.Number(**common)
    return gr.Textbox(**common | {"value": str(value)}, max_lines=1)


def build(settings: Settings) -> SettingsForm:
    fields: dict[str, gr.components.Component] = {}
    presets: dict[str, gr.Button] = {}
    with gr.Column(elem_id="settings"):
        block("presets-head", '<h2 class="tf-h tf-group">Presets</h2>')
        with gr.Row(elem_id="presets"):
            for name, (label, help_text) in PRESETS.items():
                with gr.Column(min_width=150, elem_classes="tf-preset"):
                    presets[name] = gr.Button(label, elem_id=f"preset-{name}", size="md")
                    block(f"preset-{name}-help", f'<p class="tf-note">{esc(help_text)}</p>')
        for number, (title, help_text, names) in enumerate(GROUPS):
            note = f'<p class="tf-note">{esc(help_text)}</p>' if help_text else ""
            block(f"settings-group-{number}", f'<h2 class="tf-h tf-group">{esc(title)}</h2>{note}')
            with gr.Row(elem_classes="tf-fields"):
                for name in names:
                    fields[name] = field(name, getattr(settings, name))
        engine = block("engine")
        with gr.Column(elem_id="settings-foot"):  # always in sight: what was saved is said where the hand is
            result = block("settings-result")
            with gr.Row(elem_id="settings-buttons"):
                save = gr.Button("Save", variant="primary", elem_id="settings-save", size="md", min_width=130)
                reset = gr.Button("Restore defaults", elem_id="settings-reset", size="md", min_width=130)
    return SettingsForm({name: fields[name] for name in ORDER}, presets, save, reset, result, engine)


def panels(services: Services) -> list[Panel]:
    def ratio(view: TabView) -> int | None:
        """Words that 100 tokens of the open document make."""
        entry = services.library.get(view.document)
        measured = services.collection.words_per_token(entry) if entry else None
        return round(100 * measured) if measured else None

    def draw(view: TabView) -> dict[str, Any]:
        words = ratio(view)
        return gr.update(info=f"In tokens. In the open document 100 tokens are {words} words." if words
                         else SETTINGS["max_new_tokens"][1])

    return [Panel("longest", ratio, draw, 0.5), _engine_panel(services),
            *(_preset_panel(services, name) for name in PRESETS)]


def _preset_panel(services: Services, name: str) -> Panel:
    def active(view: TabView) -> bool:
        return services.settings == services.settings.preset(name)

    def draw(view: TabView) -> dict[str, Any]:
        label = PRESETS[name][0]
        return gr.update(value=ACTIVE.format(name=label) if active(view) else label,
                         variant="primary" if active(view) else "secondary")

    return Panel(f"preset_{name}", active, draw)


def _engine_panel(services: Services) -> Panel:
    queue, runs = services.queue, services.runs

    def draw(view: TabView) -> str:
        return engine_section(queue.state, queue.model, queue.load_progress, queue.status, queue.waiting,
                              bool(runs.active() or queue.prefills))

    return Panel("engine", lambda view: (queue.state, queue.model, len(runs.active())), draw, 0.5,
                 lambda view: (queue.version, queue.waiting))


def keep(services: Services, values: tuple[Any, ...]) -> str:
    """Keep what the form says; the card to show about it."""
    try:
        restarts = services.keep(from_form(dict(zip(ORDER, values, strict=True))))
    except TriForceError as error:
        return card("error", "Not changed", str(error))
    return card("info", TAB, SETTINGS_ENGINE if restarts else "Saved. The settings apply from the next question on.")


def choose(services: Services, preset: str) -> list[Any]:
    """Keep a preset; the form's new content and the card to show about it."""
    services.keep(services.settings.preset(preset))
    said = KEPT.format(name=PRESETS[preset][0])
    return [*values(services.settings), card("info", TAB, said)]


def values(settings: Settings) -> list[Any]:
    """The form's content for some settings."""
    return [str(getattr(settings, name)) if name in ("gamma1", "gamma2", "budget") else getattr(settings, name)
            for name in ORDER]


def wire(services: Services, form: SettingsForm) -> None:
    fields = list(form.fields.values())
    form.save.click(lambda *values: keep(services, values), fields, [form.result], queue=False, **PRIVATE)
    for name, preset in form.presets.items():
        preset.click(partial(choose, services, name), None, [*fields, form.result], queue=False, **PRIVATE)
    reset = form.reset.click(lambda: values(Settings()), None, fields, queue=False, **PRIVATE)
    reset.then(lambda *values: keep(services, values), fields, [form.result], queue=False, **PRIVATE)
