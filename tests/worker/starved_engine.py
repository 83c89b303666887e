"""The real engine, but an answer to "starve" finds no memory for its caches; runs in the real child."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from unittest.mock import patch

import torch

from triforce_core.config import SamplingParams, SpeculationConfig
from triforce_core.engine.engine import Engine
from triforce_core.engine.session import AnswerEvent
from triforce_core.events import Script, Turn
from triforce_core.kv_cache.base import KVCache


class StarvedEngine(Engine):
    def ask(self, question: str | None, history: Sequence[Turn], sampling: SamplingParams,
            speculation: SpeculationConfig, system: str = "", script: Script | None = None) -> Iterator[AnswerEvent]:
        answer = super().ask(question, history, sampling, speculation, system, script)
        if question != "starve":
            yield from answer
            return
        error = torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 3.50 GiB.")
        with patch.object(KVCache, "__init__", side_effect=error):
            yield from answer
