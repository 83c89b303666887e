"""The floor plan of the architecture page, kept by reading every import."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
CORE = ROOT / "triforce_core"
FLOORS = [
    {"errors", "events", "config"},  # words: standard library only
    {"device", "kernels", "sampling", "tokenizer", "vocabulary", "verbatim", "metrics", "flags"},  # the machine
    {"kv_cache", "documents"},  # memory and text
    {"model"},
    {"speculation"},
    {"drafters"},
    {"tuning"},
    {"engine"},
    {"models"},  # checkpoints on this machine and elsewhere
    {"worker"},  # the engine in its own process
    {"scripted", "remote"},  # engines to talk to in its stead
    {"research", "bench", "__main__", "__init__"},  # on the roof
]
FLOOR = {unit: number for number, units in enumerate(FLOORS) for unit in units}
LIGHT = {"errors", "events", "config", "metrics", "flags"}  # standard library only: the parent process imports them


def modules(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*.py") if "__pycache__" not in path.parts)


def imports(path: Path) -> Iterator[tuple[str, list[str]]]:
    """(absolute module, imported names) of every import statement, wherever it stands."""
    package = ".".join(path.relative_to(ROOT).with_suffix("").parts[:-1])
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from ((alias.name, []) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
            yield ".".join([*base, *([node.module] if node.module else [])]), [alias.name for alias in node.names]


def unit_of(path: Path) -> str:
    """The folder or root file of the core that a file belongs to."""
    return path.relative_to(CORE).with_suffix("").parts[0]


def core_units(path: Path) -> Iterator[str]:
    for module, names in imports(path):
        parts = module.split(".")
        if parts[0] == "triforce_core":
            yield from [parts[1]] if len(parts) > 1 else [name for name in names if name in FLOOR]


@pytest.mark.parametrize("path", modules(CORE), ids=lambda path: str(path.relative_to(CORE)))
def test_imports_go_down(path: Path) -> None:
    unit = unit_of(path)
    assert unit in FLOOR, f"give {unit} a floor"
    for target in core_units(path):
        neighbours = FLOOR[target] == FLOOR[unit] and all((CORE / f"{name}.py").exists() for name in (unit, target))
        assert target == unit or FLOOR[target] < FLOOR[unit] or neighbours, f"{path.name} imports {target}"


@pytest.mark.parametrize("unit", sorted(LIGHT))
def test_words_need_the_standard_library_only(unit: str) -> None:
    for module, _ in imports(CORE / f"{unit}.py"):
        assert module.split(".")[0] in {*sys.stdlib_module_names, "triforce_core"}, module
    assert set(core_units(CORE / f"{unit}.py")) <= LIGHT


@pytest.mark.parametrize("path", modules(CORE), ids=lambda path: str(path.relative_to(CORE)))
def test_the_core_knows_no_user_interface(path: Path) -> None:
    assert not {module.split(".")[0] for module, _ in imports(path)} & {"gradio", "ui", "app", "training", "tests"}


@pytest.mark.parametrize("path", [*modules(ROOT / "ui"), ROOT / "app.py"], ids=lambda path: str(path.relative_to(ROOT)))
def test_the_user_interface_uses_the_front_door(path: Path) -> None:
    import triforce_core

    for module, names in imports(path):
        assert not module.startswith("triforce_core."), f"{module}: import from triforce_core"
        assert module.split(".")[0] not in {"torch", "transformers"}, "the page stays light"
        if module == "triforce_core":
            assert set(names) <= set(triforce_core.__all__)


@pytest.mark.parametrize("path", [*modules(CORE), *modules(ROOT / "ui"), *modules(ROOT / "training"), ROOT / "app.py"],
                         ids=lambda path: str(path.relative_to(ROOT)))
def test_files_are_short_and_named_for_what_they_hold(path: Path) -> None:
    assert len(path.read_text().splitlines()) <= 400
    assert not {"utils", "util", "common", "helpers", "misc"} & {part.removesuffix(".py") for part in path.parts}
