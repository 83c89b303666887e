"""llama.cpp beside us: its own ``llama-bench`` on the same weights, context and threads.

It reads and writes any tokens, not these; speculation it does not measure. Of its attention paths the better counts. A
row is a file: BF16 and Q8_0 of the built-in model; one of as many bits as ours has where that is grown or rounded; or
the GGUF file that was given.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ..config import BUILTIN, EngineConfig
from ..errors import ConfigError

SETTING = "TRIFORCE_LLAMA_BENCH"
_TYPES = ("BF16", "Q8_0")  # the first one's weights are the very ones that we compute with
_ROUNDED = {"same": "BF16", "int8": "Q8_0", "int4": "Q4_0"}
_SECONDS = 3600
_NEW_TOKENS = 48
_REMEDY = ("Build it from llama-cpp-python's source archive: pip download --no-deps --no-binary :all: "
           "llama-cpp-python; unpack it; cmake -S vendor/llama.cpp -B build -DCMAKE_BUILD_TYPE=Release; cmake --build "
           f"build --target llama-bench. Then name it in {SETTING}, or put it into the PATH.")


def find_binary() -> Path:
    """Return ``llama-bench``. Raises ConfigError that says how to come by one."""
    name = os.environ.get(SETTING) or "llama-bench"
    found = shutil.which(name)
    if found is None:
        raise ConfigError(f"--peer llama.cpp finds no program {name!r} that can be run", remedy=_REMEDY)
    return Path(found)


def check_model(config: EngineConfig) -> None:
    """Raises ConfigError where there is no GGUF file of the model, and we cannot write one."""
    if not (config.model == BUILTIN or Path(config.model).suffix == ".gguf"):
        raise ConfigError("--peer llama.cpp is given with a model that is no GGUF file",
                          allowed="the built-in model, or --model FILE.gguf",
                          remedy="Convert it with llama.cpp's convert_hf_to_gguf.py.")


def run_llama_cpp(config: EngineConfig, grown: str | None, binary: Path, tokens: int, threads: int, repeats: int,
                  folder: Path) -> dict[str, Any] | None:
    """Return its best rates and every row's, printed as they come; None where the program failed for every file (it has
    said why). grown: a shape's name. folder: for files that are written."""
    found: dict[str, dict[str, Any]] = {}
    failed: dict[str, str] = {}
    build = ""
    for name, file in _files(config, grown, folder):
        try:
            read, written = _measure(binary, file, tokens, threads, repeats)
        except (OSError, subprocess.SubprocessError, ValueError) as error:
            said = (getattr(error, "stderr", None) or str(error)).strip().splitlines()
            failed[name] = said[-1][:300] if said else type(error).__name__
            continue
        build = written.get("build_commit", "")
        found[name] = {"tokens_per_second": written["avg_ts"], "spread": written["stddev_ts"], "tokens": _NEW_TOKENS,
                       "flash_attention": written["flash_attn"], "prefill_tokens_per_second": read["avg_ts"]}
        print(json.dumps({"peer": "llama.cpp", "method": name, **found[name]}), flush=True)
    if not found:
        for name, why in failed.items():
            print(f"llama.cpp, {name}: {why}", file=sys.stderr)
        return None
    best, reading = (max(row[rate] for row in found.values())
                     for rate in ("tokens_per_second", "prefill_tokens_per_second"))
    return {"name": "llama.cpp", "version": build, "tokens_per_second": best, "prefill_tokens_per_second": reading,
            "context_tokens": tokens, "methods": found, "failed": failed}


def _measure(binary: Path, file: Path, tokens: int, threads: int, repeats: int) -> list[dict[str, Any]]:
    """Return the rows of llama-bench for reading once, as it takes minutes, and for writing behind as many tokens, each
    by the better of its attention paths. Raises OSError, SubprocessError, ValueError."""
    alike = [str(binary), "-m", str(file), "-t", str(threads), "-ngl", "0", "-fa", "0,1", "-o", "jsonl"]
    found = []
    for work in (["-p", str(tokens), "-n", "0", "-r", "1"],
                 ["-p", "0", "-n", str(_NEW_TOKENS), "-d", str(tokens), "-r", str(repeats)]):
        said = subprocess.run([*alike, *work], check=True, capture_output=True, text=True, timeout=_SECONDS).stdout
        rows = [json.loads(line) for line in said.splitlines() if line.startswith("{")]
        if not rows or any(not row["avg_ts"] > 0 for row in rows):
            raise ValueError("llama-bench gave no rates")
        found.append(max(rows, key=lambda row: float(row["avg_ts"])))
    return found


def _files(config: EngineConfig, grown: str | None, folder: Path) -> Iterator[tuple[str, Path]]:
    """Yield names of rows, and the weights. Raises ConfigError where this checkout cannot write them."""
    if config.model != BUILTIN:
        yield Path(config.model).name, Path(config.model)
        return
    root = Path(__file__).resolve().parents[2]
    for kind in (_ROUNDED[config.weights],) if grown or config.weights != "same" else _TYPES:
        try:
            subprocess.run([sys.executable, "-m", "training.gguf_export", str(folder), "--type", kind,
                            *(["--grow", grown] if grown else [])], check=True, capture_output=True, text=True,
                           cwd=root, timeout=_SECONDS)
        except subprocess.SubprocessError as error:
            raise ConfigError("The built-in model could not be written as a GGUF file",
                              remedy="Run `python -m training.gguf_export OUT` to see why.") from error
        yield f"{kind}, plain decoding", folder / f"{grown or 'builtin-target'}-{kind}.gguf"
