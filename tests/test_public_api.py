"""``triforce_core`` promises little, keeps it, and costs nothing to import."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import triforce_core

ROOT = Path(__file__).parents[1]


def run(program: str) -> str:
    return subprocess.run([sys.executable, "-c", program], cwd=ROOT, check=True, capture_output=True, text=True,
                          timeout=60).stdout


def test_all_is_sorted_and_every_name_is_there() -> None:
    assert triforce_core.__all__ == sorted(set(triforce_core.__all__))
    for name in triforce_core.__all__:
        assert getattr(triforce_core, name) is not None
        assert name in dir(triforce_core)


def test_the_front_door_exports_what_the_page_imports_and_no_more() -> None:
    used = {alias.name for path in (*(ROOT / "ui").rglob("*.py"), ROOT / "app.py")
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
            if isinstance(node, ast.ImportFrom) and node.module == "triforce_core" for alias in node.names}
    assert used - {"__version__"} == set(triforce_core.__all__), "change _HOME in triforce_core/__init__.py"


def test_an_unknown_name_is_an_attribute_error() -> None:
    assert not hasattr(triforce_core, "no_such_name")


def test_the_parent_process_stays_light() -> None:
    """Every public name together brings neither torch nor numpy, and the bare import takes under 0.1 s."""
    program = (
        "import sys, time; start = time.perf_counter(); import triforce_core; spent = time.perf_counter() - start\n"
        "for name in triforce_core.__all__: getattr(triforce_core, name)\n"
        "heavy = {'torch', 'numpy', 'transformers', 'gradio', 'sentencepiece'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
        "print(spent)"
    )
    assert min(float(run(program)) for _ in range(3)) < 0.1
