"""Chat templates filled in: jinja in its sandbox, with what transformers offers to templates.

One thing differs on purpose: ``tools`` and ``documents`` are not defined, where transformers says None. Templates that
take tools for given (some models bring no other) then write an empty list of them, and do not fail.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ..errors import UnsupportedModelError


def render(template: str, messages: Sequence[Mapping[str, str]], *, generate: bool, thinking: bool,
           names: Mapping[str, Any], where: Path) -> str:
    """generate: up to where the answer begins. thinking: whether the model shall reason before it answers, where it can
    do without. names: special tokens, such as bos_token. where: for messages. Raises UnsupportedModelError."""
    try:
        return str(_environment().from_string(template).render(
            messages=[dict(message) for message in messages], add_generation_prompt=generate,
            enable_thinking=thinking, thinking=thinking, **names))
    except Exception as problem:  # templates are programs: whatever they raise, they do not work
        raise UnsupportedModelError(f"The chat template in {where} does not work: {problem}") from problem


def _environment() -> Any:
    from jinja2 import nodes
    from jinja2.exceptions import TemplateError
    from jinja2.ext import Extension
    from jinja2.parser import Parser
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    class Generation(Extension):
        """``{% generation %}`` marks answers for training: nothing to us."""

        tags = {"generation"}  # noqa: RUF012

        def parse(self, parser: Parser) -> list[nodes.Node]:
            next(parser.stream)
            return parser.parse_statements(("name:endgeneration",), drop_needle=True)

    def refuse(message: str) -> None:
        raise TemplateError(message)

    sandbox = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True,
                                            extensions=["jinja2.ext.loopcontrols", Generation])
    sandbox.filters["tojson"] = lambda value, **form: json.dumps(value, **{"ensure_ascii": False, **form})
    sandbox.globals |= {"raise_exception": refuse, "strftime_now": lambda form: time.strftime(form)}
    return sandbox
