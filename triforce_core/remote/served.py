"""What a server serves, and with how much context; and the servers of this machine, looked for at their usual ports.

OpenAI's list of models has no lengths, so each kind of server says them in its own place. What counts is the length
with which a model is loaded: Ollama and LM Studio load with a few thousand tokens unless they are told otherwise, and
Ollama cuts off silently what goes beyond.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import PureWindowsPath
from typing import Any

from ..errors import RemoteServerError
from .server import Cancelled, Patience, RemoteServer

PORTS = {1234: "LM Studio", 11434: "Ollama", 8080: "llama-server", 9931: "llama-server", 8000: "vLLM"}  # old and new
_OWN = "TriForce Chat"  # on this machine another start of this app, or this one
_OWNERS = {"llamacpp": "llama-server", "vllm": "vLLM", "triforce-chat": _OWN}
_LENGTHS = ("max_model_len", "context_length", "max_context_length")  # vLLM's and SGLang's name, others'
_OLLAMA_LENGTH = 4096  # of a loaded model, where an Ollama that does not say it was told none
_NUM_CTX = re.compile(r"^num_ctx\s+(\d+)\s*$", re.MULTILINE)
_BRIEFLY = Patience(connect=0.5, quiet=2.0, tries=1)


@dataclass(frozen=True, slots=True)
class ServedModel:
    """A model that a server has. program: which kind of server, "" where that is not known.

    context: tokens with which it is loaded, 0 where that is not known. longest: that it could have, 0: not known.
    known_loaded: the server says ``context`` only once it has loaded the model. problem: why it is not to be used."""

    program: str
    url: str
    name: str
    context: int = 0
    longest: int = 0
    known_loaded: bool = False
    problem: str = ""

    @property
    def shown(self) -> str:
        """Its name without the folders in which the server has it: llama-server and vLLM give a file's whole path."""
        folders = self.name.lower().endswith(".gguf") or PureWindowsPath(self.name).root
        return PureWindowsPath(self.name).name if folders else self.name


def served(server: RemoteServer, cancel: threading.Event) -> list[ServedModel]:
    """List a server's models for chats. Raises RemoteServerError, Cancelled."""
    listed = server.models(cancel)
    plain = any(one.get("owned_by") in _OWNERS or _whole(one.get(_LENGTHS[0])) for one in listed)
    for kind in () if plain else (_lm_studio, _ollama):
        found = kind(server, cancel)
        if found is not None:
            return found
    return [_told(server, one, cancel) for one in listed]


def local_servers(ports: Iterable[int] = tuple(PORTS)) -> list[ServedModel]:
    """Look at these ports of this machine, and nowhere else. Never raises: who does not answer is not there."""
    with ThreadPoolExecutor(thread_name_prefix="local-server") as threads:
        return [one for found in threads.map(_at_port, ports) for one in found]


def _at_port(port: int) -> list[ServedModel]:
    try:
        found = served(RemoteServer(f"http://127.0.0.1:{port}", "", _BRIEFLY), threading.Event())
    except (RemoteServerError, Cancelled):
        return []
    return [one for one in found if one.program != _OWN]


def _told(server: RemoteServer, model: Mapping[str, Any], cancel: threading.Event) -> ServedModel:
    """Return a model of a server that says lengths in its list, or of llama-server."""
    owner, meta = str(model.get("owned_by")), _dict(model.get("meta"))
    context = _length(model)
    if not context and owner == "llamacpp":  # before December 2025 its list had none
        context = _whole(_dict(server.look("/props", cancel).get("default_generation_settings")).get("n_ctx"))
    return ServedModel(_OWNERS.get(owner, ""), server.url, model["id"], context, _whole(meta.get("n_ctx_train")))


def _length(model: Mapping[str, Any]) -> int:
    given = [_whole(model.get(name)) for name in _LENGTHS] + [_whole(_dict(model.get("meta")).get("n_ctx"))]
    return next(filter(None, given), 0)


def _lm_studio(server: RemoteServer, cancel: threading.Event) -> list[ServedModel] | None:
    """Return the models of LM Studio; None: it is another server."""
    found = [one for one in _dicts(server.look("/api/v0/models", cancel).get("data"))
             if isinstance(one.get("id"), str) and "compatibility_type" in one]
    return [ServedModel("LM Studio", server.url, one["id"], _whole(one.get("loaded_context_length")),
                        _whole(one.get("max_context_length")), known_loaded=True)
            for one in found if one.get("type") != "embeddings"] if found else None


def _ollama(server: RemoteServer, cancel: threading.Event) -> list[ServedModel] | None:
    """Return the models of Ollama; None: it is another server."""
    listed = server.look("/api/tags", cancel).get("models")
    if not isinstance(listed, list):
        return None
    running = {one.get("name"): _whole(one.get("context_length")) or _OLLAMA_LENGTH
               for one in _dicts(server.look("/api/ps", cancel).get("models"))}
    return [model for one in _dicts(listed) if isinstance(one.get("name"), str)
            for model in _of_ollama(server, one, running, cancel)]


def _of_ollama(server: RemoteServer, listed: Mapping[str, Any], running: Mapping[Any, int],
               cancel: threading.Event) -> Iterator[ServedModel]:
    name = listed["name"]
    if listed.get("remote_host"):
        yield ServedModel("Ollama", server.url, name, problem=f"Ollama sends it on to {listed['remote_host']}: text "
                                                              "would leave this machine")
        return
    about = server.look("/api/show", cancel, {"model": name})
    can = about.get("capabilities")
    if isinstance(can, list) and "completion" not in can:
        return
    facts = _dict(about.get("model_info"))
    lengths = [_whole(value) for key, value in facts.items() if key.endswith(".context_length")]
    chosen = _NUM_CTX.search(str(about.get("parameters", "")))
    yield ServedModel("Ollama", server.url, name, running.get(name, int(chosen[1]) if chosen else 0),
                      max(lengths, default=0), known_loaded=True)


def _whole(value: Any) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else 0


def _dict(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _dicts(value: Any) -> list[dict[str, Any]]:
    return [one for one in value if isinstance(one, dict)] if isinstance(value, list) else []
