"""The hierarchy's settings with every "auto" decided, and the reason in words."""

from __future__ import annotations

from dataclasses import dataclass

from ..config import SpeculationConfig


@dataclass(frozen=True, slots=True)
class Dials:
    """What one answer runs with. why: one sentence fit to show."""

    engine: str
    verifier: str
    small_model: bool
    retrieval: bool
    gamma1: int
    gamma2: int
    budget: int
    chunk_size: int
    recent: int
    refresh: str
    refresh_every: int
    sinks: int
    window: int
    why: str

    @classmethod
    def decide(cls, wanted: SpeculationConfig, *, context_tokens: int, has_draft: bool, on_gpu: bool) -> Dials:
        """Raises nothing: impossible wishes (a budget beyond the context) become the nearest possible, with a why."""

        def auto(value: int | str, default: int) -> int:
            return default if value == "auto" else int(value)

        budget = auto(wanted.budget, 4096 if on_gpu else 768)
        budget = max(budget, 4 * wanted.chunk_size)
        recent = min(auto(wanted.recent, 256), budget - 2 * wanted.chunk_size)
        speculating = wanted.engine == "triforce"
        # A retrieval pass over most of the context costs what a full pass costs.
        retrieval = speculating and context_tokens >= 3 * budget
        small = speculating and has_draft
        gamma1 = auto(wanted.gamma1, 2) if small else 0
        gamma2 = auto(wanted.gamma2, 10 if retrieval else 3) if speculating and (retrieval or small) else 0
        if not speculating:
            why = "plain decoding was chosen"
        elif retrieval and small:
            why = f"small model, then {budget:,} of {context_tokens:,} tokens, then all of them"
        elif retrieval:
            why = f"no draft model: {budget:,} of {context_tokens:,} tokens draft, all of them verify"
        elif small:
            why = f"the context is short ({context_tokens:,} tokens): the small model drafts alone"
        else:
            why = "off: the context is short and there is no draft model"
            speculating = False
        return cls("triforce" if speculating else "autoregressive", wanted.verifier, small, retrieval, gamma1, gamma2,
                   budget, wanted.chunk_size, recent, wanted.refresh, auto(wanted.refresh_every, 1), wanted.sinks,
                   auto(wanted.window, 256), why)
