"""Servers of each kind that a machine may have, with answers in the shapes of LM Studio 0.3, Ollama 0.13, llama-server
b11434, vLLM 0.32 and this app: (method and path) -> what it says. Chats go as ``SmallServer`` has them."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Says = dict[str, Any]


def _listed(*models: dict[str, Any]) -> dict[str, Any]:
    return {"object": "list", "data": [{"object": "model", "created": 1} | model for model in models]}


def lm_studio(loaded: int = 0) -> Says:
    one = {"id": "qwen3-8b", "object": "model", "type": "llm", "publisher": "qwen", "arch": "qwen3",
           "compatibility_type": "gguf", "quantization": "Q4_K_M", "state": "not-loaded", "max_context_length": 40960}
    if loaded:
        one |= {"state": "loaded", "loaded_context_length": loaded}
    other = {"id": "nomic-embed", "object": "model", "type": "embeddings", "compatibility_type": "gguf",
             "state": "not-loaded", "max_context_length": 2048}
    names = [{"id": name, "owned_by": "organization_owner"} for name in ("qwen3-8b", "nomic-embed")]
    return {"GET /v1/models": _listed(*names), "GET /api/v0/models": {"object": "list", "data": [one, other]}}


def ollama(loaded: int = 0, parameters: str = 'stop    "<|im_end|>"') -> Says:
    tags = [{"name": "qwen3:8b", "model": "qwen3:8b", "size": 1, "digest": "d", "details": {"family": "qwen3"}},
            {"name": "nomic-embed-text:latest", "model": "nomic-embed-text:latest", "details": {"family": "bert"}},
            {"name": "gpt-oss:120b-cloud", "model": "gpt-oss:120b-cloud", "size": 384, "remote_model": "gpt-oss:120b",
             "remote_host": "https://ollama.com:443", "details": {"family": "gptoss"}}]
    shown = {"qwen3:8b": {"capabilities": ["completion", "tools", "thinking"], "parameters": parameters, "model_info": {
                "general.architecture": "qwen3", "qwen3.context_length": 40960, "qwen3.embedding_length": 4096}},
             "nomic-embed-text:latest": {"capabilities": ["embedding"], "model_info": {}}}
    running = [{"name": "qwen3:8b", "model": "qwen3:8b", "size_vram": 0, "context_length": loaded}] if loaded else []
    return {"GET /v1/models": _listed(*({"id": tag["name"], "owned_by": "library"} for tag in tags)),
            "GET /api/tags": {"models": tags}, "GET /api/ps": {"models": running},
            "POST /api/show": lambda body: shown[body["model"]]}


def llama_server(n_ctx: int = 8192, *, in_list: bool = True) -> Says:
    meta = {"vocab_type": 1, "n_vocab": 151936, "n_ctx_train": 40960, "n_params": 8_190_735_360, "size": 5_027_000_000}
    one = {"id": "/srv/models/Qwen3-8B-Q4_K_M.gguf", "owned_by": "llamacpp",
           "meta": meta | ({"n_ctx": n_ctx} if in_list else {})}
    return {"GET /v1/models": _listed(one) | {"models": [{"name": one["id"], "capabilities": ["completion"]}]},
            "GET /props": {"default_generation_settings": {"n_ctx": n_ctx}, "total_slots": 1},
            "POST /tokenize": lambda body: {"tokens": list(range(len(str(body.get("content", "")).split())))}}


def vllm() -> Says:
    return {"GET /v1/models": _listed({"id": "Qwen/Qwen3-8B", "owned_by": "vllm", "root": "Qwen/Qwen3-8B",
                                       "parent": None, "max_model_len": 32768, "permission": []})}


def our_own() -> Says:
    return {"GET /v1/models": _listed({"id": "builtin", "owned_by": "triforce-chat", "max_model_len": 32768})}


class Scripted:
    """says: what it answers, may be changed. loads: what it says once a chat has come. seen: (path, body) of each.
    reads: (tokens read, of how many, of them kept, milliseconds), told where a chat asks for it, as by llama-server."""

    def __init__(self, says: Says, loads: Says | None = None) -> None:
        self.says, self.loads = says, loads or {}
        self.seen: list[tuple[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        self.port = 0
        self.prompt_tokens = 40
        self.reads: list[tuple[int, int, int, int]] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/v1"


def _handler(server: Scripted) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def log_message(self, *_: object) -> None: ...

        def do_GET(self) -> None:
            self._answer(None)

        def do_POST(self) -> None:
            self._answer(json.loads(self.rfile.read(int(self.headers["content-length"]))))

        def _answer(self, body: Any) -> None:
            what = f"{self.command} {self.path}"
            server.seen.append((what, body))
            server.headers.append({name.lower(): value for name, value in self.headers.items()})
            if what == "POST /v1/chat/completions":
                server.says |= server.loads
                delta = {"choices": [{"index": 0, "delta": {"content": "Red."}, "finish_reason": "stop"}]}
                usage = {"choices": [], "usage": {"prompt_tokens": server.prompt_tokens, "completion_tokens": 1}}
                reads = [{"choices": [{"index": 0, "delta": {"role": "assistant", "content": None}}],
                          "prompt_progress": dict(zip(("processed", "total", "cache", "time_ms"), each, strict=True))}
                         for each in server.reads if body.get("return_progress")]
                events = [*(f"data: {json.dumps(event)}" for event in (*reads, delta, usage)), "data: [DONE]"]
                return self._send(200, "\n\n".join(events).encode(), "text/event-stream")
            found = server.says.get(what)
            if found is None:  # LM Studio says 200 to what it does not know
                return self._send(200 if "GET /api/v0/models" in server.says else 404,
                                  json.dumps({"error": f"Unexpected endpoint or method. ({what})"}).encode())
            self._send(200, json.dumps(found(body) if callable(found) else found).encode())

        def _send(self, status: int, data: bytes, kind: str = "application/json") -> None:
            self.send_response(status)
            self.send_header("content-type", kind)
            self.send_header("content-length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

    return Handler


@contextmanager
def running(says: Says, loads: Says | None = None) -> Iterator[Scripted]:
    made = Scripted(says, loads)
    http = ThreadingHTTPServer(("127.0.0.1", 0), _handler(made))
    http.daemon_threads = True
    made.port = http.server_port
    threading.Thread(target=http.serve_forever, args=(0.02,), daemon=True).start()
    try:
        yield made
    finally:
        http.shutdown()
        http.server_close()
