"""README, CONTRIBUTING and the page of measurements: short enough to be read, and what they name exists."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from tests.commands import FLAG, TOOLS, flags, named, tool_flags
from triforce_core.bench import __main__ as bench
from triforce_core.bench import rows

ROOT = Path(__file__).parents[1]
PAGES = {name: (ROOT / name).read_text(encoding="utf-8")
         for name in ("README.md", "CONTRIBUTING.md", "docs/measurements.md")}
README, MEASUREMENTS = PAGES["README.md"], PAGES["docs/measurements.md"]
WIDTH = 120
MOST_LINES = {"README.md": 170, "CONTRIBUTING.md": 75, "docs/measurements.md": 350}
START_AND_TEST = re.findall(r"^```sh\n(.*?)^```$", README, re.M | re.S)  # word for word what .ci/run runs


@pytest.mark.parametrize("page", PAGES)
def test_it_is_short(page: str) -> None:
    found = PAGES[page].splitlines()
    assert len(found) <= MOST_LINES[page]
    assert [line for line in found if len(line) > WIDTH and not line.startswith("|")
            and f"{line}\n" not in START_AND_TEST] == []


def test_readme_opens_with_the_two_commands() -> None:
    start, tests = START_AND_TEST
    assert start.endswith("app.py\n") and tests.endswith("-m pytest -n 2 --dist loadfile\n")
    assert README.index(tests) < README.index("##")
    assert "n == 2' README.md" in (ROOT / ".ci" / "run").read_text(encoding="utf-8")


@pytest.mark.parametrize("page", PAGES)
def test_every_link_leads_somewhere(page: str) -> None:
    links = re.findall(r"\]\(([^)\s]+)\)", PAGES[page])
    assert all((ROOT / page).parent.joinpath(link).exists() for link in links if "://" not in link), links


def test_every_command_and_flag_exists() -> None:
    known = flags()
    for name in TOOLS[1:]:
        known |= tool_flags(name)
    anywhere = set().union(*known.values())
    for page, text in PAGES.items():
        for line in named(text):
            command = line.removeprefix(".venv/bin/")
            if command.startswith("python -m pytest"):
                assert all((ROOT / word).exists() for word in command.split() if word.startswith("tests/")), line
            elif command.startswith("python "):
                name = max((each for each in known if f"{command} ".startswith(f"{each} ")), key=len, default="")
                assert name, f"{page}: `{line}` is no command"
                assert set(FLAG.findall(command)) <= known[name], f"{page}: {line}"
            elif "pip install" not in command:
                assert set(FLAG.findall(command)) <= anywhere, f"{page}: {line}"


def test_the_benchmark_takes_the_commands_of_the_measurements() -> None:
    """Values too: choices, names of settings and of rows."""
    commands = [line for line in named(MEASUREMENTS) if line.startswith("python -m triforce_core.bench ")]
    assert len(commands) > 10
    for command in commands:
        given = bench._parser().parse_args(shlex.split(command)[3:])
        if given.only:
            rows.chosen(rows.combinations(offloaded=False), given.only)
    sweeps = re.findall(r"--sweep (\w+=[\w.,-]+)", MEASUREMENTS)
    assert all(rows.parse_sweep(sweep)[1] for sweep in sweeps) and len(sweeps) > 8


def test_every_file_named_exists() -> None:
    """Folders of the tree are named where they will be; files where they are."""
    for page, text in PAGES.items():
        for name in named(text):
            if re.fullmatch(r"[\w./-]+/[\w.-]+\.(py|md|png|webp)", name):
                assert (ROOT / name).exists() or (ROOT / page).parent.joinpath(name).exists(), f"{page}: {name}"


def test_the_figures_of_the_readme_are_those_of_the_measurements() -> None:
    table = README.partition("## How fast")[2].partition("## ")[0]
    figures = re.findall(r"\d+\.\d+x|\d+(?:\.\d+)? tokens/s|\d+\.\d+ - \d+\.\d+x", table)
    assert len(figures) > 15
    assert [figure for figure in figures if figure not in MEASUREMENTS] == []
