"""Connections to public streams.

- `HttpClient` reads endless responses and small ones of JSON.
- `server_sent_events` and `json_lines` split an endless response, within limits of size.
- `websocket_messages` reads a WebSocket.
- Each failure becomes a ConnectionLapse, which is retried, or FeedFailed, which is not.
"""

from __future__ import annotations

import ssl
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from functools import cache
from typing import Any
from urllib.parse import urlsplit

import httpx
from httpx_sse import EventSource, ServerSentEvent
from websockets.exceptions import ConnectionClosed, InvalidHandshake, InvalidProxy, InvalidStatus
from websockets.sync.client import connect

from millrace import __version__
from millrace.errors import FeedFailed, FileUnusable, InvalidOption
from millrace.feeds.public_streams.backoff import MAX_SERVER_WAIT_S, ConnectionLapse, error_of_response
from millrace.feeds.public_streams.reader import StreamHalt
from millrace.units import format_bytes, format_duration

MAX_EVENT_BYTES = 16_000_000
_CONNECT_TIMEOUT_S = 10.0
_REQUEST_TIMEOUT_S = 10.0
_CLOSE_TIMEOUT_S = 1.0
_MAX_ERROR_BODY_BYTES = 4000
_MESSAGE_TOO_BIG = 1009
_EVENT_STREAM = "text/event-stream"


def user_agent(contact: str = "") -> str:
    """Return the user agent that the origins' policies ask for: name, version, and a contact if there is one."""
    about = f" ({contact})" if contact else ""
    return f"millrace/{__version__}{about} httpx/{httpx.__version__}"


def checked_url(text: str, option: str, schemes: tuple[str, ...] = ("http", "https")) -> str:
    """Return the URL without a slash at its end; raise InvalidOption if it is none."""
    try:
        # Each of the two finds mistakes that the other accepts.
        host, _ = urlsplit(text).hostname, urlsplit(text).port
        scheme = httpx.URL(text).scheme
    except (ValueError, httpx.InvalidURL) as error:
        raise InvalidOption(f"{option}: {text!r} is not a URL", why=str(error)) from None
    if scheme not in schemes or not host:
        raise InvalidOption(f"{option}: {text!r} is not a URL", hint=f"write it as {schemes[-1]}://host/…")
    return text.rstrip("/")


class HttpClient(AbstractContextManager["HttpClient"]):
    """An HTTP client that raises ConnectionLapse for temporary failures and FeedFailed for all others."""

    def __init__(
        self,
        halt: StreamHalt,
        *,
        name: str,
        idle: float,
        headers: Mapping[str, str] | None = None,
        hints: Mapping[int, str] | None = None,
    ) -> None:
        self._halt = halt
        self._name = name
        self._idle = idle
        self._hints = hints
        try:
            self._client = httpx.Client(
                headers={"user-agent": user_agent(), **(headers or {})},
                timeout=httpx.Timeout(_CONNECT_TIMEOUT_S, read=idle),
                follow_redirects=True,
                verify=_trusted_certificates(),
            )
        except (ImportError, ValueError) as error:
            raise _unusable_proxy(error) from error

    def __exit__(self, *_: object) -> None:
        self._client.close()

    def events(self, url: str, *, headers: Mapping[str, str] | None = None) -> Iterator[ServerSentEvent | None]:
        """Yield None once the server has accepted the request, then the server-sent events."""
        retry_s: float | None = None
        try:
            with self.stream(url, headers={"accept": _EVENT_STREAM, **(headers or {})}) as chunks:
                yield None
                for event in server_sent_events(chunks):
                    if event.retry is not None:
                        retry_s = min(event.retry, MAX_SERVER_WAIT_S * 1000) / 1000
                    if event.data:
                        yield event
        except ConnectionLapse as lapse:
            if retry_s is not None:
                lapse.wait = max(lapse.wait or 0.0, retry_s)
            raise
        raise ConnectionLapse("the connection was closed", wait=retry_s)

    @contextmanager
    def stream(
        self, url: str, *, params: Mapping[str, Any] | None = None, headers: Mapping[str, str] | None = None
    ) -> Iterator[Iterator[bytes]]:
        """Open an endless response and return its chunks; uncompressed, as a compressor would delay events."""
        # An event's id is sent back in a header, and it is UTF-8.
        texts = {"accept-encoding": "identity", **(headers or {})}
        fields = {name.encode(): value.encode() for name, value in texts.items()}
        request = self._client.stream("GET", url, params=params, headers=fields)
        with self._translated_errors(self._idle), request as response:
            self._check(response, (headers or {}).get("accept"))
            self._halt.register(response.extensions["network_stream"].get_extra_info("socket"))
            yield response.iter_bytes()

    def get(self, url: str, params: Mapping[str, Any] | None = None) -> bytes:
        """Return the body of a small response."""
        return self._body("GET", url, params=params)

    def post(self, url: str, body: object) -> bytes:
        """Send JSON and return the body of the response."""
        return self._body("POST", url, json=body)

    def _body(self, method: str, url: str, **content: Any) -> bytes:
        request = self._client.stream(method, url, timeout=_REQUEST_TIMEOUT_S, **content)
        with self._translated_errors(_REQUEST_TIMEOUT_S), request as response:
            self._check(response)
            return response.read()

    def _check(self, response: httpx.Response, expected: str | None = None) -> None:
        if not response.is_success:
            body = next(response.iter_bytes(_MAX_ERROR_BODY_BYTES), b"")
            raise error_of_response(self._name, response.status_code, response.headers, body, self._hints)
        content_type = response.headers.get("content-type", "").partition(";")[0]
        if expected and content_type != expected:
            raise ConnectionLapse(f"{self._name} answers with {content_type or 'nothing'} instead of {expected}")

    @contextmanager
    def _translated_errors(self, read_timeout_s: float) -> Iterator[None]:
        try:
            yield
        except httpx.ReadTimeout:
            raise ConnectionLapse(f"nothing came for {format_duration(read_timeout_s)}") from None
        except (httpx.TransportError, httpx.DecodingError) as error:
            raise _connection_error(self._name, error) from error
        except httpx.TooManyRedirects as error:
            raise FeedFailed(f"{self._name} redirects without end", why=str(error)) from error


def server_sent_events(chunks: Iterable[bytes], max_bytes: int = MAX_EVENT_BYTES) -> Iterator[ServerSentEvent]:
    """Yield the events of a `text/event-stream`; raise FeedFailed when one is larger than `max_bytes`.

    httpx-sse parses the stream but has no limit of size, so the bytes since the last event are counted here.
    """
    unfinished_bytes = 0

    def counted() -> Iterator[bytes]:
        nonlocal unfinished_bytes
        for chunk in chunks:
            unfinished_bytes += len(chunk)
            _check_size(unfinished_bytes, max_bytes)
            yield chunk

    # The standard says UTF-8 whatever the header says, with an optional byte order mark.
    response = httpx.Response(200, headers={"content-type": f"{_EVENT_STREAM}; charset=utf-8-sig"}, content=counted())
    for event in EventSource(response).iter_sse():
        unfinished_bytes = 0
        yield event


def json_lines(chunks: Iterable[bytes], max_bytes: int = MAX_EVENT_BYTES) -> Iterator[bytes]:
    """Yield the lines of newline-delimited JSON without their ends; skip empty ones, which keep a connection open.

    What follows the last newline is dropped: the connection broke in the middle of that line.
    """
    unfinished = bytearray()
    for chunk in chunks:
        first, *others = chunk.split(b"\n")
        unfinished += first
        _check_size(len(unfinished), max_bytes)
        for other in others:
            if line := bytes(unfinished).strip():
                yield line
            unfinished[:] = other


def _check_size(size: int, max_bytes: int) -> None:
    if size > max_bytes:
        raise FeedFailed(
            f"the origin sent an event of more than {format_bytes(max_bytes)}",
            why="an event without an end would fill the memory",
        )


@cache
def _trusted_certificates() -> ssl.SSLContext:
    # Reading the certificates takes longer than connecting, and every connection has its own client.
    try:
        return httpx.create_ssl_context()
    except OSError as error:
        raise FileUnusable("the file that SSL_CERT_FILE names cannot be used", why=str(error)) from error


def _connection_error(name: str, error: Exception) -> ConnectionLapse | FeedFailed:
    """Return the error to raise for a failed connection: no retry helps against a certificate that is not trusted."""
    if (refused := certificate_error(error)) is None:
        return ConnectionLapse(str(error) or type(error).__name__)
    return FeedFailed(
        f"{name} has a certificate that is not trusted here",
        why=refused.verify_message,
        hint="behind a company proxy, name its certificates' file in the variable SSL_CERT_FILE",
    )


def certificate_error(error: BaseException | None) -> ssl.SSLCertVerificationError | None:
    """Return the failed verification of a certificate among the causes of an error."""
    while error is not None and not isinstance(error, ssl.SSLCertVerificationError):
        error = error.__cause__ or error.__context__
    return error


def _unusable_proxy(error: Exception) -> FeedFailed:
    return FeedFailed(
        "the proxy that the environment names cannot be used",
        why=str(error),
        hint="see the variables HTTPS_PROXY, ALL_PROXY and NO_PROXY",
    )


def websocket_messages(url: str, halt: StreamHalt, *, name: str, idle: float) -> Iterator[bytes | None]:
    """Yield None once the server has accepted the connection, then the bytes of each message.

    A ping is sent twice in `idle` seconds; without a pong the connection is closed.
    """
    with (
        _translated_websocket_errors(name),
        connect(
            url,
            user_agent_header=user_agent(),
            compression=None,
            open_timeout=_CONNECT_TIMEOUT_S,
            ping_interval=idle / 2,
            ping_timeout=idle / 2,
            close_timeout=_CLOSE_TIMEOUT_S,
            max_size=MAX_EVENT_BYTES,
        ) as connection,
    ):
        halt.register(connection.socket)
        yield None
        while True:
            yield connection.recv(decode=False)


@contextmanager
def _translated_websocket_errors(name: str) -> Iterator[None]:
    try:
        yield
    except InvalidStatus as error:
        response = error.response
        headers = {field.lower(): value for field, value in response.headers.raw_items()}
        raise error_of_response(name, response.status_code, headers, bytes(response.body or b"")) from error
    except ConnectionClosed as error:
        if error.sent and error.sent.code == _MESSAGE_TOO_BIG:
            raise FeedFailed(f"{name} sent a message that is too big", why=str(error)) from error
        raise ConnectionLapse(f"the connection was closed ({error})") from error
    except (InvalidProxy, ImportError) as error:
        raise _unusable_proxy(error) from error
    except (InvalidHandshake, OSError) as error:
        raise _connection_error(name, error) from error
