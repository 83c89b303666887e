"""A run -> OpenAI's answer objects, and ``timings`` under llama.cpp's names. Pure: tested without a server."""

from __future__ import annotations

import json
from typing import Any

from ..app.runs import Run

REASONS = {"stop": "stop", "length": "length", "context": "length", "cancelled": "stop"}


def usage(run: Run) -> dict[str, Any]:
    """Tokens of the whole context count as the prompt; those that were already in the cache stand apart."""
    figures = run.accumulator.figures()
    prompt = figures.prompt_tokens + figures.reused_tokens
    return {"prompt_tokens": prompt, "completion_tokens": figures.tokens, "total_tokens": prompt + figures.tokens,
            "prompt_tokens_details": {"cached_tokens": figures.reused_tokens}}


def timings(run: Run) -> dict[str, Any]:
    """draft_n, draft_n_accepted: drafted tokens that the full model tested and accepted; tiers: every tier's.

    Forced quotations are not drafts in that sense: they stand under tiers only."""
    figures = run.accumulator.figures()
    seconds = figures.tokens / figures.tokens_per_second if figures.tokens_per_second else 0.0
    drafted = [figures.acceptance[tier] for tier in ("retrieval", "draft", "n-gram") if tier in figures.acceptance][:1]
    tested, accepted = drafted[0] if drafted else (0, 0)
    return {
        "cache_n": figures.reused_tokens, "prompt_n": figures.prompt_tokens,
        "prompt_ms": figures.prefill_seconds * 1e3,
        "prompt_per_second": _rate(figures.prompt_tokens, figures.prefill_seconds),
        "predicted_n": figures.tokens, "predicted_ms": seconds * 1e3,
        "predicted_per_second": figures.tokens_per_second, "draft_n": tested, "draft_n_accepted": accepted,
        "full_passes": figures.full_passes, "engine": figures.engine,
        "tiers": {tier: {"tested": n, "accepted": good} for tier, (n, good) in figures.acceptance.items()},
    }


def quotes(run: Run, length: int) -> list[dict[str, Any]]:
    """What decoding told of the quotations in the answer's first ``length`` characters."""
    return [quote for quote in run.quotes if quote["end"] <= length]


def support(run: Run, length: int) -> dict[str, Any]:
    """Which sentences of the answer's first ``length`` characters have a passage in the document; {} where nobody
    looked."""
    return {} if run.support is None else {"support": [one for one in run.support if one["end"] <= length]}


def completion(run: Run, model: str, text: str, reason: str) -> dict[str, Any]:
    message = {"role": "assistant", "content": text, "refusal": None}
    return _head(run, model, "chat.completion") | {
        "choices": [{"index": 0, "message": message, "logprobs": None, "finish_reason": reason}],
        "usage": usage(run), "timings": timings(run), "quotes": quotes(run, len(text)), **run.accumulator.certainty(),
        **support(run, len(text))}


def chunk(run: Run, model: str, delta: dict[str, Any], reason: str | None = None) -> dict[str, Any]:
    made = _head(run, model, "chat.completion.chunk") | {
        "choices": [{"index": 0, "delta": delta, "logprobs": None, "finish_reason": reason}]}
    if reason is None:
        return made
    return made | {"timings": timings(run), **run.accumulator.certainty(), **support(run, len(run.accumulator.text))}


def usage_chunk(run: Run, model: str) -> dict[str, Any]:
    return _head(run, model, "chat.completion.chunk") | {"choices": [], "usage": usage(run)}


def event(value: dict[str, Any]) -> bytes:
    """One server-sent event."""
    return b"data: " + json.dumps(value, ensure_ascii=False).encode() + b"\n\n"


def _head(run: Run, model: str, kind: str) -> dict[str, Any]:
    return {"id": f"chatcmpl-{run.id}", "object": kind, "created": int(run.started_at), "model": model}


def _rate(count: int, seconds: float) -> float:
    return count / seconds if seconds else 0.0
