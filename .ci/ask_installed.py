"""Start the installed command, ask it a question about the handbook that it brings along, and check the answer.

    python3 ask_installed.py COMMAND     (in an empty folder; its data goes there too)
"""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
import time
from typing import Any
from urllib.request import Request, urlopen

QUESTION, EXPECTED = "When was TriForce published?", "2024"
PATIENCE = 600  # seconds, for reading the handbook on a busy machine


def call(url: str, body: object = None) -> Any:
    data = None if body is None else json.dumps(body).encode()
    with urlopen(Request(url, data, {"Content-Type": "application/json"}), timeout=PATIENCE) as answer:
        return json.load(answer)


def listed(files: str) -> Any:
    """Return the handbook's record once it stands in the library: it is added after the page's address is printed."""
    until = time.monotonic() + PATIENCE
    while not (found := call(files)["data"]):
        assert time.monotonic() < until, "the handbook never came into the library"
        time.sleep(0.2)
    return found[0]


def main(command: str) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    process = subprocess.Popen([command, "--no-browser", "--port", str(port), "--data-dir", "data"],
                               stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert f":{port}/" in line, f"{command} did not start: {line!r}"
        base = f"http://127.0.0.1:{port}/v1"
        handbook = listed(f"{base}/files")
        content = [{"type": "file", "file": {"file_id": handbook["id"]}}, {"type": "text", "text": QUESTION}]
        found = call(f"{base}/chat/completions", {"model": "builtin", "messages": [
            {"role": "user", "content": content}]})["choices"][0]["message"]["content"]
        assert EXPECTED in found, found
        print(f"{command}: {found}")
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(20)


if __name__ == "__main__":
    main(sys.argv[1])
