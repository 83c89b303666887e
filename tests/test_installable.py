"""The package that pip builds: its command exists, and no file that the code reads is left out of it."""

from __future__ import annotations

import tomllib
from importlib import import_module
from pathlib import Path

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


def test_the_command_is_a_function_that_can_be_imported() -> None:
    module, _, name = PROJECT["project"]["scripts"]["triforce-chat"].partition(":")
    assert callable(getattr(import_module(module), name))


def test_every_data_file_is_packaged() -> None:
    for package, patterns in PROJECT["tool"]["setuptools"]["package-data"].items():
        packaged = {path for pattern in patterns for path in (ROOT / package).glob(pattern)}
        there = {path for path in (ROOT / package).rglob("*") if path.is_file() and path.suffix not in (".py", ".pyc")}
        assert there and there <= packaged, sorted(there - packaged)


def test_every_folder_of_code_is_a_package() -> None:
    for package in ("triforce_core", "ui"):
        folders = {path.parent for path in (ROOT / package).rglob("*.py")}
        assert [folder for folder in sorted(folders) if not (folder / "__init__.py").is_file()] == []
