"""Who may ask: the right host, the right origin, the right token; and what browsers must not do with an answer."""

from __future__ import annotations

import secrets
from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import HTTPConnection
from starlette.responses import JSONResponse, RedirectResponse, Response

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

LOOPBACK = frozenset({"127.0.0.1", "localhost", "::1"})
COOKIE = "millrace_token"
_OPEN = ("/healthz", "/readyz")
"""Asked by probes that know no token; what they tell without one is yes or no."""
_HEADERS = {
    "Content-Security-Policy": "default-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}


@dataclass(frozen=True)
class Rules:
    """What is asked of a request."""

    hosts: frozenset[str] = LOOPBACK
    """Names by which the server may be called; empty is any, which needs a token."""
    token: str | None = field(default=None, repr=False)


def rules_for(host: str, *, loopback: bool, token: str | None = None) -> Rules:
    """The rules of a server at an address: one beyond this machine wants a token, of its own if none is given."""
    if loopback:
        return Rules(LOOPBACK | {host.lower()}, token)
    return Rules(frozenset(), token or secrets.token_urlsafe(24))


class Guard:
    """Stands before the application."""

    def __init__(self, app: App, rules: Rules) -> None:
        self._app = app
        self._rules = rules

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let a request through, or refuse it."""
        if scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)
            return
        refusal = self._refusal(scope)
        if refusal is not None:
            await _refuse(scope, receive, send, refusal)
            return
        await self._app(scope, receive, _with_headers(send) if scope["type"] == "http" else send)

    def _refusal(self, scope: Scope) -> Response | None:
        headers = Headers(scope=scope)
        host = headers.get("host", "")
        if self._rules.hosts and _name(host) not in self._rules.hosts:
            return _no(
                403, f"this server is not called {host!r}", "use the address that it told, or start it with --host"
            )
        acts = scope["type"] == "websocket" or scope.get("method") not in ("GET", "HEAD", "OPTIONS")
        if acts and not _same_origin(headers, host):
            return _no(403, "the request comes from another page", "open this server's own page")
        scope["trusted"] = known = self._knows(scope, headers)
        if known or scope["path"] in _OPEN:
            return self._remember(scope) if known else None
        return _no(401, "the token is missing or wrong", "use the address that the run told, with ?token=…")

    def _knows(self, scope: Scope, headers: Headers) -> bool:
        token = self._rules.token
        if token is None:
            return True
        return any(secrets.compare_digest(one.encode(), token.encode()) for one in _told(scope, headers))

    def _remember(self, scope: Scope) -> Response | None:
        """A page that was opened with the token in its address goes on with a cookie, and without it there."""
        asked = parse_qs(scope.get("query_string", b"").decode("latin-1"))
        if self._rules.token is None or "token" not in asked or scope["type"] != "http" or scope["path"] != "/":
            return None
        rest = urlencode([(name, one) for name, every in asked.items() if name != "token" for one in every])
        answer = RedirectResponse(f"/?{rest}" if rest else "/", 303)
        answer.set_cookie(_cookie(scope), self._rules.token, httponly=True, samesite="strict", path="/")
        return answer


def _told(scope: Scope, headers: Headers) -> Iterable[str]:
    """Every token that a request shows."""
    yield from parse_qs(scope.get("query_string", b"").decode("latin-1")).get("token", ())
    kind, _, bearer = headers.get("authorization", "").partition(" ")
    if kind.lower() == "bearer":
        yield bearer.strip()
    cookie = HTTPConnection({**scope, "type": "http"}).cookies.get(_cookie(scope))
    if cookie is not None:
        yield cookie


def _cookie(scope: Scope) -> str:
    """The name of our cookie, with the port: browsers share cookies among all ports of a host."""
    return f"{COOKIE}_{(scope.get('server') or ('', 0))[1]}"


def _same_origin(headers: Headers, host: str) -> bool:
    """Whether a request comes from our own page, or from no page at all: browsers always say from which."""
    if headers.get("sec-fetch-site", "none") not in ("none", "same-origin"):
        return False
    origin = headers.get("origin")
    return origin is None or urlsplit(origin).netloc.lower() == host.lower()


def _name(host: str) -> str:
    try:
        return (urlsplit(f"//{host}").hostname or "").lower()
    except ValueError:
        return ""


def _no(status: int, error: str, hint: str) -> Response:
    return JSONResponse({"error": error, "hint": hint}, status)


async def _refuse(scope: Scope, receive: Receive, send: Send, refusal: Response) -> None:
    if scope["type"] == "websocket":
        await receive()
        await send({"type": "websocket.close", "code": 4403, "reason": "refused"})
    else:
        await refusal(scope, receive, _with_headers(send))


def _with_headers(send: Send) -> Send:
    async def guarded(told: MutableMapping[str, Any]) -> None:
        if told["type"] == "http.response.start":
            headers = MutableHeaders(raw=told.setdefault("headers", []))
            for name, value in _HEADERS.items():
                headers.setdefault(name, value)
        await send(told)

    return guarded
