"""The engine: what runs where and why, memory, queue."""

from __future__ import annotations

from typing import Any

from triforce_core import EngineFacts, LoadProgress, ModelInfo

from ..page import number_format as fmt
from ..page.html import esc, meter
from ..words import engine as engine_words


def engine_section(state: str, model: ModelInfo | None, load: LoadProgress | None, status: Any, waiting: int,
                   busy: bool) -> str:
    """The engine: what runs where and why, memory, queue. Why it failed is said above the tabs."""
    word = engine_words.ENGINE_BUSY if busy and state == "ready" else engine_words.ENGINE_STATES[state]
    silent = getattr(status, "silent_seconds", 0)
    word, state = (engine_words.ENGINE_SILENT, "failed") if silent else (word, state)
    dot = {"ready": "tf-dot-ok", "failed": "tf-dot-bad"}.get(state, "tf-dot-wait")
    parts = [f'<h3 class="tf-h">{esc(engine_words.ENGINE)} '
             f'<span class="tf-state-word"><i class="{dot}"></i>{esc(word)}</span></h3>']
    if state == "starting" and load:
        parts.append(f'<p class="tf-note">{esc(load.stage)}</p>{meter(load.fraction or 0.0, "", load.stage)}')
    if model:
        facts: EngineFacts | None = getattr(status, "facts", None)
        here = model.mode != "remote"
        rows = [
            (engine_words.MODEL, esc(engine_words.WEIGHTS.format(model=model.name, size=fmt.size(model.model_bytes))
                                     if here
                                else model.name)),
            (engine_words.DRAFT, esc(model.draft_name or engine_words.NO_DRAFT)),
            (engine_words.MODE, esc(f"{facts.mode if facts else model.mode} ({model.device})")),
            (engine_words.WHY, esc(facts.why if facts else model.why)),
            (engine_words.NUMBERS, esc(f"{model.dtype} ({model.weights})" if model.weights else model.dtype)),
            (engine_words.CONTEXT, esc(fmt.context(model.max_context, model.plan.longest if model.plan else None))),
        ]
        if not here:
            rows = [row for row in rows if row[0] not in (engine_words.DRAFT, engine_words.NUMBERS)]
        drafting = facts.drafting if facts and facts.drafting else model.drafting
        if drafting:
            rows.insert(4, (engine_words.DRAFTING, esc(drafting)))
        if facts and facts.device_used is not None and facts.device_free is not None:
            rows.append((engine_words.GPU_MEMORY, memory_use(engine_words.GPU_MEMORY, facts.device_used,
                                                             facts.device_free)))
        if facts:
            rows.append((engine_words.MEMORY, memory_use(engine_words.MEMORY, facts.host_used, facts.host_free)))
        rows.append((engine_words.QUEUE, esc(engine_words.QUEUE_LENGTH.format(waiting=waiting) if waiting
                                        else engine_words.QUEUE_EMPTY)))
        if getattr(status, "pid", None):
            rows.append((engine_words.PROCESS, str(status.pid)))
        parts.append('<dl class="tf-facts">' + "".join(f"<dt>{esc(name)}</dt><dd>{value}</dd>"
                                                       for name, value in rows) + "</dl>")
    return "".join(parts)


def memory_use(name: str, used: int, free: int) -> str:
    """What the engine has of what it could have."""
    words = engine_words.MEMORY_USE.format(used=fmt.memory(used), free=fmt.memory(free))
    return esc(words) + meter(used / max(used + free, 1), "tf-meter-thin", name)
