"""The floor plan of the architecture page, kept by reading every import."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
CORE = ROOT / "triforce_core"
FLOORS = [
    {"errors", "surrogates", "events", "config", "assets"},  # words and files: standard library only
    {"gguf", "native_build", "sandbox", "pipe"},  # a file format; a compiler; processes of ours
    {"device", "kernels", "sampling", "tokenizer", "metrics", "flags"},  # the machine
    {"kv_cache", "documents"},  # memory and text
    {"model", "prompt", "evidence"},
    {"speculation"},
    {"engine"},
    {"research"},  # exists to be compared
    {"models"},  # checkpoints on this machine and elsewhere
    {"worker"},  # the engine in its own process
    {"remote"},  # an engine to talk to in its stead
    {"bench", "__main__", "__init__"},  # on the roof
]
FLOOR = {unit: number for number, units in enumerate(FLOORS) for unit in units}
# Standard library only: the parent process imports them.
LIGHT = {"errors", "surrogates", "events", "config", "metrics", "flags"}


def modules(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*.py") if "__pycache__" not in path.parts)


@cache
def nodes(path: Path) -> list[ast.AST]:
    """Of a file's syntax, read once for all rules."""
    return list(ast.walk(ast.parse(path.read_text())))


@cache
def imports(path: Path) -> list[tuple[str, list[str]]]:
    """(absolute module, imported names) of every import statement, wherever it stands."""
    package = path.relative_to(ROOT).with_suffix("").parts[:-1]
    found: list[tuple[str, list[str]]] = []
    for node in nodes(path):
        if isinstance(node, ast.Import):
            found += [(alias.name, []) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else ()
            found.append((".".join([*base, *([node.module] if node.module else [])]),
                          [alias.name for alias in node.names]))
    return found


def unit_of(path: Path) -> str:
    """The folder or root file of the core that a file belongs to."""
    return path.relative_to(CORE).with_suffix("").parts[0]


def files_of(unit: str) -> list[Path]:
    """Of a folder or root file of the core."""
    return [path for path in modules(CORE) if unit_of(path) == unit]


def core_units(path: Path) -> Iterator[str]:
    for module, names in imports(path):
        parts = module.split(".")
        if parts[0] == "triforce_core":
            yield from [parts[1]] if len(parts) > 1 else [name for name in names if name in FLOOR]


# By folder, not by file: a thousand tests of a millisecond each took ten seconds to collect and to report.
of_the_core = pytest.mark.parametrize("unit", sorted({unit_of(path) for path in modules(CORE)}))


@of_the_core
def test_imports_go_down(unit: str) -> None:
    assert unit in FLOOR, f"give {unit} a floor"
    for path in files_of(unit):
        for target in core_units(path):
            neighbours = FLOOR[target] == FLOOR[unit] and all((CORE / f"{name}.py").exists() for name in (unit, target))
            assert target == unit or FLOOR[target] < FLOOR[unit] or neighbours, f"{path} imports {target}"


def test_evidence_knows_no_language_model() -> None:
    """Neither its ids nor its words: one index of a document serves every model."""
    for path in files_of("evidence"):
        assert not set(core_units(path)) & {"engine", "model", "prompt", "sampling", "tokenizer"}, path
    for path in (*files_of("prompt"), *files_of("model")):
        assert "evidence" not in set(core_units(path)), path


@pytest.mark.parametrize("unit", sorted(LIGHT))
def test_words_need_the_standard_library_only(unit: str) -> None:
    for module, _ in imports(CORE / f"{unit}.py"):
        assert module.split(".")[0] in {*sys.stdlib_module_names, "triforce_core"}, module
    assert set(core_units(CORE / f"{unit}.py")) <= LIGHT


@of_the_core
def test_the_core_knows_no_user_interface(unit: str) -> None:
    for path in files_of(unit):
        used = {module.split(".")[0] for module, _ in imports(path)}
        assert not used & {"gradio", "ui", "app", "training", "tests"}, path


def test_the_user_interface_uses_the_front_door() -> None:
    import triforce_core

    for path in (*modules(ROOT / "ui"), ROOT / "app.py"):
        for module, names in imports(path):
            assert not module.startswith("triforce_core."), f"{path}, {module}: import from triforce_core"
            assert module.split(".")[0] not in {"torch", "transformers"}, f"{path}: the page stays light"
            if module == "triforce_core":
                assert set(names) <= {*triforce_core.__all__, "__version__"}, path


# What stands for a comparison in code: only ``research`` and the benchmark know such words.
COMPARISONS = re.compile(r"sequoia|specinfer|h2o|heavy|lenien|(?<!delete )cascade|chunk.?means|self[-_]skip|"
                         r"top[-_]k_att|tree_(tier|size|depth)|max.?gram|ngram_tail|research", re.IGNORECASE)
KNOW_COMPARISONS = {"bench", "research"}


def without_prose(path: Path) -> str:
    """A file's code, without comments and docstrings."""
    tree = ast.parse(path.read_text())
    for node in ast.walk(tree):
        told = isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        if told and ast.get_docstring(node):
            node.body[0] = ast.Pass()
    return ast.unparse(tree)


@of_the_core
def test_comparisons_stay_in_their_folder(unit: str) -> None:
    for path in files_of(unit) if unit not in KNOW_COMPARISONS else ():
        assert not COMPARISONS.findall(without_prose(path)), path


def test_the_page_knows_no_comparison() -> None:
    for path in (*modules(ROOT / "ui"), ROOT / "app.py"):
        assert not COMPARISONS.findall(without_prose(path)), path


def test_the_usual_way_loads_no_comparison(tmp_path: Path) -> None:
    program = f"""
import sys
from pathlib import Path
from engine.tiny import document, write_model
from triforce_core.config import EngineConfig, SamplingParams, SpeculationConfig
from triforce_core.engine.engine import Engine
root = Path({str(tmp_path)!r})
engine = Engine(EngineConfig(model=str(write_model(root / "target", layers=1, heads=2, seed=1)),
                             draft_model=str(write_model(root / "draft", layers=1, heads=2, seed=2)), mode="cpu"))
list(engine.load())
list(engine.open_document(document(60)))
*_, done = engine.ask("Who found the lamp?", (), SamplingParams(max_new_tokens=4), SpeculationConfig(budget=64))
assert done.stats.engine == "triforce", done.stats.why
print(*[name for name in sys.modules if name.startswith("triforce_core.research")])
"""
    told = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True,
                          env={**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT / 'tests'}"})
    assert told.stdout == "\n"


def test_the_engine_asks_for_no_kind() -> None:
    """Of a drafter or a cache: what it needs is in their contracts. Build alone makes them."""
    kinds = {node.name for folder in ("kv_cache", "speculation", "research")
             for file in modules(CORE / folder) for node in nodes(file) if isinstance(node, ast.ClassDef)}
    for path in modules(CORE / "engine"):
        for node in nodes(path):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "isinstance":
                named = {part.id for part in ast.walk(node.args[1]) if isinstance(part, ast.Name)}
                assert not named & kinds, f"{path}, line {node.lineno}"


UI = ROOT / "ui"
UI_FOLDERS = {  # of ui/: the other folders of it that each may import from; gradio is for those that say so
    "assets": set(),
    "app": set(),
    "page": {"app", "gradio"},
    "api": {"app", "page"},
    "server": {"app", "page", "api", "gradio"},
}


@cache
def all_modules() -> dict[str, Path]:
    """Return the files of the core and of ui/ by their dotted names."""
    return {".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): path
            for path in (*modules(CORE), *modules(UI))}


@cache
def own_imports(path: Path) -> set[str]:
    """Return the modules of the core and of ui/ that a file imports, wherever the statement stands."""
    known = all_modules()
    found = set()
    for module, names in imports(path):
        for name in names or [""]:
            full = f"{module}.{name}"
            found.add(full if full in known else module)
    return found & set(known)


def ui_imports(path: Path) -> set[str]:
    return {name for name in own_imports(path) if name.split(".")[0] == "ui"}


@cache
def reachable(name: str) -> set[str]:
    """Return all modules that importing one may import, at once or later."""
    found, left = set(), [name]
    while left:
        new = own_imports(all_modules()[left.pop()]) - found
        found |= new
        left += new
    return found


def test_no_circle_of_imports_joins_files_of_different_rooms() -> None:
    """A room is a folder, or a file beside the folders; imports for type checkers alone count too."""
    for name, path in all_modules().items():
        for other in own_imports(path):
            if other.split(".")[:2] != name.split(".")[:2]:
                assert name not in reachable(other), f"{name} imports {other}, which leads back to it"


@pytest.mark.parametrize("folder", UI_FOLDERS)
def test_each_folder_of_ui_knows_what_it_may(folder: str) -> None:
    for path in modules(UI / folder):
        used = {name.split(".")[1] for name in ui_imports(path) if "." in name}
        used |= {"gradio"} & {module.split(".")[0] for module, _ in imports(path)}
        assert used <= UI_FOLDERS[folder] | {folder}, path
        assert "ui" not in ui_imports(path), f"{path}: the front door is for app.py"


def test_the_server_is_imported_by_the_front_door_alone() -> None:
    """``ui/__init__`` is app.py's way in; besides it, ``ui.server`` and the tests, nobody knows that there is one."""
    users = {name for name, path in all_modules().items() for used in ui_imports(path) if used.startswith("ui.server")}
    assert {name for name in users if not name.startswith("ui.server")} == {"ui"}
    assert not {module for module, _ in imports(ROOT / "app.py") if module.startswith("ui.")}


def test_no_modules_of_ui_import_each_other_in_a_circle() -> None:
    left = {name: ui_imports(path) - {name} for name, path in all_modules().items() if path.is_relative_to(UI)}
    while free := {name for name, used in left.items() if not used & set(left)}:
        left = {name: used for name, used in left.items() if name not in free}
    assert not left, f"in a circle, or behind one: {sorted(left)}"


def test_the_app_makes_no_html() -> None:
    for path in modules(UI / "app"):
        for node in nodes(path):
            html = isinstance(node, ast.Constant) and isinstance(node.value, str) and "</" in node.value
            assert not html, f"{path}, line {node.lineno}"


def test_checks_and_api_work_without_gradio() -> None:
    """A refusal at the start must come at once, and Gradio must find a quiet environment when it is imported."""
    program = ("import sys; import ui.server.lifecycle, ui.server.preflight, ui.api; "
               "print(*{'gradio', 'torch'} & set(sys.modules))")
    printed = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True)
    assert printed.stdout.strip() == ""


def test_the_app_works_without_gradio_and_starlette() -> None:
    """What a person can do can be tested, and used, where no page can be shown."""
    program = ("import sys; import ui.app.services, ui.app.tabs; "
               "print(*{'gradio', 'starlette', 'fastapi', 'torch'} & set(sys.modules))")
    told = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True)
    assert told.stdout.strip() == ""
