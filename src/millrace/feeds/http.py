"""The feed of an HTTP endpoint."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from queue import Empty

import uvicorn

from millrace.errors import FeedFailed, InvalidOption
from millrace.feeds.base.api import Batch, Feed, Run
from millrace.feeds.listeners.http_server import HttpListener, HttpListenerOptions
from millrace.plugins import option
from millrace.sockets import address_of, is_loopback, listening_socket, shown_address

MOST_CONNECTIONS = 1000
_START_SECONDS = 10.0
_TICK = 0.1


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
        """One batch a request, as they come."""
        if self.max_bytes <= 0:
            raise InvalidOption(f"--max-bytes: {self.max_bytes} is not above zero")
        intake = HttpListener(HttpListenerOptions(self.max_bytes, self.key, self.token))
        server = self._serve(intake, run)

        def take() -> Batch | None:
            while not run.stop.is_set():
                try:
                    return intake.batches.get(timeout=_TICK)
                except Empty:
                    continue
            return None

        try:
            # Not a loop with a name for the batch: who drops its receipt must be the sink and nobody else.
            yield from iter(take, None)
        finally:
            # The requests that the sink still works on are answered after this, when it has. So the server goes on
            # until they are; its thread is no daemon, and the process waits for it.
            intake.stop()
            server.should_exit = True

    def _serve(self, intake: HttpListener, run: Run) -> uvicorn.Server:
        with self._listening() as listener:
            there = shown_address(listener)
            config = uvicorn.Config(
                intake.app,
                log_config=None,
                log_level="error",
                access_log=False,
                server_header=False,
                ws="none",
                lifespan="on",
                limit_concurrency=MOST_CONNECTIONS,
            )
            server = uvicorn.Server(config)
            # The server closes the socket that it is given, so it is given one of its own.
            sockets = [listener.dup()]
        name = f"millrace-feed-http-{there.rpartition(':')[2]}"
        threading.Thread(target=server.run, args=(sockets,), name=name).start()
        if not intake.ready.wait(_START_SECONDS):
            server.should_exit = True
            raise FeedFailed("the HTTP endpoint did not start")
        run.say(f"listening at http://{there}/")
        run.ready()
        return server

    def _listening(self) -> socket.socket:
        _, address = address_of(self.host, self.port)
        if not self.token and not is_loopback(address):
            raise InvalidOption(
                f"{self.host} can be reached from other machines, so a token is needed",
                hint="set one in MILLRACE_HTTP_TOKEN, or listen at 127.0.0.1",
            )
        return listening_socket(address, self.port)
