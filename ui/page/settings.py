"""Settings: every one with help in plain words, kept only when all of them are allowed; and the engine's status."""

from __future__ import annotations

from functools import partial
from typing import Any

import gradio as gr

from triforce_core import EngineFacts, LoadProgress, ModelInfo, TriForceError

from ..app.services import Services
from ..app.settings import SETTINGS, Settings, from_form
from ..app.tab_view import TabView
from . import formatting as fmt
from .html import card, esc, meter
from .panel import PRIVATE, Outputs, Panel, block

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
ENGINE = "Engine status"
ENGINE_STATES = {"starting": "Starting", "ready": "Ready", "failed": "Not running"}
ENGINE_SILENT = "Not answering"
WHY = "Why"


def field(name: str, value: Any) -> gr.components.Component:
    """Return the component of one setting."""
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


def build(services: Services, page: gr.Blocks) -> Outputs:
    """Return the panels' components. page: it fills the form when it is loaded."""
    fields: dict[str, gr.components.Component] = {}
    presets: dict[str, gr.Button] = {}
    with gr.Column(elem_id="settings"):
        block("presets-head", '<h2 class="tf-h tf-group">Presets</h2>')
        with gr.Row(elem_id="presets"):
            for name, (label, help_text) in PRESETS.items():
                with gr.Column(min_width=150, elem_classes="tf-preset"):
                    presets[name] = gr.Button(label, elem_id=f"preset-{name}", size="md")
                    block(f"preset-{name}-help", f'<p class="tf-note">{help_text}</p>')
        for number, (title, help_text, names) in enumerate(GROUPS):
            note = f'<p class="tf-note">{help_text}</p>' if help_text else ""
            block(f"settings-group-{number}", f'<h2 class="tf-h tf-group">{title}</h2>{note}')
            with gr.Row(elem_classes="tf-fields"):
                fields |= {name: field(name, getattr(services.settings, name)) for name in names}
        engine = block("engine")
        with gr.Column(elem_id="settings-foot"):  # always in sight: what was saved is said where the hand is
            result = block("settings-result")
            with gr.Row(elem_id="settings-buttons"):
                save = gr.Button("Save", variant="primary", elem_id="settings-save", size="md", min_width=130)
                reset = gr.Button("Restore defaults", elem_id="settings-reset", size="md", min_width=130)
    form = list(fields.values())
    page.load(lambda: values(services.settings), None, form, queue=False, **PRIVATE)
    save.click(lambda *values: keep(services, values), form, [result], queue=False, **PRIVATE)
    for name, preset in presets.items():
        preset.click(partial(choose, services, name), None, [*form, result], queue=False, **PRIVATE)
    default = reset.click(lambda: values(Settings()), None, form, queue=False, **PRIVATE)
    default.then(lambda *values: keep(services, values), form, [result], queue=False, **PRIVATE)
    return {"engine": engine, "longest": fields["max_new_tokens"],
            **{f"preset_{name}": button for name, button in presets.items()}}


def panels(services: Services) -> list[Panel]:
    queue, runs = services.queue, services.runs

    def ratio(view: TabView) -> int | None:
        """Return how many words 100 tokens of the open document make."""
        entry = services.library.get(view.document)
        measured = services.collection.words_per_token(entry) if entry else None
        return round(100 * measured) if measured else None

    def draw_longest(view: TabView) -> dict[str, Any]:
        words = ratio(view)
        return gr.update(info=f"In tokens. In the open document 100 tokens are {words} words." if words
                         else SETTINGS["max_new_tokens"][1])

    def draw_engine(view: TabView) -> str:
        return engine_section(queue.state, queue.model, queue.load_progress, queue.status, queue.waiting,
                              bool(runs.active() or queue.prefills))

    def active(name: str, view: TabView) -> bool:
        return services.settings == services.settings.preset(name)

    def draw_preset(name: str, view: TabView) -> dict[str, Any]:
        label = PRESETS[name][0]
        return gr.update(value=f"✓ {label}", variant="primary") if active(name, view) else gr.update(
            value=label, variant="secondary")

    return [
        Panel("longest", ratio, draw_longest, 0.5),
        Panel("engine", lambda view: (queue.state, queue.model, len(runs.active())), draw_engine, 0.5,
              lambda view: (queue.version, queue.waiting)),
        *(Panel(f"preset_{name}", partial(active, name), partial(draw_preset, name)) for name in PRESETS),
    ]


def keep(services: Services, values: tuple[Any, ...]) -> str:
    """Keep what the form says; return the card to show about it."""
    try:
        restarts = services.keep(from_form(dict(zip(ORDER, values, strict=True))))
    except TriForceError as error:
        return card("error", "Not changed", str(error))
    return card("info", TAB, SETTINGS_ENGINE if restarts else "Saved. The settings apply from the next question on.")


def choose(services: Services, preset: str) -> list[Any]:
    """Keep a preset; return the form's new content and the card to show about it."""
    services.keep(services.settings.preset(preset))
    return [*values(services.settings), card("info", TAB, KEPT.format(name=PRESETS[preset][0]))]


def values(settings: Settings) -> list[Any]:
    """Return the form's content for some settings."""
    return [str(getattr(settings, name)) if name in ("gamma1", "gamma2", "budget") else getattr(settings, name)
            for name in ORDER]


def engine_section(state: str, model: ModelInfo | None, load: LoadProgress | None, status: Any, waiting: int,
                   busy: bool) -> str:
    """Return what runs where and why, memory, queue. Why it failed is said above the tabs."""
    word = "Working" if busy and state == "ready" else ENGINE_STATES[state]
    if getattr(status, "silent_seconds", 0):
        word, state = ENGINE_SILENT, "failed"
    dot = {"ready": "tf-dot-ok", "failed": "tf-dot-bad"}.get(state, "tf-dot-wait")
    html = f'<h3 class="tf-h">{ENGINE} <span class="tf-state-word"><i class="{dot}"></i>{word}</span></h3>'
    if state == "starting" and load:
        html += f'<p class="tf-note">{esc(load.stage)}</p>{meter(load.fraction or 0.0, "", load.stage)}'
    if model is None:
        return html
    facts: EngineFacts | None = getattr(status, "facts", None)
    here = model.mode != "remote"
    rows = [
        ("Model", esc(f"{model.name}, {fmt.size(model.model_bytes)}" if here else model.name)),
        ("Draft", esc(model.draft_name or "none") if here else ""),
        ("Mode", esc(f"{facts.mode if facts else model.mode} ({model.device})")),
        (WHY, esc(facts.why if facts else model.why)),
        ("Drafting", esc(facts.drafting if facts and facts.drafting else model.drafting)),
        ("Number format", esc(f"{model.dtype} ({model.weights})" if model.weights else model.dtype) if here else ""),
        ("Context", fmt.context(model.max_context, model.plan.longest if model.plan else None)),
        ("GPU", memory_use("GPU", facts.device_used, facts.device_free) if facts else ""),
        ("Memory", memory_use("Memory", facts.host_used, facts.host_free) if facts else ""),
        ("Queue", f"{waiting} waiting" if waiting else "empty"),
        ("Process", str(getattr(status, "pid", None) or "")),
    ]
    listed = "".join(f"<dt>{name}</dt><dd>{value}</dd>" for name, value in rows if value)
    return f'{html}<dl class="tf-facts">{listed}</dl>'


def memory_use(name: str, used: int | None, free: int | None) -> str:
    """Return what the engine has of what it could have (bytes); "" where there is no such memory."""
    if used is None or free is None:
        return ""
    return (f"{fmt.memory(used)} used, {fmt.memory(free)} free"
            + meter(used / max(used + free, 1), "tf-meter-thin", name))
