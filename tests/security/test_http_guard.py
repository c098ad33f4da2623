"""Pages of other sites, other names for this server, and tokens in addresses: all refused."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from millrace.dashboard.server import Dashboard, ServerOptions

from .security_http import ask, closing, head, serving, status

ANY = "0.0.0.0"  # noqa: S104
TOKEN = "a-token-of-16-or-more"
JSON = "Content-Type: application/json"
UPGRADE = (
    "Upgrade: websocket",
    "Connection: Upgrade",
    "Sec-WebSocket-Version: 13",
    "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==",
)


def asked_as(server: Dashboard, host: str, *more: str, line: str = "GET /api/pipeline") -> bytes:
    return ask(server, "\r\n".join((f"{line} HTTP/1.1", f"Host: {host}", "Connection: close", *more, "", "")))


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "evil@127.0.0.1",
        "evil:password@127.0.0.1:80",
        "127.0.0.1@evil.example",
        "127.0.0.1.evil.example",
        "127.0.0.1/",
        "127.0.0.1#",
        "127.0.0.1?x",
        "127.0.0.1 evil.example",
        "127.0.0.1,evil.example",
        "127.0.0.1:",
        "127.0.0.1:x",
        "127.0.0.1:1:2",
        "127.0.0.1:123456",
        "[::1",
        "::1",
        "[::1]evil",
        "[::1]:x",
        "[evil]",
        "[::2]",
        "http://127.0.0.1",
        "\\127.0.0.1",
        "127.1",
        "0",
        "",
    ],
)
def test_another_name_is_refused(host: str) -> None:
    with serving() as server:
        refused = asked_as(server, host)
        assert status(refused) in (400, 403), refused
        assert b"the-run" not in refused


@pytest.mark.parametrize("host", ["127.0.0.1", "127.0.0.1:1", "localhost", "LOCALHOST:4040", "[::1]", "[::1]:4040"])
def test_our_own_names_are_taken(host: str) -> None:
    with serving() as server:
        assert b"the-run" in asked_as(server, host)


def test_beyond_loopback_any_name_is_taken_that_is_one() -> None:
    with serving(ServerOptions(ANY, 0, token=TOKEN)) as server:
        bearer = f"Authorization: Bearer {TOKEN}"
        assert b"the-run" in asked_as(server, "millrace.example:4040", bearer)
        for host in ("evil@millrace.example", "a b", "[::1"):
            assert status(asked_as(server, host, bearer)) == 400
        assert status(ask(server, "GET /healthz HTTP/1.0\r\n\r\n")) == 200, "as simple probes ask"


def test_behind_a_proxy_with_tls_the_page_may_act() -> None:
    with serving(ServerOptions(ANY, 0, token=TOKEN), sql=lambda *_: {"columns": [], "rows": []}) as server:
        body = '{"sql": "SELECT 1"}'
        sent = ("POST /api/sql HTTP/1.1", "Host: dash.example", "Connection: close", f"Authorization: Bearer {TOKEN}")
        for origin, wanted in (
            ("https://dash.example", 200),
            ("https://evil.example", 403),
            ("ftp://dash.example", 403),
        ):
            more = (JSON, f"Content-Length: {len(body)}", "Sec-Fetch-Site: same-origin", f"Origin: {origin}", "", body)
            assert status(ask(server, "\r\n".join((*sent, *more)))) == wanted


@pytest.mark.parametrize(
    "more",
    [
        ("Origin: http://evil.example",),
        ("Origin: null",),
        ("Origin: https://127.0.0.1",),
        ("Origin: http://127.0.0.1:1",),
        ("Origin: http://evil@127.0.0.1",),
        ("Sec-Fetch-Site: cross-site",),
        ("Sec-Fetch-Site: same-site",),
        ("Sec-Fetch-Site: cross-site", "Sec-Fetch-Mode: navigate"),
        ("Sec-Fetch-Site: anything",),
    ],
)
def test_another_page_cannot_act(more: tuple[str, ...]) -> None:
    acted: list[object] = []

    def act(*given: object) -> Mapping[str, Any]:
        acted.append(given)
        return {}

    with serving(sql=act, redrive=act) as server:
        for path, body in (("sql", '{"sql": "SELECT 1"}'), ("dead/redrive", '{"source": "posts"}')):
            line = closing(server, f"POST /api/{path}", JSON, f"Content-Length: {len(body)}", *more)
            assert status(ask(server, line + body)) == 403
        assert status(ask(server, head(server, "GET /ws", *UPGRADE, *more))) == 403
    assert acted == []


@pytest.mark.parametrize(
    "kind",
    ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", "", "application/jsonp"],
)
def test_a_form_cannot_act(kind: str) -> None:
    acted: list[object] = []
    with serving(sql=lambda *given: acted.append(given) or {}, redrive=lambda one: acted.append(one) or {}) as server:
        for path in ("sql", "dead/redrive"):
            body = '{"sql": "SELECT 1", "source": "posts"}'
            line = closing(server, f"POST /api/{path}", f"Content-Type: {kind}", f"Content-Length: {len(body)}")
            assert status(ask(server, line + body)) == 415
    assert acted == []


def test_another_page_can_link_to_us_and_load_nothing_of_us() -> None:
    with serving() as server:
        crossing = ("Sec-Fetch-Site: cross-site",)
        assert status(ask(server, closing(server, "GET /", *crossing, "Sec-Fetch-Mode: navigate"))) == 200
        for path in ("/api/dead/export", "/api/state", "/api/events", "/metrics"):
            assert status(ask(server, closing(server, f"GET {path}", *crossing, "Sec-Fetch-Mode: no-cors"))) == 403
        assert (
            b"access-control"
            not in ask(server, closing(server, "OPTIONS /api/sql", "Origin: http://evil.example")).lower()
        )


def test_a_token_in_the_address_opens_only_the_page() -> None:
    with serving(ServerOptions(ANY, 0, token=TOKEN)) as server:
        for path in ("/api/pipeline", "/api/state", "/api/events", "/api/dead/export", "/metrics", "/index.html", "//"):
            assert status(ask(server, closing(server, f"GET {path}?token={TOKEN}"))) == 401, path
        assert status(ask(server, head(server, f"GET /ws?token={TOKEN}", *UPGRADE))) == 403
        for method in ("POST", "HEAD"):
            assert status(ask(server, closing(server, f"{method} /?token={TOKEN}"))) == 401
        health = ask(server, closing(server, f"GET /healthz?token={TOKEN}"))
        assert health.endswith(b'{"healthy":true}'), "a bare yes"
        opened = ask(server, closing(server, f"GET /?token={TOKEN}&a=b"))
        assert status(opened) == 303
        lines = opened.decode().lower().split("\r\n")
        assert "location: /?a=b" in lines
        (cookie,) = (line for line in lines if line.startswith("set-cookie: "))
        assert {"httponly", "samesite=strict", "path=/"} <= {part.strip() for part in cookie.split(";")}
        assert "cache-control: no-store" in lines
        assert status(ask(server, closing(server, "GET /?token=wrong"))) == 401


def test_no_answer_is_kept_or_shown_in_a_frame() -> None:
    with serving() as server:
        for path in (
            "/",
            "/api/state",
            "/api/pipeline",
            "/api/nothing",
            "/metrics",
            "/healthz",
            "/api/dead",
            "/nothing",
        ):
            answer = ask(server, closing(server, f"GET {path}")).decode().lower()
            for line in (
                "cache-control: no-store",
                "x-content-type-options: nosniff",
                "x-frame-options: deny",
                "referrer-policy: no-referrer",
                "cross-origin-opener-policy: same-origin",
                "cross-origin-resource-policy: same-origin",
            ):
                assert line in answer, (path, line)
            assert "default-src 'self'" in answer
            assert "frame-ancestors 'none'" in answer
            assert "\r\nserver:" not in answer
