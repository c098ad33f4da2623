"""HTTP to an origin: answers that stream without end, small ones of JSON, and what their failures mean.

WebSocket messages from an origin, and what the failures of the connection mean.
"""

from __future__ import annotations

import ssl
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from types import TracebackType
from typing import Any
from urllib.parse import urlsplit

import httpx
from websockets.exceptions import ConnectionClosed, InvalidHandshake, InvalidProxy, InvalidStatus
from websockets.sync.client import connect

from millrace import __version__
from millrace.errors import FeedFailed, FileUnusable, InvalidOption
from millrace.feeds.public_streams.backoff import ConnectionLapse, refusal
from millrace.feeds.public_streams.reader import StreamHalt
from millrace.feeds.public_streams.sse import LONGEST, EventParser, ServerSentEvent
from millrace.units import format_duration

CONNECT_TIMEOUT = 10.0
SMALL_TIMEOUT = 10.0
"""Seconds that a small answer may take: unlike a stream it has no reason to be silent."""
_LONGEST_REFUSAL = 4000


def user_agent(contact: str = "") -> str:
    """Who asks, as the origins' policies want it: a name, a version, and whom to write to if that is known."""
    about = f" ({contact})" if contact else ""
    return f"millrace/{__version__}{about} httpx/{httpx.__version__}"


def checked_url(text: str, option: str, schemes: tuple[str, ...] = ("http", "https")) -> str:
    """A URL that can be connected to, without a slash at its end."""
    try:
        # Each of the two finds faults that the other lets pass.
        host, _ = urlsplit(text).hostname, urlsplit(text).port
        scheme = httpx.URL(text).scheme
    except (ValueError, httpx.InvalidURL) as error:
        raise InvalidOption(f"{option}: {text!r} is not a URL", why=str(error)) from None
    if scheme not in schemes or not host:
        raise InvalidOption(f"{option}: {text!r} is not a URL", hint=f"write it as {schemes[-1]}://host/…")
    return text.rstrip("/")


class Web:
    """An HTTP client that raises a Lapse for what passes and FeedFailed for what does not."""

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
                timeout=httpx.Timeout(CONNECT_TIMEOUT, read=idle),
                follow_redirects=True,
                verify=_trusted(),
            )
        except (ImportError, ValueError) as error:
            raise unusable_proxy(error) from error

    def __enter__(self) -> Web:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._client.close()

    def events(self, url: str, *, headers: Mapping[str, str] | None = None) -> Iterator[ServerSentEvent | None]:
        """Server-sent events as they come; first of all a None, once the server has accepted the request."""
        parser = EventParser()
        try:
            with self.stream(url, headers={"accept": "text/event-stream", **(headers or {})}) as chunks:
                yield None
                for chunk in chunks:
                    yield from parser.feed(chunk)
        except ConnectionLapse as lapse:
            if parser.retry is not None:
                lapse.wait = max(lapse.wait or 0.0, parser.retry)
            raise
        raise ConnectionLapse("the connection was closed", wait=parser.retry)

    @contextmanager
    def stream(
        self, url: str, *, params: Mapping[str, Any] | None = None, headers: Mapping[str, str] | None = None
    ) -> Iterator[Iterator[bytes]]:
        """The chunks of an answer without end, uncompressed: a compressor holds events back to fill its blocks."""
        wanted = (headers or {}).get("accept")
        # An event's id goes back in a header, and it is UTF-8.
        fields = {
            name.encode(): value.encode() for name, value in {"accept-encoding": "identity", **(headers or {})}.items()
        }
        with (
            self._faults(self._idle),
            self._client.stream("GET", url, params=params, headers=fields) as response,
        ):
            self._check(response, wanted)
            self._halt.cuts(response.extensions["network_stream"].get_extra_info("socket"))
            yield response.iter_bytes()

    def get(self, url: str, params: Mapping[str, Any] | None = None) -> bytes:
        """The body of a small answer."""
        return self._small(self._client.build_request("GET", url, params=params, timeout=SMALL_TIMEOUT))

    def post(self, url: str, body: object) -> bytes:
        """The body of a small answer to JSON."""
        return self._small(self._client.build_request("POST", url, json=body, timeout=SMALL_TIMEOUT))

    def _small(self, request: httpx.Request) -> bytes:
        with self._faults(SMALL_TIMEOUT):
            response = self._client.send(request, stream=True)
            try:
                self._check(response)
                return response.read()
            finally:
                response.close()

    def _check(self, response: httpx.Response, expected: str | None = None) -> None:
        if not response.is_success:
            raise refusal(self._name, response.status_code, response.headers, _beginning(response), self._hints)
        kind = response.headers.get("content-type", "").partition(";")[0]
        if expected and kind != expected:
            raise ConnectionLapse(f"{self._name} answers with {kind or 'nothing'} instead of {expected}")

    @contextmanager
    def _faults(self, silence: float) -> Iterator[None]:
        try:
            yield
        except httpx.ReadTimeout:
            raise ConnectionLapse(f"nothing came for {format_duration(silence)}") from None
        except (httpx.TransportError, httpx.DecodingError) as error:
            if (wrong := certificate_fault(error)) is not None:
                raise untrusted(self._name, wrong) from error
            raise ConnectionLapse(str(error) or type(error).__name__) from error
        except httpx.TooManyRedirects as error:
            raise FeedFailed(f"{self._name} redirects without end", why=str(error)) from error


@cache
def _trusted() -> ssl.SSLContext:
    # Reading the certificates takes longer than connecting, and every connection has a client of its own.
    try:
        return httpx.create_ssl_context()
    except OSError as error:
        raise FileUnusable("the file that SSL_CERT_FILE names cannot be used", why=str(error)) from error


def _beginning(response: httpx.Response) -> bytes:
    body = b""
    for chunk in response.iter_bytes():
        body += chunk
        if len(body) > _LONGEST_REFUSAL:
            break
    return body[:_LONGEST_REFUSAL]


def certificate_fault(error: BaseException | None) -> ssl.SSLCertVerificationError | None:
    """The certificate that was not accepted, if that is what is behind an error."""
    while error is not None and not isinstance(error, ssl.SSLCertVerificationError):
        error = error.__cause__ or error.__context__
    return error


def untrusted(name: str, error: ssl.SSLCertVerificationError) -> FeedFailed:
    """No retry mends a certificate."""
    return FeedFailed(
        f"{name} has a certificate that is not trusted here",
        why=error.verify_message,
        hint="behind a company proxy, name its certificates' file in the variable SSL_CERT_FILE",
    )


def unusable_proxy(error: Exception) -> FeedFailed:
    """A proxy that the environment names cannot be used as it is."""
    return FeedFailed(
        "the proxy that the environment names cannot be used",
        why=str(error),
        hint="see the variables HTTPS_PROXY, ALL_PROXY and NO_PROXY",
    )


_TOO_BIG = 1009


def websocket_messages(url: str, halt: StreamHalt, *, name: str, idle: float) -> Iterator[bytes | None]:
    """Messages as the bytes that came; first of all a None, once the server has accepted the connection.

    The connection is asked for a sign of life twice in `idle` seconds, and given up when there is none.
    """
    with (
        _faults(name),
        connect(
            url,
            user_agent_header=user_agent(),
            compression=None,
            open_timeout=CONNECT_TIMEOUT,
            ping_interval=idle / 2,
            ping_timeout=idle / 2,
            close_timeout=1.0,
            max_size=LONGEST,
        ) as connection,
    ):
        halt.cuts(connection.socket)
        yield None
        while True:
            yield connection.recv(decode=False)


@contextmanager
def _faults(name: str) -> Iterator[None]:
    try:
        yield
    except InvalidStatus as error:
        answer = error.response
        headers = {field.lower(): value for field, value in answer.headers.raw_items()}
        raise refusal(name, answer.status_code, headers, bytes(answer.body or b"")) from error
    except ConnectionClosed as error:
        if error.sent and error.sent.code == _TOO_BIG:
            raise FeedFailed(f"{name} sent a message that is too big", why=str(error)) from error
        raise ConnectionLapse(f"the connection was closed ({error})") from error
    except (InvalidProxy, ImportError) as error:
        raise unusable_proxy(error) from error
    except (InvalidHandshake, OSError) as error:
        if (wrong := certificate_fault(error)) is not None:
            raise untrusted(name, wrong) from error
        raise ConnectionLapse(str(error) or type(error).__name__) from error
