"""The feed of an HTTP endpoint."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from dataclasses import dataclass

import uvicorn

from millrace.errors import FeedFailed, InvalidOption
from millrace.feeds.base.api import Batch, Feed, Run
from millrace.feeds.listeners.backpressure import queued_batches
from millrace.feeds.listeners.http_server import HttpListener, HttpListenerOptions
from millrace.plugins import option
from millrace.sockets import address_of, format_address, is_loopback, listening_socket

MAX_CONNECTIONS = 1000
_START_TIMEOUT_S = 10.0


@dataclass(frozen=True, kw_only=True)
class Http(Feed):
    """What is POSTed to an HTTP endpoint, as JSON or NDJSON, each request answered once the sink has it.

    POST / takes `application/json` (an object, or an array of objects) and `application/x-ndjson` or
    `application/jsonl` (an object a line), all of a request or nothing of it. `?key=id` makes the field `id` the
    record's key. The answers:

        200  {"accepted": n}, and the sink has them
        400  what is wrong and where: {"error": …, "line": 3}, or "element" (both count from 1)
        401  the token is missing or wrong       408  the body did not come in time
        413  too big                             415  another content type
        503  the sink failed, or the feed is stopping: they were not delivered, send them again

    At least once: a client that got no answer must send again. GET /healthz answers 200 while the feed listens.
    """

    host: str = option("127.0.0.1", "The address to listen at; beyond this machine it needs a token.")
    port: int = option(0, "The port to listen at.", shown_default="a free one")
    key: str | None = option(None, "The JSON field whose value becomes the record's key; ?key= comes before it.")
    max_bytes: int = option(10_000_000, "The largest body that is taken, in bytes.")
    token: str | None = option(None, "What clients must send as their bearer token.", variable="MILLRACE_HTTP_TOKEN")

    def batches(self, run: Run) -> Iterator[Batch]:
        if self.max_bytes <= 0:
            raise InvalidOption(f"--max-bytes: {self.max_bytes} is not above zero")
        listener = HttpListener(HttpListenerOptions(self.max_bytes, self.key, self.token))
        server = self._serve(listener, run)
        try:
            yield from queued_batches(listener.batches, run.stop)
        finally:
            # Requests whose records the sink still has are answered after this, when it confirms them. The server's
            # thread runs until then; it is no daemon, so the process waits for it.
            listener.stop()
            server.should_exit = True

    def _serve(self, listener: HttpListener, run: Run) -> uvicorn.Server:
        with self._listening_socket() as connection:
            address = format_address(connection)
            config = uvicorn.Config(
                listener.app,
                log_config=None,
                log_level="error",
                access_log=False,
                server_header=False,
                ws="none",
                lifespan="on",
                limit_concurrency=MAX_CONNECTIONS,
            )
            server = uvicorn.Server(config)
            sockets = [connection.dup()]  # the server closes the socket that it gets
        name = f"millrace-feed-http-{address.rpartition(':')[2]}"
        threading.Thread(target=server.run, args=(sockets,), name=name).start()
        if not listener.ready.wait(_START_TIMEOUT_S):
            server.should_exit = True
            raise FeedFailed("the HTTP endpoint did not start")
        run.notify(f"listening at http://{address}/")
        run.ready()
        return server

    def _listening_socket(self) -> socket.socket:
        _, address = address_of(self.host, self.port)
        if not self.token and not is_loopback(address):
            raise InvalidOption(
                f"{self.host} can be reached from other machines, so a token is needed",
                hint="set one in MILLRACE_HTTP_TOKEN, or listen at 127.0.0.1",
            )
        return listening_socket(address, self.port)
