"""The benchmark as a command: workloads, tables, the line of JSON, and mistakes that end in one line."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from bench.steady_engine import FAST, TEXT, Steady, steady

from triforce_core.bench import __main__ as bench
from triforce_core.bench.workload import SUM_UP, made_needle
from triforce_core.config import SamplingParams, SpeculationConfig
from triforce_core.documents.document import Document


def test_the_command_prints_a_table_and_then_one_line_of_json(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    steady(monkeypatch)
    paths = []
    for name in ("one", "two"):
        paths.append(tmp_path / f"{name}.txt")
        paths[-1].write_text(f"{name} " + TEXT)
    arguments = [argument for path in paths for argument in ("--document", str(path))]
    assert bench.main([*arguments, "--context", "1000", "--new-tokens", "40", "--workload", "questions"]) == 0
    out, err = capsys.readouterr()
    found = json.loads(out.splitlines()[-1])
    assert {"model", "device", "context_tokens", "autoregressive_tokens_per_second", "triforce_tokens_per_second",
            "speedup", "acceptance", "tokens_per_full_pass", "identical_text", "prefill_tokens_per_second",
            "peak_memory_bytes", "threads", "dtype", "versions", "documents", "seed", "machine", "rows",
            "copy_gb_per_second", "host_to_device_gb_per_second", "bytes_per_token", "roofline_tokens_per_second",
            "autoregressive_share_of_roofline"} <= found.keys()
    assert found["speedup"] == pytest.approx(2) and found["answers"] == 6 and len(found["documents"]) == 2
    assert 900 <= found["context_tokens"] <= 1000 and "CUT" in err and "load average" in err


def test_rows_of_a_run_that_breaks_off_have_been_told(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    engine = steady(monkeypatch)
    ask = engine.ask

    def break_off(question: str | None, history: tuple, sampling: SamplingParams, speculation: SpeculationConfig):
        if speculation.engine == FAST and speculation.budget == 1024:
            raise KeyboardInterrupt
        return ask(question, history, sampling, speculation)

    monkeypatch.setattr(engine, "ask", break_off)
    assert bench.main(["--document", __file__, "--policies", "--only", "streaming", "--sweep", "temperature=0,1",
                       "--context", "900", "--new-tokens", "32"]) == 130
    out, err = capsys.readouterr()
    rows = [line for line in err.splitlines() if "t/s" in line]
    assert out == "" and [line.split(": ")[1] for line in rows] == [
        f"streaming temperature=0 budget={budget}" for budget in (256, 512)]
    assert rows[0].endswith("2.00x (10.00 and 20.00 t/s), 4.00 tokens per full pass, draft 24 of 32 (75.0%), same text")


@pytest.mark.parametrize(("workload", "asked", "quotes"), [
    ("summary", SUM_UP, "off"), ("code", None, "auto"), ("table", None, "auto")])
def test_workloads_make_their_own_documents(
    workload: str, asked: str | None, quotes: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    engine = steady(monkeypatch)
    arguments = ["--workload", workload, "--context", "1000", "--new-tokens", "16", "--made-documents", "2"]
    assert bench.main(arguments) == 0
    found = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert [row["title"] for row in found["documents"]] == [f"made {workload} 1", f"made {workload} 2"]
    assert 900 <= found["context_tokens"] <= 1000 and found["workload"] == workload
    assert {(question, speculation.quotes) for question, speculation, _ in engine.log} == {(asked, quotes)}


def test_the_needle_workload_hides_what_it_asks_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    text = tmp_path / "text.txt"
    text.write_text("Nothing is said here. " * 400, encoding="utf-8")
    opened: list[str] = []
    open_document = Steady.open_document

    def remember(self: Steady, document: Document) -> object:
        opened.append(" ".join(page.text for page in document.pages))
        return open_document(self, document)

    monkeypatch.setattr(Steady, "open_document", remember)
    engine = steady(monkeypatch)
    assert bench.main(["--workload", "needle", "--document", str(text), "--context", "1000"]) == 0
    assert json.loads(capsys.readouterr().out.splitlines()[-1])["context_tokens"] <= 1000
    assert {question for question, _, _ in engine.log} == {made_needle(number).question for number in range(3)}
    assert {speculation.quotes for _, speculation, _ in engine.log} == {"off"}
    assert all(made_needle(number).passage in opened[0] for number in range(3))


@pytest.mark.parametrize("arguments", [
    "--context 1", "--repeats 0", "--new-tokens 0", "--nonsense", "--document /no/such/file",
    "--questions /no/such/file",
    "--sweep colour=red", "--sweep budget", "--sweep budget=1,2,1", "--sweep budget=abc",
    "--sweep gamma2=2,4 --sweep gamma2=8", "--peer transformers", "--ablation --sweep middle_cache=none",
    "--made-documents 0", "--grow llama2-7b --saved-readings x", "--combinations --policies",
    "--combinations --only nonsense", "--workload continue,poems", "--workload code,code",
    "--workload all --peer llama.cpp", "--policies --sweep refresh=attention"])
def test_a_mistake_is_one_line(arguments: str, monkeypatch: pytest.MonkeyPatch,
                               capsys: pytest.CaptureFixture[str]) -> None:
    engine = steady(monkeypatch)
    try:
        status = bench.main([*([] if "--document" in arguments else ["--document", __file__]), *arguments.split()])
    except SystemExit as exit_:
        status = exit_.code
    assert status == 2 and capsys.readouterr().err.count("\n") == 1 and not engine.log


def test_help_is_quick_and_light() -> None:
    code = ("import sys; from triforce_core.bench.__main__ import _parser; _parser().format_help(); "
            "assert not {'torch', 'numpy', 'transformers'} & sys.modules.keys()")
    subprocess.run([sys.executable, "-c", code], check=True, cwd=Path(__file__).parents[2])
