"""A machine with a GPU, for GPU tests alone, needs torch and what comes with it: ``pytest -m gpu`` collects there."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
THERE = {"filelock", "huggingface_hub", "numpy", "packaging", "pip", "pluggy", "psutil", "pytest", "safetensors",
         "sentencepiece", "setuptools", "tokenizers", "torch", "transformers", "triton"}
# Whatever else is installed, imported from this project, is as if it were not.
HIDES = f"""
import ast, importlib.machinery, importlib.util, sys
from pathlib import Path

root = Path({str(ROOT)!r})
named = set()
for path in [*root.glob("ui/**/*.py"), *root.glob("tests/**/*.py"), *root.glob("triforce_core/**/*.py"),
             *root.glob("docs/**/*.py"), *root.glob("training/**/*.py")]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            named |= {{alias.name.partition(".")[0] for alias in node.names}}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            named.add(node.module.partition(".")[0])
for name in named - sys.stdlib_module_names - {THERE!r}:
    found = None if name in sys.modules else importlib.util.find_spec(name)
    if found is not None and "site-packages" in str(found.origin or found.submodule_search_locations):
        as_folder = importlib.machinery.ModuleSpec(name, None, is_package=True)  # tests/gguf is found in gguf's place
        sys.modules[name] = importlib.util.module_from_spec(as_folder) if (root / "tests" / name).is_dir() else None
"""


def run_pytest(tmp_path: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    (tmp_path / "hides.py").write_text(HIDES, encoding="utf-8")
    given = [*arguments, "-p", "hides", "-p", "no:cacheprovider"]
    code = f"import sys; sys.path.insert(0, {str(tmp_path)!r}); import pytest; sys.exit(pytest.main({given!r}))"
    there = {name: value for name, value in os.environ.items() if name != "TRIFORCE_REQUIRE_BROWSER"}
    return subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=200,
                          env={**there, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"})


@pytest.mark.exhaustive
def test_gpu_tests_collect_where_the_pages_packages_are_missing(tmp_path: Path) -> None:
    done = run_pytest(tmp_path, "-m", "gpu", "--collect-only")
    assert done.returncode == 0, done.stdout[-9000:] + done.stderr[-2000:]
    assert "test_gpu.py" in done.stdout


def test_what_runs_without_a_package_that_it_needs_is_skipped_and_says_so(tmp_path: Path) -> None:
    done = run_pytest(tmp_path, "-rs", "tests/evidence/test_vectors.py", "tests/gguf/test_hostile.py")
    assert done.returncode in (0, 5), done.stdout[-9000:] + done.stderr[-2000:]
    assert "snowballstemmer is not installed" in done.stdout and "gguf is not installed" in done.stdout
