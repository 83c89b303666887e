"""The commands of this project and their flags, for tests of what its pages say."""

from __future__ import annotations

import io
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import redirect_stdout
from importlib import import_module
from unittest.mock import patch

import pytest

from triforce_core import __main__ as cli
from ui.app import arguments

FLAG = re.compile(r"--[a-z][a-z0-9-]*")
TOOLS = ("triforce_core.bench", "triforce_core.bench.answers", "triforce_core.bench.short_answers",
         "docs.attached", "docs.first_answer",
         "docs.first_run", "docs.handbook", "docs.memory",
         "docs.page_load", "docs.scans", "docs.screenshots", "training.evaluate", "training.gguf_export",
         "training.hidden_questions", "triforce_core.bench.kernels")


def flags() -> dict[str, set[str]]:
    """Of every command that a user of the app needs, as its --help has them."""
    helps = {"python app.py": _help(lambda: arguments.parse(["--help"]))}
    for name, command in cli._parser()._subparsers._group_actions[0].choices.items():  # type: ignore[union-attr]
        helps[f"python -m triforce_core {name}"] = command.format_help()
    return {command: set(FLAG.findall(text)) for command, text in helps.items()} | tool_flags(TOOLS[0])


def tool_flags(name: str) -> dict[str, set[str]]:
    """Of one module that is run as a command."""
    module = pytest.importorskip(name)  # the tools of docs/ need more than the app does
    if hasattr(module, "__path__"):
        module = import_module(f"{name}.__main__")
    with patch.object(sys, "argv", [name, "--help"]):
        return {f"python -m {name}": set(FLAG.findall(_help(module.main)))}


def _help(command: Callable[[], object]) -> str:
    out = io.StringIO()
    with redirect_stdout(out), pytest.raises(SystemExit):
        command()
    return out.getvalue()


def named(markdown: str) -> Iterator[str]:
    """Code spans, and lines of fenced code; a line that ends in a backslash goes on in the next."""
    fenced = re.findall(r"^```(?:sh)?\n(.*?)^```$", markdown, re.M | re.S)
    for block in fenced:
        yield from block.replace("\\\n", " ").splitlines()
    yield from re.findall(r"`([^`\n]+)`", re.sub(r"^```.*?^```$", "", markdown, flags=re.M | re.S))
