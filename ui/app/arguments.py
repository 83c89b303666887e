"""The command line: flags -> Arguments. Imports neither Gradio nor torch."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from triforce_core import ConfigError, EngineConfig, __version__

COMMAND = ("A page on this machine for talking with whole long documents. Without arguments it starts on the built-in "
           "model and opens the browser.")
COMMAND_MORE = "Nothing leaves this machine. Stop with Ctrl+C; documents and conversations are kept."
NEEDS_URL = "--engine remote has no server"
NEEDS_URL_REMEDY = "Give its address with --base-url http://HOST:PORT/v1."
URL_UNUSED = "--base-url and --remote-model belong to --engine remote"

DEFAULT_PORT = 7860
ENGINES = ("triforce", "autoregressive", "remote")
MODES = ("auto", "cpu", "on-chip", "offload")
DTYPES = ("auto", "float32", "bfloat16", "float16")
WEIGHTS = ("same", "int8", "int4")
KV_KINDS = ("auto", "same", "int8", "int4")
LOG_LEVELS = ("debug", "info", "warning", "error")


def _none_or_number(text: str) -> float | str:
    try:
        return text if text == "none" else float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is neither a number nor 'none'") from None


def _port(text: str) -> int:
    if not text.isdigit() or not 1 <= int(text) <= 65535:
        raise argparse.ArgumentTypeError(f"{text!r} is not a port (1-65535)")
    return int(text)

_SWITCH: dict[str, Any] = {"action": "store_true"}
_MANY: dict[str, Any] = {"action": "append"}
FLAGS: dict[str, tuple[str, dict[str, Any]]] = {  # name -> help, options of argparse
    "host": ("address to listen on (default 127.0.0.1; any other needs --auth-file)", {}),
    "port": ("port to listen on (default 7860, or the next free one)", {"type": _port}),
    "allow_host": ("another name under which this machine may be reached (repeatable)", _MANY | {"metavar": "NAME"}),
    "allow_origin": ("a web page's origin that may use the API, such as http://localhost:5173 (repeatable)",
                     _MANY | {"metavar": "ORIGIN"}),
    "no_browser": ("do not open a browser window", _SWITCH),
    "model": ("'builtin', a folder, a GGUF file, or a Hugging Face repo id that is already downloaded",
              {"metavar": "MODEL"}),
    "draft_model": ("small model that drafts: 'auto', 'none', a folder, a GGUF file or a repo id",
                    {"metavar": "MODEL"}),
    "mode": ("where the model and its cache live (default: the settings tab's, which is auto)", {"choices": MODES}),
    "dtype": ("number format; float32 is the exact one (default: the settings tab's)", {"choices": DTYPES}),
    "weights": ("round the model's weights to int8 or int4 when they are loaded (default same: as published)",
                {"choices": WEIGHTS}),
    "kv": ("keys and values: same as products, int8 in half the memory, or int4 in less than a third and less exactly "
           "(default auto: on a CPU int8 where only that fits)", {"choices": KV_KINDS}),
    "thinking": ("let a model reason before it answers, where its chat template leaves the choice", _SWITCH),
    "device": ("torch device, for example cuda:0 (default auto)", {}),
    "gpus": ("GPUs of this machine that hold the model together (default 1)", {"type": int, "metavar": "N"}),
    "max_context": ("tokens for document and conversation together (default: what the model and memory allow)",
                    {"type": int, "metavar": "TOKENS"}),
    "gpu_memory_limit": ("GiB of the GPU's memory to use at most, as if it had no more (default none)",
                         {"type": _none_or_number, "metavar": "GIB"}),
    "data_dir": ("keep library, chats and caches here instead of the usual places", {"type": Path, "metavar": "DIR"}),
    "offline": ("never use the network (this is the default)", _SWITCH),
    "allow_download": ("let a model named by repo id be downloaded", _SWITCH),
    "engine": ("triforce, autoregressive (no speculation), or remote (a server elsewhere)", {"choices": ENGINES}),
    "base_url": ("with --engine remote: the OpenAI-compatible server that gets documents and questions (key: "
                 "TRIFORCE_REMOTE_KEY)", {"metavar": "URL"}),
    "remote_model": ("with --engine remote: which of the server's models (default: its first)", {"metavar": "NAME"}),
    "auth_file": ("file of user:password lines; login is then required", {"type": Path, "metavar": "FILE"}),
    "api_key_file": ("file of API keys, one a line; /v1 then needs one (TRIFORCE_API_KEY holds one, too)",
                     {"type": Path, "metavar": "FILE"}),
    "log_level": ("how much to log to stderr (default warning); never document or chat text", {"choices": LOG_LEVELS}),
    "check": ("say what this machine can run and why, then exit (1 if nothing)", _SWITCH),
    "tune": ("forget what passes cost on this machine, and measure it again before the first reading", _SWITCH),
}


@dataclass(frozen=True)
class Arguments:
    """The choices of the command line, by the names of FLAGS.

    port: None for the default one, or the next free. model: None for the one chosen last on the models tab, at first
    the built-in one. mode, dtype: None for the settings tab's. gpu_memory_limit: GiB. engine: None for triforce, or a
    server that was chosen last."""

    files: tuple[Path, ...] = ()
    host: str = "127.0.0.1"
    port: int | None = None
    allow_host: tuple[str, ...] = ()
    allow_origin: tuple[str, ...] = ()
    no_browser: bool = False
    model: str | None = None
    draft_model: str = "auto"
    mode: str | None = None
    dtype: str | None = None
    weights: str = "same"
    kv: str = "auto"
    thinking: bool = False
    device: str = "auto"
    gpus: int = 1
    max_context: int | None = None
    gpu_memory_limit: float | str = "none"
    data_dir: Path | None = None
    offline: bool = False
    allow_download: bool = False
    engine: str | None = None
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
    parser = argparse.ArgumentParser(prog=command_name(), description=COMMAND, epilog=COMMAND_MORE,
                                     formatter_class=argparse.RawDescriptionHelpFormatter,
                                     argument_default=argparse.SUPPRESS)
    parser.add_argument("files", nargs="*", type=Path, metavar="FILE",
                        help="documents to add to the library; the first is opened")
    network = parser.add_mutually_exclusive_group()
    for name, (text, options) in FLAGS.items():
        group = network if name in ("offline", "allow_download") else parser
        group.add_argument("--" + name.replace("_", "-"), help=text, **options)
    parser.add_argument("--version", action="version", version=f"TriForce Chat {__version__}")
    given: dict[str, Any] = vars(parser.parse_args(argv))
    for name, value in given.items():
        given[name] = tuple(value) if isinstance(value, list) else value
    return Arguments(**given)


def engine_config(arguments: Arguments, saved_readings: Path | None = None,
                  measurements: Path | None = None) -> EngineConfig:
    """Return the engine's configuration. Raises ConfigError."""
    remote = arguments.engine == "remote"
    return EngineConfig(
        model=arguments.remote_model if remote else arguments.model or "builtin",
        server=arguments.base_url if remote else "", draft_model=arguments.draft_model, mode=arguments.mode or "auto",
        dtype=arguments.dtype or "auto", device=arguments.device, gpus=arguments.gpus,
        max_context=arguments.max_context or "auto", gpu_memory_limit=arguments.gpu_memory_limit,
        allow_download=arguments.allow_download, saved_readings=saved_readings, measurements=measurements,
        tune=arguments.tune, weights=arguments.weights, kv=arguments.kv, thinking=arguments.thinking)


def engine_maker(arguments: Arguments) -> Callable[[EngineConfig], Any]:
    """Return what makes an engine from a configuration, of this machine or, where that names one, a server. Raises
    ConfigError."""
    from triforce_core import EngineClient, RemoteEngine  # here, so that --help answers at once

    def make(config: EngineConfig) -> EngineClient | RemoteEngine:
        if not config.server:
            return EngineClient(config)
        return RemoteEngine(config, config.server, config.model, keyless=config.server != arguments.base_url)

    if arguments.engine == "remote":
        if not arguments.base_url:
            raise ConfigError(NEEDS_URL, remedy=NEEDS_URL_REMEDY)
        make(engine_config(arguments))  # an address that cannot be one is refused before anything starts
    elif arguments.base_url or arguments.remote_model:
        raise ConfigError(URL_UNUSED, remedy=NEEDS_URL_REMEDY)
    return make
