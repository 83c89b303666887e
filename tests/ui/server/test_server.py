"""The served page from outside: headers, hosts, other sites, paths; and the command line."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import psutil
import pytest

from triforce_core import ConfigError
from ui.server import guard, lifecycle
from ui.server.guard import Guard, allowed_hosts, read_origins, read_users

ROOT = Path(__file__).resolve().parents[3]


def test_every_answer_carries_the_headers(served) -> None:
    for path in ("/", "/healthz", "/config", "/nothing-here", "/metrics", "/v1/models", "/v1/files/file-0"):
        answer = httpx.get(served.url + path.lstrip("/"))
        assert "default-src 'self'" in answer.headers["content-security-policy"]
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["referrer-policy"] == "no-referrer"


@pytest.mark.parametrize("host", ["evil.example", "evil.example:7860", "127.0.0.1.evil.example", "", "[::2]"])
def test_foreign_host_names_are_refused(served, host: str) -> None:
    for path in ("", "metrics", "v1/models", "v1/files"):
        assert httpx.get(served.url + path, headers={"Host": host}).status_code == 400


@pytest.mark.parametrize("host", ["127.0.0.1:1", "localhost", "LOCALHOST:7860", "[::1]:7860"])
def test_our_own_names_are_not(served, host: str) -> None:
    assert httpx.get(served.url + "healthz", headers={"Host": host}).json()["status"] == "ok"


FOREIGN = [{"Sec-Fetch-Site": "cross-site"}, {"Sec-Fetch-Site": "same-site"}, {"Origin": "http://evil.example"},
           {"Origin": "null"}, {"Origin": "http://localhost:9999"}, {"Origin": "http://127.0.0.1:9999"},
           {"Referer": "http://127.0.0.1:9999/x"}, {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate",
                                                    "Sec-Fetch-Dest": "document"}]


@pytest.mark.parametrize("headers", FOREIGN, ids=str)
def test_no_other_origin_reads_anything(served, headers: dict[str, str]) -> None:
    """Another port of this machine is another origin, too: whatever the method, on Gradio's routes as on ours."""
    with httpx.Client(base_url=served.url) as client:
        for method in ("GET", "HEAD", "OPTIONS", "POST", "PUT", "DELETE"):
            for path in ("config", "gradio_api/info", "gradio_api/heartbeat/x", "gradio_api/queue/data",
                         "gradio_api/upload", "v1/files", "v1/files/file-0", "v1/chat/completions", "metrics",
                         "healthz", "pages/x/1/text", "logout", "theme.css", "no-such-thing"):
                asked = {"Access-Control-Request-Method": "GET"} if method == "OPTIONS" else {}
                answer = client.request(method, path, headers=headers | asked)
                assert answer.status_code == 403, (method, path)
                assert not any(name.startswith("access-control") for name in answer.headers)
                assert answer.headers["content-security-policy"]


@pytest.mark.parametrize(("headers", "let_in"), [
    ({"Origin": "http://evil.example"}, False), ({"Origin": "http://127.0.0.1:9"}, False), ({"Origin": "null"}, False),
    ({"Sec-Fetch-Site": "cross-site"}, False), ({"Host": "evil.example"}, False), ({}, True),
    ({"Origin": "http://127.0.0.1:7860"}, True)])
def test_a_websocket_handshake_from_a_foreign_origin_is_refused(served, headers: dict[str, str], let_in: bool) -> None:
    """By the guard where a server speaks WebSocket; ours does not, so that it answers as to any other request."""
    reached, sent = [], []

    async def app(scope, receive, send) -> None:
        reached.append(scope["type"])

    async def send(message) -> None:
        sent.append(message)

    asked = {"Host": "127.0.0.1:7860", **headers}
    scope = {"type": "websocket", "path": "/gradio_api/x", "query_string": b"",
             "headers": [(name.lower().encode(), value.encode()) for name, value in asked.items()]}
    with ThreadPoolExecutor(1) as elsewhere:  # a browser's test may have left a loop running in this thread
        elsewhere.submit(asyncio.run, Guard(app)(scope, None, send)).result()
    assert reached == ["websocket"] * let_in
    assert sent == ([] if let_in else [{"type": "websocket.close", "code": 1008}])
    if not let_in:
        upgrade = {"Connection": "Upgrade", "Upgrade": "websocket", "Sec-WebSocket-Version": "13",
                   "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ=="}
        answer = httpx.get(served.url + "gradio_api/queue/data", headers=upgrade | headers)
        assert answer.status_code == (400 if "Host" in headers else 403)


def test_the_page_itself_and_programs_are_answered(served) -> None:
    own = served.url.rstrip("/")
    for headers in ({}, {"Sec-Fetch-Site": "same-origin"}, {"Sec-Fetch-Site": "none"}, {"Origin": own},
                    {"Referer": own + "/x"}, {"Origin": own.replace("127.0.0.1", "LOCALHOST"),
                                              "Host": own.removeprefix("http://").replace("127.0.0.1", "localhost")}):
        for path in ("", "config", "v1/files", "healthz"):
            answer = httpx.get(served.url + path, headers=headers)
            assert answer.status_code == 200 and "access-control-allow-origin" not in answer.headers


def test_a_link_from_elsewhere_leads_to_the_page_and_nowhere_else(served) -> None:
    followed = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"}
    assert httpx.get(served.url + "?__theme=dark", headers=followed).status_code == 200
    assert httpx.get(served.url, headers={"Referer": "http://elsewhere.example/"}).status_code == 200
    for other in ({"Sec-Fetch-Dest": "iframe"}, {"Sec-Fetch-Mode": "no-cors", "Sec-Fetch-Dest": "image"}):
        assert httpx.get(served.url, headers=followed | other).status_code == 403
    assert httpx.post(served.url, headers=followed).status_code == 403


def own_address() -> str:
    return next((address.address for addresses in psutil.net_if_addrs().values() for address in addresses
                 if address.family is socket.AF_INET and not address.address.startswith("127.")), "127.0.0.1")


@pytest.fixture
def small(request: pytest.FixtureRequest) -> Iterator[str]:
    """Our guard as with --host 0.0.0.0, before something that answers everything, and everybody's CORS."""
    async def app(scope, receive, send) -> None:
        if scope["type"] == "http":
            echo = [(b"access-control-allow-origin", b"*"), (b"access-control-allow-credentials", b"true")]
            await send({"type": "http.response.start", "status": 200, "headers": echo})
            await send({"type": "http.response.body", "body": b"secret"})

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    running = lifecycle.Server(Guard(app, allowed_hosts("0.0.0.0"), ["http://localhost:5173"]), "0.0.0.0", port)
    running.start()
    yield f"http://{own_address()}:{port}/"
    running.close()


def test_by_the_machine_s_own_address_it_is_the_same(small: str) -> None:
    """There browsers send no Sec-Fetch-Site: the address is no loopback one."""
    assert httpx.get(small, headers={"Origin": small.rstrip("/")}).text == "secret"
    for headers in ({"Origin": "http://evil.example"}, {"Origin": "http://localhost:9999"},
                    {"Origin": small.rpartition(":")[0] + ":9999"}):
        answer = httpx.get(small, headers=headers)
        assert answer.status_code == 403 and "access-control-allow-origin" not in answer.headers
    assert httpx.get(small, headers={"Host": "rebound.example"}).status_code == 400
    assert httpx.get(small, headers={"Host": "localhost:99999", "Origin": "null"}).status_code == 403


def test_an_allowed_origin_may_use_the_api_and_nothing_else(small: str) -> None:
    page = {"Origin": "http://localhost:5173", "Sec-Fetch-Site": "same-site"}
    asked = httpx.options(small + "v1/models", headers=page | {"Access-Control-Request-Method": "POST",
                                                               "Access-Control-Request-Headers": "authorization"})
    assert asked.status_code == 204 and "authorization" in asked.headers["access-control-allow-headers"]
    answer = httpx.get(small + "v1/models", headers=page)
    for each in (asked, answer):
        assert each.headers["access-control-allow-origin"] == page["Origin"] and each.headers["vary"] == "Origin"
        assert "access-control-allow-credentials" not in each.headers
    assert answer.text == "secret" and answer.headers["cross-origin-resource-policy"] == "cross-origin"
    for path in ("", "config", "pages/x/1/text", "gradio_api/info", "v1"):
        assert httpx.get(small + path, headers=page).status_code == 403
    assert httpx.get(small + "v1/models", headers={"Origin": "http://localhost:5174"}).status_code == 403


@pytest.mark.parametrize("origin", ["*", "null", "localhost:5173", "http://a.b/", "ftp://a.b", "http://u@a.b",
                                    "http://a.b:x"])
def test_an_origin_that_is_none_is_refused(origin: str) -> None:
    with pytest.raises(ConfigError, match="--allow-origin"):
        read_origins([origin])
    assert read_origins(["http://LOCALHOST:5173", "https://a.b"]) == ("http://localhost:5173", "https://a.b")


def test_a_form_that_another_site_could_send_is_no_request_to_the_api(served) -> None:
    """Where a browser says nothing of where a request comes from, a form still cannot make a JSON body."""
    answer = httpx.post(served.url + "v1/chat/completions", data={"model": "builtin"})
    assert answer.status_code == 400


@pytest.mark.parametrize("path", ["/etc/passwd", "data/triforce-chat.sqlite", "data/settings.json", "state/secret"])
def test_our_files_are_not_served(served, path: str) -> None:
    target = path if path.startswith("/") else str(served.services.folders.data.parent / path)
    assert httpx.get(served.url + f"gradio_api/file={target}").status_code in (403, 404)


def test_nothing_is_offered_as_a_public_api(served) -> None:
    info = httpx.get(served.url + "gradio_api/info").json()
    assert info["named_endpoints"] == {} and info["unnamed_endpoints"] == {}


def test_every_error_carries_the_headers(served, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken() -> None:
        raise RuntimeError

    monkeypatch.setattr(served.services.library, "entries", broken)
    answers = [httpx.options(served.url + "v1/models"), httpx.get(served.url, headers={"Host": "evil.example"}),
               httpx.get(served.url + "pages/x/1/text"), httpx.put(served.url + "config"),
               httpx.post(served.url + "gradio_api/queue/join", content=b"{")]
    assert [answer.status_code for answer in answers] == [405, 400, 500, 405, 422]
    for answer in answers:
        assert "default-src 'self'" in answer.headers["content-security-policy"]
        assert answer.headers["x-content-type-options"] == "nosniff"


DEEP = b"[" * 200_000 + b"]" * 200_000


@pytest.mark.parametrize("body", [DEEP, b'{"data": ' + DEEP + b"}", b'{"a": "\xed\xa0\xbd"}', b'"\0x\0"', b"\xff"],
                         ids=["deep", "inside", "half", "utf-16", "no text"])
def test_json_that_nobody_could_parse_is_refused_everywhere(served, body: bytes) -> None:
    for path in ("gradio_api/queue/join", "gradio_api/call/v2/x", "gradio_api/run/x", "v1/chat/completions"):
        answer = httpx.post(served.url + path, content=body, headers={"content-type": "application/json"})
        assert answer.status_code == 400 and "JSON in UTF-8" in answer.json()["error"]["message"], path


@pytest.mark.parametrize(("given", "kept"), [
    (r'"Who \ud83d?"', "Who \ufffd?"), (r'"\uDE00 \ud83d\ude00"', "\ufffd \U0001f600"), (r'"\\ud83d"', r"\ud83d"),
    (r'"\ud83d\ud83d\ude00\ude00"', "\ufffd\U0001f600\ufffd"), (r'"\\\ud83d\n"', "\\\ufffd\n"), (r'"\u00e9"', "é")])
def test_half_a_surrogate_pair_arrives_as_the_character_for_none(given: str, kept: str) -> None:
    body = guard.whole(given.encode())
    assert json.loads(body) == kept and len(body) == len(given.encode())


def test_forms_are_utf_8_and_names_of_files_may_be_long(served) -> None:
    """UTF-7 spells half a surrogate pair as +2D0-."""
    form = ('--x\r\nContent-Disposition: form-data; name="file{s}"; filename="+2D0-.txt"\r\n\r\nhello\r\n--x--\r\n')
    kind = {"content-type": "multipart/form-data; boundary=x; charset=utf-7"}
    for path, s in (("v1/files", ""), ("gradio_api/upload", "s")):
        answer = httpx.post(served.url + path, content=form.format(s=s).encode(), headers=kind)
        assert answer.status_code == 400 and "UTF-8" in answer.json()["error"]["message"]
        names = {n: httpx.post(served.url + path, files={f"file{s}": ("n" * n + ".txt", f"text {n}".encode())})
                 for n in (250, 3000, 5000)}
        assert names[250].status_code == 200 and all(answer.status_code in (200, 400, 413) for answer in names.values())
    answer = httpx.post(served.url + "v1/files", files={"file": ("n" * 5000, b"x")})
    assert "255 bytes" in answer.json()["error"]["message"]


def test_folders_are_private(served) -> None:
    folders = served.services.folders
    for folder in (folders.data, folders.library, folders.uploads, folders.saved_readings):
        assert folder.stat().st_mode & 0o077 == 0
    assert folders.database.stat().st_mode & 0o077 == 0


def test_off_loopback_our_addresses_are_allowed_and_names_of_others_not() -> None:
    assert socket.gethostname().lower() in allowed_hosts("0.0.0.0")
    assert "evil.example" not in allowed_hosts("0.0.0.0")
    assert "desk.lan" in allowed_hosts("0.0.0.0", ("desk.lan",))


def test_auth_file(tmp_path: Path) -> None:
    (tmp_path / "users").write_text("# people\nana:long enough\nbob:short\n:nobody-at-all\n")
    assert read_users(tmp_path / "users") == {"ana": "long enough"}


# -- the command line -------------------------------------------------------------------------------------------------


def app(*arguments: str, **options) -> subprocess.CompletedProcess:
    return subprocess.run([sys.executable, "app.py", *arguments], cwd=ROOT, capture_output=True, text=True, timeout=60,
                          **options)


def test_help_is_quick() -> None:
    started = time.monotonic()
    text = app("--help").stdout
    assert time.monotonic() - started < 1.0
    assert "--allow-origin" in text


def test_a_busy_port_is_one_line_and_exit_2(served, tmp_path: Path) -> None:
    port = served.url.rstrip("/").rpartition(":")[2]
    result = app("--port", port, "--no-browser", "--data-dir", str(tmp_path))
    assert result.returncode == 2
    assert len(result.stderr.strip().splitlines()) == 1 and port in result.stderr and "--port" in result.stderr


@pytest.mark.parametrize(("arguments", "words"), [(("--host", "0.0.0.0"), "--auth-file"),
                                                  (("--auth-file", "/nonexistent"), "cannot be read"),
                                                  (("--max-context", "5"), "max_context"),
                                                  (("--gpu-memory-limit", "0"), "gpu_memory_limit"),
                                                  (("--engine", "remote"), "--base-url"),
                                                  (("--engine", "remote", "--base-url", "file:///etc"), "http"),
                                                  (("--base-url", "http://a.b/v1"), "--engine remote"),
                                                  (("--api-key-file", "/nonexistent"), "cannot be read"),
                                                  (("--allow-origin", "*"), "--allow-origin")])
def test_refusals_before_anything_starts(tmp_path: Path, arguments: tuple[str, ...], words: str) -> None:
    result = app(*arguments, "--no-browser", "--data-dir", str(tmp_path))
    assert result.returncode == 2 and words in result.stderr and "Traceback" not in result.stderr


def test_vibe_mode_is_refused(tmp_path: Path) -> None:
    result = app("--no-browser", "--data-dir", str(tmp_path), env=os.environ | {"GRADIO_VIBE_MODE": "1"})
    assert result.returncode == 2 and "GRADIO_VIBE_MODE" in result.stderr


def test_the_default_port_gives_way() -> None:
    with socket.socket() as busy:
        try:
            busy.bind(("127.0.0.1", lifecycle.DEFAULT_PORT))
        except OSError:
            pass  # somebody else has it: just as good
        assert lifecycle.free_port("127.0.0.1", None) > lifecycle.DEFAULT_PORT


@pytest.mark.parametrize("number", [pytest.param(signal.SIGTERM, marks=pytest.mark.exhaustive), signal.SIGINT])
def test_start_and_leave(tmp_path: Path, number: int) -> None:
    """The page comes up in seconds (set SLOW_MACHINE=1 where nothing else runs); a signal ends it, cleanly, without
    orphans."""
    started = time.monotonic()
    process = subprocess.Popen([sys.executable, "-m", "tests.scripted_app", "--no-browser", "--data-dir",
                                str(tmp_path)], cwd=ROOT, stdout=subprocess.PIPE, text=True)
    try:
        line = process.stdout.readline()
        assert "running at" in line
        url = line.split()[-1]
        assert httpx.get(url).status_code == 200
        opened = time.monotonic() - started
        process.send_signal(number)
        assert process.wait(20.0) == 0
    finally:
        process.kill()
        process.stdout.close()
    assert opened < 5.0 * float(os.environ.get("SLOW_MACHINE", "6"))
