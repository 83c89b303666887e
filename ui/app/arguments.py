"""The command line: flags -> Arguments. Imports neither Gradio nor torch."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from triforce_core import EngineConfig, __version__

COMMAND = ("A page on this machine for talking with whole long documents. Without arguments it starts on the built-in "
           "model and opens the browser.")
COMMAND_MORE = "Nothing leaves this machine. Stop with Ctrl+C; documents and conversations are kept."
FLAGS = {
    "files": "documents to add to the library; the first is opened",
    "host": "address to listen on (default 127.0.0.1; any other needs --auth-file)",
    "port": "port to listen on (default 7860, or the next free one)",
    "allow_host": "another name under which this machine may be reached (repeatable)",
    "allow_origin": "a web page's origin that may use the API, such as http://localhost:5173 (repeatable)",
    "no_browser": "do not open a browser window",
    "model": "'builtin', a folder, a GGUF file, or a Hugging Face repo id that is already downloaded",
    "draft_model": "small model that drafts: 'auto', 'none', a folder, a GGUF file or a repo id",
    "mode": "where the model and its cache live (default: the settings tab's, which is auto)",
    "dtype": "number format; float32 is the exact one (default: the settings tab's)",
    "weights": "round the model's weights to int8 or int4 when they are loaded (default same: as published)",
    "kv": ("keys and values: same as products, int8 in half the memory, or int4 in less than a third and less exactly "
           "(default auto: on a CPU int8 where only that fits)"),
    "thinking": "let a model reason before it answers, where its chat template leaves the choice",
    "device": "torch device, for example cuda:0 (default auto)",
    "gpus": "GPUs of this machine that hold the model together (default 1)",
    "max_context": "tokens for document and conversation together (default: what the model and memory allow)",
    "gpu_memory_limit": "GiB of the GPU's memory to use at most, as if it had no more (default none)",
    "data_dir": "keep library, chats and caches here instead of the usual places",
    "offline": "never use the network (this is the default)",
    "allow_download": "let a model named by repo id be downloaded",
    "engine": "triforce, autoregressive (no speculation), or remote (a server elsewhere)",
    "base_url": "with --engine remote: the OpenAI-compatible server that gets documents and questions (key: "
                "TRIFORCE_REMOTE_KEY)",
    "remote_model": "with --engine remote: which of the server's models (default: its first)",
    "auth_file": "file of user:password lines; login is then required",
    "api_key_file": "file of API keys, one a line; /v1 then needs one (TRIFORCE_API_KEY holds one, too)",
    "log_level": "how much to log to stderr (default warning); never document or chat text",
    "tune": "forget what passes cost on this machine, and measure it again before the first reading",
    "check": "say what this machine can run and why, then exit (1 if nothing)",
}

DEFAULT_PORT = 7860
ENGINES = ("triforce", "autoregressive", "remote")
MODES = ("auto", "cpu", "on-chip", "offload")
DTYPES = ("auto", "float32", "bfloat16", "float16")
WEIGHTS = ("same", "int8", "int4")
KV_KINDS = ("auto", "same", "int8", "int4")
LOG_LEVELS = ("debug", "info", "warning", "error")


@dataclass(frozen=True)
class Arguments:
    """What was asked for on the command line. port None: the default one, or the next free."""

    files: tuple[Path, ...] = ()
    host: str = "127.0.0.1"
    port: int | None = None
    allow_host: tuple[str, ...] = ()
    allow_origin: tuple[str, ...] = ()
    browser: bool = True
    model: str | None = None  # None: the one chosen last on the models tab, at first the built-in one
    draft_model: str = "auto"
    mode: str | None = None  # None, as of dtype: what the settings page says
    dtype: str | None = None
    device: str = "auto"
    gpus: int = 1
    max_context: int | None = None
    gpu_memory_limit: float | str = "none"  # GiB
    weights: str = "same"
    kv: str = "auto"
    thinking: bool = False
    data_dir: Path | None = None
    allow_download: bool = False
    engine: str = "triforce"
    base_url: str = ""
    remote_model: str = ""
    auth_file: Path | None = None
    api_key_file: Path | None = None
    log_level: str = "warning"
    check: bool = False
    tune: bool = False


def command_name() -> str:
    """Return what the person called: "triforce-chat" where the package is installed, otherwise "app.py"."""
    return "triforce-chat" if Path(sys.argv[0]).stem == "triforce-chat" else "app.py"


def parse(argv: Sequence[str] | None = None) -> Arguments:
    """Read the command line; ends the process for --help, --version and mistakes (exit 2), as argparse does."""
    say = FLAGS
    parser = argparse.ArgumentParser(
        prog=command_name(), description=COMMAND, epilog=COMMAND_MORE,
        formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="*", type=Path, metavar="FILE", help=say["files"])
    parser.add_argument("--host", default="127.0.0.1", help=say["host"])
    parser.add_argument("--port", type=_port, help=say["port"])
    parser.add_argument("--allow-host", action="append", default=[], metavar="NAME", help=say["allow_host"])
    parser.add_argument("--allow-origin", action="append", default=[], metavar="ORIGIN", help=say["allow_origin"])
    parser.add_argument("--no-browser", action="store_true", help=say["no_browser"])
    parser.add_argument("--model", metavar="MODEL", help=say["model"])
    parser.add_argument("--draft-model", default="auto", metavar="MODEL", help=say["draft_model"])
    parser.add_argument("--mode", choices=MODES, help=say["mode"])
    parser.add_argument("--dtype", choices=DTYPES, help=say["dtype"])
    parser.add_argument("--weights", choices=WEIGHTS, default="same", help=say["weights"])
    parser.add_argument("--kv", choices=KV_KINDS, default="auto", help=say["kv"])
    parser.add_argument("--thinking", action="store_true", help=say["thinking"])
    parser.add_argument("--device", default="auto", help=say["device"])
    parser.add_argument("--gpus", type=int, default=1, metavar="N", help=say["gpus"])
    parser.add_argument("--max-context", type=int, metavar="TOKENS", help=say["max_context"])
    parser.add_argument("--gpu-memory-limit", type=_none_or_number, default="none", metavar="GIB",
                        help=say["gpu_memory_limit"])
    parser.add_argument("--data-dir", type=Path, metavar="DIR", help=say["data_dir"])
    network = parser.add_mutually_exclusive_group()
    network.add_argument("--offline", action="store_true", help=say["offline"])
    network.add_argument("--allow-download", action="store_true", help=say["allow_download"])
    parser.add_argument("--engine", choices=ENGINES, default="triforce", help=say["engine"])
    parser.add_argument("--base-url", default="", metavar="URL", help=say["base_url"])
    parser.add_argument("--remote-model", default="", metavar="NAME", help=say["remote_model"])
    parser.add_argument("--auth-file", type=Path, metavar="FILE", help=say["auth_file"])
    parser.add_argument("--api-key-file", type=Path, metavar="FILE", help=say["api_key_file"])
    parser.add_argument("--log-level", choices=LOG_LEVELS, default="warning", help=say["log_level"])
    parser.add_argument("--check", action="store_true", help=say["check"])
    parser.add_argument("--tune", action="store_true", help=say["tune"])
    parser.add_argument("--version", action="version", version=f"TriForce Chat {__version__}")
    given = parser.parse_args(argv)
    return Arguments(
        files=tuple(given.files), host=given.host, port=given.port, allow_host=tuple(given.allow_host),
        allow_origin=tuple(given.allow_origin),
        browser=not given.no_browser, model=given.model, draft_model=given.draft_model, mode=given.mode,
        dtype=given.dtype, weights=given.weights, kv=given.kv, thinking=given.thinking,
        device=given.device, gpus=given.gpus, max_context=given.max_context,
        gpu_memory_limit=given.gpu_memory_limit, data_dir=given.data_dir, allow_download=given.allow_download,
        engine=given.engine, base_url=given.base_url, remote_model=given.remote_model,
        auth_file=given.auth_file,
        api_key_file=given.api_key_file, log_level=given.log_level, check=given.check, tune=given.tune)


def engine_config(arguments: Arguments, saved_readings: Path | None = None,
                  measurements: Path | None = None) -> EngineConfig:
    """What the engine is told. Raises ConfigError."""
    return EngineConfig(
        model=arguments.model or "builtin", draft_model=arguments.draft_model, mode=arguments.mode or "auto",
        dtype=arguments.dtype or "auto", device=arguments.device, gpus=arguments.gpus,
        max_context=arguments.max_context or "auto", gpu_memory_limit=arguments.gpu_memory_limit,
        allow_download=arguments.allow_download, saved_readings=saved_readings, measurements=measurements,
        tune=arguments.tune, weights=arguments.weights, kv=arguments.kv,
        thinking=arguments.thinking)


def _none_or_number(text: str) -> float | str:
    try:
        return text if text == "none" else float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is neither a number nor 'none'") from None


def _port(text: str) -> int:
    if not text.isdigit() or not 1 <= int(text) <= 65535:
        raise argparse.ArgumentTypeError(f"{text!r} is not a port (1-65535)")
    return int(text)
