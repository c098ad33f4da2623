"""Requests that are wrong in every way: each gets a 4xx (or is closed), none a 500, and none a file from elsewhere."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from millrace.dashboard.server import Dashboard, ServerOptions

from .security_http import ask, closing, head, serving, status

JSON = "Content-Type: application/json"
UPGRADE = ("Upgrade: websocket", "Connection: Upgrade", "Sec-WebSocket-Version: 13")
KEY = "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ=="
SECRET = "the contents of a file outside"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Dashboard]:
    """A server with a built page, and a secret beside it."""
    folder = tmp_path_factory.mktemp("page")
    static = folder / "static"
    (static / "assets").mkdir(parents=True)
    (static / "index.html").write_text("<title>built</title>")
    (static / "assets" / "main.js").write_text("let a")
    (static / ".hidden").write_text(SECRET)
    (folder / "secret.txt").write_text(SECRET)
    (static / "link.txt").symlink_to(folder / "secret.txt")
    (static / "assets" / "link.txt").symlink_to(folder / "secret.txt")
    (static / "assets" / "up").symlink_to(folder)
    with serving(ServerOptions(port=0, token="a-token-of-16-or-more"), static) as served:
        yield served


@pytest.mark.parametrize(
    "path",
    [
        "/" + "a" * 300,
        "/" + "a" * 20_000,
        "/assets/" + "a" * 300,
        "/assets/" + "a/" * 3000,
        "/%00",
        "/a%00b",
        "/assets/%00",
        "/%ff%fe",
        "/assets/%ff%fe",
        "/%ed%a0%80",
        "/%",
        "/%zz",
        "/..",
        "/~root",
        "/api/topics/%00",
        "/api/topics/" + "a" * 10_000,
        "/api/queries/%00%ff",
        "/api/queries/",
        "/api/dead/redrive",
        "/api/sql",
        "/api",
        "/ws",
        "http://evil.example/",
        "//evil.example/",
        "/assets",
        "/assets/",
        "/healthz/",
    ],
)
def test_a_path_that_leads_nowhere(server: Dashboard, path: str) -> None:
    answer = ask(server, closing(server, f"GET {path}"))
    assert status(answer) in (307, 404, 405), answer[:200]
    assert b"location: http://evil" not in answer.lower()


@pytest.mark.parametrize("prefix", ["/", "/assets/", "/assets/up/", "/assets//", "/./"])
@pytest.mark.parametrize(
    "path",
    [
        "../secret.txt",
        "../../secret.txt",
        "..%2fsecret.txt",
        "..%2f..%2fsecret.txt",
        "%2e%2e/%2e%2e/secret.txt",
        "%2e%2e%2fsecret.txt",
        "..\\secret.txt",
        "..%5c..%5csecret.txt",
        "..%252f..%252fsecret.txt",
        "%2fetc%2fpasswd",
        "/etc/passwd",
        "link.txt",
        "secret.txt",
        ".hidden",
        "..;/secret.txt",
        "%c0%ae%c0%ae/secret.txt",
    ],
)
def test_no_path_leads_out(server: Dashboard, prefix: str, path: str) -> None:
    answer = ask(server, closing(server, f"GET {prefix}{path}"))
    assert status(answer) == 404, answer[:300]
    assert SECRET.encode() not in answer
    assert b"root:" not in answer


def test_an_absolute_path_leads_nowhere(server: Dashboard, tmp_path: Path) -> None:
    (tmp_path / "file.txt").write_text(SECRET)
    for path in (f"/assets/{tmp_path}/file.txt", f"/{tmp_path}/file.txt", f"/assets{tmp_path}/file.txt"):
        assert status(ask(server, closing(server, f"GET {path}"))) == 404


@pytest.mark.parametrize(
    "query", ["%", "%ff", "%00", "&&&;;==", "max=%d9%a1", "max=-1", "max=1e9", "max=" + "9" * 5000, "a=" * 5000]
)
@pytest.mark.parametrize("path", ["/", "/api/state", "/api/dead", "/api/topics/x", "/api/events", "/healthz"])
def test_odd_queries(server: Dashboard, path: str, query: str) -> None:
    if path == "/api/events":
        query = f"channels={query}&channels"
        path = "/api/events/"  # the stream itself has no end
    assert status(ask(server, closing(server, f"GET {path}?{query}"))) in (200, 307, 400, 404)


@pytest.mark.parametrize("shown", ["\xff\xfe", "", " ", "\x80" * 5000, "é", "a;b=c", '"', "\t"])
def test_odd_tokens(server: Dashboard, shown: str) -> None:
    name = f"millrace_token_{server.port}"
    for line in (
        f"Authorization: Bearer {shown}",
        f"Authorization: {shown}",
        f"Cookie: {name}={shown}",
        f"Cookie: {shown}",
    ):
        assert status(ask(server, closing(server, "GET /healthz", line))) in (200, 400), line
    odd = "".join(f"%{ord(sign):02x}" for sign in shown)
    assert status(ask(server, closing(server, f"GET /?token={odd}"))) == 200, "on loopback it is not asked for"


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"\xff",
        b"null",
        b"[]",
        b"5",
        b'"x"',
        b"{",
        b'{"sql": null}',
        b'{"sql": {"a": 1}}',
        b'{"sql": "\\ud800"}',
        b'{"sql": "a", "rows": 1e400}',
        b'{"source": ["a"]}',
        b'{"source": "a", "topic": {}}',
        b'{"source": "\\ud800"}',
        b"[" * 100_000,
        b'{"a":' * 30_000,
        b"9" * 100_000,
        b'{"source":' + b"9" * 10_000 + b"}",
    ],
)
@pytest.mark.parametrize("path", ["/api/sql", "/api/dead/redrive"])
def test_bodies_of_a_wrong_shape(server: Dashboard, path: str, body: bytes) -> None:
    line = closing(server, f"POST {path}", JSON, f"Content-Length: {len(body)}").encode()
    answer = ask(server, line + body)
    assert status(answer) == 400, answer[:300]


def test_bodies_that_are_too_large_or_badly_framed(server: Dashboard) -> None:
    post = "POST /api/sql"
    large = closing(server, post, JSON, "Content-Length: 300000").encode() + b" " * 300_000
    assert status(ask(server, large)) in (0, 413), "the answer may be lost when the rest is not read"
    for more, body in (
        (("Transfer-Encoding: chunked",), "zz\r\n"),
        (("Transfer-Encoding: chunked",), "-5\r\nabc"),
        (("Transfer-Encoding: chunked",), "f" * 30 + "\r\n"),
        (("Transfer-Encoding: chunked",), "5\r\nabcdefgh\r\n"),
        (("Transfer-Encoding: gzip, chunked",), ""),
        (("Transfer-Encoding: identity",), ""),
        (("Content-Length: -1",), ""),
        (("Content-Length: 5", "Content-Length: 6"), "abcdef"),
        (("Content-Length: x",), ""),
        (("Content-Length: 5", "Transfer-Encoding: chunked"), "0\r\n\r\n"),
    ):
        answer = ask(server, closing(server, post, JSON, *more) + body)
        assert 400 <= status(answer) < 502, (more, answer[:200])
        assert status(answer) != 500


@pytest.mark.parametrize(
    "method", ["PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "CONNECT", "HEAD", "X", "get", "POST"]
)
@pytest.mark.parametrize("path", ["/", "/api/state", "/api/sql", "/ws", "/assets/main.js", "/healthz", "*", "evil:80"])
def test_methods(server: Dashboard, method: str, path: str) -> None:
    answered = status(ask(server, closing(server, f"{method} {path}")))
    assert answered in ((200, 400, 404, 405) if method == "HEAD" else (400, 404, 405, 415)), answered


@pytest.mark.parametrize(
    "said",
    [
        "\r\n\r\n\r\n",
        "GET\r\n\r\n",
        "GET / HTTP/9.9\r\n\r\n",
        "GET / HTTP/1.1\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nHost: 127.0.0.1\r\n\r\n",
        "GET / HTTP/1.1\r\nHost : 127.0.0.1\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nX\x00: a\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nX: a\x00\r\n\r\n",
        "GET /\xff HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nX: " + "a" * 70_000 + "\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n" + "X: a\r\n" * 20_000 + "\r\n",
        "GET / HTTP/1.0\r\n\r\n",
        "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03 a hello of TLS\r\n\r\n",
        "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    ],
)
def test_heads_that_are_none(server: Dashboard, said: str) -> None:
    assert status(ask(server, said)) in (400, 403)


@pytest.mark.parametrize(
    "more",
    [
        UPGRADE,
        (*UPGRADE, "Sec-WebSocket-Key: short"),
        (*UPGRADE, KEY, KEY),
        ("Upgrade: websocket", "Connection: Upgrade", "Sec-WebSocket-Version: 99", KEY),
        (*UPGRADE, KEY, *("X: a",) * 500),
        (*UPGRADE, KEY, "X: " + "a" * 10_000),
        (*UPGRADE, KEY, "Origin: http://evil.example"),
        (*UPGRADE, KEY, "Origin: \xff"),
    ],
)
def test_upgrades_that_are_wrong(server: Dashboard, more: tuple[str, ...]) -> None:
    answered = status(ask(server, head(server, "GET /ws", *more)))
    assert 400 <= answered < 500, answered


@pytest.mark.parametrize(
    "path", ["/nothing", "/api/state", "/api/topics", "/api/sql", "/", "/ws/%00", "/" + "a" * 9000]
)
def test_upgrades_of_what_is_no_websocket(server: Dashboard, path: str) -> None:
    answered = status(ask(server, head(server, f"GET {path}", *UPGRADE, KEY)))
    assert 400 <= answered < 500, answered


def test_a_page_that_is_not_built_has_no_parts() -> None:
    with serving() as unbuilt:
        assert status(ask(unbuilt, closing(unbuilt, "GET /assets/main.js"))) == 404
        assert status(ask(unbuilt, closing(unbuilt, "GET /icon.svg"))) == 404


PARTS = [
    "GET ",
    "POST ",
    "/",
    "/api/",
    "sql",
    "topics/",
    "dead",
    "?",
    "token=",
    "%00",
    "%ff",
    "..",
    " HTTP/1.1",
    "\r\n",
]
PARTS += [
    "Host: 127.0.0.1",
    "Host: ",
    "\xff",
    "Content-Length: ",
    "7",
    "-",
    "Transfer-Encoding: chunked",
    JSON,
    "{",
    "}",
]
PARTS += [
    "Cookie: ",
    ";",
    "=",
    "Authorization: Bearer ",
    "Origin: ",
    "http://",
    "[",
    "]",
    "@",
    ":",
    "Upgrade: websocket",
]
PARTS += [
    "Connection: Upgrade",
    KEY,
    "Sec-WebSocket-Version: 13",
    "\x00",
    "a" * 300,
    "Range: bytes=",
    ",",
    "/assets/main.js",
]


@pytest.mark.parametrize("seed", range(10))
def test_nothing_that_is_made_up_is_an_error_of_ours(server: Dashboard, seed: int) -> None:
    chance = random.Random(seed)
    for _ in range(40):
        line = f"{chance.choice(['GET', 'POST', 'HEAD'])} /{''.join(chance.choices(PARTS, k=3))}"
        names = ["Host: 127.0.0.1"] * chance.randint(0, 2) + ["Connection: close"]
        more = ["".join(chance.choices(PARTS, k=chance.randint(1, 6))) for _ in range(chance.randint(0, 6))]
        said = "\r\n".join((f"{line} HTTP/1.1", *names, *more, "Content-Length: 3", "", "abc"))
        answered = status(ask(server, said.encode("latin-1")))
        assert answered < 500, said
        assert answered != 0, said
    assert status(ask(server, closing(server, "GET /healthz"))) == 200
