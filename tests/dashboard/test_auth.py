"""Who may ask, and who may not."""

from __future__ import annotations

import socket
from collections.abc import Callable

import httpx
import pytest
from websockets.exceptions import InvalidStatus

from millrace.dashboard.server import Dashboard, ServerOptions
from millrace.errors import InvalidOption, PortInUse

from .pages import Page

Serve = Callable[..., Dashboard]
BEYOND = "0.0.0.0"  # noqa: S104


def test_another_host_is_refused(serve: Serve) -> None:
    address = serve().address
    assert httpx.get(address).status_code == 200
    assert httpx.get(address, headers={"Host": "localhost:1"}).status_code == 200
    for host in ("evil.example", f"evil.example:{80}", "127.0.0.1.evil.example", "[::2]:80", "a:b:c"):
        refused = httpx.get(f"{address}api/state", headers={"Host": host})
        assert refused.status_code in (400, 403), host
        assert "phase" not in refused.text


@pytest.mark.parametrize(
    "origin", ["http://evil.example", "null", "https://127.0.0.1:1", "http://localhost.evil.example"]
)
def test_another_origin_is_refused(serve: Serve, origin: str) -> None:
    address = serve(sql=lambda *_: {"columns": [], "rows": []}).address
    sent = httpx.post(f"{address}api/sql", json={"sql": "SELECT 1"}, headers={"Origin": origin})
    assert sent.status_code == 403
    with pytest.raises(InvalidStatus) as refused:
        Page(address, origin=origin)
    assert refused.value.response.status_code == 403


def test_our_own_origin_and_programs_without_one_may(serve: Serve) -> None:
    address = serve(sql=lambda *_: {"columns": [], "rows": []}).address
    origin = address.rstrip("/")
    asked = {"sql": "SELECT 1"}
    assert httpx.post(f"{address}api/sql", json=asked, headers={"Origin": origin}).status_code == 200
    assert httpx.post(f"{address}api/sql", json=asked).status_code == 200
    crossing = {"Sec-Fetch-Site": "cross-site"}
    assert httpx.post(f"{address}api/sql", json=asked, headers=crossing).status_code == 403
    with Page(address, origin=origin) as page:
        assert page.hello["type"] == "hello"


def test_a_form_of_another_page_cannot_be_json(serve: Serve) -> None:
    address = serve(sql=lambda *_: {"columns": [], "rows": []}).address
    sent = httpx.post(f"{address}api/sql", content='{"sql": "SELECT 1"}', headers={"Content-Type": "text/plain"})
    assert sent.status_code == 415


def test_beyond_loopback_a_token_is_needed(serve: Serve) -> None:
    server = serve(ServerOptions(BEYOND, 0), pipeline=lambda: {"name": "secret thing"})
    base, _, query = server.address.partition("?")
    token = query.removeprefix("token=")
    assert len(token) >= 24
    assert httpx.get(f"{base}api/pipeline").status_code == 401
    assert "secret" not in httpx.get(f"{base}api/pipeline?token=wrong").text
    with pytest.raises(InvalidStatus):
        Page(base)
    assert httpx.get(f"{base}api/pipeline?{query}").status_code == 401, "only the page is opened with it"
    bearer = {"Authorization": f"Bearer {token}"}
    assert httpx.get(f"{base}api/pipeline", headers=bearer).json()["name"] == "secret thing"
    assert httpx.get(f"{base}metrics", headers=bearer).status_code == 200


def test_the_token_becomes_a_cookie_and_leaves_the_address(serve: Serve) -> None:
    server = serve(ServerOptions(BEYOND, 0))
    base = server.address.partition("?")[0]
    with httpx.Client() as browser:
        opened = browser.get(server.address)
        assert opened.status_code == 303
        assert opened.headers["location"] == "/"
        cookie = opened.headers["set-cookie"].lower()
        assert "httponly" in cookie
        assert "samesite=strict" in cookie
        assert browser.get(base).status_code == 200
        assert browser.get(f"{base}api/state").status_code == 200
        own = "; ".join(f"{name}={value}" for name, value in browser.cookies.items())
        sent = {"Cookie": f"a/b=1; odd; {own}"}  # browsers send those of other programs on this host as well
        with Page(base, additional_headers=sent) as page:
            assert page.hello["type"] == "hello"


def test_probes_need_no_token_and_learn_only_yes_or_no(serve: Serve) -> None:
    base = serve(ServerOptions(BEYOND, 0)).address.partition("?")[0]
    assert httpx.get(f"{base}healthz").json() == {"healthy": True}
    assert httpx.get(f"{base}readyz").json() == {"ready": True}


def test_a_token_of_ones_own(serve: Serve) -> None:
    assert serve(ServerOptions(BEYOND, 0, token="mine")).address.endswith("?token=mine")


def test_headers_keep_browsers_from_mischief(serve: Serve) -> None:
    address = serve().address
    for path in ("", "api/state", "healthz", "nothing", "api/nothing/here"):
        headers = httpx.get(f"{address}{path}").headers
        assert headers["content-security-policy"].startswith("default-src 'self'")
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["referrer-policy"] == "no-referrer"
        assert "access-control-allow-origin" not in headers


def test_a_port_in_use(serve: Serve) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with pytest.raises(PortInUse):
            serve(ServerOptions(port=taken.getsockname()[1]))
    first, second = serve(ServerOptions()), serve(ServerOptions())
    assert first.port != second.port, "without a port asked for, the next free one"


def test_addresses_that_are_none(serve: Serve) -> None:
    with pytest.raises(InvalidOption):
        serve(ServerOptions("no such host.", 0))
    with pytest.raises(InvalidOption):
        serve(ServerOptions(port=70_000))


def test_a_server_that_has_ended_is_gone(serve: Serve) -> None:
    server = serve()
    with Page(server.address):
        server.__exit__(None, None, None)
    with pytest.raises(httpx.ConnectError):
        httpx.get(server.address)
