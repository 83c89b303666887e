"""An OpenAI-compatible server as we speak to it: one request at a time, every wait bounded and cancellable.

Requests run in a thread of their own, so that whoever waits for one can turn away from it at once; the connection is
then shut down, so that the server stops. Redirects are not followed: text goes to the address that was given, and what
goes to a server of this machine goes through no proxy.
"""

from __future__ import annotations

import ipaddress
import json
import queue
import socket
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from ..errors import ConfigError, ContextTooLongError, RemoteServerError

_AGAIN = (429, 500, 502, 503, 504)
_FIRST_PAUSE, _LONGEST_PAUSE = 1.0, 30.0  # seconds between tries, doubled each time
_LOOK = 0.05  # seconds between two looks at the cancel flag
_BEAT = 1.0  # seconds of silence after which an empty line says that it is still waited for


@dataclass(frozen=True, slots=True)
class Patience:
    """Seconds to reach a server, and without a byte from it (a long document is being read); tries of what nobody has
    answered yet."""

    connect: float = 10.0
    quiet: float = 600.0
    tries: int = 3


@dataclass(frozen=True, slots=True)
class Part:
    """Hold a piece of a streamed answer: text, why it ended, the server's token counts, or how far it has read, as
    llama-server tells it; nothing of all that where time has passed."""

    text: str = ""
    reason: str = ""
    usage: Mapping[str, Any] | None = None
    read: Mapping[str, Any] | None = None


class Cancelled(Exception):
    """Raised where the flag was set while the server was at work."""


def is_loopback(host: str) -> bool:
    """Return whether a host name or address is this machine's own."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def stays_here(url: str) -> bool:
    """Return whether what is sent to an address stays on this machine."""
    return is_loopback(urlsplit(url).hostname or "")


class RemoteServer:
    """url: its address, with or without /v1. key: sent as a bearer token, never shown."""

    def __init__(self, url: str, key: str = "", patience: Patience = Patience()) -> None:
        parts = urlsplit(url.strip())
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ConfigError(f"The base URL is {url!r}", allowed="http://HOST:PORT/v1 or https://...")
        if parts.username or parts.password:
            raise ConfigError("The base URL holds a password", remedy="Put the key into TRIFORCE_REMOTE_KEY instead.")
        path = parts.path.rstrip("/") or "/v1"
        self.host = parts.netloc
        self.url = f"{parts.scheme}://{parts.netloc}{path}"
        self._root = self.url.removesuffix("/v1")
        self._headers = {"authorization": f"Bearer {key}"} if key else {}
        self._patience = patience

    def models(self, cancel: threading.Event) -> list[dict[str, Any]]:
        """List what it serves. Raises RemoteServerError, Cancelled."""
        found = self._json("GET", f"{self.url}/models", None, cancel).get("data")
        if not isinstance(found, list) or not all(isinstance(m, dict) and isinstance(m.get("id"), str) for m in found):
            raise RemoteServerError(f"{self.url} does not list its models",
                                    remedy="Give the address of an OpenAI-compatible server, up to /v1.")
        return found

    def look(self, path: str, cancel: threading.Event, body: Any = None) -> dict[str, Any]:
        """Return what it says at a path of its own beside /v1; {}: it has no such path. Raises Cancelled."""
        try:
            return self._json("GET" if body is None else "POST", f"{self._root}{path}", body, cancel, tries=1)
        except (RemoteServerError, ContextTooLongError):
            return {}

    def count(self, model: str, text: str, cancel: threading.Event) -> int | None:
        """Count a text's tokens by the server's own tokenizer, None: it has none. vLLM and SGLang call the text
        "prompt", llama-server "content": one that reads neither counts nothing."""
        answer = self.look("/tokenize", cancel, {"model": model, "prompt": text, "content": text})
        count, tokens = answer.get("count"), answer.get("tokens")
        return (count if isinstance(count, int) else len(tokens) if isinstance(tokens, list) else 0) or None

    def chat(self, body: Mapping[str, Any], cancel: threading.Event) -> Iterator[Part]:
        """Stream a completion. Raises RemoteServerError, ContextTooLongError, Cancelled."""
        asked, whole = {**body, "stream": True, "stream_options": {"include_usage": True}}, False
        for line in self._lines("POST", f"{self.url}/chat/completions", asked, cancel):
            if not line:
                yield Part()
            if not line.startswith("data:"):
                continue
            data = line[5:].strip()
            if data == "[DONE]":
                return
            for part in self._parts(data):
                whole = whole or bool(part.reason)
                yield part
        if not whole:  # a stream without a length ends like a broken one
            raise self._unreachable(_Broken("end"), begun=True)

    def _parts(self, data: str) -> Iterator[Part]:
        try:
            event = json.loads(data)
        except ValueError:
            raise RemoteServerError(f"{self.host} sent something that is not JSON") from None
        if event.get("error"):
            raise self._refusal(200, data)
        for choice in event.get("choices") or ():
            text = (choice.get("delta") or {}).get("content")
            if text or choice.get("finish_reason"):
                yield Part(text or "", choice.get("finish_reason") or "")
        if event.get("usage"):
            yield Part(usage=event["usage"])
        if isinstance(event.get("prompt_progress"), dict):
            yield Part(read=event["prompt_progress"])

    def _json(self, method: str, url: str, body: Any, cancel: threading.Event, tries: int = 0) -> dict[str, Any]:
        try:
            answer = json.loads("\n".join(self._lines(method, url, body, cancel, tries)))
        except ValueError:
            answer = None
        if not isinstance(answer, dict):
            raise RemoteServerError(f"{url} did not answer with a JSON object")
        return answer

    def _lines(self, method: str, url: str, body: Any, cancel: threading.Event, tries: int = 0) -> Iterator[str]:
        """Yield the answer line by line; try again while nothing has come. tries: 0 for the usual number."""
        tries = tries or self._patience.tries
        for number in range(1, tries + 1):
            request = _Request((method, url, body, self._headers), self._patience)
            begun, pause = False, _FIRST_PAUSE * 2 ** (number - 1)
            try:
                for line in request.lines(cancel):
                    begun = begun or bool(line)
                    yield line
                return
            except _Refused as refused:
                if refused.status not in _AGAIN or number == tries:
                    raise self._refusal(refused.status, refused.text) from None
                pause = refused.after or pause
            except _Broken as broken:
                if begun or number == tries:
                    raise self._unreachable(broken, begun) from None
            finally:
                request.close()
            if cancel.wait(min(pause, _LONGEST_PAUSE)):
                raise Cancelled

    def _unreachable(self, broken: _Broken, begun: bool) -> RemoteServerError:
        what = "broke off in the middle of an answer" if begun else f"does not answer ({broken})"
        return RemoteServerError(f"The server {self.url} {what}",
                                 remedy="See whether it runs and can be reached from here, then try again.")

    def _refusal(self, status: int, text: str) -> RemoteServerError | ContextTooLongError:
        """Return the server's own words, short: they may quote the request, so one line of them is enough."""
        words, code = text.strip(), ""
        with suppress(ValueError, AttributeError):
            error = json.loads(text)["error"] if "error" in text else json.loads(text)
            words, code = str(error.get("message") or error), str(error.get("code") or "")
        words = " ".join(words.split())[:300]
        if code == "context_length_exceeded" or "maximum context length" in words:
            return ContextTooLongError(f"The server {self.host} refuses the length: {words}",
                                       remedy="Choose fewer pages, or start a new conversation.")
        keyless = "Put its key into TRIFORCE_REMOTE_KEY."
        remedy = {401: keyless, 403: keyless, 404: "Check --base-url (up to /v1) and --remote-model."}.get(status, "")
        if 300 <= status < 400:
            remedy = "Redirects are not followed: give the address that it points to as --base-url."
        number = f" ({status})" if status != 200 else ""
        return RemoteServerError(f"The server {self.host} refuses{number}: {words or 'without a word'}", remedy=remedy)

class _Broken(Exception):
    """Raised where the connection failed."""


class _Refused(Exception):
    """Raised for an answer with another status than 200. after: seconds that the server asks to wait."""

    def __init__(self, status: int, text: str, after: float) -> None:
        super().__init__(status)
        self.status, self.text, self.after = status, text, after


class _Request:
    """One request in a thread of its own. ``lines`` is for one thread; ``close`` for any."""

    def __init__(self, what: tuple[str, str, Any, Mapping[str, str]], patience: Patience) -> None:
        """what: method, address, body and headers."""
        self._what, self._patience = what, patience
        self._items: queue.SimpleQueue[str | Exception | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._socket: socket.socket | None = None
        self._closed = False
        threading.Thread(target=self._work, name="remote-request", daemon=True).start()

    def lines(self, cancel: threading.Event) -> Iterator[str]:
        quiet_since = beat = time.monotonic()
        while True:
            try:
                item = self._items.get(timeout=_LOOK)
            except queue.Empty:
                if cancel.is_set():
                    raise Cancelled from None
                now = time.monotonic()
                if now - quiet_since > self._patience.connect + self._patience.quiet:
                    raise _Broken("silence") from None
                if now - beat >= _BEAT:
                    beat = now
                    yield ""
                continue
            quiet_since = beat = time.monotonic()
            if item is None:
                return
            if isinstance(item, Exception):
                raise item
            yield item
            if cancel.is_set():
                raise Cancelled

    def close(self) -> None:
        """Shut the connection down, whatever the thread waits for: the server notices and stops."""
        with self._lock:
            self._closed, connection = True, self._socket
        if connection is not None:
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def _connected(self, name: str, info: Mapping[str, Any]) -> None:
        """Keep the socket at the earliest moment at which it is known: httpx's trace hook."""
        if name in ("connection.connect_tcp.complete", "connection.start_tls.complete"):
            with self._lock:
                self._socket = info["return_value"].get_extra_info("socket")
                closed = self._closed
            if closed:
                self.close()

    def _work(self) -> None:
        import httpx

        method, url, body, headers = self._what
        timeout, trace = httpx.Timeout(self._patience.quiet, connect=self._patience.connect), {"trace": self._connected}
        try:
            with (httpx.Client(timeout=timeout, follow_redirects=False, trust_env=not stays_here(url)) as client,
                  client.stream(method, url, json=body, headers=headers, extensions=trace) as answer):
                if answer.status_code != 200:
                    answer.read()
                    wait = answer.headers.get("retry-after", "")
                    raise _Refused(answer.status_code, answer.text[:4000], float(wait) if wait.isdigit() else 0.0)
                for line in answer.iter_lines():
                    self._items.put(line)
            self._items.put(None)
        except _Refused as refused:
            self._items.put(refused)
        except (httpx.HTTPError, httpx.InvalidURL, OSError) as error:
            self._items.put(_Broken(type(error).__name__))
