"""Connections that are slow, idle or very many: none of them keeps others from being answered."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from typing import Any

import pytest

from millrace.dashboard import connections
from millrace.dashboard.server import Dashboard

from .security_http import UPGRADE, ask, closing, connected, everything, head, serving, status

MANY = 300


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Short times, so that their end can be waited for."""
    for name in ("HEAD_S", "BODY_S", "STALL_S"):
        monkeypatch.setattr(connections, name, 0.3)


@pytest.fixture
def opened() -> Iterator[ExitStack]:
    """Connections that are closed at the end of the test."""
    with ExitStack() as stack:
        yield stack


def healthy(server: Dashboard) -> bool:
    return (
        status(ask(server, closing(server, "GET /healthz")))
        == status(ask(server, closing(server, "GET /readyz")))
        == 200
    )


@pytest.mark.parametrize(
    "said", ["", "G", "GET /healthz HTTP/1.1\r\n", "GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\nX: "]
)
def test_hundreds_of_slow_heads_shut_nobody_out(opened: ExitStack, said: str) -> None:
    with serving() as server:
        slow = [opened.enter_context(connected(server, said)) for _ in range(MANY)]
        for _ in range(5):
            assert healthy(server)
            assert b"the-run" in ask(server, closing(server, "GET /api/pipeline"))
        # The oldest had to go; those that came last still have their time.
        assert everything(slow[0]) == b""


def test_hundreds_of_slow_bodies_shut_nobody_out(opened: ExitStack) -> None:
    with serving() as server:
        said = head(server, "POST /api/sql", "Content-Type: application/json", "Content-Length: 100") + "{"
        for _ in range(MANY):
            opened.enter_context(connected(server, said))
        assert healthy(server)
        assert b"the-run" in ask(server, closing(server, "GET /api/pipeline"))


def test_the_number_of_open_connections_stays_far_below_that_of_files(opened: ExitStack) -> None:
    with serving() as server:
        held = [opened.enter_context(connected(server, "GET /")) for _ in range(2 * connections.max_connections())]
        assert healthy(server)
        for one in held:
            one.setblocking(False)
        left = sum(_is_open(one) for one in held)
        assert left <= connections.max_connections() // 2, "one address has at most half of the room"


def _is_open(connection: socket.socket) -> bool:
    try:
        return connection.recv(1) != b""
    except BlockingIOError:
        return True
    except ConnectionResetError:
        return False


def test_a_small_limit_of_open_files_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    for files, most in ((1 << 20, 256), (256, 64), (20, 16), (connections.resource.RLIM_INFINITY, 256)):
        monkeypatch.setattr(connections.resource, "getrlimit", lambda _, soft=files: (soft, soft))
        assert connections.max_connections() == most


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("said", ["", "GET / HTTP/1.1\r\nHost: 127", "POST /api/sql HTTP/1.1\r\n"])
def test_a_head_that_does_not_come_is_not_waited_for(said: str) -> None:
    with serving() as server:
        assert ask(server, said) == b""


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("path", ["/api/sql", "/api/dead/redrive", "/healthz", "/nothing"])
@pytest.mark.parametrize("length", ["Content-Length: 1000", "Transfer-Encoding: chunked"])
def test_a_body_that_does_not_come_is_not_waited_for(path: str, length: str) -> None:
    with serving() as server:
        line = head(server, f"POST {path}", "Content-Type: application/json", length)
        assert status(ask(server, line)) in (0, 405), "closed, or answered before the body and then closed"


@pytest.mark.usefixtures("quick")
def test_an_idle_connection_is_closed() -> None:
    with serving() as server:
        assert status(ask(server, head(server))) == 200


@pytest.mark.usefixtures("quick")
def test_an_answer_that_nobody_reads_is_given_up() -> None:
    ended = threading.Event()

    def letters(_: object) -> Iterator[Mapping[str, Any]]:
        try:
            while True:
                yield {"value": "x" * 60_000}
        finally:
            ended.set()

    with serving(letters=letters) as server, connected(server, head(server, "GET /api/dead/export")):
        assert ended.wait(60)


def test_health_is_answered_while_all_questions_are_slow(opened: ExitStack) -> None:
    busy, go_on = threading.Semaphore(0), threading.Event()

    def topics() -> list[Mapping[str, Any]]:
        busy.release()
        go_on.wait()
        return []

    with serving(topics=topics) as server:
        try:
            asked = [opened.enter_context(connected(server, closing(server, "GET /api/topics"))) for _ in range(60)]
            assert all(busy.acquire(timeout=60) for _ in range(16))
            assert healthy(server)
            assert status(ask(server, closing(server, "GET /"))) == 200
            assert status(ask(server, closing(server, "GET /api/state"))) == 200
            refused = ask(server, closing(server, "GET /api/pipeline"))
            assert status(refused) == 503
            assert b"16 questions are being answered" in refused
        finally:
            go_on.set()
        assert sorted(status(everything(one)) for one in asked) == [200] * 16 + [503] * 44


def test_when_all_the_room_is_taken_by_streams_only_health_is_answered(opened: ExitStack) -> None:
    with serving() as server:
        line = head(server, "GET /api/events")
        for number in range(MANY):
            stream = opened.enter_context(connected(server, line if number % 2 else head(server, "GET /ws", *UPGRADE)))
            if status(stream.recv(100)) not in (101, 200):
                break
        assert number > 50, "many pages may be open"
        assert number < connections.max_connections() // 2
        refused = ask(server, closing(server, "GET /api/pipeline"))
        assert status(refused) == 503
        assert b'"error":"too many requests are being answered"' in refused
        assert healthy(server)
        for _ in range(MANY):
            opened.enter_context(connected(server, "GET /"))
        assert healthy(server)
    # The streams were not closed for it.


def test_streams_stay_open_longer_than_heads(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HEAD_S", "BODY_S", "STALL_S"):
        monkeypatch.setattr(connections, name, 0.1)
    with serving() as server:
        lines = (head(server, "GET /api/events"), head(server, "GET /ws", *UPGRADE))
        for stream in [connected(server, line) for line in lines]:
            told = b""
            while told.count(b'"beat"') < 2:  # seconds apart
                told += stream.recv(65536)
            stream.close()
