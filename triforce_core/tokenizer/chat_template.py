"""Chat templates filled in, by a process with limits: see ``sandbox.template_process``."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..config import require
from ..errors import UnsupportedModelError
from ..sandbox.child import NOTHING, ChildProcess

_START_SECONDS = 60.0  # for the process to come up, on a disk that is busy with weights
_SECONDS = 5.0  # for all conversations together; ordinary templates take milliseconds
_MEMORY_BYTES = 512 * 2**20  # address space of the process, of which Python takes some 30 MiB
_CHARACTERS = 2**20  # that one conversation may become, and a template may have; real ones have up to 20,000
_TICK = 0.05

Messages = Sequence[Mapping[str, Any]]


@dataclass(frozen=True)
class ChatTemplate:
    """A model's template. names: special tokens, such as bos_token. where: for messages."""

    text: str
    where: Path
    names: Mapping[str, Any] = field(default_factory=dict)

    def render(self, conversations: Sequence[Messages], *, generate: bool, thinking: bool
               ) -> list[str | UnsupportedModelError]:
        """Return each conversation filled in, or the template's own refusal of it. One process does them all, since
        it takes a while to start.

        generate: up to where the answer begins. thinking: whether the model shall reason before it answers, where it
        can do without. Raises UnsupportedModelError where the template exceeds a limit, ConfigError where jinja
        is not installed."""
        require(["jinja2"], "A chat template")
        if len(self.text) > _CHARACTERS:
            raise self._beyond(f"it has {len(self.text):,} characters", f"up to {_CHARACTERS:,}")
        variables: dict[str, Any] = {name: str(value) if not isinstance(value, list) else [str(each) for each in value]
                     for name, value in self.names.items()}
        variables |= {"add_generation_prompt": generate, "enable_thinking": thinking, "thinking": thinking}
        with ChildProcess("triforce_core.sandbox.template_process") as child:
            child.ask({"template": self.text, "variables": variables, "seconds": _SECONDS, "date": self._date(),
                       "conversations": [[dict(message) for message in messages] for messages in conversations],
                       "memory_bytes": _MEMORY_BYTES, "characters": _CHARACTERS})
            self._next(child, time.monotonic() + _START_SECONDS)
            until = time.monotonic() + _SECONDS
            return [self._result(self._next(child, until)) for _ in conversations]

    def _date(self) -> float:
        """Return when the model's files were written. A template that writes today's date stands before the document:
        with another date every day, no saved reading would fit on the next."""
        try:
            return self.where.stat().st_mtime
        except OSError:
            return 0.0

    def _next(self, child: ChildProcess, until: float) -> dict[str, Any]:
        message: dict[str, Any] | None = NOTHING
        while message is NOTHING and time.monotonic() < until:
            message = child.next(_TICK)
        if message is NOTHING:
            raise self._beyond("it takes too long", f"{_SECONDS:g} seconds")
        if message is None:
            raise self._beyond("the process that filled it in was ended by a limit",
                               f"{_SECONDS:g} seconds, {_MEMORY_BYTES >> 20} MiB of memory")
        return message

    def _result(self, message: dict[str, Any]) -> str | UnsupportedModelError:
        if message.get("limit") == "memory":
            raise self._beyond("it needs too much memory", f"{_MEMORY_BYTES >> 20} MiB")
        if "limit" in message:
            raise self._beyond("it writes too much", f"{_CHARACTERS:,} characters")
        if "text" in message:
            return str(message["text"])
        return UnsupportedModelError(f"The chat template in {self.where} does not work: {message.get('error')}")

    def _beyond(self, what: str, allowed: str) -> UnsupportedModelError:
        return UnsupportedModelError(f"The chat template in {self.where} does not work: {what}", allowed=allowed,
                                     remedy="Copy the model folder again, or get the model from somebody you trust.")
