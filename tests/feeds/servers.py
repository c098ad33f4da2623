"""Small servers that speak the protocols of the streaming feeds' origins, and break off when a test says so."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from websockets.datastructures import Headers
from websockets.exceptions import ConnectionClosed
from websockets.http11 import Request, Response
from websockets.server import ServerProtocol
from websockets.sync.server import Server, ServerConnection, serve

from millrace.clients.kafka.record import Record
from millrace.feeds.base.api import Feed, Run
from millrace.feeds.public_streams import reader
from millrace.feeds.public_streams.backoff import Backoff, DelayRamp

NO_WAIT = DelayRamp(0.001, 0.001)
QUICK = Backoff(network=NO_WAIT, server=NO_WAIT, limited=NO_WAIT, jitter=0.0)


def quicken(monkeypatch: pytest.MonkeyPatch, feed: type[Feed]) -> None:
    """Let a feed wait for nothing."""
    monkeypatch.setattr(feed, "backoff", QUICK)
    monkeypatch.setattr(reader, "LINGER_S", 0.01)


def gather(feed: Feed, run: Run, count: int) -> list[Record]:
    """Take so many records and confirm each batch, then leave the feed."""
    records: list[Record] = []
    with closing(feed.batches(run)) as batches:  # type: ignore[type-var]
        for batch in batches:
            records += batch.records
            if batch.done:
                batch.done(None)
            if len(records) >= count:
                break
    return records


class Exchange:
    """One request and the connection to answer it on."""

    def __init__(self, handler: BaseHTTPRequestHandler, ended: threading.Event) -> None:
        split = urlsplit(handler.path)
        self.method = handler.command
        self.path = split.path
        self.params = {name: values[-1] for name, values in parse_qs(split.query).items()}
        self.headers = {name.lower(): value for name, value in handler.headers.items()}
        self.body = handler.rfile.read(int(self.headers.get("content-length", 0)))
        self._handler = handler
        self._ended = ended

    def reply(self, status: int, body: object = None, headers: dict[str, str] | None = None) -> None:
        """A whole answer."""
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        self._handler.send_response(status)
        for name, value in {"content-length": str(len(content)), **(headers or {})}.items():
            self._handler.send_header(name, value)
        self._handler.end_headers()
        self._handler.wfile.write(content)

    def start(self, kind: str = "text/event-stream") -> None:
        """The head of an answer without end."""
        self._handler.send_response(200)
        self._handler.send_header("content-type", kind)
        self._handler.send_header("transfer-encoding", "chunked")
        self._handler.end_headers()

    def send(self, data: bytes) -> None:
        """One chunk of it."""
        self._handler.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
        self._handler.wfile.flush()

    def drop(self) -> None:
        """Break off in the middle."""
        with suppress(OSError):
            self._handler.connection.shutdown(socket.SHUT_RDWR)
        self._handler.close_connection = True

    def hold(self) -> None:
        """Stay connected and say nothing until the test is over."""
        self._ended.wait(30)
        self.drop()


class Site:
    """An HTTP server on a free port that answers as a test says; it remembers every request."""

    def __init__(self, answer: Callable[[Exchange], None]) -> None:
        self.requests: list[Exchange] = []
        self._ended = threading.Event()
        site = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def _answer(self) -> None:
                exchange = Exchange(self, site._ended)
                site.requests.append(exchange)
                with suppress(OSError):
                    answer(exchange)

            do_GET = do_POST = _answer  # noqa: N815 - the standard library's names

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = False
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01})

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}"

    def __enter__(self) -> Site:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def in_turn(*answers: Callable[[Exchange], None]) -> Callable[[Exchange], None]:
    """The first answer for the first request, and so on; the last one for all that follow."""
    left = list(answers)

    def answer(exchange: Exchange) -> None:
        (left.pop(0) if len(left) > 1 else left[0])(exchange)

    return answer


def refuse(status: int, body: object = None, **headers: str) -> Callable[[Exchange], None]:
    """An answer that is not success."""
    return lambda exchange: exchange.reply(
        status, body, {name.replace("_", "-"): value for name, value in headers.items()}
    )


@dataclass
class Log:
    """Events that an origin keeps, and after how many of them each connection breaks off."""

    events: list[dict[str, Any]]
    breaks: list[int] = field(default_factory=list)

    def part(self, events: list[dict[str, Any]]) -> tuple[list[dict[str, Any]], bool]:
        """What this connection sends, and whether it then breaks off."""
        if not self.breaks:
            return events, False
        return events[: self.breaks.pop(0)], True


def event_stream(log: Log) -> Callable[[Exchange], None]:
    """Wikimedia's EventStreams: goes on after the millisecond that Last-Event-ID names."""

    def answer(exchange: Exchange) -> None:
        given = json.loads(exchange.headers.get("last-event-id", "[]"))
        since = max((place["timestamp"] for place in given), default=0)
        events, breaks = log.part([event for event in log.events if event["at"] >= since])
        exchange.start()
        exchange.send(b":ok\n\n")
        for event in events:
            place = [{"topic": "eqiad.change", "partition": 0, "timestamp": event["at"] + 1}]
            exchange.send(b"event: message\nid: %s\n" % json.dumps(place).encode())
            exchange.send(b"data: %s\n\n" % json.dumps(event).encode())
        if breaks:
            exchange.send(b'event: message\nid: [{"timestamp": 99999999999999}]\ndata: {"half an ev')
            exchange.drop()
        else:
            exchange.hold()

    return answer


@dataclass
class Timeline:
    """A Mastodon server: a stream that knows only the present, and a timeline that has the past too."""

    posts: list[dict[str, Any]]
    connections: list[list[tuple[str, object]]]
    """What each connection sends live; all but the last break off after it, unless they are told to "hold"."""
    token: str | None = None
    streaming: str | None = None

    def __call__(self, exchange: Exchange) -> None:
        if exchange.path == "/api/v2/instance":
            exchange.reply(200, {"configuration": {"urls": {"streaming": self.streaming}}} if self.streaming else {})
        elif self.token and exchange.headers.get("authorization") != f"Bearer {self.token}":
            exchange.reply(401, {"error": "Missing access token"})
        elif exchange.path.startswith("/api/v1/timelines/public"):
            since = int(exchange.params["min_id"])
            newer = [post for post in self.posts if int(post["id"]) > since][: int(exchange.params["limit"])]
            exchange.reply(200, newer[::-1])
        else:
            self._stream(exchange)

    def _stream(self, exchange: Exchange) -> None:
        exchange.start()
        exchange.send(b":)\n")
        for kind, payload in self.connections.pop(0) if self.connections else ():
            if kind == "hold":
                exchange.hold()
            if kind == "update" and payload not in self.posts:
                self.posts.append(payload)  # type: ignore[arg-type]
            text = payload if isinstance(payload, str) else json.dumps(payload)
            exchange.send(f"event: {kind}\ndata: {text}\n\n:thump\n".encode())
        if self.connections:
            exchange.drop()
        else:
            exchange.hold()


@contextmanager
def jetstream(log: Log, refusals: list[tuple[int, dict[str, str]]] | None = None) -> Iterator[tuple[str, list[str]]]:
    """Bluesky's Jetstream: plays the wanted collections from the cursor on; gives its URL and the requests."""
    requests: list[str] = []
    ended = threading.Event()

    def refuse_some(connection: ServerConnection, request: Request) -> Response | None:
        requests.append(request.path)
        if not refusals:
            return None
        status, headers = refusals.pop(0)
        return Response(status, HTTPStatus(status).phrase, Headers({"content-length": "0", **headers}), b"")

    def play(connection: ServerConnection) -> None:
        query = parse_qs(urlsplit(connection.request.path).query)  # type: ignore[union-attr]
        cursor = int(query.get("cursor", ["0"])[0])
        wanted = query.get("wantedCollections", [])
        matching = [event for event in log.events if event["time_us"] >= cursor and _wanted(event, wanted)]
        events, breaks = log.part(matching)
        with suppress(ConnectionClosed):
            for event in events:
                connection.send(json.dumps(event))
            if breaks:
                # The messages first, then the break, which would overtake them.
                connection.ping().wait(5)
                connection.socket.shutdown(socket.SHUT_RDWR)
            else:
                ended.wait(30)

    with serve(play, "127.0.0.1", 0, process_request=refuse_some, close_timeout=0.1) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"ws://127.0.0.1:{_port(server)}/subscribe", requests
        finally:
            ended.set()
            server.shutdown()
            thread.join()


def _port(server: Server) -> int:
    return int(server.socket.getsockname()[1])


def _wanted(event: dict[str, Any], collections: list[str]) -> bool:
    return event["kind"] != "commit" or not collections or event["commit"]["collection"] in collections


@contextmanager
def mute_websocket() -> Iterator[str]:
    """A server that shakes hands with one client and then does not even answer a ping."""

    def shake_hands() -> None:
        connection, _ = listener.accept()
        with connection:
            protocol = ServerProtocol()
            protocol.receive_data(connection.recv(65536))
            [request] = protocol.events_received()
            protocol.send_response(protocol.accept(request))  # type: ignore[arg-type]
            connection.sendall(b"".join(protocol.data_to_send()))
            while connection.recv(65536):
                pass

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=shake_hands)
        thread.start()
        yield f"ws://127.0.0.1:{listener.getsockname()[1]}/subscribe"
        thread.join(5)
