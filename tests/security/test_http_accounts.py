"""Requests from another account of this machine, and from another machine: what they may, and what they may not."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from pyroute2 import IPRoute

from millrace.dashboard.run_interface import LetterGroup
from millrace.dashboard.server import Dashboard, ServerOptions

from .security_http import UPGRADE, Ask, as_account, ask, closing, everything, from_elsewhere, head, serving, status

TOKEN = "a-token-of-16-or-more"
BEARER = f"Authorization: Bearer {TOKEN}"
ANY = "0.0.0.0"  # noqa: S104
PATHS = (
    "/",
    "/api/pipeline",
    "/api/state",
    "/api/topics/x",
    "/api/dead/export",
    "/api/events",
    "/metrics",
    "/assets/x",
)
Elsewhere = tuple[str, Ask]


@pytest.fixture
def stranger() -> Iterator[Ask]:
    """Another account of this machine."""
    with as_account() as asking:
        yield asking


@pytest.fixture(scope="module")
def elsewhere() -> Iterator[Elsewhere]:
    """Our address, and another machine."""
    with from_elsewhere() as made:
        yield made


def answer(asking: Ask, server: Dashboard, line: str, *more: str, host: str = "127.0.0.1") -> str:
    shown = f"[{host}]" if ":" in host else host
    return asking(host, server.port, closing(server, line, *more, host=shown))


def redriving(sent: list[LetterGroup]) -> Any:
    def redrive(group: LetterGroup) -> Mapping[str, Any]:
        sent.append(group)
        return {"sent": 1}

    return redrive


def post(body: str) -> tuple[str, ...]:
    return "POST /api/dead/redrive", "Content-Type: application/json", f"Content-Length: {len(body)}"


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
def test_another_account_of_this_machine_is_refused(stranger: Ask, host: str) -> None:
    with serving(ServerOptions(host, 0)) as server:
        for path in PATHS:
            refused = answer(stranger, server, f"GET {path}", host=host)
            assert status(refused) == 403, path
            assert "the-run" not in refused
            assert "MILLRACE_TOKEN" in refused
        name = f"[{host}]" if ":" in host else host
        assert status(stranger(host, server.port, head(server, "GET /ws", *UPGRADE, host=name))) == 403


def test_another_account_gets_a_bare_yes_or_no(stranger: Ask) -> None:
    with serving() as server:
        assert json.loads(answer(stranger, server, "GET /healthz").partition("\r\n\r\n")[2]) == {"healthy": True}
        assert json.loads(answer(stranger, server, "GET /readyz").partition("\r\n\r\n")[2]) == {"ready": True}
        assert b'"reasons":[]' in ask(server, closing(server, "GET /healthz"))


def test_our_own_account_needs_no_token_and_another_needs_it(stranger: Ask) -> None:
    with serving(ServerOptions(port=0, token=TOKEN)) as server:
        assert b"the-run" in ask(server, closing(server, "GET /api/pipeline"))
        assert status(answer(stranger, server, "GET /api/pipeline")) == 401
        assert status(answer(stranger, server, f"GET /api/pipeline?token={TOKEN}")) == 401
        assert "the-run" in answer(stranger, server, "GET /api/pipeline", BEARER)
        opened = answer(stranger, server, f"GET /?token={TOKEN}")
        assert status(opened) == 303
        cookie = next(line for line in opened.split("\r\n") if line.lower().startswith("set-cookie")).split(" ")[1]
        assert "the-run" in answer(stranger, server, "GET /api/pipeline", f"Cookie: {cookie}")


def test_another_account_cannot_act_by_a_connection_that_it_has_closed_already(stranger: Ask) -> None:
    """The kernel lists a socket that no process has open as root's."""
    sent: list[LetterGroup] = []
    body = '{"source": "posts"}'
    with serving(redrive=redriving(sent)) as server:
        for _ in range(50):
            stranger("127.0.0.1", server.port, closing(server, *post(body)) + body, wait=False)
        # What was sent before has been worked on when this is answered.
        assert status(ask(server, closing(server, "GET /api/pipeline"))) == 200
    assert sent == []


@pytest.mark.parametrize("read_only", [False, True])
def test_read_only_holds_for_everybody(stranger: Ask, read_only: bool) -> None:
    sent: list[LetterGroup] = []
    body = '{"source": "posts"}'
    with serving(ServerOptions(port=0, read_only=read_only, token=TOKEN), redrive=redriving(sent)) as server:
        line, *more = post(body)
        theirs = stranger("127.0.0.1", server.port, closing(server, line, *more, BEARER) + body)
        ours = ask(server, closing(server, line, *more) + body)
        sql = (
            closing(server, "POST /api/sql", "Content-Type: application/json", "Content-Length: 18")
            + '{"sql":"SELECT 1"}'
        )
        assert (status(ask(server, sql)) == 403) is read_only
    assert (status(theirs), status(ours)) == ((403, 403) if read_only else (200, 200))
    assert len(sent) == (0 if read_only else 2)


def test_an_address_of_ipv4_within_ipv6_is_the_same_account() -> None:
    with serving() as server, socket.socket(socket.AF_INET6) as connection:
        connection.connect(("::ffff:127.0.0.1", server.port))
        connection.sendall(closing(server, "GET /api/pipeline").encode())
        assert b"the-run" in everything(connection)


@pytest.mark.parametrize("host", [None, ANY])
def test_from_another_machine_a_token_is_needed(elsewhere: Elsewhere, host: str | None) -> None:
    ours, asking = elsewhere
    with serving(ServerOptions(host or ours, 0, token=TOKEN)) as server:
        for path in PATHS:
            refused = answer(asking, server, f"GET {path}", host=ours)
            assert status(refused) == 401, path
            assert "the-run" not in refused
            assert status(answer(asking, server, f"GET {path}", "Authorization: Bearer wrong", host=ours)) == 401
        for path in PATHS[1:]:
            assert status(answer(asking, server, f"GET {path}?token={TOKEN}", host=ours)) == 401, path
        assert status(answer(asking, server, f"GET /?token={TOKEN}", host=ours)) == 303
        assert "the-run" in answer(asking, server, "GET /api/pipeline", BEARER, host=ours)
        assert answer(asking, server, "GET /healthz", host=ours).endswith('{"healthy":true}')


def test_beyond_loopback_our_own_account_needs_the_token_too(elsewhere: Elsewhere) -> None:
    ours, _ = elsewhere
    with serving(ServerOptions(ours, 0)) as server, socket.create_connection((ours, server.port)) as connection:
        connection.sendall(closing(server, "GET /api/pipeline", host=ours).encode())
        assert status(everything(connection)) == 401


def test_from_another_machine_loopback_is_not_reached(elsewhere: Elsewhere) -> None:
    ours, asking = elsewhere
    with serving() as server:
        assert "refused" in answer(asking, server, "GET /healthz", host=ours)


def test_read_only_and_actions_from_another_machine(elsewhere: Elsewhere) -> None:
    ours, asking = elsewhere
    sent: list[LetterGroup] = []
    body = '{"source": "posts"}'
    line, *more = post(body)
    for read_only, allowed in ((True, 403), (False, 200)):
        with serving(ServerOptions(ours, 0, read_only, TOKEN), redrive=redriving(sent)) as server:
            request = closing(server, line, *more, host=ours) + body
            assert status(asking(ours, server.port, request)) == 401
            request = closing(server, line, *more, BEARER, host=ours) + body
            assert status(asking(ours, server.port, request)) == allowed
    assert len(sent) == 1


def test_nothing_is_left_of_a_namespace_when_a_test_fails(elsewhere: Elsewhere) -> None:
    del elsewhere  # has a link of its own, under another name
    with pytest.raises(RuntimeError, match="on purpose"), from_elsewhere("failing"):
        raise RuntimeError("fails on purpose")
    with IPRoute() as routes:
        assert not routes.link_lookup(ifname="failing")
