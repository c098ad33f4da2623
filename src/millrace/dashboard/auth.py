"""Who may ask, and what browsers must not do with an answer.

- The `Host` header is a name of this server, and a browser asks on behalf of this server's own page.
- The request shows the token; or it comes over loopback from a process of the account that runs the server, or root's.
- `/healthz` and `/readyz` answer yes or no to every client, also when there is no room for more.
"""

from __future__ import annotations

import os
import re
import secrets
from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qs, urlencode

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import HTTPConnection
from starlette.responses import JSONResponse, RedirectResponse, Response

from millrace.dashboard import connections
from millrace.dashboard.connections import STATE, HttpConnection

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

LOOPBACK = frozenset({"127.0.0.1", "localhost", "::1"})
COOKIE = "millrace_token"
_OPEN = ("/healthz", "/readyz")
"""Asked by probes that know no token; without one the answer is yes or no."""
_HOST = re.compile(r"(\[[0-9a-f:.]+\]|[a-z0-9_.-]+)(?::[0-9]{1,5})?", re.IGNORECASE)
_HEADERS = {
    "Content-Security-Policy": "default-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
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
    accounts: frozenset[int] | None = frozenset()
    """The user ids whose processes need no token; None: the owner of a connection is not known."""


def rules_for(host: str, *, loopback: bool, token: str | None = None) -> Rules:
    """The rules of a server at an address: one beyond this machine wants a token, of its own if none is given."""
    if loopback:
        accounts = frozenset({0, os.geteuid()}) if connections.KNOWN else None
        return Rules(LOOPBACK | {host.lower()}, token, accounts)
    return Rules(frozenset(), token or secrets.token_urlsafe(24))


class AccessControl:
    """Stands before the application."""

    def __init__(self, app: App, rules: Rules) -> None:
        self._app, self._rules = app, rules

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let a request through, or refuse it."""
        if scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)
            return
        refusal, is_http = self._refusal(scope), scope["type"] == "http"
        if is_http:
            send = _with_headers(scope, send)
        if refusal is None:
            await self._app(scope, receive, send)
        elif is_http:
            await refusal(scope, receive, send)
        else:
            await receive()
            await send({"type": "websocket.close", "code": 4403, "reason": "refused"})

    def _refusal(self, scope: Scope) -> Response | None:
        headers = Headers(scope=scope)
        host = headers.get("host", "")
        match = _HOST.fullmatch(host)
        name = match[1].strip("[]").lower() if match else None
        if name is None and (host or self._rules.hosts):  # probes by HTTP/1.0 name none
            hint = "send the name or address of this server, and its port"
            return _no(400, "the Host header is not understood", hint)
        if self._rules.hosts and name not in self._rules.hosts:
            hint = "use the address that the run printed, or start it with --host"
            return _no(403, f"this server is not called {host!r}", hint)
        if not _same_origin(scope, headers, host):
            return _no(403, "the request comes from another page", "open this server's own page")
        return self._stranger(scope, headers) or self._crowded(scope)

    def _stranger(self, scope: Scope, headers: Headers) -> Response | None:
        """The answer to a request that is not from one who may ask; or one that turns a token into a cookie."""
        token = self._rules.token
        if token and any(_same(shown, token) for shown in _in_address(scope)):
            return _remembering(scope, token)
        has_token = token and any(_same(shown, token) for shown in _shown(scope, headers))
        scope["trusted"] = bool(has_token) or self._own_account(scope)
        if scope["trusted"] or scope["path"] in _OPEN:
            return None
        if token:
            hint = "open the address that the run printed, or send Authorization: Bearer TOKEN"
            return _no(401, "the token is missing or wrong", hint)
        error = "the request comes from another account of this machine than the one that runs this server"
        return _no(403, error, "set MILLRACE_TOKEN for the run, and open the address that it prints")

    def _own_account(self, scope: Scope) -> bool:
        accounts, connection = self._rules.accounts, _connection(scope)
        if not accounts:
            return accounts is None and self._rules.token is None
        return connection is not None and connection.account in accounts

    def _crowded(self, scope: Scope) -> Response | None:
        connection = _connection(scope)
        if connection is None or scope["path"] in _OPEN or not connection.crowded:
            return None
        return _no(503, "too many requests are being answered", "close some pages, or ask again", Connection="close")


def _connection(scope: Scope) -> HttpConnection | None:
    connection = scope.get("state", {}).get(STATE)
    return connection if isinstance(connection, HttpConnection) else None


def _same(shown: str, token: str) -> bool:
    return secrets.compare_digest(shown.encode("utf-8", "replace"), token.encode())


def _in_address(scope: Scope) -> list[str]:
    """The tokens in the address, which is read only where the dashboard is opened."""
    if scope["type"] != "http" or scope["method"] != "GET" or scope["path"] != "/":
        return []
    return parse_qs(scope["query_string"].decode("latin-1")).get("token", [])


def _remembering(scope: Scope, token: str) -> Response:
    """A redirect after which the token is in a cookie, and no longer in the address."""
    asked = parse_qs(scope["query_string"].decode("latin-1"))
    rest = urlencode({name: values for name, values in asked.items() if name != "token"}, doseq=True)
    answer = RedirectResponse(f"/?{rest}" if rest else "/", 303)
    answer.set_cookie(_cookie(scope), token, httponly=True, samesite="strict", path="/")
    return answer


def _shown(scope: Scope, headers: Headers) -> Iterable[str]:
    """The tokens that a request shows in its headers."""
    kind, _, bearer = headers.get("authorization", "").partition(" ")
    if kind.lower() == "bearer":
        yield bearer.strip()
    cookie = HTTPConnection({**scope, "type": "http"}).cookies.get(_cookie(scope))
    if cookie is not None:
        yield cookie


def _cookie(scope: Scope) -> str:
    """The name of our cookie, with the port: browsers share cookies among all ports of a host."""
    return f"{COOKIE}_{(scope.get('server') or ('', 0))[1]}"


def _same_origin(scope: Scope, headers: Headers, host: str) -> bool:
    """Whether a request comes from our own page, or from no page at all: browsers always say from which."""
    reads = scope["type"] == "http" and scope["method"] in ("GET", "HEAD", "OPTIONS")
    if headers.get("sec-fetch-site", "none") not in ("none", "same-origin"):
        return reads and headers.get("sec-fetch-mode") == "navigate"  # a link to our page
    origin = headers.get("origin")
    # Behind a proxy with TLS the dashboard is at https, and the server does not see it.
    return reads or origin is None or origin.lower() in (f"http://{host}".lower(), f"https://{host}".lower())


def _no(status: int, error: str, hint: str, **headers: str) -> Response:
    return JSONResponse({"error": error, "hint": hint, "why": None}, status, headers)


def _with_headers(scope: Scope, send: Send) -> Send:
    # The files of the dashboard have names that change with their content; all else is true only now.
    kept = {} if scope["path"].startswith("/assets/") else {"Cache-Control": "no-store"}

    async def guarded(message: MutableMapping[str, Any]) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(raw=message.setdefault("headers", []))
            for name, value in (_HEADERS | kept).items():
                headers.setdefault(name, value)
        await send(message)

    return guarded
