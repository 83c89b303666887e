"""The engine as Settings shows it: what it is, what it does now, and why."""

from __future__ import annotations

from typing import Any

from triforce_core import EngineFacts, LoadProgress, ModelInfo

from . import number_format as fmt
from .html import esc, meter

ENGINE = "Engine status"
ENGINE_STATES = {"starting": "Starting", "ready": "Ready", "failed": "Not running"}
ENGINE_SILENT = "Not answering"
SILENT_TITLE = "The engine does not answer"
SILENT = "The engine has not answered for {seconds} s. If it stays so for {limit} s it is ended, and a new one starts."
ENGINE_FAILED = "The engine did not start"
MODEL = "Model"
DRAFT = "Draft"
WHY = "Why"
CONTEXT = "Context"
WEIGHTS = "{model}, {size}"
MEMORY = "Memory"
GPU_MEMORY = "GPU"
NUMBERS = "Number format"
NO_DRAFT = "none"


def engine_section(state: str, model: ModelInfo | None, load: LoadProgress | None, status: Any, waiting: int,
                   busy: bool) -> str:
    """The engine: what runs where and why, memory, queue. Why it failed is said above the tabs."""
    word = "Working" if busy and state == "ready" else ENGINE_STATES[state]
    silent = getattr(status, "silent_seconds", 0)
    word, state = (ENGINE_SILENT, "failed") if silent else (word, state)
    dot = {"ready": "tf-dot-ok", "failed": "tf-dot-bad"}.get(state, "tf-dot-wait")
    parts = [f'<h3 class="tf-h">{esc(ENGINE)} '
             f'<span class="tf-state-word"><i class="{dot}"></i>{esc(word)}</span></h3>']
    if state == "starting" and load:
        parts.append(f'<p class="tf-note">{esc(load.stage)}</p>{meter(load.fraction or 0.0, "", load.stage)}')
    if model:
        facts: EngineFacts | None = getattr(status, "facts", None)
        here = model.mode != "remote"
        rows = [
            (MODEL, esc(WEIGHTS.format(model=model.name, size=fmt.size(model.model_bytes)) if here else model.name)),
            (DRAFT, esc(model.draft_name or NO_DRAFT)),
            ("Mode", esc(f"{facts.mode if facts else model.mode} ({model.device})")),
            (WHY, esc(facts.why if facts else model.why)),
            (NUMBERS, esc(f"{model.dtype} ({model.weights})" if model.weights else model.dtype)),
            (CONTEXT, esc(fmt.context(model.max_context, model.plan.longest if model.plan else None))),
        ]
        if not here:
            rows = [row for row in rows if row[0] not in (DRAFT, NUMBERS)]
        drafting = facts.drafting if facts and facts.drafting else model.drafting
        if drafting:
            rows.insert(4, ("Drafting", esc(drafting)))
        if facts and facts.device_used is not None and facts.device_free is not None:
            rows.append((GPU_MEMORY, memory_use(GPU_MEMORY, facts.device_used, facts.device_free)))
        if facts:
            rows.append((MEMORY, memory_use(MEMORY, facts.host_used, facts.host_free)))
        rows.append(("Queue", esc(f"{waiting} waiting" if waiting else "empty")))
        if getattr(status, "pid", None):
            rows.append(("Process", str(status.pid)))
        parts.append('<dl class="tf-facts">' + "".join(f"<dt>{esc(name)}</dt><dd>{value}</dd>"
                                                       for name, value in rows) + "</dl>")
    return "".join(parts)


def memory_use(name: str, used: int, free: int) -> str:
    """What the engine has of what it could have."""
    words = f"{fmt.memory(used)} used, {fmt.memory(free)} free"
    return esc(words) + meter(used / max(used + free, 1), "tf-meter-thin", name)
