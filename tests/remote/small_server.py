"""A server as small as can be that speaks vLLM's dialect, with a tokenizer, and misbehaves when told to."""

from __future__ import annotations

import json
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class SmallServer:
    """seen: (path, headers, body) of every request. fails: status codes for the next chats, in order.

    usage: whether it counts. tokenizer: whether it has one. pause: seconds between two parts. hung_up: set when a
    client went away in the middle of an answer."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, dict[str, str], Any]] = []
        self.fails: list[int] = []
        self.usage, self.tokenizer, self.length, self.pause = True, True, 4096, 0.0
        self.words, self.break_after, self.quiet = "The lamp was red .".split(), 0, 0.0
        self.hung_up = threading.Event()
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def log_message(self, *_: object) -> None: ...

            def do_GET(self) -> None:
                outer.seen.append((self.path, dict(self.headers), None))
                length = {"max_model_len": outer.length} if outer.length else {}
                self._json(200, {"object": "list", "data": [{"id": "tiny"}, {"id": "other"} | length]})

            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["content-length"])))
                outer.seen.append((self.path, dict(self.headers), body))
                if self.path == "/tokenize":
                    answer = {"count": len(body["prompt"].split())}
                    self._json(200 if outer.tokenizer else 404, answer if outer.tokenizer else {"detail": "Not Found"})
                    return
                if outer.fails:
                    status = outer.fails.pop(0)
                    self._json(status, {"error": {"message": f"told to say {status}", "code": None}},
                               {"location": "http://elsewhere.example/v1"} if status == 307 else {})
                    return
                time.sleep(outer.quiet)
                self._stream(body)

            def _stream(self, body: dict[str, Any]) -> None:
                self.send_response(200)
                self.send_header("content-type", "text/event-stream")
                self.end_headers()
                words = outer.words[: body["max_tokens"]]
                try:
                    for number, word in enumerate(words):
                        if outer.break_after and number == outer.break_after:
                            self.connection.close()
                            return
                        self._event({"choices": [{"index": 0, "delta": {"content": word + " "}}]})
                        time.sleep(outer.pause)
                    reason = "length" if len(words) < len(outer.words) else "stop"
                    self._event({"choices": [{"index": 0, "delta": {}, "finish_reason": reason}]})
                    if outer.usage:
                        prompt = sum(len(message["content"].split()) for message in body["messages"])
                        self._event({"choices": [], "usage": {
                            "prompt_tokens": prompt, "completion_tokens": len(words),
                            "prompt_tokens_details": {"cached_tokens": prompt - 3}}})
                    self.wfile.write(b"data: [DONE]\n\n")
                except OSError:
                    outer.hung_up.set()

            def _event(self, value: dict[str, Any]) -> None:
                self.wfile.write(b"data: " + json.dumps(value).encode() + b"\n\n")

            def _json(self, status: int, value: dict[str, Any], more: dict[str, str] | None = None) -> None:
                data = json.dumps(value).encode()
                self.send_response(status)
                for name, text in {"content-type": "application/json", "content-length": str(len(data)),
                                   **(more or {})}.items():
                    self.send_header(name, text)
                self.end_headers()
                self.wfile.write(data)

        self._http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._http.daemon_threads = True
        threading.Thread(target=self._http.serve_forever, args=(0.02,), daemon=True).start()
        self.url = f"http://127.0.0.1:{self._http.server_port}"

    def chats(self) -> list[dict[str, Any]]:
        return [body for path, _, body in self.seen if path == "/v1/chat/completions"]

    def close(self) -> None:
        self._http.shutdown()
        self._http.server_close()
