"""llama.cpp as a peer: what is asked of its benchmark, what is made of its rows, and what stands in its way."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from bench.steady_engine import steady

from triforce_core.bench import __main__ as command
from triforce_core.bench import llama_cpp
from triforce_core.bench.llama_cpp import SETTING, check_model, find_binary, run_llama_cpp
from triforce_core.config import EngineConfig
from triforce_core.errors import ConfigError

# A program in its place: rates that depend on the attention path, and what it was asked for.
FAKE = """#!{python}
import json, sys
given = dict(zip(sys.argv[1::2], sys.argv[2::2]))
assert given["-ngl"] == "0" and given["-o"] == "jsonl", given
if "broken" in given["-m"]:
    sys.exit("cannot load it")
for flash in (0, 1):
    print(json.dumps({{"n_gen": int(given["-n"]), "n_prompt": int(given["-p"]), "flash_attn": flash,
                       "avg_ts": (10.0 if given["-n"] != "0" else 200.0) + flash, "stddev_ts": 0.5,
                       "build_commit": "abc", "threads": given["-t"]}}))
"""


@pytest.fixture
def binary(tmp_path: Path) -> Path:
    path = tmp_path / "llama-bench"
    path.write_text(FAKE.format(python=sys.executable), encoding="utf-8")
    path.chmod(0o700)
    return path


def test_the_better_attention_counts(binary: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = run_llama_cpp(EngineConfig(model="a/model.gguf"), None, binary, 1000, 2, 3, tmp_path)
    assert found is not None and found["tokens_per_second"] == 11 and found["prefill_tokens_per_second"] == 201
    row = found["methods"]["model.gguf"]
    assert row["flash_attention"] == 1 and row["tokens"] == 48 and found["failed"] == {}
    assert json.loads(capsys.readouterr().out)["peer"] == "llama.cpp"
    assert run_llama_cpp(EngineConfig(model="broken.gguf"), None, binary, 100, 1, 1, tmp_path) is None
    assert "cannot load it" in capsys.readouterr().err


def test_the_built_in_model_is_exported(binary: Path, tmp_path: Path) -> None:
    found = run_llama_cpp(EngineConfig(), None, binary, 100, 1, 1, tmp_path)
    assert found is not None and set(found["methods"]) == {"BF16, plain decoding", "Q8_0, plain decoding"}
    assert (tmp_path / "builtin-target-Q8_0.gguf").stat().st_size > 10**6


@pytest.mark.parametrize(("grown", "weights", "kind"), [
    ("llama3-1b", "same", "BF16"), ("llama3-1b", "int8", "Q8_0"), ("qwen3-4b", "int4", "Q4_0"), (None, "int4", "Q4_0")])
def test_weights_have_as_many_bits_as_ours(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, grown: str | None,
                                           weights: str, kind: str) -> None:
    commands: list[list[str]] = []
    monkeypatch.setattr(llama_cpp.subprocess, "run", lambda command, **options: commands.append(command))
    rows = list(llama_cpp._files(EngineConfig(weights=weights), grown, tmp_path))  # type: ignore[arg-type]
    assert rows == [(f"{kind}, plain decoding", tmp_path / f"{grown or 'builtin-target'}-{kind}.gguf")]
    assert commands[0][3:] == [str(tmp_path), "--type", kind, *(["--grow", grown] if grown else [])]


def test_where_the_program_is_looked_for(binary: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(SETTING, raising=False)
    monkeypatch.setenv("PATH", str(tmp_path / "nothing"))
    with pytest.raises(ConfigError, match=r"pip download .*--target llama-bench"):
        find_binary()
    monkeypatch.setenv("PATH", str(tmp_path))
    assert find_binary() == binary
    monkeypatch.setenv(SETTING, str(tmp_path))
    with pytest.raises(ConfigError, match="no program"):
        find_binary()
    monkeypatch.setenv(SETTING, str(binary))
    assert find_binary() == binary


def test_models_without_a_gguf_file_are_refused() -> None:
    check_model(EngineConfig())
    check_model(EngineConfig(model="some/model.gguf"))
    with pytest.raises(ConfigError, match="no GGUF file"):
        check_model(EngineConfig(model="some/folder"))


def test_the_command(binary: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Rows beside ours; nothing is measured where no program is at hand."""
    engine = steady(monkeypatch)
    monkeypatch.setattr(llama_cpp, "_files", lambda *given: iter([("BF16, plain decoding", Path("a.gguf"))]))
    monkeypatch.setenv(SETTING, str(binary))
    arguments = ["--document", __file__, "--context", "1000", "--new-tokens", "16", "--peer", "llama.cpp"]
    assert command.main(arguments) == 0
    out = capsys.readouterr().out
    found = json.loads(out.splitlines()[-1])
    assert found["peer"]["tokens_per_second"] == 11 and found["peer"]["triforce_over_peer"] == pytest.approx(20 / 11)
    assert "BF16, plain decoding: 11.00 t/s" in out and "of its best" in out
    engine.log.clear()
    monkeypatch.setenv(SETTING, "/nowhere")
    assert command.main(arguments) == 2 and not engine.log and "pip download" in capsys.readouterr().err
