"""The child that fills in a chat template: ``python -m triforce_core.sandbox.template_process``.

A template is a program that came with a downloaded file. Jinja's sandbox keeps it from the machine; the limits of this
process keep it from taking all of its memory and time. One request on stdin, one frame for each conversation out.
"""

from __future__ import annotations

import json
import os
import time
from typing import Any

from .child import first_request, restrict, sign_of_life, write_frame

READY = {"ready": True}  # the first frame: what follows is the template's own time


def main() -> None:
    """Read {template, conversations, variables, date, seconds, memory_bytes, characters}. Each frame after ``READY``
    has the text of one conversation, or what went wrong with it: the template's own error, or which limit it met."""
    request, out = first_request()
    environment = _environment(time.gmtime(request["date"]))
    restrict(request["memory_bytes"], int(time.process_time() + request["seconds"]) + 1)
    write_frame(out, READY)
    sign_of_life(request["seconds"])
    for messages in request["conversations"]:
        try:
            answer = _filled_in(environment, request, messages)
        except MemoryError:
            answer = {"limit": "memory"}
        except Exception as problem:  # templates are programs: whatever they raise, they do not work
            answer = {"error": str(problem)[:500] or type(problem).__name__}
        write_frame(out, answer)
    os._exit(0)


def _filled_in(environment: Any, request: dict[str, Any], messages: list[dict[str, str]]) -> dict[str, str]:
    parts, left = [], request["characters"]
    for part in environment.from_string(request["template"]).generate(messages=messages, **request["variables"]):
        left -= len(part)
        if left < 0:
            return {"limit": "characters"}
        parts.append(part)
    return {"text": "".join(parts)}


def _environment(date: time.struct_time) -> Any:
    """Return Jinja's sandbox, with what transformers offers to templates.

    ``tools`` and ``documents`` are not defined, where transformers says None: templates that take tools for given (some
    models bring no other) then write an empty list of them, and do not fail. date: what they take for today."""
    from jinja2 import nodes
    from jinja2.exceptions import TemplateError
    from jinja2.ext import Extension
    from jinja2.parser import Parser
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    class Generation(Extension):
        """Read over ``{% generation %}``, which marks answers for training."""

        tags = {"generation"}  # noqa: RUF012

        def parse(self, parser: Parser) -> list[nodes.Node]:
            next(parser.stream)
            return parser.parse_statements(("name:endgeneration",), drop_needle=True)

    def refuse(message: str) -> None:
        raise TemplateError(message)

    sandbox = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True,
                                            extensions=["jinja2.ext.loopcontrols", Generation])
    sandbox.filters["tojson"] = lambda value, **form: json.dumps(value, **{"ensure_ascii": False, **form})
    sandbox.globals |= {"raise_exception": refuse, "strftime_now": lambda form: time.strftime(form, date)}
    return sandbox


if __name__ == "__main__":
    main()
