"""Connections that ask for nothing, against a real server: how long each is kept, and how many of one address."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Callable, Iterator

import httpx
import pytest
from little_books import wait_for

from ui.server import connections
from ui.server.connections import Server, network
from ui.server.guard import Guard

HEAD = b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000\r\n\r\n"

ASKED: list[str] = []


async def echo(scope, receive, send) -> None:
    """Answers with the length of the body, after half a second where /slow is asked for."""
    if scope["type"] != "http":
        return
    size, more = 0, True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            return
        size, more = size + len(message.get("body", b"")), message.get("more_body", False)
    ASKED.append(scope["path"])
    if scope["path"] == "/slow":
        await asyncio.sleep(0.5)
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/plain")]})
    await send({"type": "http.response.body", "body": str(size).encode()})


@pytest.fixture
def port() -> Iterator[int]:
    server = Server(Guard(echo), "0.0.0.0", 0)  # whichever is free now: one that was may be taken by then
    server.start()
    number = server.servers[0].sockets[0].getsockname()[1]
    yield number
    server.close()


@pytest.fixture
def knock(port: int) -> Iterator[Callable[..., socket.socket]]:
    """A connection, on which these bytes have been sent."""
    made: list[socket.socket] = []

    def knock(data: bytes = b"", address: str = "127.0.0.1") -> socket.socket:
        made.append(socket.create_connection(("127.0.0.1", port), 20.0, (address, 0)))
        made[-1].sendall(data)
        return made[-1]

    yield knock
    for connection in made:
        connection.close()


def closed(connection: socket.socket) -> bool:
    """Now, without waiting."""
    connection.setblocking(False)
    try:
        return connection.recv(1, socket.MSG_PEEK) == b""
    except BlockingIOError:
        return False
    except ConnectionError:
        return True


@pytest.mark.parametrize("sent", [b"", b"GET / HTTP/1.1\r\nHost: local", HEAD + b"a" * 10,
                                  b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\nGET / HT", HEAD + b"a" * 1000 + HEAD])
def test_a_request_that_does_not_arrive_is_given_up(knock, monkeypatch, sent: bytes) -> None:
    monkeypatch.setattr(connections, "GRACE", 0.2)
    connection = knock(sent)
    received = b""
    while part := connection.recv(4096):  # until it is closed; the socket's own timeout fails the test
        received += part
    assert b" 408 Request Timeout" in received or b" 200 OK" in received


def test_a_request_that_arrives_slowly_is_waited_for_as_long_as_its_bytes_allow(knock, monkeypatch) -> None:
    monkeypatch.setattr(connections, "GRACE", 0.2)
    monkeypatch.setattr(connections, "LEAST_SPEED", 100)
    connection = knock(HEAD + b"a" * 900)
    time.sleep(0.4)
    connection.sendall(b"a" * 100)
    assert connection.recv(4096).startswith(b"HTTP/1.1 200")


def test_one_byte_at_a_time_does_not_hold_it(knock, monkeypatch) -> None:
    monkeypatch.setattr(connections, "GRACE", 0.3)
    connection, started = knock(HEAD), time.monotonic()
    with pytest.raises(ConnectionError):
        while time.monotonic() - started < 10.0:
            connection.sendall(b"a")
            time.sleep(0.05)


def test_an_answer_may_take_its_time(port: int, monkeypatch) -> None:
    monkeypatch.setattr(connections, "GRACE", 0.1)
    assert httpx.post(f"http://127.0.0.1:{port}/slow", content=b"a" * 70_000).text == "70000"


def test_a_flood_of_half_open_connections_stops_nobody(port: int, knock) -> None:
    elsewhere = knock(b"GET / HT", "127.0.0.2")
    flood = [knock(b"GET / HT") for _ in range(connections.PER_ADDRESS + 40)]
    assert httpx.get(f"http://127.0.0.1:{port}/", timeout=5.0).status_code == 200
    wait_for(lambda: sum(map(closed, flood)) >= 40)
    assert sum(map(closed, flood)) < 60 and not closed(flood[-1]) and not closed(elsewhere)


def test_what_is_being_answered_is_not_given_up_for_others(port: int, knock, monkeypatch) -> None:
    monkeypatch.setattr(connections, "PER_ADDRESS", 4)
    ASKED.clear()
    working = [knock(b"GET /slow HTTP/1.1\r\nHost: localhost\r\n\r\n") for _ in range(4)]
    wait_for(lambda: len(ASKED) == 4)
    one_more = knock(b"GET / HT")
    wait_for(lambda: closed(one_more))
    for connection in working:
        connection.setblocking(True)
        assert connection.recv(4096).startswith(b"HTTP/1.1 200")


def test_what_is_no_http_is_refused_with_the_policy(knock) -> None:
    answer = knock(b"HELLO\r\n\r\n").recv(4096).lower()
    assert answer.startswith(b"http/1.1 400 bad request") and b"content-security-policy: default-src" in answer


@pytest.mark.parametrize(("address", "whose"), [
    ("127.0.0.1", "127.0.0.1"), ("::ffff:10.0.0.1", "10.0.0.1"), ("fe80::1%eth0", "fe80::/64"),
    ("2001:db8::1", "2001:db8::/64"), ("2001:db8::ffff:1", "2001:db8::/64"), ("", "")])
def test_whose_an_address_is(address: str, whose: str) -> None:
    assert network(address) == whose
