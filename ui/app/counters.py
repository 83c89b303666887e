"""Counts over every answer since the start, for ``/metrics``: numbers only, no word of a document or a conversation."""

from __future__ import annotations

import threading
from collections import Counter

from .runs import Run


class Counters:
    """answers: by end state. tokens: "prompt", "reused" and "generated". tested, accepted: drafted tokens by tier."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.answers: Counter[str] = Counter()
        self.tokens: Counter[str] = Counter()
        self.tested: Counter[str] = Counter()
        self.accepted: Counter[str] = Counter()
        self.full_passes = 0
        self.first_token_seconds = 0.0

    def add(self, run: Run) -> None:
        """An answer or a race that has ended."""
        with self._lock:
            self.answers[run.state] += 1
            for answer in run.accumulators:
                figures = answer.figures()
                self.tokens.update(prompt=figures.prompt_tokens, reused=figures.reused_tokens,
                                   generated=figures.tokens)
                self.full_passes += figures.full_passes
                self.first_token_seconds += figures.time_to_first_token
                for tier, (tested, accepted) in figures.acceptance.items():
                    self.tested[tier] += tested
                    self.accepted[tier] += accepted
